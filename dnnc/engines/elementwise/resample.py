# pyright: basic
"""Engine resample: pooling and upsampling, forward and backward, with their neighbours.

A thread computes fragments of up to 16 bytes of the outputs, channels where those come last; it
goes over the elements of its windows, or backward over the windows of its elements, by itself.
Fragments of neighbouring pixels (a patch of TILE_ROWS x TILE_COLS) share what they read in
registers, others through the caches.  Nothing is added by atomics.  Pointwise work before is
repeated for every window that reads its result; that after is free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from ...codegen.totals import reduce
from ...codegen.walk.index import Coordinate
from ...codegen.walk.patches import apart
from ...codegen.walk.region_walk import Reducer, Walk
from ...dialect.fusion import Fusion
from ...dialect.ops import Resample, ResampleBackward
from ...dialect.ops.resample import Resampling
from ...dialect.tensor import stride_order
from ...dialect.windows import Windows
from ...errors import Status
from ...expr import typical
from ...target import Target
from ..engine import NHWC, Knob, Knobs, Prediction, Reason
from ..product.pattern import knob_reason
from ..surface import fp8_reasons, memory_seconds, pattern_reason, too_large_reasons
from .pointwise import FragmentChoice, FragmentEngine, FragmentTiling, iteration_of

# Instructions of a thread for each element of a fragment: of the element, of each element of a
# window that is read for it, and of each that it takes; how many a second run, as a share of the
# f32 rate.  Counted in what the assembler made of max pooling's gradient, timed on an H100.
_OF_ELEMENT, _OF_READ, _OF_TAKEN = 4.0, 8.0, 1.0
_INSTRUCTION_SHARE = 0.39

# Terms of windows that are written out one after the other.
_UNROLL = 16

_SUPPORTED = "resample, resample_backward, pointwise, transpose, slice, reshape, concatenate"


def _windows(walk: Walk, operation: Any, at: Sequence[Coordinate], width: int) -> Any:
    return reduce.serial(walk, operation, at, width, _UNROLL)


@dataclass(frozen=True)
class _Choice(FragmentChoice):
    """One value of each knob; rows, columns: of the pixels that a thread has fragments of."""

    rows: Annotated[int, "TILE_ROWS"] = 1
    columns: Annotated[int, "TILE_COLS"] = 1

    def sizes(self, rank: int) -> dict[int, int]:
        """Axis -> places of a patch along it, of the axes where there are several."""
        sizes = {rank - 2: self.rows, rank - 1: self.columns}
        return {axis: size for axis, size in sizes.items() if size > 1}


@dataclass(frozen=True)
class ResampleEngine(FragmentEngine):
    """See the file's docstring."""

    name: str = "resample"
    index: int = 7
    families: tuple[str, ...] = ("resampling",)
    reducer: Reducer | None = _windows
    # Threads take neighbouring channels: other layouts are loaded element by element.
    image_layouts: tuple[str, ...] = (NHWC,)
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
        Knob("TILE_ROWS", (1, 2, 3, 4), "rows of pixels that a thread has fragments of"),
        Knob("TILE_COLS", (1, 2, 3, 4), "pixels of each of these rows"),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        choice = _Choice.of(knobs)
        sizes = choice.sizes(fusion.outputs[0].rank)
        if not sizes:
            return ()
        first, said = fusion.outputs[0], f"patches of {' x '.join(map(str, sizes.values()))}"
        reasons: list[Reason] = []
        if choice.fragments > 1:
            reasons.append(knob_reason(f"{said}, several fragments of each", "one or the other"))
        if any(t.type.kind == "b" for t in fusion.outputs):
            reasons.append(knob_reason(f"{said} of booleans", "TILE_ROWS=1, TILE_COLS=1"))
        order = stride_order(first.shape, first.layout)
        wide = [axis for axis in order if first.shape[axis].constant != 1]
        if wide and wide[-1] in sizes:  # fragments lie along it
            reasons.append(knob_reason(f"{said} along the stride of 1", "1 along that axis"))
        return tuple(reasons)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        found = [_Choice(16).knobs, _Choice(16, 2).knobs]
        rows, columns = _shared_places(fusion)
        for sizes in ((rows, columns), (rows, 1), (rows, min(4, 2 * columns))):
            knobs = _Choice(16, 1, *sizes).knobs
            if knobs not in found and not self.legal(knobs, fusion, target):
                found.append(knobs)
        return found

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        memory = memory_seconds(fusion, target, blocks=self._blocks(fusion, knobs))
        choice = _Choice.of(knobs)
        ours = [op for op in fusion.ops if isinstance(op, Resampling)]
        work = sum(_instructions(op, (choice.rows, choice.columns)) for op in ours)
        busy = work / (target.f32_tflops * 1e12 * _INSTRUCTION_SHARE)
        if busy > memory.seconds:
            return Prediction(busy, "elements of windows")
        return memory

    def _blocks(self, fusion: Fusion, knobs: Knobs) -> int:
        places = math.prod(_Choice.of(knobs).sizes(fusion.outputs[0].rank).values())
        return -(-super()._blocks(fusion, knobs) // places)

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> FragmentTiling:
        """The tiling of pointwise work, in fragments that lie in one row of the innermost axis."""
        tile, choice = super().tile_of(fusion, knobs, target), _Choice.of(knobs)
        groups, width = iteration_of(fusion, choice.load_bytes)
        tensors = fusion.outputs
        if groups and all(tensor.type.kind != "b" for tensor in tensors):
            widest = max(tensor.type.bits for tensor in tensors)
            width = min(width, max(1, choice.load_bytes * 8 // widest))
            row = tensors[0].shape[groups[-1][-1]].known_divisor()
            tile = replace(tile, vector_elems=math.gcd(width, row))
        sizes = choice.sizes(tensors[0].rank)
        if sizes and groups:
            tile = replace(tile, loops=apart(groups, list(sizes)), patch=tuple(sizes.items()))
        return tile


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


def _shared_places(fusion: Fusion) -> tuple[int, int]:
    """Rows and columns of the smallest patch whose places read some of the same elements."""
    strides = [
        [w.stride // w.unit for w in op.windows]
        for op in fusion.ops
        if isinstance(op, ResampleBackward) and op.windows[0].kind == "pool"
    ]
    *rows, columns = strides[0] if strides else [2, 2]
    return max(1, min(4, (rows or [1])[-1])), max(1, min(4, columns))


def _instructions(op: Resampling, sizes: tuple[int, int]) -> float:
    """Instructions of all threads for an operation, in patches of so many rows and columns."""
    along = [1] * (len(op.windows) - 2) + list(sizes)[-len(op.windows) :]
    pairs = [_along(op, w, size) for w, size in zip(op.windows, along, strict=True)]
    read = math.prod(read for read, _ in pairs)
    taken = math.prod(taken for _, taken in pairs)
    dense = op.dx if isinstance(op, ResampleBackward) else op.results[0]
    each = _OF_ELEMENT + _OF_READ * read + _OF_TAKEN * taken
    return typical(dense.elements()) * each


def _along(op: Resampling, w: Windows, size: int) -> tuple[float, float]:
    """(elements read, elements taken) for each place along an axis of a patch of some size."""
    if isinstance(op, ResampleBackward):
        if w.kind != "pool" or size % w.stride:
            return w.readers, w.readers
        return (size // w.stride + w.readers - 1) / size, w.window / w.stride
    if w.kind != "pool":
        return (w.taps + (size - 1) * w.stride / w.unit) / size, w.taps
    return min(w.taps, (w.window + (size - 1) * w.stride) / size), w.taps


RESAMPLE = ResampleEngine()
