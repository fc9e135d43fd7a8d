"""Softmax over some axes, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ...dtypes import DType
from ..expansion import Steps
from ..op import Op, arithmetic_type, attribute, operand, result
from ..tensor import Tensor
from .norm_base import Norm, fill_like, float64

ALGORITHMS = ("ACCURATE", "LOG", "FAST")


class _OverAxes(Norm):
    """An operation over the axes that its attribute names, negative ones from the end."""

    axis: tuple[int, ...]

    def axes_of(self, tensor: Tensor) -> tuple[int, ...]:
        return tuple(axis % tensor.rank for axis in self.axis)

    def require_axes(self, constraint: str, rank: int) -> None:
        given = cast(tuple[Any, ...], self.axis)
        known = all(type(axis) is int and -rank <= axis < rank for axis in given)
        if not given or not known or len({axis % rank for axis in given}) != len(given):
            raise self.error(
                constraint, f"axis={list(given)}", f"axes from {-rank} to {rank - 1}, each once"
            )


class Softmax(_OverAxes):
    """Y = exp(X) / sum(exp(X)), the sum over the axes that are given.

    X, Y [d0, ..., dn].  The algorithm ACCURATE subtracts the largest X of the sum from every X
    first, so that no exponential overflows; FAST does not; LOG gives the logarithm,
    Y = X - max - log(sum(exp(X - max))).  Of X [N, C, H, W], cuDNN's mode INSTANCE is
    axis=[1, 2, 3] and its mode CHANNEL is axis=1.
    Source: cuDNN API reference, cudnnSoftmaxForward and cudnnSoftmaxAlgorithm_t.

    Constraints:
    (C1) one axis at least, each one of X's and given once; negative ones count from the end.
    (C2) Y has X's dims.
    (C3) the compute type is FLOAT or DOUBLE.
    """

    op_name = "softmax"
    is_composite = True
    backend = "OPERATION_SOFTMAX"

    x: Tensor = operand("[d0, ..., dn]", frontend="input", backend="XDESC")
    y: Tensor = result("[d0, ..., dn]", backend="YDESC")
    axis: tuple[int, ...] = attribute("the axes of a sum", tuple)
    algorithm: str = attribute("how it is computed", str, "ACCURATE", choices=ALGORITHMS)
    compute_type: DType = arithmetic_type()

    def infer(self) -> None:
        fill_like(self.y, self.x)

    def verify(self) -> None:
        self.require_attribute_choices()
        self.require_axes("C1", self.x.rank)  # softmax_c1
        self.require_dims("C2", self.x.shape, self.y)  # softmax_c2
        self.require_float_arithmetic("C3")  # softmax_c3

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.x.rank)
        axes, x = self.axes_of(self.x), self.x
        if self.algorithm != "FAST":
            x = steps.pointwise("sub", x, steps.reduction("max", x, axes))
        exponential = steps.pointwise("exp", x)
        total = steps.reduction("add", exponential, axes)
        if self.algorithm == "LOG":
            steps.pointwise("sub", x, steps.pointwise("log", total), to=self.y)
        else:
            share = steps.pointwise("reciprocal", total)
            steps.pointwise("mul", exponential, share, to=self.y)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        (x,) = float64(operands)
        axes = self.axes_of(self.x)
        with np.errstate(all="ignore"):
            if self.algorithm != "FAST":
                x = x - np.max(x, axis=axes, keepdims=True, initial=-np.inf)
            total = np.sum(np.exp(x), axis=axes, keepdims=True)
            return x - np.log(total) if self.algorithm == "LOG" else np.exp(x) / total


class SoftmaxBackward(_OverAxes):
    """The gradient of softmax, from its result Y.

    dY, Y, dX [d0, ..., dn].  dX = Y * (dY - sum(Y * dY)), the sum over the axes that are given;
    of the algorithm LOG, whose Y is a logarithm, dX = dY - exp(Y) * sum(dY).
    Source: cuDNN API reference, cudnnSoftmaxBackward and cudnnSoftmaxAlgorithm_t.

    Constraints:
    (C1) one axis at least, each one of Y's and given once; negative ones count from the end.
    (C2) dY and dX have Y's dims.
    (C3) the compute type is FLOAT or DOUBLE.
    """

    op_name = "softmax_backward"
    is_composite = True

    dy: Tensor = operand("[d0, ..., dn]", frontend="grad")
    y: Tensor = operand("[d0, ..., dn]", frontend="output")
    dx: Tensor = result("[d0, ..., dn]")
    axis: tuple[int, ...] = attribute("the axes of a sum", tuple)
    algorithm: str = attribute("how Y was computed", str, "ACCURATE", choices=ALGORITHMS)
    compute_type: DType = arithmetic_type()

    def infer(self) -> None:
        fill_like(self.dx, self.y)

    def verify(self) -> None:
        self.require_attribute_choices()
        self.require_axes("C1", self.y.rank)  # softmax_backward_c1
        self.require_dims("C2", self.y.shape, self.dy, self.dx)  # softmax_backward_c2
        self.require_float_arithmetic("C3")  # softmax_backward_c3

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.y.rank)
        axes = self.axes_of(self.y)
        if self.algorithm == "LOG":
            total = steps.reduction("add", self.dy, axes)
            back = steps.pointwise("mul", steps.pointwise("exp", self.y), total)
            steps.pointwise("sub", self.dy, back, to=self.dx)
        else:
            along = steps.pointwise("mul", self.y, self.dy)
            rest = steps.pointwise("sub", self.dy, steps.reduction("add", along, axes))
            steps.pointwise("mul", self.y, rest, to=self.dx)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        dy, y = float64(operands)
        axes = self.axes_of(self.y)
        with np.errstate(all="ignore"):
            if self.algorithm == "LOG":
                return dy - np.exp(y) * np.sum(dy, axis=axes, keepdims=True)
            return y * (dy - np.sum(y * dy, axis=axes, keepdims=True))
