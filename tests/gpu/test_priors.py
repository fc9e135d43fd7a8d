"""Outputs that are added to what they held, on the device; some of the tests name sm_90a."""

import pytest

from tests.choosing.test_priors import (  # noqa: F401
    convolution,
    last,
    test_a_product_for_each_image,
    test_an_image_of_few_channels,
    test_conv_sm80,
    test_conv_sm90,
    test_depthwise,
    test_every_size,
    test_fallback,
    test_pixels_that_come_once,
    test_pointwise,
    test_resample,
    test_shapes_and_types,
    test_what_reads_the_output_finds_the_new_values,
    watch,
)
from tests.engines.conv.convs import around, packed
from tests.support.checked import check

pytestmark = pytest.mark.sm90


@pytest.mark.parametrize("strides", [last, packed], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("target", ["sm_90", "sm_90a"])
def test_more_tiles_than_multiprocessors(target, strides):
    shapes = ([8, 64, 56, 56], [64, 64, 3, 3], around(1))
    g = convolution(*shapes, target=target, strides=strides, reads=True)
    check(g, target=target, allowance=1e-4)
