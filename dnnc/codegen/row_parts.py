# pyright: basic
"""RowParts: parts of totals, merged over the rows of a block's threads.

Thread (row, column) of a block gives a list of values, the part of what its column adds up; a
`Merge` makes one part of two.  Lanes of a warp that share a column merge by shuffles, warps by
halves through shared memory: every order is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..target import WARP_THREADS
from . import ops, reduce
from .smem import byte_pointer

_MOST_VALUES = 32  # each from a multiple of 16 bytes on

Part = Sequence[Any]
Merge = Callable[[Part, Part], Part]


def single(combine: reduce.Combine) -> Merge:
    """The merge of parts of one value."""
    return lambda a, b: [combine(a[0], b[0])]


def value_bytes(width: int, bits: int) -> int:
    """Of a thread's value in shared memory."""
    return width * bits // 8


@dataclass(frozen=True)
class RowParts:
    """threads = rows * columns, powers of two; thread = row * columns + column.

    memory: !llvm.ptr<3>, of `bytes`.
    """

    columns: int
    rows: int
    column: Any
    row: Any
    memory: Any

    @staticmethod
    def bytes(columns: int, rows: int, part_bytes: int) -> int:
        """Shared memory for parts of so many bytes a thread."""
        warps = _meeting(columns, rows)
        return max(1, warps // 2) * columns * part_bytes + 16 * _MOST_VALUES

    def merged(self, parts: Sequence[Part], merges: Sequence[Merge]) -> list[Part]:
        """The columns' totals of several parts at once, right in all threads."""
        parts = [list(part) for part in parts]
        distance = WARP_THREADS // 2
        while distance >= self.columns and distance * 2 <= self.columns * self.rows:
            others = [[_moved(value, distance) for value in part] for part in parts]
            parts = self._merge(parts, others, merges)
            distance //= 2
        warps = _meeting(self.columns, self.rows)
        if warps == 1:
            return parts
        number = ops.div(self.row, self.rows // warps)
        is_first = ops.compare("eq", ops.rem(self.row, self.rows // warps), 0)
        half = warps // 2
        while half:
            gives = ops.both(is_first, ops.compare("sge", number, half))
            gives = ops.both(gives, ops.less(number, 2 * half))
            self._give(parts, ops.sub(number, half), gives)
            ops.barrier()
            takes = ops.less(number, half)
            others = self._take(parts, ops.rem(number, half))
            mine = self._merge(parts, others, merges)
            parts = [
                [ops.select(takes, m, old) for m, old in zip(merged, part, strict=True)]
                for merged, part in zip(mine, parts, strict=True)
            ]
            ops.barrier()
            half //= 2
        self._give(parts, 0, ops.both(is_first, ops.compare("eq", number, 0)))
        ops.barrier()
        totals = self._take(parts, 0)
        ops.barrier()
        return totals

    def _merge(
        self, parts: Sequence[Part], others: Sequence[Part], merges: Sequence[Merge]
    ) -> list[list[Any]]:
        return [
            list(merge(part, other))
            for merge, part, other in zip(merges, parts, others, strict=True)
        ]

    def _give(self, parts: Sequence[Part], place: Any, condition: Any) -> None:
        with ops.if_(condition):
            for pointer, value, size in self._places(parts, place):
                ops.store(pointer, value, min(16, size))

    def _take(self, parts: Sequence[Part], place: Any) -> list[list[Any]]:
        found = iter(
            ops.load(pointer, value.type, min(16, size))
            for pointer, value, size in list(self._places(parts, place))
        )
        return [[next(found) for _ in part] for part in parts]

    def _places(self, parts: Sequence[Part], place: Any) -> list[tuple[Any, Any, int]]:
        """(pointer, value, bytes) of this column's values at a place."""
        most = max(1, _meeting(self.columns, self.rows) // 2)
        found, base = [], 0
        slot = ops.add(ops.mul(place, self.columns), self.column)
        for value in [value for part in parts for value in part]:
            size = value_bytes(ops.width_of(value), ops.element_of(value.type).width)
            found.append(
                (byte_pointer(self.memory, ops.add(ops.mul(slot, size), base)), value, size)
            )
            base += -(-most * self.columns * size // 16) * 16
        return found


def _meeting(columns: int, rows: int) -> int:
    """How many groups of rows meet through shared memory: warps, or rows wider than a warp."""
    return rows if columns >= WARP_THREADS else max(1, rows * columns // WARP_THREADS)


def _moved(value: Any, distance: int) -> Any:
    return ops.from_elements([reduce.shuffle_xor(e, distance) for e in ops.elements(value)])
