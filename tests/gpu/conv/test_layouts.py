"""The tests of layouts that are copied, on the device; they name sm_90a."""

import pytest

from tests.engines.conv.test_layouts import *  # noqa: F403

pytestmark = pytest.mark.sm90
