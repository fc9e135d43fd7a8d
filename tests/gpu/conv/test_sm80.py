"""The tests of engine conv_sm80, on the device."""

from tests.engines.conv.test_sm80 import *  # noqa: F403
