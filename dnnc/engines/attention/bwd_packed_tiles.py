# pyright: basic
"""The tiles of keys that packed sequences have, one after the other in the workspace.

Lengths are on the device.  Tiles that were counted by the longest sequence would mostly be of no
key, and each costs a block of threads.  The kernel before the main one makes a list for one head:
of each sequence its tiles, the first keys first, which under a causal mask have the most queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.memory import smem
from ...codegen.state import loop
from ...expr import Expr, ceildiv, minimum
from .bwd_schedule import GradientSchedule

_WORDS = 2  # of a tile: its entry of the batch and its number there; an entry of -1: there is none
_WORD_BYTES = 4


@dataclass(frozen=True)
class _Search:
    """before: tiles of the entries that were looked at.  entry, column: of the tile, or -1."""

    before: Any
    entry: Any
    column: Any


@dataclass
class PackedTiles:
    """buffer: of the workspace."""

    schedule: GradientSchedule
    buffer: str

    @staticmethod
    def are_listed(schedule: GradientSchedule) -> bool:
        """Whether a list is made: where tiles need not come in an order."""
        return schedule.leaves_out_ends and not schedule.tiling.is_ordered

    @staticmethod
    def most(schedule: GradientSchedule) -> Expr:
        """Tiles of all sequences, at most: each has one that is not full."""
        source = schedule.parts.packed("dk")
        assert source is not None, "packed rows"
        rows = source.tensor.shape[source.tensor.rank - 2]
        full = ceildiv(rows, Expr.of(schedule.tiling.keys))
        return minimum(schedule.batch * schedule.columns, full + schedule.batch)

    @staticmethod
    def bytes(schedule: GradientSchedule) -> Expr:
        return PackedTiles.most(schedule) * (_WORDS * _WORD_BYTES)

    @staticmethod
    def blocks(schedule: GradientSchedule, threads: int) -> Expr:
        """Blocks of so many threads that make the list."""
        return ceildiv(PackedTiles.most(schedule), Expr.of(threads))

    def fill(self, number: Any) -> None:
        """A thread finds a tile.  number: of the block."""
        s = self.schedule
        kernel, keys = s.kernel, s.tiling.keys
        own = number * kernel.threads + ops.thread_id()

        @loop(0, kernel.size(s.batch), state=_Search(0, -1, 0))
        def end(entry: Any, now: _Search) -> _Search:
            until = now.before + ops.ceildiv(s.count("dk", entry), keys)
            is_here = ops.both(own >= now.before, own < until)
            return _Search(
                until, ops.select(is_here, entry, now.entry),
                ops.select(is_here, own - now.before, now.column),
            )  # fmt: skip

        with ops.if_(own < kernel.size(self.most(s))):
            ops.store(self._place(own, 0), end.entry, _WORD_BYTES)
            ops.store(self._place(own, 1), end.column, _WORD_BYTES)

    def find(self, number: Any) -> tuple[Any, Any]:
        """(entry, number of the tile there)."""
        found = [ops.load(self._place(number, i), ops.i32_type(), _WORD_BYTES) for i in (0, 1)]
        return found[0], found[1]

    def _place(self, number: Any, word: int) -> Any:
        at = ops.to_i64(number) * (_WORDS * _WORD_BYTES) + word * _WORD_BYTES
        return smem.byte_pointer(self.schedule.kernel.workspace(self.buffer), at)
