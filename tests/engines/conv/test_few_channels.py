"""Behaviour that engines of few channels a group share: sizes, layouts, neighbours, refusals."""

from dataclasses import dataclass

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference
from dnnc.engines import engine_named
from dnnc.options import Options
from dnnc.target import of
from tests.support.checked import check, random_inputs

from ..elementwise.test_resample import channels_last
from .convs import around, packed
from .test_pattern import convolved, new_graph

N = dnnc.Dim("N", max=16)
H, W = dnnc.Dim("H", max=64), dnnc.Dim("W", max=64)


@dataclass(frozen=True)
class Few:
    """An engine, and a convolution that it takes: channels of X and of Y, those of X a group.

    before: the type of an X that is computed.  knobs: of loads of several elements.
    """

    engine: str
    channels: int
    group: int
    before: str
    knobs: tuple[tuple[str, int], ...] = ()

    def filter(self, *taps):
        return [self.channels, self.group, *taps]

    def check(self, g, sizes=None, **options):
        return check(g, sizes, engine=self.engine, **options)


ENGINES = (
    Few("conv_depthwise", 8, 1, "f32", (("LOAD_SIZE", 16),)),
    Few("conv_grouped_sm80", 16, 8, "f16"),
)
each = pytest.mark.parametrize("few", ENGINES, ids=lambda few: few.engine)


@each
def test_sums_of_half_are_rounded_once(few):
    g = new_graph(compute_data_type=dtypes.f16)
    convolved(g, [1, few.channels, 4, 5], few.filter(3, 3), **around(1))
    few.check(g)


@pytest.mark.rotating
@each
def test_padding_is_zeros_that_are_multiplied(few):
    """An infinite tap gives NaN where it lies on padding, and an infinity elsewhere."""
    g = new_graph()
    y = convolved(g, [1, few.channels, 3, 3], few.filter(3, 3), **around(1))
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    inputs[graph.inputs[1].uid][3, 0, 0, 0] = np.inf
    expected = reference(graph, inputs)[y.get_uid()]
    assert np.isnan(expected[0, 3, 0]).all()
    assert np.isinf(expected[0, 3, 1:, 1:]).all()
    few.check(g, inputs=inputs)


# ---- sizes and layouts


@pytest.mark.in_turn
@pytest.mark.rotating
@each
def test_batch_and_spatial_dims_are_arguments(few):
    g = new_graph()
    convolved(g, [N, few.channels, H, W], few.filter(3, 3), **around(1, 2))
    plan = few.check(g, {"N": 2, "H": 5, "W": 8})
    for sizes in ({"N": 1, "H": 1, "W": 1}, {"N": 3, "H": 8, "W": 15}):
        check(g, sizes, plan=plan)


@each
def test_offsets_past_31_bits(few):
    """X is a part of a larger tensor: its images are far apart."""
    g = new_graph()
    x = g.tensor([2, few.channels, 4, 5], [1 << 32, 1, 5 * 24, 24])
    g.conv_fprop(x, g.tensor(few.filter(3, 3)), **around(1)).set_output()
    plan = compile_graph(g.graph.finalize(), "sm_80", Options(engine=few.engine))
    launch = plan.programs[0].variants[0].steps[0].launch
    assert str(1 << 32) in {arg.value for arg in launch.args if arg.type == "i64"}


@pytest.mark.rotating
@each
def test_rows_with_gaps(few):
    g = new_graph()
    x = g.tensor([2, few.channels, 4, 5], [4 * 6 * 24, 1, 6 * 24, 24])
    g.conv_fprop(x, g.tensor(few.filter(3, 3)), **around(1)).set_output()
    few.check(g)


@pytest.mark.rotating
@each
def test_channels_that_are_not_aligned(few):
    g = new_graph()
    dims = [1, few.channels, 4, 5]
    x = g.tensor(dims, channels_last(dims)).set_alignment(2)
    g.conv_fprop(x, g.tensor(few.filter(3, 3)), **around(1)).set_output()
    few.check(g, knobs=dict(few.knobs))


# ---- neighbours


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("size", [[4, 5], [3, 4, 3]], ids=["2D", "3D"])
@each
def test_what_comes_before_and_after(few, size):
    """Scale, bias and ReLU before, whose padding is of zeros; scale, bias, residual and ReLU
    after; the sum, an output of 16 bits too, may be rounded to its other neighbour."""
    g, c, one = new_graph(), few.channels, [1] * len(size)
    x = g.tensor([N, c, *size], channels_last([N, c, *size]))
    scale, bias = (g.tensor([1, c, *one]) for _ in range(2))
    before = g.relu(g.add(g.mul(x, scale), bias)).set_data_type(few.before)
    w = g.tensor(few.filter(*[3] * len(size)))
    y = g.conv_fprop(before, w, **around(1, spatial=len(size)))
    dims = y.get_dim()
    y = g.add(g.mul(y, g.tensor([1, c, *one])), g.tensor([1, c, *one]))
    y = g.add(y, g.tensor(dims, channels_last(dims))).set_output()
    g.relu(y).set_output().set_data_type(dtypes.f32)
    plan = few.check(g, {"N": 1}, slack=4.0, allowance=1e-4)
    check(g, {"N": 3}, plan=plan, slack=4.0, allowance=1e-4)


@pytest.mark.rotating
@each
def test_a_filter_of_8_bits_with_scales(few):
    g, dims = new_graph(), [1, few.channels, 4, 5]
    w = g.tensor(few.filter(3, 3), data_type=dtypes.i8)
    scaled = g.mul(w, g.tensor([few.channels, 1, 1, 1])).set_data_type(dtypes.f16)
    g.conv_fprop(g.tensor(dims, channels_last(dims)), scaled, **around(1)).set_output()
    few.check(g, slack=4.0)


@pytest.mark.rotating
@each
def test_a_slice_before_and_an_output_of_another_layout(few):
    g, dims = new_graph(), [1, 8 + few.channels, 5, 6]
    x = g.tensor(dims, channels_last(dims))
    part = g.slice(x, [slice(0, 1), slice(8, 8 + few.channels), slice(1, 5), slice(0, 6)])
    y = g.conv_fprop(part, g.tensor(few.filter(3, 3)), **around(1))
    g.relu(y).set_output().set_stride(packed(y.get_dim()))
    few.check(g)


# ---- what is not taken


def clauses(few, g):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return {reason.clause for reason in engine_named(few.engine).supports(fusion, of("sm_80"))}


@each
def test_other_sums_after_it_are_refused(few):
    g = new_graph()
    y = convolved(g, [1, few.channels, 4, 5], few.filter(3, 3), **around(1))
    g.reduction(y, "add").set_dim([1, few.channels, 1, 1]).set_output()
    assert clauses(few, g) == {"operations"}


@each
def test_booleans_are_no_outputs(few):
    g = new_graph()
    y = convolved(g, [1, few.channels, 4, 5], few.filter(3, 3), **around(1))
    g.cmp_gt(y, 0.0).set_output().set_data_type(dtypes.i1)
    assert clauses(few, g) == {"boolean output"}


@pytest.mark.parametrize(
    ("n", "edge", "said"),
    [(1, 1 << 30, "pixels along an axis"), (1 << 16, 1 << 15, "Y of up to")],
)
@each
def test_too_many_pixels_are_refused(few, n, edge, said):
    g = new_graph()
    convolved(g, [n, few.channels, 2, edge], few.filter(1, 3), **around(1))
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    found = engine_named(few.engine).supports(fusion, of("sm_80"))
    assert any(reason.clause == "size" and said in reason.what for reason in found)
