# pyright: basic
"""Rows of dQ, dK or dV from shared memory to where packed sequences have them.

A box of TMA would overwrite the rows of the sequence that follows: threads copy 16 bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.hopper import wgmma
from ...codegen.hopper.staged_store import swizzle_of
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.smem import CHUNK_BYTES
from ...codegen.scalars.scalar import element_type
from ...codegen.walk.index import Index
from ...expr import Expr
from .entry import packed_entry

_ELEMENTS = CHUNK_BYTES // 2  # of a copy
_COPIES = wgmma.ROW_BYTES // CHUNK_BYTES  # of a panel's row


@dataclass
class PackedRows:
    """Copies of a packed result.  name: dq, dk or dv.  size: of the rows' axis of the scores."""

    kernel: Kernel
    parts: GradientRegion
    name: str
    size: Expr

    @staticmethod
    def of(kernel: Kernel, parts: GradientRegion, name: str) -> PackedRows | None:
        """The copies of a result whose rows are packed; None: they are in place."""
        if parts.packed(name) is None:
            return None
        return PackedRows(kernel, parts, name, parts.dims[2 if name == "dq" else 3])

    def copy(
        self, buffer: Any, panel_bytes: int, count: int, entry: Any, head: Any, row: Any,
        thread: Any, threads: int,
    ) -> None:  # fmt: skip
        """Copies `count` rows of a head, from `row` of the entry of the batch on; after a barrier.

        buffer: address of the first panel's rows, 128 bytes each, swizzled.  thread: of `threads`
        that copy.
        """
        kernel, source = self.kernel, self.parts.packed(self.name)
        assert source is not None, "packed rows"
        found = packed_entry(kernel, self.parts.region, source, entry, source.tensor.rank - 2)
        end = ops.minimum(found.length, kernel.size(self.size))
        _, target = self.parts.region.targets(kernel)[self.parts.results[self.name]]
        width = target.tensor.shape[3].constant or 0
        vector = ops.vector_type(element_type(target.tensor.type), _ELEMENTS)
        chunks = -(-width // _ELEMENTS)
        for number in range(-(-count * _COPIES // threads)):
            at = thread + number * threads
            own, chunk = at // _COPIES, at % _COPIES
            is_there = ops.less(row + own, end)
            if (number + 1) * threads > count * _COPIES:  # threads past the rows have none
                is_there = ops.both(is_there, own < count)
                own = ops.minimum(own, count - 1)
            place = row + own
            swizzled = (chunk * CHUNK_BYTES) ^ swizzle_of(wgmma.ROW_BYTES, own)
            inside = own * wgmma.ROW_BYTES + swizzled
            for panel in range(-(-chunks // _COPIES)):
                pointer = smem.pointer_to(buffer + inside + panel * panel_bytes)
                column = chunk * _ELEMENTS + panel * _COPIES * _ELEMENTS
                there = is_there
                if chunks < (panel + 1) * _COPIES:
                    there = ops.both(there, column < width)
                where = [
                    Index.of(0), Index.of(head), Index.of(found.first + place),
                    Index(column, 1, _ELEMENTS),
                ]  # fmt: skip
                target.store(where, ops.load(pointer, vector, CHUNK_BYTES), there)
