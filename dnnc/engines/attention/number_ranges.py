# pyright: basic
"""Which blocks of keys numbers in memory let a tile of queries see, as those of documents do.

    a kernel before    the least and the largest number of each tile of rows, and block of columns
    attention          compares a tile's with a block's: scores of none are kept, or some may be

So blocks are left out whatever the numbers are, in order or not.  A side of a comparison that may
be more than 32 bits hold keeps all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...codegen import ops
from ...codegen.attention.mask_conditions import (
    Both,
    Compare,
    CompareNumbers,
    Condition,
    Either,
    Linear,
    Numbers,
    Varying,
    conjuncts,
    negated,
)
from ...codegen.attention.mask_ranges import wraps
from ...codegen.attention.region import AttentionRegion
from ...codegen.kernel import Kernel
from ...codegen.output import Output
from ...codegen.region import Access, Region
from ...codegen.totals.reduce import across_lanes
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.loops import Loops
from ...codegen.walk.region_walk import Walk
from ...expr import Expr, at_least, ceildiv, product
from ...mlir import arith
from ...target import WARP_THREADS

if TYPE_CHECKING:
    from .schedule import Tiling

_THREADS = 128
_PAIR = 8  # bytes of two numbers
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
FEW = 2  # blocks, of which leaving one out is not worth a kernel

Load = Callable[[Any, Access], Any]  # a term's number, i32
Range = tuple[Any, Any]  # of numbers, both i32 or both i64


def conditions_of(condition: Condition, extent: Expr, block: int) -> list[Condition]:
    """Conditions on numbers that have to hold, if there are blocks to leave out of an extent.

    block: rows or columns of one.
    """
    if extent.bounds()[1] <= FEW * block:
        return []
    return [part for part in conjuncts(condition) if numbers_in(part)]


def numbers_in(condition: Condition) -> list[Numbers]:
    """The numbers of rows and columns that a condition compares."""
    if isinstance(condition, CompareNumbers):
        sides = (*condition.left.numbers, *condition.right.numbers)
        return [numbers for _, numbers in sides]
    if isinstance(condition, Both | Either):
        return [numbers for part in condition.parts for numbers in numbers_in(part)]
    return []


@dataclass(frozen=True)
class Table:
    """The ranges of some numbers: [entries of the batch, units], a pair each.

    dims: of the tensor.  place: of the axis along which the numbers are.  unit: rows or columns of
    a range.  name: of the workspace.
    """

    numbers: Numbers
    dims: tuple[Expr, ...]
    place: int
    unit: int
    name: str

    @property
    def shape(self) -> tuple[Expr, ...]:
        units = ceildiv(self.dims[self.place], self.unit)
        return (*(n for axis, n in enumerate(self.dims) if axis != self.place), units)

    @property
    def entries(self) -> Expr:
        return product(self.shape)

    def at(self, kernel: Kernel, outer: Sequence[Any], unit: Any) -> Range:
        """(least, largest) of a unit; outer: coordinates along the other axes, in their order."""
        number: Any = 0
        for extent, place in zip(self.shape, (*outer, unit), strict=True):
            number = number * kernel.size(extent) + place
        pair = ops.gep(kernel.workspace(self.name), number * 2, ops.i32_type())
        both = ops.load(pair, ops.vector_type(ops.i32_type(), 2), _PAIR)
        low, high = ops.elements(both)
        return low, high


@dataclass(frozen=True)
class NumberRanges:
    """The ranges of numbers of an attention, by tiles of `rows` and blocks of `columns`.

    conditions: on them, which all have to hold.  Tiles begin at multiples of their size: those that
    do not are of triangular masks.
    """

    kernel: Kernel
    conditions: Sequence[Condition]
    tables: Sequence[Table]
    rows: int
    columns: int

    def may_hold(
        self, batch: Mapping[int, Coordinate], rows: Range, block: Any, end: Any, load: Load
    ) -> Any:
        """Whether the conditions may hold of a score of rows, first to last, and of a block, i1.

        end: the last key that there is.
        """
        view = self._view(batch, rows, block, end, load)
        return view.may_hold(Both(tuple(self.conditions)))

    def may_fail(
        self, batch: Mapping[int, Coordinate], rows: Range, block: Any, end: Any, load: Load
    ) -> Any:
        """Whether the conditions may not hold of some score, i1; None: they may."""
        view = self._view(batch, rows, block, end, load)
        return view.may_hold(negated(Both(tuple(self.conditions))))

    def _view(
        self, batch: Mapping[int, Coordinate], rows: Range, block: Any, end: Any, load: Load
    ) -> _View:
        first = block * self.columns
        last = ops.minimum(first + (self.columns - 1), end)
        return _View(self, batch, {-2: rows, -1: (first, last)}, load)

    def of(self, numbers: Numbers, batch: Mapping[int, Coordinate], along: Range) -> Range:
        """The range of numbers along rows, or columns, first to last."""
        (table,) = (t for t in self.tables if t.numbers == numbers)
        outer = [
            0 if n.constant == 1 or place[0] != "loop" else batch[place[1]].index().base
            for axis, (n, place) in enumerate(zip(table.dims, numbers.access, strict=True))
            if axis != table.place
        ]
        return table.at(self.kernel, outer, along[0] // table.unit)


@dataclass(frozen=True)
class _View:
    """A tile and a block: along axes -2 and -1 of the scores, (first, last)."""

    ranges: NumberRanges
    batch: Mapping[int, Coordinate]
    along: Mapping[int, Range]
    load: Load

    def may_hold(self, condition: Condition) -> Any:
        """i1; None: it may."""
        if isinstance(condition, Both):
            found = None
            for part in condition.parts:
                found = ops.both(found, self.may_hold(part))
            return found
        if isinstance(condition, Either):
            parts = [self.may_hold(part) for part in condition.parts]
            return None if any(part is None for part in parts) else _any(parts)
        if isinstance(condition, Compare):
            sides = Varying(condition.form), Varying(Linear())
            found = self._compared(CompareNumbers(condition.predicate, *sides))
            may_wrap = wraps(condition, self.load)
            return found if may_wrap is None else _any([found, may_wrap])
        return self._compared(condition) if isinstance(condition, CompareNumbers) else None

    def _compared(self, condition: CompareNumbers) -> Any:
        left, right = self._side(condition.left), self._side(condition.right)
        is_plain = condition.left.is_term and condition.right.is_term
        if is_plain and not condition.is_float:
            return _meet(condition.predicate, left, right, ops.compare)
        left, right = _widened(left), _widened(right)
        if condition.is_float:
            return _meet(condition.predicate, _rounded(left), _rounded(right), _of_floats)
        found = _meet(condition.predicate, left, right, ops.compare)
        return _any([found, _overflows(left), _overflows(right)])

    def _side(self, side: Varying) -> Range:
        """The range of one side of a comparison; of other than single numbers, i64."""
        if side.is_term:
            return self._numbers(side.numbers[0][1])
        form, range_ = side.form, _number(side.form.number)
        for axis, factor in ((-2, form.row), (-1, form.column)):
            range_ = _sum(range_, self.along[axis], factor)
        for factor, leaf, access in form.terms:
            value = self.load(leaf, access)
            range_ = _sum(range_, (value, value), factor)
        for factor, numbers in side.numbers:
            range_ = _sum(range_, self._numbers(numbers), factor)
        return range_

    def _numbers(self, numbers: Numbers) -> Range:
        return self.ranges.of(numbers, self.batch, self.along[numbers.axis])


# ---- ranges


def _number(value: int) -> Range:
    made = ops.const(value, ops.i64_type())
    return made, made


def _sum(range_: Range, other: Range, factor: int) -> Range:
    """range_ + factor * other, in 64 bits."""
    if not factor:
        return range_
    scale = ops.const(factor, ops.i64_type())
    ends = [
        arith.MulIOp(ops.to_i64(ops.value_of(end)), scale).result
        for end in (other if factor > 0 else other[::-1])
    ]
    low, high = (arith.AddIOp(a, b).result for a, b in zip(range_, ends, strict=True))
    return low, high


def _overflows(range_: Range) -> Any:
    """Whether the graph's own sum may, i1: in 32 bits it is something else then."""
    below = ops.compare("slt", range_[0], ops.const(_LEAST, ops.i64_type()))
    above = ops.compare("sgt", range_[1], ops.const(_MOST, ops.i64_type()))
    return _any([below, above])


def _meet(predicate: str, left: Range, right: Range, compare: Callable[..., Any]) -> Any:
    """Whether a number of one range may compare so with one of the other, i1."""
    if predicate in ("slt", "sle"):
        return compare(predicate, left[0], right[1])
    if predicate in ("sgt", "sge"):
        return compare(predicate, left[1], right[0])
    if predicate == "eq":
        return ops.both(compare("sle", left[0], right[1]), compare("sle", right[0], left[1]))
    return _any([compare("slt", left[0], right[1]), compare("slt", right[0], left[1])])


def _of_floats(predicate: str, a: Any, b: Any) -> Any:
    names = {"slt": "OLT", "sle": "OLE", "sgt": "OGT", "sge": "OGE"}
    return arith.CmpFOp(getattr(arith.CmpFPredicate, names[predicate]), a, b).result


def _widened(range_: Range) -> Range:
    low, high = (ops.to_i64(ops.value_of(end)) for end in range_)
    return low, high


def _rounded(range_: Range) -> Range:
    """The range in f32, as the graph rounds numbers: a larger one is not smaller then."""
    low, high = (arith.SIToFPOp(ops.f32_type(), end).result for end in range_)
    return low, high


def _any(conditions: Sequence[Any]) -> Any:
    found = conditions[0]
    for condition in conditions[1:]:
        found = arith.OrIOp(found, condition).result
    return found


# ---- the kernel before


def number_tables(output: Output, parts: AttentionRegion, tiling: Tiling) -> tuple[Table, ...]:
    """The tables of an attention, and the kernel that fills them."""
    conditions = conditions_of(parts.masks.condition, parts.dims[-1], tiling.keys)
    tables = tables_of(output, parts.region, parts.rank, conditions, tiling)
    if tables:
        kernel = output.kernel("ranges", _THREADS)
        with kernel.body():
            fill(kernel, parts.region, tables, ops.block_id())
        output.launch(kernel, (fill_blocks(tables, _THREADS), 1, 1))
    return tables


def tables_of(
    output: Output, region: Region, rank: int, conditions: Sequence[Condition], tiling: Tiling
) -> tuple[Table, ...]:
    """The tables of what conditions compare; rank: of the scores."""
    found: list[Table] = []
    used = [n for part in conditions for n in numbers_in(part)]
    for i, numbers in enumerate(dict.fromkeys(used)):
        dims = region.dims_of(numbers.leaf)
        moving = ("loop", rank + numbers.axis)
        (place,) = (
            axis
            for axis, own in enumerate(numbers.access)
            if own == moving and dims[axis].constant != 1
        )
        unit = tiling.queries if numbers.axis == -2 else tiling.keys
        made = Table(numbers, dims, place, unit, "")
        name = output.workspace(f"numbers{i}", made.entries * _PAIR)
        found.append(replace(made, name=name))
    return tuple(found)


def fill_blocks(tables: Sequence[Table], threads: int) -> Expr:
    """Blocks of so many threads that fill tables."""
    total = Expr.of(0)
    for table in tables:
        total = total + table.entries
    return ceildiv(total, threads // WARP_THREADS)


def fill(kernel: Kernel, region: Region, tables: Sequence[Table], number: Any) -> None:
    """Fills a block's share of the tables; number: of the block."""
    total = Expr.of(0)
    warps = kernel.threads // WARP_THREADS
    warp = number * warps + (ops.thread_id() >> 5)
    for table in tables:
        entry = warp - kernel.size(total)
        is_here = ops.both(entry >= 0, entry < kernel.size(table.entries))
        with ops.if_(is_here):
            _fill_entry(kernel, region, table, entry)
        total = total + table.entries


def _fill_entry(kernel: Kernel, region: Region, table: Table, entry: Any) -> None:
    """One range, by a warp."""
    lane = ops.thread_id() & (WARP_THREADS - 1)
    shape = tuple(at_least(n, 1) for n in table.shape)  # of an empty one no entry is asked for
    loops = Loops(shape, tuple((axis,) for axis in range(len(shape))))
    places = loops.coordinates(kernel, entry)
    *outer, unit = (places[axis] for axis in range(len(table.shape)))
    first = unit.index().base * table.unit + lane
    last = kernel.size(table.dims[table.place]) - 1
    walk = Walk(kernel, region.leaves(kernel), region.symbols)
    low = high = None
    for step in range(0, table.unit, WARP_THREADS):
        element = Index.of(ops.minimum(first + step, last))
        at = [*outer[: table.place], element, *outer[table.place :]]
        value = ops.to_i32(walk.value(table.numbers.leaf, at, 1))
        low = value if low is None else ops.minimum(low, value)
        high = value if high is None else ops.maximum(high, value)
    low = across_lanes(low, WARP_THREADS, ops.minimum)
    high = across_lanes(high, WARP_THREADS, ops.maximum)
    with ops.if_(ops.compare("eq", lane, 0)):
        pair = ops.gep(kernel.workspace(table.name), entry * 2, ops.i32_type())
        ops.store(pair, ops.from_elements([low, high]), _PAIR)
