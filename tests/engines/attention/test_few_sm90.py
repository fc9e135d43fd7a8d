"""Few queries in engine sdpa_fwd_sm90: heads in one tile, parts of keys; in the interpreter."""

import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.engines.attention.fwd_sm90 import SDPA_FWD_SM90
from dnnc.target import of
from tests import attention_graphs as graphs
from tests import fp8_attention
from tests.attention_graphs import Pattern
from tests.engines.attention.test_fwd_sm90 import SMALL, TARGET, fusion_of, inputs_of, run
from tests.engines.attention.test_sm80 import lengths_of_heads
from tests.support.checked import check

pytestmark = [pytest.mark.sm90, pytest.mark.registers]
SHARED = {"TILE_M": 64, "SCHED_POLICY": 0, "PACK_GQA": 1, "SPLIT_KV": 2}
HEADS = {"batch": (2, 4), "key_batch": (2, 1), "queries": 5, "keys": 300, "depth": 64}

CASES = {
    "heads in a tile": ({**HEADS, "keys": 70}, {"SPLIT_KV": 1}),
    "parts": (HEADS | {"scores": graphs.causal}, {}),
    "parts of a tile of one head": ({"queries": 70, "keys": 200}, {"PACK_GQA": 0}),
    "two tiles": (HEADS | {"batch": (1, 8), "key_batch": (1, 1), "queries": 9}, {"SPLIT_KV": 4}),
    "two warpgroups": (HEADS | {"queries": 20, "scores": graphs.causal}, {"TILE_M": 128}),
    "more parts than blocks of keys": (HEADS | {"queries": 1}, {"SPLIT_KV": 8}),
    "more heads than rows": ({**HEADS, "batch": (1, 128), "key_batch": (1, 1), "keys": 70}, {}),
    "taken one by one": (HEADS, {"SCHED_POLICY": 1, "SPLIT_KV": 4}),
    "biased": ({**HEADS, "batch": (1, 4), "key_batch": (1, 2), "scores": graphs.biased}, {}),
    "alibi": ({**HEADS, "keys": 90, "scores": graphs.alibi}, {}),
    "an axis before the last": (
        {"batch": (2, 4, 3), "key_batch": (2, 2, 3), "queries": 3, "keys": 70, "depth": 16}, {},
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", CASES)
def test_few_queries(name):
    shape, knobs = CASES[name]
    run(Pattern(**shape, statistics="both"), SHARED | knobs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("lengths", [[70, 3, 0, 35], [0, 0, 0, 0]])
def test_masks_that_differ_in_a_tile(lengths):
    shape = {**HEADS, "batch": (1, 4), "key_batch": (1, 2), "keys": 70}
    pattern = Pattern(**shape, scores=lengths_of_heads)
    run(pattern, SHARED, inputs=inputs_of(pattern, lengths=lengths))


@pytest.mark.in_turn
@pytest.mark.rotating
def test_pages():
    g, blocks = graphs.paged(batch=2, queries=3, heads=4, block=16)
    given = graphs.paged_inputs(g, blocks, (50, 9), 16, (3, 3))
    check(
        g, engine="sdpa_fwd_sm90", knobs=SMALL | SHARED, target=TARGET, slack=4.0, allowance=1e-5,
        inputs=given,
    )  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("compute", ["FLOAT", fp8_attention.FAST])
def test_fp8(compute):
    """The largest weight of all parts, of each of which the reference is the largest score."""
    g = fp8_attention.attention(heads=4, key_heads=2, queries=3, keys=300, compute=compute)
    fp8_attention.run(g, "sdpa_fwd_sm90", SMALL | SHARED)


def chosen(queries, heads, key_heads, *, batch=8, keys=8192):
    g = dnnc.pygraph("few", io_data_type="BFLOAT16", intermediate_data_type="FLOAT")
    q = g.tensor([batch, heads, queries, 128], name="q")
    k, v = (g.tensor([batch, key_heads, keys, 128], name=name) for name in "kv")
    g.sdpa(q, k, v, attn_scale=0.1, generate_stats=False)[0].set_output()
    graph = g.graph.finalize()
    return heuristics.best_config(graph, of(TARGET), ["A", "FALLBACK"]).choices[0]


def test_what_is_chosen():
    """`wgmma` from 2 queries of 8 heads on, as timed on an H200."""
    for queries in (2, 16):
        best = chosen(queries, 64, 8)
        assert best.engine is SDPA_FWD_SM90
        assert best.knobs["PACK_GQA"] == 1
    best = chosen(16, 64, 8, batch=1, keys=65536)
    assert best.engine is SDPA_FWD_SM90
    assert best.knobs["SPLIT_KV"] in (8, 16)
    assert chosen(4096, 64, 8, batch=1, keys=4096).knobs.keys() == SMALL.keys()


def test_heads_that_fill_no_tile_are_not_packed():
    pattern = Pattern(batch=(1, 6), key_batch=(1, 1), queries=4)
    fusion = fusion_of(pattern)
    (reason,) = SDPA_FWD_SM90.legal(SMALL | SHARED, fusion, of(TARGET))
    assert "PACK_GQA=0" in str(reason)
    assert all(not c["PACK_GQA"] for c in SDPA_FWD_SM90.candidates(fusion, of(TARGET)))
