"""Descriptors of a convolution's gradients: factors, groups as a dim, what is refused."""

import numpy as np
import pytest

import dnnc
from dnnc import DnncError, Status
from dnnc import backend as b
from dnnc.interpreter.plans import run_plan

from .building import (
    DATA_TYPE,
    I64,
    D,
    graph_of,
    heuristics,
    made,
    name_of,
    plan_of,
    tensor,
)

X, W, Y = 1, 2, 3  # uids
PACKED = {X: [2, 4, 5, 4], W: [6, 2, 3, 2], Y: [2, 6, 3, 3]}
WITH_GROUPS = {X: [2, 2, 2, 5, 4], W: [2, 3, 2, 3, 2], Y: [2, 2, 3, 3, 3]}

# Kind of the descriptor, prefix, the ends that name image, filter and response, the result.
DATA = ("DATA", "DX", "W", "DY", X)
FILTER = ("FILTER", "X", "DW", "DY", W)
OPS = {"DATA": "conv_dgrad", "FILTER": "conv_wgrad"}


def gradient(of, dims=None, alpha=1.0, beta=0.0, virtual=False, gap=0):
    """One convolution of stride [2, 1], padding 1 before and [1, 0] after, flipped.

    gap: elements between groups that are a dim.
    """
    kind, *ends, result = of
    parameters = made(
        b.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
        (b.CUDNN_ATTR_CONVOLUTION_COMP_TYPE, DATA_TYPE, [b.CUDNN_DATA_FLOAT]),
        (b.CUDNN_ATTR_CONVOLUTION_CONV_MODE, b.CUDNN_TYPE_CONVOLUTION_MODE, [b.CUDNN_CONVOLUTION]),
        (b.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, I64, [2]),
        (b.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, I64, [1, 0]),
        (b.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, I64, [1, 0]),
        (b.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, I64, [2, 1]),
        (b.CUDNN_ATTR_CONVOLUTION_DILATIONS, I64, [1, 1]),
    )
    prefix = f"OPERATION_CONVOLUTION_BWD_{kind}"
    tensors = [
        (
            name_of(prefix, end),
            D,
            [tensor(uid, n, strides_of(uid, n, gap), virtual=virtual and uid == result)],
        )
        for end, (uid, n) in zip(ends, (dims or PACKED).items(), strict=True)
    ]
    return made(
        getattr(b, f"CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_{kind}_DESCRIPTOR"),
        *tensors,
        (name_of(prefix, "CONV_DESC"), D, [parameters]),
        (name_of(prefix, "ALPHA"), b.CUDNN_TYPE_FLOAT, [alpha]),
        (name_of(prefix, "BETA"), b.CUDNN_TYPE_DOUBLE, [beta]),
    )


def strides_of(uid, dims, gap):
    """Packed strides, with a gap behind each group of a tensor whose groups are a dim."""
    strides = [1] * len(dims)
    for axis in reversed(range(len(dims) - 1)):
        is_groups = axis == (0 if uid == W else 1)
        strides[axis] = strides[axis + 1] * dims[axis + 1] + gap * is_groups
    return strides


def drawn():
    rng = np.random.default_rng(3)
    return {uid: rng.standard_normal(n).astype(np.float32) for uid, n in PACKED.items()}


def referenced(operation, inputs):
    (found,) = dnnc.reference(
        b.operation_graph(graph_of(operation)), inputs, exact_outputs=True
    ).values()
    return found


@pytest.mark.parametrize("of", [DATA, FILTER], ids=["data", "filter"])
def test_alpha_and_beta(of):
    """A plan computes alpha times the gradient plus beta times what its memory holds."""
    result, inputs = of[-1], drawn()
    graph = graph_of(gradient(of, alpha=2.5, beta=0.5))
    titles = [op.title for op in b.operation_graph(graph).ops]
    assert titles == [OPS[of[0]], "pointwise:mul", "pointwise:mul", "pointwise:add"]
    operands = {uid: array for uid, array in inputs.items() if uid != result}
    wanted = 2.5 * referenced(gradient(of), operands) + 0.5 * inputs[result]
    plan = b.execution_plan(plan_of(heuristics(graph)[0])).plan
    assert len(plan.programs[0].fusions) == 1
    found = run_plan(plan, inputs)[result]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("of", [DATA, FILTER], ids=["data", "filter"])
def test_groups_may_be_a_dim(of):
    inputs = drawn()
    del inputs[of[-1]]
    packed, grouped = (referenced(gradient(of, dims), inputs) for dims in (PACKED, WITH_GROUPS))
    np.testing.assert_array_equal(packed, grouped)


@pytest.mark.parametrize("of", [DATA, FILTER], ids=["data", "filter"])
def test_groups_may_lie_apart(of):
    inputs = drawn()
    del inputs[of[-1]]
    packed = referenced(gradient(of, PACKED), inputs)
    given = {uid: array.reshape(WITH_GROUPS[uid]) for uid, array in inputs.items()}
    apart = referenced(gradient(of, WITH_GROUPS, gap=6), given)
    np.testing.assert_allclose(apart.ravel(), packed.ravel(), rtol=1e-6)


@pytest.mark.parametrize("of", [DATA, FILTER], ids=["data", "filter"])
def test_tensors_that_are_no_convolution_are_refused_with_the_descriptor(of):
    with pytest.raises(DnncError, match="DY has dims") as caught:
        gradient(of, {**PACKED, Y: [2, 6, 3, 4]})
    assert caught.value.status is Status.BAD_PARAM_SHAPE_MISMATCH


@pytest.mark.parametrize("of", [DATA, FILTER], ids=["data", "filter"])
def test_a_virtual_gradient_held_nothing(of):
    with pytest.raises(DnncError, match="holds nothing before") as caught:
        gradient(of, beta=1.0, virtual=True)
    assert caught.value.status is Status.BAD_PARAM
    assert caught.value.where == f"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_{of[0]}_BETA"
