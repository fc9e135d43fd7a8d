"""Gradients of attention whose scores are all far below 0, on the device."""

from tests.engines.attention.test_far_below_zero import *  # noqa: F403
