"""The tests of reductions at the exit of conv_sm80, on the device."""

from tests.engines.conv.test_exits_sm80 import *  # noqa: F403
