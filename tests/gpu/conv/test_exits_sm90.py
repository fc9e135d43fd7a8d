"""The tests of what leaves conv_sm90, on the device."""

import pytest

from tests.engines.conv.test_exits_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
