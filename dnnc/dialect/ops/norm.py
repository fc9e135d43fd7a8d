"""Normalization over rows, forward: layer, adaptive layer, instance and RMS norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dtypes import DType
from ..expansion import Steps
from ..op import Op, arithmetic_type, attribute, operand, result
from ..tensor import Tensor
from .norm_base import (
    RowNorm,
    axes_but,
    channel_dims,
    fill_channels,
    fill_in_order,
    fill_like,
    float64,
    inverse_root,
    moments,
    reduced_dims,
    scaled,
)

_WHY = "statistics in TRAINING, none in INFERENCE"


class Layernorm(RowNorm):
    """Y = (X - mean) * inv_variance * scale + bias, over the axes where scale is not 1.

    X, Y [d0, ..., dn]; scale, bias [1 or d0, ..., 1 or dn]; epsilon, a scalar;
    mean, inv_variance [d0 or 1, ..., dn or 1], 1 on the normalized axes, TRAINING only.
    inv_variance = 1 / sqrt(variance + epsilon), the variance being the mean squared distance.
    Source: cuDNN graph API, NormalizationForward operation, mode LAYER_NORM.

    Constraints:
    (C1) each dim of scale is X's or 1, and one at least is not 1; all may be 1 where X's last dim
         is: rows are X's last axes of 1 then. Leading dims of 1 may be left out.
    (C2) bias, where given, has scale's dims; leading dims of 1 may be left out.
    (C3) Y has X's dims; epsilon has one element.
    (C4) mean and inv_variance are results in TRAINING and absent in INFERENCE.
    (C5) the compute type is FLOAT or DOUBLE.
    """

    op_name = "layernorm"
    is_composite = True
    backend = "OPERATION_NORM_FORWARD"
    prefix = "OPERATION_NORM_FWD"

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
    compute_type: DType = arithmetic_type()

    @classmethod
    def left_out(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        is_kept = values["norm_forward_phase"] == "TRAINING"
        return () if is_kept else ("mean", "inv_variance")

    def infer(self) -> None:
        fill_like(self.y, self.x)
        for tensor in (self.mean, self.inv_variance):
            fill_in_order(tensor, reduced_dims(self.x, self.axes), self.x)

    def verify(self) -> None:
        self.require_attribute_choices()
        self.verify_scale()  # layernorm_c1
        self.require_scale_dims("C2", self.scale, self.bias)  # layernorm_c2
        self.require_dims("C3", self.x.shape, self.y)  # layernorm_c3
        self.require_one_element("C3", "epsilon", self.epsilon)
        self.require_results("C4", _WHY)  # layernorm_c4
        self.require_dims("C4", reduced_dims(self.x, self.axes), self.mean, self.inv_variance)
        self.require_float_arithmetic("C5")  # layernorm_c5

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.x.rank)
        mean, centred, variance = moments(steps, self.x, self.axes)
        inv_variance = inverse_root(steps, variance, self.epsilon)
        steps.output(mean, self.mean)
        steps.output(inv_variance, self.inv_variance)
        normal = steps.pointwise("mul", centred, inv_variance)
        scaled(steps, normal, self.scale, self.bias, self.y)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        x, scale, *bias, epsilon = float64(operands)
        mean = np.mean(x, axis=self.axes, keepdims=True)
        variance = np.mean((x - mean) ** 2, axis=self.axes, keepdims=True)
        inv_variance = 1 / np.sqrt(variance + epsilon.reshape([1] * x.ndim))
        y = (x - mean) * inv_variance * scale + (bias[0] if bias else 0)
        return (y, mean, inv_variance) if self.norm_forward_phase == "TRAINING" else y


class Adalayernorm(Layernorm):
    """Y = (X - mean) * inv_variance * scale + bias, where scale and bias differ by batch.

    X, Y [B, d1, ..., dn]; scale, bias [B or 1, 1 or d1, ..., 1 or dn]; epsilon, a scalar;
    mean, inv_variance [B, d1 or 1, ..., dn or 1], 1 on the normalized axes, TRAINING only.
    The normalized axes are those where scale is not 1, the first one apart.
    inv_variance = 1 / sqrt(variance + epsilon), the variance being the mean squared distance.
    Source: cuDNN graph API, NormalizationForward operation, mode ADA_LAYER_NORM.

    Constraints:
    (C1) each dim of scale is X's or 1, and one at least after the first is not 1. Leading dims of 1
         may be left out.
    (C2) bias, where given, has scale's dims; leading dims of 1 may be left out.
    (C3) Y has X's dims; epsilon has one element.
    (C4) mean and inv_variance are results in TRAINING and absent in INFERENCE.
    (C5) the compute type is FLOAT or DOUBLE.
    """

    op_name = "adalayernorm"
    is_composite = True

    scale: Tensor = operand("[B or 1, 1 or d1, ..., 1 or dn]", backend="SCALE_DESC")

    first_axis = 1


class Instancenorm(Layernorm):
    """Y = (X - mean) * inv_variance * scale + bias, over each channel of each image.

    X, Y [N, C, (D, H,) W]; scale, bias [1, C, (1, 1,) 1]; epsilon, a scalar;
    mean, inv_variance [N, C, (1, 1,) 1], TRAINING only.
    inv_variance = 1 / sqrt(variance + epsilon), the variance being the mean squared distance.
    Source: cuDNN graph API, NormalizationForward operation, mode INSTANCE_NORM.

    Constraints:
    (C1) X has rank 3 to 5; scale has dims [1, C, 1, ...].
    (C2) bias, where given, has scale's dims.
    (C3) Y has X's dims; epsilon has one element.
    (C4) mean and inv_variance are results in TRAINING and absent in INFERENCE.
    (C5) the compute type is FLOAT or DOUBLE.
    """

    op_name = "instancenorm"
    is_composite = True

    x: Tensor = operand("[N, C, (D, H,) W]", frontend="input", backend="XDESC")
    scale: Tensor = operand("[1, C, (1, 1,) 1]", backend="SCALE_DESC")
    y: Tensor = result("[N, C, (D, H,) W]", backend="YDESC")
    mean: Tensor | None = result("[N, C, (1, 1,) 1]", backend="MEAN_DESC", optional=True)
    inv_variance: Tensor | None = result(
        "[N, C, (1, 1,) 1]", backend="INV_VARIANCE_DESC", optional=True
    )

    @property
    def axes(self) -> tuple[int, ...]:
        """The normalized axes."""
        return axes_but(self.x, 0, 1)

    def infer(self) -> None:
        fill_like(self.y, self.x)
        for tensor in (self.mean, self.inv_variance):
            fill_channels(tensor, reduced_dims(self.x, self.axes))

    def verify_scale(self) -> None:
        self.require_rank("C1", self.x, 3, 5)
        self.require_dims("C1", channel_dims(self.x), self.scale)


class Rmsnorm(RowNorm):
    """Y = X * inv_variance * scale + bias, over the axes where scale is not 1.

    X, Y [d0, ..., dn]; scale, bias [1 or d0, ..., 1 or dn]; epsilon, a scalar;
    inv_variance [d0 or 1, ..., dn or 1], 1 on the normalized axes, TRAINING only.
    inv_variance = 1 / sqrt(mean(X * X) + epsilon).
    Source: cuDNN graph API, NormalizationForward operation, mode RMS_NORM.

    Constraints:
    (C1) each dim of scale is X's or 1, and one at least is not 1; all may be 1 where X's last dim
         is: rows are X's last axes of 1 then. Leading dims of 1 may be left out.
    (C2) bias, where given, has scale's dims; leading dims of 1 may be left out.
    (C3) Y has X's dims; epsilon has one element.
    (C4) inv_variance is a result in TRAINING and absent in INFERENCE.
    (C5) the compute type is FLOAT or DOUBLE.
    """

    op_name = "rmsnorm"
    is_composite = True
    backend = "OPERATION_NORM_FORWARD"
    prefix = "OPERATION_NORM_FWD"

    x: Tensor = operand("[d0, ..., dn]", frontend="input", backend="XDESC")
    scale: Tensor = operand("[1 or d0, ..., 1 or dn]", backend="SCALE_DESC")
    bias: Tensor | None = operand("scale's dims", backend="BIAS_DESC", optional=True)
    epsilon: Tensor = operand("a scalar", backend="EPSILON_DESC")
    y: Tensor = result("[d0, ..., dn]", backend="YDESC")
    inv_variance: Tensor | None = result("of each row", backend="INV_VARIANCE_DESC", optional=True)
    norm_forward_phase: str = attribute(
        "whether the statistics are kept", str, choices=("TRAINING", "INFERENCE"), backend="PHASE"
    )
    compute_type: DType = arithmetic_type()

    @classmethod
    def left_out(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        return () if values["norm_forward_phase"] == "TRAINING" else ("inv_variance",)

    def infer(self) -> None:
        fill_like(self.y, self.x)
        fill_in_order(self.inv_variance, reduced_dims(self.x, self.axes), self.x)

    def verify(self) -> None:
        self.require_attribute_choices()
        self.verify_scale()  # rmsnorm_c1
        self.require_scale_dims("C2", self.scale, self.bias)  # rmsnorm_c2
        self.require_dims("C3", self.x.shape, self.y)  # rmsnorm_c3
        self.require_one_element("C3", "epsilon", self.epsilon)
        self.require_results("C4", _WHY)  # rmsnorm_c4
        self.require_dims("C4", reduced_dims(self.x, self.axes), self.inv_variance)
        self.require_float_arithmetic("C5")  # rmsnorm_c5

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.x.rank)
        square = steps.pointwise("mul", self.x, self.x)
        mean_square = steps.reduction("avg", square, self.axes)
        inv_variance = inverse_root(steps, mean_square, self.epsilon)
        steps.output(inv_variance, self.inv_variance)
        normal = steps.pointwise("mul", self.x, inv_variance)
        scaled(steps, normal, self.scale, self.bias, self.y)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        x, scale, *bias, epsilon = float64(operands)
        mean_square = np.mean(x * x, axis=self.axes, keepdims=True)
        inv_variance = 1 / np.sqrt(mean_square + epsilon.reshape([1] * x.ndim))
        y = x * inv_variance * scale + (bias[0] if bias else 0)
        return (y, inv_variance) if self.norm_forward_phase == "TRAINING" else y
