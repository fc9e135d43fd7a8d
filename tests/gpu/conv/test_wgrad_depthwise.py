"""The tests of engine conv_wgrad_depthwise, on the device."""

from tests.engines.conv.test_wgrad_depthwise import *  # noqa: F403
