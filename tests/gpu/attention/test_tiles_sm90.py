"""Tiles that a block takes one after the other, on a device."""

from tests.engines.attention.test_tiles_sm90 import *  # noqa: F403
