"""The tests of engine conv_wgrad_sm80, on the device; they name sm_80."""

from tests.engines.conv.test_wgrad_sm80 import *  # noqa: F403
