"""Random gradients of filters by the engines that multiply them, on the device."""

from tests.engines.conv.test_random_wgrads import *  # noqa: F403
