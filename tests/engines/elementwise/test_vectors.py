"""Vectorized tensors in the interpreter: their copies' kernels, and operations between them."""

import re

import pytest

from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition, rewritten_fusion
from dnnc.dialect.ops.views import Reshape
from dnnc.engines import engine_named
from dnnc.engines.views.refined import REFINED
from dnnc.options import Options
from dnnc.target import of
from tests.support.checked import check
from tests.vectors import layer, new_graph, vectorized

from ..conv.convs import H, N, W, ptx_of
from .test_transpose import strides

slow = pytest.mark.slow


ORDERS = {"nchw": (0, 1, 2, 3), "nhwc": (0, 2, 3, 1)}


def moved(source, result, dims=(2, 64, 8, 8), op=None, io="i8", **options):
    """A tensor as another: their layouts, or counts of vectors."""
    g = new_graph(io_data_type=io, intermediate_data_type=io, **options)
    if source in ORDERS:
        x = g.tensor(dims, strides(dims, ORDERS[source]))
    else:
        x = vectorized(g, dims, source)
    y = (op(g, x) if op else g.identity(x)).set_output()
    if result in ORDERS:
        y.set_dim(dims).set_stride(strides(dims, ORDERS[result]))
    else:
        y.set_vector_count_and_dimension(result, 1)
        own = [dims[0], dims[1] // result, *dims[2:]]
        y.set_dim(own).set_stride(strides(own, range(4)))
    return g


def accesses(plan):
    """Bits of the accesses to global memory, of loads and of stores."""
    found = {"ld": set(), "st": set()}
    for kind, vector, bits in re.findall(
        r"\b(ld|st)\.global(?:\.nc)?(?:\.v(\d))?\.[bsu](\d+)", ptx_of(plan)
    ):
        found[kind].add(int(vector or 1) * int(bits))
    return found["ld"], found["st"]


def launches(plan):
    return [step.launch.kernel for step in plan.programs[0].variants[0].steps if step.launch]


# ---- copies


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("source", "result", "engine", "loads", "stores"),
    [
        (32, "nhwc", "pointwise", {128}, {128}),
        ("nhwc", 32, "pointwise", {128}, {128}),
        (32, "nchw", "transpose", {64, 128}, {128}),
        ("nchw", 32, "", {8, 64, 128}, {128}),
        (4, "nhwc", "transpose", {128}, {128}),
        ("nhwc", 4, "transpose", {128}, {128}),
        (4, "nchw", "", {8, 32, 64, 128}, {32, 64, 128}),
        ("nchw", 4, "", {8, 32, 64, 128}, {32, 64, 128}),
        (4, 4, "pointwise", {128}, {128}),
        pytest.param(32, 32, "pointwise", {128}, {128}, marks=slow),
        pytest.param(4, 32, "", {32, 64, 128}, {32, 64, 128}, marks=slow),
        pytest.param(32, 4, "", {32, 64, 128}, {32, 64, 128}, marks=slow),
    ],
)
def test_copies_are_one_kernel_of_wide_accesses(source, result, engine, loads, stores):
    plan = check(moved(source, result))
    (kernel,) = launches(plan)
    assert engine in kernel
    found = accesses(plan)
    assert found[0] <= loads
    assert found[1] <= stores


TRANSPOSED = [(4, "nchw"), ("nchw", 4), (32, "nchw"), ("nchw", 32), (32, 4)]


@pytest.mark.rotating
@pytest.mark.parametrize(("source", "result"), TRANSPOSED)
@pytest.mark.registers
def test_large_copies_go_through_tiles(source, result):
    """Read and written 16 bytes at a time; with work on the way where no vector stays whole."""
    dims = (32, 256, 56, 56)
    for op in (None, lambda g, x: g.relu(x)) if "nchw" in (source, result) else (None,):
        graph = moved(source, result, dims, op).graph.finalize()
        (choice,) = heuristics.best_config(graph, of("sm_90a")).choices
        assert choice.engine.name == "transpose"
        plan = compile_graph(graph, "sm_90a")
        assert accesses(plan) == ({128}, {128})
        (kernel,) = plan.programs[0].kernels
        assert (kernel.spill_store_bytes, kernel.local_bytes) == (0, 0)


def checked_in_tiles(g):
    """The graph's plan, checked, by the first candidate: its tiles have a short side."""
    knobs = engine_named("transpose").candidates(whole(g), of("sm_90"))[0]
    return check(g, engine="transpose", knobs=knobs, target="sm_90")


@pytest.mark.rotating
@pytest.mark.parametrize(("source", "result"), TRANSPOSED)
@pytest.mark.parametrize("dims", [(1, 32, 32, 36), pytest.param((2, 64, 9, 7), marks=slow)])
def test_tiles_of_short_sides(source, result, dims):
    """Images that are no whole tiles; those of an odd number of pixels element by element."""
    for op in (None, lambda g, x: g.relu(x)) if "nchw" in (source, result) else (None,):
        plan = checked_in_tiles(moved(source, result, dims, op))
        if dims[2] % 4 == 0:
            assert accesses(plan) == ({128}, {128})


@pytest.mark.rotating
@pytest.mark.parametrize("io", ["f16", "f32"])
@pytest.mark.parametrize(("source", "result"), [(4, "nchw"), ("nchw", 4)])
def test_tiles_of_wider_vectors(source, result, io):
    plan = checked_in_tiles(moved(source, result, (1, 8, 32, 36), io=io))
    assert accesses(plan) == ({128}, {128})


@slow
@pytest.mark.parametrize(("source", "result"), TRANSPOSED)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.registers
def test_no_tile_of_vectors_spills(source, result, target):
    graph = moved(source, result, (32, 256, 56, 56)).graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    for knobs in engine_named("transpose").candidates(fusion, of(target)):
        options = Options(engine="transpose", knobs=tuple(knobs.items()))
        (kernel,) = compile_graph(graph, target, options).programs[0].kernels
        assert (kernel.spill_store_bytes, kernel.local_bytes) == (0, 0), knobs
        assert kernel.registers <= 128


@pytest.mark.parametrize("io", ["ui8", "f8E4M3FN", pytest.param("f16", marks=slow)])
def test_elements_of_other_types_are_moved_as_they_are(io):
    plan = check(moved(4, "nhwc", io=io), target="sm_90")
    assert accesses(plan)[1] == {128}


def test_sizes_may_be_symbols():
    n, h, w = N, H, W
    plan = check(moved(32, "nhwc", (n, 64, h, w)), {"N": 2, "H": 5, "W": 7})
    assert accesses(plan) == ({128}, {128})


@pytest.mark.parametrize("count", [4, pytest.param(32, marks=slow)])
def test_pointwise_work_goes_through_memory_as_it_lies(count):
    def op(g, x):
        other = vectorized(g, (2, 64, 8, 8), count)
        bias = g.tensor([1, 64 // count, 1, 1], vector_count=count, vector_dimension=1)
        return g.relu(g.add(g.add(x, other), bias))

    plan = check(moved(count, count, op=op))
    assert len(launches(plan)) == 1
    bits = 8 * min(16, count)  # the bias is one of each channel
    assert accesses(plan)[1] == {bits}
    assert bits in accesses(plan)[0]


def test_outputs_of_vectors_and_of_elements_are_one_kernel():
    g = new_graph(intermediate_data_type="i8")
    y = g.relu(vectorized(g, (2, 64, 8, 8), 32)).set_output()
    z = g.neg(y).set_output()
    y.set_vector_count_and_dimension(32, 1)
    z.set_stride(strides((2, 64, 8, 8), ORDERS["nhwc"]))
    assert len(launches(check(g))) == 1


@pytest.mark.parametrize("count", [4, 32])
def test_pooling_reads_and_writes_whole_fragments(count):
    def op(g, x):
        return g.resample(
            x, resample_mode="MAXPOOL", window=[2, 2], stride=[2, 2], pre_padding=[0, 0],
            post_padding=[0, 0], padding_mode="NEG_INF_PAD",
        )  # fmt: skip

    g = new_graph(intermediate_data_type="i8")
    y = op(g, vectorized(g, (2, 64, 6, 8), count))
    (y[0] if isinstance(y, tuple) else y).set_output().set_vector_count_and_dimension(count, 1)
    bits = 8 * min(16, count)
    assert accesses(check(g)) == ({bits}, {bits})


# ---- axes that are fine enough


def whole(g):
    graph = g.graph.finalize()
    return partition(graph, [graph.live_ops])[0]


def test_axes_are_cut_where_another_tensor_has_them_cut():
    made = rewritten_fusion(whole(moved(4, 32, op=lambda g, x: g.relu(x))), REFINED)
    assert {tuple(size.constant for size in t.shape) for t in made.tensors} == {(2, 2, 8, 4, 8, 8)}
    (x,), (y,) = made.inputs, made.outputs
    assert [size.constant for size in x.layout] == [4096, 2048, 256, 1, 32, 4]
    assert [size.constant for size in y.layout] == [4096, 2048, 4, 1, 256, 32]


def test_short_rows_that_are_moved_are_elements():
    (op,) = rewritten_fusion(whole(moved(4, "nhwc")), REFINED).ops
    assert isinstance(op, Reshape)
    assert {op.x.type, op.y.type} == {dtypes.i32}
    assert [size.constant for size in op.x.shape] == [2, 16, 1, 8, 8]
    assert [size.constant for size in op.x.layout][:2] == [1024, 64]


@pytest.mark.parametrize(
    "dims", [([2, 6], [3, 4], [12]), ([6, 4], [4, 6], [2, 12])], ids=["one to many", "no cut"]
)
def test_reshapes_of_any_dims(dims):
    first, second, third = dims
    g = new_graph(io_data_type="f32")
    x = g.tensor(first)
    y = g.reshape(g.relu(x), reshape_mode="LOGICAL").set_dim(second)
    z = g.reshape(g.neg(y), reshape_mode="LOGICAL").set_dim(third).set_output()
    z.set_data_type("f32")
    check(g)


def test_what_counts_indices_is_left_as_it_is():
    g = new_graph(intermediate_data_type="f32")
    x = vectorized(g, (2, 8, 3, 5), 4)
    g.add(x, g.gen_index(x, axis=1)).set_output().set_vector_count_and_dimension(4, 1)
    fusion = whole(g)
    assert rewritten_fusion(fusion, REFINED) is fusion


# ---- convolutions


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("target", "count", "y_count"),
    [
        ("sm_80", 32, None),
        ("sm_90a", 4, 1),
        pytest.param("sm_80", 4, None, marks=slow),
        pytest.param("sm_90a", 32, None, marks=slow),
    ],
)
def test_a_layer(target, count, y_count):
    check(layer(count, y_count=y_count), target=target)


@pytest.mark.in_turn
def test_a_layer_of_groups():
    check(layer(4, (1, 32, 4, 5), (32, 16, 3, 3)), target="sm_80")


@pytest.mark.in_turn
@pytest.mark.parametrize("target", ["sm_90a", pytest.param("sm_80", marks=slow)])
@pytest.mark.parametrize("count", [32, pytest.param(4, marks=slow)])
def test_operands_of_a_layer_are_copied_first(target, count):
    """Small layers are cut as the large ones of the next test are."""
    g = layer(count, (1, 64, 6, 5))
    plan = check(g, target=target, partition="0|1|2 3 4 5|6")
    names = launches(plan)
    assert len(names) == 4
    assert ("conv_sm90" if target == "sm_90a" else "conv_sm80") in names[2]


@pytest.mark.rotating
@pytest.mark.parametrize(("target", "engine"), [("sm_90a", "conv_sm90"), ("sm_80", "conv_sm80")])
@pytest.mark.parametrize("count", [4, 32])
@pytest.mark.parametrize("y_count", [1, None])
def test_large_layers_are_of_copies_and_the_engine_of_channels_last(target, engine, count, y_count):
    g = layer(count, (32, 256, 28, 28), (256, 256, 3, 3), y_count)
    config = heuristics.best_config(g.graph.finalize(), of(target))
    named = [choice.engine.name for choice in config.choices]
    copies = "pointwise" if count == 32 else "transpose"
    assert named == [copies, copies, engine, *([copies] if y_count is None else [])]


def test_small_layers_take_no_copies():
    g = layer(32, (1, 64, 6, 5), y_count=1)
    (choice,) = heuristics.best_config(g.graph.finalize(), of("sm_80")).choices
    assert choice.engine.name == "conv_sm80"
