"""The tests of large scores of many blocks, on the device."""

from tests.engines.attention.test_steady import *  # noqa: F403
