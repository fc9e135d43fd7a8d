"""Attention by `mma.sync`, and decode, on the device."""

from tests.engines.test_sdpa_sm80 import *  # noqa: F403
