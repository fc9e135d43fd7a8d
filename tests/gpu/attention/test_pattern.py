"""The tests of attention as several kernels, on the device; most name sm_90a."""

import pytest

from tests.engines.attention.test_pattern import *  # noqa: F403

pytestmark = pytest.mark.sm90
