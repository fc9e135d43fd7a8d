"""The tests of warpgroups that take turns, on the device; they name sm_90a."""

import pytest

from tests.engines.product.test_turns_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
