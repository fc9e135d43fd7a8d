"""Statistics of norms far from 0, on the device; they name sm_80 and sm_90a."""

import pytest

from tests.engines.rows.test_far_means import *  # noqa: F403

pytestmark = pytest.mark.sm90
