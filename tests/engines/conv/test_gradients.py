"""Gradients of convolutions by engine fallback, in the interpreter."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference
from dnnc.engines import ENGINES
from dnnc.errors import Status
from dnnc.target import of
from tests.dialect.conv_gradient_examples import PEERS, dgrad_of, response_dims, wgrad_of
from tests.support.checked import check, random_inputs

from .convs import around, image, packed
from .test_pattern import new_graph

N = dnnc.Dim("N", max=16)
X, W, PARAMETERS = [2, 8, 5, 4], [12, 4, 3, 2], around(1, 2)
Y = response_dims(X, W, PARAMETERS)


def dgrad(g, dy=None):
    return g.conv_dgrad(dy or image(g, Y), image(g, W), **PARAMETERS).set_dim(X)


def wgrad(g, x=None, dy=None):
    return g.conv_wgrad(x or image(g, X), dy or image(g, Y), **PARAMETERS).set_dim(W)


@pytest.mark.rotating
@pytest.mark.parametrize("io", ["f16", "bf16", "f64"])
@pytest.mark.parametrize("gradient", [dgrad, wgrad])
def test_types(gradient, io):
    io = dtypes.of(io)
    compute = dtypes.f64 if io.bits == 64 else dtypes.f32
    g = new_graph(io, intermediate_data_type=compute, compute_data_type=compute)
    gradient(g).set_output()
    check(g, engine="fallback", slack=8.0)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("gradient", [dgrad, wgrad])
def test_integers_are_exact(gradient):
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    gradient(g).set_output().set_data_type(dtypes.i32)
    check(g, engine="fallback")


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("of_gradient", [dgrad_of, wgrad_of])
def test_types_that_differ_and_channels_first(of_gradient):
    g = new_graph(dtypes.f32)
    made = of_gradient(g, [1, 2, 5, 4], [2, 2, 3, 3], (dtypes.f16, dtypes.i8), padding=[1, 1])
    made.set_output().set_stride(packed(made.get_dim()))
    check(g, engine="fallback")


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("case", PEERS)
@pytest.mark.parametrize("of_gradient", [dgrad_of, wgrad_of])
def test_where_libraries_were_wrong(of_gradient, case):
    g = new_graph(dtypes.f32)
    x, w, parameters = PEERS[case]
    of_gradient(g, x, w, **parameters).set_output()
    check(g, engine="fallback", slack=4.0)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("case", PEERS)
@pytest.mark.parametrize("of_gradient", [dgrad_of, wgrad_of])
@pytest.mark.parametrize("target", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.sm90)])
def test_where_libraries_were_wrong_by_the_chosen_engine(of_gradient, case, target):
    g = new_graph()
    x, w, parameters = PEERS[case]
    of_gradient(g, x, w, **parameters).set_output()
    check(g, target=target, slack=4.0)


# Layers of sequences: X, W, parameters of the forward convolution.
LAYERS = (
    ([2, 16, 64], [32, 16, 5], {"padding": [2], "stride": [2]}),
    ([2, 32, 32], [32, 32, 3], {"padding": [2], "dilation": [2]}),
    ([2, 32, 32], [8, 32, 1], {}),
)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("io", "allowance"), [("f32", 1e-5), ("bf16", 2.0**-8)])
@pytest.mark.parametrize("target", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.sm90)])
def test_gradients_through_layers(target, io, allowance):
    """Norms of gradients were off by a half on Hopper alone, of bf16 and of f32 (pytorch #150700).

    Each filter's gradient and the image's, of one graph, by the engines that are chosen.
    """
    g = new_graph(dtypes.of(io))
    dy = g.tensor([2, 8, 32], name="dy")
    for i, (x, w, parameters) in list(enumerate(LAYERS))[::-1]:
        image = g.tensor(x, name=f"x{i}")  # as it was kept forward
        g.conv_wgrad(image, dy, **parameters).set_dim(w).set_output()
        dx = g.conv_dgrad(dy, g.tensor(w, name=f"w{i}"), **parameters).set_dim(x)
        dx = g.mul(dx, 0.1)  # as large as dY again
        dy = g.relu_backward(dx, image).set_data_type(dtypes.of(io)).set_output()
    check(g, target=target, slack=8.0, allowance=allowance)


@pytest.mark.in_turn
def test_what_comes_before_and_after_dgrad():
    """ReLU's gradient before; a residual, a bias and ReLU after; the batch is an argument."""
    g = new_graph()
    before = g.relu_backward(image(g, [N, *Y[1:]]), image(g, [N, *Y[1:]]))
    x = [N, *X[1:]]
    dx = g.conv_dgrad(before, image(g, W), **PARAMETERS).set_dim(x)
    g.relu(g.add(g.add(dx, image(g, x)), g.tensor([1, X[1], 1, 1]))).set_output()
    plan = check(g, {"N": 1}, engine="fallback")
    check(g, {"N": 3}, plan=plan)


@pytest.mark.in_turn
def test_what_comes_before_and_after_wgrad():
    """ConvBNwgrad's scale, bias and ReLU, whose padding is of zeros; a scaled gradient after."""
    g = new_graph()
    scale, bias = (g.tensor([1, X[1], 1, 1]) for _ in range(2))
    x = g.relu(g.add(g.mul(image(g, X), scale), bias))
    g.mul(wgrad(g, x, g.relu(image(g, Y))), g.tensor([1, 1, 1, 1])).set_output()
    check(g, engine="fallback")


@pytest.mark.in_turn
def test_gradients_of_image_filter_and_bias_of_one_graph():
    """That of the bias is a reduction of dy."""
    g = new_graph()
    dy = image(g, Y)
    for made in (dgrad(g, dy), wgrad(g, dy=dy)):
        made.set_output()
    g.reduction(dy, "add").set_dim([1, Y[1], 1, 1]).set_output()
    plan = check(g)
    assert len(plan.programs[0].fusions) == 3


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("op", ["conv_dgrad", "conv_wgrad"])
def test_vectors_whose_strides_follow(op):
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    dims = {"x": [1, 2, 3, 4], "w": [8, 2, 3, 3], "y": [1, 2, 3, 4]}
    x, w, y = (g.tensor(n, vector_count=4, vector_dimension=1) for n in dims.values())
    if op == "conv_dgrad":
        made = g.conv_dgrad(y, w, padding=[1, 1]).set_dim(dims["x"])
    else:
        made = g.conv_wgrad(x, y, padding=[1, 1]).set_dim(dims["w"])
    made.set_vector_count_and_dimension(4, 1).set_data_type(dtypes.i32).set_output()
    check(g)


# ---- zeros around what moves under the filter


def test_zeros_around_dy_are_multiplied_where_a_tap_lies():
    """An infinite tap gives NaN there, as on the forward convolution's zeros around X."""
    g = new_graph(dtypes.f32)
    dx = g.conv_dgrad(g.tensor([1, 1, 3]), g.tensor([1, 1, 2]), stride=[2]).set_dim([1, 1, 7])
    dx.set_output().set_stride([7, 7, 1])
    graph = g.graph.finalize()
    dy, w = (t.uid for t in graph.inputs)
    inputs = {dy: np.array([[[1.0, -2.0, 3.0]]]), w: np.array([[[np.inf, 4.0]]])}
    # Output 3, which is not there, has tap 0 on pixel 6.
    wanted = [np.inf, 4, -np.inf, -8, np.inf, 12, np.nan]
    np.testing.assert_array_equal(reference(graph, inputs)[dx.uid][0, 0], wanted)
    check(g, inputs=inputs, engine="fallback")


def test_zeros_around_x_are_multiplied():
    g = new_graph(dtypes.f32)
    dw = g.conv_wgrad(g.tensor([1, 1, 3]), g.tensor([1, 1, 3]), padding=[1]).set_dim([1, 1, 3])
    dw.set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    inputs[graph.inputs[1].uid][0, 0, 0] = np.inf  # which only tap 0 has on padding
    found = reference(graph, inputs)[dw.uid][0, 0]
    assert np.isnan(found).tolist() == [True, False, False]
    check(g, inputs=inputs, engine="fallback")


# ---- refusals


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("of_gradient", [dgrad_of, wgrad_of])
def test_every_engine_takes_it_or_refuses_by_clause(of_gradient, target):
    """With a stride, and work after it."""
    g = new_graph(dtypes.f16)
    g.relu(of_gradient(g, [2, 64, 5, 5], [64, 64, 3, 3], **around(1, 2))).set_output()
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    refused = {engine.name: engine.supports(whole, of(target)) for engine in ENGINES}
    assert not refused.pop("fallback")
    accepted = (Status.NOT_SUPPORTED_GRAPH_PATTERN, Status.NOT_SUPPORTED_SHAPE)
    for name, reasons in refused.items():
        assert reasons or "conv" in name
        assert not reasons or reasons[0].status in accepted or name.endswith("sm90"), name
        assert all(r.clause and r.what and r.supported for r in reasons)
