"""Attention whose outputs have an element for each score, on the device; and larger ones."""

import pytest

from tests.engines.test_sdpa_kept import *  # noqa: F403
from tests.mha_graphs import SmallAttention
from tests.support.checked import check


@pytest.mark.parametrize("dtype", ["HALF", "BFLOAT16"])
@pytest.mark.parametrize("dropout", ["", "drawn", "given"])
def test_sequences_of_512(dropout, dtype):
    made = SmallAttention(
        batch=8, heads=12, queries=512, keys=512, dtype=dtype, is_causal=True, dropout=dropout
    )
    check(made.g, inputs=made.inputs(), slack=4.0, allowance=2.0**-7 if dtype != "HALF" else 2e-3)
