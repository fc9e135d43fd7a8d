"""Attention of fp8 in one kernel, on the device."""

from tests.engines.attention.test_fp8_sm90 import *  # noqa: F403
