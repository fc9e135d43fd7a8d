"""The tests of long rows, on the device; they name sm_90a."""

import pytest

from tests.engines.rows.test_long_rows import *  # noqa: F403

pytestmark = pytest.mark.sm90
