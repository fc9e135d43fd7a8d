"""Convolutions of engine fallback, on the device."""

from tests.engines.conv.test_pattern import *  # noqa: F403
