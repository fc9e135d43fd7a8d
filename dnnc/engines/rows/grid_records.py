"""GridTiling: the record of a kernel of engine grid, which `dnn.tile` holds, and where everything
of its blocks lies in shared memory.

    what a level exchanges | fragments that stay: of each input, slot by slot
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...codegen.totals.group_totals import BlockShape
from ...codegen.totals.parts import AVERAGE_BITS, MOMENTS_BITS
from ...codegen.walk.fragments import kept_bytes
from .records import AxisGroups, Load, Read


@dataclass(frozen=True)
class GridTotal:
    """A reduction.

    level: of the passes, from 0.  way: "distances", from the average at place `of`; "mean" of such;
    "average", summed in f64; "" of any other.  of: its own place otherwise.  bits: of a total.
    """

    level: int
    way: str
    of: int
    bits: int

    @property
    def quantity(self) -> tuple[int, ...]:
        """The bits of what threads make parts of; nothing for a mean, which comes with the
        squared distances from it."""
        known = {"distances": MOMENTS_BITS, "average": AVERAGE_BITS, "mean": ()}
        return known.get(self.way, (self.bits,))


@dataclass(frozen=True)
class GridTiling:
    """The tiling that `dnn.tile` says.

    axes: loop groups.  vector_elems: elements of a fragment.
    along: "row" if fragments lie along the reduced axes, else "column".
    rows, columns: of a block's threads.
    held, in_registers: fragments of each input that a thread keeps in shared memory, in registers.
    together: fragments that a thread loads before it uses the first.  is_spread: see `GroupTotals`.
    totals: the reductions, in their order.  reads: how each pass reads arguments.  again: those
    that a later one reads again.
    """

    axes: AxisGroups
    vector_elems: int
    along: str
    rows: int
    columns: int
    held: int
    in_registers: int
    together: int
    is_spread: bool
    totals: tuple[GridTotal, ...]
    reads: tuple[tuple[Read, ...], ...]
    again: tuple[Load, ...]

    @property
    def threads(self) -> int:
        return self.rows * self.columns

    @property
    def shape(self) -> BlockShape:
        return BlockShape(self.rows, self.columns, 1 if self.along == "row" else self.vector_elems)

    @property
    def levels(self) -> int:
        return 1 + max(total.level for total in self.totals)

    def quantities(self, level: int) -> list[tuple[int, ...]]:
        """The bits of what threads make parts of for a level."""
        return [t.quantity for t in self.totals if t.level == level and t.quantity]


@dataclass(frozen=True)
class GridLayout:
    """Shared memory of a block; see the file's docstring."""

    tile: GridTiling

    @cached_property
    def exchange_bytes(self) -> int:
        """Bytes of what a level exchanges, at most: the offset of the fragments."""
        return max(self._level_bytes)

    @property
    def _level_bytes(self) -> list[int]:
        t = self.tile
        return [t.shape.smem_bytes(t.quantities(level)) for level in range(t.levels)]

    @property
    def slot_bytes(self) -> int:
        t = self.tile
        return kept_bytes([load.bits for load in t.again], t.vector_elems, t.held, t.threads)

    @property
    def bytes(self) -> int:
        return self.exchange_bytes + self.slot_bytes

    @property
    def roomy_bytes(self) -> int:
        """Bytes of exchanges if each level had memory of its own, and two more numbers stood beside
        each mean: shapes that leave so much were timed."""
        shape = self.tile.shape
        of_mean = 4 * shape.warps * (shape.entries + shape.columns)
        means = sum(total.way == "mean" for total in self.tile.totals)
        return sum(self._level_bytes) + means * of_mean
