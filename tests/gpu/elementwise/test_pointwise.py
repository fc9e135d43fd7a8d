"""The tests of engine pointwise, on the device."""

from tests.engines.elementwise.test_pointwise import *  # noqa: F403
