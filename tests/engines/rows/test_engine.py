"""Engine rows in the interpreter: orders of axes, threads, clusters, rings, sums of columns."""

import re

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines.rows import streamed, tiling
from dnnc.engines.rows.engine import ROWS, split_reductions
from dnnc.options import Options
from dnnc.target import of
from tests.support import machine, multiprocessors
from tests.support.checked import check, random_inputs

ACROSS = pytest.mark.exchange  # of totals between the blocks of a cluster
COPIED = pytest.mark.exchange  # by several lanes, what other warps read

SMALL = {
    "TILE_COLS": 32, "TILE_ROWS": 0, "ARRAY_SIZE_PER_THREAD": 8, "TILE_CGA": 1, "CTA_COUNT": 0,
    "STAGES": 0, "KERNEL_CFG": 0,
}  # fmt: skip


def new_graph(io=dtypes.f16, **options):
    defaults = {
        "io_data_type": io,
        "intermediate_data_type": dtypes.f32,
        "compute_data_type": dtypes.f32,
    }
    return dnnc.pygraph("rows", **{**defaults, **options})


def run(g, sizes=None, knobs=SMALL, **options):
    """A device's rsqrt and division are off by some units of f32, in which statistics are."""
    options = {"target": "sm_90a", "slack": 4.0, "allowance": 1e-6, **options}
    return check(g, sizes, engine="rows", knobs=knobs, **options)


def reduced(g, x, mode, axes):
    dims = [1 if axis in axes else n for axis, n in enumerate(x.get_dim())]
    return g.reduction(x, mode).set_dim(dims)


def softmax(dims, axes, strides=None, io=dtypes.f16):
    g = new_graph(io)
    x = g.tensor(dims, strides, name="x")
    e = g.exp(g.sub(x, reduced(g, x, "max", axes)))
    g.div(e, reduced(g, e, "add", axes)).set_output().set_name("y")
    return g


def layernorm(rows, columns, phase="TRAINING", io=dtypes.f16):
    """Statistics are stored too; the mean is away from 0, where sums would cancel."""
    g = new_graph(io)
    x, scale, bias = g.tensor([rows, columns]), g.tensor([1, columns]), g.tensor([1, columns])
    shifted = g.add(x, 3.0)
    results = g.layernorm(phase, shifted, scale, bias, g.tensor_scalar(1e-3))
    for tensor in results:
        if tensor is not None:
            tensor.set_output()
    results[0].set_data_type(io)
    return g


def gradients(rows, columns, io=dtypes.f16):
    """dx of an rms norm, and the gradients of scale and bias."""
    g = new_graph(io)
    x, dy = g.tensor([rows, columns], name="x"), g.tensor([rows, columns], name="dy")
    scale, inverse = g.tensor([1, columns]), g.tensor([rows, 1], data_type=dtypes.f32)
    normal, scaled = g.mul(x, inverse), g.mul(dy, scale)
    mean = reduced(g, g.mul(normal, scaled), "avg", [1])
    g.mul(inverse, g.sub(scaled, g.mul(normal, mean))).set_output()
    for value in (g.mul(dy, normal), dy):
        reduced(g, value, "add", [0]).set_output().set_data_type(dtypes.f32)
    return g


def whole(g):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return fusion


def refusal(g, target="sm_90a"):
    (reason, *_) = ROWS.supports(whole(g), of(target))
    return reason


# ---- rows in registers, or read again


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("threads", [2, 8, 32, 64, 256])
@pytest.mark.parametrize("held", [0, 8, 32])
def test_threads_and_elements(threads, held):
    """Rows of one warp's part, of warps, and of several rounds of all threads."""
    columns = 72 if not held else min(520, threads * held - 8)
    run(layernorm(9, columns), knobs={**SMALL, "TILE_COLS": threads, "ARRAY_SIZE_PER_THREAD": held})


@pytest.mark.in_turn
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_that_may_be_empty_are_left_to_other_engines(axis):
    dims = [dnnc.Dim("m", 0, 64), dnnc.Dim("n", 0, 64)]
    g = softmax(dims, [axis])
    (whole,) = partition(g.graph.finalize(), [g.graph.live_ops])
    (reason,) = ROWS.supports(whole, of("sm_90a"))
    assert reason.clause == "rows"
    assert "may be 0" in reason.what
    for m, n in ((3, 0), (0, 3), (0, 0), (2, 5)):
        check(softmax(dims, [axis]), {"m": m, "n": n}, target="sm_90a", slack=4.0)


@pytest.mark.rotating
@pytest.mark.parametrize("columns", [2, 3, 7, 33, 100, 129])
@pytest.mark.parametrize("io", [dtypes.f32, dtypes.bf16, dtypes.f16], ids=str)
def test_odd_rows(columns, io):
    for held in (0, 8):
        run(softmax([5, columns], [1], io=io), knobs={**SMALL, "ARRAY_SIZE_PER_THREAD": held})


@pytest.mark.rotating
@pytest.mark.parametrize("held", [0, 16])
@pytest.mark.parametrize("blocks", [2, 4])
def test_clusters_share_rows(blocks, held):
    knobs = {**SMALL, "TILE_CGA": blocks, "ARRAY_SIZE_PER_THREAD": held, "TILE_COLS": 64}
    plan = run(layernorm(3, 1000), knobs=knobs)
    assert plan.programs[0].variants[0].steps[0].launch.cluster == (blocks, 1, 1)


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(("threads", "held"), [(32, 8), (64, 0), (64, 8)])
def test_many_threads_share_rows_that_lie_side_by_side(threads, held):
    g = softmax([200, 72], [0])
    run(g, knobs={**SMALL, "TILE_COLS": threads, "ARRAY_SIZE_PER_THREAD": held})
    g = softmax([2, 65, 33], [0, 1], io=dtypes.f32)  # fragments of one element, idle threads
    run(g, knobs={**SMALL, "TILE_COLS": threads, "ARRAY_SIZE_PER_THREAD": held})


def test_long_rows_are_read_again_by_all_threads():
    run(softmax([2, 5000], [1]), knobs={**SMALL, "TILE_COLS": 256, "ARRAY_SIZE_PER_THREAD": 0})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("held", [0, 4, 8])
@pytest.mark.parametrize(
    ("dims", "axes", "strides"),
    [
        ([3, 10, 4, 8], [1], None),  # channels, fragments across them
        ([3, 10, 5, 7], [1], None),  # fragments of one element
        ([3, 10, 4, 8], [0], None),
        ([4, 6, 5], [1, 2], [1, 20, 4]),  # the kept axis is the fastest
    ],
    ids=str,
)
def test_fragments_across_rows(dims, axes, strides, held):
    elements = int(np.prod([dims[axis] for axis in axes]))
    for threads in (1, 4, 8):
        if not held or held * threads >= elements:
            knobs = {**SMALL, "TILE_COLS": threads, "ARRAY_SIZE_PER_THREAD": held}
            run(softmax(dims, axes, strides), knobs=knobs)


@pytest.mark.parametrize(
    ("dims", "axes", "strides"),
    [
        ([3, 4, 2, 8], [1, 2, 3], None),
        ([3, 4, 2, 8], [1, 2, 3], [64, 1, 32, 4]),
        ([2, 3, 40], [2], [1000, 200, 2]),
        ([4, 6, 16], [0, 2], None),
    ],
    ids=str,
)
def test_layouts(dims, axes, strides):
    run(softmax(dims, axes, strides), knobs={**SMALL, "ARRAY_SIZE_PER_THREAD": 16})


@pytest.mark.parametrize("rows", [1, 70])
@pytest.mark.parametrize("columns", [8, 200])
def test_one_plan_serves_every_size(rows, columns):
    g = softmax([dnnc.Dim("R", max=4096), dnnc.Dim("C", max=256, multiple_of=8)], [1])
    run(g, {"R": rows, "C": columns})


@pytest.mark.in_turn
def test_rows_of_unknown_length_are_read_again():
    g = softmax([4, dnnc.Dim("C", max=1 << 20)], [1])
    graph = g.graph.finalize()
    config = heuristics.best_config(graph, of("sm_90a"))
    assert config.choices[0].engine is ROWS
    assert config.choices[0].knobs["ARRAY_SIZE_PER_THREAD"] == 0
    check(g, {"C": 1003}, target="sm_90a")


# ---- what may be around


def test_residual_norm_activation_and_quantised_output():
    """Both outputs of residual + norm, fp8 with its amax of each row."""
    g = new_graph(dtypes.bf16)
    x, r, scale = g.tensor([6, 256]), g.tensor([6, 256]), g.tensor([1, 256])
    total = g.add(x, r).set_output().set_data_type(dtypes.bf16)
    mean = reduced(g, g.mul(total, total), "avg", [1])
    y = g.mul(g.mul(total, g.rsqrt(g.add(mean, 1e-5))), scale)
    reduced(g, y, "amax", [1]).set_output().set_data_type(dtypes.f32)
    g.mul(g.swish(y), 8.0).set_output().set_data_type(dtypes.f8e4m3)
    run(g, knobs={**SMALL, "ARRAY_SIZE_PER_THREAD": 16})


def test_boolean_masks_are_packed():
    g = new_graph()
    x = g.tensor([6, 136])
    y = g.sub(x, reduced(g, x, "avg", [1]))
    g.cmp_gt(y, 0.0).set_output().set_data_type(dtypes.i1)
    g.relu(y).set_output()
    run(g, knobs={**SMALL, "ARRAY_SIZE_PER_THREAD": 16})


def test_booleans_of_parts_of_bytes_are_refused():
    g = new_graph()
    x = g.tensor([6, 12])
    g.cmp_gt(g.sub(x, reduced(g, x, "avg", [1])), 0.0).set_output().set_data_type(dtypes.i1)
    assert refusal(g).clause == "boolean output"


@pytest.mark.parametrize("mode", ["min", "mul", "norm2", "mul_no_zeros"])
def test_modes(mode):
    g = new_graph(dtypes.f32)
    x = g.tensor([5, 24])
    y = g.add(g.mul(x, 0.5), 1.0)
    g.sub(y, reduced(g, y, mode, [1])).set_output()
    run(g, slack=8.0)


def test_integers():
    g = new_graph(dtypes.i8, intermediate_data_type=dtypes.i32, compute_data_type=dtypes.i32)
    x = g.tensor([5, 48])
    g.sub(x, reduced(g, x, "max", [1])).set_output().set_data_type(dtypes.i32)
    run(g, knobs={**SMALL, "ARRAY_SIZE_PER_THREAD": 16})


def test_views_before():
    g = new_graph()
    x = g.tensor([24, 6])
    t = g.transpose(x, [1, 0])
    g.sub(t, reduced(g, t, "max", [1])).set_output()
    run(g)


def test_three_levels():
    g = new_graph(dtypes.f32)
    x = g.tensor([4, 40])
    a = g.sub(x, reduced(g, x, "avg", [1]))
    b = g.div(a, reduced(g, a, "norm2", [1]))
    g.sub(b, reduced(g, b, "max", [1])).set_output()
    run(g, slack=4.0)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_special_values_stay_in_their_rows(special):
    g = softmax([6, 40], [1], io=dtypes.f32)
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    next(iter(inputs.values()))[2, 7] = special
    with np.errstate(invalid="ignore"):
        run(g, inputs=inputs)


# ---- rings of rows in shared memory


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("held", [0, 16])
def test_rows_come_through_a_ring(stages, held, monkeypatch):
    """More rows than stages of all blocks, so that they are used again."""
    rows = (stages + 1) * multiprocessors.few(monkeypatch, 4) + 3
    knobs = {**SMALL, "TILE_COLS": 64, "ARRAY_SIZE_PER_THREAD": held, "CTA_COUNT": 1}
    run(layernorm(rows, 520, "INFERENCE"), knobs={**knobs, "STAGES": stages})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize(
    ("threads", "held", "blocks"),
    [
        (32, 32, 1),
        pytest.param(64, 16, 1, marks=COPIED),
        pytest.param(128, 8, 1, marks=COPIED),
        pytest.param(32, 16, 2, marks=ACROSS),
        pytest.param(64, 8, 2, marks=ACROSS),
    ],
)
def test_warps_go_through_rings_on_their_own(stages, threads, held, blocks, monkeypatch):
    """Two levels of reductions."""
    rows = (stages + 1) * multiprocessors.few(monkeypatch, 4) * 4 + 3
    knobs = {**SMALL, "TILE_COLS": threads, "ARRAY_SIZE_PER_THREAD": held, "CTA_COUNT": 1}
    knobs |= {"TILE_CGA": blocks, "KERNEL_CFG": 2}
    run(layernorm(rows, 520, "INFERENCE"), knobs={**knobs, "STAGES": stages})


@pytest.mark.in_turn
def test_rings_of_several_rows_and_sizes_known_at_run_time():
    g = softmax([dnnc.Dim("R", max=4096), dnnc.Dim("C", max=64, multiple_of=8)], [1])
    knobs = {**SMALL, "TILE_COLS": 8, "CTA_COUNT": 1, "STAGES": 2}
    run(g, {"R": 2203, "C": 40}, knobs=knobs)
    run(g, {"R": 3, "C": 64}, knobs=knobs)


# ---- rows that are read again from shared memory

SLOTS = {**SMALL, "ARRAY_SIZE_PER_THREAD": 0, "STAGES": 1}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("threads", [8, 64, 256])
@pytest.mark.parametrize(
    "more", [{}, pytest.param({"TILE_CGA": 2}, marks=ACROSS), {"CTA_COUNT": 1}], ids=str
)
def test_rows_stay_in_shared_memory(threads, more):
    knobs = {**SLOTS, "TILE_COLS": threads if "TILE_CGA" not in more else max(32, threads), **more}
    columns = 8 * threads * 5 + 24  # some threads have a fragment more
    for g in (layernorm(3, columns), softmax([5, columns + 3], [1])):
        plan = run(g, knobs=knobs)
        assert int(plan.programs[0].variants[0].steps[0].launch.dynamic_smem_bytes) > 0


def test_rows_that_do_not_fit_shared_memory_are_read_from_where_they_are(monkeypatch):
    monkeypatch.setattr(tiling, "EXCHANGE_BYTES", (227 << 10) - 3 * 128 * 16)
    knobs = {**SLOTS, "TILE_COLS": 128}
    for g in (layernorm(3, 8192 + 8), softmax([2, 8192], [1], io=dtypes.f32)):
        plan = run(g, knobs=knobs)
        assert plan.programs[0].variants[0].steps[0].launch.dynamic_smem_bytes == str(3 * 128 * 16)


@pytest.mark.parametrize("special", [np.inf, np.nan])
def test_special_values_of_rows_in_shared_memory_stay_in_them(special):
    g = layernorm(4, 1000, io=dtypes.f32)
    inputs = random_inputs(g.graph.finalize(), {})
    inputs[1][2, 7] = special
    with np.errstate(invalid="ignore"):
        run(g, inputs=inputs, knobs=SLOTS)


# ---- softmax of long rows in two passes


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("stages", [0, 1])
@pytest.mark.parametrize("io", [dtypes.f16, dtypes.bf16], ids=str)
def test_maximum_and_sum_of_exponentials_in_one_pass(stages, io):
    """Maxima that grow in every fragment, infinities, NaN, rows of nothing but -inf."""
    g = softmax([8, 1003 if stages else 1000], [1], io=io)
    inputs = random_inputs(g.graph.finalize(), {})
    (x,) = inputs.values()
    x[0] = np.arange(x.shape[1])
    x[1] = -np.arange(x.shape[1])
    x[2, :600] = -np.inf  # the first fragments of all threads
    x[3] = -np.inf
    x[4, 700] = np.inf
    x[5, 3] = np.nan
    x[6] = 6e4
    with np.errstate(invalid="ignore"):
        run(g, inputs=inputs, knobs={**SLOTS, "STAGES": stages})


@pytest.mark.parametrize(("io", "passes"), [(dtypes.f16, 2), (dtypes.f32, 3)], ids=str)
def test_passes_of_a_softmax(io, passes):
    """Exact exponentials are added up once the maximum is known."""
    plan = run(softmax([8, 1000], [1], io=io), knobs={**SLOTS, "STAGES": 0})
    ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    unrolled = streamed.TOGETHER + 1  # loads of a pass that stores nothing
    assert len(re.findall(r"\bld\.global", ptx)) // unrolled == passes - 1


# ---- sums of columns


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("rows", "columns", "more"),
    [
        (9, 64, {"TILE_COLS": 8}),
        (300, 520, {"TILE_COLS": 128}),
        (600, 72, {"TILE_COLS": 32}),
        pytest.param(200, 1000, {"TILE_COLS": 64, "TILE_CGA": 2}, marks=ACROSS),
        (300, 1000, {"TILE_COLS": 128, "STAGES": 2}),
        (600, 72, {"TILE_COLS": 16, "STAGES": 3}),
        (7, 33, {"TILE_COLS": 32}),
    ],
    ids=str,
)
def test_sums_of_columns(rows, columns, more):
    plan = run(gradients(rows, columns), knobs={**SMALL, "CTA_COUNT": 1, **more})
    names = [step.launch.kernel for step in plan.programs[0].variants[0].steps]
    assert names == ["fusion0_rows", "fusion0_rows_columns"]


OWN = {"KERNEL_CFG": 2, "STAGES": 2}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("rows", "columns", "more"),
    [
        pytest.param(300, 1000, {"TILE_COLS": 128, **OWN}, marks=COPIED),
        (600, 72, {"TILE_COLS": 16, **OWN, "STAGES": 3}),
        (900, 520, {"TILE_COLS": 32, "ARRAY_SIZE_PER_THREAD": 32, "TILE_ROWS": 8, **OWN}),
        pytest.param(
            200,
            1160,
            {"TILE_COLS": 64, "TILE_CGA": 2, "ARRAY_SIZE_PER_THREAD": 16, **OWN},
            marks=ACROSS,
        ),
        pytest.param(
            70,
            2000,
            {"TILE_COLS": 64, "TILE_CGA": 4, "ARRAY_SIZE_PER_THREAD": 8, **OWN},
            marks=(ACROSS, pytest.mark.slow),
        ),
        # Threads that would hold twice as much hold what there is, so that each block has some.
        pytest.param(
            50,
            2000,
            {"TILE_COLS": 64, "TILE_CGA": 4, "ARRAY_SIZE_PER_THREAD": 16, **OWN},
            marks=ACROSS,
        ),
    ],
    ids=str,
)
def test_sums_of_columns_of_warps_on_their_own(rows, columns, more):
    run(gradients(rows, columns), knobs={**SMALL, "CTA_COUNT": 1, **more})


@pytest.mark.parametrize("columns", [768, 4096, 16384, 65536])
def test_configs_of_sums_of_columns(columns):
    fusion, target = whole(gradients(64, columns)), of("sm_90a")
    found = ROWS.candidates(fusion, target)
    assert {knobs["KERNEL_CFG"] for knobs in found} == {0, 2}
    assert not any(ROWS.legal(knobs, fusion, target) for knobs in found)


def test_a_ring_is_for_those_who_go_through_many_rows():
    """With one row to an SM nothing is loaded ahead (`variants-rows-small-h100.json`)."""
    target = of("sm_90a")
    chosen = {}
    for rows, columns in ((128, 768), (8192, 65536)):
        fusion = whole(layernorm(rows, columns, "INFERENCE", dtypes.bf16))
        found = ROWS.candidates(fusion, target)
        best = min(found, key=lambda knobs: ROWS.predict(fusion, knobs, target).seconds)
        chosen[rows] = best["KERNEL_CFG"], best["STAGES"] > 0
    assert chosen == {128: (0, False), 8192: (2, True)}


@pytest.mark.in_turn
def test_the_second_kernel_of_sums_starts_early_and_waits():
    """Its loads of what the first one leaves come after the wait, and through no other cache."""
    g = gradients(300, 200).graph.finalize()
    for target, config in (("sm_80", 0), ("sm_90a", 0), ("sm_90", 2), ("sm_90a", 2)):
        is_early = config == 2
        more = {"CTA_COUNT": 1, "TILE_COLS": 32, "STAGES": config, "KERNEL_CFG": config}
        knobs = tuple({**SMALL, **more}.items())
        plan = compile_graph(g, target, Options(engine="rows", knobs=knobs))
        first, second = (step.launch for step in plan.programs[0].variants[0].steps)
        assert (first.programmatic, second.programmatic) == (False, is_early)
        ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
        rows_part, columns_part = ptx.split(f".entry {second.kernel}(")
        assert ("griddepcontrol.launch_dependents" in rows_part) == is_early
        assert ("griddepcontrol.wait" in columns_part) == is_early
        if is_early:
            before, after = columns_part.split("griddepcontrol.wait")
            assert not re.search(r"\bld\.global", before)
            assert len(re.findall(r"\bld\.global\.v", after)) > 2
            assert "ld.global.nc" not in after


@pytest.mark.in_turn
def test_results_repeat_bit_for_bit():
    g = gradients(300, 200)
    graph = g.graph.finalize()
    knobs = {**SMALL, "CTA_COUNT": 1, "STAGES": 2}
    plan = compile_graph(graph, "sm_90a", Options(engine="rows", knobs=tuple(knobs.items())))
    inputs = random_inputs(graph, {})
    first, second = (machine.current().run(plan, inputs, seed=seed) for seed in (1, 2))
    for uid in first:
        np.testing.assert_array_equal(first[uid], second[uid])


def test_which_reductions_are_columns():
    (fusion,) = (whole(gradients(8, 16)),)
    along, columns = split_reductions(fusion)
    assert [op.axes for op in along] == [(1,)]
    assert [op.axes for op in columns] == [(0,), (0,)]
