"""Normalization, forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ..expansion import Steps
from ..op import Op, attribute, operand, result
from ..tensor import Tensor, packed_strides, text


class Layernorm(Op):
    """Y = (X - mean) * inv_variance * scale + bias, over the axes where scale is not 1.

    X, Y [d0, ..., dn]; scale, bias [1 or d0, ..., 1 or dn]; epsilon, a scalar;
    mean, inv_variance [d0 or 1, ..., dn or 1], 1 on the normalized axes, TRAINING only.
    inv_variance = 1 / sqrt(variance + epsilon), the variance being the mean squared distance.
    Source: cuDNN graph API, NormalizationForward operation, mode LAYER_NORM.

    Constraints:
    (C1) scale has X's rank, each of its dims is X's or 1, and one at least is not 1.
    (C2) bias, where given, has scale's dims.
    (C3) Y has X's dims; epsilon has one element.
    (C4) mean and inv_variance are results in TRAINING and absent in INFERENCE.
    (C5) the compute type is FLOAT or DOUBLE.
    """

    op_name = "layernorm"
    backend = "OPERATION_NORM_FORWARD"
    role = "anchor"

    x: Tensor = operand("[d0, ..., dn]", frontend="input", backend="XDESC")
    scale: Tensor = operand("[1 or d0, ..., 1 or dn]", backend="SCALE_DESC")
    bias: Tensor | None = operand("scale's dims", backend="BIAS_DESC", optional=True)
    epsilon: Tensor = operand("a scalar", backend="EPSILON_DESC")
    y: Tensor = result("[d0, ..., dn]", backend="YDESC")
    mean: Tensor | None = result("of each row", backend="MEAN_DESC", optional=True)
    inv_variance: Tensor | None = result("of each row", backend="INV_VARIANCE_DESC", optional=True)
    norm_forward_phase: str = attribute(
        "whether the statistics are kept", str, choices=("TRAINING", "INFERENCE"), backend="PHASE"
    )
    compute_type: DType = attribute(
        "the type of the arithmetic", DType, dtypes.f32, frontend="compute_data_type"
    )

    @property
    def axes(self) -> tuple[int, ...]:
        """The normalized axes."""
        return tuple(axis for axis, n in enumerate(self.scale.shape) if n.constant != 1)

    def _statistics_dims(self) -> tuple[Expr, ...]:
        one = Expr.of(1)
        return tuple(one if a in self.axes else n for a, n in enumerate(self.x.shape))

    def infer(self) -> None:
        if self.y.dims is None:
            self.y.dims = self.x.dims
        if self.y.strides is None:
            self.y.strides = self.x.strides
        for tensor in (self.mean, self.inv_variance):
            if tensor is None:
                continue
            if tensor.dims is None:
                tensor.dims = self._statistics_dims()
            if tensor.strides is None:
                tensor.strides = packed_strides(tensor.dims)
            if tensor.dtype is None and self.compute_type.has_storage:
                tensor.dtype = self.compute_type

    def verify(self) -> None:
        self.require_attribute_choices()
        fits = self.scale.rank == self.x.rank and all(
            s == x or s.constant == 1 for s, x in zip(self.scale.shape, self.x.shape, strict=True)
        )
        if not fits or not self.axes:  # layernorm_c1
            raise self.error(
                "C1",
                f"scale has dims {text(self.scale.shape)}",
                f"{text(self.x.shape)} with some dims 1, not all",
                Status.BAD_PARAM_SHAPE_MISMATCH,
            )
        wanted = [("C2", self.bias, self.scale.shape), ("C3", self.y, self.x.shape)]
        wanted += [("C4", t, self._statistics_dims()) for t in (self.mean, self.inv_variance)]
        for constraint, tensor, dims in wanted:  # layernorm_c2, layernorm_c3, layernorm_c4
            if tensor is not None and tensor.shape != dims:
                raise self.error(
                    constraint,
                    f"{tensor.label} has dims {text(tensor.shape)}",
                    text(dims),
                    Status.BAD_PARAM_SHAPE_MISMATCH,
                )
        if self.epsilon.elements().constant != 1:  # layernorm_c3
            raise self.error("C3", f"epsilon has dims {text(self.epsilon.shape)}", "one element")
        training = self.norm_forward_phase == "TRAINING"
        if any((t is not None) != training for t in (self.mean, self.inv_variance)):
            raise self.error("C4", "statistics", "both in TRAINING, none in INFERENCE")
        if self.compute_type not in (dtypes.f32, dtypes.f64):  # layernorm_c5
            raise self.error(
                "C5",
                f"compute type {self.compute_type.cudnn}",
                "FLOAT, DOUBLE",
                Status.NOT_SUPPORTED_DATA_TYPE,
            )

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.x.rank)
        mean = steps.reduction("avg", self.x, self.axes)
        centred = steps.pointwise("sub", self.x, mean)
        square = steps.pointwise("mul", centred, centred)
        variance = steps.reduction("avg", square, self.axes)
        inv_variance = steps.pointwise("rsqrt", steps.pointwise("add", variance, self.epsilon))
        steps.output(mean, self.mean)
        steps.output(inv_variance, self.inv_variance)
        normal = steps.pointwise("mul", centred, inv_variance)
        if self.bias is None:
            steps.pointwise("mul", normal, self.scale, to=self.y)
        else:
            steps.pointwise("add", steps.pointwise("mul", normal, self.scale), self.bias, to=self.y)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        x, scale, *bias, epsilon = (np.asarray(array, dtype=np.float64) for array in operands)
        mean = np.mean(x, axis=self.axes, keepdims=True)
        variance = np.mean((x - mean) ** 2, axis=self.axes, keepdims=True)
        inv_variance = 1 / np.sqrt(variance + epsilon.reshape([1] * x.ndim))
        y = (x - mean) * inv_variance * scale + (bias[0] if bias else 0)
        return (y, mean, inv_variance) if self.norm_forward_phase == "TRAINING" else y
