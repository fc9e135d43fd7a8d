"""The tests of grouped products by matmul_sm90, on the device; they name sm_90a."""

import pytest

from tests.engines.product.test_grouped_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
