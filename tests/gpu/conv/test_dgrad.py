"""The tests of gradients by the image by other engines, on the device."""

from tests.engines.conv.test_dgrad import *  # noqa: F403
