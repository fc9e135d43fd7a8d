"""The tests of engine conv_grouped_sm80, on the device."""

from tests.engines.conv.test_grouped_sm80 import *  # noqa: F403
