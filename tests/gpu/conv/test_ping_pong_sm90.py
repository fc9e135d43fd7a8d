"""The tests of convolutions whose warpgroups ping-pong, on the device; they name sm_90a."""

import pytest

from tests.engines.conv.test_ping_pong_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
