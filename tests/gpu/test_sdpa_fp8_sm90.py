"""Attention of fp8 in one kernel, on the device."""

from tests.engines.test_sdpa_fp8_sm90 import *  # noqa: F403
