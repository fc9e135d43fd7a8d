"""The tests of random numbers, on the device."""

from tests.engines.elementwise.test_rng import *  # noqa: F403
