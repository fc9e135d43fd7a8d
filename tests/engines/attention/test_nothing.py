"""Attention of no keys, or of no queries: sizes that are 0 of kernels for any; interpreted."""

import numpy as np
import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.expr import ceildiv
from dnnc.target import of
from tests import attention_graphs as graphs
from tests.attention_graphs import Pattern
from tests.support.checked import check, random_inputs

pytestmark = pytest.mark.registers

SM80 = {"TILE_M": 16, "TILE_N": 32, "STAGES": 2, "PACK_GQA": 0, "SPLIT_KV": 1}
SM90 = {"TILE_M": 64, "TILE_N": 64, "STAGES": 2, "KERNEL_CFG": 3, "SCHED_POLICY": 1}
ENGINES = {
    "sdpa_sm80": (SM80, {}),
    "sdpa_fwd_sm90": (SM90, {"target": "sm_90a"}),
}  # fmt: skip
both_engines = pytest.mark.parametrize(
    "engine", ["sdpa_sm80", pytest.param("sdpa_fwd_sm90", marks=pytest.mark.sm90)]
)


def keys():
    return dnnc.Dim("Skv", min=0, max=300)


def queries():
    return dnnc.Dim("Sq", min=0, max=300)


def run(g, engine, sizes, knobs=None, allowance=1e-5, inputs=None):
    """At each of some sizes, all by one plan."""
    chosen, options = ENGINES[engine]
    plan = None
    for own in sizes:
        if plan is None:
            options = {**options, "engine": engine, "knobs": chosen | (knobs or {})}
        plan = check(
            g, own, plan=plan, slack=4.0, allowance=allowance, inputs=inputs and inputs(own),
            **options,
        )  # fmt: skip
    assert all(kernel.spill_store_bytes == 0 for p in plan.programs for kernel in p.kernels)
    return plan


NO_KEYS = {
    "plain": {},
    "causal": {"scores": graphs.causal, "statistics": "both"},
    "unguarded": {"is_guarded": False, "share": "div", "scores": graphs.causal},
    "divided after": {"share": "after"},
    "bias": {"scores": graphs.biased},
    "documents": {"scores": graphs.documents},
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@both_engines
@pytest.mark.parametrize("name", NO_KEYS)
def test_no_keys(engine, name):
    """A sum over nothing is 0, a maximum -inf, whether or not the graph guards rows."""
    pattern = Pattern(queries=20, keys=keys(), depth=16, **NO_KEYS[name])
    run(pattern.g, engine, [{"Skv": 0}, {"Skv": 70}])


@pytest.mark.in_turn
@both_engines
def test_no_queries(engine):
    pattern = Pattern(queries=queries(), keys=keys(), depth=16, scores=graphs.causal)
    sizes = [(0, 0), (0, 9), (5, 0), (20, 70)]
    run(pattern.g, engine, [{"Sq": sq, "Skv": skv} for sq, skv in sizes])


@pytest.mark.in_turn
@pytest.mark.parametrize("is_guarded", [True, False])
def test_no_keys_for_several_blocks_and_heads(is_guarded):
    pattern = Pattern(
        batch=(1, 4), key_batch=(1, 1), queries=queries(), keys=keys(), depth=16,
        is_guarded=is_guarded, statistics="both",
    )  # fmt: skip
    sizes = [{"Sq": 0, "Skv": 5}, {"Sq": 3, "Skv": 0}, {"Sq": 3, "Skv": 90}]
    run(pattern.g, "sdpa_sm80", sizes, {"PACK_GQA": 1, "SPLIT_KV": 2})


def composite(arguments):
    g = dnnc.pygraph(
        "attention", io_data_type="HALF", intermediate_data_type="FLOAT", compute_data_type="FLOAT"
    )
    q = g.tensor([2, 2, 20, 16], name="q")
    k, v = (g.tensor([2, 1, keys(), 16], name=name) for name in "kv")
    o, stats = g.sdpa(
        q, k, v, attn_scale=0.25, generate_stats=True, use_causal_mask=True, **arguments(g)
    )
    o.set_output().set_name("o")
    stats.set_output().set_name("stats").set_data_type("FLOAT")
    return g


ARGUMENTS = {
    "sink": lambda g: {"sink_token": g.tensor([1, 2, 1, 1], data_type="FLOAT", name="sink")},
    "lengths": lambda g: {
        "use_padding_mask": True,
        **{
            f"seq_len_{name}": g.tensor([2, 1, 1, 1], data_type="INT32", name=name)
            for name in ("q", "kv")
        },
    },
}


@pytest.mark.in_turn
@pytest.mark.rotating
@both_engines
@pytest.mark.parametrize("name", ARGUMENTS)
def test_options_of_one_call(engine, name):
    run(composite(ARGUMENTS[name]), engine, [{"Skv": 0}, {"Skv": 33}], allowance=1e-3)


def of_blocks(p, s):
    """Under a mask of blocks of 64 queries and 64 keys."""
    mask = p.g.tensor([1, 1, 1, ceildiv(p.dims[3], 64 * 8)], name="mask", data_type="UINT8")
    seen = p.g.block_mask_load(mask, block_rows=64, block_columns=64)
    return p.masked(p.scaled(s), p.flag(seen.set_dim(list(p.dims))))


@pytest.mark.in_turn
@both_engines
def test_masks_of_no_blocks(engine):
    """A mask of 0 blocks has no bytes, and none is read."""
    pattern = Pattern(queries=20, keys=keys(), depth=16, scores=of_blocks)
    run(pattern.g, engine, [{"Skv": 0}, {"Skv": 200}])


def kept(p, weights):
    p.g.identity(weights).set_output().set_name("w").set_data_type("FLOAT")
    return weights


@pytest.mark.in_turn
def test_no_weights_to_keep():
    pattern = Pattern(queries=20, keys=keys(), depth=16, weights=kept, is_guarded=False)
    run(pattern.g, "sdpa_sm80", [{"Skv": 0}, {"Skv": 40}])


@pytest.mark.in_turn
@pytest.mark.rotating
@both_engines
@pytest.mark.parametrize("lengths", [((0, 0), (0, 0)), ((3, 9), (0, 0)), ((0, 0), (20, 3))])
def test_packed_sequences_of_no_rows(engine, lengths):
    totals = [dnnc.Dim(name, min=0, max=300) for name in ("Tq", "Tkv")]
    g, values = graphs.packed(*lengths, depth=16, totals=totals)
    sizes = dict(zip(("Tq", "Tkv"), map(sum, lengths), strict=True))
    given = random_inputs(g.graph.finalize(), sizes)
    for tensor in g.graph.inputs:
        if tensor.name in values:
            given[tensor.uid] = np.reshape(values[tensor.name], given[tensor.uid].shape)
    run(g, engine, [sizes], inputs=lambda own: given)


@pytest.mark.in_turn
@pytest.mark.sm90
def test_no_keys_of_fp8():
    g = dnnc.pygraph("fp8", io_data_type="FP8_E4M3", compute_data_type="FLOAT")
    q = g.tensor([1, 2, 20, 32], name="q")
    k, v = (g.tensor([1, 2, keys(), 32], name=name) for name in "kv")
    names = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
    numbers = {n: g.tensor([1, 1, 1, 1], data_type="FLOAT", name=n) for n in names}
    o, stats, *largest = g.sdpa_fp8(q, k, v, **numbers, attn_scale=0.2, generate_stats=True)
    o.set_output().set_name("o").set_data_type("HALF")
    for tensor, name in zip((stats, *largest), ("stats", "amax_s", "amax_o"), strict=True):
        tensor.set_output().set_name(name)

    def inputs(sizes):
        found = random_inputs(g.graph.finalize(), sizes)
        ones = {t.uid: np.ones((1, 1, 1, 1)) for t in g.graph.inputs if t.name in numbers}
        return found | ones

    knobs = {"KERNEL_CFG": 2}
    run(g, "sdpa_fwd_sm90", [{"Skv": 0}, {"Skv": 33}], knobs, 0.03, inputs)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_it_is_one_fusion_of_the_engines(target):
    g = Pattern(queries=queries(), keys=keys(), depth=64).g
    found = heuristics.best_config(g.graph.finalize(), of(target), ["A", "FALLBACK"])
    (choice,) = found.choices
    assert choice.engine.name in ENGINES
