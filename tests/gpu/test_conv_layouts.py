"""The tests of layouts that are copied, on the device; they name sm_90a."""

import pytest

from tests.engines.test_conv_layouts import *  # noqa: F403

pytestmark = pytest.mark.sm90
