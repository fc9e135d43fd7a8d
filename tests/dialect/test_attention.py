"""Attention's reference, what it stands for, and an attention of loops, against each other."""

import math

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.graph import OperationGraph
from dnnc.dialect.ops.sdpa_reference import alibi_slopes
from dnnc.dialect.reference import reference
from dnnc.errors import DnncError, Status

from .attention_examples import CASES, attention, cache, finish, new_graph, operands
from .test_ops import random_inputs

SIZES = {"M": 5, "B": 2}


def arrays(graph, seed=0):
    """Inputs by uid, whose scores differ in size and sign."""
    rng = np.random.default_rng(seed)
    found = random_inputs(graph, SIZES, seed)
    for tensor in graph.inputs:
        if tensor.type.is_float and tensor is not graph.ops[-1].dropout_mask:
            found[tensor.uid] = rng.normal(size=found[tensor.uid].shape)
    return found


def decomposed(graph):
    """The graph of the operations that another one stands for."""
    made = OperationGraph(graph.name)
    for op in graph.live_ops:
        made.add(op)
    return made.finalize()


# ---- one row after the other


def row_of_loops(op, given, b, h, row, dims):
    """(o, m, l) of one row: what each key adds, from the definition."""
    columns = dims["columns"]
    kv_head = h // (dims["heads"] // given["k"].shape[1])
    first, end, lowest = 0, columns, -math.inf
    shift = columns - dims["rows"]
    if "seq_len_kv" in given:
        rows, keys = (int(given[name][b, 0, 0, 0]) for name in ("seq_len_q", "seq_len_kv"))
        end = keys if row < rows else 0
        shift = keys - rows
    diagonal = row + (shift if op.diagonal_alignment == "BOTTOM_RIGHT" else 0)
    if op.right_bound is not None:
        end = min(end, diagonal + op.right_bound + 1)
    if op.left_bound is not None:
        first = max(first, diagonal - op.left_bound + 1)
    scores = {}
    for key in range(first, end):
        if "block_mask" in given:
            byte = int(given["block_mask"][0, h, row // 128, key // 1024])
            if not byte & 1 << (key // 128) % 8:
                continue
        score = sum(given["q"][b, h, row, d] * keys_of(op, given, "k", b, kv_head, key)[d]
                    for d in range(given["q"].shape[3]))  # fmt: skip
        score *= float(np.ravel(given.get("attn_scale", 1.0))[0])
        if "bias" in given:
            score += np.broadcast_to(given["bias"], dims["scores"])[b, h, row, key]
        if op.use_alibi_mask:
            score += alibi_slopes(dims["heads"])[h] * (key - row)
        scores[key] = score
    sink = given["sink_token"][0, h, 0, 0] if "sink_token" in given else lowest
    largest = max([*scores.values(), sink], default=lowest)
    if largest == -math.inf:
        return np.zeros(given["v"].shape[3]), largest, 0.0
    total = sum(math.exp(score - largest) for score in scores.values())
    total += math.exp(sink - largest) if sink != lowest else 0.0
    o = np.zeros(given["v"].shape[3])
    for key, score in scores.items():
        share = math.exp(score - largest) / total
        if "dropout_mask" in given:
            kept = np.broadcast_to(given["dropout_mask"], dims["scores"])[b, h, row, key]
            share *= kept * given["dropout_scale"][0, 0, 0, 0]
        if op.dropout_probability is not None:
            share *= dims["drawn"][b, h, row, key] / (1 - op.dropout_probability)
        o += share * keys_of(op, given, "v", b, kv_head, key)
    return o, largest, total


def keys_of(op, given, name, b, head, key):
    """One key or value, of a cache too."""
    table = given.get(f"page_table_{name}")
    if table is None:
        return given[name][b, head, key]
    size = given[name].shape[2]
    return given[name][int(table[b, 0, key // size, 0]), head, key % size]


def by_loops(graph, inputs, drawn):
    """Result name -> array."""
    op = graph.ops[-1]
    names = {t.uid: f.name for f, t in op.tensors("operand")}
    given = {names[uid]: np.asarray(value, np.float64) for uid, value in inputs.items()}
    for tensor in graph.tensors:
        if tensor.is_constant or tensor.value is not None:
            given.setdefault(names[tensor.uid], np.full([1, 1, 1, 1], tensor.value))
    batch, heads, rows, _ = given["q"].shape
    columns = op.columns.evaluate(SIZES)
    dims = {
        "heads": heads, "rows": rows, "columns": columns, "drawn": drawn,
        "scores": (batch, heads, rows, columns),
    }  # fmt: skip
    o = np.zeros((batch, heads, rows, given["v"].shape[3]))
    m, total = np.zeros((batch, heads, rows, 1)), np.zeros((batch, heads, rows, 1))
    for b, h, row in np.ndindex(batch, heads, rows):
        o[b, h, row], m[b, h, row], total[b, h, row] = row_of_loops(op, given, b, h, row, dims)
    with np.errstate(divide="ignore"):
        stats = (m + np.log(total)) * (math.log2(math.e) if op.stats_use_log2 else 1)
    return {"o": o, "stats": stats, "score_max": m, "score_sum_exp": total, "rng_dump": drawn}


@pytest.mark.parametrize("name", CASES)
def test_the_reference_is_what_loops_give(name):
    graph = CASES[name]().graph.finalize()
    op, inputs = graph.ops[-1], arrays(graph)
    inputs = {t.uid: np.asarray(inputs[t.uid], np.float32) if t.type.is_float else inputs[t.uid]
              for t in graph.inputs}  # fmt: skip
    if name == "f16":
        inputs = {uid: value.astype(np.float16) for uid, value in inputs.items()}
    found = reference(graph, inputs, sizes=SIZES, exact_outputs=True)
    drawn = None if op.rng_dump is None else found[op.rng_dump.uid]
    wanted = by_loops(graph, inputs, drawn)
    for field, tensor in op.tensors("result"):
        np.testing.assert_allclose(found[tensor.uid], wanted[field.name], 1e-6, 1e-9)


@pytest.mark.parametrize("name", CASES)
def test_what_it_stands_for_gives_the_same(name):
    graph = CASES[name]().graph.finalize()
    inputs = arrays(graph)
    whole = reference(graph, inputs, sizes=SIZES, exact_outputs=True)
    parts = reference(decomposed(graph), inputs, sizes=SIZES, exact_outputs=True)
    # Virtual tensors of the parts are rounded to FLOAT, P to V's type.
    close = 2e-3 if name == "f16" else 2e-5
    for tensor in graph.outputs:
        np.testing.assert_allclose(parts[tensor.uid], whole[tensor.uid], close, close)


def test_alibi_slopes():
    np.testing.assert_array_equal(alibi_slopes(8), 2.0 ** -np.arange(1, 9))
    np.testing.assert_array_equal(alibi_slopes(1), [2**-8])
    twelve = [2.0**-k for k in range(1, 9)] + [2.0 ** (-k / 2) for k in (1, 3, 5, 7)]
    np.testing.assert_allclose(alibi_slopes(12), twelve)


# ---- rows that see nothing, and large scores


def only(build, **values):
    """The results of a case by name; values: of operands by name, others random."""
    graph = build().graph.finalize()
    inputs, op = arrays(graph), graph.ops[-1]
    for name, value in values.items():
        inputs[getattr(op, name).uid] = value
    found = reference(decomposed(graph), inputs, sizes=SIZES)
    return {field.name: found[tensor.uid] for field, tensor in op.tensors("result")}


def test_no_heads_give_nothing():
    g = dnnc.pygraph("none", io_data_type="f16", intermediate_data_type="f32")
    heads = dnnc.Dim("H", min=0, max=8)
    dims = [2, heads, 16, 32]
    q, k, v = (g.tensor(dims) for _ in range(3))
    o, _ = g.sdpa(q, k, v, attn_scale=0.1, generate_stats=False)
    o.set_output().set_dim(dims)
    given = {t.uid: np.zeros((2, 0, 16, 32), np.float16) for t in g.graph.finalize().inputs}
    (found,) = reference(g.graph.finalize(), given).values()
    assert found.shape == (2, 0, 16, 32)


def test_rows_that_see_no_key_give_zeros():
    found = only(CASES["rows_without_keys"])
    assert not found["o"][:, :, :5].any()
    assert np.all(found["stats"][:, :, :5] == -np.inf)
    assert np.all(found["o"][:, :, 5:] != 0)
    lengths = np.array([0, 3]).reshape(2, 1, 1, 1)
    found = only(
        CASES["padding"], seq_len_q=np.array([5, 4]).reshape(2, 1, 1, 1), seq_len_kv=lengths
    )
    assert not found["o"][0].any()
    assert not found["o"][1, :, 4].any()
    assert np.isneginf(found["stats"][0]).all()
    assert np.isfinite(found["stats"][1, :, :4]).all()


def test_a_bias_of_minus_infinity_masks():
    bias = np.zeros((1, 4, 5, 7))
    bias[:, :, 2] = -np.inf
    found = only(CASES["bias"], bias=bias)
    assert not found["o"][:, :, 2].any()
    assert np.isfinite(found["o"]).all()


def test_scores_of_ten_thousand():
    build = attention({"attn_scale": 1.0})
    found = only(build, q=np.full((2, 4, 5, 8), 35.0), k=np.full((2, 2, 7, 8), 36.0),
                 v=np.ones((2, 2, 7, 16)))  # fmt: skip
    np.testing.assert_allclose(found["o"], 1)
    np.testing.assert_allclose(found["stats"], 35 * 36 * 8 + math.log(7))


# ---- sizes of zero


@pytest.mark.parametrize(("rows", "columns"), [(0, 4), (3, 0), (0, 0)])
def test_no_rows_or_no_keys(rows, columns):
    m, n = dnnc.Dim("m", 0, 64), dnnc.Dim("n", 0, 64)
    graph = attention({"use_causal_mask": True}, rows=m, columns=n)().graph.finalize()
    shapes = [(2, 4, rows, 8), (2, 2, columns, 8), (2, 2, columns, 16)]
    inputs = {t.uid: np.ones(dims) for t, dims in zip(graph.inputs, shapes, strict=True)}
    op = graph.ops[-1]
    for made in (graph, decomposed(graph)):
        found = reference(made, inputs)
        assert found[op.o.uid].shape == (2, 4, rows, 16)
        if columns == 0:
            assert not found[op.o.uid].any()
            assert np.isneginf(found[op.stats.uid]).all()


# ---- steps


def steps(build):
    return [op.title for op in build().graph.finalize().live_ops]


def test_a_scale_of_one_is_no_operation():
    with_scale, without = (steps(attention({"attn_scale": s}, kv_heads=4)) for s in (2.0, 1))
    assert [step for step in with_scale if step != "pointwise:mul"].count("matmul") == 2
    assert len(with_scale) == len(without) + 1


def test_conditions_are_one_mask():
    found = steps(CASES["padded_window"])
    assert found.count("pointwise:logical_and") == 3
    infinite = [
        op for op in CASES["padded_window"]().graph.finalize().live_ops
        if op.title == "pointwise:binary_select" and op.b.value == -math.inf
    ]  # fmt: skip
    assert len(infinite) == 1


def test_no_dropout_draws_nothing():
    def drop_nothing(g):
        return {"dropout": (0.0, 1, 2)}

    assert "rng:BERNOULLI" not in steps(attention(drop_nothing))


def test_integers_of_masks_are_computed_as_such():
    for op in CASES["padded_window"]().graph.finalize().live_ops:
        on_indices = op.title.startswith("pointwise:cmp_") and op.title != "pointwise:cmp_eq"
        if op.title == "pointwise:gen_index" or on_indices:
            assert op.compute_type == dtypes.i32


def test_a_graph_of_attention_has_one_text():
    """Steps have the same uids each time, and the graph keeps the operation."""
    graphs = [CASES["padded_window"]().graph.finalize() for _ in range(2)]
    assert graphs[0].key() == graphs[1].key()
    uids = [[t.uid for op in graph.live_ops for t in op.results] for graph in graphs]
    assert uids[0] == uids[1]


# ---- products whose batch dims share matrices


def test_matrices_that_are_shared():
    g = new_graph()
    a, b = g.tensor([2, 6, 3, 4]), g.tensor([4, 3, 4, 5])
    graph = finish(g, g.matmul(a, b)).graph.finalize()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 6, 3, 4)), rng.normal(size=(4, 3, 4, 5))
    (found,) = reference(graph, {a: x, b: y}, exact_outputs=True).values()
    (parts,) = reference(decomposed(graph), {a: x, b: y}, exact_outputs=True).values()
    x, y = x.astype(np.float32), y.astype(np.float32)
    for i, j in np.ndindex(4, 6):
        np.testing.assert_allclose(found[i, j], x[i // 2, j] @ y[i, j // 2], 1e-5, 1e-5)
    np.testing.assert_allclose(parts, found)


@pytest.mark.parametrize("dims", [(dnnc.Dim("H", max=8), 4), (4, dnnc.Dim("H", max=8))])
def test_a_divisor_is_a_number(dims):
    g = new_graph()
    with pytest.raises(DnncError, match=r"C3.*fixed number that divides it"):
        g.matmul(g.tensor([dims[0], 3, 4]), g.tensor([dims[1], 4, 5]))


# ---- the cache


def test_what_lies_past_the_length_is_not_read():
    graph = cache()().graph.finalize()
    container, lengths, table = graph.inputs
    blocks = np.arange(6 * 2 * 4 * 8, dtype=np.float64).reshape(6, 2, 4, 8)
    entries = np.array([[3, -1], [0, 5], [10**9, -7]]).reshape(3, 1, 2, 1)
    given = {container: blocks, lengths: np.array([2, 7, 0]).reshape(3, 1, 1, 1), table: entries}
    (found,) = reference(graph, given).values()
    np.testing.assert_array_equal(found[0, :, :2], blocks[3, :, :2])
    np.testing.assert_array_equal(found[1, :, :4], blocks[0])
    np.testing.assert_array_equal(found[1, :, 4:], blocks[5, :, :3])
    assert not found[0, :, 2:].any()
    assert not found[2].any()


def test_a_ragged_tensor_of_the_operation_itself_is_refused():
    """pygraph's sdpa gives it padded sequences."""
    g = new_graph()
    q, k, v = operands(g)
    outputs = g.sdpa(q, k, v, generate_stats=False)
    q.set_ragged_offset(g.tensor([3, 1, 1, 1], data_type=dtypes.i32))
    with pytest.raises(DnncError, match=r"sdpa.*C1.*ragged.*ragged_load") as caught:
        finish(g, *outputs).validate()
    assert caught.value.status is Status.NOT_SUPPORTED_LAYOUT
