"""The tests of engine reduction, on the device."""

from tests.engines.elementwise.test_reduction import *  # noqa: F403
