"""Outputs that are added to what they held, on the device; some of the tests name sm_90a."""

import pytest

from tests.engines.test_priors import (  # noqa: F401
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

pytestmark = pytest.mark.sm90
