"""Graphs and knobs that engine rows takes, on the device; they name sm_90a."""

import pytest

from tests.engines.rows.test_surface import *  # noqa: F403

pytestmark = pytest.mark.sm90
