"""The tests of rows that warps share, on the device; they name sm_90a."""

import pytest

from tests.engines.test_rows_shared import *  # noqa: F403

pytestmark = pytest.mark.sm90
