"""The tests of masks that compare numbers in memory, on a device."""

from tests.engines.attention.test_numbers_sm90 import *  # noqa: F403
