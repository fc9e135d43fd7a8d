"""Engine conv_product_sm90 in the interpreter: layouts, work around it, symbols, refusals."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics, spills
from dnnc.choosing.choice_text import choice_text
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.engines.conv.product_sm90 import CONV_PRODUCT_SM90
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check, random_inputs

from ..product.test_matmul_sm90 import SMALL
from . import test_pattern as test_conv
from .convs import H, N, W, around, image, packed, ptx_of
from .test_exits_sm90 import ROUNDED, genstats
from .test_layouts import first

TARGET = "sm_90a"
slow = pytest.mark.slow


def new_graph(io=dtypes.f16, **options):
    return test_conv.new_graph(io, target=TARGET, **options)


def run(g, sizes=None, *, knobs=(), **options):
    knobs = {**SMALL, **dict(knobs)}
    options = {"slack": 3.0, **options}
    plan = check(g, sizes, engine="conv_product_sm90", knobs=knobs, target=TARGET, **options)
    assert "wgmma" in ptx_of(plan)
    return plan


def multiplied(g, x, w, **options):
    """Y of an image and of a filter of one tap."""
    return g.conv_fprop(x, w, **around(0, spatial=len(x.get_dim()) - 2), **options)


def stored_first(y):
    return y.set_output().set_stride(packed(y.get_dim()))


def filter_of(g, k, c, spatial=2, **options):
    return g.tensor([k, c, *[1] * spatial], **options)


def fusion_of(g):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return fusion


# X, output channels.
CASES = {
    "pixels past a tile": ([3, 40, 6, 12], 72),
    "rows of no whole 16 bytes": ([2, 24, 7, 7], 40),
    "one image": ([1, 64, 8, 16], 64),
    "1D": ([2, 16, 24], 24),
    "3D": ([2, 16, 2, 3, 8], 24),
    "one row": ([2, 72, 1, 80], 8),
}


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    x, k = CASES[name]
    g = new_graph(dtypes.bf16 if name == "1D" else dtypes.f16)
    stored_first(multiplied(g, first(g, x), filter_of(g, k, x[1], len(x) - 2)))
    plan = run(g)
    (variant,) = plan.programs[0].variants
    assert (len(variant.steps), variant.workspace_bytes) == (1, "0")


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("x", "y", "swaps"),
    [(first, first, 1), (first, image, 0), (first, image, 1), (image, first, 0),
     pytest.param(image, first, 1, marks=slow)],
    ids=["swapped", "Y last", "Y last, swapped", "X last", "X last, swapped"],
)  # fmt: skip
def test_layouts(x, y, swaps):
    g = new_graph()
    out = multiplied(g, x(g, [2, 40, 6, 12]), filter_of(g, 72, 40)).set_output()
    if y is first:
        stored_first(out)
    run(g, knobs={"SWAP_AB": swaps})


def test_gaps_and_a_filter_with_its_results_contiguous():
    """Between channels, and between images; rows of pixels have none."""
    g = new_graph()
    x = g.tensor([2, 24, 4, 6], [24 * 32 + 64, 32, 6, 1])
    w = filter_of(g, 40, 24).set_stride([1, 40, 1, 1])
    multiplied(g, x, w).set_output().set_stride([40 * 48, 48, 6, 1])
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "knobs",
    [{"TILE_CGA_N": 2}, {"SPLIT_K_SLC": 2}, {"TILE_M": 128, "TILE_N": 128}],
    ids=str,
)  # fmt: skip
def test_ways_through_the_tiles(knobs):
    g = new_graph()
    stored_first(multiplied(g, first(g, [2, 136, 10, 16]), filter_of(g, 72, 136)))
    run(g, knobs=knobs)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.parametrize("io", ["f16", pytest.param("bf16", marks=slow)])
def test_scale_bias_residual_relu_and_two_outputs(io):
    g = new_graph(dtypes.of(io))
    y = multiplied(g, first(g, [2, 24, 6, 8]), filter_of(g, 40, 24))
    biased = g.add(g.mul(y, g.tensor([1, 40, 1, 1])), g.tensor([1, 40, 1, 1]))
    stored_first(biased).set_data_type(dtypes.f32)
    residual = first(g, [2, 40, 6, 8])
    stored_first(g.relu(g.add(biased, residual)))
    run(g)


@pytest.mark.in_turn
def test_what_varies_along_images_and_pixels_numbers_and_places():
    g = new_graph()
    y = multiplied(g, first(g, [3, 16, 4, 6]), filter_of(g, 16, 16))
    y = g.add(g.mul(y, g.tensor([3, 1, 1, 1])), g.tensor([1, 16, 4, 6], packed([1, 16, 4, 6])))
    y = g.add(g.mul(y, g.tensor([1, 1, 4, 6], packed([1, 1, 4, 6]))), 0.5)
    stored_first(g.add(y, g.gen_index(y, axis=1)))
    run(g, slack=4.0)


@pytest.mark.in_turn
@pytest.mark.feature
def test_operations_before():
    g = new_graph()
    x, scale = first(g, [2, 40, 5, 8], data_type=dtypes.f32), g.tensor([1, 40, 1, 1])
    before = g.relu(g.add(g.mul(x, scale), g.tensor([2, 40, 1, 1]))).set_data_type(dtypes.f16)
    stored_first(multiplied(g, before, filter_of(g, 24, 40)))
    run(g)


def test_an_image_that_is_added_to_its_own_results():
    g = new_graph()
    x = first(g, [2, 16, 4, 8])
    stored_first(g.add(multiplied(g, x, filter_of(g, 16, 16)), x))
    run(g)


@pytest.mark.in_turn
@pytest.mark.feature
def test_statistics():
    """Statistics of channels over all images, then of each image's channels, and of pixels."""
    g = new_graph()
    y = multiplied(g, first(g, [2, 24, 5, 8]), filter_of(g, 40, 24)).set_data_type(dtypes.f16)
    stored_first(y)
    genstats(g, y)
    run(g, allowance=ROUNDED)
    for dims in ([2, 40, 1, 1], [2, 1, 5, 8]):
        g = new_graph()
        y = multiplied(g, first(g, [2, 24, 5, 8]), filter_of(g, 40, 24))
        mean = g.reduction(y, mode="avg").set_dim(dims).set_stride(packed(dims))
        mean.set_output().set_data_type(dtypes.f32)
        run(g, allowance=2 * ROUNDED)  # means that cancel


def test_an_image_is_scaled_by_the_largest_of_its_pixels():
    g = new_graph()
    y = multiplied(g, first(g, [2, 24, 5, 8]), filter_of(g, 40, 24))
    largest = g.reduction(y, mode="amax").set_dim([2, 40, 1, 1]).set_data_type(dtypes.f32)
    stored_first(g.div(y, g.add(largest, 1.0)))
    run(g)


@pytest.mark.in_turn
@pytest.mark.parametrize("y", [image, first])
def test_what_another_kernel_reads_lies_where_its_strides_say(y):
    g = new_graph()
    between = multiplied(g, first(g, [2, 24, 4, 8]), filter_of(g, 16, 24))
    between.set_data_type(dtypes.f16).set_stride(y(g, [2, 16, 4, 8]).get_stride())
    stored_first(multiplied(g, g.relu(between).set_data_type(dtypes.f16), filter_of(g, 24, 16)))
    graph = g.graph.finalize()
    ones = partition(graph, [[graph.live_ops[0]], graph.live_ops[1:]])
    engine = CONV_PRODUCT_SM90
    best = [heuristics.choices(fusion, of(TARGET), [engine])[0].text for fusion in ones]
    check(g, target=TARGET, partition="0|1 2", choices="|".join(best), slack=3.0)


@pytest.mark.in_turn
def test_relu_and_its_mask():
    g = new_graph()
    y = multiplied(g, first(g, [2, 24, 4, 8]), filter_of(g, 40, 24))
    stored_first(g.cmp_gt(y, 0.0)).set_data_type(dtypes.i1)
    stored_first(g.relu(y))
    run(g)


@pytest.mark.in_turn
def test_one_plan_serves_every_size():
    g = new_graph()
    x = g.tensor([N, 16, H, W], [16 * H * W, H * W, W, 1])
    y = g.relu(g.bias(multiplied(g, x, filter_of(g, 24, 16)), g.tensor([1, 24, 1, 1])))
    y.set_output().set_stride([24 * H * W, H * W, W, 1])
    plan = run(g, {"N": 1, "H": 4, "W": 5})
    check(g, {"N": 3, "H": 11, "W": 8}, plan=plan)


@pytest.mark.in_turn
def test_symbols_that_keep_rows_aligned():
    g = new_graph()
    wide = dnnc.Dim("W", min=8, max=64, multiple_of=8)
    x = g.tensor([N, 16, H, wide], [16 * H * wide, H * wide, wide, 1])
    y = multiplied(g, x, filter_of(g, 24, 16)).set_output()
    y.set_stride([24 * H * wide, H * wide, wide, 1])
    graph, whole = g.graph, fusion_of(g)
    assert "cp.async.bulk.tensor" in ptx_of(run(g, {"N": 2, "H": 5, "W": 16}))
    best = heuristics.best_config(graph, of(TARGET)).choices[0]
    assert best.engine is CONV_PRODUCT_SM90
    assert not CONV_PRODUCT_SM90.supports(whole, of(TARGET))


@pytest.mark.parametrize("io", [dtypes.i8, pytest.param(dtypes.f8e4m3, marks=slow),
                                pytest.param(dtypes.f32, marks=slow)], ids=str)  # fmt: skip
def test_other_types_with_results_channels_first(io):
    sums = dtypes.i32 if io is dtypes.i8 else dtypes.f32
    g = new_graph(io, compute_data_type=sums, intermediate_data_type=sums)
    y = multiplied(g, image(g, [2, 32, 4, 8]), filter_of(g, 24, 32))
    stored_first(y).set_data_type(sums)
    run(g, allowance=2.0**-10)


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore:invalid value")
def test_nothing_of_an_image_reaches_another():
    g = new_graph()
    y = stored_first(multiplied(g, first(g, [3, 24, 5, 7]), filter_of(g, 16, 24)))
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    inputs[graph.inputs[0].uid][1] = np.nan
    found = machine.current().run(run(g, inputs=inputs), inputs)[y.get_uid()]
    assert np.isfinite(found[[0, 2]]).all()
    assert np.isnan(found[1]).all()


# ---- choices, refusals


def layer(x=(32, 64, 56, 56), k=256, layout=first, io=dtypes.f16, y=first):
    g = new_graph(io)
    out = multiplied(g, layout(g, list(x)), filter_of(g, k, x[1], len(x) - 2)).set_output()
    if y is first:
        stored_first(out)
    return fusion_of(g)


def test_images_with_channels_first_get_this_engine():
    best = heuristics.choices(layer(), of(TARGET))[0]
    assert best.engine is CONV_PRODUCT_SM90
    timed = 26.8e-6  # on an H100: kernels-conv-nchw-product-h100.json
    assert best.prediction.seconds == pytest.approx(timed, rel=0.1)


def test_many_rows_that_are_not_aligned_are_copied():
    """7x7 pixels come element by element here: few images do, of many copies are faster."""
    few, many = (heuristics.choices(layer((n, 512, 7, 7), 2048), of(TARGET))[0] for n in (4, 256))
    assert few.engine is CONV_PRODUCT_SM90
    assert many.engine is engine_named("conv_sm90")


def test_what_is_known_of_the_kernels_of_products_holds_of_its_own():
    """Tiles as large as one that spills."""
    knobs, more = {**SMALL, "TILE_N": 128}, {**SMALL, "TILE_N": 192}
    text = choice_text("conv_product_sm90", knobs)
    assert spills.is_like(CONV_PRODUCT_SM90, more, [text])
    assert not spills.is_like(CONV_PRODUCT_SM90, SMALL, [text])


def refused(fusion, target=TARGET):
    return [str(reason) for reason in CONV_PRODUCT_SM90.supports(fusion, of(target))]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"layout": image, "y": image}, "with channels last"),
        ({"x": (2, 64, 1, 1)}, "with channels last"),
        ({"io": dtypes.f32}, "X f32 of tensor with uid"),
        ({"io": dtypes.f8e4m3}, "X f8E4M3FN of tensor with uid"),
        ({"io": dtypes.f64}, "X f64 of tensor with uid"),
    ],
    ids=["channels last", "few positions", "f32", "fp8", "f64"],
)
def test_images_that_other_engines_take(options, what):
    (reason,) = refused(layer(**options))
    assert what in reason


@pytest.mark.parametrize(
    ("w", "parameters", "what"),
    [
        ([16, 16, 3, 3], around(1), "a filter of [3, 3]"),
        ([16, 16, 1, 1], around(0, 2), "strides [2, 2]"),
        ([16, 16, 1, 1], around(1), "paddings [1, 1] and [1, 1]"),
        ([16, 8, 1, 1], around(0), "2 groups"),
    ],
    ids=str,
)
def test_other_filters(w, parameters, what):
    g = new_graph()
    stored_first(g.conv_fprop(first(g, [1, 16, 8, 8]), g.tensor(w), **parameters))
    (reason,) = refused(fusion_of(g))
    assert what in reason
    assert "one tap, strides of 1, no padding, one group" in reason


def _filter_is_computed(g, x, w):
    return multiplied(g, x, g.relu(w).set_data_type(dtypes.f16))


def _filter_is_read_again(g, x, w):
    return g.mul(multiplied(g, x, w), w)


def _rows_have_a_bias(g, x, w):
    return g.add(multiplied(g, x, w), g.tensor([1, 1, 8, 1]))


def _pixels_know_their_column(g, x, w):
    y = multiplied(g, x, w)
    return g.mul(y, g.gen_index(y, axis=3))


def _rows_have_gaps(g, x, w):
    return multiplied(g, x, w).set_stride([10 * 8 * 16, 10 * 8, 10, 1])


def _rows_are_reduced(g, x, w):
    y = multiplied(g, x, w)
    return g.reduction(y, mode="add").set_dim([16, 16, 8, 1]).set_data_type(dtypes.f32)


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (_filter_is_computed, "W of conv_fprop is computed"),
        (_filter_is_read_again, "read by another operation"),
        (_rows_have_a_bias, "of dims [1, 1, 8, 1]; accepted: [8, 8] pixels"),
        (_pixels_know_their_column, "gen_index along a spatial axis"),
        (_rows_have_gaps, "strides [1280, 80, 10, 1]"),
        (_rows_are_reduced, "of dims [16, 16, 8, 1]"),
    ],
)
def test_what_is_no_product_of_images(build, what):
    g = new_graph()
    y = build(g, first(g, [16, 16, 8, 8]), filter_of(g, 16, 16)).set_output()
    if not y.get_stride():
        stored_first(y)
    (reason,) = refused(fusion_of(g))
    assert what in reason


def test_other_architectures_are_refused():
    assert any(reason.startswith("architecture") for reason in refused(layer(), "sm_90"))
