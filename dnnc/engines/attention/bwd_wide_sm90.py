# pyright: basic
"""The main kernel of engine sdpa_bwd_sm90 of queries of 136 to 192 elements, values of up to 128.

dQ' has three panels of elements, of which each warpgroup makes one, and of the one between both
half of the queries.  A tile has 128 keys, so that half as much is added to dQ as by tiles of 64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import wgmma
from ...codegen.memory import atomic, smem
from .bwd_kernel_sm90 import GradientEmitter, moved
from .bwd_tile_sm90 import WideTiling
from .schedule import QueryTile

_TOGETHER = 4  # registers that are added to memory at once


@dataclass
class WideGradientEmitter(GradientEmitter):
    """See the file's docstring."""

    @property
    def tiling(self) -> WideTiling:
        return self.schedule.tiling

    def _add_queries(self) -> None:
        if not self.tiling.adds_from_registers:
            super()._add_queries()

    def add_part(self, head: QueryTile, block: Any, sums: Sequence[Any]) -> None:
        t = self.tiling
        if not t.adds_from_registers:
            super().add_part(head, block, sums)
            return
        # Found in each step: around the loop it would be a pair of registers, which spills.
        own = ops.opaque(self.own) * t.dq_part_bytes + ops.opaque(self.thread) * 16
        place = self.sums_place(head, block, own)
        for first in range(0, len(sums), _TOGETHER):
            four = ops.from_elements(list(sums[first : first + _TOGETHER]))
            target = smem.byte_pointer(place, first * wgmma.WARPGROUP_THREADS * 4)
            atomic.add(target, four, is_together=True)

    def _describe(self) -> None:
        t = self.tiling
        self.describe_keys(self.own)
        panel = self.keys_transposed.panel_bytes
        self.k_transposed = self.described(self.own * (2 * panel), self.keys_transposed)
        self.k_shared = self.described(panel, self.keys_transposed)
        self.ds_all = self.described(t.ds_offset, self.query_rows)
        part = self.own * (t.queries // 2 * wgmma.ROW_BYTES)
        self.ds_half = self.described(part + t.ds_offset, self.query_rows)
        self.describe_queries()
        self.find_places(self.own)
        own_sums = self.own * t.dq_part_bytes + self.thread * 16
        self.dq_place = self.address + (own_sums + t.dq_offset)

    def _of_gradients(self, buffer: Any) -> Any:
        t, row = self.tiling, self.qk
        of_buffer = moved(buffer, t.ds_bytes)
        wgmma.fence()
        registers: list[Any] = []
        for a, b, columns in (
            (self.k_transposed, self.ds_all, t.queries),
            (self.k_shared, self.ds_half, t.queries // 2),
        ):  # fmt: skip
            sums = wgmma.undefined(row, columns)
            for step in range(t.keys // row.k):
                panel, inner = divmod(step, row.steps)
                place = panel * t.ds_part_bytes + self.query_rows.offset(0, inner)
                sums = wgmma.multiply(
                    row, columns, wgmma.moved(a, self.keys_transposed.offset(0, step)),
                    wgmma.moved(b + of_buffer, place), sums, int(step > 0), a_k_major=False,
                )  # fmt: skip
            registers += wgmma.unpacked(sums)
        wgmma.commit()
        return wgmma.packed(wgmma.accumulator_type(row, t.dq_columns), registers)
