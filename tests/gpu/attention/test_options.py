"""The tests of attention's options, on the device."""

from tests.engines.attention.test_options import *  # noqa: F403
