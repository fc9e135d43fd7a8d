"""The tests of warpgroups that ping-pong, on the device; they name sm_90a."""

import pytest

from tests.engines.product.test_ping_pong_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
