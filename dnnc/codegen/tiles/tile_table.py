# pyright: basic
"""How many tiles entries of a batch have, whose lengths are on the device.

Each block makes a table in shared memory before it begins: place e holds how many tiles the
entries before e have together.  Tiles are numbered through, so that none is of no row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...expr import Expr
from ...mlir import nvvm
from ...target import WARP_THREADS
from .. import ops
from ..kernel import Kernel
from ..memory.smem import byte_pointer
from ..state import loop
from .groups import from_lane, running_sum
from .numbers import entry_of

_ENTRY = 4  # bytes


@dataclass(frozen=True)
class TileTable:
    """memory: !llvm.ptr<3>, of `bytes`.  entries: how many."""

    kernel: Kernel
    memory: Any
    entries: Expr

    @staticmethod
    def bytes(most: int) -> int:
        """The bytes of a table of up to so many entries."""
        return (most + 1) * _ENTRY

    def fill(self, count_of: Callable[[Any], Any]) -> None:
        """Write the table; the block's first warp does.

        count_of: tiles of an entry, from memory.
        """
        lane = ops.thread_id() & (WARP_THREADS - 1)
        entries = self.kernel.size(self.entries)

        def chunk(base: Any, before: Any) -> Any:
            entry = base + lane
            is_one = entry < entries
            count = count_of(ops.minimum(entry, entries - 1))
            until = running_sum(ops.select(is_one, count, 0), lane) + before
            with ops.if_(is_one):
                ops.store(self._place(entry + 1), until, _ENTRY)
            return from_lane(until, ops.const(WARP_THREADS - 1), nvvm.ShflKind.idx)

        with ops.if_(lane.eq(0)):
            ops.store(self._place(0), ops.const(0), _ENTRY)
        loop(0, entries, WARP_THREADS, state=0)(chunk)

    def total(self) -> Any:
        return self._load(self.kernel.size(self.entries))

    def find(self, number: Any, entry: Any) -> tuple[Any, Any]:
        """(entry, number in it) of a tile; entry: where the search begins, of a tile before it."""
        entry = entry_of(number, entry, lambda at: self._load(at + 1))
        return entry, number - self._load(entry)

    def _place(self, entry: Any) -> Any:
        return byte_pointer(self.memory, entry * _ENTRY)

    def _load(self, entry: Any) -> Any:
        return ops.load(self._place(entry), ops.i32_type(), _ENTRY)
