"""Packed boolean outputs of engine matmul_sm90, on the device; the tests name sm_90a."""

import pytest

from tests.engines.product.test_booleans_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
