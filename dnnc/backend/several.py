"""Operations of cuDNN's descriptors that are several of the dialect's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dialect.expansion import Steps
from ..dialect.op import Op
from ..dialect.tensor import Tensor

# Modes whose derivative follows from the result of the forward pass.
FROM_RESULT = ("relu_bwd", "tanh_bwd", "sigmoid_bwd", "elu_bwd", "softplus_bwd")


def gradient_from_result(given: Mapping[str, Any]) -> list[Op]:
    """dx = dy * f'(x), by y = f(x) in place of x.

    given: the fields of the pointwise operation, b the result of the forward pass.
    """
    dy, y, dx = given["x"], given["b"], given["y"]
    mode = given["mode"]
    steps = Steps("", given["compute_type"], dy.rank)
    if mode == "relu_bwd":  # y is at a bound, or past it, where x is
        clips = {name: value for name, value in given.items() if name.startswith("relu_")}
        steps.pointwise(mode, dy, y, to=dx, **clips)
    elif mode == "tanh_bwd":
        steps.pointwise("mul", dy, steps.pointwise("sub", 1.0, steps.pointwise("mul", y, y)), to=dx)
    elif mode == "sigmoid_bwd":
        slope = steps.pointwise("mul", y, steps.pointwise("sub", 1.0, y))
        steps.pointwise("mul", dy, slope, to=dx)
    elif mode == "elu_bwd":
        alpha = 1.0 if given.get("elu_alpha") is None else given["elu_alpha"]
        below = steps.pointwise("mul", dy, steps.pointwise("add", y, alpha))
        is_above = steps.pointwise("cmp_gt", y, 0.0)
        steps.pointwise("binary_select", dy, below, is_above, to=dx)
    else:
        assert mode == "softplus_bwd", mode
        beta = 1.0 if given.get("softplus_beta") is None else given["softplus_beta"]
        rest = steps.pointwise("exp", steps.pointwise("mul", y, -beta))
        steps.pointwise("mul", dy, steps.pointwise("sub", 1.0, rest), to=dx)
    return steps.ops


def bn_finalize_of_running(given: Mapping[str, Any]) -> list[Op]:
    """eq_scale = scale / sqrt(running variance + epsilon), eq_bias = bias - mean * eq_scale."""
    scale: Tensor = given["scale"]
    steps = Steps("", given["compute_type"], scale.rank)
    variance = steps.pointwise("add", given["prev_running_var"], given["epsilon"])
    eq_scale = steps.pointwise("mul", scale, steps.pointwise("rsqrt", variance))
    steps.output(eq_scale, given["eq_scale"])
    shift = steps.pointwise("mul", given["prev_running_mean"], eq_scale)
    steps.pointwise("sub", given["bias"], shift, to=given["eq_bias"])
    return steps.ops
