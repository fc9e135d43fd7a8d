"""Random convolutions, on the device."""

from tests.engines.test_random_convs import *  # noqa: F403
