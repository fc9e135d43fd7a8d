"""The tests of what conv_wgrad_sm90 does beside the gradient, on the device; they name sm_90a."""

import pytest

from tests.engines.conv.test_wgrad_beside import *  # noqa: F403

pytestmark = pytest.mark.sm90
