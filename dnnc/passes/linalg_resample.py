# pyright: basic
"""Resampling as linalg: each element of the result reduces over what it is made of.

Forward, the reducing loops are the places of a window; backward, the windows that may have read
an element (a fixed number, so that nothing is added in an order that changes).  Bodies extract at
coordinates that are kept inside the tensor, and drop what was outside:

    %y = linalg.generic {indexing_maps = [(n, c, p, q, r, s) -> (r, s), ... -> (n, c, p, q)],
            iterator_types = [parallel x 4, reduction x 2]} ins(%places) outs(%identity)
         { %h = p * stride - pre + r; ...; tensor.extract %x[n, c, clamp %h, clamp %w]; ... }

`%places` is a tensor of the loops' sizes, whose elements are not used.  Maxima with an index are
reduced as one i64 number: the element, in an order of integers, above its place, counted down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes
from ..codegen.scalars.scalar import Scalars, constant, convert, element_type
from ..dialect.ops.resample import Resample, ResampleBackward, Resampling
from ..dialect.tensor import Tensor, packed_strides, sizes
from ..dialect.windows import Windows
from ..dtypes import DType
from ..mlir import arith, ir, linalg, tensor
from .linalg_index import SpatialSizes, all_of, clamped, divided, index_of, scaled, within

_Predicate = arith.CmpIPredicate
_NOTHING = -(1 << 63)
_NAN = 0x7FFFFFFF


def _kept(condition: Any, value: Any, other: Callable[[], Any]) -> Any:
    return value if condition is None else arith.SelectOp(condition, value, other()).result


# ---- reducing


def _places(low: Any, counts: Sequence[int]) -> Any:
    """A tensor whose dims are the sizes of reducing loops."""
    dims = sizes(counts)
    like = Tensor(dims=dims, strides=packed_strides(dims), dtype=dtypes.i1)
    return low.generic(like, dtypes.i1, [], lambda: constant(0, element_type(dtypes.i1)))


def _reduced(
    low: Any,
    like: Tensor,
    dtype: DType,
    counts: Sequence[int],
    start: float | int,
    body: Callable[[list[Any], Any], Any],
) -> Any:
    """A tensor of like's dims; body: (indices of the reducing loops, total) -> total."""
    rank, loops = like.rank, like.rank + len(counts)
    dims = [ir.AffineExpr.get_dim(axis) for axis in range(loops)]
    type_ = low.type_of(like, dtype)
    fill = linalg.FillOp(
        [type_], [constant(start, element_type(dtype))], [low.empty(type_, like.shape)]
    )
    linalg.fill_builtin_region(fill.operation)

    def step(_: Any, total: Any) -> Any:
        return body([linalg.IndexOp(axis).result for axis in range(rank, loops)], total)

    return low.generic(
        like,
        dtype,
        [(_places(low, counts), ir.AffineMap.get(loops, 0, dims[rank:]))],
        step,
        init=fill.results[0],
        output_map=ir.AffineMap.get(loops, 0, dims[:rank]),
        iterators=["parallel"] * rank + ["reduction"] * len(counts),
    )


def _coordinates(rank: int) -> list[Any]:
    return [linalg.IndexOp(axis).result for axis in range(rank)]


def _element(low: Any, source: Tensor, value: Any, at: Sequence[Any], dtype: DType) -> Any:
    return convert(tensor.ExtractOp(value, list(at)).result, source.type, dtype)


def _rounded(low: Any, value: Any, result: Tensor, compute: DType, finish: Any = None) -> Any:
    """The reduced tensor, finished, in the result's data type and layout."""
    if finish is None and result.type == compute:
        return value
    identity = ir.AffineMap.get_identity(result.rank)

    def body(total: Any) -> Any:
        return convert(finish(total) if finish else total, compute, result.type)

    return low.generic(result, result.type, [(value, identity)], body)


# ---- forward


def resample(low: Any, op: Resample) -> None:
    """Puts the values of Y and the index in `low`."""
    if op.index is not None:
        _max_with_index(low, op)
    elif op.is_max:
        total = _pooled(low, op, -math.inf, lambda scalars, total, x: scalars.max(total, x))
        low.values[op.y] = _rounded(low, total, op.y, op.compute_type)
    elif op.windows[0].kind == "pool":
        total = _pooled(low, op, 0, lambda scalars, total, x: scalars.add(total, x))
        low.values[op.y] = _rounded(low, total, op.y, op.compute_type, _averaged(low, op, op.x))
    else:
        low.values[op.y] = _rounded(low, _upsampled(low, op), op.y, op.compute_type)


def _window_places(
    op: Resampling, at: Sequence[Any], taps: Sequence[Any], x: SpatialSizes
) -> tuple[list[Any], Any]:
    """(the element of each axis, kept inside X; whether it was inside, None: always)."""
    elements, inside = [], []
    for axis, w in enumerate(op.windows):
        start = scaled(at[2 + axis], w.stride, -w.pre)
        place = arith.AddIOp(start, taps[axis]).result
        if w.is_padded:
            inside.append(within(place, x.extents[axis]))
            place = clamped(place, x.lasts[axis])
        elements.append(place)
    return elements, all_of(inside)


def _pooled(low: Any, op: Resample, start: float, combine: Callable[..., Any]) -> Any:
    scalars, x, dims = Scalars(op.compute_type), low.value(op.x), SpatialSizes(low, op.x)

    def body(taps: list[Any], total: Any) -> Any:
        at = _coordinates(op.y.rank)
        places, inside = _window_places(op, at, taps, dims)
        value = _element(low, op.x, x, [*at[:2], *places], op.compute_type)
        return _kept(inside, combine(scalars, total, value), lambda: total)

    return _reduced(low, op.y, op.compute_type, op.window, start, body)


def _averaged(low: Any, op: Resampling, x: Tensor) -> Any:
    """The finish of a sum: divided by the window's size, or by how much of it is inside X."""
    scalars, dims = Scalars(op.compute_type), SpatialSizes(low, x)
    return lambda total: scalars.div(total, _count(op, scalars, _coordinates(x.rank), dims))


def _count(op: Resampling, scalars: Scalars, at: Sequence[Any], x: SpatialSizes) -> Any:
    """The divisor of the sum of the window at Y's coordinates."""
    if op.resample_mode == "AVGPOOL_INCLUDE_PADDING":
        return scalars.const(op.positions)
    total = None
    for axis, w in enumerate(op.windows):
        if w.is_padded:
            start = scaled(at[2 + axis], w.stride, -w.pre)
            end = arith.MinSIOp(scaled(start, 1, w.window), x.extents[axis]).result
            inside = arith.SubIOp(end, arith.MaxSIOp(start, index_of(0)).result).result
        else:
            inside = index_of(w.window)
        total = inside if total is None else arith.MulIOp(total, inside).result
    return _as_float(scalars, total)


def _as_float(scalars: Scalars, index: Any) -> Any:
    number = arith.IndexCastOp(ir.IntegerType.get_signless(32), index).result
    return arith.SIToFPOp(scalars.type, number).result


def _upsampled(low: Any, op: Resample) -> Any:
    scalars, x, dims = Scalars(op.compute_type), low.value(op.x), SpatialSizes(low, op.x)

    def body(taps: list[Any], total: Any) -> Any:
        at = _coordinates(op.y.rank)
        places, weight = [], None
        for axis, w in enumerate(op.windows):
            first, rest = _source(w, at[2 + axis])
            place = arith.AddIOp(first, taps[axis]).result if w.taps > 1 else first
            places.append(clamped(place, dims.lasts[axis]))
            weight = _times(scalars, weight, _weight(scalars, w, rest, taps[axis]))
        value = _element(low, op.x, x, [*at[:2], *places], op.compute_type)
        return scalars.add(total, _times(scalars, weight, value))

    return _reduced(low, op.y, op.compute_type, [w.taps for w in op.windows], 0, body)


def _source(w: Windows, output: Any) -> tuple[Any, Any]:
    """(the first element that an output is made of, how far it is past it) along one axis."""
    place = scaled(output, 2 * w.stride, w.shift + w.lead * w.steps)
    rest = arith.RemUIOp(place, index_of(w.steps)).result if w.taps > 1 else None
    return scaled(divided(place, w.steps), 1, -w.lead), rest


def _weight(scalars: Scalars, w: Windows, rest: Any, tap: Any) -> Any:
    """How much an output takes of its tap along one axis; None: all."""
    if w.taps == 1:
        return None
    is_second = arith.CmpIOp(_Predicate.ne, tap, index_of(0)).result
    second = scalars.mul(_as_float(scalars, rest), scalars.const(1 / w.steps))
    first = scalars.sub(scalars.const(1), second)
    return scalars.select(is_second, second, first)


def _times(scalars: Scalars, a: Any, b: Any) -> Any:
    """The product, None being 1."""
    if a is None or b is None:
        return b if a is None else a
    return scalars.mul(a, b)


# ---- maxima with an index


def _max_with_index(low: Any, op: Resample) -> None:
    x, dims, i64 = low.value(op.x), SpatialSizes(low, op.x), element_type(dtypes.i64)
    index = op.index
    assert index is not None

    def body(taps: list[Any], total: Any) -> Any:
        at = _coordinates(op.y.rank)
        places, inside = _window_places(op, at, taps, dims)
        value = _element(low, op.x, x, [*at[:2], *places], op.compute_type)
        place = arith.IndexCastOp(i64, _row_major(op, taps)).result
        low_half = arith.SubIOp(constant(0xFFFFFFFF, i64), place).result
        high = arith.ExtSIOp(i64, _ordered(value)).result
        high = arith.ShLIOp(high, constant(32, i64)).result
        largest = arith.MaxSIOp(total, arith.OrIOp(high, low_half).result).result
        return _kept(inside, largest, lambda: total)

    best = _reduced(low, op.y, dtypes.i64, op.window, _NOTHING, body)
    identity = ir.AffineMap.get_identity(op.y.rank)

    def value_of(number: Any) -> Any:
        return convert(_from_ordered(number), op.compute_type, op.y.type)

    def place_of(number: Any) -> Any:
        low_half = constant(0xFFFFFFFF, i64)
        place = arith.XOrIOp(number, low_half).result
        if index.type == dtypes.i64:
            return arith.AndIOp(place, low_half).result
        return arith.TruncIOp(element_type(index.type), place).result

    low.values[op.y] = low.generic(op.y, op.y.type, [(best, identity)], value_of)
    low.values[index] = low.generic(index, index.type, [(best, identity)], place_of)


def _row_major(op: Resampling, taps: Sequence[Any]) -> Any:
    """The place in its window, row-major."""
    total = taps[0]
    for tap, extent in zip(taps[1:], op.window[1:], strict=True):
        total = arith.AddIOp(scaled(total, extent), tap).result
    return total


def _ordered(value: Any) -> Any:
    """f32 -> i32 that is larger where the float is, 0 for both zeros, largest for NaN."""
    i32 = element_type(dtypes.i32)
    is_nan = arith.CmpFOp(arith.CmpFPredicate.UNO, value, value).result
    no_minus_zero = arith.AddFOp(value, constant(0.0, value.type)).result
    ordered = _flipped(arith.BitcastOp(i32, no_minus_zero).result)
    return arith.SelectOp(is_nan, constant(_NAN, i32), ordered).result


def _from_ordered(number: Any) -> Any:
    """The float in the upper half of a number; NaN of the largest."""
    i32 = element_type(dtypes.i32)
    high = arith.ShRSIOp(number, constant(32, number.type)).result
    return arith.BitcastOp(
        element_type(dtypes.f32), _flipped(arith.TruncIOp(i32, high).result)
    ).result


def _flipped(bits: Any) -> Any:
    """The bits below the sign inverted where it is set: its own inverse."""
    sign = arith.ShRSIOp(bits, constant(31, bits.type)).result
    return arith.XOrIOp(bits, arith.AndIOp(sign, constant(_NAN, bits.type)).result).result


# ---- backward


def resample_backward(low: Any, op: ResampleBackward) -> None:
    """Puts the value of DX in `low`."""
    compute = op.compute_type
    scalars, dy = Scalars(compute), low.value(op.dy)
    x, y = SpatialSizes(low, op.dx), SpatialSizes(low, op.dy)
    index = low.value(op.index) if op.index is not None else None
    kind = op.windows[0].kind

    def body(readers: list[Any], total: Any) -> Any:
        at = _coordinates(op.dx.rank)
        outputs, read, taps = [], [], []
        for axis, w in enumerate(op.windows):
            output = arith.SubIOp(_last_reader(w, at[2 + axis]), readers[axis]).result
            read.append(within(output, y.extents[axis]))
            if kind == "pool":
                tap = arith.SubIOp(scaled(at[2 + axis], 1, w.pre), scaled(output, w.stride)).result
                taps.append(tap)
                if w.window % w.stride:
                    read.append(within(tap, index_of(w.window)))
            outputs.append(clamped(output, y.lasts[axis]))
        from_ = [*at[:2], *outputs]
        value = _element(low, op.dy, dy, from_, compute)
        if op.index is not None:
            chosen = _element(low, op.index, index, from_, dtypes.i32)
            place = arith.IndexCastOp(chosen.type, _row_major(op, taps)).result
            read.append(arith.CmpIOp(_Predicate.eq, chosen, place).result)
        elif op.resample_mode == "AVGPOOL_EXCLUDE_PADDING":
            value = scalars.div(value, _count(op, scalars, from_, x))
        elif kind != "pool":
            shares = [
                _share(scalars, w, output, at[2 + axis], x.lasts[axis])
                for axis, (w, output) in enumerate(zip(op.windows, outputs, strict=True))
            ]
            read += [share for share in shares if isinstance(share.type, ir.IntegerType)]
            for share in shares:
                if not isinstance(share.type, ir.IntegerType):
                    value = scalars.mul(value, share)
        return _kept(all_of(read), scalars.add(total, value), lambda: total)

    total = _reduced(low, op.dx, compute, [w.readers for w in op.windows], 0, body)
    finish = None
    if op.resample_mode == "AVGPOOL_INCLUDE_PADDING":
        finish = _averaged(low, op, op.dx)
    low.values[op.dx] = _rounded(low, total, op.dx, compute, finish)


def _last_reader(w: Windows, element: Any) -> Any:
    """The last output that may read an element; it may be past Y."""
    factor, shift, divisor, lead = w.last_reader()
    return scaled(divided(scaled(element, factor, shift), divisor), 1, -lead)


def _share(scalars: Scalars, w: Windows, output: Any, element: Any, last: Any) -> Any:
    """How much an output takes of an element along one axis; for one tap: whether it does."""
    first, rest = _source(w, output)
    is_first = arith.CmpIOp(_Predicate.eq, clamped(first, last), element).result
    if w.taps == 1:
        return is_first
    following = clamped(scaled(first, 1, 1), last)
    is_second = arith.CmpIOp(_Predicate.eq, following, element).result
    second = scalars.mul(_as_float(scalars, rest), scalars.const(1 / w.steps))
    first_part = scalars.sub(scalars.const(1), second)
    zero = scalars.const(0)
    return scalars.add(
        arith.SelectOp(is_first, first_part, zero).result,
        arith.SelectOp(is_second, second, zero).result,
    )
