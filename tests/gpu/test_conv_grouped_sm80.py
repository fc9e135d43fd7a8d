"""The tests of engine conv_grouped_sm80, on the device."""

from tests.engines.test_conv_grouped_sm80 import *  # noqa: F403
