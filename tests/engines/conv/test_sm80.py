"""Engine conv_sm80 in the interpreter: gathers, layouts, what comes before and after, refusals."""

import itertools

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference
from dnnc.engines import engine_named
from dnnc.engines.conv.filter_sm80 import filter_matrix
from dnnc.engines.conv.pattern import conv_of, shape_of
from dnnc.engines.conv.sm80 import CONV_SM80
from dnnc.engines.conv.tiles_sm80 import Depth
from dnnc.engines.product.knobs_sm80 import WARPS
from dnnc.target import TARGETS, of
from tests.support.checked import check, random_inputs

from .convs import CASES, MORE, H, N, W, around, convolved, image, packed, ptx_of
from .test_pattern import CASES as OTHER_LAYOUTS
from .test_pattern import channels_last, new_graph
from .test_pattern import convolved as convolved_in

SMALL = {"TILE_M": 32, "TILE_N": 64}


def run(g, sizes=None, *, knobs=SMALL, **options):
    return check(g, sizes, engine="conv_sm80", knobs=knobs, **options)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_shapes(name):
    x, w, parameters = {**CASES, **MORE}[name]
    g = new_graph()
    convolved(g, x, w, **parameters).set_output()
    ptx = ptx_of(run(g))
    assert "cp.async.cg" in ptx
    assert "ld.global.nc.b16" not in ptx  # no operand comes element by element
    assert "mma.sync" in ptx


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", OTHER_LAYOUTS)
def test_layouts_and_channels_that_copies_do_not_take(name):
    """NCHW, three channels, depthwise: elements come one by one."""
    x, w, parameters, layout = OTHER_LAYOUTS[name]
    g = new_graph()
    convolved_in(g, x, w, layout, **parameters)
    run(g)


@pytest.mark.rotating
@pytest.mark.parametrize(("channels", "bytes_"), [(8, 16), (4, 8), (6, 4)])
def test_channels_of_fewer_bytes_are_copied_in_smaller_parts(channels, bytes_):
    g = new_graph()
    convolved(g, [2, channels, 7, 6], [24, channels, 3, 3], **around(1)).set_output()
    assert f"], {bytes_}, %r" in ptx_of(run(g))


@pytest.mark.rotating
@pytest.mark.parametrize("alignment", [4, 2])
def test_images_that_are_aligned_to_less(alignment):
    g = new_graph()
    x = image(g, [1, 8, 5, 6])
    x.set_alignment(alignment)
    g.conv_fprop(x, image(g, [16, 8, 3, 3]), **around(1)).set_output()
    plan = run(g)
    assert ("], 4, %r" in ptx_of(plan)) == (alignment == 4)


def test_an_axis_of_one_element_does_not_unalign_copies():
    """Its stride is any number, and taps beside it, which read nothing, have an address too."""
    g = new_graph()
    x = g.tensor([2, 8, 1], [8, 1, 1])
    g.conv_fprop(x, image(g, [16, 8, 3]), **around(1, spatial=1)).set_output()
    assert "], 16, %r" in ptx_of(run(g))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("channels", [16, 3])
def test_one_plan_serves_every_size(channels, n):
    g = new_graph()
    w = image(g, [24, channels, 3, 3])
    y = g.conv_fprop(image(g, [N, channels, H, W]), w, **around(1, 2))
    g.relu(g.add(y, image(g, [N, 24, *y.get_dim()[2:]]))).set_output()
    run(g, {"N": n, "H": 7, "W": 4 + n})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("channels", [16, 3])
def test_images_of_more_elements_than_32_bits_count(channels):
    g = new_graph()
    x = image(g, [dnnc.Dim("N", max=1 << 20), channels, 40, 20])
    g.conv_fprop(x, image(g, [8, channels, 3, 3]), **around(1, 4)).set_output()
    assert "mul.lo.s64" in ptx_of(run(g, {"N": 2}))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("tile", WARPS, ids=str)
def test_every_tile(tile):
    g = new_graph()
    convolved(g, [1, 8, 12, 12], [tile[1] + 8, 8, 2, 1], **around(1)).set_output()
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": 32, "STAGES": 3}
    run(g, knobs=knobs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("depth", "stages"), [(32, 2), (32, 6), (64, 2), (64, 3)])
@pytest.mark.parametrize("channels", [3, 64])
def test_depths_and_stages(channels, depth, stages):
    g = new_graph()
    convolved(g, [1, channels, 6, 5], [16, channels, 3, 2], **around(1)).set_output()
    run(g, knobs={**SMALL, "TILEK": depth, "STAGES": stages})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("taps", "spatial", "layout"),
    [(31, 1, "NHWC"), (31, 1, "NCHW"), (40, 1, "NHWC"), (40, 1, "NCHW"), (17, 2, "NHWC")],
)
def test_filters_of_as_many_taps_as_a_number_has_bits_and_more(taps, spatial, layout):
    """With more taps than bits, places are compared to find which lie on padding."""
    g = new_graph()
    x, w = [1, 8, *[9] * spatial], [8, 8, taps, *[15] * (spatial - 1)]
    convolved_in(g, x, w, layout, **around(16, 4, spatial=spatial))
    run(g, slack=4.0)


# ---- types


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("channels", [16, 3])
def test_bf16_and_a_flipped_filter(channels):
    g = new_graph(dtypes.bf16)
    mode = {"convolution_mode": "CONVOLUTION"}
    x, w = [1, channels, 6, 5], [24, channels, 3, 2]
    convolved(g, x, w, **around(1), **mode).set_output()
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("channels", [32, 12, 3])
def test_integers_are_exact(channels):
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    y = convolved(g, [2, channels, 5, 4], [40, channels, 3, 3], **around(1))
    y.set_output().set_data_type(dtypes.i32)
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("products", "allowance"), [(3, 2.0**-20), (1, 2.0**-10)])
@pytest.mark.parametrize("channels", [20, 3])
def test_f32_as_tf32(channels, products, allowance):
    g = new_graph(dtypes.f32)
    convolved(g, [1, channels, 5, 4], [24, channels, 3, 3], **around(1)).set_output()
    plan = run(g, allowance=allowance, knobs={**SMALL, "TF32": products})
    (fusion,) = plan.programs[0].fusions
    assert ("DOWN_CONVERT_INPUTS" in fusion.notes) == (products == 1)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("channels", [8, 3])
def test_infinities_fall_where_the_reference_has_them(channels):
    """A tap on padding is a zero that is multiplied; no tap past k's end is."""
    g = new_graph()
    convolved(g, [1, channels, 5, 5], [8, channels, 3, 3], **around(1)).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    x, w = graph.inputs
    inputs[x.uid][0, 2, 2, 2] = np.inf
    inputs[w.uid][2, 1, 0, 0] = -np.inf
    values = reference(graph, inputs)[graph.outputs[0].uid]
    assert np.isnan(values).any()
    assert np.isinf(values).any()
    run(g, inputs=inputs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("c_group", [8, 2, 3])
def test_an_infinite_channel_stays_in_its_group(c_group):
    g = new_graph()
    x, w = [1, 2 * c_group, 4, 4], [32, c_group, 3, 3]
    convolved(g, x, w, **around(1)).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    inputs[graph.inputs[0].uid][0, c_group] = np.inf
    values = reference(graph, inputs)[graph.outputs[0].uid]
    assert np.isfinite(values[:, :16]).all()
    run(g, inputs=inputs)


# ---- what comes before


def scaled(g, x, channels):
    """relu(x * scale + bias), whose padding is zeros though relu(bias) is not."""
    scale, bias = (g.tensor([1, channels, 1, 1], data_type=dtypes.f32) for _ in range(2))
    return g.relu(g.add(g.mul(x, scale), bias)).set_data_type(dtypes.f16)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("channels", "c_group", "layout"),
    [(16, 16, "NHWC"), (16, 8, "NHWC"), (12, 12, "NHWC"), (16, 16, "NCHW"), (6, 3, "NCHW")],
)
def test_scale_bias_and_relu_before_and_after(channels, c_group, layout):
    g = new_graph()
    strides = channels_last if layout == "NHWC" else packed
    dims = [N, channels, 5, 6]
    x = scaled(g, g.tensor(dims, strides(dims)), channels)
    y = g.conv_fprop(x, image(g, [24, c_group, 3, 3]), **around(1, 2))
    g.relu(g.add(y, g.tensor([1, 24, 1, 1]))).set_output()
    plan = run(g, {"N": 3}, slack=4.0)
    assert [fusion.engine for fusion in plan.programs[0].fusions] == ["conv_sm80"]


@pytest.mark.in_turn
def test_images_and_filters_of_8_bits_are_dequantised_on_the_way():
    g = new_graph()
    x, w = (image(g, dims, data_type=dtypes.i8) for dims in ([1, 16, 5, 5], [24, 16, 3, 3]))
    wide = [g.mul(t, g.tensor([1] * 4)).set_data_type(dtypes.f16) for t in (x, w)]
    g.conv_fprop(*wide, **around(1)).set_output()
    run(g, slack=4.0)


@pytest.mark.in_turn
def test_a_sum_of_two_images_of_other_layouts():
    g = new_graph()
    dims = [2, 8, 4, 5]
    x = g.add(image(g, dims), g.tensor(dims)).set_data_type(dtypes.f16)
    g.conv_fprop(x, image(g, [8, 8, 3, 3]), **around(1)).set_output()
    run(g, slack=3.0)


@pytest.mark.in_turn
def test_a_view_before():
    g = new_graph()
    x = g.slice(image(g, [2, 16, 6, 7]), [slice(None), slice(4, 12), slice(1, 5), slice(None)])
    g.conv_fprop(x, image(g, [8, 8, 3, 3]), **around(1)).set_output()
    run(g)


# ---- what comes after


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("io", ["f16", "bf16"])
def test_scale_bias_residual_relu_and_two_outputs(io):
    g = new_graph(dtypes.of(io))
    y = convolved(g, [2, 16, 6, 7], [72, 16, 3, 3], **around(1))
    scale, bias = g.tensor([1, 72, 1, 1]), g.tensor([1, 72, 1, 1], data_type=dtypes.f32)
    biased = g.add(g.mul(y, scale), bias).set_output().set_data_type(dtypes.f32)
    g.relu(g.add(biased, image(g, [2, 72, 6, 7]))).set_output()
    run(g, slack=3.0)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("layout", "q", "groups"),
    [
        ("NCHW", 8, 1),
        ("NCHW", 6, 2),
        ("NCHW", 5, 1),
        ("gaps between rows", 6, 2),
        ("gaps between pixels", 5, 1),
    ],
)
def test_output_layouts(layout, q, groups):
    g = new_graph()
    y = convolved(g, [2, 16, 5, q], [40, 16 // groups, 3, 3], **around(1)).set_output()
    strides = {
        "NCHW": packed([2, 40, 5, q]),
        "gaps between rows": [(q + 2) * 5 * 40, 1, (q + 2) * 40, 40],
        "gaps between pixels": [5 * q * 48, 1, q * 48, 48],
    }
    y.set_stride(strides[layout])
    run(g)


@pytest.mark.in_turn
def test_broadcasts_residuals_and_numbers_by_value():
    g = new_graph()
    y = convolved(g, [2, 16, 5, 6], [24, 16, 3, 3], **around(1))
    of_images, of_rows = g.tensor([2, 1, 1, 1]), g.tensor([1, 24, 5, 1])
    alpha = g.tensor([1, 1, 1, 1], data_type=dtypes.f32, is_pass_by_value=True)
    sums = g.add(g.mul(y, of_images), g.mul(y, of_rows))
    g.add(sums, g.mul(g.tensor([2, 24, 5, 6], packed([2, 24, 5, 6])), alpha)).set_output()
    run(g, slack=4.0)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("output", ["f32", "f8E4M3FN", "i8", "i32"])
def test_output_types(output):
    g = new_graph(target="sm_90")
    y = convolved(g, [1, 16, 5, 6], [48, 16, 3, 3], **around(1)).set_output()
    y.set_data_type(dtypes.of(output))
    run(g, target="sm_90")


# ---- how k is counted


def the_fusion(g):
    (fusion,) = partition(g.graph.finalize(), [g.graph.live_ops])
    return fusion


def conv_shape(w, strides):
    g = new_graph()
    g.conv_fprop(image(g, [1, w[1], 9, 9]), g.tensor(w, strides), **around(0)).set_output()
    op = conv_of(the_fusion(g))
    return op.w, shape_of(op)


@pytest.mark.parametrize("axes", list(itertools.permutations((1, 2, 3))), ids=str)
def test_k_counts_through_the_axes_of_the_filter(axes):
    _, shape = conv_shape([4, 5, 2, 3], packed([4, 5, 2, 3]))
    depth = Depth.of(shape, axes)
    assert depth.size == 30
    extents = {1: 5, 2: 2, 3: 3}
    places = itertools.product(*(range(extents[axis]) for axis in axes))
    for k, place in enumerate(places):
        assert depth.split(k) == dict(zip(axes, place, strict=True))


def test_a_filter_is_a_matrix_where_its_axes_nest_in_the_order_of_k():
    w, shape = conv_shape([4, 5, 2, 3], channels_last([4, 5, 2, 3]))
    last, first = (Depth.of(shape, axes) for axes in ((2, 3, 1), (1, 2, 3)))
    matrix = filter_matrix(w, shape, last)
    assert [n.constant for n in matrix.shape] == [1, 30, 4]
    assert [n.constant for n in matrix.layout] == [120, 1, 30]
    assert filter_matrix(w, shape, first) is None
    w, shape = conv_shape([4, 5, 2, 3], [64, 1, 24, 8])  # gaps between taps
    assert filter_matrix(w, shape, last) is None


# ---- which engine

LAYERS = {
    "3x3": ([32, 64, 56, 56], [64, 64, 3, 3], around(1)),
    "1x1": ([32, 256, 56, 56], [512, 256, 1, 1], around(0, 2)),
    "7x7": ([32, 512, 7, 7], [512, 512, 3, 3], around(1)),
    "first": ([32, 3, 224, 224], [64, 3, 7, 7], around(3, 2)),
}


def chosen(x, w, parameters, target, layout="NHWC"):
    g = new_graph()
    convolved_in(g, x, w, layout, **parameters)
    return heuristics.choices(the_fusion(g), of(target))[0].engine.name


@pytest.mark.parametrize("target", [t.name for t in TARGETS if t.name != "sm_90a"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_its_own_where_no_other_engine_takes_them(name, target):
    assert chosen(*LAYERS[name], target) == "conv_sm80"


@pytest.mark.parametrize("name", LAYERS)
def test_hopper_has_its_own_engines(name):
    expected = "conv_stem_sm90" if name == "first" else "conv_sm90"
    assert chosen(*LAYERS[name], "sm_90a") == expected


@pytest.mark.parametrize(
    ("target", "engine"), [("sm_80", "conv_sm80"), ("sm_90", "conv_sm80"), ("sm_90a", "conv_sm90")]
)
@pytest.mark.parametrize(
    ("x", "w", "layout"),
    [
        ([32, 64, 28, 28], [64, 64, 3, 3], "NCHW"),
        ([32, 66, 28, 28], [64, 66, 3, 3], "NHWC"),
    ],
    ids=["NCHW", "66 channels"],
)
def test_layouts_that_hopper_copies_first_are_its_own_elsewhere(x, w, layout, target, engine):
    assert chosen(x, w, around(1), target, layout) == engine


def test_every_candidate_is_legal():
    g = new_graph()
    convolved(g, *LAYERS["3x3"][:2], **LAYERS["3x3"][2]).set_output()
    fusion, target = the_fusion(g), of("sm_80")
    found = CONV_SM80.candidates(fusion, target)
    assert {(knobs["TILE_M"], knobs["TILE_N"]) for knobs in found} == set(WARPS)
    for knobs in found:
        assert CONV_SM80.legal(knobs, fusion, target) == ()
        assert set(knobs) == {knob.name for knob in CONV_SM80.knobs(fusion, target)}


# ---- vectorised layouts: NC/4HW4 and NC/32HW32 as views of five dims


def vectorised(g, dims, count):
    """[N, C / count, H, W, count] in memory, as [N, C, H, W]."""
    n, c, h, w = dims
    stored = [n, c // count, h, w, count]
    apart = g.transpose(g.tensor(stored, packed(stored)), [0, 1, 4, 2, 3])
    return g.reshape(apart).set_dim(dims)


@pytest.mark.in_turn
@pytest.mark.parametrize("count", [4, pytest.param(32, marks=pytest.mark.slow)])
def test_vectorised_channels_are_read_in_place(count):
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32, intermediate_data_type=dtypes.i8)
    x, w = vectorised(g, [1, 32, 3, 4], count), vectorised(g, [8, 32, 3, 3], count)
    g.conv_fprop(x, w, **around(1)).set_output().set_data_type(dtypes.i32)
    plan = run(g)
    assert len(plan.programs[0].kernels) == 1


# ---- refusals


def _doubles(g):
    x, w = (image(g, [16, 16, 3, 3]) for _ in range(2))
    g.conv_fprop(x, w, compute_data_type=dtypes.f64, **around(1)).set_output()


def _too_many(g):
    dims = [dnnc.Dim("B", max=1 << 16), 1, 256, 256]
    convolved(g, dims, [1, 1, 1, 1], **around(0)).set_output()


def _mask(g):
    y = convolved(g, [1, 16, 5, 5], [12, 16, 3, 3], **around(1))
    g.cmp_gt(y, 0).set_output().set_data_type(dtypes.i1)


def _sums(g):
    y = convolved(g, [1, 16, 5, 5], [16, 16, 3, 3], **around(1))
    g.reduction(y, "add").set_dim([1, 16, 5, 1]).set_output()


def _product(g):
    g.matmul(g.tensor([1, 8, 8]), g.tensor([1, 8, 8])).set_output()


def _beside(g):
    x = image(g, [1, 16, 5, 5])
    g.conv_fprop(x, image(g, [16, 16, 3, 3]), **around(1)).set_output()
    g.relu(x).set_output()


@pytest.mark.parametrize(
    ("build", "clause", "what"),
    [
        (_doubles, "compute type", "DOUBLE for f16"),
        (_too_many, "size", "pixels"),
        (_mask, "boolean output", "of dims [1, 12, 5, 5]"),
        (_sums, "operations", "reduction"),
        (_product, "operations", "matmul"),
        (_beside, "operations", "does not follow the product"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_refusals(build, clause, what):
    g = new_graph()
    build(g)
    reasons = {r.clause: r for r in CONV_SM80.supports(the_fusion(g), of("sm_80"))}
    assert what in reasons[clause].what
    assert reasons[clause].supported


@pytest.mark.parametrize(
    ("channels", "knobs", "what", "supported"),
    [
        (16, {"TILE_M": 256, "TILE_N": 256}, "tile 256x256", "256x128"),
        (16, {"TILEK": 64, "STAGES": 6, "TILE_N": 256}, "bytes", "at most"),
        (3, {"TILEK": 64, "TILE_N": 64}, "tile 128x64x64 of an X", "64 bytes of X a thread"),
    ],
    ids=str,
)
def test_knobs_that_do_not_go_together(channels, knobs, what, supported):
    g = new_graph()
    convolved(g, [1, channels, 5, 5], [16, channels, 3, 3], **around(1)).set_output()
    whole = {"TILE_M": 128, "TILE_N": 128, "TILEK": 32, "STAGES": 3, **knobs}
    (reason,) = CONV_SM80.legal(whole, the_fusion(g), of("sm_80"))
    assert what in reason.what
    assert supported in reason.supported


def test_the_engine_is_found_by_its_name():
    assert engine_named("conv_sm80") is CONV_SM80
    assert CONV_SM80.index == 13
