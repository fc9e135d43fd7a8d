"""Random convolutions, on the device."""

from tests.engines.conv.test_random_convs import *  # noqa: F403
