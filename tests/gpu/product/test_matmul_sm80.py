"""The tests of engine matmul_sm80, on the device."""

from tests.engines.product.test_matmul_sm80 import *  # noqa: F403
