"""The tests of moe_grouped_matmul, on the device."""

from tests.engines.product.test_grouped_matmul import *  # noqa: F403
