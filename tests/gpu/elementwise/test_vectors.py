"""The tests of vectorized tensors, on the device; some name sm_90a."""

import pytest

from tests.engines.elementwise.test_vectors import *  # noqa: F403

pytestmark = pytest.mark.sm90
