"""Random attention, on the device: the tests of engines, and shards of larger sizes.

Thousands, by many processes: `python -m tests.gpu.random_attention`.
"""

import pytest

from tests.checked_attention import failures
from tests.engines.attention.test_random_attention import *  # noqa: F403

OF_A_SHARD = 100


def shard(number, engine, target=None, most=700, **options):
    first = 1000 + number * OF_A_SHARD
    assert not failures(engine, range(first, first + OF_A_SHARD), most, target, **options)


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


@pytest.mark.sm90
@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_hopper_of_large_scores(number):
    shard(number, "sdpa_fwd_sm90", "sm_90a", 2048, is_large=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_any_architecture_of_large_scores(number):
    shard(number, "sdpa_sm80", most=2048, is_large=True)


@pytest.mark.sm90
@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_any_architecture_of_fp8(number):
    shard(number, "sdpa_sm80", "sm_90a", is_fp8=True)
