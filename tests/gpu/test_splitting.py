"""Graphs as several fusions, on the device; the tests name sm_90a."""

import pytest

from tests.choosing.test_splitting import (  # noqa: F401
    test_fusions_of_the_same_axes_compute_what_the_reference_computes,
    test_split_batchnorm_computes_what_the_reference_computes,
    test_the_amax_of_all_is_nan_if_any_element_is,
)

pytestmark = pytest.mark.sm90
