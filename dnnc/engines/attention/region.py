# pyright: basic
"""The base of the walks around an attention's products, for all tiles: which outputs there are,
and how scores are computed of the first product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...codegen.attention.region import AttentionRegion
from ...codegen.kernel import Kernel
from ...codegen.walk.region_walk import Walk, inputs_of
from ...mlir import ir
from .scale import ScoreScale
from .schedule import Schedule, Tiling


@dataclass
class SdpaRegion:
    """The part that the walks of all tiles have in common.

    thread: of those that have a tile's rows, 16 rows a warp.
    """

    kernel: Kernel
    parts: AttentionRegion
    tiling: Tiling
    schedule: Schedule
    thread: Any

    def __post_init__(self) -> None:
        parts = self.parts
        self.region = parts.region
        self.keys = parts.dims[-1]
        self.has_tail = self.keys.known_divisor() % self.tiling.keys != 0
        self.has_masks = bool(parts.masks.steps) or self.has_tail
        self.pair = 2 if self.keys.known_divisor() % 2 == 0 else 1
        self.arguments = self.region.leaves(self.kernel)
        self.targets = self.region.targets(self.kernel)
        made = [value for value, _ in self.targets]
        self.kept = [place for place, value in enumerate(made) if parts.outputs.is_kept(value)]
        packed = [parts.outputs.packed(value) for value in made]
        self.packed = {place: found for place, found in enumerate(packed) if found is not None}
        self.of_bytes = parts.of_bytes
        self.scale = self._scale()

    @property
    def weights_amax(self) -> list[int]:
        """The outputs that are the largest of all weights."""
        outputs = self.parts.outputs
        found = outputs.largest
        return [place for place, inner in found.items() if not outputs.is_of_result(inner)]

    @property
    def result_amax(self) -> list[int]:
        """The outputs that are the largest of all of the result."""
        return [place for place in self.parts.outputs.largest if place not in self.weights_amax]

    def made(self, place: int) -> Any:
        """The value of an output before its rows are packed."""
        return self.packed[place][0] if place in self.packed else self.targets[place][0]

    def _scale(self) -> ScoreScale | None:
        """The factor of scores that is left to the exponentials; of bytes numbers in memory too."""
        steps = self.parts.score_steps
        if self.of_bytes and steps.scaling and self._is_product(steps.scaling[1]):
            walk = Walk(self.kernel, self.arguments, self.region.symbols)
            return ScoreScale.of(*steps.scaling, walk)
        return ScoreScale(*steps.scaled) if steps.scaled else None

    @property
    def factor(self) -> Any:
        """Scores are this times what `scores` gives; a number, or an f32 value."""
        return self.scale.factor if self.scale else 1.0

    @property
    def is_plain(self) -> bool:
        """Whether a score that is not masked is what the product gives, times a number."""
        return self._is_product(self.scale.inner if self.scale else self.parts.masks.inner)

    def _is_product(self, value: Any) -> bool:
        while value != self.parts.first:
            owner = value.owner
            if isinstance(owner, ir.Block) or owner.name != "linalg.generic":
                return False
            body = list(owner.regions[0].blocks[0].operations)
            names = {v.operation.name for v in body}
            views = {"tensor.extract", "linalg.index", "linalg.yield", "arith.constant"}
            indices = {"arith.muli", "arith.addi", "arith.divui", "arith.remui"}
            if names - views - indices or len(inputs_of(owner)) > 1:
                return False
            taken = [v.operation.operands[0] for v in body if v.operation.name == "tensor.extract"]
            (value,) = inputs_of(owner) or taken
        return True
