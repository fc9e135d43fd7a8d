"""In-place graphs of one node, gradients by the forward pass's result, statistics of inference."""

import numpy as np
import pytest

import dnnc
from dnnc import DnncError, Status
from dnnc import backend as b
from dnnc.interpreter.plans import run_plan

from .building import D, graph_of, heuristics, made, matmul, plan_of, pointwise, tensor

DIMS = [6, 40]


def run(graph, inputs):
    """Gives the results of the first config's plan, by uid; the reference gives the same."""
    plan = b.execution_plan(plan_of(heuristics(graph)[0])).plan
    found = run_plan(plan, inputs)
    exact = dnnc.reference(b.operation_graph(graph), inputs)
    for uid, array in found.items():
        np.testing.assert_allclose(array, exact[uid], rtol=2e-6, atol=1e-6)
    return found


def drawn(*dims, seed=0):
    return np.random.default_rng(seed).normal(size=dims or DIMS).astype(np.float32)


# ---- in place


def test_one_tensor_is_operand_and_result():
    x, bias, dy = tensor(1, DIMS), tensor(2, [1, 40]), tensor(3, DIMS)
    value, row, grad = drawn(), drawn(1, 40, seed=1), drawn(seed=2)
    made_of = graph_of(pointwise(b.CUDNN_POINTWISE_RELU_FWD, X=x, Y=x))
    np.testing.assert_array_equal(run(made_of, {1: value})[1], np.maximum(value, 0))
    made_of = graph_of(pointwise(b.CUDNN_POINTWISE_SUB, X=bias, B=x, Y=x))
    np.testing.assert_array_equal(run(made_of, {1: value, 2: row})[1], row - value)
    made_of = graph_of(pointwise(b.CUDNN_POINTWISE_ADD, X=x, B=x, Y=x))
    np.testing.assert_array_equal(run(made_of, {1: value})[1], 2 * value)
    made_of = graph_of(pointwise(b.CUDNN_POINTWISE_RELU_BWD, DY=dy, X=x, DX=dy))
    found = run(made_of, {1: value, 3: grad})
    np.testing.assert_array_equal(found[3], np.where(value > 0, grad, 0))


def test_its_factor_belongs_to_what_it_held():
    x = tensor(1, DIMS)
    twice = [(b.CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, b.CUDNN_TYPE_FLOAT, [2.0])]
    made_of = graph_of(pointwise(b.CUDNN_POINTWISE_ABS, factors=twice, X=x, Y=x))
    value = drawn()
    np.testing.assert_array_equal(run(made_of, {1: value})[1], 2 * np.abs(value))


def refused(build):
    with pytest.raises(DnncError) as caught:
        build()
    return caught.value


def test_in_place_operations_that_are_refused():
    x, y = tensor(1, DIMS), tensor(2, DIMS)
    square, other = tensor(3, [8, 8]), tensor(4, [8, 8])
    relu = pointwise(b.CUDNN_POINTWISE_RELU_FWD, X=x, Y=x)
    after = pointwise(b.CUDNN_POINTWISE_EXP, X=x, Y=y)
    error = refused(lambda: graph_of(relu, after))
    assert error.status is Status.NOT_SUPPORTED_GRAPH_PATTERN
    assert "in a graph of its own" in error.supported
    error = refused(lambda: graph_of(matmul(square, other, square)))
    assert "tensor with uid 3 held is read by matmul" in error.what
    inside = tensor(5, DIMS, virtual=True)
    error = refused(lambda: graph_of(pointwise(b.CUDNN_POINTWISE_EXP, X=inside, Y=inside)))
    assert "cycle" in error.what


# ---- gradients

FORWARD = {
    "RELU": lambda x: np.clip(x, -0.5, 1.0),
    "TANH": np.tanh,
    "SIGMOID": lambda x: 1 / (1 + np.exp(-x)),
    "ELU": lambda x: np.where(x > 0, x, 0.75 * np.expm1(x)),
    "SOFTPLUS": lambda x: np.log1p(np.exp(2 * x)) / 2,
}
PARAMETERS = {
    "RELU": {"RELU_LOWER_CLIP": -0.5, "RELU_UPPER_CLIP": 1.0},
    "ELU": {"ELU_ALPHA": 0.75},
    "SOFTPLUS": {"SOFTPLUS_BETA": 2.0},
}


def parameters_of(mode):
    names = b.cudnnBackendAttributeName_t
    return [
        (names[f"CUDNN_ATTR_POINTWISE_{name}"], b.CUDNN_TYPE_DOUBLE, [value])
        for name, value in PARAMETERS.get(mode, {}).items()
    ]


@pytest.mark.parametrize("mode", FORWARD)
def test_gradients_by_the_result_are_those_by_the_input(mode):
    dy, y, x, dx = (tensor(uid, DIMS) for uid in range(1, 5))
    kind, parameters = getattr(b, f"CUDNN_POINTWISE_{mode}_BWD"), parameters_of(mode)
    value, grad = drawn(), drawn(seed=1)
    by_input = graph_of(pointwise(kind, parameters=parameters, DY=dy, X=x, DX=dx))
    wanted = run(by_input, {1: grad, 3: value})[4]
    by_result = graph_of(pointwise(kind, parameters=parameters, DY=dy, Y=y, DX=dx))
    result = FORWARD[mode](value.astype(float)).astype(np.float32)
    np.testing.assert_allclose(run(by_result, {1: grad, 2: result})[4], wanted, atol=1e-6)


def test_gradients_that_the_result_does_not_say():
    dy, y, dx = (tensor(uid, DIMS) for uid in range(1, 4))
    error = refused(lambda: pointwise(b.CUDNN_POINTWISE_GELU_BWD, DY=dy, Y=y, DX=dx))
    assert error.status is Status.NOT_SUPPORTED
    assert "XDESC, its input; YDESC with relu_bwd" in error.supported
    slope = [(b.CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, b.CUDNN_TYPE_DOUBLE, [-0.5])]
    kind = b.CUDNN_POINTWISE_RELU_BWD
    error = refused(lambda: pointwise(kind, parameters=slope, DY=dy, Y=y, DX=dx))
    assert error.status is Status.NOT_SUPPORTED
    x = tensor(4, DIMS)
    error = refused(lambda: pointwise(kind, DY=dy, X=x, Y=y, DX=dx))
    assert "it is set" in error.what


# ---- statistics


def finalized(mode, **tensors):
    names = b.cudnnBackendAttributeName_t
    prefix = "CUDNN_ATTR_OPERATION_BN_FINALIZE_"
    return made(
        b.CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR,
        (names[f"{prefix}STATS_MODE"], b.CUDNN_TYPE_BN_FINALIZE_STATS_MODE, [mode]),
        (names[f"{prefix}MATH_PREC"], b.CUDNN_TYPE_DATA_TYPE, [b.CUDNN_DATA_FLOAT]),
        *((names[f"{prefix}{end}_DESC"], D, [item]) for end, item in tensors.items()),
    )


def test_scale_and_bias_of_running_statistics():
    names = ("SCALE", "BIAS", "PREV_RUNNING_MEAN", "PREV_RUNNING_VAR", "EQ_SCALE", "EQ_BIAS")
    given = {name: tensor(uid, [1, 8, 1, 1]) for uid, name in enumerate(names, 1)}
    given["EPSILON"] = tensor(7, [1, 1, 1, 1])
    mode = b.CUDNN_BN_FINALIZE_STATISTICS_INFERENCE
    scale, bias, mean = (drawn(1, 8, 1, 1, seed=seed) for seed in range(3))
    variance, epsilon = np.square(drawn(1, 8, 1, 1, seed=3)), np.full([1] * 4, 1e-3, np.float32)
    values = dict(enumerate((scale, bias, mean, variance), 1)) | {7: epsilon}
    found = run(graph_of(finalized(mode, **given)), values)
    wanted = scale / np.sqrt(variance + 1e-3)
    np.testing.assert_allclose(found[5], wanted, rtol=1e-5)
    np.testing.assert_allclose(found[6], bias - mean * wanted, rtol=1e-4, atol=1e-5)

    without = {name: item for name, item in given.items() if name != "PREV_RUNNING_VAR"}
    assert "it is not set" in refused(lambda: finalized(mode, **without)).what
    more = {**given, "ACCUM_COUNT": tensor(8, [1, 1, 1, 1])}
    assert "it is set" in refused(lambda: finalized(mode, **more)).what
    training = b.CUDNN_BN_FINALIZE_STATISTICS_TRAINING
    assert "it is not set" in refused(lambda: finalized(training, **given)).what


def test_identity_has_the_name_of_the_api_reference():
    assert b.CUDNN_POINTWISE_IDENTITY_FWD is b.CUDNN_POINTWISE_IDENTITY
