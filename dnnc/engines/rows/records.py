"""RowsTiling: the record of a kernel of engine rows, which `dnn.tile` holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from ...codegen.region import Access
from ...dialect.fusion import Fusion
from ...dialect.tensor import Tensor
from ...target import WARP_THREADS

COLUMN_WIDTH = 4  # elements of a fragment of the kernel that adds up columns, at most


def is_shared(row_threads: int, blocks: int) -> bool:
    """Whether warps share rows; blocks: of a cluster."""
    return row_threads > WARP_THREADS or blocks > 1


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
        """The operations by the names that regions have them by."""
        found = {"along": self.along, "columns": self.columns}
        for number, (extreme, elements) in enumerate(self.extremes):
            found |= {f"extreme {number}": [extreme], f"elements {number}": [elements]}
        return {name: ops for name, ops in found.items() if ops}


@dataclass(frozen=True)
class AxisGroups:
    """The axes of the rows' elements, in groups that one loop goes through."""

    kept: tuple[tuple[int, ...], ...]
    reduced: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Load:
    """An argument of the fusion, by its place.  bits: of an element."""

    argument: int
    bits: int


ZERO, OTHER = -1, -2  # where an argument's axis stays at 0, or is worked out


@dataclass(frozen=True)
class Read:
    """A way in which an argument is read, by its place.  at: for each of its axes the axis of the
    rows' dims that it follows, ZERO or OTHER."""

    argument: int
    at: tuple[int, ...]

    @property
    def is_known(self) -> bool:
        """Whether coordinates along its axes are those of a fragment, or 0."""
        return OTHER not in self.at


def reads_of(fusion: Fusion, found: Mapping[Tensor, Iterable[Access]]) -> tuple[Read, ...]:
    """found: input -> how its elements are addressed."""
    places = {tensor: place for place, tensor in enumerate(fusion.inputs)}
    others = {"zero": ZERO, "other": OTHER}
    return tuple(
        Read(places[t], tuple(a[1] if a[0] == "loop" else others[a[0]] for a in access))
        for t, ways in found.items()
        for access in ways
    )


def loads_of(fusion: Fusion, tensors: Iterable[Tensor]) -> tuple[Load, ...]:
    places = {tensor: place for place, tensor in enumerate(fusion.inputs)}
    return tuple(Load(places[t], t.type.bits) for t in tensors)


@dataclass(frozen=True)
class RowMemory:
    """Arguments in memory, and rows in shared memory.

    stages: of the ring that rows come through, 0: none.  slots: fragments that a thread keeps of a
    row that is read again.  elements: of a row's part in a block, at most.  ring, vectors:
    arguments that the ring brings, and those that are the same in all rows.  again: arguments that
    a later pass over a row reads again.  reads: every way in which arguments are read by work of
    the rows' dims.
    """

    stages: int
    slots: int
    elements: int
    ring: tuple[Load, ...]
    vectors: tuple[Load, ...]
    again: tuple[Load, ...]
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class Total:
    """A reduction along rows.

    level: of the passes over a row, from 0.  bits: of a number that threads exchange.  digits:
    significant ones of an element, of f32's 24.  way: "distances" or "exponentials" where it is
    computed in the pass of another reduction (see `rows.same_pass`), else "".  of: the place of
    that one, or its own.
    """

    level: int
    bits: int
    digits: int
    way: str
    of: int


@dataclass(frozen=True)
class Totals:
    """rows: the reductions along rows, in their order.  counts: whether warps leave how many
    elements parts are of.  columns: bits of each sum of columns.  side: fragments side by side in a
    block of the kernel that adds them up.  extremes: of all rows, how many.
    """

    rows: tuple[Total, ...]
    counts: bool
    columns: tuple[int, ...]
    side: int
    extremes: int

    @property
    def levels(self) -> int:
        return 1 + max(total.level for total in self.rows)


@dataclass(frozen=True)
class RowsTiling:
    """The tiling that `dnn.tile` says.

    vector_elems: elements of a fragment.
    along: "row" if fragments lie along the reduced axes, else "column".
    threads: of a block that work on rows.  row_threads: that share a row.  held: fragments of a
    row that a thread holds, 0 if the row is read again in each pass.  is_whole: those are the row
    exactly.  cluster: blocks that share a row.  blocks: of an SM, which go through the
    rows; 0: a block for every group of rows.  config: the engine's KERNEL_CFG.
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
    config: int
    memory: RowMemory
    totals: Totals

    @property
    def rows(self) -> int:
        """Fragments of kept elements that a block works on side by side."""
        return self.threads // self.row_threads

    @property
    def stages(self) -> int:
        return self.memory.stages

    @property
    def slots(self) -> int:
        return self.memory.slots

    @property
    def has_own_rings(self) -> bool:
        """Whether warps go through rings on their own."""
        return self.config == 2

    @property
    def has_ring(self) -> bool:
        """Whether rows come through shared memory."""
        return bool(self.stages and self.memory.ring)

    @property
    def meets_ahead(self) -> bool:
        """Whether warps share rows of such rings: what they exchange is asked for later."""
        return self.has_own_rings and is_shared(self.row_threads, self.cluster)

    @property
    def units(self) -> int:
        """Rings of a block: warps with rows of their own have one each."""
        return self.threads // WARP_THREADS if self.has_own_rings and not self.meets_ahead else 1

    @property
    def warps_of_row(self) -> int:
        """Warps that share a row, of all blocks."""
        return self.cluster * (self.row_threads // WARP_THREADS)

    @property
    def is_early(self) -> bool:
        """Whether the kernel that adds up columns starts before the first one ends."""
        return self.has_own_rings

    @property
    def has_parts(self) -> bool:
        """Whether each block of a cluster has neighbouring fragments of a row, as copies do."""
        return self.has_own_rings

    @property
    def narrow(self) -> int:
        """Elements of a fragment of the kernel that adds up columns."""
        return gcd(self.vector_elems, COLUMN_WIDTH)

    @property
    def step(self) -> int:
        """Fragments of a row that are worked on side by side."""
        return self.row_threads * self.cluster

    @property
    def block_elements(self) -> int:
        """Elements of a row that a block holds."""
        return self.held * self.row_threads * self.vector_elems

    def parts_of(self, total: Total) -> tuple[int, ...]:
        """Bits of the numbers of a part: squared distances of warps need the sum of the distances
        too."""
        return (total.bits,) * (2 if self.meets_ahead and total.way == "distances" else 1)
