"""Random attention, on the device: the tests of engines, and thousands of larger sizes in shards.

    for i in $(seq 0 29); do
        python -m pytest -m "gpu and slow" "tests/gpu/test_random_attention.py::test_hopper[$i]"
    done

Several may run beside each other: most of a shard's time is the compiler's and the reference's.
"""

import pytest

from tests.engines.test_random_attention import *  # noqa: F403
from tests.engines.test_random_attention import failures

OF_A_SHARD = 100


def shard(number, engine, target=None, **options):
    first = 1000 + number * OF_A_SHARD
    assert not failures(engine, range(first, first + OF_A_SHARD), 700, target, **options)


@pytest.mark.sm90
@pytest.mark.slow
@pytest.mark.parametrize("number", range(30))
def test_hopper(number):
    shard(number, "sdpa_fwd_sm90", "sm_90a")


@pytest.mark.sm90
@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_hopper_of_fp8(number):
    shard(number, "sdpa_fwd_sm90", "sm_90a", is_fp8=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_any_architecture(number):
    shard(number, "sdpa_sm80")
