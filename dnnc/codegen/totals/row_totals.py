# pyright: basic
"""RowTotals: each row's totals, in all threads that share the row.

A row is shared by neighbouring threads of a block ("row": its elements lie along the threads), or
by threads that are as far apart as the block has columns ("column": fragments lie side by side,
and each thread has its own rows' parts).  The blocks of a cluster may share rows too.  Every
combination has one order, so that results repeat bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...target import WARP_THREADS
from .. import ops
from ..hopper import cluster, mbarrier
from ..kernel import Kernel
from ..stretch import stretch
from . import reduce
from .reduce import Combine

Finish = Callable[[Any], Any]

_DIRECT = 8  # parts that every thread loads itself; of more, each lane loads some
_MANY = 32  # threads that share a row across rows; of more, those of a warp combine first
ROWS_ACROSS = 4  # fragments side by side in such a block


def parts_across(threads: int, rows: int) -> int:
    """Parts of a row in shared memory, where so many threads share each of so many rows."""
    return threads // (WARP_THREADS // rows) if threads > _MANY else threads


def bytes_along(threads: int, rows: int, blocks: int, bits: int) -> int:
    """Shared memory of an exchange of rows along the threads; bits: of a total."""
    if threads <= WARP_THREADS and blocks == 1:
        return 0
    parts = max(1, threads // WARP_THREADS) * blocks
    return 2 * rows * parts * bits // 8


def bytes_across(threads: int, rows: int, width: int, bits: int) -> int:
    """Shared memory of an exchange across fragments of so many rows' totals."""
    return parts_across(threads, rows) * rows * width * bits // 8 if threads > 1 else 0


@dataclass(frozen=True)
class RowTotals:
    """How the threads of a block share its rows.

    threads: that share a row in a block, a power of two.  rows: side by side in a block.
    blocks: of a cluster that share a row.  lane: of those that share a row, of all its blocks'
    the block's own.  row: of the block.  rank: of the block in the cluster.
    """

    kernel: Kernel
    is_along_row: bool
    threads: int
    rows: int
    blocks: int
    lane: Any
    row: Any
    rank: Any

    @stretch("sum of parts")
    def combine(
        self,
        name: str,
        values: Sequence[Any],
        combines: Sequence[Combine],
        parity: Any,
        finishes: Sequence[Finish] | None = None,
    ) -> list[Any]:
        """The rows' totals of several reductions at once; values: a thread's parts.

        finishes: what is made of each total, for any number of its elements.
        name: of the exchange, unique in the kernel.  parity: 0 and 1 alternately where a
        kernel comes to an exchange along rows again, so that it needs one barrier only; it comes to
        one across them once.
        """
        finishes = finishes or [_as_it_is] * len(values)
        if not self.is_along_row:
            return self._through_columns(name, values, combines, finishes)
        found = self._along_row(name, values, combines, parity)
        return [finish(total) for finish, total in zip(finishes, found, strict=True)]

    def _along_row(
        self, name: str, values: Sequence[Any], combines: Sequence[Combine], parity: Any
    ) -> list[Any]:
        within = min(self.threads, WARP_THREADS)
        values = [reduce.lanes(v, c) for v, c in zip(values, combines, strict=True)]
        values = [reduce.across_lanes(v, within, c) for v, c in zip(values, combines, strict=True)]
        if self.threads <= WARP_THREADS and self.blocks == 1:
            return values
        return self._through_warps(name, values, combines, parity)

    def _through_warps(
        self, name: str, values: Sequence[Any], combines: Sequence[Combine], parity: Any
    ) -> list[Any]:
        warps = max(1, self.threads // WARP_THREADS)
        count = self.blocks * warps
        warp = self.rank * warps + (self.lane >> 5)
        is_first = (self.lane & (min(self.threads, WARP_THREADS) - 1)).eq(0)
        base = (parity * self.rows + self.row) * count
        buffers = [
            self.kernel.shared(
                f"{name}_{i}", bytes_along(self.threads, self.rows, self.blocks, value.type.width)
            )
            for i, value in enumerate(values)
        ]
        if self.blocks > 1:
            cluster.wait()  # the others run, or have read what lay here before
        with ops.if_(is_first):
            for buffer, value in zip(buffers, values, strict=True):
                self._give(buffer, base + warp, value)
        if self.blocks > 1:
            cluster.arrive()
            cluster.wait()
            cluster.arrive()  # for the next exchange, or the end
        else:
            ops.barrier()
        return [
            gathered(buffer, base, count, value.type, combine)
            for buffer, value, combine in zip(buffers, values, combines, strict=True)
        ]

    def _give(self, buffer: Any, place: Any, value: Any) -> None:
        """Writes a part to the buffers of all blocks."""
        own = ops.gep(buffer, place, value.type)
        if self.blocks == 1:
            ops.store(own, value, _size(value))
            return
        for block in range(self.blocks):
            ops.store(mbarrier.remote(own, block), value, _size(value))

    def _through_columns(
        self,
        name: str,
        values: Sequence[Any],
        combines: Sequence[Combine],
        finishes: Sequence[Finish],
    ) -> list[Any]:
        if self.threads == 1:
            return [finish(value) for finish, value in zip(finishes, values, strict=True)]
        count = parts_across(self.threads, self.rows)
        together = self.threads // count
        placed = []
        for i, (value, combine) in enumerate(zip(values, combines, strict=True)):
            width, element = ops.width_of(value), ops.element_of(value.type)
            size = element.width // 8
            bytes_ = bytes_across(self.threads, self.rows, width, element.width)
            buffer = self.kernel.shared(f"{name}_{i}", bytes_)

            def pointer(
                other: Any, at: Any = None, buffer=buffer, width=width, element=element
            ) -> Any:
                """The pointer of a part: of this thread's row, or at an element of all rows'
                fragments."""
                if at is None:
                    at = self.row * width
                place = other * self.rows * width
                return ops.gep(buffer, place + at, element)

            own, first, is_giver = value, 0, None
            if together > 1:
                lane = self.lane & (together - 1)
                own, first, is_giver = reduce.scattered(value, lane, together, combine, self.rows)
            with ops.if_(is_giver):
                at = self.row * width + first
                place = pointer(self.lane // together, at)
                ops.store(place, own, min(16, size * ops.width_of(own)))
            placed.append((pointer, min(16, size * width)))
        ops.barrier()
        found = []
        each = zip(placed, values, combines, finishes, strict=True)
        for (pointer, alignment), value, combine, finish in each:
            if together > 1 and self.rows * ops.width_of(value) <= WARP_THREADS:
                found.append(self._by_lanes(pointer, count, value, combine, finish))
                continue
            total = ops.load(pointer(0), value.type, alignment)
            for other in range(1, count):
                total = combine(total, ops.load(pointer(other), value.type, alignment))
            found.append(finish(total))
        return found

    def _by_lanes(
        self,
        pointer: Callable[[Any, Any], Any],
        count: int,
        like: Any,
        combine: Combine,
        finish: Finish,
    ) -> Any:
        """The total of this thread's row; each lane of a warp combines an element's parts."""
        width, element = ops.width_of(like), ops.element_of(like.type)
        at = ops.thread_id() & (self.rows * width - 1)
        total = None
        for other in range(count):
            part = ops.load(pointer(other, at), element, element.width // 8)
            total = part if total is None else combine(total, part)
        made, first = finish(total), self.row * width
        return ops.from_elements([reduce.from_lane(made, first + i) for i in range(width)])


def _as_it_is(total: Any) -> Any:
    return total


def gathered(buffer: Any, base: Any, count: int, type_: Any, combine: Combine) -> Any:
    """A row's parts in shared memory, from place `base` on, combined in every thread."""
    numbers, lanes = parts_of_lane(count)
    values = [part_at(buffer, base + number, type_) for number in numbers]
    return of_lanes(values, lanes, combine)


def parts_of_lane(count: int) -> tuple[list[Any], int]:
    """(numbers of the parts, of so many, that this thread looks at; lanes that share them all)."""
    if count <= _DIRECT:
        return list(range(count)), 1
    lanes = min(count, WARP_THREADS)
    lane = ops.thread_id() & (lanes - 1)
    return [lane + first for first in range(0, count, lanes)], lanes


def part_at(buffer: Any, place: Any, type_: Any) -> Any:
    return ops.load(ops.gep(buffer, place, type_), type_, type_.width // 8)


def of_lanes(values: Sequence[Any], lanes: int, combine: Combine) -> Any:
    """The total of all parts, in every thread; values: of those that this one looks at."""
    total = values[0]
    for value in values[1:]:
        total = combine(total, value)
    return reduce.across_lanes(total, lanes, combine)


def _size(value: Any) -> int:
    return ops.element_of(value.type).width // 8
