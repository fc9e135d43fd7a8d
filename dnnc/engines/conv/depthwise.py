# pyright: basic
"""Engine conv_depthwise: convolutions of few input channels a group, which memory bounds.

    Y = g2(conv(g1(X), W), inputs), one launch, any architecture

A thread has some neighbouring output channels of a tile of pixels.  It reads each row of X that
the tile meets once, 16 bytes of channels at a time, and multiplies each pixel by all taps that
lie on it; the filter's taps for the block's channels are in shared memory, or in registers, as
numbers of the sums' type.  Sums go over the taps in their order, in one thread: nothing is added
in an order that changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.scalars.scalar import accumulation_type
from ...dialect.fusion import Fusion, remembered
from ...dialect.ops.conv import Convolved
from ...dialect.tensor import Tensor
from ...errors import Status
from ...target import STATIC_SMEM_BYTES, Target
from ..engine import NHWC, Engine, Knob, Knobs, Prediction, Reason
from ..product.pattern import epilogue_reasons, knob_reason
from ..surface import fp8_reasons, too_large_reasons
from .depthwise_kernel import DepthwiseKernel
from .depthwise_model import predicted
from .depthwise_tile import (
    MOST_LIVE,
    MOST_TAPS_UNROLLED,
    OCCUPANCIES,
    DepthwiseChoice,
    DepthwiseFacts,
    DepthwiseTiling,
)
from .pattern import ConvShape, conv_of, shape_of
from .surface import MOST_PIXELS, anchor_reasons, extent_reasons, filter_reasons, neighbour_reasons

_PATTERN = (
    "one conv_fprop or conv_dgrad, pointwise and view operations before it, pointwise ones after it"
)
_MOST_GROUP = 16  # input channels of a group; of one that there is alone, products are faster:
_MOST_ALONE = 7

_LOADS = (16, 8, 4, 2, 1)
_ROWS = (1, 2, 4, 7, 8)
_COLUMNS = (4, 1, 2, 7, 8, 14, 16)
_ROUNDS = (1, 2, 4, 8, 16)
_THREADS = 128  # of a candidate's block
# Rows and columns of a tile that are worth a look.
_TILES = ((1, 1), (1, 2), (1, 4), (2, 4), (4, 4), (1, 7), (2, 7), (4, 7))
_ROW_TILES = ((1, 8), (2, 8), (4, 8), (1, 16), (2, 16))  # where columns are contiguous
# Of gradients with strides: whole strides.
_SPREAD_TILES = ((1, 2), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4), (2, 8), (4, 4), (4, 8), (2, 14))


@dataclass(frozen=True)
class ConvDepthwiseEngine(Engine):
    """See the file's docstring."""

    tiling = DepthwiseTiling
    name: str = "conv_depthwise"
    index: int = 12
    families: tuple[str, ...] = ("convolution",)
    updates_outputs: bool = True
    # Threads take neighbouring channels: other layouts are loaded element by element.
    image_layouts: tuple[str, ...] = (NHWC,)
    support: tuple[str, ...] = (
        f"one conv_fprop of one to three spatial dims, with up to {_MOST_GROUP} input channels a "
        f"group (depthwise: 1), {_MOST_ALONE} of one group, any number of output channels a group; "
        "any filter whose taps for one output channel fit 48 KiB, stride, dilation and padding, "
        "both modes; any types; channels last, or one channel a group, contiguous rows and a "
        "stride of 1, by up to 16 bytes, as rows of X and Y are multiples of; any other layout "
        "element by element; N and the spatial dims may be symbols",
        "pointwise and view operations before it, on X and on W; pointwise operations of Y's dims "
        "after it; several outputs, each of which follows it, of any type but BOOLEAN and of any "
        "layout",
        "conv_dgrad, whose X is dY and Y is dX; with strides of up to 2 along the last two axes "
        f"and {MOST_TAPS_UNROLLED} taps",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := anchor_reasons(fusion, _PATTERN, takes_gradients=True, takes_strides=True):
            return declined
        op, reasons = conv_of(fusion), neighbour_reasons(fusion, _PATTERN)
        for name, operand in (("X", op.moved), ("W", op.w)):
            if operand in fusion.producers and operand.type.kind == "u":
                what = f"{name} of {op.label}, which is computed, is {operand.type}"
                supported = "signed integers, floats"
                reasons.append(
                    Reason(Status.NOT_SUPPORTED_DATA_TYPE, "operand types", what, supported)
                )
        reasons += self._shape_reasons(op)
        reasons += epilogue_reasons(fusion, op)
        reasons += fp8_reasons(fusion, target) + too_large_reasons(fusion)
        return tuple(reasons)

    def _shape_reasons(self, op: Convolved) -> list[Reason]:
        def reason(clause: str, what: str, supported: str) -> list[Reason]:
            return [Reason(Status.NOT_SUPPORTED_SHAPE, clause, what, supported)]

        if declined := filter_reasons(op):
            return declined
        shape = shape_of(op)
        if shape.groups > 1 and shape.c_group > _MOST_GROUP:
            what = f"{shape.c_group} input channels a group, {shape.groups} groups"
            return reason("channels of a group", what, f"at most {_MOST_GROUP} a group")
        if shape.groups == 1 and shape.c_group > _MOST_ALONE:
            what = f"{shape.c_group} input channels, one group"
            wanted = f"at most {_MOST_ALONE} in one group, {_MOST_GROUP} a group in several"
            return reason("channels of a group", what, wanted)
        if _facts(shape, op, ()).filter_bytes(1) > STATIC_SMEM_BYTES:
            what = f"a filter of {shape.taps} taps, {shape.c_group} channels each"
            return reason("filter", what, f"taps of a channel in {STATIC_SMEM_BYTES} bytes")
        if shape.spread:
            taps = shape.filter_taps * shape.c_group
            if (
                max(op.stride[:-2], default=1) > 1
                or max(op.stride) > 2
                or taps > MOST_TAPS_UNROLLED
            ):
                what = f"{op.label} of strides {list(op.stride)}, {taps} taps of all channels"
                wanted = f"strides of 2 along the last two axes, up to {MOST_TAPS_UNROLLED} taps"
                return reason("stride", what, wanted)
        return extent_reasons(shape, MOST_PIXELS)

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("LOAD_SIZE", _LOADS, "bytes of X's channels, or of as many of Y's, of a thread"),
        Knob("TILE_ROWS", _ROWS, "rows of output pixels that a thread has at once"),
        Knob("TILE_COLS", _COLUMNS, "output pixels of each of these rows"),
        Knob("ARRAY_SIZE_PER_THREAD", _ROUNDS, "tiles a thread works on, one after the other"),
        Knob("SPECFILT", (0, 1), "1: the filter stays in registers from tile to tile"),
        Knob("BLOCK_SIZE", (128, 256), "threads of a block"),
        Knob(
            "OCCUPANCY",
            (0, *OCCUPANCIES),
            "blocks of an SM whose registers have to suffice; 0: as they come",
        ),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        found = _facts_of(fusion).illegal(DepthwiseChoice.of(knobs))
        return tuple(knob_reason(what, supported) for what, supported in found)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        facts, found = _facts_of(fusion), list[Knobs]()
        is_alone = "g2" not in fusion.roles.values()
        tiles = _SPREAD_TILES if facts.shape.spread else _TILES
        if facts.along > 1:
            tiles += _ROW_TILES
        for load, (rows, columns) in itertools.product(facts.loads, tiles):
            live = facts.live(rows, columns, facts.width(load))
            if live > MOST_LIVE:
                continue
            most = facts.occupancy(live, _THREADS, is_alone=is_alone)
            # The assembler takes more registers for an earlier load, and blocks go, if it may.
            asked = [n for n in OCCUPANCIES if most - 1 <= n <= most]
            # Held for one tile, a filter is taken as often as not held.
            ways = [(1, False, n) for n in asked]
            # Numbers that stay from tile to tile take registers, too.
            ways += [(2, False, asked[0]), (4, False, asked[0]), (2, True, 0), (4, True, 0)]
            for rounds, held, occupancy in ways:
                choice = DepthwiseChoice(load, rows, columns, rounds, held, _THREADS, occupancy)
                if not any(True for _ in facts.illegal(choice)):
                    found.append(choice.knobs)
        return found

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        facts = _facts_of(fusion)
        return predicted(fusion, facts, facts.tiling(DepthwiseChoice.of(knobs)), target)

    def register_pressure(self, knobs: Knobs) -> int:
        choice = DepthwiseChoice.of(knobs)
        sums = choice.load_bytes * choice.rows * choice.columns
        return sums * max(1, choice.min_blocks)  # of an SM's registers

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> DepthwiseTiling:
        return _facts_of(fusion).tiling(DepthwiseChoice.of(knobs))

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: DepthwiseTiling, output: Output) -> None:
        kernel = output.kernel("", tile.threads)
        kernel.min_blocks = tile.min_blocks
        with kernel.body():
            made = DepthwiseKernel(kernel, region, tile)
            made.emit()
        output.launch(kernel, (made.blocks, 1, 1))


def _facts(shape: ConvShape, op: Convolved, inputs: Sequence[Tensor]) -> DepthwiseFacts:
    return DepthwiseFacts.of(shape, accumulation_type(op.compute_type), inputs)


@remembered
def _facts_of(fusion: Fusion) -> DepthwiseFacts:
    op = conv_of(fusion)
    return _facts(shape_of(op), op, fusion.inputs)


CONV_DEPTHWISE = ConvDepthwiseEngine()
