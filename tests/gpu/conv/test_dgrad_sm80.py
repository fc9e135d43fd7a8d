"""The tests of gradients by the image by engine conv_sm80, on the device."""

from tests.engines.conv.test_dgrad_sm80 import *  # noqa: F403
