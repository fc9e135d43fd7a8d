"""The tests of what comes before the convolution of conv_sm90, on the device."""

import pytest

from tests.engines.conv.test_before_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
