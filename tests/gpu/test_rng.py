"""The tests of random numbers, on the device."""

from tests.engines.test_rng import *  # noqa: F403
