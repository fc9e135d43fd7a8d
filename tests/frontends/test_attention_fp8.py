"""Calls of sdpa_fp8, as users of cudnn-frontend make them."""

import inspect
import re

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.errors import DnncError
from tests.dialect.attention_examples import finish, lengths, new_graph, operands, scales

PARAMETERS = """
q k v descale_q descale_k descale_v descale_s scale_s scale_o is_inference attn_scale bias
use_alibi_mask use_padding_mask seq_len_q seq_len_kv use_causal_mask use_causal_mask_bottom_right
sliding_window diagonal_alignment left_bound right_bound dropout rng_dump paged_attention_k_table
paged_attention_v_table paged_attention_max_seq_len_kv compute_data_type name fn generate_stats
score_max score_sum_exp sink_token
""".split()
LATER = """
max_total_seq_len_q max_total_seq_len_kv cu_seq_len_q cu_seq_len_kv stats_use_log2 implementation
""".split()


def test_parameters_are_those_of_cudnn_frontend():
    found = inspect.signature(dnnc.pygraph.sdpa_fp8).parameters
    assert list(found) == ["self", *PARAMETERS, *LATER]
    assert all(found[name].kind is inspect.Parameter.KEYWORD_ONLY for name in LATER)


def test_statistics_and_packed_sequences_are_as_in_sdpa():
    g = new_graph(dtypes.f8e4m3)
    o, *_ = called(
        g, cu_seq_len_q=g.tensor([3, 1, 1, 1], data_type="i32"),
        cu_seq_len_kv=g.tensor([3, 1, 1, 1], data_type="i32"), max_total_seq_len_q=8,
        stats_use_log2=True, implementation="UNIFIED",
    )  # fmt: skip
    assert g.graph.producers[o].stats_use_log2
    with pytest.raises(ValueError, match="implementation"):
        called(g, implementation="FAST")


def called(g, **arguments):
    given = {"generate_stats": True, "name": "sdpa", **arguments}
    return g.sdpa_fp8(*operands(g), **scales(g), **given)


def test_results_in_their_order():
    g = new_graph(dtypes.f8e4m3)
    o, stats, amax_s, amax_o = called(g)
    names = [tensor.get_name() for tensor in (o, stats, amax_s, amax_o)]
    assert names == ["sdpa::O", "sdpa::Stats", "sdpa::Amax_S", "sdpa::Amax_O"]
    assert (o.get_dim(), amax_s.get_dim(), amax_o.get_dim()) == ([2, 4, 5, 16], [1] * 4, [1] * 4)
    finish(g, o, stats, amax_s, amax_o).validate()
    assert [t.get_data_type() for t in (o, amax_s, amax_o)] == [
        dtypes.f8e4m3, dtypes.f32, dtypes.f32,
    ]  # fmt: skip
    assert called(new_graph(dtypes.f8e4m3), generate_stats=False)[1] is None


def text(**arguments):
    g = new_graph(dtypes.f8e4m3)
    finish(g, *called(g, **arguments)).validate()
    g.graph.finalize()
    return g.graph.canonical_text()


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"use_causal_mask": True}, {"right_bound": 0}),
        ({"sliding_window": 3, "left_bound": 5}, {"left_bound": 3}),
        ({"is_inference": False, "generate_stats": None}, {}),
    ],
)
def test_older_spellings(older, newer):
    assert text(**older) == text(**newer)


WRONG = [
    ({"generate_stats": None}, "sdpa_fp8 'sdpa'.*neither generate_stats nor is_inference"),
    ({"use_padding_mask": True}, "with 0 of seq_len_q and seq_len_kv"),
    ({"left_bound": 0}, r"C8.*left_bound=0; accepted: 1 or more"),
    ({"compute_data_type": "INT32"}, "C15.*FLOAT, DOUBLE, FAST_FLOAT_FOR_FP8"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=str)
def test_wrong_calls(arguments, message):
    g = new_graph(dtypes.f8e4m3)
    with pytest.raises(DnncError) as caught:
        finish(g, *called(g, **arguments)).validate()
    assert re.search(message, f"{caught.value.where} {caught.value}", re.DOTALL)


def test_a_function_of_the_scores_is_among_the_steps():
    g = new_graph(dtypes.f8e4m3)
    results = called(g, fn=lambda graph, scores: graph.tanh(scores), use_causal_mask=True)
    finish(g, *results).validate()
    titles = [op.title for op in g.graph.ops]
    assert "pointwise:tanh_fwd" in titles
    assert titles.count("reduction:amax") == 2
    assert titles.index("matmul") < titles.index("pointwise:tanh_fwd")


def test_lengths_mask_what_lies_past_them():
    g = new_graph(dtypes.f8e4m3)
    o, *_ = called(g, **lengths(g), generate_stats=False)
    o.set_output().set_name("o").set_data_type("FLOAT")
    rng = np.random.default_rng(0)
    given = {
        tensor.name: rng.normal(size=[n.constant for n in tensor.shape]).astype(np.float32)
        for tensor in g.graph.finalize().inputs
    }
    given |= {"sq": np.reshape([5, 2], (2, 1, 1, 1)), "skv": np.reshape([7, 3], (2, 1, 1, 1))}
    found = dnnc.reference(g, given)[o.uid]
    assert not found[1, :, 2:].any()
    assert found[1, :, :2].all()
