"""Gradients of attention whose scores are all far below 0, in the interpreter.

If keys past the last one counted as scores of 0, their exponentials would be beyond f32: 0 - stats
is above 88.7.  Libraries gave NaN for one query (cudnn-frontend #1072), for 64 keys more than whole
tiles of 128 with a mask (pytorch #196678), and for part of a tile (cudnn-frontend #160).
"""

import numpy as np
import pytest

from dnnc import dtypes
from tests.checked_gradient import SM80, SM90, run
from tests.support import machine

ENGINES = pytest.mark.parametrize(
    "engine", [pytest.param(SM90, id="sm90", marks=pytest.mark.sm90), pytest.param(SM80, id="sm80")]
)


def dims_of(rows, columns, heads=1):
    return {
        "rows": rows, "columns": columns, "heads": heads, "kv_heads": heads, "depth": 64,
        "value_depth": 64, "batch": 1,
    }  # fmt: skip


def far_below(rows, columns, heads=1):
    """Q and K whose products are all about -150, by their first element."""
    rng = np.random.default_rng(machine.current().seed)
    q, k = (rng.normal(0, size, [1, heads, n, 64]) for size, n in ((0.3, rows), (1.0, columns)))
    q[..., 0], k[..., 0] = 40.0, -3.75
    assert np.max(q @ k.swapaxes(2, 3)) < -88.7
    return {"q": q, "k": k}


def check(options, rows, columns, engine, heads=1, known=None):
    known = {**far_below(rows, columns, heads), **(known or {})}
    run(options, dtypes.bf16, known, engine=engine, **dims_of(rows, columns, heads))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@ENGINES
@pytest.mark.parametrize("columns", [128, 100])
def test_one_query(engine, columns):
    check({"attn_scale": 1.0}, 1, columns, engine, heads=2)


def masked(rows, columns):
    """A mask of zeros that is added, as of a caller that hides nothing."""

    def options(g):
        return {"attn_scale": 1.0, "bias": g.tensor([1, 1, rows, columns], name="bias")}

    return options


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@ENGINES
@pytest.mark.parametrize("length", [64, 192])
def test_64_keys_more_than_whole_tiles_with_a_mask(engine, length):
    zeros = {"bias": np.zeros([1, 1, length, length])}
    check(masked(length, length), length, length, engine, known=zeros)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@ENGINES
@pytest.mark.parametrize("options", [{}, {"use_causal_mask": True}], ids=["full", "causal"])
def test_part_of_a_tile(engine, options):
    check({"attn_scale": 1.0, **options}, 75, 75, engine)
