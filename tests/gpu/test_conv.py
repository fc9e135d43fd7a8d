"""Convolutions of engine fallback, on the device."""

from tests.engines.test_conv import *  # noqa: F403
