"""The tests of engine resample, on the device."""

from tests.engines.elementwise.test_resample import *  # noqa: F403
