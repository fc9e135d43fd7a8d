"""Engine sdpa_sm80 with heads of more elements than a warp's registers have sums for."""

import numpy as np
import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.target import of
from tests import attention_graphs as graphs
from tests.attention_graphs import Pattern
from tests.support.checked import check, random_inputs

from .test_sm80 import SMALL, run

pytestmark = pytest.mark.registers

LONG = {"TILE_M": 16, "TILE_N": 16}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("parts", [1, 2])
def test_two_blocks_have_the_pieces_of_a_value(parts):
    """Each stores its columns, and one of them what rows have."""
    pattern = Pattern(
        batch=(1, 4), key_batch=(1, 2), queries=5, keys=40, depth=264, width=272,
        scores=lambda p, s: graphs.causal(p, s, 30), statistics="both",
    )  # fmt: skip
    run(pattern, {**LONG, "PACK_GQA": 1, "SPLIT_KV": parts})


@pytest.mark.in_turn
def test_long_keys_of_short_values():
    run(Pattern(batch=(1, 1), queries=5, keys=40, depth=576, width=24), LONG)


@pytest.mark.in_turn
def test_pieces_of_a_paged_cache():
    """A compressed cache: one head of keys for all of the queries', and values within them."""
    g = dnnc.pygraph("mla", io_data_type="f16", intermediate_data_type="f32", target="sm_80")
    i32 = {"data_type": "INT32"}
    q = g.tensor([2, 4, 1, 288], name="q")
    k, v = (g.tensor([5, 1, 16, n], name=name) for name, n in (("k", 288), ("v", 320)))
    lengths = [g.tensor([2, 1, 1, 1], **i32, name=name) for name in ("rows", "keys")]
    table = g.tensor([2, 1, 3, 1], **i32, name="table")
    o, _ = g.sdpa(
        q, k, v, generate_stats=False, attn_scale=0.06, use_padding_mask=True,
        seq_len_q=lengths[0], seq_len_kv=lengths[1], paged_attention_k_table=table,
        paged_attention_v_table=table, paged_attention_max_seq_len_kv=48,
    )  # fmt: skip
    o.set_output().set_name("o")
    given = random_inputs(g.graph.finalize(), {})
    for tensor in g.graph.inputs:
        if tensor.name in ("rows", "keys"):
            numbers = [1, 1] if tensor.name == "rows" else [37, 5]
            given[tensor.uid] = np.reshape(numbers, (2, 1, 1, 1))
    knobs = {**SMALL, **LONG, "PACK_GQA": 1, "SPLIT_KV": 2}
    check(g, engine="sdpa_sm80", inputs=given, knobs=knobs, slack=4.0, allowance=1e-5)


CHOSEN = [(512, 512, 1, 8), (576, 512, 1, 1), (320, 320, 256, 16), (512, 512, 256, 16)]


@pytest.mark.rotating
@pytest.mark.parametrize(("depth", "width", "queries", "heads"), CHOSEN)
def test_one_engine_has_all_of_it(depth, width, queries, heads):
    for target in ("sm_80", "sm_86"):
        g = dnnc.pygraph("long", io_data_type="bf16", intermediate_data_type="f32")
        q = g.tensor([1, 16, queries, depth])
        k, v = (g.tensor([1, heads, 2048, n]) for n in (depth, width))
        g.sdpa(q, k, v, generate_stats=False)[0].set_output()
        (choice,) = next(iter(heuristics.configs(g.graph.finalize(), of(target)))).choices
        assert choice.engine.name == "sdpa_sm80"
