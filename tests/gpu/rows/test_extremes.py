"""The tests of extremes of all rows, on the device; they name sm_90a."""

import pytest

from tests.engines.rows.test_extremes import *  # noqa: F403

pytestmark = pytest.mark.sm90
