"""Packed sequences of attention: what becomes of ragged tensors, and what is refused."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.cli.check import compare
from dnnc.dialect.reference import reference, undefined_parts
from dnnc.errors import DnncError, Status
from tests.dialect.attention_examples import PACKED, finish, lengths, new_graph, operands, packed

SIZES = {"T": 11}
ROWS = {"q": [3, 0, 5], "kv": [7, 4, 2]}
FIRST = {side: np.concatenate([[0], np.cumsum(rows)]) for side, rows in ROWS.items()}
SIDE = {"q": "q", "o": "q", "stats": "q", "k": "kv", "v": "kv"}


def arrays(graph, rng):
    """Inputs by name: one sequence after the other, from the second row on."""
    found = {}
    for tensor in graph.inputs:
        dims = [extent.evaluate(SIZES) for extent in tensor.shape]
        kind, _, name = tensor.name.partition("_")
        if kind == "offset":
            (owner,) = (t for t in graph.tensors if t.name == name)
            (op,) = (op for op in graph.ops if tensor in op.operands)
            elements = (1 + FIRST[SIDE[name]]) * owner.layout[2].constant
            found[tensor.name] = (elements // op.offset_multiplier).reshape(dims)
        elif kind in ("len", "cu"):
            values = ROWS[name] if kind == "len" else FIRST[name]
            found[tensor.name] = np.reshape(values, dims)
        else:
            found[tensor.name] = rng.normal(size=dims).astype(tensor.type.numpy)
    return found


def padded(rows, side, first, size):
    """[3, H, size, D] of packed rows."""
    made = np.zeros((3, rows.shape[1], size, rows.shape[3]))
    for batch, count in enumerate(ROWS[side]):
        at = first + FIRST[side][batch]
        made[batch, :, :count] = rows[0, :, at : at + count]
    return made


@pytest.mark.parametrize("name", PACKED)
def test_it_is_what_padded_sequences_give(name):
    case = PACKED[name]
    graph = packed(**case)().graph.finalize()
    given = arrays(graph, np.random.default_rng(0))
    found = reference(graph, given, sizes=SIZES, exact_outputs=True)
    found = {tensor.name: found[tensor.uid] for tensor in graph.outputs}
    twin = packed(**{**case, "by": "padding", "stats": False, "total": None})()
    first = 0 if case.get("by") == "cumulative" else 1
    same = {"q": 5, "k": 7, "v": 7}
    for own, size in same.items():
        given[own] = padded(given[own], SIDE[own], first, size)
    given |= {f"len_{side}": np.reshape(rows, (3, 1, 1, 1)) for side, rows in ROWS.items()}
    inputs = {tensor: given[tensor.name] for tensor in twin.graph.finalize().inputs}
    wanted = reference(twin.graph, inputs, exact_outputs=True)
    for tensor in twin.graph.outputs:
        is_packed = found[tensor.name].shape[0] == 1
        assert is_packed == (tensor.name == "o" or case.get("stats", False))
        actual, expected = found[tensor.name], wanted[tensor.uid]
        if is_packed:
            actual = padded(actual, "q", first, 5)
            expected = np.where(np.arange(5)[:, None] < np.reshape(ROWS["q"], (3, 1, 1, 1)),
                                expected, 0)  # fmt: skip
        close = 1e-3 if tensor.type == dtypes.f16 else 1e-5  # of results that were rounded
        np.testing.assert_allclose(actual, expected, close, close)


@pytest.mark.parametrize("name", PACKED)
def test_a_packed_graph_is_one_text(name):
    """Showing it before it is validated changes nothing, and it comes back from its text."""
    build = packed(**PACKED[name])
    graph = build().graph.finalize()
    assert graph == build().graph.finalize()
    restored = dnnc.pygraph(target="sm_90")
    restored.deserialize(repr(build()))
    assert restored.graph.finalize() == graph


def test_the_tensors_of_a_graph():
    """Packed ones keep uid and name, and have the rows of all sequences."""
    g = packed(**PACKED["offsets"])()
    graph = g.graph
    assert [op.op_name for op in graph.ops] == [*["ragged_load"] * 3, "sdpa", "ragged_store"]
    shown = {t.get_name(): (t.get_dim(), t.get_stride()) for t in graph.tensors}
    assert shown["q"] == ([1, 4, 15, 8], [480, 8, 32, 1])
    assert shown["k"] == ([1, 2, 21, 8], [336, 8, 16, 1])
    assert shown["o"] == shown["q"]
    assert shown["stats"][0] == [3, 4, 5, 1]
    assert shown["o::PADDED"][0] == [3, 4, 5, 8]
    assert not any(tensor.ragged_offset for tensor in graph.tensors)
    uids = [tensor.uid for tensor in graph.tensors]
    g.validate()
    g.build_operation_graph()
    assert uids == [tensor.uid for tensor in graph.tensors]


def test_all_rows_are_given():
    g = packed(**PACKED["all_rows"])()
    shown = {t.get_name(): [str(n) for n in t.get_dim()] for t in g.graph.tensors}
    assert shown["q"] == shown["o"] == ["1", "4", "T", "8"]
    assert shown["k"] == ["1", "2", "21", "8"]
    assert shown["q::PADDED"] == ["3", "4", "5", "8"]


def test_rows_of_no_sequence_are_undefined():
    graph = packed(**PACKED["all_rows"])().graph.finalize()
    given = arrays(graph, np.random.default_rng(0))
    (undefined,) = undefined_parts(graph, given, sizes=SIZES).values()
    assert undefined.shape == (1, 4, 11, 8)
    rows = undefined.all(axis=(0, 1, 3))
    assert (rows == undefined.any(axis=(0, 1, 3))).all()
    np.testing.assert_array_equal(np.flatnonzero(rows), [0, 9, 10])


def test_what_is_undefined_is_not_compared():
    graph = packed(**PACKED["all_rows"])().graph.finalize()
    given = arrays(graph, np.random.default_rng(0))
    given = {tensor.uid: given[tensor.name] for tensor in graph.inputs}
    outputs = reference(graph, given, sizes=SIZES)
    (o,) = (tensor.uid for tensor in graph.outputs if tensor.name == "o")
    for row, is_good in ((0, True), (10, True), (1, False), (8, False)):
        changed = {uid: array.copy() for uid, array in outputs.items()}
        changed[o][0, 1, row] = np.nan
        verdicts = compare(graph, given, SIZES, changed)
        assert all(verdict.is_good for verdict in verdicts) == is_good


def ragged(g, *tensors):
    """Operands, some of them ragged, with lengths."""
    named = dict(zip("qkv", operands(g), strict=True))
    for name in tensors:
        tensor = named[name]
        _, heads, rows, depth = tensor.get_dim()
        tensor.set_stride([heads * rows * depth, depth, heads * depth, 1])
        tensor.set_ragged_offset(g.tensor([3, 1, 1, 1], data_type=dtypes.i32))
    return named


def test_some_tensors_of_a_call_are_packed():
    """A tensor of two calls is one packed tensor."""
    g = new_graph()
    named, padding = ragged(g, "k"), lengths(g)
    outputs = [g.sdpa(**named, **padding, generate_stats=False)[0] for _ in "ab"]
    finish(g, *outputs).validate()
    assert [op.op_name for op in g.graph.ops] == ["ragged_load", "sdpa"] * 2
    assert g.graph.ops[0].packed is g.graph.ops[2].packed
    assert named["k"].get_dim() == [1, 2, 14, 8]
    assert outputs[0].get_dim() == [2, 4, 5, 16]


def test_packed_queries_of_a_paged_cache():
    g = new_graph(dtypes.f16)
    q = ragged(g, "q")["q"]
    container = [g.tensor([6, 2, 4, 8]) for _ in "kv"]
    table = g.tensor([2, 1, 2, 1], data_type=dtypes.i32)
    bounds = {f"cu_seq_len_{s}": g.tensor([3, 1, 1, 1], data_type=dtypes.i32) for s in ("q", "kv")}
    o, _ = g.sdpa(
        q, *container, **bounds, generate_stats=False,
        paged_attention_k_table=table, paged_attention_v_table=table,
    )  # fmt: skip
    finish(g, o).validate()
    titles = [op.title for op in g.graph.finalize().live_ops]
    assert [titles.count(f"{name}_load") for name in ("ragged", "paged_cache")] == [1, 2]
    assert titles[-1] == "ragged_store"
    assert o.get_dim() == [1, 4, 10, 8]


def test_strides_of_a_packed_result():
    g = new_graph()
    named, padding = ragged(g), lengths(g)
    o, stats = g.sdpa(**named, **padding, generate_stats=True)
    for tensor in (o, stats):
        tensor.set_ragged_offset(g.tensor([3, 1, 1, 1], data_type=dtypes.i32))
    o.set_stride([10**6, 160, 16, 1])  # each head has its rows together
    finish(g, o, stats).validate()
    assert (o.get_dim(), o.get_stride()) == ([1, 4, 10, 16], [640, 160, 16, 1])
    assert (stats.get_dim(), stats.get_stride()) == ([1, 4, 10, 1], [40, 1, 4, 1])
    assert stats.get_data_type() == dtypes.f32


# ---- refused


def cumulative(g, batch=2):
    return g.tensor([batch + 1, 1, 1, 1], data_type=dtypes.i32)


SIDES = ("q", "kv")
WRONG = [
    (lambda g: ragged(g, "q"), "ragged, without lengths; accepted: use_padding_mask=True"),
    (
        lambda g: {**ragged(g), **lengths(g), "cu_seq_len_q": cumulative(g)},
        "seq_len and cu_seq_len of the same",
    ),
    (lambda g: {**ragged(g), "cu_seq_len_q": cumulative(g)}, "1 of seq_len_q and seq_len_kv"),
    (
        lambda g: {**ragged(g, *"qkv"), **{f"cu_seq_len_{s}": cumulative(g, 3) for s in SIDES}},
        r"sdpa \(C7\)",
    ),
    (lambda g: {**ragged(g, "q"), **lengths(g), "max_total_seq_len_q": 2.5}, "a size of 2.5"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG)
def test_calls_that_contradict_themselves(arguments, said):
    g = new_graph()
    with pytest.raises(ValueError, match=said) as caught:
        finish(g, *g.sdpa(**arguments(g), generate_stats=False)).validate()
    assert caught.value.supported


def test_a_page_table_of_a_ragged_tensor_is_refused():
    g = new_graph()
    table = g.tensor([2, 1, 2, 1], data_type=dtypes.i32)
    with pytest.raises(dnnc.cudnnGraphNotSupportedError, match="ragged, and with a page table"):
        g.sdpa(**ragged(g, "k"), **lengths(g), generate_stats=False, paged_attention_k_table=table)


def test_other_operations_take_no_ragged_tensor():
    for is_shared in (False, True):
        g = new_graph()
        named, padding = ragged(g, "q"), lengths(g)
        if is_shared:
            finish(g, *g.sdpa(**named, **padding, generate_stats=False))
        finish(g, g.relu(named["q"]))
        with pytest.raises(DnncError, match=r"'q'.*ragged.*relu.*accepted: .*ragged_load") as found:
            g.validate()
        assert found.value.status is Status.NOT_SUPPORTED_LAYOUT


def test_a_packed_result_has_no_other_use():
    g = new_graph()
    o, _ = g.sdpa(**ragged(g), **lengths(g), generate_stats=False)
    o.set_ragged_offset(cumulative(g))
    finish(g, o, g.relu(o))
    for _ in range(2):  # the first attempt leaves the graph as it was
        with pytest.raises(DnncError, match=r"ragged, and a tensor of pointwise:relu"):
            g.validate()


def test_heads_that_do_not_lie_within_a_row_are_refused():
    """[B, H, S, D] in memory: rows of one sequence are those of the next one's heads."""
    g = new_graph()
    named, padding = ragged(g, "q"), lengths(g)
    named["q"].set_stride([160, 40, 8, 1])
    finish(g, *g.sdpa(**named, **padding, generate_stats=False))
    said = r"strides \[40, 8, 1\] of 4 heads, 10 rows.*accepted: heads within a row"
    with pytest.raises(DnncError, match=said) as caught:
        g.validate()
    assert caught.value.status is Status.NOT_SUPPORTED_LAYOUT
    named["q"].set_stride([160, 8, 32, 1])
    g.validate()
    assert named["q"].get_dim() == [1, 4, 10, 8]
