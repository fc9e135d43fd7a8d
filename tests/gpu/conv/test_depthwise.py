"""The tests of engine conv_depthwise, on the device."""

from tests.engines.conv.test_depthwise import *  # noqa: F403
