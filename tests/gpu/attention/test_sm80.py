"""Attention by `mma.sync`, and decode, on the device."""

from tests.engines.attention.test_sm80 import *  # noqa: F403
