"""Engines reduction and fallback in the interpreter."""

import itertools

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines.elementwise.reduction import REDUCTION
from dnnc.interpreter.plans import run_plan
from dnnc.options import Options
from dnnc.rounding import round_to
from dnnc.target import of
from tests.support.checked import check, random_inputs
from tests.support.compare import UNIT

from .test_pointwise import new_graph, permuted_strides

M = dnnc.Dim("M", max=4096)


def reduce(g, x, mode, axes, **options):
    dims = [1 if i in axes else n for i, n in enumerate(x.get_dim())]
    return g.reduction(x, mode, **options).set_dim(dims)


AXES = [axes for count in (1, 2, 3) for axes in itertools.combinations(range(3), count)]


@pytest.mark.rotating
@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)], ids=str)
def test_axes_and_layouts(axes, order):
    dims = [6, 10, 24]
    g = new_graph(dtypes.f32)
    x = g.tensor(dims, permuted_strides(dims, order))
    reduce(g, x, "add", axes).set_output()
    inputs = random_inputs(g.graph.finalize(), {}, low=0.25)
    check(g, engine="reduction", inputs=inputs, slack=4.0)


@pytest.mark.rotating
@pytest.mark.parametrize("mode", list(dnnc.reduction_mode), ids=lambda m: m.value)
@pytest.mark.parametrize("axes", [(1,), (0,)], ids=["row", "column"])
def test_modes(mode, axes):
    g = new_graph(dtypes.f16)
    x = g.tensor([9, 40])
    reduce(g, x, mode, axes).set_output().set_data_type(dtypes.f32)
    inputs = random_inputs(g.graph.finalize(), {}, low=-1.25, high=1.25)
    array = next(iter(inputs.values()))
    array[3, 5] = 0.0
    check(g, engine="reduction", inputs=inputs, slack=8.0)


@pytest.mark.rotating
@pytest.mark.parametrize("mode", ["add", "mul", "min", "max", "amax", "norm1", "mul_no_zeros"])
def test_integers(mode):
    g = new_graph(dtypes.i32)
    x = g.tensor([5, 37])
    reduce(g, x, mode, (1,), compute_data_type=dtypes.i32).set_output()
    check(g, engine="reduction")


@pytest.mark.in_turn
@pytest.mark.parametrize(("count", "dtype"), [(14, dtypes.f32), (32, dtypes.f64)])
def test_sums_of_columns_that_fill_shared_memory(count, dtype):
    """Fragments get narrower, then threads have columns to themselves."""
    g = new_graph(dtype, compute_data_type=dtype)
    x = g.tensor([40, 32])
    for i in range(count):
        reduce(g, g.add(x, float(i + 1)), "add", (0,), compute_data_type=dtype).set_output()
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    candidates = REDUCTION.candidates(fusion, of("sm_80"))
    assert all(REDUCTION.legal(knobs, fusion, of("sm_80")) == () for knobs in candidates)
    if dtype == dtypes.f64:
        (reason,) = REDUCTION.legal({"TILE_ROWS": 8, "SPLIT_K_SLC": 1}, fusion, of("sm_80"))
        assert f"{count} sums of columns" in reason.what
    check(g, engine="reduction", knobs=candidates[0], slack=4.0)


KNOBS = [(rows, slices) for rows in (1, 4, 32, 64, 256) for slices in (1, 4)]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(("rows", "slices"), KNOBS)
@pytest.mark.parametrize("axes", [(1,), (0,), (0, 1)], ids=["row", "column", "all"])
def test_rows_and_slices(rows, slices, axes):
    g = new_graph(dtypes.f16)
    x = g.tensor([70, 136])
    reduce(g, g.mul(x, x), "add", axes).set_output().set_data_type(dtypes.f32)
    knobs = {"TILE_ROWS": rows, "SPLIT_K_SLC": slices}
    plan = check(g, engine="reduction", knobs=knobs, slack=16.0)
    assert len(plan.programs[0].variants[0].steps) == (1 if slices == 1 else 2)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("m", [1, 2, 31, 100])
@pytest.mark.parametrize("n", [1, 3, 8, 40, 1000])
def test_odd_sizes(m, n):
    for axes in ((0,), (1,)):
        g = new_graph(dtypes.f16)
        x = g.tensor([M, n])
        reduce(g, x, "max", axes).set_output()
        engine = "pointwise" if axes == (1,) and n == 1 else "reduction"
        check(g, {"M": m}, engine=engine)


def test_pointwise_before_and_after_with_several_outputs():
    g = new_graph(dtypes.f16)
    x, shift, scale = g.tensor([M, 64]), g.tensor([1, 64]), g.tensor([M, 1])
    before = g.exp(g.sub(x, shift)).set_output()
    total = reduce(g, before, "add", (1,))
    g.mul(g.rsqrt(total), scale).set_output()
    total.set_output().set_data_type(dtypes.f32)
    check(g, {"M": 19}, engine="reduction", slack=4.0)


def test_two_reductions_of_the_same_axes_are_one_kernel():
    g = new_graph(dtypes.f16)
    x = g.tensor([24, 96])
    total = reduce(g, x, "avg", (1,))
    squares = reduce(g, g.mul(x, x), "avg", (1,))
    g.sub(squares, g.mul(total, total)).set_output()
    plan = check(g, engine="reduction", slack=4.0)
    assert len(plan.programs[0].kernels) == 1


@pytest.mark.in_turn
def test_nan_anywhere_gives_nan():
    for mode, axes in itertools.product(("max", "min", "amax"), ((0,), (1,))):
        g = new_graph(dtypes.f32)
        x = g.tensor([16, 24])
        reduce(g, x, mode, axes).set_output()
        inputs = random_inputs(g.graph.finalize(), {})
        next(iter(inputs.values()))[5, 7] = np.nan
        check(g, engine="reduction", inputs=inputs)


def test_results_repeat_bit_for_bit_under_any_schedule():
    g = new_graph(dtypes.f16)
    x = g.tensor([64, 256])
    reduce(g, x, "add", (0, 1)).set_output().set_data_type(dtypes.f32)
    knobs = (("TILE_ROWS", 64), ("SPLIT_K_SLC", 4))
    plan = compile_graph(g.graph, "sm_80", Options(engine="reduction", knobs=knobs))
    inputs = random_inputs(g.graph, {})
    results = {run_plan(plan, inputs, seed=s)[2].tobytes() for s in range(6)}
    assert len(results) == 1


@pytest.mark.in_turn
def test_long_sums_of_squares_are_as_exact_as_f32():
    """Sums of a thousand terms of a thread: one by one, ties that round down would add up."""
    g = new_graph(dtypes.bf16)
    x = g.tensor([1024, 64])
    y = reduce(g, g.mul(x, x), "add", [0]).set_output().set_data_type(dtypes.f32)
    knobs = (("TILE_ROWS", 1), ("SPLIT_K_SLC", 1))
    plan = compile_graph(g.graph, "sm_80", Options(engine="reduction", knobs=knobs))
    drawn = round_to(np.random.default_rng(0).standard_normal((1024, 64)), dtypes.bf16)
    found = np.float64(run_plan(plan, {x.uid: drawn})[y.uid]).ravel()
    wanted = (np.float64(drawn) ** 2).sum(0)
    assert np.linalg.norm(found - wanted) <= UNIT["f32"] * np.linalg.norm(wanted)


def clauses(g):
    (fusion,) = partition(g.graph.finalize(), [g.graph.ops])
    return [reason.clause for reason in REDUCTION.supports(fusion, of("sm_80"))]


def test_refusals_name_the_clause():
    g = new_graph()
    x = g.tensor([8, 16])
    g.sub(x, reduce(g, x, "max", (1,))).set_output()
    assert clauses(g) == ["after the reduction"]
    g = new_graph()
    x = g.tensor([8, 16])
    reduce(g, x, "max", (1,)).set_output()
    reduce(g, x, "max", (0,)).set_output()
    assert clauses(g)[0] == "reductions"
    g = new_graph()
    g.relu(g.tensor([8])).set_output()
    assert "operations" in clauses(g)


# ---- fallback


@pytest.mark.rotating
@pytest.mark.parametrize("io", [t for t in dtypes.ALL if t.kind != "b"], ids=str)
def test_fallback_multiplies_every_type(io):
    g = new_graph(io, target="sm_90")
    compute = dtypes.i32 if io.is_integer else dtypes.f64 if io.bits == 64 else dtypes.f32
    g.matmul(g.tensor([2, 5, 7]), g.tensor([1, 7, 6]), compute_data_type=compute).set_output()
    check(g, engine="fallback", target="sm_90", allowance=2.0**-22 if io.bits == 32 else 0.0)


def test_fallback_takes_mixed_types_and_any_strides():
    g = new_graph(dtypes.f32)
    a = g.tensor([3, 5, 7], [70, 2, 10], data_type=dtypes.bf16)
    b = g.tensor([1, 7, 6], [84, 2, 14], data_type=dtypes.f16)
    g.relu(g.matmul(a, b)).set_output().set_stride([60, 1, 10])
    check(g, engine="fallback", allowance=2.0**-22)


def test_fallback_takes_two_products_side_by_side():
    g = new_graph(dtypes.f16)
    x, w, v = g.tensor([9, 16]), g.tensor([16, 24]), g.tensor([16, 24])
    g.mul(g.swish(g.matmul(x, w)), g.matmul(x, v)).set_output()
    check(g, engine="fallback", slack=3.0)


def test_graphs_that_need_a_split_say_why():
    g = new_graph(dtypes.f16)
    x = g.tensor([6, 40])
    shifted = g.exp(g.sub(x, reduce(g, x, "max", (1,))))
    y = g.div(shifted, reduce(g, shifted, "add", (1,)))
    g.sub(y, reduce(g, y, "max", (0,))).set_output()
    plan = check(g, slack=3.0)
    program = plan.programs[0]
    assert len(program.fusions) > 1
    assert "equal dims, axes" in program.split_reason
    assert program.variants[0].workspace_bytes != "0"


@pytest.mark.parametrize(("mode", "wanted"), [("max", -np.inf), ("amax", 0.0), ("add", 0.0)])
@pytest.mark.parametrize("engine", ["reduction", "fallback"])
def test_nothing(mode, wanted, engine):
    """With no elements an amax is 0, as other norms are."""
    g = new_graph(dtypes.f32)
    x = g.tensor([3, dnnc.Dim("N", min=0, max=64)], name="x")
    y = reduce(g, x, mode, (1,)).set_output()
    check(g, {"N": 0}, engine=engine)
    nothing = {"x": np.zeros((3, 0), np.float32)}
    (found,) = dnnc.reference(g, nothing, sizes={"N": 0}).values()
    assert (found == wanted).all()
    assert y.get_dim() == [3, 1]
