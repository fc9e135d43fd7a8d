"""The tests of engine reduction, on the device."""

from tests.engines.test_reduction import *  # noqa: F403
