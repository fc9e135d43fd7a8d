"""Gradients of the norms: layer, adaptive layer, instance, batch and RMS norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dtypes import DType
from ..expansion import Steps
from ..op import Op, arithmetic_type, attribute, operand, operands, result
from ..tensor import MAX_RANK, Tensor, with_rank
from .norm_base import (
    RowNorm,
    axes_but,
    channel_dims,
    fill_channels,
    fill_like,
    fill_rows,
    fill_scale,
    float64,
    reduced_dims,
)
from .peer_reduction import combined, drawn_peer, exchanged, split_peers, verify_peers


class LayernormBackward(RowNorm):
    """The gradients of layernorm, from dY and the statistics of the forward pass.

    dY, X, dX [d0, ..., dn]; scale, dscale, dbias [1 or d0, ..., 1 or dn];
    mean, inv_variance [d0 or 1, ..., dn or 1], 1 on the axes where scale is not 1.
    With N = (X - mean) * inv_variance, g = dY * scale and avg over those axes,
    dX = inv_variance * (g - avg(g) - N * avg(g * N)); dscale and dbias are the sums of dY * N
    and of dY over the other axes.
    Source: cuDNN graph API, NormalizationBackward operation, mode LAYER_NORM.

    Constraints:
    (C1) each dim of scale is X's or 1, and one at least is not 1; all may be 1 where X's last dim
         is: rows are X's last axes of 1 then. Leading dims of 1 may be left out.
    (C2) dY and dX have X's dims.
    (C3) mean and inv_variance have X's dims, 1 on the normalized axes.
    (C4) dscale and dbias have scale's dims, in X's rank.
    (C5) the compute type is FLOAT or DOUBLE.
    """

    op_name = "layernorm_backward"
    is_composite = True
    backend = "OPERATION_NORM_BACKWARD"
    prefix = "OPERATION_NORM_BWD"

    dy: Tensor = operand("[d0, ..., dn]", frontend="grad", backend="DYDESC")
    x: Tensor = operand("[d0, ..., dn]", frontend="input", backend="XDESC")
    scale: Tensor = operand("[1 or d0, ..., 1 or dn]", backend="SCALE_DESC")
    mean: Tensor = operand("of each row", backend="MEAN_DESC")
    inv_variance: Tensor = operand("of each row", backend="INV_VARIANCE_DESC")
    dx: Tensor = result("[d0, ..., dn]", backend="DXDESC")
    dscale: Tensor = result("scale's dims", backend="DSCALE_DESC")
    dbias: Tensor = result("scale's dims", backend="DBIAS_DESC")
    compute_type: DType = arithmetic_type()

    def infer(self) -> None:
        fill_like(self.dx, self.x)
        for tensor in (self.dscale, self.dbias):
            fill_scale(tensor, self.scale, self.x)

    def verify(self) -> None:
        self.verify_scale()  # layernorm_backward_c1
        self.require_dims("C2", self.x.shape, self.dy, self.dx)  # layernorm_backward_c2
        statistics = (self.mean, self.inv_variance)
        self.require_dims("C3", reduced_dims(self.x, self.axes), *statistics)
        self.require_dims("C4", with_rank(self.scale.shape, self.x.rank), self.dscale, self.dbias)
        self.require_float_arithmetic("C5")  # layernorm_backward_c5

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.x.rank)
        centred = steps.pointwise("sub", self.x, self.mean)
        normal = steps.pointwise("mul", centred, self.inv_variance)
        along = steps.pointwise("mul", self.dy, normal)
        steps.reduction("add", along, self.shared_axes, to=self.dscale)
        steps.reduction("add", self.dy, self.shared_axes, to=self.dbias)
        g = steps.pointwise("mul", self.dy, self.scale)
        mean_g = steps.reduction("avg", g, self.axes)
        mean_along = steps.reduction("avg", steps.pointwise("mul", g, normal), self.axes)
        rest = steps.pointwise("sub", g, mean_g)
        rest = steps.pointwise("sub", rest, steps.pointwise("mul", normal, mean_along))
        steps.pointwise("mul", rest, self.inv_variance, to=self.dx)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        dy, x, scale, mean, inv_variance = float64(operands)
        normal, g = (x - mean) * inv_variance, dy * scale
        mean_g = np.mean(g, axis=self.axes, keepdims=True)
        mean_along = np.mean(g * normal, axis=self.axes, keepdims=True)
        dx = inv_variance * (g - mean_g - normal * mean_along)
        dscale = np.sum(dy * normal, axis=self.shared_axes, keepdims=True)
        return dx, dscale, np.sum(dy, axis=self.shared_axes, keepdims=True)


class AdalayernormBackward(LayernormBackward):
    """The gradients of adalayernorm, from dY and the statistics of the forward pass.

    dY, X, dX [B, d1, ..., dn]; scale, dscale, dbias [B or 1, 1 or d1, ..., 1 or dn];
    mean, inv_variance [B, d1 or 1, ..., dn or 1], 1 on the normalized axes, which are those
    where scale is not 1, the first one apart.
    With N = (X - mean) * inv_variance, g = dY * scale and avg over those axes,
    dX = inv_variance * (g - avg(g) - N * avg(g * N)); dscale and dbias are the sums of dY * N
    and of dY over the axes where scale is 1.
    Source: cuDNN graph API, NormalizationBackward operation, mode ADA_LAYER_NORM.

    Constraints:
    (C1) each dim of scale is X's or 1, and one at least after the first is not 1. Leading dims of 1
         may be left out.
    (C2) dY and dX have X's dims.
    (C3) mean and inv_variance have X's dims, 1 on the normalized axes.
    (C4) dscale and dbias have scale's dims, in X's rank.
    (C5) the compute type is FLOAT or DOUBLE.
    """

    op_name = "adalayernorm_backward"
    is_composite = True

    scale: Tensor = operand("[B or 1, 1 or d1, ..., 1 or dn]", backend="SCALE_DESC")

    first_axis = 1

    def infer(self) -> None:
        fill_rows(self.dx, self.x.shape)
        for tensor in (self.dscale, self.dbias):
            fill_rows(tensor, with_rank(self.scale.shape, self.x.rank))


class ChannelNormBackward(LayernormBackward):
    """The gradients of a norm whose scale is one number of the axes that it averages over."""

    def infer(self) -> None:
        fill_channels(self.dx, self.x.shape)
        for tensor in (self.dscale, self.dbias):
            fill_channels(tensor, channel_dims(self.x))

    @property
    def shared_axes(self) -> tuple[int, ...]:
        return axes_but(self.x, 1)

    @property
    def devices(self) -> int:
        """How many have a part of the averages' elements."""
        return 1

    def over_devices(self, steps: Steps, along: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
        """The sum and the mean, over all devices."""
        return along, mean

    def expand(self) -> Sequence[Op]:
        """A sum and a mean over the normalized axes, of which dX and dscale and dbias are made."""
        steps = Steps(self.name, self.compute_type, self.x.rank)
        centred = steps.pointwise("sub", self.x, self.mean)
        normal = steps.pointwise("mul", centred, self.inv_variance)
        along = steps.reduction("add", steps.pointwise("mul", self.dy, normal), self.axes)
        mean = steps.reduction("avg", self.dy, self.axes)
        along, mean = self.over_devices(steps, along, mean)
        count = steps.count(self.x, self.axes, self.devices)
        total = steps.pointwise("mul", mean, count)
        others = tuple(axis for axis in self.shared_axes if axis not in self.axes)
        for value, made in ((along, self.dscale), (total, self.dbias)):
            if others:
                steps.reduction("add", value, others, to=made)
            else:
                steps.output(value, made)
        mean_along = steps.pointwise("div", along, count)
        rest = steps.pointwise("sub", self.dy, mean)
        rest = steps.pointwise("sub", rest, steps.pointwise("mul", normal, mean_along))
        slope = steps.pointwise("mul", self.scale, self.inv_variance)
        steps.pointwise("mul", rest, slope, to=self.dx)
        return steps.ops


class InstancenormBackward(ChannelNormBackward):
    """The gradients of instancenorm, from dY and the statistics of the forward pass.

    dY, X, dX [N, C, (D, H,) W]; scale, dscale, dbias [1, C, (1, 1,) 1];
    mean, inv_variance [N, C, (1, 1,) 1].
    With M = (X - mean) * inv_variance and avg over the spatial axes,
    dX = scale * inv_variance * (dY - avg(dY) - M * avg(dY * M)); dscale and dbias are the sums
    of dY * M and of dY over all axes but that of channels.
    Source: cuDNN graph API, NormalizationBackward operation, mode INSTANCE_NORM.

    Constraints:
    (C1) X has rank 3 to 5; scale has dims [1, C, 1, ...].
    (C2) dY and dX have X's dims.
    (C3) mean and inv_variance have dims [N, C, 1, ...].
    (C4) dscale and dbias have scale's dims.
    (C5) the compute type is FLOAT or DOUBLE.
    """

    op_name = "instancenorm_backward"
    is_composite = True

    dy: Tensor = operand("[N, C, (D, H,) W]", frontend="grad", backend="DYDESC")
    x: Tensor = operand("[N, C, (D, H,) W]", frontend="input", backend="XDESC")
    scale: Tensor = operand("[1, C, (1, 1,) 1]", backend="SCALE_DESC")
    mean: Tensor = operand("[N, C, (1, 1,) 1]", backend="MEAN_DESC")
    inv_variance: Tensor = operand("[N, C, (1, 1,) 1]", backend="INV_VARIANCE_DESC")
    dx: Tensor = result("[N, C, (D, H,) W]", backend="DXDESC")

    @property
    def axes(self) -> tuple[int, ...]:
        """The normalized axes."""
        return axes_but(self.x, 0, 1)

    def verify_scale(self) -> None:
        self.require_rank("C1", self.x, 3, 5)
        self.require_dims("C1", channel_dims(self.x), self.scale)


class BatchnormBackward(ChannelNormBackward):
    """The gradients of batchnorm, from dY and the statistics of the forward pass.

    dY, X, dX [N, C, d2, ..., dn]; scale, dscale, dbias, mean, inv_variance [1, C, 1, ...].
    With M = (X - mean) * inv_variance and avg over all axes but that of channels,
    dX = scale * inv_variance * (dY - avg(dY) - M * avg(dY * M)); dscale and dbias are the sums
    of dY * M and of dY over the same axes.
    With peer_stats, one tensor of each of several devices, averages and sums are over all devices'
    dY and X together: every device runs the same graph at the same time, on tensors of the same
    dims, with the same peer_stats in the same order.  See peer_reduction.
    Source: cuDNN graph API, NormalizationBackward operation, mode BATCH_NORM.
    peer_rank is ours: which of the tensors is this device's own.

    Constraints:
    (C1) X has rank 2 or more; scale has dims [1, C, 1, ...].
    (C2) dY and dX have X's dims.
    (C3) mean and inv_variance have scale's dims.
    (C4) dscale and dbias have scale's dims.
    (C5) the compute type is FLOAT or DOUBLE, FLOAT with peer_stats.
    (C6) peer_stats are none, or up to 32 different tensors of FLOAT, of dims [their count, 4 * C,
         1, ...], packed.
    (C7) peer_rank is 0 to their count less 1, given where they are.
    """

    op_name = "batchnorm_backward"
    is_composite = True

    dy: Tensor = operand("[N, C, d2, ..., dn]", frontend="grad", backend="DYDESC")
    x: Tensor = operand("[N, C, d2, ..., dn]", frontend="input", backend="XDESC")
    scale: Tensor = operand("[1, C, 1, ...]", backend="SCALE_DESC")
    mean: Tensor = operand("[1, C, 1, ...]", backend="MEAN_DESC")
    inv_variance: Tensor = operand("[1, C, 1, ...]", backend="INV_VARIANCE_DESC")
    peer_stats: tuple[Tensor, ...] = operands(
        "[devices, 4 * C, 1, ...], one of each device",
        backend="PEER_STAT_DESCS", optional=True, is_peer=True,
    )  # fmt: skip
    dx: Tensor = result("[N, C, d2, ..., dn]", backend="DXDESC")
    peer_rank: int | None = attribute("which of peer_stats is its device's own", int, optional=True)

    @property
    def axes(self) -> tuple[int, ...]:
        """The normalized axes."""
        return axes_but(self.x, 1)

    def verify_scale(self) -> None:
        self.require_rank("C1", self.x, 2, MAX_RANK)
        self.require_dims("C1", channel_dims(self.x), self.scale)

    def verify(self) -> None:
        super().verify()
        verify_peers(self, "C5", "C6", "C7")  # batchnorm_backward_c6, batchnorm_backward_c7

    @property
    def devices(self) -> int:
        return max(1, len(self.peer_stats))

    def over_devices(self, steps: Steps, along: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
        return (
            exchanged(steps, self, "gradients", along, mean) if self.peer_stats else (along, mean)
        )

    def draw(self, tensor: Tensor, rng: Any, sizes: Mapping[str, int]) -> Any:
        return drawn_peer(self, tensor, rng, sizes)

    def reference(self, *operands: Any, **context: Any) -> Any:
        arrays, peers = split_peers(self, operands)
        dy, x, scale, mean, inv_variance = arrays
        normal = (x - mean) * inv_variance
        along = np.sum(dy * normal, axis=self.axes, keepdims=True)
        mean = np.mean(dy, axis=self.axes, keepdims=True)
        along, mean = combined("gradients", along, mean, peers, self.peer_rank)
        n = self.devices * x.size // x.shape[1]
        return scale * inv_variance * (dy - mean - normal * along / n), along, mean * n


class RmsnormBackward(RowNorm):
    """The gradients of rmsnorm, from dY and the statistics of the forward pass.

    dY, X, dX [d0, ..., dn]; scale, dscale, dbias [1 or d0, ..., 1 or dn];
    inv_variance [d0 or 1, ..., dn or 1], 1 on the axes where scale is not 1.
    With N = X * inv_variance, g = dY * scale and avg over those axes,
    dX = inv_variance * (g - N * avg(g * N)); dscale and dbias are the sums of dY * N and of dY
    over the other axes.
    Source: cuDNN graph API, NormalizationBackward operation, mode RMS_NORM.

    Constraints:
    (C1) each dim of scale is X's or 1, and one at least is not 1; all may be 1 where X's last dim
         is: rows are X's last axes of 1 then. Leading dims of 1 may be left out.
    (C2) dY and dX have X's dims.
    (C3) inv_variance has X's dims, 1 on the normalized axes.
    (C4) dscale has scale's dims, in X's rank; so has dbias, a result where has_dbias says so.
    (C5) the compute type is FLOAT or DOUBLE.
    """

    op_name = "rmsnorm_backward"
    is_composite = True
    backend = "OPERATION_NORM_BACKWARD"
    prefix = "OPERATION_NORM_BWD"

    dy: Tensor = operand("[d0, ..., dn]", frontend="grad", backend="DYDESC")
    x: Tensor = operand("[d0, ..., dn]", frontend="input", backend="XDESC")
    scale: Tensor = operand("[1 or d0, ..., 1 or dn]", backend="SCALE_DESC")
    inv_variance: Tensor = operand("of each row", backend="INV_VARIANCE_DESC")
    dx: Tensor = result("[d0, ..., dn]", backend="DXDESC")
    dscale: Tensor = result("scale's dims", frontend="Dscale", backend="DSCALE_DESC")
    dbias: Tensor | None = result(
        "scale's dims", frontend="Dbias", backend="DBIAS_DESC", optional=True
    )
    has_dbias: bool = attribute("whether the norm had a bias", bool)
    compute_type: DType = arithmetic_type()

    @classmethod
    def left_out(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        return () if values["has_dbias"] else ("dbias",)

    def infer(self) -> None:
        fill_like(self.dx, self.x)
        for tensor in (self.dscale, self.dbias):
            fill_scale(tensor, self.scale, self.x)

    def verify(self) -> None:
        self.require_attribute_choices()
        self.verify_scale()  # rmsnorm_backward_c1
        self.require_dims("C2", self.x.shape, self.dy, self.dx)  # rmsnorm_backward_c2
        self.require_dims("C3", reduced_dims(self.x, self.axes), self.inv_variance)
        self.require_results("C4", "dbias where has_dbias is true only")  # rmsnorm_backward_c4
        self.require_dims("C4", with_rank(self.scale.shape, self.x.rank), self.dscale, self.dbias)
        self.require_float_arithmetic("C5")  # rmsnorm_backward_c5

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.x.rank)
        normal = steps.pointwise("mul", self.x, self.inv_variance)
        along = steps.pointwise("mul", self.dy, normal)
        steps.reduction("add", along, self.shared_axes, to=self.dscale)
        if self.dbias is not None:
            steps.reduction("add", self.dy, self.shared_axes, to=self.dbias)
        g = steps.pointwise("mul", self.dy, self.scale)
        mean_along = steps.reduction("avg", steps.pointwise("mul", g, normal), self.axes)
        rest = steps.pointwise("sub", g, steps.pointwise("mul", normal, mean_along))
        steps.pointwise("mul", rest, self.inv_variance, to=self.dx)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        dy, x, scale, inv_variance = float64(operands)
        normal, g = x * inv_variance, dy * scale
        dx = inv_variance * (g - normal * np.mean(g * normal, axis=self.axes, keepdims=True))
        dscale = np.sum(dy * normal, axis=self.shared_axes, keepdims=True)
        dbias = np.sum(dy, axis=self.shared_axes, keepdims=True)
        return (dx, dscale, dbias) if self.has_dbias else (dx, dscale)
