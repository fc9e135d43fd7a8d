"""Rotary embeddings ahead of attention, on the device."""

import pytest

from tests.engines.attention.test_rope import *  # noqa: F403

pytestmark = pytest.mark.sm90
