"""Rotary embeddings ahead of attention: its kernel rotates queries, another one keys."""

import pytest

import dnnc
from dnnc import target as targets
from dnnc.choosing import heuristics
from tests.support import multiprocessors
from tests.support.checked import check

ENGINES = {"sm_80": "sdpa_sm80", "sm_90a": "sdpa_fwd_sm90"}


def graph(q_dims, k_dims, rotated, **options):
    """rotated(graph, x) gives a tensor of x's dims."""
    g = dnnc.pygraph(io_data_type="f16", intermediate_data_type="f16", compute_data_type="f32")
    q, k, v = g.tensor(q_dims), g.tensor(k_dims), g.tensor(k_dims)
    q = rotated(g, q)
    k = rotated(g, k) if options.pop("rotates_keys", False) else k
    o, _ = g.sdpa(q, k, v, attn_scale=0.2, generate_stats=False, **options)
    o.set_output()
    return g


def by_rope(g, x):
    return g.rope(x, g.tensor([1, 1, x.dims[2], x.dims[3]], data_type="f32"))


def by_tables(g, x, first=0):
    """x rotated by cosines and sines in memory, as networks have them.

    first: of the elements that are rotated; those ahead are halved."""
    depth = x.dims[3].constant
    half = (depth - first) // 2
    cos, sin = (g.tensor([1, 1, x.dims[2], half]) for _ in range(2))
    *ahead, low, high = (
        g.slice(x, [*[slice(None)] * 3, slice(*ends)])
        for ends in ((0, first), (first, first + half), (first + half, depth))
        if ends[0] < ends[1]
    )
    rotated = [g.sub(g.mul(low, cos), g.mul(high, sin)), g.add(g.mul(high, cos), g.mul(low, sin))]
    return g.concatenate([*(g.mul(x, 0.5) for x in ahead), *rotated], axis=3)


def by_tables_in_part(g, x):
    return by_tables(g, x, 16)


def engines_of(plan):
    return [fusion.engine for fusion in plan.programs[0].fusions]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("target", ENGINES)
def test_keys_are_rotated_by_a_launch_of_their_own(target):
    g = graph([1, 2, 24, 16], [1, 1, 24, 16], by_tables, rotates_keys=True, use_causal_mask=True)
    assert engines_of(check(g, target=target, allowance=0.01)) == ["pointwise", ENGINES[target]]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("target", ENGINES)
@pytest.mark.parametrize(
    ("q_dims", "k_dims", "rotated"),
    [
        ([1, 4, 70, 80], [1, 2, 33, 80], by_tables),  # the second of two tiles has few rows
        ([1, 2, 9, 32], [1, 1, 40, 32], by_tables_in_part),
    ],
)
def test_rotated_queries_are_no_launch(target, q_dims, k_dims, rotated):
    g = graph(q_dims, k_dims, rotated)
    assert engines_of(check(g, target=target, allowance=0.01)) == [ENGINES[target]]


@pytest.mark.parametrize("target", ENGINES)
def test_cosines_are_computed_ahead(target):
    """A tile's queries are of one head, and those of a row the same for all heads."""
    g = graph([1, 2, 9, 32], [1, 1, 40, 32], by_rope)
    config = heuristics.best_config(g.graph.finalize(), targets.of(target))
    assert [choice.engine.name for choice in config.choices] == ["pointwise", ENGINES[target]]


@pytest.mark.in_turn
def test_rotated_queries_of_heads_that_share_a_tile():
    g = graph([2, 4, 1, 32], [2, 1, 128, 32], by_tables)
    knobs = {"PACK_GQA": 1, "SPLIT_KV": 2, "TILE_M": 16, "TILE_N": 32}
    plan = check(g, target="sm_80", engine="sdpa_sm80", knobs=knobs, allowance=0.01)
    assert engines_of(plan) == ["sdpa_sm80"]


def test_a_block_goes_through_several_tiles_of_rotated_queries(monkeypatch):
    multiprocessors.few(monkeypatch, 1)
    g = graph([1, 3, 64, 16], [1, 3, 32, 16], by_tables)
    plan = check(g, target="sm_90a", engine="sdpa_fwd_sm90", allowance=0.01)
    assert engines_of(plan) == ["sdpa_fwd_sm90"]


@pytest.mark.parametrize("depth", [24, 64])
def test_parts_of_whole_chunks_are_rotated_there(depth):
    """Halves of 12 elements end inside 16 bytes."""
    g = graph([1, 2, 512, depth], [1, 2, 512, depth], by_tables)
    config = heuristics.best_config(g.graph.finalize(), targets.of("sm_90a"))
    assert len(config.choices) == (2 if depth == 24 else 1)
