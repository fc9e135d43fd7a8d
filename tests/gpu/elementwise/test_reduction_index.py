"""The tests of the index of minima and maxima, on the device; some name sm_90a."""

import pytest

from tests.engines.elementwise.test_reduction_index import *  # noqa: F403

pytestmark = pytest.mark.sm90
