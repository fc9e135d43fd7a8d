"""Calls of sdpa_backward, as users of cudnn-frontend make them; score modifications, packing."""

import inspect
import math

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect import dnn
from dnnc.dialect.fusion import partition
from dnnc.dialect.json_form import from_json, to_json
from dnnc.errors import DnncError, Status
from dnnc.mlir import ir
from tests.dialect.attention_examples import finish, lengths, new_graph, operands

# In cudnn-frontend's order.
POSITIONAL = """
q k v o dO stats attn_scale bias dBias use_alibi_mask use_padding_mask seq_len_q seq_len_kv
max_total_seq_len_q max_total_seq_len_kv use_causal_mask use_causal_mask_bottom_right
sliding_window_length diagonal_alignment diagonal_band_left_bound diagonal_band_right_bound dropout
rng_dump use_deterministic_algorithm compute_data_type name score_mod score_mod_bprop sink_token
dSink_token
""".split()
KEYWORDS = ["block_mask", "stats_use_log2", "softmax_precision", "attn_scale_prefolded"]


def test_parameters_are_those_of_cudnn_frontend():
    method = dnnc.pygraph.sdpa_backward
    parameters = inspect.signature(method).parameters
    assert list(parameters) == ["self", *POSITIONAL, *KEYWORDS]
    by_keyword = [n for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
    assert by_keyword == KEYWORDS
    assert dnnc.pygraph.scaled_dot_product_flash_attention_backward is method


def tensors(g, **dims):
    """q, k, v, o, dO, stats."""
    q, k, v = operands(g, **dims)
    o, do = (g.tensor([2, 4, 5, 16], name=name) for name in ("o", "do"))
    return q, k, v, o, do, g.tensor([2, 4, 5, 1], data_type=dtypes.f32, name="stats")


def test_results_have_dims_and_types_as_they_are_built():
    g = dnnc.pygraph(io_data_type="BFLOAT16", compute_data_type="FLOAT", target="sm_90")
    q, k, v, o, do, stats = tensors(g)
    q.set_stride([160, 8, 32, 1])  # [B, S, H, D]
    bias = g.tensor([1, 4, 5, 7], data_type=dtypes.f32)
    sink = g.tensor([1, 4, 1, 1], data_type=dtypes.f32)
    made = [g.tensor_like(bias), g.tensor_like(sink)]
    results = g.sdpa_backward(
        q, k, v, o, do, stats, bias=bias, dBias=made[0], sink_token=sink, dSink_token=made[1],
        name="back",
    )  # fmt: skip
    assert [t.get_name() for t in results] == ["back::dQ", "back::dK", "back::dV"]
    assert [t.get_dim() for t in results] == [[2, 4, 5, 8], [2, 2, 7, 8], [2, 2, 7, 16]]
    assert results[0].get_stride() == [160, 40, 8, 1]  # row-major, as cudnn-frontend says
    finish(g, *results, *made).validate()
    assert [t.get_data_type() for t in (*results, *made)] == [dtypes.bf16] * 3 + [dtypes.f32] * 2
    (op,) = g.graph.ops
    assert (op.op_name, op.dbias, op.dsink_token) == ("sdpa_backward", *made)


def call(g, **arguments):
    return finish(g, *g.sdpa_backward(*tensors(g), **arguments)).graph


def test_a_deterministic_algorithm_is_taken_and_kept():
    g = new_graph()
    call(g, use_deterministic_algorithm=True)
    restored = dnnc.pygraph(target="sm_90")
    restored.deserialize(repr(g))
    for graph in (g, restored):
        assert graph.graph.ops[-1].use_deterministic_algorithm


def test_a_score_mod_beside_a_deterministic_algorithm():
    """The graph of its parts keeps what was asked, in JSON and as a text."""
    g = new_graph()
    call(g, score_mod=lambda graph, s: graph.tanh(s), use_deterministic_algorithm=True)
    whole = g.graph.finalize()
    for graph in (whole, from_json(to_json(whole)), from_mlir_text(whole)):
        assert graph.must_repeat
        assert partition(graph, [graph.live_ops])[0].must_repeat


def from_mlir_text(graph):
    with dnn.context():
        return dnn.from_mlir(ir.Module.parse(str(dnn.to_mlir(graph))))


WRONG = [
    (lambda g: {"use_padding_mask": True}, "sdpa_backward.*with 0 of seq_len_q and seq_len_kv"),
    (lambda g: {"score_mod_bprop": lambda g, x: x}, "score_mod_bprop without score_mod"),
    (lambda g: {"dBias": g.tensor([1, 4, 5, 7])}, r"C18.*dbias without bias"),
    (lambda g: {"dSink_token": g.tensor([1, 4, 1, 1])}, r"C19.*dsink_token without sink_token"),
    (lambda g: {"dropout": (1.0, 1, 2)}, r"C12.*0 <= p < 1"),
    (lambda g: {"score_mod": 3}, "score_mod=3; accepted: a function"),
    (
        lambda g: {"score_mod": lambda g, x: x, "score_mod_bprop": lambda g, x: g.transpose(
            x, [0, 1, 3, 2])},
        r"score_mod_bprop gives a tensor of dims \[2, 4, 7, 5\]",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_calls(arguments, message):
    g = new_graph()
    with pytest.raises(DnncError, match=message) as caught:
        call(g, **arguments(g)).validate()
    assert caught.value.status is Status.BAD_PARAM


@pytest.mark.parametrize("parameter", ["softmax_precision", "attn_scale_prefolded"])
def test_what_other_engines_alone_have(parameter):
    with pytest.raises(dnnc.cudnnGraphNotSupportedError, match=f"{parameter}=True; accepted"):
        call(new_graph(), **{parameter: True})


# ---- score modifications

X = 0.3


def every_other(g, s):
    """Every other score is hidden."""
    column = g.gen_index(s, 3, compute_data_type="INT32")
    odd = g.mod(column, g.tensor_scalar(2, data_type=dtypes.i32), compute_data_type="INT32")
    even = g.cmp_eq(odd, g.tensor_scalar(0, data_type=dtypes.i32), compute_data_type="INT32")
    return g.binary_select(s, -math.inf, even)


def capped(g, s):
    return g.mul(g.tanh(g.mul(s, 0.5)), 2.0)


# Functions of the scores, with what they are on NumPy.
MODS = {
    "soft_cap": (capped, lambda s: 2 * np.tanh(s / 2)),
    "hidden": (every_other, lambda s: np.where(np.arange(7) % 2 == 0, s, -np.inf)),
    "used_twice": (lambda g, s: g.sub(g.mul(s, s), s), lambda s: s * s - s),
    "quotients": (lambda g, s: g.div(s, g.add_square(1.0, s)), lambda s: s / (1 + s * s)),
    "of_another": (
        lambda g, s: g.add(g.mul(s, 0.5), g.tensor([1, 4, 1, 7], name="other")),
        lambda s, other: 0.5 * s + other,
    ),
    "none_of_it": (lambda g, s: g.cos(g.gen_index(s, 3)), lambda s: np.cos(np.arange(7)) + 0 * s),
    "the_same": (lambda g, s: s, lambda s: s),
}  # fmt: skip


def inputs_of(g, rng):
    found = {}
    for tensor in g.graph.finalize().inputs:
        found[tensor.uid] = rng.normal(size=[n.constant for n in tensor.shape])
        if tensor.type.is_integer:
            found[tensor.uid] = np.full([2, 1, 1, 1], 4)
    return found


def by_hand(given, change):
    """The forward pass of scores that a function changes: O and stats."""
    q, k, v = (given[name] for name in "qkv")
    k, v = (np.repeat(x, 2, axis=1) for x in (k, v))
    with np.errstate(all="ignore"):
        scores = change(X * q @ k.swapaxes(2, 3))
        total = np.exp(scores).sum(axis=3, keepdims=True)
        return np.exp(scores) / total @ v, np.log(total)


@pytest.mark.parametrize("name", MODS)
def test_the_derivative_of_a_score_mod(name):
    """Against differences of the forward pass."""
    score_mod, change = MODS[name]
    g = new_graph()
    results = g.sdpa_backward(*tensors(g), attn_scale=X, score_mod=score_mod)
    finish(g, *results)
    rng = np.random.default_rng(0)
    inputs = inputs_of(g, rng)
    uids = {t.name: t.uid for t in g.graph.inputs}
    given = {n: inputs[uids[n]] if n in uids else rng.normal(size=(2, 2, 7, 8)) for n in "qkv"}
    others = [inputs[uids["other"]]] if "other" in uids else []
    change_of = lambda scores: change(scores, *others)  # noqa: E731
    o, stats = by_hand(given, change_of)
    inputs |= {uids["o"]: o, uids["stats"]: stats}
    found = dnnc.reference(g, inputs, exact_outputs=True)
    for operand, result in zip("qkv", results, strict=True):
        direction = rng.normal(size=given[operand].shape)
        losses = []
        for step in (1e-5, -1e-5):
            moved = {**given, operand: given[operand] + step * direction}
            losses.append(np.sum(by_hand(moved, change_of)[0] * inputs[uids["do"]]))
        wanted = (losses[0] - losses[1]) / 2e-5
        assert np.sum(found[result.uid] * direction) == pytest.approx(wanted, rel=1e-3, abs=1e-3)


def test_a_gradient_of_the_callers():
    """score_mod_bprop is taken as it is, with tensors that score_mod kept."""
    kept = []

    def score_mod(g, s):
        kept.append(g.tanh(g.mul(s, 0.5)))
        return g.mul(kept[0], 2.0)

    def bprop(g, ds):
        return g.mul(ds, g.sub(1.0, g.mul(kept[0], kept[0])))

    found = []
    for own in (bprop, None):
        kept.clear()
        g = new_graph()
        made = g.sdpa_backward(
            *tensors(g), attn_scale=X, score_mod=score_mod, score_mod_bprop=own, **lengths(g)
        )
        finish(g, *made)
        found.append(dnnc.reference(g, inputs_of(g, np.random.default_rng(0))))
    for one, other in zip(*(f.values() for f in found), strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("score_mod", "what"),
    [
        (lambda g, s: g.sub(s, g.reduction(s, "MAX").set_dim([2, 4, 5, 1])), "reduction:max"),
        (lambda g, s: g.tanh_backward(s, s), "pointwise:tanh_bwd"),
    ],
)
def test_what_has_no_derivative(score_mod, what):
    g = new_graph()
    message = rf"the derivative of {what}; accepted: .*score_mod_bprop"
    with pytest.raises(dnnc.cudnnGraphNotSupportedError, match=message):
        g.sdpa_backward(*tensors(g), score_mod=score_mod)
    one = g.sdpa_backward(
        *tensors(g), score_mod=score_mod, score_mod_bprop=lambda g, ds: g.mul(ds, 2.0)
    )
    finish(g, *one)


# ---- packed sequences


def packed_gradient(is_packed):
    """Three sequences of up to 5 rows, the heads of a row together."""
    g = new_graph()
    i32 = {"data_type": dtypes.i32}
    offset = g.tensor([4, 1, 1, 1], **i32, name="offset") if is_packed else None
    length = g.tensor([3, 1, 1, 1], **i32, name="length")

    def rows(name):
        x = g.tensor([3, 2, 5, 8], [80, 8, 16, 1], name=name)
        return x.set_ragged_offset(offset) if is_packed else x

    given = [rows(name) for name in ("q", "k", "v", "o", "do")]
    stats = g.tensor([3, 2, 5, 1], data_type=dtypes.f32, name="stats")
    made = g.sdpa_backward(
        *given, stats, attn_scale=0.5, use_padding_mask=True, seq_len_q=length, seq_len_kv=length,
        max_total_seq_len_q=11 if is_packed else None,
        max_total_seq_len_kv=11 if is_packed else None, use_causal_mask=True,
    )  # fmt: skip
    for tensor, name in zip(made, ("dq", "dk", "dv"), strict=True):
        tensor.set_output().set_name(name)
        if is_packed:
            tensor.set_ragged_offset(offset)
    g.validate()
    return g


def test_packed_sequences():
    counts = (4, 0, 5)
    firsts = np.cumsum([0, *counts])
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(1, 2, 11, 8)) for name in ("q", "k", "v", "o", "do")}
    padded = {name: np.full((3, 2, 5, 8), np.nan) for name in rows}
    for name, whole in rows.items():
        for batch, count in enumerate(counts):
            padded[name][batch, :, :count] = whole[0, :, firsts[batch] :][:, :count]
    same = {
        "stats": rng.normal(size=(3, 2, 5, 1)) + 3,
        "length": np.reshape(counts, (3, 1, 1, 1)),
    }
    found = {}
    for is_packed in (True, False):
        g = packed_gradient(is_packed)
        uids = {t.name: t.uid for t in g.graph.finalize().tensors}
        given = {**(rows if is_packed else padded), **same}
        if is_packed:
            given["offset"] = np.reshape(firsts, (4, 1, 1, 1)) * 16
        made = dnnc.reference(g, {uids[name]: array for name, array in given.items()})
        found[is_packed] = {name: made[uids[name]] for name in ("dq", "dk", "dv")}
    for name, whole in found[True].items():
        for batch, count in enumerate(counts):
            part = whole[0, :, firsts[batch] :][:, :count]
            np.testing.assert_allclose(part, found[False][name][batch, :, :count], 1e-6, 1e-6)
