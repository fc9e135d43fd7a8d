"""The tests of engine conv_wgrad_sm90, on the device; they name sm_90a."""

import pytest

from tests.engines.conv.test_wgrad_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
