"""Gradients of convolutions by engine fallback, on the device."""

from tests.engines.test_conv_gradients import *  # noqa: F403
