"""The tests of rows over a cluster of matmul_sm90, on the device; they name sm_90a."""

import pytest

from tests.engines.rows.test_wide_rows_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
