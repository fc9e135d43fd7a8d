"""The tests of engine transpose, on the device."""

from tests.engines.elementwise.test_transpose import *  # noqa: F403
