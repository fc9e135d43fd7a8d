# pyright: basic
"""Engine resample: pooling and upsampling, forward and backward, with their neighbours.

A thread computes a fragment of up to 16 bytes of the outputs, channels where those come last; it
goes over the elements of its windows, or backward over the windows of its elements, by itself:
neighbouring windows share what they read through the caches.  Nothing is added by atomics.
Pointwise work before is repeated for every window that reads its result; that after is free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..codegen import reduce
from ..codegen.index import Coordinate
from ..codegen.output import Output
from ..codegen.region import Region
from ..codegen.walk import Reducer, Walk
from ..dialect.fusion import Fusion
from ..dialect.ops import Resample, ResampleBackward
from ..dialect.ops.resample import Resampling
from ..errors import Status
from ..expr import typical
from ..target import Target
from .engine import Knob, Knobs, Prediction, Reason
from .pointwise import PointwiseEngine, iteration
from .surface import fp8_reasons, memory_seconds, pattern_reason, too_large_reasons

# Elements of windows a second, as a share of the f32 rate: each is a few instructions.
_ARITHMETIC_SHARE = 0.04

# Terms of windows that are written out one after the other.
_UNROLL = 16

_SUPPORTED = "resample, resample_backward, pointwise, transpose, slice, reshape, concatenate"


def _windows(walk: Walk, operation: Any, at: Sequence[Coordinate], width: int) -> Any:
    return reduce.serial(walk, operation, at, width, _UNROLL)


@dataclass(frozen=True)
class ResampleEngine(PointwiseEngine):
    """See the file's docstring."""

    name: str = "resample"
    index: int = 7
    reducer: Reducer | None = _windows
    support: tuple[str, ...] = (
        "one or more resample or resample_backward operations, none of which needs another; any "
        "mode, layout and type, an index too; pointwise and view operations before and after; "
        "outputs of equal dims",
    )

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        ours = [op for op in fusion.ops if isinstance(op, Resampling)]
        strange = [op for op in fusion.ops if op not in ours and op.role in ("anchor", "reduction")]
        reasons: list[Reason] = []
        if strange:
            reasons.append(pattern_reason(", ".join(op.label for op in strange), _SUPPORTED))
        if not ours:
            return (*reasons, pattern_reason("nothing to resample", "resample, resample_backward"))
        for op in ours:
            below = {other for t in op.operands for other in fusion.upstream(t)}
            nested = [other for other in ours if other in below]
            if nested:
                what = f"{op.label} needs {nested[0].label}"
                reasons.append(pattern_reason(what, "windows that do not need each other"))
        reasons += [reason for op in ours for reason in _place_reasons(op)]
        first = fusion.outputs[0]
        if any(output.shape != first.shape for output in fusion.outputs):
            reasons.append(pattern_reason("outputs of different dims", "outputs of equal dims"))
        reasons += fp8_reasons(fusion, target) + too_large_reasons(fusion)
        return (*reasons, *self._boolean_reasons(fusion))

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("LOAD_SIZE", (16, 8, 4, 2, 1), "bytes of the widest access"),
        Knob("ARRAY_SIZE_PER_THREAD", (1, 2, 4), "fragments a thread works on"),
    )

    def knobs(self, fusion: Fusion, target: Target) -> tuple[Knob, ...]:
        return self.all_knobs

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        return [{"LOAD_SIZE": 16, "ARRAY_SIZE_PER_THREAD": unroll} for unroll in (1, 2)]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        memory = memory_seconds(fusion, target, blocks=self._blocks(fusion, knobs))
        terms = sum(_terms(op) for op in fusion.ops if isinstance(op, Resampling))
        busy = terms / (target.f32_tflops * 1e12 * _ARITHMETIC_SHARE)
        if busy > memory.seconds:
            return Prediction(busy, "elements of windows")
        return memory

    def tile(self, region: Region, knobs: Knobs, target: Target) -> dict[str, Any]:
        """As for pointwise work, in fragments that lie in one row of the innermost axis."""
        tile = super().tile(region, knobs, target)
        groups, width = iteration(region, knobs["LOAD_SIZE"])
        tensors = [tensor for _, tensor in region.outputs]
        if groups and all(tensor.type.kind != "b" for tensor in tensors):
            widest = max(tensor.type.bits for tensor in tensors)
            width = min(width, max(1, knobs["LOAD_SIZE"] * 8 // widest))
            row = tensors[0].shape[groups[-1][-1]].known_divisor()
            tile["vector_elems"] = math.gcd(width, row)
        return tile

    def emit(self, region: Region, knobs: Knobs, tile: Mapping[str, Any], output: Output) -> None:
        super().emit(region, knobs, tile, output)


def _place_reasons(op: Resampling) -> list[Reason]:
    """Kernels count places in units of half a fraction in 31 bits."""
    small = op.x if isinstance(op, Resample) else op.results[0]
    limit = 1 << 30
    for axis, w in enumerate(op.windows):
        places = small.shape[2 + axis].bounds()[1] * w.steps + 2 * (w.pre + w.post + w.window)
        if places >= limit:
            return [
                Reason(
                    Status.NOT_SUPPORTED_SHAPE,
                    "size",
                    f"{places} places along spatial dim {axis} of {op.label}",
                    f"fewer than {limit}",
                )
            ]
    return []


def _terms(op: Resampling) -> int:
    """Elements of windows that an operation goes over."""
    if isinstance(op, ResampleBackward):
        return typical(op.dx.elements()) * math.prod(w.readers for w in op.windows)
    return typical(op.results[0].elements()) * math.prod(w.taps for w in op.windows)


RESAMPLE = ResampleEngine()
