"""Norms of equal elements on the device: every distance from the mean is 0."""

import pytest

from tests.engines.rows.test_equal_elements import *  # noqa: F403

pytestmark = pytest.mark.sm90
