"""Attention's gradient from its stored weights, on the device; and larger ones."""

import pytest

from tests.engines.attention.test_bwd_kept import *  # noqa: F403
from tests.engines.attention.test_bwd_kept import run, run_seed


@pytest.mark.parametrize("dtype", ["HALF", "BFLOAT16"])
@pytest.mark.parametrize("one", [0, 1])
def test_sequences_of_512(one, dtype):
    run([8, 12, 512, 512], 64, {"dtype": dtype}, knobs={"KERNEL_CFG": one})


@pytest.mark.parametrize("seed", range(100, 140))
def test_random_cases_of_larger_sizes(seed):
    run_seed(seed, 520, 256)
