# pyright: basic
"""Steps after the products that make dQ, dK and dV: scales, and the largest magnitudes.

A result of 16 or 32 bits is its product's sums, rounded; one of fp8 is multiplied by numbers in
memory on its way, and its largest magnitude is an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.hopper import tma
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.totals.largest import larger, meet
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.region_walk import Walk
from .walk import Hand


def is_plain(parts: GradientRegion, name: str) -> bool:
    """Whether the result dq, dk or dv is the sums of its product, but for its type, not of fp8."""
    _, tensor = parts.region.outputs[parts.results[name]]
    return parts.is_finished(name) and not parts.largest_of(name) and not tensor.type.is_fp8


def is_moved(parts: GradientRegion, name: str) -> bool:
    """Whether the result dq, dk or dv goes from shared memory to memory as the sums of its product:
    by TMA, or packed."""
    _, tensor = parts.region.outputs[parts.results[name]]
    can_move = tma.refusal(tensor, (tensor.rank - 1, tensor.rank - 2)) is None
    return is_plain(parts, name) and (can_move or parts.packed(name) is not None)


@dataclass
class Finish:
    """Stores a result, and its largest magnitudes, from its product's sums.  name: dq, dk or dv."""

    kernel: Kernel
    parts: GradientRegion
    name: str

    def __post_init__(self) -> None:
        parts = self.parts
        self.hand = Hand()
        leaves = {**parts.region.leaves(self.kernel), parts.product_of(self.name): self.hand}
        self.walk = Walk(self.kernel, leaves, parts.region.symbols)
        self.largest = parts.largest_of(self.name)
        self.met: dict[int, Any] = dict.fromkeys(self.largest, 0)
        self.value, self.target = parts.region.targets(self.kernel)[parts.results[self.name]]

    def store(self, sums: Any, at: Sequence[Coordinate], inside: Any) -> None:
        """Stores elements of the result, where they are inside; sums: of the product."""
        self.target.store(at, self.finished(sums, at), inside)

    def finished(self, sums: Any, at: Sequence[Coordinate]) -> Any:
        """Elements of the result; sums: of the product."""
        width = ops.width_of(sums)
        walk = self.walk.branch()
        self.hand.current = sums
        for place, value in self.largest.items():
            found = walk.value(value, at, width)
            self.met[place] = larger(self.met[place], ops.elements(found))
        return walk.value(self.value, at, width)

    def meet(self, thread: Any) -> None:
        """Updates the largest magnitudes in memory by those of all that was stored."""
        for place, found in self.met.items():
            where = place_of(self.kernel, self.parts, place)
            meet(where, found, thread, looks_first=True)


def place_of(kernel: Kernel, parts: GradientRegion, place: int) -> Any:
    """The address of an output of one number."""
    target: GlobalTensor = parts.region.targets(kernel)[place][1]
    return target.address([Index.of(0)] * target.tensor.rank)
