"""The tests of groups side by side, on the device."""

import pytest

from tests.engines.test_conv_beside_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
