"""The tests of engine conv_depthwise, on the device."""

from tests.engines.test_conv_depthwise import *  # noqa: F403
