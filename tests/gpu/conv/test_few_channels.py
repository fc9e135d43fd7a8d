"""The tests of what engines of few channels have in common, on the device."""

from tests.engines.conv.test_few_channels import *  # noqa: F403
