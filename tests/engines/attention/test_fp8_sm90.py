"""Engine sdpa_fwd_sm90 on operands of fp8: `sdpa_fp8`, and steps written one by one."""

import numpy as np
import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect.reference import reference
from dnnc.engines.attention.fwd_sm90 import SDPA_FWD_SM90
from dnnc.errors import DnncError, Status
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
from tests.support import machine
from tests.support.checked import check
from tests.support.compare import assert_close

TARGET = "sm_90a"
SMALL = {"TILE_M": 128, "TILE_N": 64, "STAGES": 2, "KERNEL_CFG": 2, "SCHED_POLICY": 1}
pytestmark = [pytest.mark.sm90, pytest.mark.registers]


def run(g, knobs=None, inputs=None, **numbers):
    return fp8_attention.run(g, "sdpa_fwd_sm90", SMALL | (knobs or {}), inputs, **numbers)


SHAPES = {
    "one tile": ({"queries": 128, "keys": 128}, {}),
    "odd": ({"queries": 65, "keys": 131, "out": "FP8_E4M3"}, {"TILE_N": 128}),
    "three warpgroups": ({"queries": 200, "keys": 130}, {"TILE_M": 192, "KERNEL_CFG": 0}),
    "one warpgroup": ({"queries": 70, "keys": 100, "depth": 48}, {"TILE_M": 64, "STAGES": 3}),
    "one query": ({"queries": 1, "keys": 33, "depth": 16, "out": "FP8_E5M2"}, {}),
    "other width": ({"depth": 80, "width": 32, "out": "HALF"}, {}),
    "wider values": ({"depth": 64, "width": 144, "keys": 70}, {"TILE_N": 96, "TILE_M": 64}),
    "128 elements": ({"depth": 128, "keys": 200, "out": "FP8_E4M3"}, {"TILE_N": 128}),
    "widest": (
        {"heads": 1, "depth": 256, "queries": 70, "keys": 70, "compute": FAST, "largest": False},
        {"TILE_N": 64, "KERNEL_CFG": 1},
    ),
    "many keys a step": ({"keys": 300, "compute": FAST}, {"TILE_N": 160, "KERNEL_CFG": 3}),
    "tiles by number": ({"batch": 2, "queries": 130, "keys": 70}, {"SCHED_POLICY": 0}),
    "heads that share": ({"heads": 4, "key_heads": 2, "queries": 20, "keys": 40}, {}),
    "e5m2": ({"io": "FP8_E5M2", "out": "FLOAT"}, {}),
    "both types": ({"v_io": "FP8_E5M2", "out": "HALF"}, {}),
    "rows of all heads": (
        {"queries": 40, "keys": 40, "strides": {n: [5120, 64, 128, 1] for n in "qkv"}}, {},
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    shape, knobs = SHAPES[name]
    run(attention(**shape), knobs)


MASKS = {
    "causal": ({"use_causal_mask": True}, {"queries": 150, "keys": 150}),
    "from the end": (
        {"use_causal_mask_bottom_right": True}, {"queries": 140, "keys": 100, "largest": False},
    ),
    "window": ({"left_bound": 30, "right_bound": 5}, {"queries": 200, "keys": 200}),
    "bias": (
        lambda g: {"bias": g.tensor([1, 2, 70, 90], data_type="FLOAT")},
        {"queries": 70, "keys": 90},
    ),
    "sink": (
        lambda g: {"sink_token": g.tensor([1, 2, 1, 1], data_type="FLOAT"), "use_alibi_mask": True,
                   "right_bound": 0},
        {"queries": 66, "keys": 80},
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    arguments, shape = MASKS[name]
    run(attention(arguments=arguments, **shape))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("rows", [(64, 10), (0, 33)])
def test_lengths(rows):
    g = attention(batch=2, queries=64, keys=130, arguments=lambda g: lengths(g, 2))
    run(g, inputs=inputs_of(g, sq=rows, skv=(100, 40)))


@pytest.mark.in_turn
def test_dropout_of_a_seed():
    def drawn(g):
        seed, offset = (
            g.tensor([1, 1, 1, 1], data_type="INT64", name=n) for n in ("seed", "offset")
        )
        return {"dropout": (0.25, seed, offset)}

    g = attention(queries=20, keys=40, arguments=drawn, largest=False)
    run(g, inputs=inputs_of(g, seed=[7], offset=[3]))


@pytest.mark.in_turn
def test_caches_in_pages():
    def tables(g):
        named = {
            f"paged_attention_{name}_table": g.tensor(
                [2, 1, 7, 1], data_type="INT32", name=name * 2
            )
            for name in "kv"
        }
        return {**named, **lengths(g, 2), "paged_attention_max_seq_len_kv": 100}

    g = dnnc.pygraph("paged", io_data_type="FP8_E4M3", compute_data_type="FLOAT")
    q = g.tensor([2, 2, 20, 64], name="q")
    k, v = (g.tensor([20, 1, 16, 64], name=name) for name in "kv")
    numbers = {name: g.tensor([1, 1, 1, 1], data_type="FLOAT", name=name) for name in NUMBERS}
    o, _, *amax = g.sdpa_fp8(q, k, v, **numbers, is_inference=True, **tables(g))
    for tensor, name in zip((o, *amax), ("o", "amax_s", "amax_o"), strict=True):
        tensor.set_output().set_name(name)
    order = np.random.default_rng(0).permutation(20)[:14]
    run(g, inputs=inputs_of(g, kk=order, vv=order[::-1], sq=(20, 7), skv=(99, 33)))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("depth", "knobs"), [(64, {}), (160, {"TILE_M": 64})])
def test_packed_sequences(depth, knobs):
    g, values = graphs.packed_fp8((40, 70, 3), (40, 100, 9), depth=depth, use_causal_mask=True)
    run(g, knobs, inputs_of(g, **values))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("factor", [-0.75, 0.0, 1e-30, float("nan")])
def test_descales_of_any_sign(factor):
    """Whether scores are multiplied ahead of the largest is decided by what is in memory."""
    g = attention(
        queries=40, keys=130, arguments={"use_causal_mask": True}, largest=factor == factor
    )
    with np.errstate(all="ignore"):
        run(g, descale_q=factor)


@pytest.mark.in_turn
def test_a_scale_of_the_weights_is_nothing_but_a_factor():
    g = attention(queries=20, keys=70, out="FLOAT", largest=False)
    found = [run(g, scale_s=s, descale_s=1 / s)[g.graph.tensor("o").uid] for s in (1.0, 2.0**12)]
    np.testing.assert_array_equal(*found)


@pytest.mark.in_turn
def test_an_amax_is_that_of_this_call_alone():
    """Larger results before it leave nothing behind."""
    g = attention(queries=70, keys=70)
    for scale in (100.0, 0.01):
        run(g, descale_v=scale)


@pytest.mark.in_turn
def test_no_number_is_the_largest():
    g = attention(queries=70, keys=70)
    given = inputs_of(g)
    v = g.graph.tensor("v")
    given[v.uid] = given[v.uid].copy()
    given[v.uid][0, 1, 3, 5] = np.nan
    found = run(g, inputs=given)
    assert np.isnan(found[g.graph.tensor("amax_o").uid]).all()


@pytest.mark.in_turn
def test_sums_that_grow():
    """Keys whose scores rise from the last block to the first."""
    for compute, config in (("FLOAT", 0), (FAST, 0), (FAST, 1)):
        g = attention(queries=20, keys=260, compute=compute, largest=False)
        given = inputs_of(g)
        k = g.graph.tensor("k")
        steps = (260 - np.arange(260))[:, None] / 32
        given[k.uid] = (given[k.uid].astype(np.float32) * steps).astype(k.type.numpy)
        run(g, {"KERNEL_CFG": config}, inputs=given)


# ---- written one by one


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("share", ["mul", "div", "after"])
def test_steps_one_by_one(share):
    p = Pattern(
        dtype="FP8_E4M3", queries=40, keys=70, share=share, weight_type="FLOAT",
        out_type="BFLOAT16", scores=graphs.causal, after=amax_of_both if share != "after" else None,
    )  # fmt: skip
    run(p.g)


@pytest.mark.in_turn
def test_a_score_modification():
    p = Pattern(
        dtype="FP8_E5M2", queries=40, keys=70, weight_type="FLOAT", out_type="HALF",
        scores=graphs.capped,
    )  # fmt: skip
    run(p.g)


# ---- choices


def test_the_whole_is_one_fusion_of_the_engine():
    graph = attention(keys=4096, queries=4096, depth=128).graph.finalize()
    found = heuristics.best_config(graph, of(TARGET), ["A", "FALLBACK"])
    assert [choice.engine.name for choice in found.choices] == ["sdpa_fwd_sm90"]


@pytest.mark.in_turn
def test_every_size_of_packed_heads_has_knobs():
    """Looking up rows takes registers of those that values of 160 leave."""
    for depth in range(16, 161, 16):
        g, _ = graphs.packed_fp8((40, 70), (40, 100), depth=depth)
        assert SDPA_FWD_SM90.candidates(fusion_of(g), of(TARGET)), depth
    (reason,) = SDPA_FWD_SM90.supports(
        fusion_of(graphs.packed_fp8((40, 70), (40, 100), depth=176)[0]), of(TARGET)
    )
    assert "Dv = 176" in reason.what
    assert "up to 160" in reason.supported


@pytest.mark.parametrize("target", ["sm_89", "sm_90", "sm_120"])
def test_other_architectures_have_the_portable_engine(target):
    graph = attention(keys=70, queries=40, depth=64).graph.finalize()
    found = heuristics.best_config(graph, of(target), ["A", "FALLBACK"])
    assert [choice.engine.name for choice in found.choices] == ["sdpa_sm80"]


def test_before_fp8_it_is_refused():
    graph = attention().graph.finalize()
    with pytest.raises(DnncError) as caught:
        compile_graph(graph, "sm_80", Options())
    assert caught.value.status is Status.NOT_SUPPORTED_ARCH_MISMATCH


@pytest.mark.in_turn
def test_a_split_gives_the_same():
    """Where no engine has all of it: heads of 24 elements."""
    g = attention(heads=1, queries=20, keys=40, depth=24, arguments={"use_causal_mask": True})
    graph, given = g.graph.finalize(), inputs_of(g)
    plan = compile_graph(graph, "sm_90", Options())
    assert len(plan.programs[0].fusions) > 1
    found = machine.INTERPRETER.run(plan, given, sizes={}, seed=0)
    exact = reference(graph, given, exact_outputs=True)
    for tensor in graph.outputs:
        assert_close(found[tensor.uid], exact[tensor.uid], tensor.type, slack=2.0, allowance=0.05)


def masked(p, weights):
    mask = p.g.tensor(list(p.dims), name="mask", data_type="FLOAT")
    return p.g.mul(weights, mask)


def doubled_amax(p, o):
    found = p.g.reduction(o, mode="amax").set_dim([1] * 4)
    p.g.mul(found, 2.0).set_output().set_name("twice").set_data_type("FLOAT")
    return p.g.identity(o)


REFUSED = {
    "head size": (lambda: attention(depth=72), "multiple of 16"),
    "sums in FLOAT": (lambda: attention(depth=256), "or FAST_FLOAT_FOR_FP8"),
    "operand types": (
        lambda: Pattern(dtype="FP8_E4M3", weight_type="FLOAT", mixed="HALF").g, "of fp8",
    ),
    "V by TMA": (lambda: attention(strides={"v": [12288, 6144, 1, 96]}), "contiguous"),
    "operations": (
        lambda: Pattern(dtype="FP8_E4M3", weight_type="FLOAT", weights=masked).g, "selections",
    ),
    "amax that others read": (
        lambda: Pattern(dtype="FP8_E4M3", weight_type="FLOAT", after=doubled_amax).g, "an output",
    ),
}  # fmt: skip


@pytest.mark.parametrize("clause", REFUSED)
def test_refusals(clause):
    make, supported = REFUSED[clause]
    reasons = SDPA_FWD_SM90.supports(fusion_of(make()), of(TARGET))
    assert any(supported in reason.supported for reason in reasons), reasons


@pytest.mark.in_turn
def test_an_amax_of_16_bits():
    p = Pattern(dtype="HALF", queries=70, keys=70, after=amax_of_both)
    check(p.g, engine="sdpa_fwd_sm90", knobs=SMALL, target=TARGET, slack=4.0, allowance=2.0**-10)


CHOICES = {
    ("FLOAT", 128): {"TILE_M": 128, "TILE_N": 128, "KERNEL_CFG": 3},
    ("FLOAT", 64): {"TILE_M": 128, "TILE_N": 192, "KERNEL_CFG": 3},
    (FAST, 128): {"TILE_M": 128, "TILE_N": 128, "KERNEL_CFG": 3},
    (FAST, 64): {"TILE_M": 192, "TILE_N": 96},
}


@pytest.mark.parametrize("case", CHOICES, ids=str)
def test_choices_are_among_the_fastest_that_were_timed(case):
    compute, depth = case
    g = attention(
        batch=4, heads=16, queries=4096, keys=4096, depth=depth, compute=compute, largest=False,
        out="FP8_E4M3",
    )  # fmt: skip
    best = heuristics.choices(fusion_of(g), of(TARGET), [SDPA_FWD_SM90])[0]
    assert best.knobs | CHOICES[case] | {"STAGES": 2, "SCHED_POLICY": 1} == best.knobs


def test_what_stays_in_the_accumulators_is_noted():
    for compute, notes in (("FLOAT", ()), (FAST, ("REDUCED_PRECISION_REDUCTION",))):
        fusion = fusion_of(attention(compute=compute))
        assert SDPA_FWD_SM90.notes(fusion, SMALL) == ("TENSOR_CORE", *notes)


def test_few_keys_a_step_are_refused():
    fusion, target = fusion_of(attention()), of(TARGET)
    for keys in (32, 48):
        reasons = SDPA_FWD_SM90.legal(SMALL | {"TILE_N": keys}, fusion, target)
        assert any(f"TILE_N={keys}" in str(reason) for reason in reasons)
    assert min(k["TILE_N"] for k in SDPA_FWD_SM90.candidates(fusion, target)) == 64


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("compute", "depth"), [("FLOAT", 64), ("FLOAT", 128), (FAST, 64), (FAST, 128), (FAST, 256)]
)
def test_best_choices_spill_nothing(depth, compute):
    causal = {"use_causal_mask": True}
    g = attention(
        batch=4, heads=16, queries=1024, keys=1024, depth=depth, compute=compute, arguments=causal,
        out="FP8_E4M3",
    )  # fmt: skip
    best = heuristics.choices(fusion_of(g), of(TARGET), [SDPA_FWD_SM90])[0]
    options = Options(engine="sdpa_fwd_sm90", knobs=tuple(best.knobs.items()))
    plan = compile_graph(g.graph.finalize(), TARGET, options)
    (kernel,) = plan.programs[0].kernels
    assert kernel.spill_store_bytes == kernel.spill_load_bytes == kernel.local_bytes == 0
    assert kernel.registers <= 255
