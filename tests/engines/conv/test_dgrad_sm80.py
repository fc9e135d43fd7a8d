"""Gradients by the image by engine conv_sm80, in the interpreter."""

import pytest

from dnnc import dtypes
from tests.dialect.conv_gradient_examples import response_dims
from tests.support.checked import check

from .convs import H, N, W, around, image, packed, ptx_of
from .test_dgrad_sm90 import CASES, STRIDED, dgrad
from .test_pattern import new_graph

SMALL = {"TILE_M": 32, "TILE_N": 64}


def run(g, sizes=None, *, knobs=SMALL, **options):
    return check(g, sizes, engine="conv_sm80", knobs=knobs, **options)


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", CASES)
def test_a_filter_that_is_transposed_by_ldmatrix(name):
    g = new_graph()
    dgrad(g, *CASES[name]).set_output()
    plan = run(g)
    assert "ldmatrix.sync.aligned.m8n8.x4.trans" in ptx_of(plan)
    assert ptx_of(plan).count("cp.async.cg.shared.global") > 2


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("io", "compute", "made"), [("f32", "f32", "f32"), ("i8", "i32", "i32"), ("bf16", "f32", "f16")]
)
def test_types(io, compute, made):
    g = new_graph(dtypes.of(io), compute_data_type=compute)
    dx = dgrad(g, [2, 20, 5, 4], [36, 20, 3, 2], around(1))
    dx.set_output().set_data_type(made)
    knobs = {**SMALL, "TF32": 3} if io == "f32" else SMALL
    run(g, slack=4.0, knobs=knobs)


@pytest.mark.parametrize("x", [[2, 3, 6, 7], [2, 14, 3, 3]], ids=str)
def test_channels_of_any_number(x):
    g = new_graph()
    dgrad(g, x, [9, x[1], 3, 3], around(1)).set_output()
    run(g)


@pytest.mark.rotating
@pytest.mark.parametrize("what", ["first", "filter first", "filter computed"])
def test_layouts_and_work_on_the_filter(what):
    g = new_graph()
    x, w = [2, 16, 5, 4], [24, 16, 3, 2]
    y = response_dims(x, w, around(1))
    filter_ = g.tensor(w, packed(w)) if what != "filter computed" else image(g, w)
    if what == "filter computed":
        filter_ = g.relu(filter_).set_data_type(dtypes.f16)
    dy = g.tensor(y, packed(y)) if what == "first" else image(g, y)
    g.conv_dgrad(dy, filter_, **around(1)).set_dim(x).set_output()
    run(g)


def test_one_plan_serves_every_size():
    g = new_graph()
    dgrad(g, [N, 16, H, W], [24, 16, 3, 3], around(1)).set_output()
    run(g, {"N": 2, "H": 6, "W": 5})


# ---- strides: phases of the pixels, in one launch


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", STRIDED)
def test_strides_in_one_launch(name):
    g = new_graph()
    dgrad(g, *STRIDED[name]).set_output()
    plan = run(g)
    assert len(plan.programs[0].kernels) == 1


@pytest.mark.rotating
@pytest.mark.parametrize("what", ["three channels", "first", "i8"])
def test_strides_of_operands_that_come_one_by_one(what):
    x, w = [2, 3 if what == "three channels" else 24, 5, 6], [36, 24, 3, 3]
    w[1], is_integer = x[1], what == "i8"
    g = new_graph(dtypes.i8 if is_integer else dtypes.f16, compute_data_type="f32")
    y = response_dims(x, w, around(1, 2))
    dy = g.tensor(y, packed(y)) if what == "first" else image(g, y)
    compute = {"compute_data_type": "i32"} if is_integer else {}
    dx = g.conv_dgrad(dy, image(g, w), **around(1, 2), **compute).set_dim(x).set_output()
    if what == "first":
        dx.set_stride(packed(x))
    if is_integer:
        dx.set_data_type("i32")
    run(g)


def test_a_reduction_after_a_stride_is_a_kernel_of_its_own():
    g = new_graph()
    dx = dgrad(g, [1, 16, 5, 4], [24, 16, 3, 3], around(1, 2))
    g.reduction(dx, "add").set_dim([1, 16, 1, 1]).set_output().set_data_type("f32")
    plan = check(g, slack=4.0)
    assert plan.programs[0].fusions[0].engine == "conv_sm80"
