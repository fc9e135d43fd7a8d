"""The tests of tests/engines/product/test_fp8_sm80.py, on the device."""

from tests.engines.product.test_fp8_sm80 import *  # noqa: F403
