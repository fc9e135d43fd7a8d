"""The tests of engine sdpa_bwd_sm90, on the device, and random cases of larger sizes."""

import pytest

from tests.checked_gradient import run_seed
from tests.engines.attention.test_bwd_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90


@pytest.mark.parametrize("seed", range(100, 130))
def test_random_cases_of_larger_sizes(seed):
    run_seed(seed, 700, 6)
