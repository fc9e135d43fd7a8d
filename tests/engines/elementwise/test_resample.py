"""Engine resample in the interpreter: modes, paddings, layouts, types, neighbours, backward."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference
from dnnc.engines import engine_named
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check, random_inputs

N = dnnc.Dim("N", min=1, max=64)

POOLS = ("MAXPOOL", "AVGPOOL_INCLUDE_PADDING", "AVGPOOL_EXCLUDE_PADDING")
UPSAMPLINGS = ("BILINEAR", "NEAREST")


def new_graph(io=dtypes.f16, **options):
    defaults = {
        "io_data_type": io,
        "intermediate_data_type": dtypes.f32,
        "compute_data_type": dtypes.f32,
        "target": "sm_80",
    }
    return dnnc.pygraph("resample", **{**defaults, **options})


def channels_last(dims):
    """Strides that pack the dims with the channels innermost."""
    strides, running = [0] * len(dims), 1
    for axis in (1, *reversed(range(2, len(dims))), 0):
        strides[axis] = running
        running *= dims[axis]
    return strides


def image(g, dims, layout="NHWC", **options):
    return g.tensor(dims, channels_last(dims) if layout == "NHWC" else None, **options)


def parameters(pre, post, stride, window):
    return {"pre_padding": pre, "post_padding": post, "stride": stride, "window": window}


USUAL = parameters([1, 1], [1, 1], [2, 2], [3, 3])
UNEVEN = parameters([0, 1], [1, 0], [1, 3], [2, 2])
DOUBLED = parameters([0, 0], [0, 0], [(1, 2), (1, 2)], [(1, 2), (1, 2)])
AROUND = parameters([3.5, 2], [4, 2.5], [0.25, 0.75], [2, 1])  # outputs wholly outside
OF_CUDNN = parameters([0.5, 0.5], [1, 1], [0.5, 0.5], [2, 2])


def pooled(g, dims, mode, where, layout="NHWC", generate_index=False):
    """The results of a resample of an input, as outputs in its layout."""
    y, index = g.resample(image(g, dims, layout), mode, **where, generate_index=generate_index)
    for tensor in (y, index):
        if tensor is not None:
            tensor.set_output()
            if layout == "NCHW":
                tensor.set_stride(packed(tensor.get_dim()))
    return y, index


def packed(dims):
    return [int(np.prod(dims[axis + 1 :])) for axis in range(len(dims))]


@pytest.mark.rotating
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("mode", POOLS)
@pytest.mark.parametrize("where", [USUAL, UNEVEN], ids=["usual", "uneven"])
def test_pooling(mode, where, layout):
    g = new_graph()
    pooled(g, [2, 8, 7, 6], mode, where, layout)
    check(g, engine="resample")


@pytest.mark.rotating
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("mode", UPSAMPLINGS)
@pytest.mark.parametrize("where", [DOUBLED, OF_CUDNN], ids=["doubled", "of_cudnn"])
def test_upsampling(mode, where, layout):
    g = new_graph()
    y, _ = pooled(g, [1, 8, 3, 5], mode, where, layout)
    assert y.get_dim() == [1, 8, 6, 10]
    check(g, engine="resample")


@pytest.mark.rotating
@pytest.mark.parametrize("io", [dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.i8], ids=str)
@pytest.mark.parametrize("channels", [3, 12, 16])
def test_types_of_max_pooling(io, channels):
    g = new_graph(io)
    pooled(g, [1, channels, 5, 4], "MAXPOOL", USUAL)
    check(g, engine="resample", slack=0.0)


@pytest.mark.parametrize("io", [dtypes.f64, dtypes.i32, dtypes.ui8, dtypes.f8e4m3], ids=str)
def test_other_types(io):
    g = new_graph(io, target="sm_90")
    compute = dtypes.f64 if io == dtypes.f64 else dtypes.f32
    y, _ = g.resample(
        image(g, [1, 4, 5, 4]), "AVGPOOL_EXCLUDE_PADDING", **USUAL, compute_data_type=compute
    )
    y.set_output()
    check(g, target="sm_90", engine="resample")


@pytest.mark.rotating
@pytest.mark.parametrize("mode", [*POOLS, *UPSAMPLINGS])
@pytest.mark.parametrize("spatial", [[9], [3, 4, 5]], ids=["1d", "3d"])
def test_one_and_three_dims(mode, spatial):
    count = len(spatial)
    where = parameters([1] * count, [0] * count, [2] * count, [2] * count)
    if mode in UPSAMPLINGS:
        where = parameters([0] * count, [0] * count, [(1, 2)] * count, [(1, 2)] * count)
    g = new_graph(dtypes.f32)
    pooled(g, [2, 4, *spatial], mode, where)
    check(g, engine="resample")


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_index_of_the_first_maximum(layout):
    """Values of few kinds, so that most windows have several maxima."""
    g = new_graph()
    dims = [2, 8, 7, 6]
    y, index = pooled(g, dims, "MAXPOOL", USUAL, layout, generate_index=True)
    assert (y.get_dim(), index.get_data_type()) == ([2, 8, 4, 3], dtypes.i8)
    x = np.random.default_rng(0).integers(-1, 2, dims).astype(np.float16)
    check(g, inputs={g.graph.finalize().inputs[0].uid: x}, engine="resample", slack=0.0)


def test_index_of_a_large_window_is_wider():
    g = new_graph()
    where = parameters([0, 0], [0, 0], [1, 1], [12, 12])
    _, index = pooled(g, [1, 2, 13, 13], "MAXPOOL", where, generate_index=True)
    assert index.get_data_type() == dtypes.i32
    check(g, engine="resample")


@pytest.mark.parametrize("generate_index", [False, True])
@pytest.mark.parametrize("io", [dtypes.f16, dtypes.f32], ids=str)
def test_special_values_of_max_pooling(io, generate_index):
    """NaN is above all, infinities and zeros of both signs are numbers like others."""
    g = new_graph(io)
    where = parameters([1], [1], [1], [2])
    y, index = pooled(g, [1, 1, 12], "MAXPOOL", where, "NCHW", generate_index)
    values = [1, np.nan, 3, np.nan, -np.inf, -np.inf, np.inf, -0.0, 0.0, -1, -np.inf, -np.nan]
    inputs = {g.graph.finalize().inputs[0].uid: np.array(values, io.numpy).reshape(1, 1, 12)}
    check(g, inputs=inputs, engine="resample", slack=0.0)
    if generate_index:
        found = reference(g.graph, inputs)[index.uid].ravel().tolist()
        assert found == [1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0]
    assert np.isnan(reference(g.graph, inputs)[y.uid]).sum() == 6


def test_pointwise_neighbours_are_fused():
    g = new_graph()
    dims = [2, 8, 7, 6]
    x = g.mul(image(g, dims), g.tensor([1, 8, 1, 1], data_type=dtypes.f32))
    y, _ = g.resample(x, "MAXPOOL", **USUAL)
    shape = y.get_dim()
    y = g.relu(g.add(g.mul(y, g.tensor([1, 8, 1, 1])), image(g, shape)))
    y.set_output()
    plan = check(g, engine="resample")
    (program,) = plan.programs
    assert len(program.variants[0].steps) == 1


def test_two_images_of_one_size():
    g = new_graph()
    halved = parameters([0, 0], [0, 0], [2, 2], [2, 2])
    smoothed = parameters([1, 1], [1, 1], [1, 1], [3, 3])
    a, _ = g.resample(image(g, [1, 8, 6, 6]), "MAXPOOL", **halved)
    b, _ = g.resample(image(g, [1, 8, 3, 3]), "AVGPOOL_INCLUDE_PADDING", **smoothed)
    g.add(a, b).set_output()
    check(g, engine="resample")


@pytest.mark.in_turn
def test_a_mask_of_pooled_elements():
    g = new_graph()
    y, _ = g.resample(image(g, [1, 8, 6, 6]), "MAXPOOL", **USUAL)
    shape = y.get_dim()
    mask = g.cmp_gt(y, 0.5).set_output().set_data_type(dtypes.i1)
    mask.set_stride(channels_last(shape))
    check(g, engine="resample")


def test_symbols():
    g = new_graph()
    height = dnnc.Dim("H", min=3, max=40)
    x = g.tensor([N, 8, height, 6], [height * 48, 1, 48, 8])
    g.resample(x, "AVGPOOL_EXCLUDE_PADDING", **USUAL)[0].set_output()
    plan = check(g, {"N": 2, "H": 5}, engine="resample")
    check(g, {"N": 1, "H": 8}, plan=plan)


# ---- backward


def gradient(g, dims, mode, where, layout="NHWC", index_type=None, x=False):
    """A resample_backward as the output; index_type: of an index; x: with the input."""
    other = new_graph()
    small = other.resample(other.tensor(dims), mode, **where)[0].get_dim()
    given = {}
    if index_type is not None:
        given["index"] = image(g, small, layout, data_type=index_type)
    if x:
        given |= {"input": image(g, dims, layout), "output": image(g, small, layout)}
    dx = g.resample_backward(image(g, small, layout), mode, **where, **given)
    if not x:
        dx.set_dim(dims)
    return dx


@pytest.mark.rotating
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("mode", POOLS)
@pytest.mark.parametrize("where", [USUAL, UNEVEN], ids=["usual", "uneven"])
def test_backward_pooling(mode, where, layout):
    g = new_graph()
    index_type = dtypes.i8 if mode == "MAXPOOL" else None
    gradient(g, [2, 8, 7, 6], mode, where, layout, index_type).set_output()
    check(g, engine="resample")


@pytest.mark.rotating
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("mode", UPSAMPLINGS)
@pytest.mark.parametrize(
    "where", [DOUBLED, OF_CUDNN, AROUND], ids=["doubled", "of_cudnn", "around"]
)
def test_backward_upsampling(mode, where, layout):
    g = new_graph()
    gradient(g, [1, 8, 3, 5], mode, where, layout).set_output()
    check(g, engine="resample")


@pytest.mark.parametrize("spatial", [[9], [3, 4, 5]], ids=["1d", "3d"])
def test_backward_of_one_and_three_dims(spatial):
    count = len(spatial)
    where = parameters([1] * count, [0] * count, [1] * count, [2] * count)
    g = new_graph(dtypes.f32)
    gradient(g, [2, 4, *spatial], "MAXPOOL", where, index_type=dtypes.i32).set_output()
    check(g, engine="resample")


@pytest.mark.rotating
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_backward_without_an_index_finds_the_maxima_again(layout):
    """dX is that of a kernel that writes an index and one that reads it."""
    g = new_graph()
    dims = [2, 8, 7, 6]
    gradient(g, dims, "MAXPOOL", USUAL, layout, x=True).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    inputs[graph.ops[0].x.uid] = np.random.default_rng(1).integers(-1, 2, dims)
    plan = check(g, inputs=inputs)
    assert len(plan.programs[0].fusions) == 2


def test_backward_with_neighbours():
    g = new_graph()
    dims = [2, 8, 7, 6]
    dx = gradient(g, dims, "AVGPOOL_INCLUDE_PADDING", USUAL)
    g.relu_backward(g.mul(dx, 0.5), image(g, dims)).set_output()
    plan = check(g, engine="resample")
    assert len(plan.programs[0].variants[0].steps) == 1


@pytest.mark.in_turn
def test_backward_is_what_the_forward_direction_read():
    """The sum of dx * x is the sum of dy * y, for modes that are linear in x."""
    for mode, where in (("AVGPOOL_EXCLUDE_PADDING", UNEVEN), ("BILINEAR", OF_CUDNN)):
        rng = np.random.default_rng(2)
        g = new_graph(dtypes.f64)
        x = g.tensor([1, 2, 5, 4])
        y, _ = g.resample(x, mode, **where, compute_data_type=dtypes.f64)
        y.set_output()
        values = rng.uniform(-1, 1, [1, 2, 5, 4])
        (found,) = run(g, {g.graph.finalize().inputs[0].uid: values}).values()
        dy = rng.uniform(-1, 1, found.shape)
        g = new_graph(dtypes.f64)
        dx = g.resample_backward(
            g.tensor(list(dy.shape)), mode, **where, compute_data_type=dtypes.f64
        )
        dx.set_dim([1, 2, 5, 4]).set_output()
        (back,) = run(g, {g.graph.finalize().inputs[0].uid: dy}).values()
        np.testing.assert_allclose(np.sum(back * values), np.sum(dy * found), rtol=1e-12)


def run(g, inputs):
    plan = compile_graph(g.graph.finalize(), machine.current().target)
    return machine.current().run(plan, inputs)


def test_results_repeat_bit_by_bit():
    g = new_graph(dtypes.f32)
    gradient(g, [1, 8, 6, 6], "AVGPOOL_EXCLUDE_PADDING", USUAL).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    first, second = (next(iter(run(g, inputs).values())) for _ in range(2))
    np.testing.assert_array_equal(first.view(np.uint32), second.view(np.uint32))


# ---- code


def test_channels_are_read_and_written_16_bytes_at_a_time():
    for mode in ("MAXPOOL", "AVGPOOL_EXCLUDE_PADDING"):
        g = new_graph()
        g.resample(g.tensor([N, 16, 8, 8], [1024, 1, 128, 16]), mode, **USUAL)[0].set_output()
        ptx = check(g, {"N": 1}, engine="resample").blobs[1].decode()
        assert "ld.global.v4.b32" in ptx or "ld.global.nc.v4.b32" in ptx
        assert "st.global.v4.b32" in ptx
        assert "atom" not in ptx


@pytest.mark.parametrize("knobs", [{"LOAD_SIZE": 4}, {"ARRAY_SIZE_PER_THREAD": 4}], ids=str)
def test_knobs(knobs):
    g = new_graph()
    pooled(g, [3, 8, 5, 5], "MAXPOOL", USUAL)
    check(g, engine="resample", knobs=knobs, slack=0.0)


# ---- patches


def patch(rows, columns):
    return {"TILE_ROWS": rows, "TILE_COLS": columns}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("knobs", [patch(2, 2), patch(3, 1), patch(1, 4)], ids=str)
@pytest.mark.parametrize("where", [USUAL, UNEVEN], ids=["usual", "uneven"])
@pytest.mark.parametrize("mode", POOLS)
def test_patches_of_pooling(mode, where, knobs):
    """7 x 6 pixels: patches end inside, and reach past the end."""
    g = new_graph()
    pooled(g, [2, 8, 7, 6], mode, where)
    check(g, engine="resample", knobs=knobs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("knobs", [patch(2, 2), patch(2, 3), patch(4, 1)], ids=str)
@pytest.mark.parametrize("dims", [[2, 8, 7, 6], [1, 8, 8, 4]], ids=["ends", "whole"])
@pytest.mark.parametrize("where", [USUAL, UNEVEN], ids=["usual", "uneven"])
@pytest.mark.parametrize("mode", POOLS)
def test_patches_of_gradients(mode, where, dims, knobs):
    g = new_graph()
    index_type = dtypes.i8 if mode == "MAXPOOL" else None
    gradient(g, dims, mode, where, index_type=index_type).set_output()
    check(g, engine="resample", knobs=knobs)


@pytest.mark.in_turn
@pytest.mark.parametrize("mode", UPSAMPLINGS)
def test_patches_of_upsampling(mode):
    for make in (pooled, lambda *a: gradient(*a).set_output()):
        g = new_graph()
        make(g, [1, 8, 3, 5], mode, OF_CUDNN)
        check(g, engine="resample", knobs=patch(2, 2))


def test_patches_of_rows_along_which_fragments_lie():
    g = new_graph()
    gradient(g, [1, 2, 7, 16], "MAXPOOL", USUAL, "NCHW", dtypes.i8).set_output()
    check(g, engine="resample", knobs=patch(2, 1))
    with pytest.raises(dnnc.DnncError, match="patches of 2 along the stride of 1"):
        check(g, engine="resample", knobs=patch(1, 2))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_patches_beside_an_axis_of_one(layout):
    """Fragments lie along the innermost axis that is longer: an axis of 1 has none."""
    where = parameters([1, 1], [1, 1], [1, 1], [3, 3])
    for dims, knobs in (([2, 1, 8, 8], patch(1, 2)), ([2, 1, 8, 8], patch(2, 2))):
        g = new_graph()
        pooled(g, dims, "MAXPOOL", where, layout)
        with pytest.raises(dnnc.DnncError, match="along the stride of 1"):
            check(g, engine="resample", knobs=knobs)
        g = new_graph()
        pooled(g, dims, "MAXPOOL", where, layout)
        check(g, engine="resample", knobs=patch(2, 1))
    g = new_graph()
    gradient(g, [64, 1, 112, 112], "MAXPOOL", where, layout, dtypes.i8).set_output()
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    engine = engine_named("resample")
    found = heuristics.choices(whole, of("sm_90a"), [engine])
    assert {choice.knobs["TILE_COLS"] for choice in found} == {1}
    g = new_graph()
    pooled(g, [2, 8, 8, 1], "MAXPOOL", parameters([1, 0], [1, 0], [1, 1], [3, 1]), "NCHW")
    with pytest.raises(dnnc.DnncError, match="along the stride of 1"):
        check(g, engine="resample", knobs=patch(2, 1))


@pytest.mark.in_turn
@pytest.mark.feature
def test_patches_with_neighbours_sizes_and_several_dims():
    g = new_graph()
    height = dnnc.Dim("H", min=3, max=40)
    x = g.tensor([N, 8, height, 6], [height * 48, 1, 48, 8])
    y, _ = g.resample(g.mul(x, 2.0), "MAXPOOL", **parameters([1, 1], [1, 1], [1, 1], [3, 3]))
    g.add(g.relu(y), x).set_output()
    plan = check(g, {"N": 2, "H": 5}, engine="resample", knobs=patch(2, 2))
    check(g, {"N": 1, "H": 8}, plan=plan)
    g = new_graph(dtypes.f32)
    where = parameters([1] * 3, [1] * 3, [2] * 3, [3] * 3)
    gradient(g, [2, 4, 3, 4, 5], "MAXPOOL", where, index_type=dtypes.i32).set_output()
    check(g, engine="resample", knobs=patch(2, 2))


@pytest.mark.feature
def test_a_patch_of_one_stride_reads_each_window_once():
    """2 x 2 elements lie in 4 windows: a gradient and an index of each; the last patch in rows
    and columns has all of its windows, too."""
    g = new_graph()
    gradient(g, [2, 8, 8, 8], "MAXPOOL", USUAL, index_type=dtypes.i8).set_output()
    plan = check(g, engine="resample", knobs=patch(2, 2), target="sm_90")
    (module,) = plan.programs[0].modules
    ptx = plan.blobs[module.ptx].decode()
    assert ptx.count("ld.global") == 8
    assert ptx.count("st.global") == 4


def test_large_gradients_of_max_pooling_go_by_patches():
    g = new_graph()
    gradient(g, [64, 64, 56, 56], "MAXPOOL", USUAL, index_type=dtypes.i8).set_output()
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    engine = engine_named("resample")
    best = heuristics.choices(whole, of("sm_90a"), [engine])[0].knobs
    assert (best["TILE_ROWS"], best["TILE_COLS"]) == (2, 2)


# ---- refusals


def clauses(g, name="resample"):
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    reasons = engine_named(name).supports(whole, of("sm_90"))
    return [f"{reason.clause}: {reason.what}" for reason in reasons]


def test_windows_of_windows_are_refused_and_split():
    g = new_graph()
    y, _ = g.resample(image(g, [1, 8, 9, 9]), "MAXPOOL", **USUAL, name="first")
    g.resample(y, "MAXPOOL", **USUAL, name="second")[0].set_output()
    assert clauses(g) == ["operations: resample:MAXPOOL 'second' needs resample:MAXPOOL 'first'"]
    assert len(check(g).programs[0].fusions) == 2


def test_other_graphs_are_refused():
    g = new_graph()
    g.relu(g.tensor([4, 4])).set_output()
    assert clauses(g) == ["operations: nothing to resample"]
    g = new_graph()
    y, _ = g.resample(g.tensor([1, 1, 4, 4]), "MAXPOOL", **USUAL)
    g.matmul(y, g.tensor([1, 1, 2, 2])).set_output()
    assert clauses(g) == ["operations: matmul"]
    g = new_graph()
    x = g.relu(g.tensor([1, 8, 4, 4])).set_output()
    g.resample(x, "MAXPOOL", **USUAL)[0].set_output()
    assert clauses(g) == ["operations: outputs of different dims"]


def test_other_engines_refuse_windows():
    g = new_graph()
    g.resample(g.tensor([1, 8, 4, 4]), "MAXPOOL", **USUAL)[0].set_output()
    for name in ("pointwise", "reduction", "rows", "matmul_sm80", "matmul_sm90", "fallback"):
        assert clauses(g, name)
