# pyright: basic
"""Sums of dK or dV of a tile of keys, from a warpgroup's registers to memory.

They become the result; or, where several tiles share the query heads of the same keys, parts in
the workspace, which lie as warpgroups had them in registers, [tile][warpgroup][4 registers of each
thread], and which the kernel after the main one adds up in order, so that they have the same bits
each time.  Results that are scaled go this way too, of one part as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.hopper import wgmma
from ...codegen.memory import smem
from ...codegen.state import loop
from ...expr import Expr
from ...mlir import arith
from .bwd_results import PANEL_REGISTERS, TOGETHER, ResultRows, RowPlace
from .bwd_schedule import KeyTile


@dataclass
class KeyGradients(ResultRows):
    """name: dk or dv.  parts_name: the workspace buffer of parts; "": there is none."""

    parts_name: str

    @property
    def panel_bytes(self) -> int:
        return self.schedule.tiling.keys * wgmma.ROW_BYTES

    @property
    def units(self) -> Expr:
        """Tiles of keys, which the kernel after the main one finishes one by one."""
        return self.schedule.key_tiles

    def place_of(self, tile: KeyTile, own: Any) -> RowPlace:
        """own: the warpgroup's number among those that have different keys."""
        return RowPlace(tile.entry, tile.head, tile.key + own * wgmma.M)

    def unit_place(self, number: Any, own: Any) -> RowPlace:
        """number: of the tile of keys."""
        return self.place_of(self.schedule.key_place(number), own)

    def finish(self, number: Any, own: Any, thread: Any) -> None:
        """Stores a tile's sums of all parts, scaled; number: of the tile of keys."""
        at = self.unit_place(number, own)
        sums_of = partial(self.total, number, own, thread)
        self.store_scaled(at, self.schedule.key_end, thread, sums_of)

    # ---- parts

    def keep(self, sums: Sequence[Any], tile: KeyTile, own: Any, thread: Any) -> None:
        """Writes sums as a part."""
        place = self._place(tile.number, own, thread)
        for first in range(0, len(sums), TOGETHER):
            four = ops.from_elements(list(sums[first : first + TOGETHER]))
            ops.store(smem.byte_pointer(place, self._offset(first)), four, 4 * TOGETHER)

    def total(self, number: Any, own: Any, thread: Any, panel: int) -> list[Any]:
        """A panel's sums of all parts; number: of the tile of keys."""
        s = self.schedule
        head = self.kernel.divide(number, s.columns)
        column = self.kernel.remainder(number, s.columns, head)
        first, registers = panel * PANEL_REGISTERS, self.registers_of(panel)
        four = ops.vector_type(ops.f32_type(), TOGETHER)

        @loop(0, s.tiling.parts, state=[ops.zeros(ops.f32_type())] * registers)
        def totals(part: Any, before: list[Any]) -> list[Any]:
            of_part = head * s.tiling.parts + part
            tile = of_part * self.kernel.size(s.columns) + column
            place = self._place(tile, own, thread)
            found: list[Any] = []
            for at in range(0, registers, TOGETHER):
                pointer = smem.byte_pointer(place, self._offset(first + at))
                found += ops.elements(ops.load(pointer, four, 4 * TOGETHER))
            return [arith.AddFOp(a, b).result for a, b in zip(before, found, strict=True)]

        return totals

    def _place(self, tile: Any, own: Any, thread: Any) -> Any:
        t = self.schedule.tiling
        bytes_ = t.key_part_bytes(self.elements)
        inside = own * (bytes_ // t.key_groups) + thread * (4 * TOGETHER)
        at = ops.to_i64(tile) * bytes_ + ops.to_i64(inside)
        return smem.byte_pointer(self.kernel.workspace(self.parts_name), at)

    def _offset(self, register: int) -> int:
        return register * 4 * wgmma.WARPGROUP_THREADS
