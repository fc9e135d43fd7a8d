"""The tests of the swapped form, on the device; they name sm_90a."""

import pytest

from tests.engines.conv.test_swapped_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
