"""The tests of halos, on the device; they name sm_90a."""

import pytest

from tests.engines.conv.test_halo_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
