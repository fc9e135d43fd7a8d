"""Reduction over the axes along which the result has one element."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr, product
from ...rounding import round_to, to_int32_saturated, to_int32_wrapped, widen
from ..op import Op, arithmetic_type, attribute, operand, result
from ..tensor import Tensor, channels_last, packed_strides, stride_order, text


@dataclass(frozen=True)
class ReductionMode:
    """A reduction, as three scalar steps: map each element, combine two, finish the result.

    name: ours; CUDNN_REDUCE_TENSOR_ + its upper case is cuDNN's, `value` the enum value.
    combine: "add", "mul", "min" or "max".  before, after: names of steps, "" for none.
    """

    name: str
    value: int
    formula: str
    combine: str
    before: str
    after: str
    reference: Callable[..., Any]
    takes_integers: bool = True


def _no_zeros(x: Any, axis: tuple[int, ...]) -> Any:
    return np.prod(np.where(x == 0, 1, x), axis=axis, keepdims=True)


def _ends(x: Any) -> tuple[float, float]:
    """The results of max and min of nothing."""
    return (-math.inf, math.inf) if x.dtype.kind == "f" else (-(2**31), 2**31 - 1)


def _least_magnitude(x: Any) -> float:
    """The amax of nothing; for integers, what the least one's wraps around to."""
    return 0.0 if x.dtype.kind == "f" else _ends(x)[0]


REDUCTION_MODES: tuple[ReductionMode, ...] = (
    ReductionMode("add", 0, "sum x", "add", "", "",
                  lambda x, axis: np.sum(x, axis=axis, keepdims=True)),
    ReductionMode("mul", 1, "product x", "mul", "", "",
                  lambda x, axis: np.prod(x, axis=axis, keepdims=True)),
    ReductionMode("min", 2, "min x", "min", "", "",
                  lambda x, axis: np.min(x, axis=axis, keepdims=True, initial=_ends(x)[1])),
    ReductionMode("max", 3, "max x", "max", "", "",
                  lambda x, axis: np.max(x, axis=axis, keepdims=True, initial=_ends(x)[0])),
    ReductionMode("amax", 4, "max |x|", "max", "abs", "",
                  lambda x, axis: np.max(np.abs(x), axis=axis, keepdims=True,
                                         initial=_least_magnitude(x))),
    ReductionMode("avg", 5, "sum x / count", "add", "", "divide_by_count",
                  lambda x, axis: np.mean(x, axis=axis, keepdims=True), False),
    ReductionMode("norm1", 6, "sum |x|", "add", "abs", "",
                  lambda x, axis: np.sum(np.abs(x), axis=axis, keepdims=True)),
    ReductionMode("norm2", 7, "sqrt(sum x * x)", "add", "square", "sqrt",
                  lambda x, axis: np.sqrt(np.sum(x * x, axis=axis, keepdims=True)), False),
    ReductionMode("mul_no_zeros", 8, "product of the x that are not 0", "mul", "zero_to_one", "",
                  _no_zeros),
)  # fmt: skip

BY_NAME = {mode.name: mode for mode in REDUCTION_MODES}

# Modes whose result is one of the elements, or its magnitude.
INDEXED_MODES = ("min", "max", "amax")
INDEX_TYPES = (dtypes.i32, dtypes.i64)


class Reduction(Op):
    """Y = mode over the axes where Y has dim 1.

    X [d0, ..., dn], Y the same dims or 1.  Elements are converted to the compute type.
    NaN anywhere in a min, max or amax gives NaN.
    Index, Y's dims, of min, max and amax: the place of the first of the elements, converted, that
    are equal to the result, of the first NaN if there is one; counted row-major over the axes that
    are reduced, in their order, from 0 (CUDNN_REDUCE_TENSOR_FLATTENED_INDICES).
    Source: cuDNN graph API, Reduction operation; modes: `cudnnReduceTensorOp_t`; index:
    cuDNN API reference, cudnnReduceTensor and cudnnReduceTensorIndices_t.

    Constraints:
    (C1) ranks are equal.
    (C2) each dim of Y is X's or 1.
    (C3) the compute type is FLOAT, DOUBLE, or INT32 for modes other than avg and norm2.
    (C4) there is an index if generate_index asks for it, of min, max or amax; it has Y's dims, and
         is INT32, or INT64, which holds every place.
    (C5) where there is an index, sizes that are reduced are at least 1.
    """

    op_name = "reduction"
    kind_field = "mode"
    takes_rank_0 = True
    backend = "OPERATION_REDUCTION"

    x: Tensor = operand("[d0, ..., dn]", frontend="input", backend="XDESC")
    y: Tensor = result("[d0 or 1, ..., dn or 1]", frontend="OUT_0", backend="YDESC")
    index: Tensor | None = result("[d0 or 1, ..., dn or 1]", optional=True)
    mode: str = attribute("what is computed", str, choices=tuple(BY_NAME))
    compute_type: DType = arithmetic_type()
    generate_index: bool | None = attribute(
        "whether there is an index, of min, max and amax", bool, optional=True
    )

    @classmethod
    def left_out(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        return () if values.get("generate_index") else ("index",)

    @property
    def row(self) -> ReductionMode:
        return BY_NAME[self.mode]

    @property
    def role(self) -> str:  # type: ignore[override]
        """A reduction over no axis is pointwise work."""
        return "reduction" if self.axes else "pointwise"

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes that are reduced."""
        return tuple(
            axis
            for axis, (x, y) in enumerate(zip(self.x.shape, self.y.shape, strict=True))
            if x != y
        )

    def infer(self) -> None:
        if self.y.dims is None:
            self.y.dims = self.x.shape
        if self.y.strides is None:
            self.y.strides = channels_last(self.y.dims)
        if self.index is None:
            return
        if self.index.dims is None:
            self.index.dims = self.y.dims
        if self.index.strides is None:
            order = stride_order(self.y.dims, self.y.strides)
            self.index.strides = packed_strides(self.index.dims, order)
        if self.index.dtype is None:
            self.index.dtype = self.index_types()[0]

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        if tensor is self.y:
            return packed_strides(tensor.shape)
        return packed_strides(tensor.shape, stride_order(self.y.shape, self.y.layout))

    def index_types(self) -> tuple[DType, ...]:
        """The types that hold every place, the smallest first."""
        places = product(self.x.shape[axis] for axis in self.axes).bounds()[1]
        return tuple(t for t in INDEX_TYPES if places <= t.integer_range[1] + 1)

    def verify(self) -> None:
        self.require_attribute_choices()
        if self.x.rank != self.y.rank:  # reduction_c1
            raise self.shape_error(
                "C1", f"X {text(self.x.shape)}, Y {text(self.y.shape)}", "equal ranks"
            )
        for axis, (x, y) in enumerate(zip(self.x.shape, self.y.shape, strict=True)):
            if y != x and y.constant != 1:  # reduction_c2
                raise self.shape_error("C2", f"dim {axis} of Y is {y}", f"{x} or 1")
        accepted = (dtypes.f32, dtypes.f64, *((dtypes.i32,) if self.row.takes_integers else ()))
        if self.compute_type not in accepted:  # reduction_c3
            raise self.error(
                "C3",
                f"compute type {self.compute_type.cudnn}",
                ", ".join(row.cudnn for row in accepted),
                Status.NOT_SUPPORTED_DATA_TYPE,
            )
        self._verify_index()

    def _verify_index(self) -> None:
        if bool(self.generate_index) != (self.index is not None):  # reduction_c4
            what = "no index" if self.index is None else "an index"
            raise self.error("C4", f"{what}, generate_index={self.generate_index}", "both or none")
        if self.index is None:
            return
        if self.mode not in INDEXED_MODES:  # reduction_c4
            wanted = f"{', '.join(INDEXED_MODES)}, or generate_index=False"
            raise self.error("C4", f"an index of mode {self.mode!r}", wanted)
        if self.index.shape != self.y.shape:  # reduction_c4
            raise self.shape_error(
                "C4", f"an index of dims {text(self.index.shape)}", text(self.y.shape)
            )
        self.require_type("C4", self.index, self.index_types())  # reduction_c4
        for axis in self.axes:
            if self.x.shape[axis].bounds()[0] < 1:  # reduction_c5
                raise self.shape_error(
                    "C5",
                    f"an index along axis {axis}, whose size {self.x.shape[axis]} may be 0",
                    "a symbol whose min is at least 1",
                )

    def expand(self) -> Sequence[Op] | None:
        """With an index: the extreme, then the least of the places where it is."""
        if self.index is None:
            return None
        from ..extreme_index import steps_of  # it is written with reductions

        return steps_of(self)

    def reference(self, *operands: Any, **context: Any) -> Any:
        (x,) = operands
        value = self._reduced(x)
        return value if self.index is None else (value, self._first_place(x, value.shape))

    def _reduced(self, x: Any) -> Any:
        if self.compute_type.is_float:
            x = np.asarray(x, dtype=np.float64)
            with np.errstate(all="ignore"):
                return self.row.reference(x, self.axes)
        with np.errstate(all="ignore"):
            return to_int32_wrapped(self.row.reference(to_int32_saturated(x), self.axes))

    def _first_place(self, x: Any, dims: tuple[int, ...]) -> Any:
        """The index; elements that the compute type can't tell apart are equal."""
        values = widen(round_to(x, self.compute_type))
        if self.mode == "amax":
            values = np.abs(values)
            values = values if self.compute_type.is_float else to_int32_wrapped(values)
        kept = [axis for axis in range(values.ndim) if axis not in self.axes]
        rows = values.transpose(*kept, *self.axes)
        rows = rows.reshape(*rows.shape[: len(kept)], -1)
        find = np.argmin if self.mode == "min" else np.argmax
        return find(rows, axis=-1).reshape(dims)
