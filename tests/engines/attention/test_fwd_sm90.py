"""Engine sdpa_fwd_sm90: attention written in single operations, in the interpreter."""

import numpy as np
import pytest

from dnnc import compiler, dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect import dnn, structure
from dnnc.dialect.fusion import partition
from dnnc.engines.attention.fwd_sm90 import SDPA_FWD_SM90
from dnnc.engines.plain_data import record_of
from dnnc.options import Options
from dnnc.target import of
from tests import attention_graphs as graphs
from tests.attention_graphs import Pattern
from tests.support import machine
from tests.support.checked import check, random_inputs

TARGET = "sm_90a"
SMALL = {"TILE_M": 128, "TILE_N": 64, "STAGES": 2, "KERNEL_CFG": 3, "SCHED_POLICY": 1}
pytestmark = [pytest.mark.sm90, pytest.mark.registers]


def run(pattern, knobs=None, inputs=None, allowance=1e-5):
    plan = check(
        pattern.g, engine="sdpa_fwd_sm90", knobs=SMALL | (knobs or {}), target=TARGET, slack=4.0,
        allowance=allowance, inputs=inputs,
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
    "one tile": ({"queries": 128, "keys": 128}, {}),
    "odd": ({"queries": 65, "keys": 131, "dtype": "HALF"}, {"TILE_N": 128}),
    "three warpgroups": ({"queries": 200, "keys": 130}, {"TILE_M": 192, "KERNEL_CFG": 0}),
    "one warpgroup": ({"queries": 70, "keys": 100, "depth": 40}, {"TILE_M": 64, "STAGES": 3}),
    "one query": ({"queries": 1, "keys": 33, "depth": 8}, {}),
    "two keys": ({"queries": 9, "keys": 2, "depth": 16}, {}),
    "other width": ({"depth": 72, "width": 24}, {}),
    "wider values": ({"depth": 64, "width": 136}, {}),
    "widest": ({"batch": (1,), "depth": 256, "queries": 70, "keys": 70}, {"KERNEL_CFG": 1}),
    "48 keys a step": ({"depth": 136, "queries": 130, "keys": 100}, {"TILE_N": 48}),
    "32 keys a step": (
        {"depth": 192, "queries": 70, "keys": 75, "dtype": "HALF"},
        {"TILE_M": 64, "TILE_N": 32, "KERNEL_CFG": 1, "STAGES": 3},
    ),
    "static tiles": ({"batch": (2, 2), "queries": 130, "keys": 64}, {"SCHED_POLICY": 0}),
    "heads that share": ({"batch": (2, 1), "queries": 20, "keys": 40}, {}),
    "transposed keys": (
        {"keys": 64, "transposed": False, "strides": {"k": [8192, 4096, 1, 64]}},
        {},
    ),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    shape, knobs = SHAPES[name]
    run(Pattern(**shape), knobs)


SCORES = {
    "causal": (graphs.causal, {"queries": 150, "keys": 150}),
    "later rows": (lambda p, s: graphs.causal(p, s, 30), {"queries": 70, "keys": 130}),
    "rows with nothing": (lambda p, s: graphs.causal(p, s, -70), {"queries": 140, "keys": 100}),
    "window": (graphs.window, {"queries": 200, "keys": 200}),
    "wide window": (lambda p, s: graphs.window(p, s, 90, 30), {"queries": 200, "keys": 260}),
    "prefix": (graphs.prefix, {"queries": 130, "keys": 130}),
    "bias": (graphs.biased, {"queries": 70, "keys": 90}),
    "bias of odd keys": (graphs.biased, {"queries": 20, "keys": 71}),
    "cap": (graphs.capped, {"queries": 100, "keys": 100}),
    "alibi": (graphs.alibi, {"queries": 66, "keys": 80}),
    "tensor scale": (graphs.by_tensor, {"queries": 40, "keys": 70}),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    scores, shape = SCORES[name]
    run(Pattern(scores=scores, **shape))


@pytest.mark.in_turn
def test_blocks_go_by_where_there_is_one_stage():
    """The first warpgroup of a tile needs fewer blocks of keys than the second."""
    pattern = Pattern(batch=(1,), queries=130, keys=130, depth=8, scores=graphs.causal)
    run(pattern, {"STAGES": 1})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("lengths", [(0, 1), (64, 100), (37, 65)])
def test_lengths(lengths):
    pattern = Pattern(batch=(2, 1), queries=30, keys=100, scores=graphs.padded)
    run(pattern, inputs=inputs_of(pattern, lengths=lengths))


def far_up_to(p, s):
    length = p.g.tensor([1, 1, 1, 1], name="length", data_type="INT32")
    return p.integer("cmp_le", p.column(s), p.integer("add", p.row(s), length))


def far_moved(p, s):
    length = p.g.tensor([1, 1, 1, 1], name="length", data_type="INT32")
    return p.integer("cmp_le", p.integer("add", p.column(s), length), p.row(s))


def far_scaled(p, s):
    return p.integer("cmp_le", p.column(s), p.integer("mul", p.row(s), 25264513))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("mask", [far_up_to, far_moved, far_scaled])
@pytest.mark.parametrize("engine", ["sdpa_fwd_sm90", "sdpa_sm80"])
def test_places_that_wrap_around(mask, engine):
    """Offsets of 2^31 - 100 and a row from 100 on, as of any sums of INT32."""
    pattern = Pattern(
        batch=(1, 2), queries=200, keys=200, depth=16,
        scores=lambda p, s: p.masked(p.scaled(s), mask(p, s)),
    )  # fmt: skip
    given = inputs_of(pattern, length=2**31 - 100)
    sm80 = {"TILE_M": 16, "TILE_N": 16, "STAGES": 2, "PACK_GQA": 0, "SPLIT_KV": 1}
    check(
        pattern.g, engine=engine, knobs=sm80 if engine == "sdpa_sm80" else SMALL | {"TILE_M": 64},
        target="sm_80" if engine == "sdpa_sm80" else TARGET, slack=4.0, allowance=1e-4,
        inputs=given,
    )  # fmt: skip


@pytest.mark.in_turn
def test_documents():
    pattern = Pattern(queries=80, keys=80, scores=graphs.documents)
    numbers = np.sort(np.arange(80) % 3)
    run(pattern, inputs=inputs_of(pattern, own=numbers, other=numbers))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("config", [0, 3])
@pytest.mark.parametrize("low", [-1e9, -1e10, -1e12, np.finfo(np.float32).min])
def test_masks_of_large_numbers(low, config):
    """Exponentials of differences of such numbers: 1 where they are equal, else 0 or infinity."""
    pattern = Pattern(queries=70, keys=140, depth=16, scores=graphs.far)
    given = inputs_of(pattern, mask=graphs.far_mask(70, 140, low))
    run(pattern, {"KERNEL_CFG": config}, inputs=given)


def by_distance(p, s):
    """s + min(slope * (column - row), 0)."""
    slopes = p.g.tensor([1, p.dims[1], 1, 1], name="slopes", data_type=dtypes.f32)
    distance = p.integer("sub", p.column(s), p.row(s))
    return p.g.add(p.scaled(s), p.g.min(p.g.mul(slopes, distance), 0.0))


def by_moved_places(p, s):
    """s + (column + 2**24 + 1 - offset) / 2, of an offset in memory."""
    offset = p.g.tensor([1, p.dims[1], 1, 1], name="offset", data_type=dtypes.i32)
    moved = p.integer("add", p.column(s), 2**24 + 1)
    return p.g.add(p.scaled(s), p.g.mul(p.integer("sub", moved, offset), 0.5))


@pytest.mark.in_turn
def test_places_that_cancel():
    """Steep slopes along the diagonal, where the product is 0; constants that an offset undoes."""
    pattern = Pattern(queries=70, keys=80, scores=by_distance)
    run(pattern, inputs=inputs_of(pattern, slopes=np.array([-333333.3, -1234.567])))
    pattern = Pattern(queries=70, keys=80, scores=by_moved_places)
    run(pattern, inputs=inputs_of(pattern, offset=np.array([2**24, 2**24 + 1])))


@pytest.mark.in_turn
def test_steep_slopes():
    """Blocks of keys, ahead of the row's own, in which all scores are far from 0."""
    pattern = Pattern(queries=40, keys=140, depth=16, scores=by_distance)
    run(pattern, inputs=inputs_of(pattern, slopes=np.array([-1e9, 1e9])))


@pytest.mark.in_turn
def test_a_large_cap():
    """The error of tanh is multiplied by it."""

    def capped(p, s):
        return p.g.mul(p.g.tanh(p.g.mul(s, 0.125 / 1000.0)), 1000.0)

    run(Pattern(queries=70, keys=80, scores=capped, dtype="HALF"))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("cap", [0.25, 1.0, 4.0])
def test_caps_that_scores_are_near_and_far_from(cap):
    """In some warps all scores are below 0.44 of it, of others some."""

    def capped(p, s):
        return p.g.mul(p.g.tanh(p.g.mul(s, 0.125 / cap)), cap)

    run(Pattern(queries=70, keys=140, scores=capped))


@pytest.mark.in_turn
def test_a_factor_of_each_row_before_the_cap():
    """Rows of a thread, of which one has scores near 0 and one far from it."""

    def capped(p, s):
        factor = p.g.tensor([1, 1, p.dims[-2], 1], name="factor", data_type="FLOAT")
        return p.g.mul(p.g.tanh(p.g.mul(s, factor)), 4.0)

    pattern = Pattern(queries=64, keys=64, scores=capped)
    factors = np.where(np.arange(64) % 16 < 8, 0.008, 0.2).astype(np.float32)
    run(pattern, inputs=inputs_of(pattern, factor=factors.reshape(1, 1, 64, 1)))


def capped_and_biased(p, s):
    capped = p.g.mul(p.g.tanh(p.g.mul(s, 0.125 / 5.0)), 5.0)
    return p.g.add(capped, p.g.tensor(list(p.dims), name="bias", data_type="FLOAT"))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_scores_of_a_cap_that_are_no_numbers(number):
    """Rows with one are NaN, though NaN moves no row's reference."""
    pattern = Pattern(queries=40, keys=80, depth=16, scores=capped_and_biased)
    bias = np.zeros(pattern.dims, np.float32)
    for head, column in ((0, 0), (1, 64)):
        for row in (1, 9, 17, 26):
            bias[0, head, row, column] = bias[0, head, row + 1, column + 1] = number
    run(pattern, inputs=inputs_of(pattern, bias=bias))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("scores", [graphs.far_select, graphs.far_sum])
def test_a_large_number_in_place_of_scores(scores):
    run(Pattern(queries=70, keys=140, depth=16, scores=scores))


@pytest.mark.in_turn
def test_biases_of_minus_infinity():
    pattern = Pattern(queries=40, keys=70, scores=graphs.biased)
    bias = np.zeros((1, 2, 40, 70), np.float32)
    bias[:, :, :7] = -np.inf
    bias[:, 1, :, 64:] = -np.inf
    graph = pattern.g.graph.finalize()
    given = inputs_of(pattern)
    (tensor,) = [t for t in graph.inputs if t.name == "bias"]
    given[tensor.uid] = bias.astype(tensor.type.numpy)
    run(pattern, inputs=given)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("magnitude", [1e4, -1e4])
def test_large_logits(magnitude):
    pattern = Pattern(queries=30, keys=90, scores=graphs.by_tensor)
    run(pattern, inputs=inputs_of(pattern, scale=[magnitude]))


@pytest.mark.in_turn
def test_sums_that_grow_are_rescaled():
    """Keys whose logits rise from the last block to the first, by more than 2^8 each."""
    pattern = Pattern(queries=20, keys=260, depth=64)
    graph = pattern.g.graph.finalize()
    given = random_inputs(graph, {})
    for tensor in graph.inputs:
        if tensor.name == "k":
            steps = 260 - np.arange(260)
            given[tensor.uid] = (given[tensor.uid] * steps[:, None] / 8).astype(tensor.type.numpy)
    for config in (0, 1):
        run(pattern, {"KERNEL_CFG": config}, inputs=given)


@pytest.mark.in_turn
@pytest.mark.parametrize("levels", [(3.0, -2.0, 1.0, -0.5, -4.0), (3.0, 2.0, 1.0, 0.5, 4.0)])
def test_signs_of_references(levels):
    """Scores are compared as integers where no row of a warp has a negative reference: of some rows
    they are negative in the blocks that come first, or, in the second case, in all."""
    pattern = Pattern(queries=130, keys=320, depth=16, dtype="HALF", statistics="both")
    graph = pattern.g.graph.finalize()
    given = random_inputs(graph, {})
    rows = np.arange(130)
    signs = np.where((rows < 16) | (rows % 5 == 0) & (rows >= 64), -4.0, 4.0)  # a warp, and some
    factors = {"q": signs, "k": np.repeat(levels, 64)}
    for tensor in graph.inputs:
        if tensor.name in factors:
            size = np.abs(given[tensor.uid].astype(np.float32)) + 0.2
            signed = size * factors[tensor.name][:, None]
            given[tensor.uid] = signed.astype(tensor.type.numpy)
    for config in (0, 1):
        run(pattern, {"KERNEL_CFG": config}, inputs=given)


@pytest.mark.in_turn
def test_rows_with_nothing_hide_no_growth_of_others():
    """Rows 18 and 26 are of one thread; the second's growth is no number."""

    def first_rows(p, s):
        return p.masked(s, p.integer("cmp_lt", p.row(s), 20))

    pattern = Pattern(queries=60, keys=192, dtype="HALF", scores=first_rows)
    given = random_inputs(pattern.g.graph.finalize(), {})
    run(pattern, {"KERNEL_CFG": 1}, inputs=given)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("share", ["mul", "div", "after"])
def test_where_weights_are_divided(share):
    run(Pattern(queries=40, keys=70, share=share))


@pytest.mark.in_turn
def test_a_result_is_divided_where_no_statistic_is_an_output():
    run(Pattern(queries=40, keys=70, share="after", statistics="none"))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("config", [0, 1])
def test_maxima_and_sums(config):
    run(Pattern(queries=40, keys=140, statistics="both"), {"KERNEL_CFG": config})


@pytest.mark.in_turn
def test_weights_of_float_are_rounded_as_values_are():
    run(Pattern(queries=40, keys=70, weight_type="FLOAT"))


def dropped(p, weights):
    mask = p.g.tensor(list(p.dims), name="mask")
    return p.g.mul(p.g.mul(weights, mask), 1.25)


def gated(p, o):
    gate = p.g.tensor([*p.dims[:-1], 64], name="gate")
    return p.g.mul(o, p.g.sigmoid(gate))


def near(p, s, most=40):
    """Places at most so far apart, as FLOAT computes them."""
    row, column = (p.g.gen_index(s, axis=len(p.dims) + axis) for axis in (-2, -1))
    return p.masked(p.scaled(s), p.flag(p.g.cmp_le(p.g.abs(p.g.sub(row, column)), float(most))))


@pytest.mark.in_turn
def test_blocks_beyond_a_distance_are_not_read():
    """Keys and values from 128 on are no numbers."""
    pattern = Pattern(queries=64, keys=320, scores=near)
    inputs = inputs_of(pattern)
    plan = run(pattern, inputs=inputs)
    for tensor in pattern.g.graph.finalize().inputs:
        sizes = [n.constant for n in tensor.shape]
        if 320 in sizes:
            np.moveaxis(inputs[tensor.uid], sizes.index(320), 0)[128:] = np.nan
    found = machine.current().run(plan, inputs, sizes={})
    assert not any(np.isnan(values.astype(np.float32)).any() for values in found.values())


@pytest.mark.in_turn
def test_work_on_weights_and_result():
    run(Pattern(queries=40, keys=70, weights=dropped, after=gated))


@pytest.mark.in_turn
def test_a_result_of_float_is_stored_from_registers():
    run(Pattern(queries=40, keys=70, out_type="FLOAT"), allowance=2.0**-8)  # of the weights


@pytest.mark.in_turn
def test_rows_that_are_not_guarded_are_as_the_graph_says():
    """All of a row's scores -inf: the exponentials of their differences are NaN."""
    pattern = Pattern(
        queries=10, keys=70, scores=lambda p, s: graphs.causal(p, s, -5), is_guarded=False,
        share="div",
    )  # fmt: skip
    run(pattern)


PAGES = {
    "whole": ((100, 224), {"block": 32, "pages": 7}, {}),
    "small blocks": ((3, 99), {"block": 16, "pages": 7}, {}),
    "128 elements": ((65, 200), {"block": 64, "depth": 128, "dtype": "BFLOAT16"}, {"TILE_N": 128}),
    "larger than steps": ((0, 300), {"block": 128, "pages": 3}, {}),
    "one group of eight": ((50, 56), {"block": 8, "pages": 7, "depth": 40}, {"TILE_M": 64}),
    "one block for all": ((5, 27), {"block": 32, "pages": 1, "spare": -1}, {"TILE_M": 64}),
    "three warpgroups": (
        (100, 150),
        {"block": 32, "pages": 5, "queries": 250},
        {"TILE_M": 192, "TILE_N": 96, "KERNEL_CFG": 0},
    ),
    "one large block": ((77,), {"batch": 1, "block": 128, "pages": 1, "spare": 0}, {}),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", PAGES)
def test_caches_in_pages(name):
    """Table entries past the lengths, and blocks that nobody has, are no numbers."""
    lengths, shape, knobs = PAGES[name]
    g, blocks = graphs.paged(**shape, use_causal_mask_bottom_right=name != "whole")
    queries = (shape.get("queries", 40), 13)[: len(lengths)]
    given = graphs.paged_inputs(g, blocks, lengths, shape["block"], queries)
    plan = check(
        g, engine="sdpa_fwd_sm90", knobs=SMALL | knobs, target=TARGET, slack=4.0, allowance=1e-5,
        inputs=given,
    )  # fmt: skip
    assert all(k.spill_store_bytes == 0 for p in plan.programs for k in p.kernels)


def test_steps_are_whole_pages_or_parts_of_one():
    """Heads of 192 would take steps of 80 keys."""
    for block in (32, 64, 128):
        g, _ = graphs.paged(depth=192, block=block, queries=512, pages=2048 // block)
        graph = g.graph.finalize()
        (fusion,) = partition(graph, [graph.live_ops])
        found = heuristics.choices(fusion, of(TARGET), [SDPA_FWD_SM90])
        assert found
        assert all(c.knobs["TILE_N"] % block == 0 or block % c.knobs["TILE_N"] == 0 for c in found)
        (reason,) = SDPA_FWD_SM90.legal(SMALL | {"TILE_N": 80}, fusion, of(TARGET))
        assert f"TILE_N=80 of pages of {block} keys" in str(reason)


SEQUENCES = {
    "causal": ((40, 100, 3), (40, 100, 3), {"use_causal_mask": True}, {}),
    "none": ((0, 70, 5, 130), (9, 200, 0, 64), {}, {"TILE_N": 128}),
    "few keys a step": (
        (40, 100, 3), (70, 90, 33), {},
        {"TILE_M": 64, "TILE_N": 48, "KERNEL_CFG": 1, "SCHED_POLICY": 0},
    ),
    "from the end": (
        (33, 64), (150, 65), {"use_causal_mask_bottom_right": True},
        {"TILE_M": 64, "KERNEL_CFG": 1, "SCHED_POLICY": 0},
    ),
    "cumulative": ((40, 100, 3), (40, 100, 3), {"cumulative": True}, {}),
    "aligned": (
        (40, 190, 3, 129), (40, 190, 3, 129), {"use_causal_mask": True, "depth": 128},
        {"TILE_N": 128},
    ),
    "a warpgroup without rows": (
        (30, 140, 9, 64), (150, 200, 129, 300), {"depth": 128, "heads": 2}, {"TILE_N": 64},
    ),
    "three warpgroups": (
        (40, 250, 3), (40, 250, 3), {"use_causal_mask": True},
        {"TILE_M": 192, "TILE_N": 112, "KERNEL_CFG": 0},
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", SEQUENCES)
def test_packed_sequences(name):
    run_packed(*SEQUENCES[name])


def run_packed(lengths, key_lengths, options, knobs):
    g, values = graphs.packed(lengths, key_lengths, **options)
    graph = g.graph.finalize()
    given = random_inputs(graph, {})
    for tensor in graph.inputs:
        if tensor.name in values:
            given[tensor.uid] = np.reshape(values[tensor.name], given[tensor.uid].shape)
    plan = check(
        g, engine="sdpa_fwd_sm90", knobs=SMALL | knobs, target=TARGET, slack=4.0, allowance=1e-5,
        inputs=given,
    )  # fmt: skip
    assert all(k.spill_store_bytes == 0 for p in plan.programs for k in p.kernels)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("dtype", "allowance"), [("HALF", 1e-5), ("FP8_E4M3", 0.05)])
@pytest.mark.parametrize(("queries", "config"), [(64, 2), (192, 0)])
def test_rows_past_packed_queries_that_no_mask_hides(queries, config, dtype, allowance):
    """Their statistics, and the largest of all, are as the graph says."""
    g, given = graphs.seen_rows_past_packed(dtype=dtype)
    knobs = SMALL | {"TILE_M": queries, "KERNEL_CFG": config}
    check(
        g, engine="sdpa_fwd_sm90", knobs=knobs, target=TARGET, slack=4.0, allowance=allowance,
        inputs=given,
    )  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("lengths", [(40, 5), (40,)])
@pytest.mark.parametrize("cumulative", [False, True])
def test_tiles_of_packed_queries_are_those_of_sequences(lengths, cumulative):
    """Where a mask hides the rest, though statistics have it."""
    g, _ = graphs.packed(lengths, lengths, cumulative=cumulative)
    with dnn.context():
        work = compiler.start(g.graph.finalize(), of(TARGET))
        compiler.advance(work, "linalg", Options(engine="sdpa_fwd_sm90"))
        (function,) = structure.fusion_functions(work.module)
        tiling = record_of(SDPA_FWD_SM90.tiling, structure.tile_of(function))
    assert tiling.entries == len(lengths)


def test_the_whole_is_one_fusion_of_the_engine():
    found = heuristics.best_config(Pattern().g.graph.finalize(), of(TARGET), ["A", "FALLBACK"])
    assert [choice.engine.name for choice in found.choices] == ["sdpa_fwd_sm90"]


REFUSED = {
    "architecture": (Pattern, "sm_80"),
    "operand types": (lambda: Pattern(dtype="FLOAT"), TARGET),
    "head size": (lambda: Pattern(depth=60), TARGET),
    "K by TMA": (lambda: Pattern(transposed=False), TARGET),
    "operations": (lambda: Pattern(weights=lambda p, w: p.g.exp(w)), TARGET),
}


@pytest.mark.parametrize("clause", REFUSED)
def test_refusals(clause):
    make, target = REFUSED[clause]
    reasons = SDPA_FWD_SM90.supports(fusion_of(make()), of(target))
    assert clause in [reason.clause for reason in reasons]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("depth", [64, 128, 256])
@pytest.mark.parametrize("scores", [None, graphs.causal])
def test_best_choices_spill_nothing(depth, scores):
    pattern = Pattern(batch=(4, 16), queries=1024, keys=1024, depth=depth, scores=scores)
    best = heuristics.choices(fusion_of(pattern), of(TARGET), [SDPA_FWD_SM90])[0]
    options = Options(engine="sdpa_fwd_sm90", knobs=tuple(best.knobs.items()))
    plan = compile_graph(pattern.g.graph.finalize(), "sm_90a", options)
    (kernel,) = plan.programs[0].kernels
    assert kernel.spill_store_bytes == kernel.spill_load_bytes == 0
    assert kernel.registers <= 168
