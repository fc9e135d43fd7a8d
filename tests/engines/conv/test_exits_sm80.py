"""Reductions at the exit of conv_sm80: statistics, sums, extremes, what follows them."""

import pytest

from dnnc import dtypes
from dnnc.dialect.fusion import partition
from dnnc.engines.conv.sm80 import CONV_SM80
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check

from .convs import H, N, W, around, convolved, image, packed
from .test_exits_sm90 import factors, genstats, launches, reduced
from .test_pattern import new_graph

slow = pytest.mark.slow
TILES = {
    "32x64": {"TILE_M": 32, "TILE_N": 64},
    "64x128": {"TILE_M": 64, "TILE_N": 128},
    "128x64": {"TILE_M": 128, "TILE_N": 64},
    "256x128": {"TILE_M": 256, "TILE_N": 128},
}
SMALL = TILES["32x64"]


def run(g, sizes=None, *, knobs=SMALL, **options):
    cut = machine.current().cut
    return check(g, sizes, engine="conv_sm80", knobs=knobs, allowance=cut, **options)


def layer(x, w, io=dtypes.f16, **options):
    """(graph, ReLU of a convolution with a bias, in f32, whose rounded values are stored)."""
    g = new_graph(io, **options)
    y = g.relu(g.add(convolved(g, x, w, **around(1)), g.tensor([1, w[0], 1, 1])))
    g.identity(y).set_output()
    return g, y


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "tile", [pytest.param(t, marks=slow if t in ("64x128", "256x128") else ()) for t in TILES]
)
def test_statistics_of_each_channel(tile):
    g, y = layer([2, 8, 7, 9], [72, 8, 3, 3])
    genstats(g, y)
    plan = run(g, knobs=TILES[tile])
    assert len(launches(plan)) == 2


@pytest.mark.in_turn
def test_statistics_of_one_channel():
    """All threads of the second kernel combine tiles of the same element."""
    g, y = layer([3, 8, 19, 21], [1, 8, 3, 3])
    genstats(g, y)
    run(g)


@pytest.mark.in_turn
def test_statistics_alone_of_groups():
    """Nothing else is stored; the first group's channels end inside a tile."""
    g = new_graph()
    y = convolved(g, [2, 6, 5, 7], [20, 3, 3, 3], **around(1)).set_data_type(dtypes.f16)
    genstats(g, y)
    factors(g, 20)
    run(g)


@pytest.mark.in_turn
def test_one_plan_serves_every_size():
    g = new_graph()
    y = g.conv_fprop(image(g, [N, 5, H, W]), image(g, [24, 5, 3, 3]), **around(1))
    genstats(g, y)
    plan = run(g, {"N": 1, "H": 4, "W": 5})
    run(g, {"N": 3, "H": 11, "W": 4}, plan=plan)


@pytest.mark.in_turn
def test_over_channels_over_all_and_what_follows():
    g, y = layer([2, 16, 5, 6], [72, 16, 3, 3])
    reduced(g, y, "max", [2, 1, 5, 6])
    g.sqrt(reduced_only(g, y, [1, 1, 1, 1])).set_output().set_data_type(dtypes.f32)
    g.mul(reduced_only(g, y, [1, 72, 1, 1]), 0.5).set_output().set_data_type(dtypes.f32)
    run(g, slack=16.0)


def reduced_only(g, y, dims):
    return g.reduction(y, "add").set_dim(dims)


@pytest.mark.in_turn
def test_channels_first_and_work_before_it():
    """The guide's pattern with tensors of any layout; X's padding comes after its ReLU."""
    g = new_graph()
    x = g.tensor([2, 6, 5, 7], packed([2, 6, 5, 7]))
    before = g.relu(g.add(g.mul(x, g.tensor([1, 6, 1, 1])), g.tensor([1, 6, 1, 1])))
    w = g.tensor([40, 6, 3, 3], packed([40, 6, 3, 3]))
    y = g.conv_fprop(before.set_data_type(dtypes.f16), w, **around(1)).set_data_type(dtypes.f16)
    y.set_output().set_stride(packed([2, 40, 5, 7]))
    genstats(g, y)
    run(g)


@pytest.mark.in_turn
def test_integers():
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    y = convolved(g, [1, 16, 5, 6], [24, 16, 3, 3], **around(1)).set_data_type(dtypes.i32)
    y.set_output()
    reduced(g, y, "max", [1, 24, 1, 1], dtypes.i32)
    run(g)


@pytest.mark.in_turn
def test_batch_norm_is_finished_by_the_second_launch():
    g, y = layer([2, 8, 5, 6], [40, 8, 3, 3])
    total, squares = g.genstats(y)
    of_channels = [g.tensor([1, 40, 1, 1], data_type=dtypes.f32) for _ in range(2)]
    found = g.bn_finalize(total, squares, *of_channels, g.tensor_scalar(1e-3), 60.0)
    for tensor in found:
        if tensor is not None:
            tensor.set_output()
    assert len(launches(run(g, slack=64.0))) == 2


# ---- masks


def mask(g, y, strides=None):
    found = g.cmp_gt(y, 0).set_output().set_data_type(dtypes.i1)
    return found if strides is None else found.set_stride(strides)


@pytest.mark.in_turn
def test_relu_with_its_mask_and_statistics():
    g, y = layer([2, 8, 5, 6], [40, 8, 3, 3])
    mask(g, y)
    genstats(g, y)
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("y", ["first", "last"])
def test_mask_of_rows_of_pixels_with_channels_first(y):
    g = new_graph()
    made = convolved(g, [2, 8, 5, 8], [40, 8, 3, 3], **around(1))
    mask(g, made, packed([2, 40, 5, 8]))
    relu = g.relu(made).set_output()
    if y == "first":
        relu.set_stride(packed([2, 40, 5, 8]))
    run(g)


@pytest.mark.in_turn
def test_mask_of_groups_side_by_side():
    g = new_graph()
    y = convolved(g, [2, 64, 5, 7], [64, 16, 3, 3], **around(1))
    mask(g, y)
    run(g, knobs={"TILE_M": 64, "TILE_N": 64})


@pytest.mark.in_turn
def test_mask_of_a_gradient_with_strides():
    g = new_graph()
    dy, w = image(g, [2, 24, 4, 5]), image(g, [24, 40, 3, 3])
    dx = g.conv_dgrad(dy, w, padding=[1, 1], stride=[2, 2]).set_dim([2, 40, 7, 9])
    mask(g, dx)
    run(g)


# ---- refusals


def refused(g):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return {r.clause: r for r in CONV_SM80.supports(fusion, of(machine.current().target))}


def test_rows_of_pixels_are_not_reduced_alone():
    g, y = layer([2, 8, 5, 6], [40, 8, 3, 3])
    reduced(g, y, "add", [2, 40, 5, 1])
    assert "over axes [3]" in refused(g)["operations"].what


def test_masks_whose_bytes_have_several_writers():
    g, y = layer([1, 8, 5, 6], [36, 8, 3, 3])
    mask(g, y)
    assert "[1, 36, 5, 6]" in refused(g)["boolean output"].what
    g = new_graph()
    dy, w = image(g, [2, 24, 4, 4]), image(g, [24, 40, 3, 3])
    dx = g.conv_dgrad(dy, w, padding=[1, 1], stride=[2, 2]).set_dim([2, 40, 8, 8])
    mask(g, dx, packed([2, 40, 8, 8]))  # neighbouring pixels are of other phases
    assert "[2, 40, 8, 8]" in refused(g)["boolean output"].what
