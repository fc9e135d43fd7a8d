# pyright: basic
"""GroupTotals: totals of threads, of blocks, and of blocks that share what they reduce.

    warp:    lanes that share a column combine by shuffles; the first leaves the warp's part in
             shared memory
    block:   a thread takes one entry and some of the warps' parts; neighbours combine by shuffles;
             the first leaves the block's part in global memory
    group:   the blocks meet; as before, a thread takes one entry and some of the blocks' parts;
             the totals go to shared memory, where all threads of the block find them

A block has `columns` fragments of `elements` entries side by side, and `rows` threads along each.
Every order is fixed by the numbers of threads and blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...target import WARP_THREADS
from .. import ops
from ..memory.smem import byte_pointer
from ..state import each
from ..stretch import stretch
from . import reduce
from .grid_barrier import GridBarrier
from .parts import Part, Quantity, combined, found_bits

_TOGETHER = 4  # blocks' parts that a thread loads before it uses the first
_ALIGNMENT = 16  # of what lies one after the other


@dataclass(frozen=True)
class BlockShape:
    """threads = rows * columns, powers of two; thread = row * columns + column."""

    rows: int
    columns: int
    elements: int

    @property
    def entries(self) -> int:
        return self.columns * self.elements

    @property
    def warps(self) -> int:
        """Parts of a block: of warps, or of rows where a row is a warp or more."""
        if self.columns >= WARP_THREADS:
            return self.rows
        return max(1, self.rows * self.columns // WARP_THREADS)

    @property
    def rows_of_part(self) -> int:
        return self.rows // self.warps

    @property
    def sharing(self) -> int:
        """Neighbouring lanes' groups that share an entry."""
        threads = self.rows * self.columns
        return min(WARP_THREADS, threads // min(threads, self.entries))

    @property
    def at_once(self) -> int:
        """Entries that the block works on side by side."""
        return min(self.rows * self.columns // self.sharing, self.entries)

    def smem_bytes(self, quantities: Sequence[tuple[int, ...]]) -> int:
        """Bytes of shared memory for parts and totals; quantities: the bits of what parts have
        beside their counts."""
        parts = sum(
            _padded(self.warps * self.entries * b // 8) for bits in quantities for b in bits
        )
        found = (b for bits in quantities for b in found_bits(bits))
        return parts + sum(_padded(self.entries * b // 8) for b in found)

    def global_bytes(self, quantities: Sequence[tuple[int, ...]]) -> int:
        """That one block leaves; with what lies between."""
        values = ((*bits, *found_bits(bits)) for bits in quantities)
        return sum(_padded(self.entries * b // 8) for of_one in values for b in of_one)


def _padded(bytes_: int) -> int:
    return -(-bytes_ // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True)
class ThreadPlace:
    """A thread's number in its block, and its row and column there."""

    thread: Any
    row: Any
    column: Any


@dataclass(frozen=True)
class BlockPlace:
    """A block's number among the blocks that share entries, and the number of their group."""

    block: Any
    blocks: Any
    group: Any
    groups: Any


@dataclass
class GroupTotals:
    """The exchange of one level.

    at: this thread's place.  memory: !llvm.ptr<3>, of `BlockShape.smem_bytes`.
    left: !llvm.ptr<1>, where blocks leave their parts.  place: this block's.
    count: (number of a block, first of its rows, how many) -> elements that these threads have
    reduced, i32.
    is_spread: each block combines some entries of all blocks, and they meet again: many blocks
    that all read all parts would wait for each other at L2.
    """

    shape: BlockShape
    quantities: Sequence[Quantity]
    at: ThreadPlace
    memory: Any
    left: Any
    place: BlockPlace
    count: Callable[[Any, Any, int], Any]
    barrier: GridBarrier
    is_spread: bool = False

    @stretch("sum of parts")
    def totals(self, parts: Sequence[Part]) -> list[list[Any]]:
        """The total of each quantity over all blocks, for the thread's column."""
        self._leave_warps(parts)
        ops.barrier()
        self._leave_block()
        self.barrier.meet()
        width = self.shape.elements
        if self.is_spread:
            self._gather_some()
            self.barrier.meet()
            place = self.at.column * width
            return self._of_each(self._loaded(self._places_of_all(place, width)))
        self._gather_blocks()
        ops.barrier()
        found = self._loaded(self._places_of_totals(self.at.column, width))
        ops.barrier()  # the next level may leave its parts here
        return self._of_each(found)

    def _loaded(self, places: Sequence[tuple[Any, Any, int]]) -> list[Any]:
        return [ops.load(pointer, t, min(_ALIGNMENT, size)) for pointer, t, size in places]

    def _of_each(self, found: Sequence[Any]) -> list[list[Any]]:
        """The totals, quantity by quantity."""
        left = list(found)
        return [[left.pop(0) for _ in quantity.types_found] for quantity in self.quantities]

    # ---- warps

    def _leave_warps(self, parts: Sequence[Part]) -> None:
        shape = self.shape
        lanes = max(1, WARP_THREADS // shape.columns)
        lanes = min(lanes, shape.rows)
        number = self.at.row // shape.rows_of_part
        is_first = ops.compare("eq", self.at.row % shape.rows_of_part, 0)
        place = number * shape.columns + self.at.column
        for quantity, part, bases in zip(self.quantities, parts, self._bases(), strict=True):
            merged = part if lanes == 1 else self._of_lanes(quantity, part, lanes)
            with ops.if_(is_first):
                for value, base in zip(quantity.left(merged), bases, strict=True):
                    size = ops.width_of(value) * _bits(value.type) // 8
                    pointer = byte_pointer(self.memory, place * size + base)
                    ops.store(pointer, value, min(_ALIGNMENT, size))

    def _of_lanes(self, quantity: Quantity, part: Part, lanes: int) -> Part:
        """The part of the lanes of a warp that share a column."""
        columns = self.shape.columns
        first = self.at.thread & (columns - 1)
        reference = [reduce.from_lane(value, first) for value in quantity.reference(part)]
        opened = quantity.opened(part, reference)
        merged = [
            reduce.across_lanes(value, lanes, combine, columns)
            for value, combine in zip(opened, quantity.combines, strict=True)
        ]
        return quantity.closed(merged, reference)

    def _bases(self) -> list[list[int]]:
        """For each quantity, where the warps' parts of its values begin."""
        at = 0
        found: list[list[int]] = []
        for quantity in self.quantities:
            bases = []
            for type_ in quantity.types_left:
                bases.append(at)
                at += self._padded_parts(type_)
            found.append(bases)
        return found

    def _padded_parts(self, type_: Any) -> int:
        """Bytes of a value of all warps' parts."""
        return _padded(self.shape.warps * self.shape.entries * type_.width // 8)

    # ---- a thread for an entry

    @property
    def _of_entries(self) -> list[Quantity]:
        return [quantity.of_entries for quantity in self.quantities]

    def _entries(self) -> list[tuple[Any, Any, Any]]:
        """(entry, which of those that share it, whether this thread has one), one by one."""
        shape = self.shape
        alone = WARP_THREADS // shape.sharing
        lane, warp = self.at.thread & (WARP_THREADS - 1), self.at.thread // WARP_THREADS
        number = warp * alone + lane % alone
        place = lane // alone
        has_one = None
        if shape.at_once * shape.sharing < shape.rows * shape.columns:
            has_one = number < shape.at_once
            number = ops.minimum(number, shape.at_once - 1)
        return [
            (number + first, place, has_one) for first in range(0, shape.entries, shape.at_once)
        ]

    def _shared(
        self, quantity: Quantity, opened: Part, reference: Sequence[Any], sharing: int
    ) -> Part:
        """The part of an entry, of all threads that share it."""
        merged = [
            reduce.across_lanes(value, sharing, combine, WARP_THREADS // sharing)
            for value, combine in zip(opened, quantity.combines, strict=True)
        ]
        return quantity.closed(merged, reference)

    # ---- the block

    def _leave_block(self) -> None:
        """Combines the warps' parts and writes the block's."""
        for entry, place, has_one in self._entries():
            for number, (quantity, bases) in enumerate(
                zip(self._of_entries, self._bases(), strict=True)
            ):
                reference = quantity.reference(self._of_warp(quantity, bases, entry, 0))
                total: Sequence[Any] = []
                for first in range(0, self.shape.warps, self.shape.sharing):
                    warp = place + first
                    last = self.shape.warps - 1
                    part = self._of_warp(quantity, bases, entry, ops.minimum(warp, last))
                    opened = quantity.opened(part, reference)
                    if self.shape.warps < self.shape.sharing:
                        is_one = warp < self.shape.warps
                        opened = [
                            ops.select(is_one, value, nothing)
                            for value, nothing in zip(opened, quantity.nothing, strict=True)
                        ]
                    total = combined(quantity, total, opened) if total else opened
                part = self._shared(quantity, total, reference, self.shape.sharing)
                is_writer = ops.both(has_one, place.eq(0))
                with ops.if_(is_writer):
                    pointers = self._left(number, entry, self.place.block)
                    for pointer, value in zip(pointers, quantity.left(part), strict=True):
                        ops.store(pointer, value, _bits(value.type) // 8)

    def _of_warp(self, quantity: Quantity, bases: Sequence[int], entry: Any, warp: Any) -> Part:
        place = warp * self.shape.entries + entry
        values = []
        for type_, base in zip(quantity.types_left, bases, strict=True):
            size = type_.width // 8
            pointer = byte_pointer(self.memory, place * size + base)
            values.append(ops.load(pointer, type_, size))
        rows = self.shape.rows_of_part
        return quantity.read(values, self.count(self.place.block, warp * rows, rows))

    # ---- all blocks

    def _left(self, number: int, entry: Any, block: Any) -> list[Any]:
        """Where a block leaves the values of a quantity."""
        place = self.place.group * self.place.blocks + block
        place = place * self.shape.entries + entry
        before = sum(len(quantity.types_left) for quantity in self.quantities[:number])
        bases = self._areas()[before:]
        return [
            byte_pointer(base, place * (type_.width // 8))
            for type_, base in zip(self.quantities[number].types_left, bases, strict=False)
        ]

    def _places_of_all(self, entry: Any, width: int) -> list[tuple[Any, Any, int]]:
        """(pointer, type, bytes) of all that is found, in global memory."""
        place = self.place.group * self.shape.entries + entry
        bases = self._areas()[-len(self._types_found) :]
        found = []
        for type_, base in zip(self._types_found, bases, strict=True):
            size = type_.width // 8
            pointer = byte_pointer(base, place * size)
            found.append((pointer, ops.vector_type(type_, width), width * size))
        return found

    @property
    def _types_found(self) -> list[Any]:
        return [type_ for quantity in self.quantities for type_ in quantity.types_found]

    def _areas(self) -> list[Any]:
        """Where the parts of each value begin, then what is found."""
        parts = self.place.groups * self.place.blocks
        sizes = [(parts, t) for quantity in self.quantities for t in quantity.types_left]
        sizes += [(self.place.groups, type_) for type_ in self._types_found]
        base, found = self.left, []
        for count, type_ in sizes:
            found.append(base)
            bytes_ = count * (self.shape.entries * (type_.width // 8))
            bytes_ = (bytes_ + (_ALIGNMENT - 1)) & -_ALIGNMENT
            base = byte_pointer(base, bytes_)
        return found

    def _gather_blocks(self) -> None:
        """Combines the blocks' parts, and writes the totals to shared memory."""
        for entry, place, has_one in self._entries():
            totals = self._gathered(entry, place, self.shape.sharing)
            places = self._places_of_totals(entry, 1)
            with ops.if_(ops.both(has_one, place.eq(0))):
                for (pointer, _, size), total in zip(places, totals, strict=True):
                    ops.store(pointer, total, size)

    def _gather_some(self) -> None:
        """Gather the blocks' totals where each block has some of the entries, a warp for each, and
        write them to global memory."""
        lane, warp = self.at.thread & (WARP_THREADS - 1), self.at.thread // WARP_THREADS
        warps = self.shape.rows * self.shape.columns // WARP_THREADS
        first = warp * self.place.blocks + self.place.block

        @each(first, self.shape.entries, self.place.blocks * warps)
        def _(entry: Any) -> None:
            totals = self._gathered(entry, lane, WARP_THREADS)
            with ops.if_(lane.eq(0)):
                places = self._places_of_all(entry, 1)
                for (pointer, _, size), total in zip(places, totals, strict=True):
                    ops.store(pointer, total, size)

    def _gathered(self, entry: Any, place: Any, sharing: int) -> list[Any]:
        """The totals of an entry, found by neighbours of which this one is at a place."""
        quantities = self._of_entries
        references = [self._reference(number, entry) for number in range(len(quantities))]

        def load(k: Any) -> list[Part]:
            block = place + k * sharing
            return [self._of_block(n, entry, block) for n in range(len(quantities))]

        def use(now: list[Any], parts: Sequence[Part]) -> list[Any]:
            each = zip(quantities, now, parts, references, strict=True)
            return [combined(q, own, q.opened(part, reference)) for q, own, part, reference in each]

        start = [list(quantity.nothing) for quantity in quantities]
        left = ops.maximum(self.place.blocks - place, 0)
        count = (left + (sharing - 1)) // sharing
        sums = reduce.unrolled(0, count, start, load, use, _TOGETHER)
        totals = []
        for quantity, own, reference in zip(quantities, sums, references, strict=True):
            totals += quantity.found(self._shared(quantity, own, reference, sharing))
        return totals

    def _of_block(self, number: int, entry: Any, block: Any) -> Part:
        quantity = self.quantities[number]
        pointers = self._left(number, entry, block)
        values = [
            ops.load(pointer, type_, type_.width // 8)
            for pointer, type_ in zip(pointers, quantity.types_left, strict=True)
        ]
        return quantity.read(values, self.count(block, 0, self.shape.rows))

    def _reference(self, number: int, entry: Any) -> Sequence[Any]:
        quantity = self._of_entries[number]
        if not quantity.is_relative:
            return []
        return quantity.reference(self._of_block(number, entry, 0))

    def _places_of_totals(self, place: Any, width: int) -> list[tuple[Any, Any, int]]:
        """(pointer, type, bytes) of all that is found, at a fragment of `width` entries."""
        left = (type_ for quantity in self.quantities for type_ in quantity.types_left)
        at = sum(map(self._padded_parts, left))
        found = []
        for type_ in self._types_found:
            size = width * type_.width // 8
            pointer = byte_pointer(self.memory, place * size + at)
            found.append((pointer, ops.vector_type(type_, width), size))
            at += _padded(self.shape.entries * type_.width // 8)
        return found


def _bits(type_: Any) -> int:
    return ops.element_of(type_).width
