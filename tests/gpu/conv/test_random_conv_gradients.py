"""Random gradients of convolutions, on the device."""

from tests.engines.conv.test_random_conv_gradients import *  # noqa: F403
