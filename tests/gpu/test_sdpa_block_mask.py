"""Attention under masks of blocks, on the device."""

from tests.engines.test_sdpa_block_mask import *  # noqa: F403
