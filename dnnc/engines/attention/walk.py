# pyright: basic
"""The pointwise work around an attention's products, on the registers of warps.

Scores are walked on what Q @ K' left in accumulators, weights on their exponentials
(`scores.ScoreWalk`), and what comes after on the divided result (`result.ResultWalk`).
A thread has two rows of a tile, 8 apart, in pairs of neighbours, as accumulators of `mma.sync` and
of `wgmma` alike leave them (`wgmma.AccumulatorLayout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.online_softmax import HALVES
from ...codegen.attention.sources import multiple
from ...codegen.hopper import wgmma
from ...codegen.scalars.matching import unrounded
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.loops import Loops, coordinates_of
from ...codegen.walk.region_walk import Walk, inputs_of
from ...mlir import arith, ir
from .region import SdpaRegion
from .schedule import QueryTile


@dataclass
class Hand:
    """The elements that are in registers, as a leaf of a walk.  type: what they are rounded to,
    None: nothing."""

    current: Any = None
    type: Any = None

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        value = ops.splat(self.current, width)
        if self.type is None:
            return value
        return arith.TruncFOp(ops.vector_type(self.type, width), value).result


@dataclass
class Forward:
    """A tensor in place of another: masks that keep every score, a factor that is left out."""

    value: Any
    walk: Walk | None = None

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        assert self.walk is not None, "of the walk that is under way"
        return self.walk.value(self.value, at, width)


@dataclass
class TileWalk:
    """One tile: where its elements are, and what is in hand as leaves of walks.

    row: the first of the tile that the threads have.
    """

    shared: SdpaRegion
    tile: QueryTile
    row: Any

    def __post_init__(self) -> None:
        parts = self.shared.parts
        self.hands = {name: Hand() for name in ("sums", "weight", "result", "maximum", "total")}
        maximum, total = (op.results[0] for op in parts.reductions)
        made = parts.weights.first
        self.hands["weight"].type = _narrower(made)
        self.leaves: dict[Any, Any] = dict(self.shared.arguments)
        self.leaves |= {
            parts.first: self.hands["sums"], made: self.hands["weight"],
            parts.second: self.hands["result"], maximum: self.hands["maximum"],
            total: self.hands["total"],
        }  # fmt: skip
        self.walk = Walk(self.shared.kernel, self.leaves, self.shared.region.symbols)
        self._place(self.shared.thread)
        self.factor = self._factor()

    def _factor(self) -> Any:
        """The factor of a score that numbers which multiply queries or keys make; None: there
        are none."""
        found = None
        parts = self.shared.parts
        for operation in parts.multiples:
            along = multiple(parts.region, operation)
            at = [Index.of(0)] * len(parts.region.dims_of(along))
            ones = [
                _one(value) if value == along else self.walk.value(value, at, 1)
                for value in inputs_of(operation)
            ]
            number = self.walk.body(operation, ones, at, 1, unrounded(operation))
            found = number if found is None else arith.MulFOp(found, number).result
        return found

    def _place(self, thread: Any) -> None:
        """Where a thread works."""
        self.thread = thread
        self.down, self.right = wgmma.AccumulatorLayout.origin(thread)
        schedule = self.shared.schedule
        # Past the end, the nearest of the tensor: what is computed there is not stored.
        self.rows = [schedule.row(self.tile, self._number(half)) for half in HALVES]

    def leave_loop(self) -> None:
        """Has a thread that the compiler knows nothing of: addresses of what is stored stay out
        of the loop over keys."""
        self._place(ops.opaque(self.thread))

    # ---- coordinates

    def _number(self, half: int) -> Any:
        return self.row + self.down + 8 * half

    def inside(self, half: int) -> Any:
        """Whether a row of the thread is one of the tensor's; None: always."""
        return self.shared.schedule.inside(self._number(half))

    def _at(self, half: int, column: Coordinate, dims: Sequence[Any] | None = None) -> list[Any]:
        """The coordinates of a row's element; dims: of a tensor with other axes of heads."""
        s, row = self.shared, self.rows[half]
        rank = len(dims) if dims is not None else s.parts.rank
        batch: Mapping[int, Coordinate] = row.batch
        if dims is not None and rank != s.parts.rank:
            loops = Loops(tuple(dims), tuple((axis,) for axis in range(rank - 2)))
            batch = loops.coordinates(s.kernel, row.head)
        return coordinates_of(rank, batch, {rank - 2: row.query, rank - 1: column})


def _narrower(value: Any) -> Any:
    """The type of a tensor's elements, if it is narrower than f32; None: it is not."""
    type_ = ir.RankedTensorType(value.type).element_type
    return None if isinstance(type_, ir.F32Type) else type_


def _one(tensor: Any) -> Any:
    """1 in the type of a tensor's elements."""
    type_ = ir.RankedTensorType(tensor.type).element_type
    return arith.ConstantOp(type_, ir.FloatAttr.get(type_, 1.0)).result
