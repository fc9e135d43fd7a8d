"""The index of a minimum or maximum, in the interpreter: engines, axes, ties, NaN, sizes."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.reference import reference
from dnnc.errors import DnncError
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check, random_inputs

M = dnnc.Dim("M", max=4096)
N = dnnc.Dim("N", max=512, multiple_of=8)
WIDE = dnnc.Dim("W", max=1 << 17)  # of which 2^17 * 2^16 elements need INT64


def indexed(g, x, axes, mode="max", **options):
    """[y, index], both outputs."""
    y, index = g.reduction(x, mode, generate_index=True, **options)
    y.set_dim([1 if axis in axes else n for axis, n in enumerate(x.get_dim())])
    return y.set_output(), index.set_output()


def new_graph(io=dtypes.f16, compute=dtypes.f32):
    return dnnc.pygraph(
        "index", io_data_type=io, intermediate_data_type=compute, compute_data_type=compute
    )


def graph_of(dims, axes, mode="max", strides=None, index=None, **types):
    g = new_graph(**types)
    _, found = indexed(g, g.tensor(list(dims), strides), axes, mode)
    if index:
        found.set_data_type(index)
    return g


def tied(g, sizes=None, specials=()):
    """Inputs of few values, with specials at random places."""
    graph = g.graph.finalize()
    inputs = random_inputs(graph, sizes or {})
    rng = np.random.default_rng(5)
    for array in inputs.values():
        if array.dtype.kind not in "iu":
            array[...] = np.round(array.astype(np.float64) * 2) / 2
            flat = array.reshape(-1)
            for value in specials:
                flat[rng.integers(0, flat.size)] = value
    return inputs


def one_kernel(g, sizes=None, specials=(), **options):
    plan = check(g, sizes, inputs=tied(g, sizes, specials), **options)
    assert len(plan.programs[0].kernels) == 1
    return plan


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("dims", "axes", "strides", "mode"),
    [
        ([9, 40], [1], None, "max"),
        ([40, 24], [0], None, "min"),
        ([40, 24], [0], [1, 40], "amax"),
        ([3, 5, 8, 16], [1, 3], None, "min"),
        ([3, 5, 8, 16], [0, 1, 2, 3], [640, 1, 80, 5], "max"),
        ([7, 3, 5], [2, 0], None, "amax"),
    ],
    ids=str,
)
def test_axes_and_layouts(dims, axes, strides, mode):
    one_kernel(graph_of(dims, axes, mode, strides), engine="rows")


@pytest.mark.rotating
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("mode", ["max", "min", "amax"])
def test_special_values(mode, axes):
    g = graph_of([12, 16], axes, mode, io=dtypes.f32)
    one_kernel(g, specials=(np.inf, -np.inf, -0.0, np.nan, np.nan), engine="rows")


def test_the_first_of_all_is_found_and_of_no_number_at_all():
    g = graph_of([5, 8], [1], io=dtypes.f32)
    inputs = tied(g)
    (array,) = inputs.values()
    array[:] = 1.0
    array[1], array[2] = -np.inf, np.nan
    array[3] = [0.0, -0.0, *[-1.0] * 6]
    array[4] = [1.0, 2.0, np.inf, np.nan, np.inf, np.nan, 3.0, 4.0]
    check(g, inputs=inputs, engine="rows")
    found = reference(g.graph, inputs)[g.graph.outputs[1].uid]
    assert found.reshape(-1).tolist() == [0, 0, 0, 0, 3]


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("dims", "axes"),
    [([M, 40], [1]), ([M, 40], [0]), ([3, M, N], [1, 2]), ([M, 5, N], [0, 2]), ([M, N], [0, 1])],
    ids=str,
)
def test_sizes_of_symbols(dims, axes):
    g, plan = graph_of(dims, axes), None
    for sizes in ({"M": 1, "N": 8}, {"M": 37, "N": 24}):
        plan = one_kernel(g, sizes, engine="rows", plan=plan)


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("io", "compute", "index"),
    [
        (dtypes.i8, dtypes.i32, dtypes.i32),
        (dtypes.ui8, dtypes.f32, dtypes.i64),
        (dtypes.i32, dtypes.i32, dtypes.i64),
        (dtypes.bf16, dtypes.f32, dtypes.i64),
        (dtypes.f64, dtypes.f64, dtypes.i32),
        (dtypes.i1, dtypes.f32, dtypes.i32),
    ],
    ids=str,
)
def test_types(io, compute, index):
    g = new_graph(io, compute)
    y, found = indexed(g, g.tensor([6, 40]), [1], "min")
    y.set_data_type(dtypes.f32 if io.kind == "b" else io)
    found.set_data_type(index)
    one_kernel(g, engine="rows")


def test_elements_that_the_compute_type_can_not_tell_apart_are_equal():
    g = graph_of([2, 8], [1], io=dtypes.f64)
    inputs = tied(g)
    (array,) = inputs.values()
    array[0] = 1 + np.arange(8) * 2.0**-40
    check(g, inputs=inputs, engine="rows", slack=2.0**30)
    assert reference(g.graph, inputs)[g.graph.outputs[1].uid][0] == 0


@pytest.mark.in_turn
def test_more_places_than_int32_holds():
    g = graph_of([WIDE, 1 << 16], [0, 1], index=dtypes.i64)
    graph = g.graph.finalize()
    assert graph.live_ops[-1].compute_type is dtypes.f64
    g = graph_of([WIDE, dnnc.Dim("H", max=1 << 16)], [0, 1])
    assert g.graph.finalize().outputs[1].type is dtypes.i64  # which inference chose
    # Rows of so many elements are the split's: one kernel finds the extreme, another its place.
    sizes = {"W": 5, "H": 70}
    check(g, sizes, inputs=tied(g, sizes, (np.nan,)))
    with pytest.raises(DnncError, match=r"data type i32 .*accepted: i64"):
        graph_of([WIDE, 1 << 16], [0, 1], index=dtypes.i32).validate()


def test_axes_of_one_element():
    one_kernel(graph_of([4, 1, 6], [1]), specials=(np.nan,), engine="pointwise")


def test_without_the_extreme():
    g = new_graph()
    y, _ = indexed(g, g.tensor([9, 40]), [1])
    y.set_output(False)
    one_kernel(g, engine="rows")


def test_work_before_and_after():
    """Whether each row's largest is at its label, and the row without it."""
    g = new_graph()
    x, bias, label = g.tensor([9, 40]), g.tensor([1, 40]), g.tensor([9, 1], data_type=dtypes.i32)
    z = g.add(x, bias)
    y, index = g.reduction(z, "max", generate_index=True)
    y.set_dim([9, 1])
    g.cmp_eq(index, label, compute_data_type=dtypes.i32).set_output().set_data_type(dtypes.f16)
    place = g.gen_index(z, 1, compute_data_type=dtypes.i32)
    is_here = g.cmp_eq(place, index, compute_data_type=dtypes.i32).set_data_type(dtypes.i32)
    g.binary_select(0.0, z, is_here).set_output()
    inputs = tied(g)
    inputs[label.uid][:5] = np.argmax(inputs[x.uid].astype(float) + inputs[bias.uid], 1)[:5, None]
    check(g, inputs=inputs, engine="rows")


# ---- other engines


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("dims", "axes", "sizes"),
    [
        ([40, 24], [0, 1], {}),
        ([M, 40], [0, 1], {"M": 50}),
        ([3, 5, 16], [0, 1], {}),
        ([2, M, N], [1, 2], {"M": 9, "N": 16}),
    ],
    ids=str,
)
def test_grid(dims, axes, sizes):
    g = graph_of(dims, axes, "min")
    one_kernel(g, sizes, (np.nan, -np.inf), engine="grid", target="sm_90a")


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("dims", "axes", "engine"),
    [
        ([64, 1024], [1], "rows"),
        ([64, 1024], [0], "rows"),
        ([4096, 4096], [0, 1], "grid"),
        ([8, 1 << 20], [1], "grid"),
        ([M, 32000], [1], "rows"),
    ],
    ids=str,
)
def test_one_kernel_is_chosen(dims, axes, engine, target):
    config = heuristics.best_config(graph_of(dims, axes).graph.finalize(), of(target))
    assert [choice.engine.name for choice in config.choices] == [engine]


def after_a_product(columns, *, is_tested):
    """The largest exponential of each row of a product that is an output too."""
    g = new_graph()
    c = g.matmul(g.tensor([1, 64, 32]), g.tensor([1, 32, columns])).set_output()
    _, index = indexed(g, g.exp(c), [2])
    label = g.tensor([1, 64, 1], data_type=dtypes.i32)
    if is_tested:
        index.set_output(False)
        g.cmp_eq(index, label, compute_data_type=dtypes.i32).set_output().set_data_type(dtypes.f16)
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    if is_tested:
        stored = reference(graph, inputs)[c.uid].astype(np.float64)
        inputs[label.uid] = np.argmax(stored, -1)[..., None].astype(np.int32)
    return g, inputs


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("columns", "is_tested", "target", "engines"),
    [
        (96, False, None, ["matmul_sm80", "rows"]),
        (96, False, "sm_90a", ["matmul_sm90"]),
        (96, True, "sm_90a", ["matmul_sm90"]),
        (776, True, "sm_90a", ["matmul_sm90", "rows"]),
    ],
    ids=str,
)
def test_after_a_product(columns, is_tested, target, engines):
    """The extreme and its place see the same exponentials, in whichever kernel they are computed,
    though the one behind the product could approximate them."""
    target = target or machine.current().target
    g, inputs = after_a_product(columns, is_tested=is_tested)
    config = heuristics.best_config(g.graph, of(target))
    assert [choice.engine.name for choice in config.choices] == engines
    check(g, inputs=inputs, target=target)


# ---- any of it


@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(12))
def test_random_reductions(seed):
    rng = np.random.default_rng([9, seed])
    rank = int(rng.integers(1, 5))
    dims = [int(n) for n in rng.integers(1, [60, 24, 12, 8][rank - 1] + 1, rank)]
    axes = [axis for axis in range(rank) if rng.random() < 0.6] or [0]
    order = [int(axis) for axis in rng.permutation(rank)]
    strides, running = [0] * rank, 1
    for axis in order:
        strides[axis], running = running, running * dims[axis] + int(rng.integers(0, 3))
    mode = ("max", "min", "amax")[int(rng.integers(3))]
    io = (dtypes.f16, dtypes.f32, dtypes.bf16, dtypes.i8)[int(rng.integers(4))]
    target = (machine.current().target, "sm_90a")[int(rng.integers(2))]
    g = graph_of(dims, axes, mode, strides, io=io)
    check(g, inputs=tied(g, specials=(np.nan, np.inf)[: int(rng.integers(3))]), target=target)
