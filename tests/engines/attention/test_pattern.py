"""Attention as the kernels of several engines, in the interpreter: every mask, cache and output.

No engine here knows attention: what it stands for is split into products, rows and gathers.
"""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from tests.dialect.attention_examples import (
    CASES,
    FEW,
    PACKED,
    attention,
    cache,
    finish,
    new_graph,
    operands,
    packed,
    packed_load,
    packed_store,
)
from tests.support import machine
from tests.support.checked import check

SIZES = {"M": 5, "B": 2}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", [name for name in CASES if name not in FEW])
def test_options(name):
    """Checks options that no example has.  FLOAT products may be of tf32, whose unit is 2**-11."""
    check(CASES[name](), SIZES, target="sm_90a", slack=4.0, allowance=2.0**-10)


HALVES = {
    "plain": attention({"attn_scale": 0.35}, io=dtypes.f16),
    "band": attention(
        {"diagonal_band_left_bound": 9, "diagonal_band_right_bound": 3, "attn_scale": 0.35},
        io=dtypes.bf16, rows=20, columns=33, depth=24, value_depth=40,
    ),
    "all_heads": attention({"use_causal_mask": True}, io=dtypes.bf16, kv_heads=4),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("name", "target"), [("plain", "sm_90a"), ("band", "sm_80"), ("all_heads", "sm_90a")]
)
def test_halves(name, target):
    """P is rounded to the type of V, which the reference leaves out."""
    check(HALVES[name](), target=target, slack=4.0, allowance=2e-3)


def softcapped(g, scores):
    return g.mul(g.tanh(g.mul(scores, 0.5)), 2.0)


@pytest.mark.in_turn
def test_a_score_mod():
    g = new_graph(dtypes.f16)
    made = g.sdpa(
        *operands(g), generate_stats=True, attn_scale=0.5, use_causal_mask=True,
        score_mod=softcapped,
    )  # fmt: skip
    check(finish(g, *made), target="sm_90a", slack=4.0)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("io", [dtypes.f16, dtypes.f32, dtypes.i8, dtypes.f8e4m3], ids=str)
def test_a_paged_cache(io):
    target = "sm_90" if io == dtypes.f8e4m3 else None
    options = {} if target is None else {"target": target}
    check(cache(io=io)(), slack=0.0, **options)
    check(cache((5, 3, 8, 5), (4, 1, 3, 1), keys=19, io=io)(), slack=0.0, **options)


def test_a_cache_whose_keys_lie_side_by_side():
    """A thread's fragment is several keys, which may be of different blocks."""
    g = new_graph(dtypes.f16)
    container = g.tensor([6, 2, 4, 8], [64, 32, 1, 4])
    lengths, table = (g.tensor(d, data_type=dtypes.i32) for d in ([3, 1, 1, 1], [3, 1, 2, 1]))
    y = g.paged_cache_load(container, lengths, table)
    y.set_dim([3, 2, 8, 8]).set_stride([128, 64, 1, 8])
    check(finish(g, y), slack=0.0)


def test_what_lies_past_the_length_is_not_read():
    """The interpreter fails on an address outside the container."""
    graph = cache()().graph.finalize()
    container, lengths, table = graph.inputs
    blocks = np.random.default_rng(0).normal(size=(6, 2, 4, 8)).astype(np.float32)
    entries = np.array([[3, -1], [0, 5], [10**9, -7]], np.int32).reshape(3, 1, 2, 1)
    given = {
        container.uid: blocks,
        lengths.uid: np.array([2, 7, 0], np.int32).reshape(3, 1, 1, 1),
        table.uid: entries,
    }
    plan = compile_graph(graph, machine.current().target)
    (found,) = machine.current().run(plan, given).values()
    np.testing.assert_array_equal(found[0, :, :2], blocks[3, :, :2])
    np.testing.assert_array_equal(found[1, :, 4:], blocks[5, :, :3])
    assert not found[0, :, 2:].any()
    assert not found[2].any()


# ---- packed sequences

H = dnnc.Dim("H", min=1, max=16)
SIDE_BY_SIDE = {
    "rows_of_heads": {"strides": [144, 8, 16, 1]},
    "three_in_a_row": {"strides": [432, 8, 48, 1], "multiplier": 16},
    "odd_multiplier": {"strides": [432, 8, 48, 1], "multiplier": 3, "kind": dtypes.i64},
    "along_rows": {"strides": [144, 72, 1, 9]},
    "symbols": {"strides": [72 * H, 8, 8 * H, 1], "multiplier": 8},
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("io", [dtypes.f16, dtypes.i8, dtypes.f8e4m3], ids=str)
def test_packed_sequences(io):
    options = {"target": "sm_90"} if io == dtypes.f8e4m3 else {}
    check(packed_load((1, 3, 23, 5), batch=4, rows=9, io=io)(), slack=0.0, **options)
    check(packed_store((4, 3, 9, 5), total=23, io=io)(), slack=0.0, **options)


@pytest.mark.rotating
@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_rows_of_packed_sequences(name):
    heads = H if name == "symbols" else 2
    check(packed_load((1, heads, 9, 8), **SIDE_BY_SIDE[name])(), {"H": 2}, slack=0.0)
    check(packed_store((3, heads, 5, 8), 9, **SIDE_BY_SIDE[name])(), {"H": 2}, slack=0.0)


def test_what_is_of_no_sequence_is_not_read():
    """Offsets of empty sequences, and the last one, may be anything."""
    graph = packed_load((1, 2, 9, 8), batch=4)().graph.finalize()
    packed, offset, lengths = graph.inputs
    rows = np.random.default_rng(0).normal(size=(1, 2, 9, 8)).astype(np.float32)
    given = {
        packed.uid: rows,
        offset.uid: np.array([7, 10**6, 0, 4, 10**9], np.int32).reshape(5, 1, 1, 1) * 8,
        lengths.uid: np.array([2, 0, 3, 5], np.int32).reshape(4, 1, 1, 1),
    }
    plan = compile_graph(graph, machine.current().target)
    (found,) = machine.current().run(plan, given).values()
    for batch, (first, count) in enumerate(((7, 2), (0, 0), (0, 3), (4, 5))):
        np.testing.assert_array_equal(found[batch, :, :count], rows[0, :, first : first + count])
        assert not found[batch, :, count:].any()


def test_sequences_are_stored_where_their_offsets_say():
    """In another order than theirs, one of them empty, and a row in between of no one."""
    graph = packed_store((4, 2, 5, 8), total=11)().graph.finalize()
    x, offset, lengths = graph.inputs
    rows = np.random.default_rng(0).normal(size=(4, 2, 5, 8)).astype(np.float32)
    places = ((9, 2), (3, 0), (0, 3), (4, 5))
    firsts, counts = zip(*places, strict=True)
    given = {
        x.uid: rows,
        offset.uid: np.array([*firsts, -5], np.int32).reshape(5, 1, 1, 1) * 16,
        lengths.uid: np.array(counts, np.int32).reshape(4, 1, 1, 1),
    }
    plan = compile_graph(graph, machine.current().target)
    (found,) = machine.current().run(plan, given).values()
    for batch, (first, count) in enumerate(places):
        np.testing.assert_array_equal(found[0, :, first : first + count], rows[batch, :, :count])


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", PACKED)
def test_packed_attention(name):
    graph = packed(**PACKED[name])()
    check(graph, {"T": 17}, target="sm_90a", slack=4.0, allowance=2.0**-10)


@pytest.mark.in_turn
def test_a_plan_of_packed_attention_has_the_callers_tensors():
    """Tensors have their uids and the dims of memory: T may be as few rows as there are."""
    g = packed(**PACKED["all_rows"])()
    q, o = (next(t for t in g.graph.tensors if t.name == name) for name in "qo")
    q.set_uid(1001)
    o.set_uid(1002)
    plan = check(g, {"T": 8}, slack=4.0, allowance=2.0**-10)
    dims = {t.uid: [str(n) for n in t.dims] for t in plan.tensors if t.uid in (1001, 1002)}
    assert dims == {1001: ["1", "4", "T", "8"], 1002: ["1", "4", "T", "8"]}


@pytest.mark.in_turn
def test_packed_attention_of_halves():
    build = packed("cumulative", {"attn_scale": 0.4, "use_causal_mask": True}, dtypes.bf16)
    check(build(), target="sm_80", slack=4.0, allowance=2e-3)


@pytest.mark.in_turn
@pytest.mark.parametrize(("rows", "columns"), [(0, 4), (3, 0)])
def test_no_rows_or_no_keys(rows, columns):
    m, n = dnnc.Dim("m", 0, 64), dnnc.Dim("n", 0, 64)
    build = attention({"use_causal_mask": True, "attn_scale": 0.5}, rows=m, columns=n)
    check(build(), {"m": rows, "n": columns})
