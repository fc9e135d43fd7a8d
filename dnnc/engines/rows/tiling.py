# pyright: basic
"""Decides a kernel of engine rows: its tiling, and what the region says of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.region import Access, Reached, Region, identity_access
from ...codegen.scalars.matching import F32_DIGITS, digits_of
from ...codegen.totals import moments, reduce
from ...codegen.totals.exponentials import sums_of_exponentials
from ...codegen.totals.row_totals import RowTotals
from ...codegen.walk.index import Coordinate
from ...codegen.walk.loops import Loops, coordinates_of
from ...codegen.walk.region_walk import inputs_of
from ...dialect.tensor import Tensor
from ...errors import DnncError, Status
from ...expr import Expr, ceildiv, product
from ...target import WARP_THREADS
from ..views.reduced import read_again, reads_of_passes, region_levels

COLUMN_WIDTH = 4  # elements of a fragment of the kernel that adds up columns, at most


def is_shared(row_threads: int, blocks: int) -> bool:
    """Whether warps share rows; blocks: of a cluster."""
    return row_threads > WARP_THREADS or blocks > 1


@dataclass(frozen=True)
class AxisGroups:
    """The axes of the rows' elements, in groups that one loop goes through."""

    kept: tuple[tuple[int, ...], ...]
    reduced: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RowsTiling:
    """The tiling that `dnn.tile` says.

    vector_elems: elements of a fragment.
    along: "row" if fragments lie along the reduced axes, else "column".
    threads: of a block that work on rows.  row_threads: that share a row.  held: fragments of a
    row that a thread holds, 0 if the row is read again in each pass.  is_whole: those are the row
    exactly.  cluster: blocks that share a row.  blocks: of an SM, which go through the
    rows; 0: a block for every group of rows.  stages: of the ring that rows come through, 0: none.
    slots: fragments that a thread keeps in shared memory of a row that is read again.
    config: the engine's KERNEL_CFG.
    """

    axes: AxisGroups
    vector_elems: int
    along: str
    threads: int
    row_threads: int
    held: int
    is_whole: bool
    cluster: int
    blocks: int
    stages: int
    slots: int
    config: int

    @property
    def rows(self) -> int:
        """Fragments of kept elements that a block works on side by side."""
        return self.threads // self.row_threads

    @property
    def has_own_rings(self) -> bool:
        """Whether warps go through rings on their own."""
        return self.config == 2

    @property
    def meets_ahead(self) -> bool:
        """Whether warps share rows of such rings: what they exchange is asked for later."""
        return self.has_own_rings and is_shared(self.row_threads, self.cluster)

    @property
    def is_early(self) -> bool:
        """Whether the kernel that adds up columns starts before the first one ends."""
        return self.has_own_rings

    @property
    def has_parts(self) -> bool:
        """Whether each block of a cluster has neighbouring fragments of a row, as copies do."""
        return self.has_own_rings

    @property
    def step(self) -> int:
        """Fragments of a row that are worked on side by side."""
        return self.row_threads * self.cluster


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


@dataclass(frozen=True)
class RowParts:
    """The reductions of a fusion by what they are to the kernels: of a fusion `Reduction`s, of a
    region generics.

    along: of rows.  columns: sums of columns.  extremes: of all rows, each with the reduction whose
    elements it is of: itself, or one that finds each row's.
    """

    along: Sequence[Any]
    columns: Sequence[Any] = ()
    extremes: Sequence[tuple[Any, Any]] = ()

    def named(self) -> dict[str, Sequence[Any]]:
        """The operations by the names that `of_region` looks up."""
        found = {"along": self.along, "columns": self.columns}
        for number, (extreme, elements) in enumerate(self.extremes):
            found |= {f"extreme {number}": [extreme], f"elements {number}": [elements]}
        return {name: ops for name, ops in found.items() if ops}

    @staticmethod
    def of_region(region: Region) -> RowParts:
        """The parts that `prepare-fusions` wrote down."""
        names = region.parts
        if "along" not in names:
            what = "a fusion of rows without dnn.parts"
            raise DnncError(Status.BAD_PARAM, what, "reductions as prepare-fusions marks them")
        count = sum(name.startswith("extreme ") for name in names)
        extremes = [
            (region.part(f"extreme {n}"), region.part(f"elements {n}")) for n in range(count)
        ]
        return RowParts(names["along"], names.get("columns", ()), extremes)


class Rows:
    """A region's rows, as a tiling goes through them.

    levels: the reductions along rows; those of a level need the levels before it, but squared
    distances from a mean, which warps that share a row of their own ring find with the mean.
    columns: the sums of columns.  extremes: of all rows.  dims: of what is reduced.  kept, reduced:
    its loops; narrow: the reduced ones in the fragments of the kernel that adds up columns.
    groups: of rows that a block works on side by side.  row_axes: the reduced axes.
    exponentials, distances: sums that are made of what an earlier pass has found -> its reduction.
    """

    def __init__(self, region: Region, tiling: RowsTiling):
        t, self.region, self.tiling = tiling, region, tiling
        self.is_row = t.along == "row"
        parts = RowParts.of_region(region)
        along_rows, self.columns = parts.along, parts.columns
        self.extremes = [Extreme(*pair) for pair in parts.extremes]
        self.dims = region.dims_of(inputs_of(along_rows[0])[0])
        # Several blocks of an SM rather go over the row again: moments take registers.
        found = moments.squared_distances(region) if t.slots or t.meets_ahead else {}
        self.distances = {op: of for op, of in found.items() if {op, of} <= {*along_rows}}
        together = self.distances if t.meets_ahead else None
        self.levels = region_levels(region, along_rows, together)
        found = sums_of_exponentials(region) if self.is_row and not t.held else {}
        self.exponentials = {op: of for op, of in found.items() if {op, of} <= {*along_rows}}
        width = t.vector_elems
        self.kept = Loops(self.dims, t.axes.kept, 1 if self.is_row else width)
        self.reduced = Loops(self.dims, t.axes.reduced, width if self.is_row else 1)
        self.narrow = replace(self.reduced, width=gcd(self.reduced.width, COLUMN_WIDTH))
        self.groups = ceildiv(self.kept.fragments, t.rows)
        self.row_axes = tuple(axis for group in t.axes.reduced for axis in group)

    @cached_property
    def row_elements(self) -> Expr:
        return product(n for group in self.reduced.groups for n in self.reduced.extents(group))

    @cached_property
    def leaf_accesses(self) -> dict[Any, set[Access]]:
        """Argument -> how its elements are addressed by work of the rows' dims."""
        full = identity_access(len(self.dims))
        stop = {op.results[0] for level in self.levels for op in level}
        sources = [inputs_of(op)[0] for level in self.levels for op in level]
        sources += [inputs_of(op)[0] for op in self.columns]
        sources += self.seen_last
        dims = tuple(self.dims)
        sources += [value for value, tensor in self.region.outputs if tensor.shape == dims]
        found: dict[Any, set[Access]] = {}
        seen: Reached = set()
        for value in sources:
            reads = self.region.accesses(value, full, stop=stop.__contains__, seen=seen)
            for leaf, access in reads:
                if leaf in self.region.arguments:
                    found.setdefault(leaf, set()).add(access)
        return found

    @cached_property
    def again(self) -> list[tuple[Any, Tensor]]:
        """The tensors that are read in the first pass over a row and later."""
        passes = reads_of_passes(self.region, self.levels, after=self.seen_last)
        return read_again(self.region, passes)

    @property
    def seen_last(self) -> list[Any]:
        """The values of extremes that the last pass over a row goes through."""
        return [inputs_of(extreme.source)[0] for extreme in self.extremes]

    @cached_property
    def means(self) -> dict[Any, Any]:
        """Maps a sum of f64 to its mean, where nothing else is made of the sum."""
        sums = [op for level in self.levels for op in level if reduce.is_wide(op)]
        found = {op: moments.average_alone(self.region, op) for op in sums}
        return {op: mean for op, mean in found.items() if mean is not None}

    def is_exact(self, operation: Any) -> bool:
        """Whether a total of f64 is of so few elements of so few digits that one of f32 has the
        sum of like ones."""
        if not (self.is_row and reduce.is_wide(operation)):
            return False
        most = self.row_elements.bounds()[1]
        return digits_of(inputs_of(operation)[0]) + (most - 1).bit_length() <= F32_DIGITS

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
