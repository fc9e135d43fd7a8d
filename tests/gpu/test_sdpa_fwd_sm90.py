"""Attention in one kernel, on the device."""

from tests.engines.test_sdpa_fwd_sm90 import *  # noqa: F403
