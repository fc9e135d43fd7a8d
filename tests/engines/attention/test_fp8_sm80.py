"""Engine sdpa_sm80 on operands of fp8: few queries, keys that several blocks share."""

import numpy as np
import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.engines.attention.sm80 import SDPA_SM80
from dnnc.options import Options
from dnnc.target import of
from tests import attention_graphs as graphs
from tests import fp8_attention
from tests.attention_graphs import Pattern
from tests.dialect.attention_examples import lengths
from tests.fp8_attention import (
    FAST,
    NUMBERS,
    amax_of_both,
    attention,
    fusion_of,
    inputs_of,
)
from tests.support.checked import check

TARGET = "sm_90a"
SMALL = {"TILE_M": 16, "TILE_N": 32, "STAGES": 2, "PACK_GQA": 0, "SPLIT_KV": 1}
DECODE = {"queries": 1, "heads": 8, "key_heads": 2, "keys": 150, "out": "FP8_E4M3"}
pytestmark = [
    pytest.mark.sm90,
    pytest.mark.registers,
]  # the first that has fp8 and a device of these tests


def run(g, knobs=None, inputs=None, **numbers):
    return fp8_attention.run(g, "sdpa_sm80", SMALL | (knobs or {}), inputs, **numbers)


SHAPES = {
    "one query": ({"queries": 1, "keys": 33, "depth": 16, "out": "FP8_E5M2"}, {"TILE_N": 16}),
    "one key": ({"queries": 1, "keys": 1, "depth": 16}, {"SPLIT_KV": 2}),
    "odd chunks": ({"queries": 20, "keys": 71, "depth": 48, "width": 80}, {"STAGES": 3}),
    "two warps": ({"queries": 40, "keys": 96}, {"TILE_M": 32, "TILE_N": 64}),
    "widest": (
        {"heads": 1, "queries": 5, "keys": 50, "depth": 256}, {"TILE_N": 16, "SPLIT_KV": 2},
    ),
    "parts": ({"queries": 1, "keys": 200, "depth": 128}, {"SPLIT_KV": 4}),
    "parts without keys": ({"queries": 3, "keys": 40, "depth": 32}, {"SPLIT_KV": 8}),
    "heads in a tile": (DECODE, {"PACK_GQA": 1}),
    "parts of heads in a tile": (DECODE, {"PACK_GQA": 1, "SPLIT_KV": 2}),
    "fast sums": ({**DECODE, "compute": FAST, "out": "FLOAT"}, {"SPLIT_KV": 2}),
    "e5m2": ({"queries": 2, "io": "FP8_E5M2", "out": "FLOAT"}, {"SPLIT_KV": 2}),
    "both types": ({"queries": 2, "v_io": "FP8_E5M2", "out": "HALF", "width": 32}, {"SPLIT_KV": 2}),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    shape, knobs = SHAPES[name]
    run(attention(**shape), knobs)


@pytest.mark.in_turn
@pytest.mark.parametrize("rows", [(1, 1), (1, 0)])
def test_lengths_of_parts(rows):
    """Some parts are past the length, and of one entry all are."""
    g = attention(batch=2, queries=1, keys=130, arguments=lambda g: lengths(g, 2))
    run(g, {"SPLIT_KV": 4}, inputs_of(g, sq=rows, skv=(100, 5)))


@pytest.mark.in_turn
def test_causal_rows_of_parts():
    g = attention(queries=20, keys=60, arguments={"use_causal_mask_bottom_right": True})
    run(g, {"SPLIT_KV": 2})


def paged(tables):
    g = dnnc.pygraph("paged", io_data_type="FP8_E4M3", compute_data_type="FLOAT")
    q = g.tensor([2, 4, 1, 64], name="q")
    k, v = (g.tensor([20, 1, 16, 64], name=name) for name in "kv")
    numbers = {name: g.tensor([1, 1, 1, 1], data_type="FLOAT", name=name) for name in NUMBERS}
    o, _, *amax = g.sdpa_fp8(q, k, v, **numbers, is_inference=True, **tables(g))
    for tensor, name in zip((o, *amax), ("o", "amax_s", "amax_o"), strict=True):
        tensor.set_output().set_name(name)
    return g


@pytest.mark.in_turn
def test_parts_of_caches_in_pages():
    def tables(g):
        named = {
            f"paged_attention_{name}_table": g.tensor(
                [2, 1, 7, 1], data_type="INT32", name=name * 2
            )
            for name in "kv"
        }
        return {**named, **lengths(g, 2), "paged_attention_max_seq_len_kv": 100}

    g = paged(tables)
    order = np.random.default_rng(0).permutation(20)[:14]
    given = inputs_of(g, kk=order, vv=order[::-1], sq=(1, 1), skv=(99, 33))
    run(g, {"PACK_GQA": 1, "SPLIT_KV": 4}, given)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("factor", [-0.75, 0.0, float("nan")])
def test_descales_of_any_sign(factor):
    """Both kernels find in memory whether scores are multiplied ahead of the largest."""
    g = attention(queries=2, keys=130, largest=factor == factor)
    with np.errstate(all="ignore"):
        run(g, {"SPLIT_KV": 2}, descale_q=factor)


@pytest.mark.in_turn
def test_an_amax_is_that_of_this_call_alone():
    g = attention(**DECODE | {"out": "BFLOAT16"})
    for scale in (100.0, 0.01):
        run(g, {"SPLIT_KV": 2}, descale_v=scale)


@pytest.mark.in_turn
def test_no_number_is_the_largest():
    g = attention(queries=1, keys=70)
    given, v = inputs_of(g), g.graph.tensor("v")
    given[v.uid] = given[v.uid].copy()
    given[v.uid][0, 1, 3, 5] = np.nan
    found = run(g, {"SPLIT_KV": 2}, given)
    assert np.isnan(found[g.graph.tensor("amax_o").uid]).all()


@pytest.mark.in_turn
def test_sums_that_grow():
    """Parts whose largest scores are far apart."""
    g = attention(queries=2, keys=260, largest=False)
    given, k = inputs_of(g), g.graph.tensor("k")
    steps = (260 - np.arange(260))[:, None] / 32
    given[k.uid] = (given[k.uid].astype(np.float32) * steps).astype(k.type.numpy)
    run(g, {"SPLIT_KV": 4}, given)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("share", ["mul", "div", "after"])
def test_steps_one_by_one(share):
    p = Pattern(
        dtype="FP8_E4M3", queries=3, keys=70, share=share, weight_type="FLOAT",
        out_type="BFLOAT16", scores=graphs.capped, after=amax_of_both if share != "after" else None,
    )  # fmt: skip
    run(p.g, {"SPLIT_KV": 2})


@pytest.mark.in_turn
@pytest.mark.parametrize("parts", [1, 2])
def test_an_amax_of_16_bits(parts):
    p = Pattern(dtype="HALF", queries=5, keys=70, after=amax_of_both)
    knobs = SMALL | {"SPLIT_KV": parts}
    check(p.g, engine="sdpa_sm80", knobs=knobs, slack=4.0, allowance=2.0**-10)


# ---- choices


def test_decoding_shares_keys():
    """One query of a long sequence is an attention of many blocks, and of memory's bandwidth."""
    graph = attention(heads=32, key_heads=8, queries=1, keys=8192, depth=128).graph.finalize()
    (best,) = heuristics.best_config(graph, of(TARGET), ["A"]).choices
    assert best.knobs["PACK_GQA"] == 1
    assert best.knobs["SPLIT_KV"] > 8


@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_89", "sm_90a"])
@pytest.mark.parametrize("depth", [64, 128, 256])
def test_best_choices_spill_nothing(depth, target):
    g = attention(batch=4, heads=32, key_heads=8, queries=1, keys=4096, depth=depth)
    best = heuristics.choices(fusion_of(g), of(target), [SDPA_SM80])[0]
    options = Options(engine="sdpa_sm80", knobs=tuple(best.knobs.items()))
    plan = compile_graph(g.graph.finalize(), target, options)
    for kernel in plan.programs[0].kernels:
        assert kernel.spill_store_bytes == kernel.spill_load_bytes == kernel.local_bytes == 0


def kept(p, weights):
    p.g.identity(weights).set_output().set_name("w").set_data_type("FLOAT")
    return weights


def masked(p, weights):
    return p.g.mul(weights, p.g.tensor(list(p.dims), name="mask", data_type="FLOAT"))


REFUSED = {
    "head size": (lambda: attention(depth=72), "multiple of 16"),
    "operand types": (
        lambda: Pattern(dtype="FP8_E4M3", weight_type="FLOAT", mixed="HALF").g, "of fp8",
    ),
    "weights stored": (
        lambda: Pattern(dtype="FP8_E4M3", weight_type="FLOAT", weights=kept).g, "f16 or bf16",
    ),
    "weights times a tensor": (
        lambda: Pattern(dtype="FP8_E4M3", weight_type="FLOAT", weights=masked).g, "selections",
    ),
    "the weight of one score": (
        lambda: attention(heads=1, queries=1, keys=1), "several scores"
    ),
    "V by cp.async": (lambda: attention(strides={"v": [12288, 6144, 1, 96]}), "contiguous"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    make, supported = REFUSED[name]
    reasons = SDPA_SM80.supports(fusion_of(make()), of(TARGET))
    assert any(supported in reason.supported for reason in reasons), reasons


def test_before_fp8_it_is_refused():
    (reason,) = SDPA_SM80.supports(fusion_of(attention()), of("sm_80"))
    assert reason.clause == "fp8"
