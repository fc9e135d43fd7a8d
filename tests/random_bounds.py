"""Bounds of what a correct plan may give: the reference of a graph, a box around every element.

Each tensor has a box: the reference's own values, and the lowest and highest value that rounding
on the way can lead to.  An operation is evaluated at the corners of its operands' boxes, its own
rounding error is added (`own_error`), and its data type rounds both ends.  So a graph's
conditioning, and the jumps of discontinuous operations (comparisons, floor, conversions to
integers, selections by a computed mask), need no rule of their own: where an operand's box
reaches across a jump, the result's box holds both sides; elsewhere integers and booleans must be
equal.  Where nothing can be said (a NaN that may or may not be there, an overflow of f32 that
float64 does not see), the element is wild and is not compared.

Pointwise modes whose corners need not be their extremes (`_CURVED`) get a margin.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dnnc import dtypes
from dnnc.dialect.op import Op
from dnnc.dialect.ops import Concatenate, Matmul, MoeGroupedMatmul, Pointwise, Reduction
from dnnc.dialect.own_error import SUBNORMAL_STEP, own_error
from dnnc.rounding import round_to, widen

Array = Any

F32_MAX = 3.0e38
_CURVED = {
    "add_square", "div", "mod", "pow", "atan2", "cos", "sin", "tan", "swish_fwd", "gelu_fwd",
    "gelu_approx_tanh_fwd", "tanh_bwd", "sigmoid_bwd", "elu_bwd", "gelu_bwd", "softplus_bwd",
    "swish_bwd", "gelu_approx_tanh_bwd",
}  # fmt: skip


_FLAT = 2.0**-20  # a few units of f32 at 1, from which slopes are differences


@dataclass(frozen=True)
class Box:
    """Bounds around the elements of a tensor: float64, int64 or bool arrays of one shape.

    mid: the reference.  low, high: NaN where mid is and must be.  wild: nothing is known.
    """

    mid: Array
    low: Array
    high: Array
    wild: Array

    @staticmethod
    def of(values: Array) -> Box:
        return Box(values, values, values, np.zeros(values.shape, bool))

    @property
    def is_sharp(self) -> Array:
        """Where only one value is possible."""
        same = (self.low == self.high) | np.isnan(np.asarray(self.mid, float))
        return same & ~self.wild

    @property
    def radius(self) -> Array:
        """The larger distance from mid to an end; 0 where both are infinite or NaN."""
        mid, low, high = (np.asarray(a, float) for a in (self.mid, self.low, self.high))
        with np.errstate(invalid="ignore"):
            found = np.maximum(high - mid, mid - low)
        return np.where(np.isfinite(mid) & ~np.isnan(found), np.maximum(found, 0.0), 0.0)

    def map(self, function: Callable[[Array], Array]) -> Box:
        """Each part through a function that only moves elements."""
        return Box(*(function(part) for part in (self.mid, self.low, self.high, self.wild)))


# ---- a graph


def bounds(
    graph: Any,
    inputs: Mapping[int, Array],
    sizes: Mapping[str, int],
    *,
    tf32: int = 0,
    fp8: bool = False,
) -> dict[int, Box]:
    """uid -> box of every output, rounded to its type; the graph must be finalized.

    inputs: by uid, in the tensors' types.  tf32: 1 or 3 where products of f32 are made of so
    many of tf32, 0 where they are not.  fp8: whether products of fp8 are summed, or a part of
    them, in accumulators of the tensor cores.
    """
    boxes: dict[Any, Box] = {}
    for tensor in graph.tensors:
        if tensor.is_constant:
            value = np.full([1] * tensor.rank, tensor.value)
            boxes[tensor] = Box.of(widen(round_to(value, tensor.type)))
    for tensor in graph.inputs:
        shape = [extent.evaluate(sizes) for extent in tensor.shape]
        boxes[tensor] = Box.of(widen(np.asarray(inputs[tensor.uid]).reshape(shape)))
    for op in graph.ops:
        operands = [boxes[tensor] for tensor in op.operands]
        with np.errstate(all="ignore"):
            made = [_evaluate(op, operands, sizes, tf32, fp8)]
            if isinstance(op, Reduction) and op.index is not None:
                made.append(_index(op, *operands))
            for tensor, box in zip(op.results, made, strict=True):
                boxes[tensor] = _stored(box, tensor.type)
    return {tensor.uid: boxes[tensor] for tensor in graph.outputs}


def _evaluate(
    op: Op, operands: Sequence[Box], sizes: Mapping[str, int], tf32: int, fp8: bool
) -> Box:
    if isinstance(op, Pointwise):
        return _pointwise(op, operands)
    if isinstance(op, Matmul):
        return _matmul(op, *operands, tf32=tf32, fp8=fp8 and op.a.type.is_fp8)
    if isinstance(op, MoeGroupedMatmul):
        return _grouped(op, *operands, tf32=tf32, fp8=fp8 and op.a.type.is_fp8)
    if isinstance(op, Reduction):
        return _reduction(op, *operands)
    if isinstance(op, Concatenate):
        parts = zip(*((b.mid, b.low, b.high, b.wild) for b in operands), strict=True)
        return Box(*(op.reference(*part) for part in parts))
    return operands[0].map(lambda part: op.reference(part, sizes=sizes))


def _stored(box: Box, dtype: Any) -> Box:
    """Rounded to a data type; every rounding is monotone but that to booleans."""
    if dtype.kind == "b":
        has_zero = (box.low <= 0) & (box.high >= 0)
        mid = round_to(box.mid, dtype)
        sharp = box.is_sharp | ~has_zero
        low, high = np.where(sharp, mid, False), np.where(sharp, mid, True)
        return Box(mid, low, high, box.wild)
    mid, low, high = (widen(round_to(part, dtype)) for part in (box.mid, box.low, box.high))
    return Box(mid, low, high, box.wild)


def _computed(box: Box, source: Any, compute: Any) -> Box:
    """An operand in its compute type: f32 does not hold every i32, i64 and f64."""
    if compute != dtypes.f32 or source not in (dtypes.i32, dtypes.i64, dtypes.f64):
        return box
    mid, low, high = (np.asarray(part, float) for part in (box.mid, box.low, box.high))
    off = np.where(mid.astype(np.float32) == mid, 0.0, np.abs(mid) * 2.0**-24)
    wild = box.wild | (np.isfinite(mid) & (np.abs(mid) > F32_MAX))
    return Box(mid, low - off, high + off, wild)


# ---- pointwise


def _pointwise(op: Pointwise, operands: Sequence[Box]) -> Box:
    if op.mode == "identity" and op.x.type == op.y.type:
        return operands[0]
    if op.mode == "gen_index":
        return Box.of(op.reference(operands[0].mid))
    compute = op.compute_type
    pairs = zip(operands, op.operands, strict=True)
    operands = [_computed(box, tensor.type, compute) for box, tensor in pairs]
    operands = [box.map(lambda part: part) for box in _broadcast(operands)]
    mid = op.reference(*(box.mid for box in operands))
    values = np.stack([op.reference(*point) for point in _corners(op, operands)])
    wild = np.logical_or.reduce([box.wild for box in operands])
    if mid.dtype == bool:
        return Box(mid, values.min(axis=0), values.max(axis=0), wild)
    if compute == dtypes.i32:
        # Past one step, integer operations (which wrap) may do anything between the corners.
        wide = [_steps(box) > 1 for box in operands]
        wild = wild | np.logical_or.reduce(wide)
        return Box(mid, values.min(axis=0), values.max(axis=0), wild)
    return _hull(op, operands, mid, values, wild)


def _broadcast(operands: Sequence[Box]) -> list[Box]:
    shape = np.broadcast_shapes(*(box.mid.shape for box in operands))
    return [box.map(lambda part: np.broadcast_to(part, shape)) for box in operands]


def _steps(box: Box) -> Array:
    """How many integers lie between the ends of a box."""
    low, high = (np.rint(np.asarray(part, float)) for part in (box.low, box.high))
    return np.where(box.is_sharp, 0, high - low)


def _corners(op: Pointwise, operands: Sequence[Box]) -> Any:
    """Points of the operands' boxes: ends, middle, what is nearest to 0, for == a common value."""
    choices = []
    for i, box in enumerate(operands):
        if box.is_sharp.all():
            choices.append([box.mid])
            continue
        points = [box.low, box.mid, box.high]
        if box.mid.dtype != bool:
            points.append(np.clip(0, box.low, box.high))
            if op.mode in ("cmp_eq", "cmp_neq"):
                other = np.asarray(operands[1 - i].mid, float)
                points.append(np.clip(other, box.low, box.high))
        choices.append([np.where(np.isnan(np.asarray(box.mid, float)), box.mid, p) for p in points])
    return itertools.product(*choices)


def _hull(op: Pointwise, operands: Sequence[Box], mid: Array, values: Array, wild: Array) -> Box:
    """The box around the values at the corners, with the operation's own error."""
    is_nan = np.isnan(values)
    wild = wild | (is_nan.any(axis=0) & ~is_nan.all(axis=0))
    if op.mode == "tan":
        # A pole lies between the ends.
        x = operands[0]
        periods = [np.rint(np.asarray(end, float) / np.pi) for end in (x.low, x.high)]
        wild = wild | ((periods[0] != periods[1]) & ~x.is_sharp)
    if op.mode in _CURVED and op.mode.endswith("_bwd"):
        # A slope that f32 may round to 0 makes NaN of an infinite gradient.
        dy, *points = (np.asarray(box.mid, float) for box in operands)
        slope = op.reference(np.ones(dy.shape), *points)
        wild = wild | (np.isinf(dy) & (np.abs(slope) < _FLAT))
    low = np.where(wild, mid, values.min(axis=0))
    high = np.where(wild, mid, values.max(axis=0))
    if op.mode == "mod":
        low, high = _between_wraps(operands, low, high)
    if op.mode in ("sin", "cos"):
        low, high = _between_extremes(op.mode, operands[0], low, high)
    margin = own_error(
        op,
        [np.asarray(box.mid, float) for box in operands],
        np.abs(values).max(axis=0),
        is_sharp=np.logical_and.reduce([box.is_sharp for box in operands]),
        is_coarse=op.y.type.bits <= 16,
    )
    if op.mode in _CURVED:
        margin = margin + np.where(np.isfinite(low) & np.isfinite(high), (high - low) / 4, 0)
    margin = np.where(np.isnan(margin), 0.0, margin)
    if op.compute_type == dtypes.f32:
        wild = wild | (np.isfinite(values) & (np.abs(values) > F32_MAX)).any(axis=0)
    low = np.where(np.isfinite(low), low - margin, low)
    high = np.where(np.isfinite(high), high + margin, high)
    return Box(mid, low, high, wild)


def _between_extremes(mode: str, x: Box, low: Array, high: Array) -> tuple[Array, Array]:
    """The ends of a wave: 1 and -1, where an angle at which it is so lies between x's."""
    first = np.pi / 2 if mode == "sin" else 0.0
    for extreme in (1.0, -1.0):
        at = first if extreme > 0 else first + np.pi
        ends = [np.floor((np.asarray(end, float) - at) / (2 * np.pi)) for end in (x.low, x.high)]
        between = (ends[0] != ends[1]) & np.isfinite(ends[0] - ends[1])
        low = np.where(between & (extreme < 0), extreme, low)
        high = np.where(between & (extreme > 0), extreme, high)
    return low, high


def _between_wraps(operands: Sequence[Box], low: Array, high: Array) -> tuple[Array, Array]:
    """The ends of a rest: where the quotient may be one of several integers, any rest may be."""
    x, y = ([np.asarray(end, float) for end in (box.low, box.high)] for box in operands)
    quotients = np.stack([np.trunc(a / b) for a, b in itertools.product(x, y)])
    wraps = quotients.min(axis=0) != quotients.max(axis=0)
    most = np.minimum(*(np.maximum(np.abs(ends[0]), np.abs(ends[1])) for ends in (x, y)))
    least = np.where(x[0] < 0, -most, 0.0)
    most = np.where(x[1] > 0, most, 0.0)
    return np.where(wraps, np.fmin(low, least), low), np.where(wraps, np.fmax(high, most), high)


# ---- sums


def _grouped(
    op: MoeGroupedMatmul, token: Box, weight: Box, first: Box, *, tf32: int, fp8: bool
) -> Box:
    """Each row as a product of its own, with the weights of its expert."""
    assert first.is_sharp.all(), "offsets of experts are known"
    mid = op.reference(token.mid, weight.mid, first.mid)
    rows = np.arange(token.mid.shape[1])
    # Of experts that begin at one row, the last one has it.
    expert = np.searchsorted(first.mid.reshape(-1), rows, side="right") - 1
    made = _sums(
        op,
        token.map(lambda part: part.reshape(rows.size, 1, -1)),
        weight.map(lambda part: part[expert]),
        mid.reshape(rows.size, 1, -1),
        tf32=tf32,
        fp8=fp8,
    )
    return made.map(lambda part: part.reshape(mid.shape))


def _matmul(op: Matmul, a: Box, b: Box, *, tf32: int, fp8: bool) -> Box:
    return _sums(op, a, b, op.reference(a.mid, b.mid), tf32=tf32, fp8=fp8)


def _sums(
    op: Matmul | MoeGroupedMatmul, a: Box, b: Box, mid: Array, *, tf32: int, fp8: bool
) -> Box:
    """Sums over the columns of a and the rows of b, of which mid are the exact ones."""
    in_f32 = op.compute_type in (dtypes.f16, dtypes.fast_float_for_fp8)
    sums = dtypes.f32 if in_f32 else op.compute_type
    wild = np.matmul(a.wild.astype(float), np.ones(b.wild.shape)) > 0
    wild = wild | (np.matmul(np.ones(a.wild.shape), b.wild.astype(float)) > 0)
    if op.compute_type == dtypes.i32:
        loose = np.matmul((~a.is_sharp).astype(float), np.ones(b.mid.shape)) > 0
        loose = loose | (np.matmul(np.ones(a.mid.shape), (~b.is_sharp).astype(float)) > 0)
        return Box(mid, mid, mid, wild | loose)
    a, b = _computed(a, op.a.type, sums), _computed(b, op.b.type, sums)
    depth = a.mid.shape[-1]
    size_a, size_b = (np.nan_to_num(np.abs(np.asarray(x.mid, float))) for x in (a, b))
    size = np.matmul(size_a, size_b)
    unit = (depth + 8) * (2.0**-24 if sums == dtypes.f32 else 2.0**-52)
    if tf32 and op.a.type == op.b.type == dtypes.f32:
        unit += {1: 2.0**-9.5, 3: 2.0**-19}[tf32]
    if fp8:
        # Each of 32 products may be cut by 2^-13 of the largest of them or of the sum so far.
        # In FLOAT, a partial sum leaves the accumulator after 128 of k.
        is_fast = op.compute_type == dtypes.fast_float_for_fp8
        steps = math.ceil((depth if is_fast else min(depth, 128)) / 32)
        unit += 2.0**-8 * steps
    if a.is_sharp.all() and b.is_sharp.all() and _is_coarse(size_a, size_b, size) and not fp8:
        unit = 0.0
    radius = np.matmul(size_a + a.radius, size_b + b.radius) - size + unit * size
    if unit and sums == dtypes.f32:  # a product may lie between the subnormals
        radius = radius + depth * SUBNORMAL_STEP
    if tf32:  # whose subnormals are multiples of 2**-136
        both = np.matmul(size_a, np.ones(b.mid.shape)) + np.matmul(np.ones(a.mid.shape), size_b)
        radius = radius + 2.0**-137 * both
    if op.compute_type == dtypes.f16:
        radius = radius + 2.0**-10 * (np.abs(mid) + radius) + 2.0**-24
        wild = wild | (np.isfinite(mid) & (np.abs(mid) + radius > 65000))
    return _around(mid, radius, wild | (size > F32_MAX))


_GRID = 16.0


def _is_coarse(a: Array, b: Array, size: Array) -> bool:
    """Whether every sum of products is exact: multiples of 1/16 that stay below 2**24 units."""
    on_grid = all((x * _GRID == np.rint(x * _GRID)).all() for x in (a, b))
    return bool(on_grid and size.max(initial=0.0) * _GRID**2 < 2**24)


def _around(mid: Array, radius: Array, wild: Array) -> Box:
    """A box of a radius; what is not finite stays as it is."""
    radius = np.where(np.isfinite(mid) & np.isfinite(radius), radius, 0.0)
    return Box(mid, mid - radius, mid + radius, wild)


def _reduction(op: Reduction, x: Box) -> Box:
    axes = op.axes
    if not axes:
        axes = tuple(range(x.mid.ndim))[:0]
    mid = _value(op, x.mid)
    wild = np.any(x.wild, axis=axes, keepdims=True)
    if op.compute_type == dtypes.i32:
        loose = np.any(~x.is_sharp, axis=axes, keepdims=True)
        return Box(mid, mid, mid, wild | loose)
    x = _computed(x, op.x.type, op.compute_type)
    if op.mode in ("min", "max"):
        return Box(mid, _value(op, x.low), _value(op, x.high), wild)
    size, radius = np.nan_to_num(np.abs(np.asarray(x.mid, float))), x.radius
    if op.mode == "amax":
        inner, outer = np.maximum(size - radius, 0), size + radius
        ends = [np.max(part, axis=axes, keepdims=True) for part in (inner, outer)]
        low, high = (np.where(np.isfinite(mid), end, mid) for end in ends)
        return Box(mid, low, high, wild)
    if op.mode in ("mul", "mul_no_zeros"):
        return _product(op, x, mid, wild)
    return _sum(op, mid, wild, size, radius)


def _value(op: Reduction, x: Array) -> Array:
    """Its first result."""
    made = op.reference(x)
    return made if op.index is None else made[0]


def _index(op: Reduction, x: Box) -> Box:
    """The places from the first to the last element that may be the extreme."""
    mid = op.reference(x.mid)[1]
    wild = np.any(x.wild, axis=op.axes, keepdims=True)
    if op.compute_type == dtypes.i32:
        return Box(mid, mid, mid, wild | np.any(~x.is_sharp, axis=op.axes, keepdims=True))
    x = _computed(x, op.x.type, op.compute_type)
    values, low, high = (np.asarray(part, float) for part in (x.mid, x.low, x.high))
    if op.mode == "min":
        low, high = -high, -low
    elif op.mode == "amax":
        size = np.abs(values)
        low, high = np.maximum(size - x.radius, 0), size + x.radius
    is_nan = np.isnan(values)
    least = np.max(np.where(is_nan, -np.inf, low), axis=op.axes, keepdims=True)
    may_be = np.where(is_nan.any(axis=op.axes, keepdims=True), is_nan, high >= least)
    order = [axis for axis in range(values.ndim) if axis not in op.axes]
    rows = may_be.transpose(*order, *op.axes).reshape(mid.size, -1)
    last = rows.shape[1] - 1 - np.argmax(rows[:, ::-1], axis=1)
    ends = [end.reshape(mid.shape) for end in (np.argmax(rows, axis=1), last)]
    return Box(mid, *ends, wild)


def _sum(op: Reduction, mid: Array, wild: Array, size: Array, radius: Array) -> Box:
    """add, avg, norm1, norm2."""
    count = size.size // max(1, mid.size)
    power = 2 if op.mode == "norm2" else 1
    total = np.sum(size**power, axis=op.axes, keepdims=True)
    most = np.sum((size + radius) ** power, axis=op.axes, keepdims=True)
    unit = 2.0**-24 if op.compute_type == dtypes.f32 else 2.0**-51
    if op.mode in ("add", "norm1") and not radius.any() and _is_coarse(size, np.ones(1), total):
        unit = 0.0
    off = most - total + (count + 4) * unit * most
    if unit and op.compute_type == dtypes.f32:  # squares and averages may lie between subnormals
        off = off + count * SUBNORMAL_STEP
    if op.mode == "norm2":
        least = np.sqrt(np.maximum(total - off, 0)) * (1 - 4 * unit)
        greatest = np.sqrt(total + off) * (1 + 4 * unit)
        ends = [np.where(np.isfinite(mid), end, mid) for end in (least, greatest)]
        return Box(mid, *ends, wild | (total > F32_MAX))
    if op.mode == "avg":
        off = off / count + 4 * unit * np.abs(mid)
    return _around(mid, off, wild | (total > F32_MAX))


def _product(op: Reduction, x: Box, mid: Array, wild: Array) -> Box:
    """mul and mul_no_zeros; whether something is 0 must be known for the second."""
    size, radius = np.nan_to_num(np.abs(np.asarray(x.mid, float))), x.radius
    if op.mode == "mul_no_zeros":
        unsure = (x.low <= 0) & (x.high >= 0) & ~x.is_sharp
        wild = wild | np.any(unsure, axis=op.axes, keepdims=True)
        size = np.where(size == 0, 1.0, size)
    count = size.size // max(1, mid.size)
    unit = 2.0**-24 if op.compute_type == dtypes.f32 else 2.0**-51

    def along(values: Array) -> Array:
        return np.prod(values, axis=op.axes, keepdims=True)

    most, total = along(size + radius), along(size)
    # A partial product may pass f32's range, in whatever order it is made.
    partial = along(np.maximum(size + radius, 1.0))
    off = most - total + (count + 2) * unit * most + 2.0**-126 * partial
    return _around(mid, off, wild | (partial > F32_MAX))


# ---- comparison


def violations(graph: Any, boxes: Mapping[int, Box], actual: Mapping[int, Array]) -> list[str]:
    """Errors in the outputs of a plan, as texts; empty if there are none."""
    found: list[str] = []
    for tensor in graph.outputs:
        box, given = boxes[tensor.uid], np.asarray(actual[tensor.uid])
        if given.dtype != tensor.type.numpy or given.shape != box.mid.shape:
            found.append(f"{tensor.label}: {given.dtype}{given.shape}, not {box.mid.shape}")
            continue
        wrong = _wrong(box, widen(given))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            found.append(
                f"{tensor.label} ({tensor.type}): {int(wrong.sum())} of {wrong.size} elements, at "
                f"{at} {widen(given)[at]!r} is not in {box.low[at]!r}..{box.high[at]!r} "
                f"(reference {box.mid[at]!r})"
            )
    return found


def _wrong(box: Box, actual: Array) -> Array:
    """Where an element is not in its box."""
    if actual.dtype == bool:
        return ((actual < box.low) | (actual > box.high)) & ~box.wild
    inside = (actual >= box.low) & (actual <= box.high)
    both_nan = np.isnan(np.asarray(box.mid, float)) & np.isnan(np.asarray(actual, float))
    return ~(inside | both_nan) & ~box.wild


def informative(graph: Any, boxes: Mapping[int, Box]) -> tuple[int, int]:
    """(elements whose box says much, all elements): width at most 2**-6 of the tensor's largest."""
    telling = total = 0
    for tensor in graph.outputs:
        box = boxes[tensor.uid]
        total += box.mid.size
        if tensor.type.is_float:
            finite = np.where(np.isfinite(box.mid), np.abs(box.mid), 0.0)
            with np.errstate(invalid="ignore"):
                width = np.where(np.isfinite(box.mid), box.high - box.low, 0.0)
            tight = width <= max(2.0**-6 * finite.max(initial=0.0), 2.0**-60)
        else:
            tight = box.is_sharp
        telling += int((tight & ~box.wild).sum())
    return telling, total
