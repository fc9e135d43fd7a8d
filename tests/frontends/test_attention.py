"""Calls of sdpa, as users of cudnn-frontend make them: names, older spellings, refusals."""

import inspect

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.reference import reference
from dnnc.errors import DnncError, Status
from tests.dialect.attention_examples import drawn, finish, lengths, new_graph, operands
from tests.support.checked import random_inputs

PARAMETERS = """
q k v is_inference attn_scale bias block_mask use_alibi_mask use_padding_mask seq_len_q seq_len_kv
use_causal_mask use_causal_mask_bottom_right sliding_window_length diagonal_alignment
diagonal_band_left_bound diagonal_band_right_bound dropout rng_dump paged_attention_k_table
paged_attention_v_table paged_attention_max_seq_len_kv compute_data_type name score_mod
generate_stats implementation score_max score_sum_exp sink_token unfuse_fma max_total_seq_len_q
max_total_seq_len_kv cu_seq_len_q cu_seq_len_kv stats_use_log2 softmax_precision
attn_scale_prefolded kv_mask
""".split()


def test_parameters_are_those_of_cudnn_frontend():
    assert list(inspect.signature(dnnc.pygraph.sdpa).parameters) == ["self", *PARAMETERS]
    assert dnnc.pygraph.scaled_dot_product_flash_attention is dnnc.pygraph.sdpa


def call(g, **arguments):
    """The operation of a call."""
    given = {"generate_stats": False, **arguments}
    outputs = g.sdpa(*operands(g), **given)
    finish(g, *outputs).validate()
    return g.graph.ops[-1]


def text(**arguments):
    g = new_graph()
    call(g, **arguments)
    g.graph.finalize()
    return g.graph.canonical_text()


def test_results_have_dims_and_types_as_they_are_built():
    g = dnnc.pygraph(io_data_type="BFLOAT16", compute_data_type="FLOAT", target="sm_90")
    q, k, v = operands(g)
    q.set_stride([160, 8, 32, 1])  # [B, S, H, D]
    o, stats = g.sdpa(q, k, v, generate_stats=True, name="attention")
    assert (o.get_name(), stats.get_name()) == ("attention::O", "attention::Stats")
    assert (o.get_dim(), o.get_stride()) == ([2, 4, 5, 16], [320, 80, 16, 1])
    assert (stats.get_dim(), stats.get_data_type()) == ([2, 4, 5, 1], dtypes.f32)
    assert o.get_is_virtual()
    o.set_output().set_stride([320, 80, 16, 1])
    g.validate()
    assert (o.get_stride(), o.get_data_type()) == ([320, 80, 16, 1], dtypes.bf16)


def test_no_stats():
    for arguments in ({"generate_stats": False}, {"is_inference": True}):
        g = new_graph()
        _, stats = g.sdpa(*operands(g), **arguments)
        assert stats is None
    g = new_graph()
    assert g.sdpa(*operands(g), is_inference=False)[1] is not None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"use_causal_mask": True}, {"diagonal_band_right_bound": 0}),
        (
            {"use_causal_mask": True, "diagonal_alignment": "BOTTOM_RIGHT",
             "diagonal_band_right_bound": 3},
            {"diagonal_band_right_bound": 0},
        ),
        (
            {"use_causal_mask_bottom_right": True},
            {"diagonal_band_right_bound": 0,
             "diagonal_alignment": dnnc.diagonal_alignment.BOTTOM_RIGHT},
        ),
        (
            {"sliding_window_length": 3, "diagonal_band_left_bound": 5},
            {"diagonal_band_left_bound": 3},
        ),
        ({"is_inference": True, "generate_stats": None}, {"generate_stats": False}),
        ({"implementation": dnnc.attention_implementation.UNIFIED}, {}),
    ],
)  # fmt: skip
def test_older_spellings(older, newer):
    assert text(**older) == text(**newer)


def test_numbers_as_seed_and_offset():
    op = call(new_graph(), dropout=(0.5, 7, 1 << 40))
    assert (op.seed.value, op.offset.value, op.seed.dtype) == (7, 1 << 40, dtypes.i64)


def test_the_scale_of_a_mask_for_the_gradient_is_taken():
    g = new_graph()
    mask, scale = g.tensor([2, 4, 5, 7]), g.tensor([1, 1, 1, 1])
    op = call(g, dropout=(mask, scale, g.tensor([1, 1, 1, 1])))
    assert (op.dropout_mask, op.dropout_scale) == (mask, scale)


WRONG = [
    (lambda g: {"generate_stats": None}, "neither generate_stats nor is_inference"),
    (lambda g: {"generate_stats": True, "is_inference": True}, "or its negation"),
    (lambda g: {"use_padding_mask": True}, "with 0 of seq_len_q and seq_len_kv"),
    (lambda g: {"seq_len_q": lengths(g)["seq_len_q"]}, "both lengths, or none"),
    (lambda g: {**lengths(g), "use_padding_mask": False}, "use_padding_mask=False with 2"),
    (
        lambda g: {"use_causal_mask": True, "use_causal_mask_bottom_right": True},
        "one of them at most",
    ),
    (lambda g: {"diagonal_band_left_bound": 0}, r"C8.*left_bound=0; accepted: 1 or more"),
    (lambda g: {"diagonal_band_right_bound": -1}, r"C8.*right_bound=-1; accepted: 0 or more"),
    (lambda g: {"diagonal_alignment": "MIDDLE"}, "accepted: TOP_LEFT, BOTTOM_RIGHT"),
    (lambda g: {"implementation": "FASTEST"}, "accepted: AUTO, COMPOSITE, UNIFIED"),
    (lambda g: {"paged_attention_max_seq_len_kv": 5}, "kv=5 without page tables"),
    (lambda g: {"dropout": (1.0, 1, 2)}, r"C12.*dropout_probability=1.0; accepted: 0 <= p < 1"),
    (lambda g: {"dropout": (0.5,)}, r"accepted: \(probability, seed, offset\), or \(mask, scale\)"),
    (lambda g: {"dropout": ("a", "b")}, "dropout of a str"),
    (lambda g: {**drawn(g), "dropout": None}, r"C13.*rng_dump"),
    (lambda g: {"attn_scale": g.tensor([1, 4, 1, 1])}, r"C5.*one element"),
    (lambda g: {"score_mod": "relu"}, "a function of a graph and a tensor"),
    (lambda g: {"score_mod": lambda graph, scores: None}, r"score_mod gives None; accepted: a"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG)
def test_calls_that_contradict_themselves(arguments, said):
    g = new_graph()
    with pytest.raises(ValueError, match=said) as caught:
        call(g, **arguments(g))
    assert caught.value.status.category is Status.BAD_PARAM
    assert caught.value.supported


ABSENT = [
    (lambda g: {"unfuse_fma": True}, "unfuse_fma=True"),
    (lambda g: {"softmax_precision": "HALF"}, "softmax_precision"),
    (lambda g: {"attn_scale_prefolded": True}, "attn_scale_prefolded"),
    (lambda g: {"kv_mask": g.tensor([2, 1, 1, 7])}, "kv_mask"),
    (lambda g: {"bias": g.tensor([1, 1, 5, 7], data_type="BOOLEAN")}, r"C6.*a float type"),
]


@pytest.mark.parametrize(("arguments", "said"), ABSENT)
def test_what_dnnc_has_not(arguments, said):
    g = new_graph()
    with pytest.raises(dnnc.cudnnGraphNotSupportedError, match=said) as caught:
        call(g, **arguments(g))
    assert caught.value.supported


def test_heads_that_do_not_divide():
    g = new_graph()
    q, k, v = operands(g, heads=4, kv_heads=3)
    with pytest.raises(ValueError, match=r"C2.*has 3 heads; accepted: 4, or a fixed number"):
        finish(g, *g.sdpa(q, k, v, generate_stats=False)).validate()


# ---- score_mod


def masked(g, scores):
    """Columns of the other parity are not seen."""
    row, column = (g.gen_index(scores, axis=axis) for axis in (2, 3))
    apart = g.mod(g.sub(row, column), 2.0)
    return g.binary_select(scores, float("-inf"), g.cmp_eq(apart, 0.0))


@pytest.mark.parametrize("method", ["sdpa", "sdpa_backward"])
def test_lengths_beside_a_score_mod_imply_the_padding_mask(method):
    def graph(**arguments):
        g = new_graph()
        q, k, v = operands(g)
        given = (q, k, v, g.tensor([2, 4, 5, 16]), g.tensor([2, 4, 5, 16]), g.tensor([2, 4, 5, 1]))
        if method == "sdpa":
            given, arguments = (q, k, v), {**arguments, "generate_stats": False}
        for made in getattr(g, method)(*given, score_mod=masked, **{**lengths(g), **arguments}):
            if made is not None:
                made.set_output().set_data_type("HALF")
        return g.graph.finalize().canonical_text()

    assert graph(use_padding_mask=False) == graph(use_padding_mask=True)


def test_a_score_mod_is_a_part_of_the_graph():
    g = new_graph()
    q, k, v = operands(g, kv_heads=4)
    seen = []

    def recorded(graph, scores):
        seen.append((graph, scores.get_dim()))
        return masked(graph, scores)

    o, stats = g.sdpa(q, k, v, generate_stats=True, attn_scale=0.5, score_mod=recorded, name="a")
    finish(g, o, stats)
    assert seen == [(g, [2, 4, 5, 7])]
    assert o.get_dim() == [2, 4, 5, 16]
    graph = g.graph.finalize()
    titles = [op.title for op in graph.ops]
    assert titles.count("matmul") == 2
    assert "sdpa" not in titles
    rng = np.random.default_rng(0)
    inputs = {t: rng.normal(size=[n.constant for n in t.shape]) for t in graph.inputs}
    found = dnnc.reference(g, inputs)
    x, y, z = (np.asarray(inputs[t], np.float32).astype(float) for t in (q, k, v))
    scores = 0.5 * x @ y.swapaxes(2, 3)
    parity = (np.arange(5)[:, None] - np.arange(7)) % 2
    weights = np.where(parity == 0, np.exp(scores), 0)
    wanted = weights @ z / weights.sum(axis=3, keepdims=True)
    np.testing.assert_allclose(found[o.uid], wanted, 1e-4, 1e-5)
    restored = dnnc.pygraph(target="sm_90")
    restored.deserialize(repr(g))
    assert restored.graph == graph


def test_a_score_mod_ahead_of_masks_bias_and_dropout():
    """Other scores that are the same: the whole is the operation's."""
    g = new_graph()

    def arguments(made):
        return {
            **lengths(made), **drawn(made), "use_causal_mask_bottom_right": True,
            "bias": made.tensor([1, 4, 1, 7]), "sink_token": made.tensor([1, 4, 1, 1]),
        }  # fmt: skip

    graphs = []
    for score_mod in (None, lambda graph, scores: graph.identity(scores)):
        g = new_graph()
        outputs = g.sdpa(*operands(g), generate_stats=True, score_mod=score_mod, **arguments(g))
        graphs.append(finish(g, *outputs).graph.finalize())
    values = {}
    rng = np.random.default_rng(1)
    for graph in graphs:
        for tensor in graph.inputs:
            dims = [n.constant for n in tensor.shape]
            made = rng.integers(1, 5, dims) if tensor.type.is_integer else rng.normal(size=dims)
            values.setdefault(tensor.name or tuple(dims), made)
    found = [
        dnnc.reference(
            graph,
            {t: values[t.name or tuple(n.constant for n in t.shape)] for t in graph.inputs},
        )
        for graph in graphs
    ]
    for one, other in zip(*(sorted(f.values(), key=np.shape) for f in found), strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)


def test_a_score_mod_of_operands_that_are_not_known():
    g = dnnc.pygraph(target="sm_90", compute_data_type="FLOAT")
    q, k, v = operands(g)
    with pytest.raises(DnncError, match=r"score_mod, and dtype of tensor 'q'.*not known yet"):
        g.sdpa(q, k, v, generate_stats=False, score_mod=masked)


def test_a_score_mod_of_other_dims():
    g = new_graph()

    def transposed(graph, scores):
        return graph.transpose(scores, [0, 1, 3, 2])

    with pytest.raises(ValueError, match=r"score_mod gives a tensor of dims \[2, 4, 7, 5\]"):
        call(g, score_mod=transposed)


def test_a_graph_with_plans_takes_no_attention():
    g = finish(new_graph())
    q, k, v = operands(g)
    g.relu(q).set_output()
    g.build_operation_graph()
    g.create_execution_plans(["A"])
    for score_mod in (None, masked):
        with pytest.raises(RuntimeError, match="has plans"):
            g.sdpa(q, k, v, generate_stats=False, score_mod=score_mod)


# ---- what needs no lengths, or others


def paged_graph(has_lengths):
    g = dnnc.pygraph("paged", io_data_type="HALF", intermediate_data_type="FLOAT", target="sm_80")
    q, k, v = g.tensor([2, 4, 3, 8]), g.tensor([6, 2, 4, 8]), g.tensor([6, 2, 4, 8])
    table, *lengths = (
        g.tensor(dims, data_type=kind)
        for dims, kind in (
            ([2, 1, 2, 1], "INT64" if has_lengths else "INT32"),
            *[([2, 1, 1, 1], "INT64")] * (2 * has_lengths),
        )
    )
    o, _ = g.sdpa(
        q, k, v, generate_stats=False, attn_scale=0.5, paged_attention_max_seq_len_kv=7,
        use_causal_mask_bottom_right=True, use_padding_mask=has_lengths,
        paged_attention_k_table=table, paged_attention_v_table=table,
        **dict(zip(("seq_len_q", "seq_len_kv"), lengths, strict=False)),
    )  # fmt: skip
    o.set_output()
    return g.graph.finalize(), [q, k, v, table], lengths


def test_pages_without_lengths_are_whole():
    """Results are those of lengths that are the sizes; table and lengths are INT64."""
    (whole, given, _), (padded, same, lengths) = map(paged_graph, (False, True))
    values = random_inputs(whole, {})
    named = {mine.uid: values[other.uid] for mine, other in zip(same, given, strict=True)}
    for tensor, n in zip(lengths, (3, 7), strict=True):
        named[tensor.uid] = np.full((2, 1, 1, 1), n)
    (found,), (wanted,) = reference(whole, values).values(), reference(padded, named).values()
    np.testing.assert_array_equal(found, wanted)


def test_pages_without_lengths_have_fixed_sizes():
    g = dnnc.pygraph("open", io_data_type="HALF", target="sm_80")
    rows = dnnc.Dim("rows", max=64)
    q, k = g.tensor([2, 4, rows, 8]), g.tensor([6, 2, 4, 8])
    with pytest.raises(DnncError, match="page tables without a padding mask, of rows rows"):
        g.sdpa(q, k, g.tensor([2, 2, 8, 8]), generate_stats=False,
               paged_attention_k_table=g.tensor([2, 1, 2, 1], data_type="INT32"))  # fmt: skip
