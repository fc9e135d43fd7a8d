"""Attention's gradient on Hopper's tensor cores, in the interpreter."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.choosing.heuristics import best_config
from dnnc.dialect.fusion import partition
from dnnc.engines.attention.bwd_sm90 import SDPA_BWD_SM90
from dnnc.target import of
from tests.checked_gradient import run, run_seed
from tests.dialect.attention_examples import lengths
from tests.dialect.attention_gradient_examples import gradient

CAUSAL = {"attn_scale": 0.2, "use_causal_mask": True}
FULL = {"attn_scale": 0.2}
BOTTOM_RIGHT = {"diagonal_band_right_bound": 0, "diagonal_alignment": "BOTTOM_RIGHT"}


def heads_of(depth, value_depth=0, heads=1, kv_heads=0, batch=1):
    return {
        "batch": batch, "heads": heads, "kv_heads": kv_heads or heads, "depth": depth,
        "value_depth": value_depth or depth,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "io", "rows", "columns", "dims"),
    [
        (CAUSAL, dtypes.bf16, 200, 130, heads_of(128, heads=2)),
        (CAUSAL, dtypes.f16, 130, 257, heads_of(64, heads=4, kv_heads=2)),
        (FULL, dtypes.bf16, 77, 45, heads_of(96, 40, batch=2)),
        ({"attn_scale": 0.2, "diagonal_band_left_bound": 50, "diagonal_band_right_bound": 3},
         dtypes.bf16, 300, 260, heads_of(64)),
        (BOTTOM_RIGHT, dtypes.f16, 1, 65, heads_of(8, 128)),
    ],
    ids=["causal", "shared_heads", "other_heads", "window", "one_query"],
)  # fmt: skip
def test_engine_takes_it(arguments, io, rows, columns, dims):
    run(arguments, io, rows=rows, columns=columns, **dims)


def test_rows_that_see_no_key_get_zeros():
    """Their statistics are minus infinity."""
    found, _ = run(BOTTOM_RIGHT, dtypes.bf16, rows=150, columns=40, **heads_of(64))
    assert not found["dq"][:, :, :110].any()
    assert found["dq"][:, :, 110:].any()


def test_padded_sequences():
    """One has no queries, the other 33 of 140 keys."""
    known = {
        "seq_len_q": np.reshape([0, 100], (2, 1, 1, 1)),
        "seq_len_kv": np.reshape([64, 33], (2, 1, 1, 1)),
    }
    sizes = {"rows": 130, "columns": 140, **heads_of(64, heads=2, kv_heads=1, batch=2)}
    found, _ = run(lambda g: {**lengths(g), **CAUSAL}, dtypes.bf16, known=known, **sizes)
    assert not any(x[0].any() for x in found.values())
    assert not found["dk"][1, :, 33:].any()


def test_the_same_bits_each_time_are_left_to_others():
    graph = gradient({**CAUSAL, "use_deterministic_algorithm": True}, io=dtypes.f16, rows=64,
                     columns=64, **heads_of(64))().graph.finalize()  # fmt: skip
    (fusion,) = partition(graph, [graph.live_ops])
    reasons = SDPA_BWD_SM90.supports(fusion, of("sm_90a"))
    assert [reason.clause for reason in reasons] == ["determinism"]
    assert "sdpa_bwd_sm90" not in {c.engine.name for c in best_config(graph, of("sm_90a")).choices}


def test_large_logits():
    """Of 1e4: each row's weight is on one key, so that dS is what rounding leaves."""
    known = {"q": 1000 * np.random.default_rng(1).normal(size=(1, 1, 64, 64))}
    sizes = {"rows": 64, "columns": 130, **heads_of(64)}
    run({"attn_scale": 1.0}, dtypes.bf16, known=known, smallest=10.0, **sizes)


@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(6))
def test_random_cases(seed):
    run_seed(seed, 150, 3)
