"""The tests of large scores of many blocks, on the device."""

from tests.engines.test_sdpa_steady import *  # noqa: F403
