"""Gradients of convolutions by engine fallback, on the device."""

from tests.engines.conv.test_gradients import *  # noqa: F403
