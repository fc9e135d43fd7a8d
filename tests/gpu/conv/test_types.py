"""Convolutions of operands of two types, on the device."""

from tests.engines.conv.test_types import *  # noqa: F403
