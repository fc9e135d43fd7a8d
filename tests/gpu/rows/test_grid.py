"""The tests of engine grid, on the device; they name sm_90a."""

import pytest

from tests.engines.rows.test_grid import *  # noqa: F403

pytestmark = pytest.mark.sm90
