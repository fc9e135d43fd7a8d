# pyright: basic
"""Sums of dK or dV of a tile of keys, from a warpgroup's registers to memory.

They become the result by way of shared memory and TMA; or, where several tiles share the query
heads of the same keys, parts in the workspace, which lie as warpgroups had them in registers,
[tile][warpgroup][4 registers of each thread], and which the kernel after the main one adds up in
order, so that they have the same bits each time.  Results that are scaled go this way too, of one
part as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.staged_store import StagedStore
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.scalars.scalar import element_type
from ...codegen.walk.index import Index
from ...mlir import arith
from .bwd_finish import Finish, is_plain
from .bwd_packed import PackedRows
from .bwd_schedule import GradientSchedule, KeyTile
from .bwd_tile_sm90 import CONSUMERS

_TOGETHER = 4  # registers of a load or a store
_PANEL_REGISTERS = 32  # of a thread


@dataclass
class KeyGradients:
    """name: dk or dv.  parts_name: the workspace buffer of parts; "": there is none."""

    kernel: Kernel
    parts: GradientRegion
    schedule: GradientSchedule
    name: str
    parts_name: str

    def __post_init__(self) -> None:
        self.is_plain = is_plain(self.parts, self.name)
        if not self.is_plain:
            return
        _, tensor = self.parts.region.outputs[self.parts.results[self.name]]
        box = tma.Box(tensor, (tensor.rank - 1, tensor.rank - 2), (64, wgmma.M))
        self.store = StagedStore(box)
        self.pair = ops.vector_type(element_type(tensor.type), 2)
        self.map_ = None
        self.packed = PackedRows.of(self.kernel, self.parts, self.name)

    @property
    def elements(self) -> int:
        t = self.schedule.tiling
        return t.depth if self.name == "dk" else t.width

    @property
    def panels(self) -> int:
        t = self.schedule.tiling
        return t.depth_panels if self.name == "dk" else t.width_panels

    def describe(self) -> None:
        """Makes the tensor map that `leave` takes."""
        if self.packed is not None:
            return
        self.map_ = tma.map_argument(self.kernel, self.store.box)

    # ---- results

    def put(self, sums: Sequence[Any], buffer: Any, thread: Any) -> None:
        """Sums of panels to shared memory, one after the other; buffer: address of the first
        panel's rows of this warpgroup."""
        rounded = [
            [
                arith.TruncFOp(self.pair, ops.from_elements(list(sums[i + 2 * half :][:2]))).result
                for half in (0, 1)
            ]
            for i in range(0, len(sums), 4)
        ]
        for panel in range(self.panels):
            place = ops.add(buffer, self._panel(panel))
            self.store.put(place, thread, rounded[8 * panel : 8 * panel + 8])

    def leave(self, buffer: Any, tile: KeyTile, own: Any, thread: Any) -> None:
        """Copies a warpgroup's panels to the result, by all its threads, after a barrier.  own: the
        warpgroup.  TMA may go on reading shared memory."""
        key = ops.add(tile.key, ops.mul(own, wgmma.M))
        if self.packed is not None:
            self.packed.copy(
                buffer, self._panel(1), wgmma.M, tile.entry, tile.head, key, thread,
                wgmma.WARPGROUP_THREADS,
            )  # fmt: skip
            return
        with ops.if_(ops.compare("eq", thread, 0)):
            self._start(buffer, tile, key)

    def _start(self, buffer: Any, tile: KeyTile, key: Any) -> None:
        """Starts the copies; by one thread."""
        for panel in range(self.panels):
            at = [Index.of(tile.entry), Index.of(tile.head), Index.of(key), Index.of(64 * panel)]
            place = ops.add(buffer, self._panel(panel))
            self.store.start(self.map_, place, tma.place(self.store.box, at))
        tma.commit()

    def finish(self, number: Any, own: Any, thread: Any) -> None:
        """Stores a tile's sums of all parts, scaled; number: of the tile of keys."""
        s, tile = self.schedule, self.schedule.key_place(number)
        finish = Finish(self.kernel, self.parts, self.name)
        down, right = wgmma.AccumulatorLayout.origin(thread)
        first = ops.add(ops.add(tile.key, ops.mul(own, wgmma.M)), down)
        size = self.kernel.size(s.keys)
        for panel in range(self.panels):
            sums = self.total(number, own, thread, panel)
            for place in range(0, len(sums), 2):
                j, half = divmod(place // 2, 2)
                key = ops.add(first, 8 * half)
                column = ops.add(right, 64 * panel + 8 * j)
                at = [
                    Index.of(tile.entry), Index.of(tile.head), Index.of(key), Index(column, 1, 2)
                ]  # fmt: skip
                inside = ops.less(key, size) if s.has_tail else None
                finish.store(ops.from_elements(sums[place : place + 2]), at, inside)
        finish.meet(thread)

    def _panel(self, panel: int) -> int:
        return panel * self.schedule.tiling.keys * wgmma.ROW_BYTES

    # ---- parts

    def keep(self, sums: Sequence[Any], tile: KeyTile, own: Any, thread: Any) -> None:
        """Writes sums as a part."""
        place = self._place(tile.number, own, thread)
        for first in range(0, len(sums), _TOGETHER):
            four = ops.from_elements(list(sums[first : first + _TOGETHER]))
            ops.store(smem.byte_pointer(place, self._offset(first)), four, 4 * _TOGETHER)

    def total(self, number: Any, own: Any, thread: Any, panel: int) -> list[Any]:
        """A panel's sums of all parts; number: of the tile of keys."""
        s = self.schedule
        head = self.kernel.divide(number, s.columns)
        column = self.kernel.remainder(number, s.columns, head)
        first = panel * _PANEL_REGISTERS
        registers = min(_PANEL_REGISTERS, self.elements // 2 - first)
        four = ops.vector_type(ops.f32_type(), _TOGETHER)

        def add(part: Any, carried: Sequence[Any]) -> Sequence[Any]:
            of_part = ops.add(ops.mul(head, s.tiling.parts), part)
            tile = ops.add(ops.mul(of_part, self.kernel.size(s.columns)), column)
            place = self._place(tile, own, thread)
            found: list[Any] = []
            for at in range(0, registers, _TOGETHER):
                pointer = smem.byte_pointer(place, self._offset(first + at))
                found += ops.elements(ops.load(pointer, four, 4 * _TOGETHER))
            return [arith.AddFOp(a, b).result for a, b in zip(carried, found, strict=True)]

        zeros = [ops.zeros(ops.f32_type())] * registers
        return list(ops.for_(0, s.tiling.parts, 1, zeros, add))

    def _place(self, tile: Any, own: Any, thread: Any) -> Any:
        bytes_ = self.schedule.tiling.key_part_bytes(self.elements)
        inside = ops.add(ops.mul(own, bytes_ // CONSUMERS), ops.mul(thread, 4 * _TOGETHER))
        at = ops.add(ops.mul(ops.to_i64(tile), bytes_), ops.to_i64(inside))
        return smem.byte_pointer(self.kernel.workspace(self.parts_name), at)

    def _offset(self, register: int) -> int:
        return register * 4 * wgmma.WARPGROUP_THREADS
