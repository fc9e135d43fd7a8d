"""Largest and smallest elements of all rows, beside what engine rows gives of each."""

import re

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.engines.rows.choice import RowsChoice
from dnnc.engines.rows.engine import ROWS
from dnnc.engines.rows.shared_layout import SharedLayout
from dnnc.engines.rows.tiling import tiling_of
from dnnc.options import Options
from dnnc.target import of
from tests.support import machine, multiprocessors
from tests.support.checked import check, random_inputs

from .test_engine import SMALL, gradients, new_graph, reduced, refusal, run, softmax, whole

ACROSS = pytest.mark.exchange  # of totals between the blocks of a cluster
COPIED = pytest.mark.exchange  # by several lanes, what other warps read
MODES = ("amax", "max", "min")
LOOP = {"CTA_COUNT": 1, "TILE_COLS": 64, "ARRAY_SIZE_PER_THREAD": 16}
OWN = {"CTA_COUNT": 1, "STAGES": 2, "KERNEL_CFG": 2}


def normalised(g, rows, columns, is_layer):
    """y, before it is an output; x is an output, too, with something added."""
    x, r, scale = g.tensor([rows, columns]), g.tensor([rows, columns]), g.tensor([1, columns])
    x.set_name("x")
    total = g.add(x, r).set_output()
    epsilon = g.tensor_scalar(1e-3)
    if is_layer:
        return g.layernorm("INFERENCE", total, scale, g.tensor([1, columns]), epsilon)[0]
    return g.rmsnorm("INFERENCE", total, scale, None, epsilon)[0]


def quantised(rows, columns, is_layer=False, io=dtypes.f16, to=dtypes.f8e4m3, modes=("amax",)):
    """A residual, a norm, its activation as `to`, and extremes of that before it is rounded."""
    g = new_graph(io)
    y = normalised(g, rows, columns, is_layer)
    y = g.swish(y).set_data_type(dtypes.f32)
    for mode in modes:
        extreme_of(g, y, mode).set_name(mode)
    g.mul(y, 4.0).set_output().set_data_type(to).set_name("y")
    return g


def extreme_of(g, y, mode):
    found = g.reduction(y, mode).set_dim([1] * len(y.get_dim()))
    return found.set_output().set_data_type(dtypes.f32)


def steps_of(plan):
    return plan.programs[0].variants[0].steps


def kernels_of(plan):
    return [step.launch.kernel for step in steps_of(plan) if step.launch is not None]


def run_alone(g, sizes=None, **options):
    """The plan of one kernel, run and checked."""
    plan = run(g, sizes, **options)
    assert kernels_of(plan) == ["fusion0_rows"]
    return plan


# ---- all forms of the kernel

FORMS = [  # knobs, elements of a row
    pytest.param({}, 520, id="a block for some rows"),
    pytest.param({"TILE_COLS": 16, "ARRAY_SIZE_PER_THREAD": 32}, 264, id="several rows of a warp"),
    pytest.param({"TILE_COLS": 256, "ARRAY_SIZE_PER_THREAD": 0}, 520, id="read again"),
    pytest.param({"ARRAY_SIZE_PER_THREAD": 0, "STAGES": 1}, 520, id="in slots"),
    pytest.param({"TILE_COLS": 64, "TILE_CGA": 2}, 520, marks=ACROSS, id="cluster"),
    pytest.param(LOOP, 520, id="loop"),
    pytest.param({**LOOP, "STAGES": 2}, 520, id="ring of a block"),
    pytest.param({**LOOP, "ARRAY_SIZE_PER_THREAD": 0, "STAGES": 2}, 520, id="ring, read again"),
    pytest.param({**OWN, "ARRAY_SIZE_PER_THREAD": 16}, 520, id="rings of warps"),
    pytest.param({**OWN, "TILE_COLS": 128}, 520, marks=COPIED, id="a ring that warps share"),
    pytest.param(
        {**OWN, "TILE_COLS": 32, "TILE_CGA": 2}, 520, marks=ACROSS, id="a ring that blocks share"
    ),
]


def fitting(more, columns):
    """Threads that hold more where rows need it."""
    knobs = {**SMALL, **more}
    threads = knobs["TILE_COLS"] * knobs["TILE_CGA"]
    while 0 < knobs["ARRAY_SIZE_PER_THREAD"] * threads < columns:
        knobs["ARRAY_SIZE_PER_THREAD"] *= 2
    return knobs


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(("more", "columns"), FORMS)
@pytest.mark.parametrize("is_layer", [False, True], ids=["rms", "layer"])
def test_norms_with_the_amax_of_all_of_them(more, columns, is_layer, monkeypatch):
    """More rows than blocks that go through them, and not as many in each block."""
    rows = 3 * multiprocessors.few(monkeypatch, 3) + 2
    run_alone(quantised(rows, columns, is_layer), knobs=fitting(more, columns))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(("more", "columns"), FORMS)
def test_all_modes_of_rows_of_one_sign(more, columns, monkeypatch):
    """Among numbers below zero, the largest has the least magnitude."""
    rows = 3 * multiprocessors.few(monkeypatch, 3) + 2
    for shift in (-9.0, 9.0):
        g = new_graph()
        y = g.add(normalised(g, rows, columns, False), shift)
        for mode in MODES:
            extreme_of(g, y, mode)
        y.set_output().set_data_type(dtypes.f16)
        run_alone(g, knobs=fitting(more, columns))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("more", "columns"), FORMS)
@pytest.mark.parametrize("where", [0, 130, -1])
def test_an_extreme_may_be_anywhere(more, columns, where, monkeypatch):
    """In the first row, one of a later round, and the last one."""
    rows = 3 * multiprocessors.few(monkeypatch, 3) + 2
    for row in (0, rows // 2, rows - 1):
        g = new_graph(dtypes.f32)
        x = g.tensor([rows, columns], name="x")
        y = g.sub(x, reduced(g, x, "avg", [1])).set_output()
        for mode in MODES:
            extreme_of(g, y, mode)
        inputs = random_inputs(g.graph.finalize(), {})
        (values,) = inputs.values()
        values[row, where], values[row, where - 1] = 77.0, -99.0
        run_alone(g, inputs=inputs, knobs=fitting(more, columns))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("to", [dtypes.f8e4m3, dtypes.f8e5m2, dtypes.f16], ids=str)
@pytest.mark.parametrize("columns", [3, 33, 129, 1000])
def test_odd_sizes(to, columns):
    for is_layer in (False, True):
        for held in (0, 8):
            knobs = fitting({"ARRAY_SIZE_PER_THREAD": held}, columns)
            run_alone(quantised(7, columns, is_layer, to=to), knobs=knobs)


@pytest.mark.rotating
@pytest.mark.parametrize("held", [0, 8])
def test_fragments_across_rows(held):
    g = new_graph()
    x = g.tensor([3, 10, 4, 8])
    y = g.sub(x, reduced(g, x, "max", [1])).set_output()
    for mode in MODES:
        extreme_of(g, y, mode)
    for threads in (1, 4):
        if not held or held * threads >= 10:
            knobs = {**SMALL, "TILE_COLS": threads, "ARRAY_SIZE_PER_THREAD": held}
            run_alone(g, knobs=knobs)


@pytest.mark.in_turn
def test_extremes_of_what_is_no_output_and_of_what_was_before():
    """No tensor of the rows' dims is stored; of x + r no reduction by rows comes first."""
    g = new_graph()
    x, r = g.tensor([9, 136]), g.tensor([9, 136])
    total = g.add(x, r)
    mean = reduced(g, total, "avg", [1])
    mean.set_output().set_data_type(dtypes.f32)
    extreme_of(g, total, "min")
    extreme_of(g, g.sub(total, mean), "amax")
    for more in ({"ARRAY_SIZE_PER_THREAD": 0}, {"ARRAY_SIZE_PER_THREAD": 0, "STAGES": 1}, {}, OWN):
        run_alone(g, knobs=fitting(more, 136))


def test_each_rows_amax_beside_that_of_all():
    g = new_graph()
    y = normalised(g, 9, 136, False)
    by_rows = reduced(g, y, "amax", [1]).set_output().set_data_type(dtypes.f32)
    extreme_of(g, by_rows, "amax")
    y.set_output().set_data_type(dtypes.f8e4m3)
    run_alone(g)


@pytest.mark.in_turn
def test_extremes_of_a_softmax():
    g = softmax([7, 200], [1])
    y = next(t for t in g.graph.tensors if t.name == "y")
    extreme_of(g, g.mul(y, 3.0), "max")
    for more in ({}, {"ARRAY_SIZE_PER_THREAD": 0}, {**OWN, "TILE_COLS": 128}):
        run_alone(g, knobs=fitting(more, 200))


# ---- sizes known at run time


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("rows", [1, 2, 70])
def test_any_number_of_rows(rows):
    """Fewer than a block has, and than there are blocks."""
    g = quantised(dnnc.Dim("R", min=1, max=4096), 200, modes=MODES)
    run_alone(g, {"R": rows}, knobs=fitting({}, 200))
    run_alone(g, {"R": rows}, knobs=fitting({**OWN, "ARRAY_SIZE_PER_THREAD": 16}, 200))


@pytest.mark.in_turn
def test_no_rows():
    """The amax of nothing is 0; by one kernel, or by those that a split makes."""
    sizes = {"R": 0}
    run_alone(quantised(dnnc.Dim("R", 0, max=64), 72), sizes, knobs=fitting({}, 72))
    g = quantised(dnnc.Dim("R", 0, max=64), 72, modes=("max",))
    assert refusal(g).clause == "extremes of all rows"
    assert "may be none" in refusal(g).what
    check(g, sizes, target="sm_90a")
    check(of_16_bits(dnnc.Dim("R", 0, max=64)), sizes, target="sm_90a")


# ---- special values


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("row", [0, 4])
@pytest.mark.parametrize("more", [{}, {"ARRAY_SIZE_PER_THREAD": 0}, OWN], ids=str)
def test_special_values_reach_all_extremes(special, row, more, monkeypatch):
    """One of the first block, or of the last one; a NaN of either sign."""
    multiprocessors.few(monkeypatch, 3)
    g = new_graph(dtypes.f32)
    x = g.tensor([5, 64], name="x")
    y = g.add(x, reduced(g, x, "min", [1])).set_output()
    for mode in MODES:
        extreme_of(g, y, mode)
        extreme_of(g, x, mode)
    for sign in (1.0, -1.0):
        inputs = random_inputs(g.graph.finalize(), {})
        (values,) = inputs.values()
        values[row, 7] = np.copysign(special, sign) if np.isnan(special) else special
        with np.errstate(invalid="ignore"):
            run_alone(g, inputs=inputs, knobs=fitting(more, 64))


@pytest.mark.parametrize("value", [0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45])
def test_rows_of_one_value(value):
    """The number that outputs are set to before a launch never ends up in a result."""
    g = new_graph(dtypes.f32)
    x = g.tensor([6, 40])
    g.mul(reduced(g, x, "max", [1]), 1.0).set_output()
    for mode in MODES:
        extreme_of(g, x, mode)
    inputs = {
        uid: np.full_like(v, value) for uid, v in random_inputs(g.graph.finalize(), {}).items()
    }
    run_alone(g, inputs=inputs)


@pytest.mark.in_turn
def test_results_repeat_bit_for_bit(monkeypatch):
    rows = 3 * multiprocessors.few(monkeypatch, 5)
    graph = quantised(rows, 520, modes=MODES).graph.finalize()
    knobs = tuple(fitting({**OWN, "TILE_COLS": 128}, 520).items())
    plan = compile_graph(graph, "sm_90a", Options(engine="rows", knobs=knobs))
    inputs = random_inputs(graph, {})
    first, second = (machine.current().run(plan, inputs, seed=seed) for seed in (1, 2))
    for uid in first:
        np.testing.assert_array_equal(first[uid], second[uid])


# ---- what is chosen, and what it takes


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("rows", "columns"), [(8192, 1024), (8192, 4096), (8192, 16384), (128, 768)], ids=str
)
@pytest.mark.parametrize("is_layer", [False, True], ids=["rms", "layer"])
@pytest.mark.registers
def test_a_norm_its_fp8_and_amax_are_one_kernel(rows, columns, is_layer):
    """That the heuristics choose; it spills nothing, and updates its output once a block."""
    g = quantised(rows, columns, is_layer, dtypes.bf16)
    plan = compile_graph(g.graph.finalize(), "sm_90a")
    preset, launch = steps_of(plan)
    assert preset.memset is not None
    assert (preset.memset.bytes, preset.memset.value) == ("4", 0)
    assert launch.launch.kernel == "fusion0_rows"
    (kernel,) = plan.programs[0].kernels
    assert (kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.local_bytes) == (0, 0, 0)
    ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    assert re.findall(r"\sred\.\S+", ptx) == ["\tred.relaxed.gpu.global.max.u32"]


def test_an_extreme_takes_no_meeting_of_each_row():
    """Threads that share a row do so once for its mean square, and never for its amax."""
    knobs = tuple(fitting({**LOOP, "TILE_COLS": 128}, 1024).items())
    graph = quantised(300, 1024).graph.finalize()
    plan = compile_graph(graph, "sm_90a", Options(engine="rows", knobs=knobs))
    ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    assert len(re.findall(r"bar\.sync|barrier\.sync", ptx)) == 2  # the other at the end


@pytest.mark.rotating
@pytest.mark.parametrize("more", [{}, LOOP, {**OWN, "TILE_COLS": 128}], ids=str)
@pytest.mark.registers
def test_shared_memory_is_what_legal_counts(more):
    g, knobs = quantised(300, 1024, True, modes=MODES), fitting(more, 1024)
    options = Options(engine="rows", knobs=tuple(knobs.items()))
    plan = compile_graph(g.graph.finalize(), "sm_90a", options)
    (kernel,) = plan.programs[0].kernels
    layout = SharedLayout(tiling_of(whole(g), RowsChoice.of(knobs), of("sm_90a")))
    assert kernel.static_smem_bytes == layout.static_bytes > 0


def test_candidates_are_legal():
    fusion, target = whole(quantised(64, 4096)), of("sm_90a")
    found = ROWS.candidates(fusion, target)
    assert found
    assert not any(ROWS.legal(knobs, fusion, target) for knobs in found)


# ---- the support surface


def beside_sums_of_columns():
    g = gradients(64, 256)
    x = next(t for t in g.graph.tensors if t.name == "x")
    extreme_of(g, x, "amax")
    return g


def read_by_others():
    g = new_graph()
    y = normalised(g, 64, 256, False)
    amax = extreme_of(g, y, "amax")
    g.mul(amax, 2.0).set_output().set_data_type(dtypes.f32)
    y.set_output().set_data_type(dtypes.f16)
    return g


def of_16_bits(rows=64):
    g = new_graph()
    y = normalised(g, rows, 256, False)
    extreme_of(g, y, "amax").set_data_type(dtypes.f16)
    y.set_output().set_data_type(dtypes.f16)
    return g


def summed():
    g = new_graph()
    y = normalised(g, 64, 256, False)
    extreme_of(g, y, "norm1")  # a sum of what has a mean of 0 cancels
    y.set_output().set_data_type(dtypes.f16)
    return g


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("build", "clause"),
    [
        (beside_sums_of_columns, "operations"),
        (read_by_others, "operations"),
        (of_16_bits, "extremes of all rows"),
        (summed, "reductions"),
    ],
)
def test_what_is_refused_is_split(build, clause):
    assert refusal(build()).clause == clause
    g = build()
    config = heuristics.best_config(g.graph.finalize(), of("sm_90a"))
    assert len(config.choices) > 1
    assert ROWS in [choice.engine for choice in config.choices]
    check(g, target="sm_90a", slack=4.0, allowance=1e-5)
