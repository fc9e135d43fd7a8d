"""The tests of engine rows, on the device; they name sm_90a."""

import pytest

from tests.engines.rows.test_engine import *  # noqa: F403

pytestmark = pytest.mark.sm90
