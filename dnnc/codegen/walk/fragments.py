# pyright: basic
"""Fragments: what a thread goes through several times, and how much of it stays on the chip.

    first pass:   fragments 0 ... held - 1 are put into the thread's own slots of shared memory,
                  the next ones, `in_registers` of them where there are as many, stay in registers
    later passes: the last fragment first, down to those: what was read last is still in a cache,
                  which is told to keep it; then those in registers and in shared memory

A slot has one writer and one reader, the same thread: nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...dialect.tensor import Tensor
from ...mlir import llvm
from .. import ops
from ..memory.l2 import SecondCache
from ..memory.smem import byte_pointer
from ..memory.tensors import GlobalTensor, register_type
from ..state import chosen
from ..totals import reduce
from .region_walk import Walk

Values = Callable[[Walk, Sequence[Any]], Any]
Use = Callable[[Any, Any], Any]  # of a record, gives the next one


def fragment_bytes(bits: int, width: int) -> int:
    return width * bits // 8


def kept_bytes(bits: Sequence[int], width: int, held: int, threads: int) -> int:
    """Shared memory for so many fragments of each tensor, of each thread; bits: of an element of
    each."""
    return sum(fragment_bytes(of_tensor, width) for of_tensor in bits) * held * threads


def register_words(tensor: Tensor, width: int) -> int:
    """Registers of a fragment that stays in them; 0: it is read again instead.

    Fragments of single bytes as words end nvJitLink 13.0.88 by a segmentation fault.
    """
    bits = width * tensor.type.bits
    return 0 if tensor.type.bits <= 8 or bits % 32 else bits // 32


@dataclass(frozen=True)
class Slots:
    """Fragments that a thread keeps in shared memory.

    held: how many.  threads, thread: of the block.  memory: !llvm.ptr<3>, of `kept_bytes`; None
    where nothing is held.
    """

    held: int
    threads: int
    thread: Any
    memory: Any


@dataclass(frozen=True)
class Fragments:
    """The fragments of one thread.

    walk: what is known ahead of the loops.  width: elements of a fragment.  at: number of a
    fragment -> its coordinates.  count: fragments of this thread, i32.  again: (value, tensor) of
    what is read in the first pass and later.  slots: of the first fragments.
    together, stored_together: fragments that are loaded before the first is used, or stored.
    in_registers: fragments that stay in registers, if this thread has as many beside those that
    have a slot, and anything that `register_words` says is kept.  second_cache: what it is told
    about what is read from memory, if anything.
    """

    walk: Walk
    width: int
    at: Callable[[Any], Sequence[Any]]
    count: Any
    again: Sequence[tuple[Any, Tensor]]
    slots: Slots
    together: int
    stored_together: int
    in_registers: int = 0
    second_cache: SecondCache | None = None
    _registers: list[list[list[Any]]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if not self._keepable:
            object.__setattr__(self, "in_registers", 0)

    @property
    def _kept(self) -> Any:
        """How many of them are in shared memory."""
        return ops.minimum(self.count, self.slots.held) if self.slots.held else 0

    @property
    def _has_registers(self) -> Any:
        """Whether this thread keeps some in registers: all that it might, or none."""
        return ops.compare("sge", self.count, self.slots.held + self.in_registers)

    @property
    def _near_end(self) -> Any:
        """The number of the first fragment that is not kept."""
        if not self.in_registers:
            return self._kept
        whole = self.slots.held + self.in_registers
        return ops.select(self._has_registers, whole, self._kept)

    def first_pass(self, values: Values, start: Any, use: Use, use_all: Use | None = None) -> Any:
        """The record that is `start`, after use(record, values(walk, coordinates)) of every
        fragment.

        use_all: takes the values of several fragments; see `reduce.unrolled`.
        """

        def load(i: Any) -> Any:
            return values(*self._read(i, is_last=False))

        def keep(i: Any) -> Any:
            return values(*self._keeping(i))

        now = start
        if self.slots.held:
            now = reduce.unrolled(0, self._kept, now, keep, use, self.together, use_all)
        if self.in_registers:
            now = self._first_in_registers(values, now, use)
        return reduce.unrolled(self._near_end, self.count, now, load, use, self.together, use_all)

    def later_pass(
        self,
        values: Values,
        start: Any,
        use: Use,
        use_all: Use | None = None,
        *,
        stores: bool = False,
        is_last: bool = False,
    ) -> Any:
        """The record that is `start`, after `use` of every fragment, in a pass after the first.

        stores: whether `use` writes to memory.  is_last: no pass follows, so that L2 may give up
        what is read."""
        together = self.stored_together if stores else self.together
        last = self.count - 1

        def far(j: Any) -> Any:
            return values(*self._read(last - j, is_last=stores or is_last))

        left = self.count - self._near_end
        now = reduce.unrolled(0, left, start, far, use, together, use_all)
        if self.in_registers:
            now = self._again_in_registers(values, now, use)
        if self.slots.held:

            def near(i: Any) -> Any:
                return values(*self._near(i))

            now = reduce.unrolled(0, self._kept, now, near, use, together, use_all)
        return now

    def _read(self, i: Any, *, is_last: bool) -> tuple[Walk, Any]:
        """A walk at the i-th fragment, read from memory; is_last: for the last time."""
        walk = self.walk.branch()
        if self.second_cache is not None:
            policy = self.second_cache.policy(i, is_last=is_last)
            walk.leaves = {**walk.leaves, **self._hinted(policy)}
        return walk, self.at(i)

    def _hinted(self, policy: Any) -> dict[Any, GlobalTensor]:
        """The sources of what registers may keep: single bytes are read as ever."""
        sources = ((leaf, self.walk.leaves[leaf]) for leaf, _ in self._keepable)
        return {
            leaf: replace(source, policy=policy)
            for leaf, source in sources
            if isinstance(source, GlobalTensor)
        }

    @property
    def _keepable(self) -> list[tuple[Any, int]]:
        """(value, registers of a fragment) of what registers may keep."""
        sizes = ((leaf, register_words(tensor, self.width)) for leaf, tensor in self.again)
        return [(leaf, size) for leaf, size in sizes if size]

    # ---- registers

    def _first_in_registers(self, values: Values, now: Any, use: Use) -> Any:
        """The record after those that stay in registers, if this thread keeps any."""
        numbers = range(self.slots.held, self.slots.held + self.in_registers)
        none = [[[0] * size for _, size in self._keepable] for _ in numbers]

        def keep() -> tuple[Any, list[list[list[Any]]]]:
            read = [self._read(i, is_last=True) for i in numbers]
            words = [  # all loads come before the first use
                [_words_of(walk.value(leaf, at, self.width), n) for leaf, n in self._keepable]
                for walk, at in read
            ]
            following = now
            for walk, at in read:
                following = use(following, values(walk, at))
            return following, words

        found, words = chosen(self._has_registers, (now, none), keep, lambda: (now, none))
        self._registers.extend(words)
        return found

    def _again_in_registers(self, values: Values, now: Any, use: Use) -> Any:
        """The record after `use` of the fragments that `_first_in_registers` kept."""

        def near() -> Any:
            following = now
            for i, words in enumerate(self._registers, self.slots.held):
                following = use(following, values(*self._from_registers(i, words)))
            return following

        return chosen(self._has_registers, now, near, lambda: now)

    def _from_registers(self, i: int, words: Sequence[Sequence[Any]]) -> tuple[Walk, Any]:
        """A walk at the i-th fragment, which registers have."""
        walk, at = self.walk.branch(), self.at(i)
        # Else the compiler keeps the elements that the first pass took apart, each in a register.
        hidden = [[ops.opaque(word) for word in of_leaf] for of_leaf in words]
        tensors = dict(self.again)
        for (leaf, _), of_leaf in zip(self._keepable, hidden, strict=True):
            type_ = ops.vector_type(register_type(tensors[leaf].type), self.width)
            whole = ops.from_elements(of_leaf)
            walk.know(leaf, at, self.width, llvm.BitcastOp(type_, whole).result)
        return walk, at

    # ---- slots

    def _slot(self, number: int, i: Any) -> Any:
        """Where this thread keeps its i-th fragment of an input."""
        sizes = [fragment_bytes(tensor.type.bits, self.width) for _, tensor in self.again]
        base = sum(sizes[:number]) * self.slots.held * self.slots.threads
        place = i * self.slots.threads + self.slots.thread
        return byte_pointer(self.slots.memory, place * sizes[number] + base)

    def _keeping(self, i: Any) -> tuple[Walk, Any]:
        """A walk at the i-th fragment, which is put into shared memory."""
        walk, at = self._read(i, is_last=True)
        for number, (leaf, tensor) in enumerate(self.again):
            value = walk.value(leaf, at, self.width)
            size = min(16, fragment_bytes(tensor.type.bits, self.width))
            ops.store(self._slot(number, i), value, size)
        return walk, at

    def _near(self, i: Any) -> tuple[Walk, Any]:
        """A walk at the i-th fragment, which shared memory has."""
        walk, at = self.walk.branch(), self.at(i)
        for number, (leaf, tensor) in enumerate(self.again):
            type_ = ops.vector_type(register_type(tensor.type), self.width)
            size = min(16, fragment_bytes(tensor.type.bits, self.width))
            walk.know(leaf, at, self.width, ops.load(self._slot(number, i), type_, size))
        return walk, at


def _words_of(value: Any, count: int) -> list[Any]:
    """A fragment as so many i32."""
    whole = ops.vector_type(ops.i32_type(), count)
    return ops.elements(llvm.BitcastOp(whole, value).result)
