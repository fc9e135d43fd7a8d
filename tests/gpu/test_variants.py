"""The tests of plans with several configs, on the device; they name sm_90a."""

import pytest

from tests.choosing.test_variants import *  # noqa: F403

pytestmark = pytest.mark.sm90
