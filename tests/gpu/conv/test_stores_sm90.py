"""Outputs of conv_sm90 that L2 gives up first, on the device."""

import pytest

from tests.engines.conv.test_stores_sm90 import test_they_are_right  # noqa: F401

pytestmark = pytest.mark.sm90
