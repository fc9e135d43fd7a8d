"""The tests of engine pointwise, on the device."""

from tests.engines.test_pointwise import *  # noqa: F403
