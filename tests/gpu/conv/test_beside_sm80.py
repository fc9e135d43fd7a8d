"""The tests of groups side by side in engine conv_sm80, on the device."""

from tests.engines.conv.test_beside_sm80 import *  # noqa: F403
