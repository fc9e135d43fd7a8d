"""Attention in one kernel, on the device."""

from tests.engines.attention.test_fwd_sm90 import *  # noqa: F403
