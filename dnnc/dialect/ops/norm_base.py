"""The base of norms and softmax: axes, the dims that follow from them, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ..expansion import Steps
from ..op import Op
from ..tensor import (
    Tensor,
    channels_last,
    packed_like,
    packed_strides,
    stride_order,
    strides_like,
    text,
    with_rank,
)

Dims = tuple[Expr, ...]

_ONE = Expr.of(1)


def row_axes(scale: Tensor, x: Tensor, first: int = 0) -> tuple[int, ...]:
    """The axes from `first` on where scale is not 1; if it is 1 along all, X's last axes of 1.

    A scale of fewer dims is along X's last axes; one of more has none.
    """
    if scale.rank > x.rank:
        return ()
    dims = with_rank(scale.shape, x.rank)
    found = tuple(axis for axis in range(first, x.rank) if dims[axis].constant != 1)
    if found:
        return found
    start = x.rank
    while start > first and x.shape[start - 1].constant == 1:
        start -= 1
    return tuple(range(start, x.rank))


def axes_but(x: Tensor, *kept: int) -> tuple[int, ...]:
    """The axes of a tensor without some."""
    return tuple(axis for axis in range(x.rank) if axis not in kept)


def reduced_dims(x: Tensor, axes: Sequence[int]) -> Dims:
    """The dims of a tensor that is reduced over some axes: 1 there."""
    return tuple(_ONE if axis in axes else n for axis, n in enumerate(x.shape))


def channel_dims(x: Tensor) -> Dims:
    """[1, C, 1, ..., 1] of a tensor [N, C, d2, ..., dn]."""
    return reduced_dims(x, axes_but(x, 1))


def fill_like(tensor: Tensor | None, model: Tensor) -> None:
    """Gives a tensor of the model's dims what is open: dims and strides."""
    if tensor is None:
        return
    if tensor.dims is None:
        tensor.dims = model.dims
    if tensor.strides is None:
        tensor.strides = None if model.strides is None else strides_like(model)


def fill_scale(tensor: Tensor | None, scale: Tensor, x: Tensor) -> None:
    """Gives the gradient of a scale what is open: its dims in X's rank, and strides."""
    if tensor is None or scale.rank == x.rank:
        fill_like(tensor, scale)
    else:
        fill_rows(tensor, with_rank(scale.shape, x.rank))


def fill_channels(tensor: Tensor | None, dims: Dims) -> None:
    """Gives a tensor what is open: dims, and strides that pack them with channels last."""
    if tensor is None:
        return
    if tensor.dims is None:
        tensor.dims = dims
    if tensor.strides is None:
        tensor.strides = channels_last(tensor.dims)


def fill_in_order(tensor: Tensor | None, dims: Dims, model: Tensor) -> None:
    """Gives a tensor what is open: dims, and strides that pack them in a model's order."""
    if tensor is None:
        return
    if tensor.dims is None:
        tensor.dims = dims
    if tensor.strides is None:
        tensor.strides = packed_like(tensor.dims, model)


def fill_rows(tensor: Tensor | None, dims: Dims, dtype: DType | None = None) -> None:
    """Gives a tensor what is open: dims, row-major strides, and the type where one is given."""
    if tensor is None:
        return
    if tensor.dims is None:
        tensor.dims = dims
    if tensor.strides is None:
        tensor.strides = packed_strides(tensor.dims)
    if tensor.dtype is None and dtype is not None and dtype.has_storage:
        tensor.dtype = dtype


def float64(arrays: Iterable[Any]) -> list[Any]:
    """The arrays as a reference computes with them."""
    return [np.asarray(array, dtype=np.float64) for array in arrays]


class Norm(Op):
    """The checks of an operation whose other tensors have dims that follow from its input's."""

    scalars = ("epsilon", "momentum", "accum_count")

    compute_type: DType

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        like = next((t for t in self.operands if t.dims == tensor.dims), None)
        order = stride_order(like.shape, like.layout) if like is not None else None
        return packed_strides(tensor.shape, order)

    def require_one_element(self, constraint: str, name: str, tensor: Tensor | None) -> None:
        if tensor is not None and tensor.elements().constant != 1:
            raise self.error(constraint, f"{name} has dims {text(tensor.shape)}", "one element")

    def require_row_scale(
        self,
        constraint: str,
        x: Tensor,
        scale: Tensor,
        axes: Sequence[int],
        where: str = "",
    ) -> None:
        """scale fits x, and leaves axes to normalize; where: which may be normalized."""
        dims = with_rank(scale.shape, x.rank)
        fits = scale.rank <= x.rank and all(
            s == n or s.constant == 1 for s, n in zip(dims, x.shape, strict=True)
        )
        if not fits or not axes:
            raise self.shape_error(
                constraint,
                f"scale has dims {text(scale.shape)}",
                f"{text(x.shape)} with some dims 1, not all{where}; leading dims of 1 may be left "
                "out",
            )

    def require_scale_dims(self, constraint: str, scale: Tensor, bias: Tensor | None) -> None:
        """bias has the dims of scale, but for leading dims of 1."""
        if bias is not None:
            rank = max(scale.rank, bias.rank)
            if with_rank(bias.shape, rank) != with_rank(scale.shape, rank):
                self.require_dims(constraint, scale.shape, bias)

    def require_rank(self, constraint: str, x: Tensor, low: int, high: int) -> None:
        if not low <= x.rank <= high:
            raise self.error(
                constraint,
                f"{x.label} has dims {text(x.shape)}",
                f"rank {low} to {high}",
                Status.NOT_SUPPORTED_SHAPE,
            )

    def require_results(self, constraint: str, why: str) -> None:
        """Every optional result is there, but for those that such an operation leaves out."""
        absent = self.left_out(vars(self))
        for field in self.fields_of("result"):
            is_absent = getattr(self, field.name) is None
            if is_absent != (field.name in absent):
                how = "is missing" if is_absent else "is given"
                raise self.error(constraint, f"result {field.name} {how}", why)

    def require_together(self, constraint: str, why: str, *tensors: Tensor | None) -> None:
        """All of them are there, or none."""
        if len({tensor is None for tensor in tensors}) > 1:
            missing = sum(tensor is None for tensor in tensors)
            raise self.error(constraint, f"{missing} of {len(tensors)} are not given", why)

    def require_float_arithmetic(self, constraint: str) -> None:
        if self.compute_type not in (dtypes.f32, dtypes.f64):
            raise self.error(
                constraint,
                f"compute type {self.compute_type.cudnn}",
                "FLOAT, DOUBLE",
                Status.NOT_SUPPORTED_DATA_TYPE,
            )


# ---- what expansions share


class RowNorm(Norm):
    """The checks of a norm over the axes where scale is not 1, from `first_axis` on."""

    first_axis: ClassVar[int] = 0

    x: Tensor
    scale: Tensor

    @property
    def axes(self) -> tuple[int, ...]:
        """The normalized axes."""
        return row_axes(self.scale, self.x, first=self.first_axis)

    @property
    def shared_axes(self) -> tuple[int, ...]:
        """The axes that dscale and dbias are sums over."""
        return axes_but(self.x, *row_axes(self.scale, self.x))

    def verify_scale(self) -> None:
        where = " after the first" if self.first_axis else ""
        self.require_row_scale("C1", self.x, self.scale, self.axes, where)


def inverse_root(steps: Steps, variance: Tensor, epsilon: Tensor) -> Tensor:
    """1 / sqrt(variance + epsilon)."""
    return steps.pointwise("rsqrt", steps.pointwise("add", variance, epsilon))


def moments(steps: Steps, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, x - mean, variance), in two passes: the mean of squares less the squared mean
    would cancel."""
    mean = steps.reduction("avg", x, axes)
    centred = steps.pointwise("sub", x, mean)
    square = steps.pointwise("mul", centred, centred)
    return mean, centred, steps.reduction("avg", square, axes)


def scaled(steps: Steps, normal: Tensor, scale: Tensor, bias: Tensor | None, to: Tensor) -> Tensor:
    """normal * scale + bias."""
    if bias is None:
        return steps.pointwise("mul", normal, scale, to=to)
    return steps.pointwise("add", steps.pointwise("mul", normal, scale), bias, to=to)


def running(steps: Steps, old: Tensor, new: Tensor, momentum: Tensor, to: Tensor | None) -> None:
    """(1 - momentum) * old + momentum * new."""
    kept = steps.pointwise("mul", steps.pointwise("sub", 1.0, momentum), old)
    steps.pointwise("add", kept, steps.pointwise("mul", momentum, new), to=to)


def unbiased(steps: Steps, variance: Tensor, count: Tensor | float) -> Tensor:
    """variance * n / (n - 1), of n elements; the variance itself where n is 1."""
    if not isinstance(count, Tensor):
        return steps.pointwise("mul", variance, count / max(count - 1, 1))
    less = steps.pointwise("max", steps.pointwise("sub", count, 1.0), 1.0)
    return steps.pointwise("mul", variance, steps.pointwise("div", count, less))
