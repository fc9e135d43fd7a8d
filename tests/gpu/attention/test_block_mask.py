"""Attention under masks of blocks, on the device."""

from tests.engines.attention.test_block_mask import *  # noqa: F403
