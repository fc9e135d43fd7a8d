"""The tests of what leaves conv_sm90, on the device."""

import pytest

from tests.engines.test_conv_exits_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
