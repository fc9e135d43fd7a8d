"""The tests of groups side by side, on the device."""

import pytest

from tests.engines.conv.test_beside_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
