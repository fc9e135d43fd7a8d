# pyright: basic
"""A block's part of a filter in shared memory: the taps of some output channels.

Elements lie in the type of the sums, in the order

    tap, channel of the group, part of a fragment, fragment, element of the part

A part is what a thread takes by one access of 16 bytes, so that neighbouring threads, which have
neighbouring fragments of channels, take neighbouring parts and no bank twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import ops
from ..kernel import Kernel
from ..memory.tensors import MAX_ACCESS_BYTES
from ..ops import Number
from ..state import each

_TOGETHER = 16  # loads of a thread that are under way at once

# (output channel of the block, channel of the group, tap) -> the element there, as a sum's type.
Load = Callable[[Number, Number, Number], Any]


@dataclass(eq=False)
class StagedFilter:
    """See the file's docstring.

    taps: of the filter, counted with the last axis fastest.  group: input channels of a group.
    fragments: of the block, of `width` output channels each.  element: type of the sums.
    """

    kernel: Kernel
    taps: int
    group: int
    fragments: int
    width: int
    element: Any

    @staticmethod
    def bytes_of(taps: int, group: int, channels: int, element_bytes: int) -> int:
        """The bytes of shared memory."""
        return taps * group * channels * element_bytes

    def __post_init__(self) -> None:
        self.size = self.element.width // 8
        self.part = min(self.width, MAX_ACCESS_BYTES // self.size)
        self.count = self.taps * self.group * self.fragments * self.width
        self.pointer = self.kernel.shared("filter", self.count * self.size)

    def fill(self, load: Load) -> None:
        """All threads of the block bring it, and wait for each other."""
        threads = self.kernel.threads
        rounds = -(-self.count // threads)
        together = min(rounds, _TOGETHER)

        def batch(first: Number) -> None:
            numbers = [first + u * threads for u in range(together)]
            loaded = [self._element(load, number) for number in numbers]
            for number, (place, value) in zip(numbers, loaded, strict=True):
                is_whole = self.count % (together * threads) == 0
                with ops.if_(None if is_whole else number < self.count):
                    ops.store(ops.gep(self.pointer, place, self.element), value, self.size)

        if rounds == together:
            batch(ops.thread_id())
        else:

            @each(0, rounds * threads, together * threads)
            def _(first: Any) -> None:
                batch(first + ops.thread_id())

        ops.barrier()

    def _element(self, load: Load, number: Number) -> tuple[Number, Any]:
        """(where it lies, the element) of a number that counts channels fastest."""
        number = ops.minimum(number, self.count - 1)
        channels = self.fragments * self.width
        rest = number // channels
        channel = number - rest * channels
        tap = rest // self.group
        value = load(channel, rest - tap * self.group, tap)
        fragment = channel // self.width
        inner = channel - fragment * self.width
        part = inner // self.part
        place = rest * channels + part * (self.fragments * self.part)
        place = place + fragment * self.part
        return place + inner % self.part, value

    def elements(self, pointer: Any, fragment: Number, tap: Number, channel: int) -> list[Any]:
        """The element of each output channel of a fragment; pointer: to the filter."""
        channels = self.fragments * self.width
        first = (tap * self.group + channel) * channels
        mine = ops.gep(pointer, fragment * self.part, self.element)
        found: list[Any] = []
        for part in range(self.width // self.part):
            place = ops.gep(mine, first + part * self.fragments * self.part, self.element)
            type_ = ops.vector_type(self.element, self.part)
            found += ops.elements(ops.load(place, type_, self.size * self.part))
        return found
