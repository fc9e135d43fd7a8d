"""The tests of attention's gradient, on the device; most name sm_90a."""

import pytest

from tests.engines.test_attention_gradient import *  # noqa: F403

pytestmark = pytest.mark.sm90
