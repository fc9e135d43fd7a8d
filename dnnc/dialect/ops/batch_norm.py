"""Batch normalization, forward, and the operations that it is taken apart into: sums of a tensor
by channel, what follows from them, and the factors of its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dtypes import DType
from ..expansion import Steps
from ..op import Op, arithmetic_type, attribute, operand, operands, result
from ..tensor import MAX_RANK, Tensor
from .norm_base import (
    Norm,
    axes_but,
    channel_dims,
    fill_channels,
    fill_like,
    float64,
    inverse_root,
    moments,
    running,
    scaled,
    unbiased,
)
from .peer_reduction import combined, drawn_peer, exchanged, split_peers, verify_peers

_WHY_RUNNING = "running statistics with both old ones and a momentum, none without"


class Batchnorm(Norm):
    """Y = (X - mean) * inv_variance * scale + bias, with the statistics of each channel.

    X, Y [N, C, d2, ..., dn]; scale, bias and all statistics [1, C, 1, ...];
    epsilon, momentum, scalars.
    inv_variance = 1 / sqrt(variance + epsilon), the variance being the mean squared distance.
    next_running = (1 - momentum) * in_running + momentum * new, where the new variance is the
    unbiased one, variance * n / (n - 1) of n elements of a channel (variance if n is 1).
    With peer_stats, one tensor of each of several devices, the statistics are those of all devices'
    X together, and n counts all their elements: every device runs the same graph at the same time,
    on an X of the same dims, with the same tensors in the same order.  See peer_reduction.
    Source: cuDNN graph API, NormalizationForward operation, mode BATCH_NORM, phase TRAINING.
    peer_rank is ours: which of the tensors is this device's own.

    Constraints:
    (C1) X has rank 2 or more; scale has dims [1, C, 1, ...].
    (C2) bias, mean, inv_variance and running statistics have scale's dims.
    (C3) Y has X's dims; epsilon and momentum have one element.
    (C4) the running mean and variance and the momentum are given together or not at all; the
         next ones are results where they are given.
    (C5) the compute type is FLOAT or DOUBLE, FLOAT with peer_stats.
    (C6) peer_stats are none, or up to 32 different tensors of FLOAT, of dims [their count, 4 * C,
         1, ...], packed.
    (C7) peer_rank is 0 to their count less 1, given where they are.
    """

    op_name = "batchnorm"
    is_composite = True
    backend = "OPERATION_NORM_FORWARD"
    prefix = "OPERATION_NORM_FWD"

    x: Tensor = operand("[N, C, d2, ..., dn]", frontend="input", backend="XDESC")
    scale: Tensor = operand("[1, C, 1, ...]", backend="SCALE_DESC")
    bias: Tensor = operand("[1, C, 1, ...]", backend="BIAS_DESC")
    in_running_mean: Tensor | None = operand(
        "[1, C, 1, ...]", backend="INPUT_RUNNING_MEAN_DESC", optional=True
    )
    in_running_var: Tensor | None = operand(
        "[1, C, 1, ...]", backend="INPUT_RUNNING_VAR_DESC", optional=True
    )
    epsilon: Tensor = operand("a scalar", backend="EPSILON_DESC")
    momentum: Tensor | None = operand("a scalar", backend="EXP_AVG_FACTOR_DESC", optional=True)
    peer_stats: tuple[Tensor, ...] = operands(
        "[devices, 4 * C, 1, ...], one of each device",
        backend="PEER_STAT_DESCS", optional=True, is_peer=True,
    )  # fmt: skip
    y: Tensor = result("[N, C, d2, ..., dn]", backend="YDESC")
    mean: Tensor = result("[1, C, 1, ...]", backend="MEAN_DESC")
    inv_variance: Tensor = result("[1, C, 1, ...]", backend="INV_VARIANCE_DESC")
    next_running_mean: Tensor | None = result(
        "[1, C, 1, ...]", backend="OUTPUT_RUNNING_MEAN_DESC", optional=True
    )
    next_running_var: Tensor | None = result(
        "[1, C, 1, ...]", backend="OUTPUT_RUNNING_VAR_DESC", optional=True
    )
    compute_type: DType = arithmetic_type()

    peer_rank: int | None = attribute("which of peer_stats is its device's own", int, optional=True)

    @property
    def axes(self) -> tuple[int, ...]:
        """The normalized axes."""
        return axes_but(self.x, 1)

    @classmethod
    def left_out(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        given = (values["in_running_mean"], values["in_running_var"], values["momentum"])
        return ("next_running_mean", "next_running_var") if None in given else ()

    def infer(self) -> None:
        fill_like(self.y, self.x)
        for tensor in self.results[1:]:
            fill_channels(tensor, channel_dims(self.x))

    def verify(self) -> None:
        self.require_rank("C1", self.x, 2, MAX_RANK)  # batchnorm_c1
        self.require_dims("C1", channel_dims(self.x), self.scale)
        given = (self.in_running_mean, self.in_running_var)
        others = (self.bias, *given, *self.results[1:])
        self.require_dims("C2", self.scale.shape, *others)  # batchnorm_c2
        self.require_dims("C3", self.x.shape, self.y)  # batchnorm_c3
        self.require_one_element("C3", "epsilon", self.epsilon)
        self.require_one_element("C3", "momentum", self.momentum)
        self.require_together("C4", _WHY_RUNNING, *given, self.momentum)  # batchnorm_c4
        self.require_results("C4", _WHY_RUNNING)
        self.require_float_arithmetic("C5")  # batchnorm_c5
        verify_peers(self, "C5", "C6", "C7")  # batchnorm_c6, batchnorm_c7

    def draw(self, tensor: Tensor, rng: Any, sizes: Mapping[str, int]) -> Any:
        return drawn_peer(self, tensor, rng, sizes)

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.x.rank)
        mean, centred, variance = moments(steps, self.x, self.axes)
        if self.peer_stats:
            mean, variance = exchanged(steps, self, "moments", mean, variance)
            centred = steps.pointwise("sub", self.x, mean)
        inv_variance = inverse_root(steps, variance, self.epsilon)
        steps.output(mean, self.mean)
        steps.output(inv_variance, self.inv_variance)
        normal = steps.pointwise("mul", centred, inv_variance)
        scaled(steps, normal, self.scale, self.bias, self.y)
        old_mean, old_variance, momentum = self.in_running_mean, self.in_running_var, self.momentum
        if old_mean is not None and old_variance is not None and momentum is not None:
            running(steps, old_mean, mean, momentum, self.next_running_mean)
            count = steps.count(self.x, self.axes, max(1, len(self.peer_stats)))
            new = unbiased(steps, variance, count)
            running(steps, old_variance, new, momentum, self.next_running_var)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        arrays, peers = split_peers(self, operands)
        x, scale, bias, *rest = arrays
        epsilon = rest[0 if self.momentum is None else 2].reshape([1] * x.ndim)
        mean = np.mean(x, axis=self.axes, keepdims=True)
        variance = np.mean((x - mean) ** 2, axis=self.axes, keepdims=True)
        mean, variance = combined("moments", mean, variance, peers, self.peer_rank)
        inv_variance = 1 / np.sqrt(variance + epsilon)
        made = ((x - mean) * inv_variance * scale + bias, mean, inv_variance)
        if self.momentum is None:
            return made
        old_mean, old_variance, momentum = rest[0], rest[1], rest[3].reshape(())
        n = max(1, len(peers)) * x.size // x.shape[1]
        variance = variance * n / max(n - 1, 1)
        next_mean = (1 - momentum) * old_mean + momentum * mean
        return *made, next_mean, (1 - momentum) * old_variance + momentum * variance


class BatchnormInference(Norm):
    """Y = (X - mean) * inv_variance * scale + bias, with given statistics of each channel.

    X, Y [N, C, d2, ..., dn]; mean, inv_variance, scale, bias [1, C, 1, ...].
    Source: cuDNN graph API, NormalizationForward operation, mode BATCH_NORM, phase INFERENCE.

    Constraints:
    (C1) X has rank 2 or more; mean, inv_variance, scale and bias have dims [1, C, 1, ...].
    (C2) Y has X's dims.
    (C3) the compute type is FLOAT or DOUBLE.
    """

    op_name = "batchnorm_inference"
    is_composite = True
    backend = "OPERATION_NORM_FORWARD"
    prefix = "OPERATION_NORM_FWD"

    x: Tensor = operand("[N, C, d2, ..., dn]", frontend="input", backend="XDESC")
    mean: Tensor = operand("[1, C, 1, ...]", backend="MEAN_DESC")
    inv_variance: Tensor = operand("[1, C, 1, ...]", backend="INV_VARIANCE_DESC")
    scale: Tensor = operand("[1, C, 1, ...]", backend="SCALE_DESC")
    bias: Tensor = operand("[1, C, 1, ...]", backend="BIAS_DESC")
    y: Tensor = result("[N, C, d2, ..., dn]", backend="YDESC")
    compute_type: DType = arithmetic_type()

    def infer(self) -> None:
        fill_like(self.y, self.x)

    def verify(self) -> None:
        self.require_rank("C1", self.x, 2, MAX_RANK)  # batchnorm_inference_c1
        self.require_dims("C1", channel_dims(self.x), *self.operands[1:])
        self.require_dims("C2", self.x.shape, self.y)  # batchnorm_inference_c2
        self.require_float_arithmetic("C3")  # batchnorm_inference_c3

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.x.rank)
        centred = steps.pointwise("sub", self.x, self.mean)
        normal = steps.pointwise("mul", centred, self.inv_variance)
        scaled(steps, normal, self.scale, self.bias, self.y)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        x, mean, inv_variance, scale, bias = float64(operands)
        return (x - mean) * inv_variance * scale + bias


class Genstats(Norm):
    """The sum of each channel, and the sum of its squares.

    X [N, C, d2, ..., dn]; sum, sq_sum [1, C, 1, ...].
    Source: cuDNN graph API, GenStats operation, mode SUM_SQSUM.

    Constraints:
    (C1) X has rank 2 or more.
    (C2) sum and sq_sum have dims [1, C, 1, ...].
    (C3) the compute type is FLOAT or DOUBLE.
    """

    op_name = "genstats"
    is_composite = True
    backend = "OPERATION_GEN_STATS"
    prefix = "OPERATION_GENSTATS"

    x: Tensor = operand("[N, C, d2, ..., dn]", frontend="input", backend="XDESC")
    sum: Tensor = result("[1, C, 1, ...]", backend="SUMDESC")
    sq_sum: Tensor = result("[1, C, 1, ...]", backend="SQSUMDESC")
    compute_type: DType = arithmetic_type(backend="MATH_PREC")

    def infer(self) -> None:
        for tensor in self.results:
            fill_channels(tensor, channel_dims(self.x))

    def verify(self) -> None:
        self.require_rank("C1", self.x, 2, MAX_RANK)  # genstats_c1
        self.require_dims("C2", channel_dims(self.x), *self.results)  # genstats_c2
        self.require_float_arithmetic("C3")  # genstats_c3

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.x.rank)
        axes = axes_but(self.x, 1)
        steps.reduction("add", self.x, axes, to=self.sum)
        steps.reduction("add", steps.pointwise("mul", self.x, self.x), axes, to=self.sq_sum)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        (x,) = float64(operands)
        axes = axes_but(self.x, 1)
        return np.sum(x, axis=axes, keepdims=True), np.sum(x * x, axis=axes, keepdims=True)


class BnFinalize(Norm):
    """Computes what batch normalization needs, from the sums of each channel and of its squares.

    sum, sq_sum, scale, bias and all results [1, C, 1, ...];
    epsilon, accum_count, momentum, scalars.
    With n = accum_count, the elements of a channel: mean = sum / n,
    variance = sq_sum / n - mean * mean, or 0 where that is less,
    inv_variance = 1 / sqrt(variance + epsilon).  Y = eq_scale * X + eq_bias, where
    eq_scale = scale * inv_variance and eq_bias = bias - mean * eq_scale.
    next_running = (1 - momentum) * prev_running + momentum * new, where the new variance is the
    unbiased one, variance * n / (n - 1) (variance if n is 1).
    Source: cuDNN graph API, BnFinalizeStatistics operation, mode STATISTICS_TRAINING.

    Constraints:
    (C1) all tensors of channels have sum's dims.
    (C2) epsilon, accum_count and momentum have one element.
    (C3) the running mean and variance and the momentum are given together or not at all; the
         next ones are results where they are given.
    (C4) the compute type is FLOAT or DOUBLE.
    """

    op_name = "bn_finalize"
    is_composite = True
    backend = "OPERATION_BN_FINALIZE_STATISTICS"
    prefix = "OPERATION_BN_FINALIZE"

    sum: Tensor = operand("[1, C, 1, ...]", backend="Y_SUM_DESC")
    sq_sum: Tensor = operand("[1, C, 1, ...]", backend="Y_SQ_SUM_DESC")
    scale: Tensor = operand("[1, C, 1, ...]", backend="SCALE_DESC")
    bias: Tensor = operand("[1, C, 1, ...]", backend="BIAS_DESC")
    epsilon: Tensor = operand("a scalar", backend="EPSILON_DESC")
    accum_count: Tensor = operand("a scalar", backend="ACCUM_COUNT_DESC")
    prev_running_mean: Tensor | None = operand(
        "[1, C, 1, ...]", backend="PREV_RUNNING_MEAN_DESC", optional=True
    )
    prev_running_var: Tensor | None = operand(
        "[1, C, 1, ...]", backend="PREV_RUNNING_VAR_DESC", optional=True
    )
    momentum: Tensor | None = operand("a scalar", backend="EXP_AVERATE_FACTOR_DESC", optional=True)
    eq_scale: Tensor = result("[1, C, 1, ...]", backend="EQ_SCALE_DESC")
    eq_bias: Tensor = result("[1, C, 1, ...]", backend="EQ_BIAS_DESC")
    mean: Tensor = result("[1, C, 1, ...]", backend="SAVED_MEAN_DESC")
    inv_variance: Tensor = result("[1, C, 1, ...]", backend="SAVED_INV_STD_DESC")
    next_running_mean: Tensor | None = result(
        "[1, C, 1, ...]", backend="UPDATED_RUNNING_MEAN_DESC", optional=True
    )
    next_running_var: Tensor | None = result(
        "[1, C, 1, ...]", backend="UPDATED_RUNNING_VAR_DESC", optional=True
    )
    compute_type: DType = arithmetic_type(backend="MATH_PREC")

    @classmethod
    def left_out(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        given = (values["prev_running_mean"], values["prev_running_var"], values["momentum"])
        return ("next_running_mean", "next_running_var") if None in given else ()

    def infer(self) -> None:
        for tensor in self.results:
            fill_channels(tensor, self.sum.shape)

    def verify(self) -> None:
        given = (self.prev_running_mean, self.prev_running_var)
        others = (self.sq_sum, self.scale, self.bias, *given, *self.results)
        self.require_dims("C1", self.sum.shape, *others)  # bn_finalize_c1
        for name in ("epsilon", "accum_count", "momentum"):  # bn_finalize_c2
            self.require_one_element("C2", name, getattr(self, name))
        self.require_together("C3", _WHY_RUNNING, *given, self.momentum)  # bn_finalize_c3
        self.require_results("C3", _WHY_RUNNING)
        self.require_float_arithmetic("C4")  # bn_finalize_c4

    def draw(self, tensor: Tensor, rng: Any, sizes: Mapping[str, int]) -> Any:
        """Squares that add up to more than the square of the sum leaves."""
        if tensor is self.sq_sum:
            return rng.uniform(6.0, 8.0, [n.evaluate(sizes) for n in tensor.shape])
        if tensor is self.accum_count:
            return np.full([1] * tensor.rank, tensor.value or 32)
        return None

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.sum.rank)
        mean = steps.pointwise("div", self.sum, self.accum_count)
        square = steps.pointwise("div", self.sq_sum, self.accum_count)
        variance = steps.pointwise("sub", square, steps.pointwise("mul", mean, mean))
        variance = steps.pointwise("max", variance, 0.0)
        inv_variance = inverse_root(steps, variance, self.epsilon)
        eq_scale = steps.pointwise("mul", self.scale, inv_variance)
        steps.output(eq_scale, self.eq_scale)
        shift = steps.pointwise("mul", mean, eq_scale)
        steps.pointwise("sub", self.bias, shift, to=self.eq_bias)
        steps.output(mean, self.mean)
        steps.output(inv_variance, self.inv_variance)
        old_mean, old_variance = self.prev_running_mean, self.prev_running_var
        if old_mean is not None and old_variance is not None and self.momentum is not None:
            running(steps, old_mean, mean, self.momentum, self.next_running_mean)
            new = unbiased(steps, variance, self.accum_count)
            running(steps, old_variance, new, self.momentum, self.next_running_var)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        total, squares, scale, bias, epsilon, n, *old = float64(operands)
        n, epsilon = n.reshape(()), epsilon.reshape(())
        mean = total / n
        variance = np.maximum(squares / n - mean * mean, 0)
        inv_variance = 1 / np.sqrt(variance + epsilon)
        eq_scale = scale * inv_variance
        made = (eq_scale, bias - mean * eq_scale, mean, inv_variance)
        if not old:
            return made
        old_mean, old_variance, momentum = old[0], old[1], old[2].reshape(())
        variance = variance * n / max(n - 1, 1)
        next_mean = (1 - momentum) * old_mean + momentum * mean
        return *made, next_mean, (1 - momentum) * old_variance + momentum * variance


class DbnWeight(Norm):
    """The gradients of a batch norm's scale and bias, and the factors of that of its input.

    dY, X [N, C, d2, ..., dn]; all others [1, C, 1, ...].
    With M = (X - mean) * inv_variance, dscale and dbias are the sums of dY * M and of dY of each
    channel, and batchnorm's gradient is dX = eq_scale_dy * dY + eq_scale_x * X + eq_bias: with n
    elements of a channel, eq_scale_dy = scale * inv_variance,
    eq_scale_x = -eq_scale_dy * inv_variance * dscale / n and
    eq_bias = -eq_scale_dy * dbias / n - eq_scale_x * mean.
    Source: cuDNN graph API, BnBwdWeight operation.

    Constraints:
    (C1) X has rank 2 or more, and dY has its dims.
    (C2) mean, inv_variance, scale and all results have dims [1, C, 1, ...].
    (C3) the compute type is FLOAT or DOUBLE.
    """

    op_name = "dbn_weight"
    is_composite = True
    backend = "OPERATION_BN_BWD_WEIGHTS"

    dy: Tensor = operand("[N, C, d2, ..., dn]", backend="DY_DESC")
    x: Tensor = operand("[N, C, d2, ..., dn]", backend="X_DESC")
    mean: Tensor = operand("[1, C, 1, ...]", backend="MEAN_DESC")
    inv_variance: Tensor = operand("[1, C, 1, ...]", backend="INVSTD_DESC")
    scale: Tensor = operand("[1, C, 1, ...]", backend="BN_SCALE_DESC")
    dscale: Tensor = result("[1, C, 1, ...]", backend="DBN_SCALE_DESC")
    dbias: Tensor = result("[1, C, 1, ...]", backend="DBN_BIAS_DESC")
    eq_scale_dy: Tensor = result("[1, C, 1, ...]", backend="EQ_DY_SCALE_DESC")
    eq_scale_x: Tensor = result("[1, C, 1, ...]", backend="EQ_X_SCALE_DESC")
    eq_bias: Tensor = result("[1, C, 1, ...]", backend="EQ_BIAS")
    compute_type: DType = arithmetic_type(backend="MATH_PREC")

    def infer(self) -> None:
        for tensor in self.results:
            fill_channels(tensor, channel_dims(self.x))

    def verify(self) -> None:
        self.require_rank("C1", self.x, 2, MAX_RANK)  # dbn_weight_c1
        self.require_dims("C1", self.x.shape, self.dy)
        channels = (*self.operands[2:], *self.results)
        self.require_dims("C2", channel_dims(self.x), *channels)  # dbn_weight_c2
        self.require_float_arithmetic("C3")  # dbn_weight_c3

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, self.x.rank)
        axes = axes_but(self.x, 1)
        centred = steps.pointwise("sub", self.x, self.mean)
        normal = steps.pointwise("mul", centred, self.inv_variance)
        dscale = steps.reduction("add", steps.pointwise("mul", self.dy, normal), axes)
        dbias = steps.reduction("add", self.dy, axes)
        steps.output(dscale, self.dscale)
        steps.output(dbias, self.dbias)
        of_dy = steps.pointwise("mul", self.scale, self.inv_variance)
        steps.output(of_dy, self.eq_scale_dy)
        count = steps.count(self.x, axes)
        slope = steps.pointwise("mul", self.inv_variance, steps.pointwise("div", dscale, count))
        of_x = steps.pointwise("mul", of_dy, steps.pointwise("neg", slope))
        steps.output(of_x, self.eq_scale_x)
        shift = steps.pointwise("mul", of_dy, steps.pointwise("div", dbias, count))
        back = steps.pointwise("mul", of_x, self.mean)
        steps.pointwise("neg", steps.pointwise("add", shift, back), to=self.eq_bias)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        dy, x, mean, inv_variance, scale = float64(operands)
        axes = axes_but(self.x, 1)
        n = x.size // x.shape[1]
        dscale = np.sum(dy * (x - mean) * inv_variance, axis=axes, keepdims=True)
        dbias = np.sum(dy, axis=axes, keepdims=True)
        of_dy = scale * inv_variance
        of_x = -of_dy * inv_variance * dscale / n
        return dscale, dbias, of_dy, of_x, -of_dy * dbias / n - of_x * mean
