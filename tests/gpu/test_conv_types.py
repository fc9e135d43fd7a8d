"""Convolutions of operands of two types, on the device."""

from tests.engines.test_conv_types import *  # noqa: F403
