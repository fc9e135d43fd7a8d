"""Engine sdpa_sm80: attention by `mma.sync`, few queries and many, in the interpreter."""

import numpy as np
import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines.attention.fwd_sm90 import SDPA_FWD_SM90
from dnnc.engines.attention.sm80 import SDPA_SM80
from dnnc.options import Options
from dnnc.target import of
from tests import attention_graphs as graphs
from tests.attention_graphs import Pattern
from tests.support import machine
from tests.support.checked import check, random_inputs

pytestmark = pytest.mark.registers

SMALL = {"TILE_M": 32, "TILE_N": 32, "STAGES": 2, "PACK_GQA": 0, "SPLIT_KV": 1}


def run(pattern, knobs=None, inputs=None, allowance=1e-5, **options):
    plan = check(
        pattern.g, engine="sdpa_sm80", knobs=SMALL | (knobs or {}), slack=4.0,
        allowance=allowance, inputs=inputs, **options,
    )  # fmt: skip
    assert all(k.spill_store_bytes == 0 for p in plan.programs for k in p.kernels)
    return plan


def inputs_of(pattern, **values):
    """Random ones, but for those that are given by name."""
    graph = pattern.g.graph.finalize()
    found = random_inputs(graph, {})
    for tensor in graph.inputs:
        if tensor.name in values:
            found[tensor.uid] = np.asarray(values[tensor.name]).reshape(found[tensor.uid].shape)
    return found


def fusion_of(pattern):
    graph = pattern.g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return fusion


SHAPES = {
    "one tile": ({"batch": (1, 1), "queries": 32, "keys": 64}, {}),
    "odd": ({"depth": 16, "queries": 33, "keys": 71, "dtype": "HALF"}, {"TILE_N": 64, "STAGES": 3}),
    "four warps": (
        {"batch": (1, 1), "queries": 70, "keys": 50, "depth": 40}, {"TILE_M": 64, "STAGES": 4},
    ),
    "eight warps": (
        {"batch": (1, 1), "depth": 16, "queries": 130, "keys": 40},
        {"TILE_M": 128, "TILE_N": 128},
    ),
    "one query": ({"queries": 1, "keys": 33, "depth": 8}, {"TILE_M": 16, "TILE_N": 16}),
    "two keys": ({"queries": 3, "keys": 2, "depth": 16}, {"TILE_M": 16}),
    "other width": ({"depth": 72, "width": 24}, {}),
    "odd chunks": ({"batch": (1,), "depth": 24, "width": 104}, {"TILE_M": 16}),
    "widest": ({"batch": (1,), "depth": 256, "queries": 20, "keys": 33}, {}),
    "three batch axes": ({"batch": (2, 1, 2), "depth": 16, "queries": 20, "keys": 24}, {}),
    "heads that share": ({"batch": (2, 4), "key_batch": (2, 2), "queries": 9, "keys": 40}, {}),
    "strides of BSHD": (
        {"batch": (2, 2), "queries": 20, "keys": 40, "depth": 16,
         "strides": {n: [2048, 16, 32, 1] for n in "qkv"}}, {},
    ),
    "transposed keys": (
        {"keys": 64, "transposed": False, "strides": {"k": [8192, 4096, 1, 64]}}, {},
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    shape, knobs = SHAPES[name]
    run(Pattern(**shape), knobs)


SCORES = {
    "causal": (graphs.causal, {"queries": 70, "keys": 70}),
    "later rows": (lambda p, s: graphs.causal(p, s, 30), {"queries": 40, "keys": 70}),
    "rows with nothing": (lambda p, s: graphs.causal(p, s, -40), {"queries": 70, "keys": 50}),
    "window": (graphs.window, {"queries": 100, "keys": 100}),
    "wide window": (lambda p, s: graphs.window(p, s, 70, 20), {"queries": 100, "keys": 140}),
    "prefix": (graphs.prefix, {"queries": 70, "keys": 70}),
    "bias": (graphs.biased, {"queries": 40, "keys": 50}),
    "bias of odd keys": (graphs.biased, {"queries": 20, "keys": 37}),
    "cap": (graphs.capped, {"queries": 50, "keys": 50}),
    "alibi": (graphs.alibi, {"queries": 33, "keys": 40}),
    "tensor scale": (graphs.by_tensor, {"queries": 20, "keys": 40}),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    scores, shape = SCORES[name]
    run(Pattern(batch=(1, 2), depth=16, scores=scores, **shape))


@pytest.mark.in_turn
@pytest.mark.sm90
def test_on_hopper():
    """Its own instructions are another engine's; this one's code is the same."""
    run(Pattern(queries=40, keys=70, scores=graphs.causal), {"SPLIT_KV": 2}, target="sm_90a")


# ---- heads that share keys in one tile

PACKED = {
    "decode": ({"batch": (2, 8), "key_batch": (2, 1), "queries": 1}, None, 1),
    "more than a tile": ({"batch": (1, 6), "key_batch": (1, 2), "queries": 9}, None, 1),
    "causal": (
        {"batch": (1, 4), "key_batch": (1, 2), "queries": 21},
        lambda p, s: graphs.causal(p, s, 30), 1,
    ),
    "causal from the start": (
        {"batch": (1, 4), "key_batch": (1, 1), "queries": 21, "keys": 21}, graphs.causal, 2,
    ),
    "alibi": ({"batch": (2, 4), "key_batch": (2, 2), "queries": 3}, graphs.alibi, 1),
    "bias": ({"batch": (2, 4), "key_batch": (2, 2), "queries": 3}, graphs.biased, 2),
    "an axis before the last": (
        {"batch": (2, 4, 3), "key_batch": (2, 2, 3), "queries": 3, "keys": 40}, None, 2,
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", PACKED)
def test_packed_heads(name):
    shape, scores, parts = PACKED[name]
    knobs = {"TILE_M": 16, "PACK_GQA": 1, "SPLIT_KV": parts}
    pattern = Pattern(**{"keys": 70, "depth": 16, "scores": scores} | shape)
    run(pattern, knobs)


def lengths_of_heads(p, s):
    """Columns before a length of each head: another for heads that share a tile."""
    lengths = p.g.tensor([*p.dims[:2], 1, 1], name="lengths", data_type="INT32")
    return p.masked(p.scaled(s), p.integer("cmp_lt", p.column(s), lengths))


@pytest.mark.in_turn
def test_masks_that_differ_in_a_tile():
    pattern = Pattern(
        batch=(1, 4), key_batch=(1, 2), queries=3, keys=70, depth=16, scores=lengths_of_heads
    )
    given = inputs_of(pattern, lengths=[70, 3, 0, 35])
    run(pattern, {"TILE_M": 16, "PACK_GQA": 1, "SPLIT_KV": 2}, inputs=given)


# ---- keys that blocks share


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("parts", [2, 8, 64])
def test_parts_of_keys(parts):
    """Five blocks of keys: more than parts, or fewer."""
    shape = {"batch": (1, 2), "queries": 20, "keys": 70, "depth": 16, "width": 72}
    knobs = {"TILE_N": 16, "SPLIT_KV": parts}
    run(Pattern(**shape, after=gated(72), statistics="both", scores=graphs.causal), knobs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("lengths", [(0, 1), (70, 33)])
def test_parts_of_lengths(lengths):
    """Parts are cut of a batch entry's own length, not of the longest."""
    pattern = Pattern(batch=(2, 1), queries=3, keys=100, depth=16, scores=graphs.padded)
    run(pattern, {"TILE_N": 16, "SPLIT_KV": 4}, inputs=inputs_of(pattern, lengths=lengths))


@pytest.mark.in_turn
def test_parts_are_added_in_one_order():
    pattern = Pattern(batch=(1, 4), key_batch=(1, 1), queries=3, keys=150, depth=16)
    graph = pattern.g.graph.finalize()
    knobs = SMALL | {"TILE_M": 16, "TILE_N": 16, "PACK_GQA": 1, "SPLIT_KV": 4}
    options = Options(engine="sdpa_sm80", knobs=tuple(knobs.items()))
    plan = compile_graph(graph, machine.current().target, options)
    given = random_inputs(graph, {})
    first, *others = (machine.current().run(plan, given, seed=seed) for seed in range(3))
    for other in others:
        for uid, array in first.items():
            assert array.tobytes() == other[uid].tobytes()


# ---- values


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("lengths", [(0, 1), (64, 100), (37, 65)])
def test_lengths(lengths):
    pattern = Pattern(batch=(2, 1), queries=30, keys=100, depth=16, scores=graphs.padded)
    run(pattern, inputs=inputs_of(pattern, lengths=lengths))


@pytest.mark.in_turn
def test_documents():
    pattern = Pattern(queries=40, keys=40, depth=16, scores=graphs.documents)
    numbers = np.sort(np.arange(40) % 3)
    run(pattern, inputs=inputs_of(pattern, own=numbers, other=numbers))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("parts", [1, 2])
def test_biases_of_minus_infinity(parts):
    pattern = Pattern(queries=20, keys=70, depth=16, scores=graphs.biased)
    bias = np.zeros((1, 2, 20, 70), np.float32)
    bias[:, :, :7] = -np.inf
    bias[:, 1, :, 36:] = -np.inf
    graph = pattern.g.graph.finalize()
    given = inputs_of(pattern)
    (tensor,) = [t for t in graph.inputs if t.name == "bias"]
    given[tensor.uid] = bias.astype(tensor.type.numpy)
    run(pattern, {"SPLIT_KV": parts}, inputs=given)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("low", [-1e9, -1e10, -1e12, -1e20, np.finfo(np.float32).min])
@pytest.mark.parametrize("parts", [1, 2])
def test_masks_of_large_numbers(low, parts):
    """Exponentials of differences of such numbers: 1 where they are equal, else 0 or infinity."""
    pattern = Pattern(queries=20, keys=70, depth=16, scores=graphs.far)
    given = inputs_of(pattern, mask=graphs.far_mask(20, 70, low))
    run(pattern, {"SPLIT_KV": parts}, inputs=given)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("scores", [graphs.far_select, graphs.far_sum])
def test_a_large_number_in_place_of_scores(scores):
    run(Pattern(queries=20, keys=70, depth=16, scores=scores))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("magnitude", [1e4, -1e4])
def test_large_logits(magnitude):
    pattern = Pattern(queries=20, keys=70, depth=16, scores=graphs.by_tensor)
    run(pattern, {"SPLIT_KV": 2}, inputs=inputs_of(pattern, scale=[magnitude]))


@pytest.mark.rotating
@pytest.mark.parametrize("share", ["mul", "div", "after"])
@pytest.mark.parametrize("parts", [1, 2])
def test_where_weights_are_divided(share, parts):
    """Without statistics, with which sums of rows are worked out before."""
    pattern = Pattern(queries=20, keys=40, depth=16, share=share, statistics=None)
    run(pattern, {"SPLIT_KV": parts})


@pytest.mark.in_turn
def test_maxima_and_sums():
    run(Pattern(queries=20, keys=70, depth=16, statistics="both"))


@pytest.mark.in_turn
def test_weights_of_float_are_rounded_as_values_are():
    run(Pattern(queries=20, keys=40, depth=16, weight_type="FLOAT"))


def dropped(p, weights):
    mask = p.g.tensor(list(p.dims), name="mask")
    return p.g.mul(p.g.mul(weights, mask), 1.25)


def gated(width):
    def after(p, o):
        return p.g.mul(o, p.g.sigmoid(p.g.tensor([*p.dims[:-1], width], name="gate")))

    return after


ONE_KEY = {
    "plain": {},
    "causal": {"scores": graphs.causal},
    "statistics": {"statistics": "both"},
    "shared": {"batch": (2, 4), "key_batch": (2, 2), "share": "after"},
}


@pytest.mark.rotating
@pytest.mark.parametrize("name", ONE_KEY)
def test_one_key_always(name):
    """Its rows are reduced along an axis of one."""
    pattern = Pattern(queries=20, keys=1, depth=16, **ONE_KEY[name])
    assert len(run(pattern).programs[0].kernels) == 1


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("parts", [1, 2])
def test_work_on_weights_and_result(parts):
    pattern = Pattern(queries=20, keys=40, depth=16, weights=dropped, after=gated(16))
    run(pattern, {"SPLIT_KV": parts})


@pytest.mark.in_turn
def test_a_result_of_float():
    run(Pattern(queries=20, keys=40, out_type="FLOAT"), allowance=2.0**-8)  # of the weights


@pytest.mark.in_turn
def test_rows_that_are_not_guarded_are_as_the_graph_says():
    """All of a row's scores -inf: the exponentials of their differences are NaN."""
    run(
        Pattern(
            queries=10, keys=40, depth=16, scores=lambda p, s: graphs.causal(p, s, -5),
            is_guarded=False, share="div",
        )
    )  # fmt: skip


@pytest.mark.in_turn
def test_sizes_that_are_symbols():
    b, queries, keys = (dnnc.Dim(n, max=4096) for n in ("B", "Sq", "Skv"))
    pattern = Pattern(
        batch=(b, 4), key_batch=(b, 2), queries=queries, keys=keys, depth=16, scores=graphs.causal
    )
    knobs = tuple((SMALL | {"TILE_M": 16, "PACK_GQA": 1, "SPLIT_KV": 2}).items())
    plan = compile_graph(
        pattern.g.graph.finalize(),
        machine.current().target,
        Options(engine="sdpa_sm80", knobs=knobs),
    )
    for sizes in ({"B": 1, "Sq": 1, "Skv": 1}, {"B": 2, "Sq": 19, "Skv": 45}):
        check(pattern.g, sizes, plan=plan, slack=4.0, allowance=1e-5)


# ---- caches in pages

PAGES = {
    "whole": ((64, 96), {"block": 32, "pages": 3}, {}),
    "small blocks": ((3, 49), {"block": 4, "pages": 13}, {"TILE_M": 16}),
    "larger than steps": ((0, 100), {"block": 64, "pages": 2}, {"SPLIT_KV": 2}),
    "decode": (
        (33, 70), {"block": 16, "pages": 5, "queries": 1, "heads": 8},
        {"TILE_M": 16, "PACK_GQA": 1, "SPLIT_KV": 2, "STAGES": 3},
    ),
    "odd heads": ((7, 40), {"block": 8, "pages": 5, "depth": 40, "queries": 9}, {"TILE_M": 16}),
    "one block for all": ((5, 27), {"block": 32, "pages": 1, "spare": -1}, {"TILE_M": 16}),
    "one key a block": ((1, 0), {"block": 1, "pages": 1, "spare": -1}, {"TILE_M": 16}),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", PAGES)
def test_caches_in_pages(name):
    """Table entries past the lengths, and blocks that nobody has, are no numbers."""
    lengths, shape, knobs = PAGES[name]
    shape = {"depth": 16, "queries": 20} | shape
    g, blocks = graphs.paged(**shape, use_causal_mask_bottom_right=name != "whole")
    queries = (shape["queries"], (shape["queries"] + 1) // 2)
    given = graphs.paged_inputs(g, blocks, lengths, shape["block"], queries)
    plan = check(
        g, engine="sdpa_sm80", knobs=SMALL | knobs, slack=4.0, allowance=1e-5, inputs=given
    )
    assert all(k.spill_store_bytes == 0 for p in plan.programs for k in p.kernels)


# ---- packed sequences

SEQUENCES = {
    "causal": ((20, 40, 3), (20, 40, 3), {"use_causal_mask": True}, {}),
    "none": ((0, 37, 5, 50), (9, 70, 0, 33), {}, {"SPLIT_KV": 2}),
    "from the end": ((17, 33), (70, 34), {"use_causal_mask_bottom_right": True}, {"PACK_GQA": 1}),
    "decode": (
        (1, 1, 1), (70, 0, 33), {"key_heads": 1, "use_causal_mask_bottom_right": True},
        {"TILE_M": 16, "PACK_GQA": 1, "SPLIT_KV": 2, "STAGES": 3},
    ),
    "cumulative": ((20, 40, 3), (20, 40, 3), {"cumulative": True}, {"PACK_GQA": 1}),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", SEQUENCES)
def test_packed_sequences(name):
    lengths, key_lengths, options, knobs = SEQUENCES[name]
    g, values = graphs.packed(lengths, key_lengths, depth=16, **options)
    graph = g.graph.finalize()
    given = random_inputs(graph, {})
    for tensor in graph.inputs:
        if tensor.name in values:
            given[tensor.uid] = np.reshape(values[tensor.name], given[tensor.uid].shape)
    plan = check(
        g, engine="sdpa_sm80", knobs=SMALL | knobs, slack=4.0, allowance=1e-5, inputs=given
    )
    assert all(k.spill_store_bytes == 0 for p in plan.programs for k in p.kernels)


# ---- choosing


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120"])
def test_the_whole_is_one_fusion_of_the_engine(target):
    found = heuristics.best_config(Pattern().g.graph.finalize(), of(target), ["A", "FALLBACK"])
    assert [choice.engine.name for choice in found.choices] == ["sdpa_sm80"]


def best(pattern, target="sm_90a"):
    engines = [SDPA_FWD_SM90, SDPA_SM80]
    return heuristics.choices(fusion_of(pattern), of(target), engines)[0]


DECODE = {"depth": 128, "queries": 1}


@pytest.mark.parametrize(
    ("batch", "keys", "parts"),
    [
        (1, 1 << 17, (16, 32, 64)),
        (1, 1 << 10, (4, 8, 16, 32)),
        (8, 1 << 14, (2, 4, 8)),
        (64, 1 << 13, (1, 2)),
    ],
)
def test_decode_on_hopper_reads_keys_once_in_parts(batch, keys, parts):
    """A tile has the 8 heads that share keys: of 16 rows by `mma.sync`, of 64 by `wgmma`."""
    pattern = Pattern(batch=(batch, 64), key_batch=(batch, 8), keys=keys, **DECODE)
    choice = best(pattern)
    rows = {SDPA_SM80: 16, SDPA_FWD_SM90: 64}[choice.engine]
    assert (choice.knobs["TILE_M"], choice.knobs["PACK_GQA"]) == (rows, 1)
    assert choice.knobs["SPLIT_KV"] in parts


@pytest.mark.parametrize(("queries", "rows"), [(2, 64), (4, 64), (8, 64), (16, 128)])
def test_a_few_queries_of_heads_that_share_keys_are_one_tile(queries, rows):
    """Each key is read once: a second tile of the same keys costs a third as much again."""
    shape = {**DECODE, "queries": queries}
    choice = best(Pattern(batch=(8, 64), key_batch=(8, 8), keys=8192, **shape))
    assert choice.engine is SDPA_FWD_SM90
    assert (choice.knobs["TILE_M"], choice.knobs["PACK_GQA"]) == (rows, 1)


@pytest.mark.parametrize("depth", [64, 128])
def test_many_queries_on_hopper_are_of_the_other(depth):
    for batch, queries in (((16, 16), 1024), ((1, 16), 16384), ((1, 8), 512)):
        pattern = Pattern(batch=batch, queries=queries, keys=queries, depth=depth)
        assert best(pattern).engine is SDPA_FWD_SM90


REFUSED = {
    "operand types": lambda: Pattern(dtype="FLOAT"),
    "head size": lambda: Pattern(depth=60),
    "K by cp.async": lambda: Pattern(transposed=False),
    "V by cp.async": lambda: Pattern(depth=16, strides={"v": [8192, 4096, 20, 1]}),
    "operations": lambda: Pattern(weights=lambda p, w: p.g.exp(w)),
}


@pytest.mark.parametrize("clause", REFUSED)
def test_refusals(clause):
    reasons = SDPA_SM80.supports(fusion_of(REFUSED[clause]()), of("sm_80"))
    assert clause in [reason.clause for reason in reasons]


ILLEGAL = {
    "PACK_GQA=0": ({"PACK_GQA": 1}, {}, "sm_80"),
    "at most 176": ({"TILE_N": 128}, {"depth": 256}, "sm_90"),
    "shared memory": ({"TILE_N": 64, "STAGES": 4}, {"depth": 256}, "sm_86"),
}


@pytest.mark.parametrize("said", ILLEGAL)
def test_knobs_that_can_not_be(said):
    knobs, shape, target = ILLEGAL[said]
    reasons = SDPA_SM80.legal(SMALL | knobs, fusion_of(Pattern(**shape)), of(target))
    assert any(said in str(reason) for reason in reasons)
    assert not SDPA_SM80.legal(SMALL, fusion_of(Pattern(**shape)), of(target))


# ---- assembled: see also test_assembly.py

LARGE = {
    "full": Pattern(batch=(4, 16), queries=1024, keys=1024, depth=128),
    "causal": Pattern(batch=(4, 16), queries=1024, keys=1024, depth=64, scores=graphs.causal),
    "wide": Pattern(batch=(4, 16), queries=512, keys=512, depth=256, scores=graphs.causal),
    "decode": Pattern(
        batch=(8, 64), key_batch=(8, 8), queries=1, keys=8192, depth=128, scores=graphs.padded
    ),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", LARGE)
def test_best_choices_spill_nothing(name):
    choice = heuristics.choices(fusion_of(LARGE[name]), of("sm_90"), [SDPA_SM80])[0]
    options = Options(engine="sdpa_sm80", knobs=tuple(choice.knobs.items()))
    plan = compile_graph(LARGE[name].g.graph.finalize(), "sm_90", options)
    for kernel in plan.programs[0].kernels:
        assert kernel.spill_store_bytes == kernel.spill_load_bytes == 0
        assert kernel.registers * kernel.threads <= 65536


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("in_memory", [False, True], ids=["constant", "tensor"])
@pytest.mark.parametrize("scale", [1e9, -1e10])
@pytest.mark.parametrize(
    ("engine", "target"),
    [("sdpa_sm80", "sm_80"), pytest.param("sdpa_fwd_sm90", "sm_90a", marks=pytest.mark.sm90)],
)
def test_scales_that_leave_one_key_a_row(engine, target, scale, in_memory):
    """Scores of up to 1e11: weights of 1 for the largest of a row, 0 for the others."""
    g = dnnc.pygraph(io_data_type="bf16", intermediate_data_type="f32", target=target)
    q, k, v = (g.tensor([1, 1, 20, 16]) for _ in "qkv")
    factor = g.tensor([1, 1, 1, 1], data_type="f32") if in_memory else scale
    g.sdpa(q, k, v, attn_scale=factor, generate_stats=False)[0].set_output()
    inputs = random_inputs(g.graph.finalize(), {}, 3)
    if in_memory:
        inputs[factor.get_uid()][...] = scale
    check(g, engine=engine, target=target, inputs=inputs)


def test_fp8_asks_for_an_architecture_that_converts_it():
    g = dnnc.pygraph(io_data_type="f16", intermediate_data_type="f32", target="sm_80")
    o, _ = g.sdpa(*(g.tensor([1, 2, 16, 16]) for _ in "qkv"), generate_stats=False)
    o.set_output().set_data_type("FP8_E4M3")
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    assert [reason.clause for reason in SDPA_SM80.supports(fusion, of("sm_80"))] == ["fp8"]
    assert not SDPA_SM80.supports(fusion, of("sm_89"))
