# pyright: basic
"""Mean and squared distances from it, in one pass over the elements.

    variance = avg((x - avg(x))^2)

`squared_distances` finds the reductions of a region that are sums of such squares.  A thread adds
up x - s and (x - s)^2 of its elements, s being its first one, and corrects the squares by what
the sums say about s; threads' parts are merged with their counts.  Since s is one of n elements
of a thread, a sum of squares loses at most a factor n of f32's accuracy, and that only where s
lies far outside of the others.  Source: Chan, Golub, LeVeque, "Algorithms for computing the
sample variance", 1983.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..dialect import structure
from ..expr import Expr, product
from ..mlir import arith, ir
from . import ops
from .parts import Moments, combined, inverse, to_f32
from .region import Region
from .walk import indexing_maps, inputs_of, is_reduction, reduced_axes


def squared_distances(region: Region) -> dict[Any, Any]:
    """Sum of (x - avg(x))^2 -> the sum of x; both are reducing generics of f32."""
    sums = [op for op in region.generics() if is_reduction(op) and _is_sum(op)]
    found = {op: _sum_behind(region, op) for op in sums}
    return {op: of for op, of in found.items() if of is not None and of in sums}


def _is_sum(operation: Any) -> bool:
    body = _body(operation)
    is_added = [op.name for op in body] == ["arith.addf"]
    return is_added and operation.results[0].type.element_type == ops.f32_type()


def _sum_behind(region: Region, operation: Any) -> Any:
    """The sum of x, where an operation sums (x - avg(x))^2; else None."""
    square = _pointwise(inputs_of(operation)[0])
    body = _body(square) if square else []
    if [op.name for op in body] != ["arith.mulf"] or not _is_plain(square):
        return None
    factors = [_operand_of(square, value) for value in body[0].operands]
    if any(factor is None for factor in factors) or factors[0] != factors[1]:
        return None
    centred = _pointwise(factors[0])
    body = _body(centred) if centred else []
    names = [op.name for op in body]
    if not names or names[-1] != "arith.subf" or set(names[:-1]) - {"arith.extf"}:
        return None
    x, mean = (_operand_of(centred, value) for value in body[-1].operands)
    if x is None or mean is None or not _is_plain(centred, x):
        return None
    total = _averaged(region, mean)
    if total is None or reduced_axes(total) != reduced_axes(operation):
        return None
    return total if _source(inputs_of(total)[0]) == _source(x) else None


def _averaged(region: Region, value: Any) -> Any:
    """The sum that a value is, divided by the number of elements; else None."""
    value = _source(value)
    divided = _pointwise(value)
    body = _body(divided) if divided else []
    if [op.name for op in body] != ["arith.index_cast", "arith.sitofp", "arith.divf"]:
        return None
    total = _operand_of(divided, body[-1].operands[0])
    if total is None or body[-1].operands[1] != body[1].results[0]:
        return None
    total = total.owner
    if isinstance(total, ir.Block) or total.name != "linalg.generic" or not is_reduction(total):
        return None
    dims = region.dims_of(inputs_of(total)[0])
    count = _number(region, body[0].operands[0])
    return total if count == product(dims[axis] for axis in reduced_axes(total)) else None


def _number(region: Region, value: Any) -> Expr | None:
    op = value.owner
    if op.name == "arith.constant":
        return Expr.of(ir.IntegerAttr(op.attributes["value"]).value)
    return structure.read_size(op, region.symbols) if op.name == "dnn.size" else None


def _source(value: Any) -> Any:
    """Where a value comes from, if all that happens to it is exact conversions."""
    while (op := _pointwise(value)) and _is_plain(op):
        if len(inputs_of(op)) != 1 or any(o.name != "arith.extf" for o in _body(op)):
            break
        value = inputs_of(op)[0]
    return value


def _pointwise(value: Any) -> Any:
    """The generic without a reduction that a value comes from; None: something else."""
    op = value.owner
    if isinstance(op, ir.Block) or op.name != "linalg.generic" or is_reduction(op):
        return None
    return op


def _body(operation: Any) -> list[Any]:
    views = operation.regions[0].blocks[0].operations
    return [view.operation for view in views][:-1]


def _operand_of(operation: Any, value: Any) -> Any:
    """The tensor whose element a body's value is, up to exact conversions; else None."""
    while not isinstance(value.owner, ir.Block) and value.owner.name == "arith.extf":
        value = value.owner.operands[0]
    arguments = list(operation.regions[0].blocks[0].arguments)
    inputs = inputs_of(operation)
    return inputs[arguments.index(value)] if value in arguments[: len(inputs)] else None


def _is_plain(operation: Any, *operands: Any) -> bool:
    """Whether some operands (default: all) are read at the place that is computed."""
    maps, inputs = indexing_maps(operation), inputs_of(operation)
    same = {v for v, m in zip(inputs, maps, strict=False) if m == maps[-1]}
    return set(operands or inputs) <= same


# ---- one thread's part


@dataclass(frozen=True)
class Shifted:
    """Sums over some elements, of distances from one of them: fragments of f32.

    shift: the first element.  The sums start at 0.
    """

    shift: Any

    def start(self) -> list[Any]:
        return [ops.zeros(self.shift.type)] * 2

    def add(self, sums: Sequence[Any], value: Any) -> list[Any]:
        off = arith.SubFOp(value, self.shift).result
        square = arith.MulFOp(off, off).result
        return [arith.AddFOp(sums[0], off).result, arith.AddFOp(sums[1], square).result]

    def part(self, sums: Sequence[Any], count: Any) -> list[Any]:
        """[count, mean, squared distances from it]; count: of elements, i32."""
        off, squares = sums
        number = to_f32(count)
        average = arith.MulFOp(off, ops.splat(inverse(number), ops.width_of(off))).result
        mean = arith.AddFOp(self.shift, average).result
        about_mean = arith.SubFOp(squares, arith.MulFOp(off, average).result).result
        none = ops.zeros(off.type)
        is_some = arith.CmpFOp(arith.CmpFPredicate.OGT, number, ops.zeros(number.type)).result
        mean = arith.SelectOp(is_some, mean, none).result
        # Rounding may leave less than nothing; NaN stays.
        about_mean = arith.MaximumFOp(about_mean, none).result
        return [number, mean, arith.SelectOp(is_some, about_mean, none).result]


def folded(part: Sequence[Any]) -> list[Any]:
    """A part of scalars, of the elements of all lanes; each lane has the part's count."""
    count, means, squares = part
    quantity = Moments()
    total: Sequence[Any] = []
    reference = [ops.extract(means, 0)]
    for mean, square in zip(ops.elements(means), ops.elements(squares), strict=True):
        opened = quantity.opened([count, mean, square], reference)
        total = combined(quantity, total, opened) if total else opened
    return list(quantity.closed(total, reference))
