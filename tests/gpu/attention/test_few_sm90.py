"""Few queries by wgmma, on a device."""

from tests.engines.attention.test_few_sm90 import *  # noqa: F403
