# pyright: basic
"""Rewriting: a tile of an operand that warps compute in shared memory, where products read it.

    TMA   brings tiles of what g1 reads, the *raw* tiles, a row of k each
    some warps        take them a fragment at a time, walk g1, and store what comes out

A fragment is 16 bytes of a row of the result.  A thread has the same place of every row that it
rewrites, so that what g1 reads of it besides is loaded once a tile.  A raw tile of elements as wide
as the result's is rewritten in place: each fragment is read and stored by one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ... import dtypes
from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...mlir import arith, llvm
from ...target import WARP_THREADS
from .. import ops
from ..ampere import mma
from ..kernel import Kernel
from ..memory import smem
from ..memory.smem import CHUNK_BYTES, SwizzledTile
from ..memory.tensors import register_type
from ..region import Region, identity_access
from ..state import each
from ..walk.index import Index
from ..walk.region_walk import InHand, Walk
from .wgmma import ROW_BYTES, WARPGROUP_THREADS

WARPS = 3
THREADS = WARPS * WARP_THREADS
_HELD_BYTES = 48  # of raw tiles that a thread has in registers at a time


@dataclass(frozen=True)
class RawRows:
    """A raw tile.

    argument: of the region.  offset: bytes from the slot's start.  k: elements of a row.
    """

    argument: Any
    tensor: Tensor
    offset: int
    k: int

    @property
    def row_bytes(self) -> int:
        return self.k * self.tensor.type.bits // 8

    def load(self, slot: Any, row: Any, first: Any, count: int) -> Any:
        """`count` elements of a row, from one that is a multiple of it on."""
        size = self.tensor.type.bits // 8
        element, bytes_ = register_type(self.tensor.type), count * size
        each = min(bytes_, CHUNK_BYTES)
        parts = []
        for start in range(0, bytes_, each):
            byte = first * size + start
            place = smem.byte_pointer(slot, self._offset(row, byte) + self.offset)
            parts.append(ops.load(place, ops.vector_type(element, each // size), each))
        return ops.concat(parts)

    def _offset(self, row: Any, byte: Any) -> Any:
        """Bytes from the tile's start; rows of 16 bytes, or of more than 128, are not swizzled."""
        if not CHUNK_BYTES < self.row_bytes <= ROW_BYTES:
            return row * self.row_bytes + byte
        tile = SwizzledTile(1, self.row_bytes)
        inside = byte & (CHUNK_BYTES - 1)
        return tile.offset(row, byte >> 4) + inside


@dataclass(frozen=True)
class Columns:
    """A thread's part of a tile's rows: the same of every row that it rewrites.

    chunk: of 16 bytes of the result.  own: its first row.  k: in the group, kept inside it;
    is_there: whether it was, None: always.  at: coordinates of the value.  walk: knows what is read
    of it besides raw tiles.
    """

    chunk: Any
    own: Any
    k: Any
    is_there: Any
    at: Sequence[Index]
    walk: Walk


@dataclass
class Rewriting:
    """How a tile [rows, a panel of k] of an operand is rewritten.

    value: the SSA tensor after g1, of which axis 1 lies along k.  operand: its type.  raws: what g1
    reads at each element; everything else that it reads has an extent of 1 along all other axes.
    extent: of k in a group; offset: of the result's tile, bytes from the slot's start.
    row_bytes: of its rows.  warpgroups: that rewrite, each tiles of its own.
    """

    kernel: Kernel
    region: Region
    value: Any
    operand: DType
    raws: Sequence[RawRows]
    extent: int
    offset: int
    row_bytes: int = ROW_BYTES
    warpgroups: int = 1

    def __post_init__(self) -> None:
        self.elems = CHUNK_BYTES * 8 // self.operand.bits
        self.tile = SwizzledTile(1, self.row_bytes)
        self.taken = [InHand() for _ in self.raws]
        self.leaves: dict[Any, Any] = self.region.leaves(self.kernel)
        self.leaves |= {r.argument: t for r, t in zip(self.raws, self.taken, strict=True)}

    @property
    def row_step(self) -> int:
        """Rows that all threads rewrite at a time."""
        return THREADS // self.tile.chunks

    @property
    def thread(self) -> Any:
        """The thread's number among those that rewrite: all but the first warp of a warpgroup."""
        thread = ops.thread_id()
        if self.warpgroups > 1:
            thread = thread & (WARPGROUP_THREADS - 1)
        return thread - WARP_THREADS

    def columns(self, first_k: Any, group: Any) -> Columns:
        """The thread's place in the rows of a tile, and what all rows read of it.

        first_k: of the tile, in its group.  group: the group's first element of k.
        """
        chunk = self.thread & (self.tile.chunks - 1)
        own = self.thread // self.tile.chunks
        place = chunk * self.elems
        k, is_there = self._kept(first_k + place)
        at = self._at(Index(group + k, 1, self.elems))
        walk = Walk(self.kernel, self.leaves, self.region.symbols)
        self._load_what_rows_share(walk, at)
        return Columns(chunk, own, k, is_there, at, walk)

    def rewrite(
        self,
        slot: Any,
        rows: int,
        columns: Columns,
        inside: Callable[[Any], Any],
        wait: Callable[[], None],
        keep: Callable[[Any, Index, Any, Any], None] | None = None,
        *,
        together: int = 0,
    ) -> None:
        """Rewrites a tile, by all threads.  The caller shows it to products, by `tma.show_writes`.

        inside(row): whether a row is not all zeros; None: always.  wait: until raw tiles are there.
        keep(row, k in the group, fragment, whether it is of the group) stores what is computed
        elsewhere too.  together: rows of a thread that are in registers at a time; 0: few.
        """
        own, step, place = columns.own, self.row_step, columns.chunk * self.elems
        wait()

        def some(first: Any, count: int, last: Any = None) -> None:
            """Rewrites rows from one on, each a step after the last.

            last: whether the thread has the last one; None: it has.
            """
            numbers = [first + i * step for i in range(count)]
            if last is not None:  # else another of its own, which it reads before it is rewritten
                numbers[-1] = ops.select(last, numbers[-1], numbers[0])
            taken = [[raw.load(slot, n, place, self.elems) for raw in self.raws] for n in numbers]
            made = [
                self._zeroed(self._value(columns, fragments), ops.both(columns.is_there, inside(n)))
                for n, fragments in zip(numbers, taken, strict=True)
            ]
            for i, (n, value) in enumerate(zip(numbers, made, strict=True)):
                if keep is not None:
                    k = Index(columns.k, 1, self.elems)
                    keep(n, k, self._fragment(value), columns.is_there)
                target = smem.byte_pointer(slot, self.tile.offset(n, columns.chunk) + self.offset)
                if last is None or i < count - 1:
                    ops.store(target, value, CHUNK_BYTES)
                    continue
                with ops.if_(last):
                    ops.store(target, value, CHUNK_BYTES)

        whole, rest = divmod(rows, step)
        if rest and 0 < whole < together:  # all at once
            some(own, whole + 1, own < rest)
            return
        together = together or self._together
        loops, left = divmod(whole, together)

        if loops:

            @each(0, loops)
            def _(i: Any) -> None:
                some(own + i * (together * step), together)

        done = loops * together
        if left:
            some(own + done * step, left)
        if rest:
            with ops.if_(own < rest):
                some(own + whole * step, 1)

    @property
    def _together(self) -> int:
        """Rows of a thread that are in registers at a time."""
        held = sum(raw.tensor.type.bits // 8 * self.elems for raw in self.raws)
        return max(1, _HELD_BYTES // held)

    def _at(self, k: Index) -> list[Index]:
        rank = len(self.region.dims_of(self.value))
        return [k if axis == 1 else Index.of(0) for axis in range(rank)]

    def _kept(self, k: Any) -> tuple[Any, Any]:
        """(k kept inside the group, whether it was; None: always)."""
        panel = self.row_bytes * 8 // self.operand.bits
        if self.extent % panel == 0:
            return k, None
        return ops.minimum(k, self.extent - self.elems), k < self.extent

    def _load_what_rows_share(self, walk: Walk, at: Sequence[Index]) -> None:
        whole = identity_access(len(at))
        raws = {raw.argument for raw in self.raws}
        for leaf, access in self.region.accesses(self.value, whole):
            if leaf not in raws:
                places = [at[p[1]] if p[0] == "loop" else Index.of(0) for p in access]
                walk.value(leaf, places, self.elems)

    def _value(self, columns: Columns, fragments: Sequence[Any]) -> Any:
        """The value of one row."""
        for taken, fragment in zip(self.taken, fragments, strict=True):
            taken.current = fragment
        value = columns.walk.branch().value(self.value, columns.at, self.elems)
        if self.operand == dtypes.f32:
            # As TMA does; `wgmma` would cut.
            words = [llvm.BitcastOp(ops.i32_type(), x).result for x in ops.elements(value)]
            return ops.from_elements([mma.tf32(word) for word in words])
        words = ops.vector_type(ops.i32_type(), CHUNK_BYTES // 4)
        return llvm.BitcastOp(words, value).result

    def _fragment(self, words: Any) -> Any:
        """Words as elements of the operand's type."""
        type_ = ops.vector_type(register_type(self.operand), self.elems)
        return llvm.BitcastOp(type_, words).result

    def _zeroed(self, words: Any, condition: Any) -> Any:
        if condition is None:
            return words
        mask = ops.splat(condition, CHUNK_BYTES // 4)
        return arith.SelectOp(mask, words, ops.zeros(words.type)).result
