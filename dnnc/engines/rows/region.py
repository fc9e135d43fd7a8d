# pyright: basic
"""A region's rows, as the tiling of engine rows goes through them, and a thread's place there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.region import Region
from ...codegen.totals import moments, reduce
from ...codegen.totals.row_totals import RowTotals
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.loops import Loops, coordinates_of
from ...codegen.walk.region_walk import inputs_of
from ...dialect.tensor import Tensor
from ...errors import DnncError, Status
from ...expr import Expr, ceildiv, product
from ...target import WARP_THREADS
from .records import Load, Read, RowParts, RowsTiling
from .same_pass import F32_DIGITS
from .shared_layout import SharedLayout

_ZERO = Index.of(0)


@dataclass(frozen=True)
class Extreme:
    """The largest or smallest of all rows' elements.

    operation: the generic whose result it is.  source: the one whose elements it is of: itself, or
    what finds each row's.
    """

    operation: Any
    source: Any

    @property
    def result(self) -> Any:
        return self.operation.results[0]

    @property
    def mode(self) -> str:
        """amax, max or min, told apart by what the combination starts from."""
        start = reduce.start_of(self.operation)
        return "amax" if start == 0 else "max" if start < 0 else "min"


def coordinates_read(read: Read, at: Sequence[Coordinate]) -> list[Coordinate]:
    """The coordinates of an argument that a fragment at some coordinates reads."""
    return [at[axis] if axis >= 0 else _ZERO for axis in read.at]


def parts_of_region(region: Region) -> RowParts:
    """The reductions, as `prepare-fusions` wrote down what they are."""
    names = region.parts
    if "along" not in names:
        what = "a fusion of rows without dnn.parts"
        raise DnncError(Status.BAD_PARAM, what, "reductions as prepare-fusions marks them")
    count = sum(name.startswith("extreme ") for name in names)
    extremes = [(region.part(f"extreme {n}"), region.part(f"elements {n}")) for n in range(count)]
    return RowParts(names["along"], names.get("columns", ()), extremes)


class Rows:
    """A region's rows, as a tiling goes through them.

    levels: the reductions along rows; those of a level need the levels before it, but squared
    distances from a mean, which warps that share a row of their own ring find with the mean.
    columns: the sums of columns.  extremes: of all rows.  dims: of what is reduced.  kept, reduced:
    its loops; narrow: the reduced ones in the fragments of the kernel that adds up columns.
    groups: of rows that a block works on side by side.  row_axes: the reduced axes.
    exponentials, distances: sums that are made of what an earlier pass has found -> its reduction.
    totals: the reductions along rows, as the tiling has them.
    """

    def __init__(self, region: Region, tiling: RowsTiling):
        t, self.region, self.tiling = tiling, region, tiling
        self.is_row = t.along == "row"
        parts = parts_of_region(region)
        along, self.columns = parts.along, parts.columns
        self.extremes = [Extreme(*pair) for pair in parts.extremes]
        self.dims = region.dims_of(inputs_of(along[0])[0])
        self.totals = dict(zip(along, t.totals.rows, strict=True))
        self.levels = [
            [op for op, total in self.totals.items() if total.level == level]
            for level in range(t.totals.levels)
        ]
        self.distances, self.exponentials = (
            {op: along[total.of] for op, total in self.totals.items() if total.way == way}
            for way in ("distances", "exponentials")
        )
        width = t.vector_elems
        self.kept = Loops(self.dims, t.axes.kept, 1 if self.is_row else width)
        self.reduced = Loops(self.dims, t.axes.reduced, width if self.is_row else 1)
        self.narrow = replace(self.reduced, width=t.narrow)
        self.groups = ceildiv(self.kept.fragments, t.rows)
        self.row_axes = tuple(axis for group in t.axes.reduced for axis in group)

    @cached_property
    def row_elements(self) -> Expr:
        return product(n for group in self.reduced.groups for n in self.reduced.extents(group))

    @cached_property
    def reads(self) -> list[tuple[Any, Read]]:
        """Every way in which arguments are read by work of the rows' dims."""
        reads = self.tiling.memory.reads
        return list(zip(self.arguments(reads), reads, strict=True))

    def is_of_row(self, read: Read) -> bool:
        """Whether other elements of a row have others of the argument."""
        return bool({*self.row_axes}.intersection(read.at))

    def arguments(self, loads: Sequence[Load | Read]) -> list[Any]:
        """The arguments of loads."""
        arguments = list(self.region.arguments)
        return [arguments[load.argument] for load in loads]

    @cached_property
    def again(self) -> list[tuple[Any, Tensor]]:
        """The tensors that are read in the first pass over a row and later."""
        found = self.arguments(self.tiling.memory.again)
        return [(value, self.region.arguments[value]) for value in found]

    @cached_property
    def layout(self) -> SharedLayout:
        return SharedLayout(self.tiling)

    @cached_property
    def means(self) -> dict[Any, Any]:
        """Maps a sum of f64 to its mean, which alone is made of the sum."""
        sums = [op for op in self.totals if reduce.is_wide(op)]
        return {op: moments.mean_of(op) for op in sums}

    def is_exact(self, operation: Any) -> bool:
        """Whether a total of f64 is of so few elements of so few digits that one of f32 has the
        sum of like ones."""
        return reduce.is_wide(operation) and self.totals[operation].bits == 32

    def is_short(self, operation: Any) -> bool:
        """Whether a total of f64 is of elements of few digits."""
        return reduce.is_wide(operation) and self.totals[operation].digits < F32_DIGITS

    @property
    def keeps_loads_early(self) -> bool:
        """Whether loads may not pass the first barrier.

        Beside f64 the assembler moves the loads that only the end uses (scales, biases) behind
        barriers, and the kernel waits for them.  A kernel that loops over rows is left alone:
        its loads of scales leave the loop.
        """
        is_wide = any(
            reduce.is_wide(op) and not self.is_exact(op) for level in self.levels for op in level
        )
        return is_wide and self.tiling.held > 0 and not self.tiling.blocks

    def is_beside(self, value: Any) -> bool:
        """Whether a value depends on a sum of columns, or is an extreme of all rows."""
        return self.is_of_columns(value) or any(value == e.result for e in self.extremes)

    def is_of_columns(self, value: Any) -> bool:
        """Whether a value depends on a sum of columns."""
        return self.region.depends_on(value, [op.results[0] for op in self.columns])

    def zero(self, operation: Any) -> Any:
        """The value that a sum of columns starts from."""
        return reduce.identity(operation, self.tiling.vector_elems)


@dataclass
class Place:
    """A thread's place in a kernel.

    lane: of those that share a row.  row: of the block's.  rank: of the block in its cluster.
    first: the first of the thread's fragments of a row.  memory: for rows that are read again.
    warp: where each warp goes through groups of its own rows, the warp's number.
    """

    kernel: Kernel
    rows: Rows
    lane: Any
    row: Any
    rank: Any
    first: Any
    totals: RowTotals
    memory: Any = None
    warp: Any = None

    @staticmethod
    def of(kernel: Kernel, rows: Rows, rank: Any) -> Place:
        t = rows.tiling
        thread = ops.thread_id()
        fast = t.row_threads if rows.is_row else t.rows
        high, low = thread >> (fast.bit_length() - 1), thread & (fast - 1)
        lane, row = (low, high) if rows.is_row else (high, low)
        totals = RowTotals(kernel, rows.is_row, t.row_threads, t.rows, t.cluster, lane, row, rank)
        part = t.row_threads * (t.held if t.has_parts else 1)
        first = rank * part + lane
        return Place(kernel, rows, lane, row, rank, first, totals)

    @property
    def group_rows(self) -> int:
        """Rows of a group: of a block's, or of a warp's."""
        t = self.rows.tiling
        return t.rows if self.warp is None else WARP_THREADS // t.row_threads

    @property
    def group_row(self) -> Any:
        """The row of the group that this thread is at."""
        if self.warp is None:
            return self.row
        return self.row - self.warp * self.group_rows

    @property
    def fragments(self) -> list[Any]:
        """The fragments of a row that this thread holds."""
        return [self.first + u * self.stride for u in range(self.rows.tiling.held)]

    @property
    def stride(self) -> int:
        """From one of them to the next."""
        t = self.rows.tiling
        return t.row_threads if t.has_parts else t.step

    def inside(self, fragment: Any) -> Any:
        """Whether a fragment is one of the row's; None: it always is."""
        if self.rows.tiling.is_whole:
            return None
        return fragment < self.kernel.size(self.rows.reduced.fragments)

    def row_of(self, group: Any) -> tuple[dict[int, Coordinate], Any]:
        """(the coordinates of this thread's row of a group, whether there is one; None: always).

        Past the last row they are that one's.
        """
        rows = self.rows
        fragment = group * self.group_rows + self.group_row
        # An argument also where nobody asks: without it, ptxas gives long rows more registers.
        count = self.kernel.size(rows.kept.fragments)
        if self.group_rows == 1:
            return rows.kept.coordinates(self.kernel, fragment), None
        clamped = ops.minimum(fragment, count - 1)
        return rows.kept.coordinates(self.kernel, clamped), fragment < count

    def at(self, kept: Mapping[int, Coordinate], fragment: Any) -> list[Coordinate]:
        """The coordinates of a fragment of a row; past the end, those of the last one."""
        rows = self.rows
        if not rows.tiling.is_whole:
            last = self.kernel.size(rows.reduced.fragments) - 1
            fragment = ops.minimum(fragment, last)
        reduced = rows.reduced.coordinates(self.kernel, fragment)
        return coordinates_of(len(rows.dims), kept, reduced)
