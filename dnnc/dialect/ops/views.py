"""Operations that move elements without computing: transpose, slice, reshape, concatenate.

Each says where a result's element comes from: `source(coordinates)` gives the coordinates in
the operand as size expressions over the result's coordinates, which is all that lowering needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Dim, Expr, product
from ..op import Op, attribute, operand, operands, result
from ..tensor import (
    Tensor,
    channels_last,
    dense_order,
    packed_like,
    packed_strides,
    stride_order,
    text,
)


def coordinates(dims: Sequence[Expr]) -> tuple[Expr, ...]:
    """A symbol for the coordinate along each axis; 0 along an axis of 1."""
    return tuple(
        Expr.of(0)
        if extent.constant == 1
        else Expr.of(Dim(f"_d{axis}", 0, max(0, extent.bounds()[1] - 1)))
        for axis, extent in enumerate(dims)
    )


def steps_along(expr: Expr, at: Sequence[Expr]) -> int | tuple[int, int, int] | None:
    """A coordinate as a number, or as one of those `at`, scaled and shifted: (axis, step, offset);
    None: anything else."""
    if expr.constant is not None:
        return expr.constant
    for axis, coordinate in enumerate(at):
        if coordinate.constant is None and expr.dims() == coordinate.dims():
            (dim,) = coordinate.dims()
            step = dict(expr.terms).get((dim,))
            offset = (expr - coordinate * step).constant if step is not None else None
            if step is not None and offset is not None:
                return axis, step, offset
    return None


class View(Op):
    """Y[i] = X[source(i)]: what transpose, slice and reshape share."""

    role = "view"

    x: Tensor = operand("the input", frontend="input", backend="XDESC")
    y: Tensor = result("the result", frontend="OUT_0", backend="YDESC")

    def source(self, at: Sequence[Expr]) -> tuple[Expr, ...]:
        """The coordinates in X of Y's element at the coordinates `at`."""
        raise NotImplementedError

    def _may_convert(self) -> bool:
        """Whether Y may have another type than X: numbers for a comparison's bits."""
        return _is_comparison(self.x) and _are_floats(self.y)

    def _infer_type(self) -> None:
        """X's; but an output that may have another gets the graph's."""
        if self.y.dtype is None and (self.y.is_virtual or not self._may_convert()):
            self.y.dtype = self.x.dtype

    def _require_type(self, constraint: str) -> None:
        if not self._may_convert():
            self._require(constraint, "Y has data type", self.y.type, self.x.type)

    def expand(self) -> Sequence[Op] | None:
        """A conversion, then the view, where the data types differ."""
        return None if self.x.type == self.y.type else _after_conversion(self, self.y.type)

    def _require(self, constraint: str, what: str, actual: object, wanted: object) -> None:
        if actual != wanted:
            shown = [text(v) if isinstance(v, tuple) else str(v) for v in (actual, wanted)]
            raise self.shape_error(constraint, f"{what} {shown[0]}", shown[1])


class Transpose(View):
    """Y's axis i is X's axis permutation[i].

    X [d0, ..., dn], Y [d_permutation[0], ..., d_permutation[n]].
    Source: cuDNN graph API, Transpose operation.

    Constraints:
    (C1) permutation holds each axis of X once.
    (C2) Y's dims are X's dims permuted.
    (C3) X and Y have one data type, but for numbers of bits: a virtual X of BOOLEAN, a float Y.
    """

    op_name = "transpose"
    backend = "OPERATION_TRANSPOSE"

    permutation: tuple[int, ...] = attribute("X's axis of each axis of Y", tuple)

    def infer(self) -> None:
        self._verify_permutation()
        self._infer_type()
        if self.y.dims is None:
            self.y.dims = tuple(self.x.shape[axis] for axis in self.permutation)
        if self.y.strides is None:
            self.y.strides = tuple(self.x.layout[axis] for axis in self.permutation)

    def _verify_permutation(self) -> None:
        self.require_attribute_choices()
        if sorted(self.permutation) != list(range(self.x.rank)):  # transpose_c1
            raise self.error(
                "C1",
                f"permutation {list(self.permutation)}",
                f"each of 0 to {self.x.rank - 1} once",
            )

    def verify(self) -> None:
        self._verify_permutation()
        wanted = tuple(self.x.shape[axis] for axis in self.permutation)
        self._require("C2", "Y has dims", self.y.shape, wanted)  # transpose_c2
        self._require_type("C3")  # transpose_c3

    def source(self, at: Sequence[Expr]) -> tuple[Expr, ...]:
        found = [Expr.of(0)] * len(at)
        for axis, origin in enumerate(self.permutation):
            found[origin] = at[axis]
        return tuple(found)

    def reference(self, *operands: Any, **context: Any) -> Any:
        return np.transpose(operands[0], self.permutation)


class Slice(View):
    """Y[i] = X[start + step * i] along every axis.

    X [d0, ..., dn], Y [(stop0 - start0) / step0 rounded up, ...].
    starts, stops, steps: in elements, one an axis.
    Source: cuDNN graph API, Slice operation.

    Constraints:
    (C1) one start, stop and step an axis; the axis has a fixed size unless it is taken whole.
    (C2) 0 <= start < stop <= the axis's size, step >= 1.
    (C3) Y's dims are the counts of elements taken.
    (C4) X and Y have one data type, but for numbers of bits: a virtual X of BOOLEAN, a float Y.
    """

    op_name = "slice"
    backend = "OPERATION_SLICE"

    starts: tuple[int, ...] = attribute("first element of each axis", tuple)
    stops: tuple[int, ...] = attribute(
        "one past the last element of each axis; -1: the axis's end", tuple
    )
    steps: tuple[int, ...] = attribute("distance of the elements taken", tuple)

    def _is_whole(self, axis: int) -> bool:
        return (self.starts[axis], self.stops[axis], self.steps[axis]) == (0, -1, 1)

    def _dims(self) -> tuple[Expr, ...]:
        dims: list[Expr] = []
        for axis, extent in enumerate(self.x.shape):
            if self._is_whole(axis):
                dims.append(extent)
                continue
            if extent.constant is None:  # slice_c1
                raise self.error(
                    "C1",
                    f"axis {axis} has the size {extent}, known at run time only",
                    "that axis taken whole",
                    Status.NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
                )
            stop = extent.constant if self.stops[axis] == -1 else self.stops[axis]
            start, step = self.starts[axis], self.steps[axis]
            if not (0 <= start < stop <= extent.constant and step >= 1):  # slice_c2
                raise self.error(
                    "C2",
                    f"slice {start}:{stop}:{step} of axis {axis}",
                    f"0 <= start < stop <= {extent}, step >= 1",
                )
            dims.append(Expr.of(math.ceil((stop - start) / step)))
        return tuple(dims)

    def infer(self) -> None:
        self._infer_type()
        if self.y.dims is None and len(self.starts) == self.x.rank:
            self.y.dims = self._dims()
        if self.y.strides is None and self.y.dims is not None:
            pairs = zip(self.x.layout, self.steps, strict=False)  # `verify` counts them
            self.y.strides = tuple(stride * step for stride, step in pairs)

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        return packed_strides(tensor.shape, stride_order(self.x.shape, self.x.layout))

    def verify(self) -> None:
        self.require_attribute_choices()
        lengths = {len(self.starts), len(self.stops), len(self.steps)}
        if lengths != {self.x.rank}:  # slice_c1
            raise self.error("C1", "starts, stops, steps of other lengths", f"{self.x.rank} each")
        self._require("C3", "Y has dims", self.y.shape, self._dims())  # slice_c3
        self._require_type("C4")  # slice_c4

    def source(self, at: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(
            coordinate * step + start
            for coordinate, start, step in zip(at, self.starts, self.steps, strict=True)
        )

    def reference(self, *operands: Any, **context: Any) -> Any:
        taken = tuple(
            slice(start, None if stop == -1 else stop, step)
            for start, stop, step in zip(self.starts, self.stops, self.steps, strict=True)
        )
        return operands[0][taken]


class Reshape(View):
    """Y holds X's elements under other dims.

    X [d0, ..., dn], Y [e0, ..., em] of as many elements.
    VIEW_ONLY keeps each element's place in memory (X and Y are packed, in any order of their
    axes); LOGICAL keeps the order in which indices count up, whatever the strides.
    Source: cuDNN graph API, Reshape operation.

    Constraints:
    (C1) Y's dims are set and have as many elements as X's.
    (C2) for VIEW_ONLY, X's and Y's strides pack their dims, but for a virtual tensor, of which the
    order of its axes counts alone.
    (C3) X and Y have one data type; but a virtual X of BOOLEAN becomes numbers of a floating-point
    type, and VIEW_ONLY converts one of these to another.
    """

    op_name = "reshape"
    takes_rank_0 = True
    backend = "OPERATION_RESHAPE"

    reshape_mode: str = attribute(
        "what keeps its order", str, "VIEW_ONLY", choices=("VIEW_ONLY", "LOGICAL")
    )

    @property
    def keeps_memory(self) -> bool:  # type: ignore[override]
        return self.reshape_mode == "VIEW_ONLY"

    @property
    def joins_heads(self) -> bool:
        """Whether rows of heads follow each other in fewer heads: [B, H, S, n] as
        [B, H / g, g * S, n], as in gradients of attention whose heads share keys."""
        if self.x.rank != 4 or self.y.rank != 4 or self.x.shape[3] != self.y.shape[3]:
            return False
        (batch, heads, rows, _), (own, fewer, more, _) = self.x.shape, self.y.shape
        is_joined = batch == own and heads * rows == fewer * more and heads != fewer
        return is_joined and self.counts_up

    @property
    def counts_up(self) -> bool:
        """Whether elements keep the order in which indices count up, as by LOGICAL."""
        return self._counts_up(lambda axis: axis)

    @property
    def exchanges_last(self) -> bool:
        """Whether it exchanges the last two axes, and leaves the others."""
        rank = self.x.rank
        if self.y.rank != rank or rank < 2:
            return False
        *outer, m, n = self.x.shape
        if self.y.shape != (*outer, n, m):
            return False
        exchanged = {rank - 2: rank - 1, rank - 1: rank - 2}
        return self._counts_up(lambda axis: exchanged.get(axis, axis))

    def _counts_up(self, place: Callable[[int], int]) -> bool:
        """Whether X's axes are Y's in order; place: of an axis of Y."""
        runs = sorted((x_run, [place(axis) for axis in y_run]) for x_run, y_run in self.runs())
        both = ([axis for run in side for axis in run] for side in zip(*runs, strict=True))
        return all(axes == sorted(axes) for axes in both)

    def _may_convert(self) -> bool:
        return super()._may_convert() or (self.keeps_memory and _are_floats(self.x, self.y))

    def infer(self) -> None:
        self._infer_type()
        if self.y.dims is None:
            raise self.error("C1", "the result's dims are not set", "dims, by set_dim")
        if self.y.strides is None:
            self.y.strides = channels_last(self.y.dims)

    def _order(self, tensor: Tensor) -> tuple[int, ...] | None:
        if self.reshape_mode == "LOGICAL":
            return tuple(range(tensor.rank))
        if tensor.is_virtual:
            return stride_order(tensor.shape, tensor.layout)
        return dense_order(tensor.shape, tensor.layout)

    def _orders(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Y's and X's axes, outermost first, in the order that is kept; verified by now."""
        orders = self._order(self.y), self._order(self.x)
        assert None not in orders, f"{self.label} is not verified"
        return cast(Any, orders)

    def verify(self) -> None:
        self.require_attribute_choices()
        if self.x.elements() != self.y.elements():  # reshape_c1
            raise self.shape_error(
                "C1",
                f"{text(self.x.shape)} has {self.x.elements()} elements, "
                f"{text(self.y.shape)} has {self.y.elements()}",
                "as many elements",
            )
        for tensor in (self.x, self.y):
            if self._order(tensor) is None:  # reshape_c2
                raise self.error(
                    "C2",
                    f"strides {text(tensor.layout)} of dims {text(tensor.shape)}",
                    "packed strides, or reshape_mode LOGICAL",
                    Status.NOT_SUPPORTED_LAYOUT,
                )
        self._require_type("C3")  # reshape_c3

    def runs(self) -> list[tuple[list[int], list[int]]]:
        """The shortest runs of X's and Y's axes that hold the same elements, but those of 1."""
        y_order, x_order = self._orders()
        y_axes = [axis for axis in y_order if self.y.shape[axis].constant != 1]
        x_axes = [axis for axis in x_order if self.x.shape[axis].constant != 1]
        return _matching_runs(x_axes, self.x.shape, y_axes, self.y.shape)

    def source(self, at: Sequence[Expr]) -> tuple[Expr, ...]:
        """Runs of axes that hold the same elements are matched, so that most need no division."""
        found = [Expr.of(0)] * self.x.rank
        for x_run, y_run in self.runs():
            linear = _linear(at, y_run, self.y.shape)
            for axis, value in _unravelled(linear, x_run, self.x.shape):
                found[axis] = value
        return tuple(found)

    def reference(self, *operands: Any, **context: Any) -> Any:
        y_dims = [extent.evaluate(context["sizes"]) for extent in self.y.shape]
        y_order, x_order = self._orders()
        in_memory = np.transpose(operands[0], x_order).reshape([y_dims[axis] for axis in y_order])
        return np.transpose(in_memory, np.argsort(y_order))


def _matching_runs(
    x_axes: list[int], x_dims: Sequence[Expr], y_axes: list[int], y_dims: Sequence[Expr]
) -> list[tuple[list[int], list[int]]]:
    """Pairs of shortest runs of axes, outermost first, whose dims have equal products."""
    runs: list[tuple[list[int], list[int]]] = []
    x_run: list[int] = []
    y_run: list[int] = []
    x_left, y_left = list(x_axes), list(y_axes)
    while x_left or y_left:
        x_size = product(x_dims[axis] for axis in x_run)
        y_size = product(y_dims[axis] for axis in y_run)
        # Grow the side that may be the smaller one; with symbols, the one that has factors less.
        if (x_size.bounds()[1] <= y_size.bounds()[1] and x_left) or not y_left:
            x_run.append(x_left.pop(0))
        else:
            y_run.append(y_left.pop(0))
        if product(x_dims[a] for a in x_run) == product(y_dims[a] for a in y_run):
            runs.append((x_run, y_run))
            x_run, y_run = [], []
    if x_run or y_run:
        runs.append((x_run, y_run))
    return runs


def _is_comparison(tensor: Tensor) -> bool:
    """Whether it is bits that the user reads as numbers: of a virtual tensor."""
    return tensor.is_virtual and tensor.dtype == dtypes.i1


def _are_floats(*tensors: Tensor) -> bool:
    """Whether all have floating-point types, or none yet."""
    return all(tensor.dtype is None or tensor.dtype.is_float for tensor in tensors)


def _after_conversion(op: Op, dtype: DType) -> Sequence[Op]:
    """Conversions of an operation's operands to a floating-point type, and the operation."""
    from ..expansion import Steps  # which is written with views

    is_wide = any(tensor.type == dtypes.f64 for tensor in (*op.operands, *op.results))
    steps = Steps(op.name, dtypes.f64 if is_wide else dtypes.f32, op.operands[0].rank)
    others = {
        tensor: steps.pointwise("identity", tensor, to=steps.virtual(dtype))
        for tensor in op.operands
        if tensor.type != dtype
    }
    steps.add(op.with_tensors(others))
    return steps.ops


def _linear(at: Sequence[Expr], run: list[int], dims: Sequence[Expr]) -> Expr:
    value = Expr.of(0)
    for axis in run:
        value = value * dims[axis] + at[axis]
    return value


def _unravelled(linear: Expr, run: list[int], dims: Sequence[Expr]) -> list[tuple[int, Expr]]:
    """(axis, coordinate) of each axis of the run."""
    found: list[tuple[int, Expr]] = []
    for position in range(len(run) - 1, 0, -1):
        found.append((run[position], linear % dims[run[position]]))
        linear = linear // dims[run[position]]
    if run:
        found.append((run[0], linear))
    return found


class Concatenate(Op):
    """Y is the inputs one after the other along an axis.

    Inputs [d0, ..., ck, ..., dn], Y [d0, ..., c0 + c1 + ..., ..., dn].
    in_place_index: the input whose buffer Y would be part of; not supported.
    Source: cuDNN graph API, Concatenate operation.

    Constraints:
    (C1) 1 to 32 inputs; the axis is one of theirs.
    (C2) ranks and the other dims are equal.
    (C3) Y's dim along the axis is the sum of the inputs'.
    (C4) the inputs and Y have one data type, or floating-point ones, which are converted to Y's, as
    virtual inputs of BOOLEAN are.
    (C5) in_place_index is absent: Y is its own buffer.
    """

    op_name = "concatenate"
    backend = "OPERATION_CONCAT"
    prefix = "OPERATION_CONCAT"
    role = "view"

    inputs: tuple[Tensor, ...] = operands("[d0, ..., ck, ..., dn]", backend="INPUT_DESCS")
    y: Tensor = result("[d0, ..., c0 + c1 + ..., ..., dn]", frontend="OUT_0", backend="OUTPUT_DESC")
    axis: int = attribute("the axis that grows", int, backend="AXIS")
    in_place_index: int | None = attribute(
        "the input that Y's buffer already holds", int, optional=True, backend="INPLACE_INDEX"
    )

    def _dims(self) -> tuple[Expr, ...]:
        dims = list(self.inputs[0].shape)
        dims[self.axis] = sum((t.shape[self.axis] for t in self.inputs), Expr.of(0))
        return tuple(dims)

    def _may_convert(self) -> bool:
        numbers = [tensor for tensor in self.inputs if not _is_comparison(tensor)]
        return _are_floats(*numbers, self.y)

    def _verify_axis(self) -> None:
        if not 1 <= len(self.inputs) <= 32:  # concatenate_c1
            raise self.error("C1", f"{len(self.inputs)} inputs", "1 to 32")
        if not 0 <= self.axis < self.inputs[0].rank:  # concatenate_c1
            raise self.error("C1", f"axis={self.axis}", f"0 to {self.inputs[0].rank - 1}")

    def infer(self) -> None:
        self._verify_axis()
        types = {tensor.dtype for tensor in self.inputs}
        is_left_open = self._may_convert() and (len(types) > 1 or not self.y.is_virtual)
        if self.y.dtype is None and not is_left_open:
            self.y.dtype = self.inputs[0].dtype
        if self.y.dims is None and all(t.rank == self.inputs[0].rank for t in self.inputs):
            self.y.dims = self._dims()
        if self.y.strides is None and self.y.dims is not None:
            self.y.strides = packed_like(self.y.dims, self.inputs[0])

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        first = self.inputs[0]
        return packed_strides(tensor.shape, stride_order(first.shape, first.layout))

    def verify(self) -> None:
        self.require_attribute_choices()
        self._verify_axis()
        for tensor in self.inputs:
            same = tensor.rank == self.y.rank and all(
                extent == self.y.shape[axis]
                for axis, extent in enumerate(tensor.shape)
                if axis != self.axis
            )
            if not same:  # concatenate_c2
                raise self.shape_error(
                    "C2",
                    f"{tensor.label} has dims {text(tensor.shape)}",
                    f"{text(self.y.shape)} but for axis {self.axis}",
                )
            if tensor.type != self.y.type and not self._may_convert():  # concatenate_c4
                raise self.error(
                    "C4",
                    f"{tensor.label} has data type {tensor.type}",
                    str(self.y.type),
                    Status.NOT_SUPPORTED_DATA_TYPE,
                )
        if self.y.shape != self._dims():  # concatenate_c3
            raise self.shape_error("C3", f"Y has dims {text(self.y.shape)}", text(self._dims()))
        if self.in_place_index is not None:  # concatenate_c5
            raise self.error(
                "C5",
                f"in_place_index={self.in_place_index}",
                "no in_place_index: the result has its own buffer",
                Status.NOT_SUPPORTED,
            )

    def expand(self) -> Sequence[Op] | None:
        """Conversions, then what joins tensors of one data type."""
        if all(tensor.type == self.y.type for tensor in self.inputs):
            return None
        return _after_conversion(self, self.y.type)

    def reference(self, *operands: Any, **context: Any) -> Any:
        return np.concatenate(operands, axis=self.axis)
