"""The tests of rows that warps share, on the device; they name sm_90a."""

import pytest

from tests.engines.rows.test_shared import *  # noqa: F403

pytestmark = pytest.mark.sm90
