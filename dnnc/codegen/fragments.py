# pyright: basic
"""Fragments: what a thread goes through several times, and how much of it stays on the chip.

    first pass:   fragments 0 ... held - 1 are put into the thread's own slots of shared memory
    later passes: the last fragment first, down to fragment `held`: what was read last is still in
                  a cache; then those in shared memory

A slot has one writer and one reader, the same thread: nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..dialect.tensor import Tensor
from . import ops, reduce
from .memory import register_type
from .smem import byte_pointer
from .walk import Walk

Values = Callable[[Walk, Sequence[Any]], Any]
Use = Callable[[Sequence[Any], Any], Sequence[Any]]


def fragment_bytes(tensor: Tensor, width: int) -> int:
    return width * tensor.type.bits // 8


def kept_bytes(tensors: Sequence[Tensor], width: int, held: int, threads: int) -> int:
    """Shared memory for so many fragments of each tensor, of each thread."""
    return sum(fragment_bytes(tensor, width) for tensor in tensors) * held * threads


@dataclass(frozen=True)
class Fragments:
    """The fragments of one thread.

    walk: what is known ahead of the loops.  width: elements of a fragment.  at: number of a
    fragment -> its coordinates.  count: fragments of this thread, i32.  again: (value, tensor) of
    what is read in the first pass and later.  held: fragments that have a slot.  threads, thread:
    of the block.  memory: !llvm.ptr<3>, of `kept_bytes`; None where nothing is held.
    together, stored_together: fragments that are loaded before the first is used, or stored.
    """

    walk: Walk
    width: int
    at: Callable[[Any], Sequence[Any]]
    count: Any
    again: Sequence[tuple[Any, Tensor]]
    held: int
    threads: int
    thread: Any
    memory: Any
    together: int
    stored_together: int

    @property
    def _kept(self) -> Any:
        """How many of them are in shared memory."""
        return ops.minimum(self.count, self.held) if self.held else 0

    def first_pass(self, values: Values, start: Sequence[Any], use: Use) -> list[Any]:
        """carried, after use(carried, values(walk, coordinates)) of every fragment."""

        def load(i: Any) -> Any:
            return values(self.walk.branch(), self.at(i))

        def keep(i: Any) -> Any:
            return values(*self._keeping(i))

        carried = list(start)
        if self.held:
            carried = reduce.unrolled(0, self._kept, carried, keep, use, self.together)
        return reduce.unrolled(self._kept, self.count, carried, load, use, self.together)

    def later_pass(
        self, values: Values, start: Sequence[Any], use: Use, *, stores: bool = False
    ) -> list[Any]:
        """As `first_pass`, once that is done; stores: whether `use` writes to memory."""
        together = self.stored_together if stores else self.together
        last = ops.sub(self.count, 1)

        def far(j: Any) -> Any:
            return values(self.walk.branch(), self.at(ops.sub(last, j)))

        left = ops.sub(self.count, self._kept)
        carried = reduce.unrolled(0, left, start, far, use, together)
        if self.held:

            def near(i: Any) -> Any:
                return values(*self._near(i))

            carried = reduce.unrolled(0, self._kept, carried, near, use, together)
        return carried

    # ---- slots

    def _slot(self, number: int, i: Any) -> Any:
        """Where this thread keeps its i-th fragment of an input."""
        sizes = [fragment_bytes(tensor, self.width) for _, tensor in self.again]
        base = sum(sizes[:number]) * self.held * self.threads
        place = ops.add(ops.mul(i, self.threads), self.thread)
        return byte_pointer(self.memory, ops.add(ops.mul(place, sizes[number]), base))

    def _keeping(self, i: Any) -> tuple[Walk, Any]:
        """A walk at the i-th fragment, which is put into shared memory."""
        walk, at = self.walk.branch(), self.at(i)
        for number, (leaf, tensor) in enumerate(self.again):
            value = walk.value(leaf, at, self.width)
            ops.store(self._slot(number, i), value, min(16, fragment_bytes(tensor, self.width)))
        return walk, at

    def _near(self, i: Any) -> tuple[Walk, Any]:
        """A walk at the i-th fragment, which shared memory has."""
        walk, at = self.walk.branch(), self.at(i)
        for number, (leaf, tensor) in enumerate(self.again):
            type_ = ops.vector_type(register_type(tensor.type), self.width)
            size = min(16, fragment_bytes(tensor, self.width))
            walk.know(leaf, at, self.width, ops.load(self._slot(number, i), type_, size))
        return walk, at
