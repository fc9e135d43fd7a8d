"""The tests of masks that compare numbers in memory, on a device."""

from tests.engines.test_sdpa_numbers_sm90 import *  # noqa: F403
