"""The tests of views around products and attention, on the device; some name sm_90a."""

import pytest

from tests.engines.views.test_borders import *  # noqa: F403

pytestmark = pytest.mark.sm90
