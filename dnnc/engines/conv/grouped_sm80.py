# pyright: basic
"""Engine conv_grouped_sm80: convolutions of groups of few channels, on tensor cores.

    Y = g2(conv(g1(X), W), inputs), one launch, `mma.sync` on what lanes load from global memory

A group of 8 channels is less than an instruction's k, so k counts through four taps: each lane of
four loads the 16 bytes of another tap's pixel (see `conv.grouped_kernel`).  Nothing passes through
shared memory: a warp has one group, keeps its filter in registers and reads each line of X once
for all rows of outputs that meet it; what neighbours read again is in the first cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ... import dtypes
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.tiles.pixels import registers_of
from ...dialect.fusion import Fusion, remembered
from ...errors import Status
from ...target import Target
from ...visible import counted
from ..engine import NHWC, Engine, Knob, Knobs, Prediction, Reason
from ..product.pattern import compute_reasons, epilogue_reasons, knob_reason
from ..surface import fp8_reasons, too_large_reasons
from .grouped_kernel import GroupedKernel
from .grouped_model import predicted
from .grouped_tile import RESULTS, GroupedChoice, GroupedFacts, GroupedTiling
from .pattern import conv_of, shape_of
from .surface import anchor_reasons, extent_reasons, filter_reasons, neighbour_reasons, type_reasons

_PATTERN = (
    "one conv_fprop or conv_dgrad, pointwise and view operations before it, pointwise ones after it"
)
_TYPES = (dtypes.f16, dtypes.bf16, dtypes.i8)
_CHANNELS = (8, 16)  # input channels of a group
_MOST_STRIDE = 2  # of a gradient
_MOST_PIXELS = 1 << 30  # of the output: strips past it are counted in 31 bits, too

_ROWS = (1, 2, 4, 7, 8)
_RESULTS = (8, 16, 32)
_ROUNDS = (1, 2, 4, 8)


@dataclass(frozen=True)
class ConvGroupedSm80Engine(Engine):
    """See the file's docstring."""

    tiling = GroupedTiling
    name: str = "conv_grouped_sm80"
    index: int = 18
    families: tuple[str, ...] = ("convolution",)
    numerical_notes: tuple[str, ...] = ("TENSOR_CORE",)
    updates_outputs: bool = True
    # Threads take neighbouring channels: other layouts are loaded element by element.
    image_layouts: tuple[str, ...] = (NHWC,)
    support: tuple[str, ...] = (
        "one conv_fprop of one to three spatial dims, of several groups of "
        f"{' or '.join(map(str, _CHANNELS))} input channels and a multiple of {RESULTS} output "
        "channels each; X and W of one type, f16 or bf16 (sums in f32, of HALF compute too, "
        "rounded once) or i8 (sums in i32); filters of which a group's results fit registers, "
        "as 7x7 and 4x4x4 taps do, and 10x10 of up to 16 bytes of channels; any stride, dilation "
        "and padding, both modes; channels last, or, of smaller filters, any other layout element "
        "by element; N and the spatial dims may be symbols",
        "pointwise and view operations before it, on X and on W; pointwise operations of Y's dims "
        "after it; several outputs, each of which follows it, of any type but BOOLEAN and of any "
        "layout",
        "conv_dgrad, whose X is dY and Y is dX; with strides of up to "
        f"{_MOST_STRIDE} along the last two axes",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := anchor_reasons(fusion, _PATTERN, takes_gradients=True, takes_strides=True):
            return declined
        op, reasons = conv_of(fusion), neighbour_reasons(fusion, _PATTERN)
        if op.moved.type == op.w.type and op.moved.type in _TYPES:
            reasons += compute_reasons(op.compute_type, op.moved.type, op.w.type)
        else:
            reasons += type_reasons(op, f"both of {', '.join(map(str, _TYPES))}")
        reasons += self._shape_reasons(fusion)
        reasons += epilogue_reasons(fusion, op)
        reasons += fp8_reasons(fusion, target) + too_large_reasons(fusion)
        return tuple(reasons)

    def _shape_reasons(self, fusion: Fusion) -> list[Reason]:
        def reason(clause: str, what: str, supported: str) -> list[Reason]:
            return [Reason(Status.NOT_SUPPORTED_SHAPE, clause, what, supported)]

        if declined := filter_reasons(conv_of(fusion)):
            return declined
        facts = _facts_of(fusion)
        shape = facts.shape
        if shape.groups == 1 or shape.c_group not in _CHANNELS or shape.k_group % RESULTS:
            groups = counted(shape.groups, "group")
            what = f"{groups} of {shape.c_group} input and {shape.k_group} output"
            wanted = f"several of {' or '.join(map(str, _CHANNELS))} and a multiple of {RESULTS}"
            return reason("channels of a group", f"{what} channels", wanted)
        stride = conv_of(fusion).stride if shape.spread else (1,)
        if max(stride) > _MOST_STRIDE or max(stride[:-2], default=1) > 1:
            what = f"{conv_of(fusion).label} of strides {list(stride)}"
            return reason("stride", what, f"up to {_MOST_STRIDE} along the last two axes")
        if (live := facts.live(facts.row_strides, RESULTS)) > facts.most_live:
            what = f"a filter of {shape.taps} taps, with sums and pixels {live} registers a thread"
            return reason("filter", what, f"at most {facts.most_live}")
        return extent_reasons(shape, _MOST_PIXELS)

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_ROWS", _ROWS, "rows of 16 output pixels that a warp has at once"),
        Knob("TILE_N", _RESULTS, "output channels of a warp, of one group"),
        Knob("ARRAY_SIZE_PER_THREAD", _ROUNDS, "tiles a warp works on, one after the other"),
        Knob("BLOCK_SIZE", (128, 256), "threads of a block"),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        found = _facts_of(fusion).illegal(GroupedChoice.of(knobs))
        return tuple(knob_reason(what, supported) for what, supported in found)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        facts = _facts_of(fusion)
        every = itertools.starmap(
            GroupedChoice, itertools.product(*(knob.values for knob in self.all_knobs))
        )
        return [choice.knobs for choice in every if not any(True for _ in facts.illegal(choice))]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        facts = _facts_of(fusion)
        return predicted(fusion, facts, facts.tiling(GroupedChoice.of(knobs)), target)

    def register_pressure(self, knobs: Knobs) -> int:
        choice = GroupedChoice.of(knobs)
        return choice.rows * choice.results

    def is_weighed_against_parts(self, fusion: Fusion, target: Target) -> bool:
        return target.arch_specific

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> GroupedTiling:
        return _facts_of(fusion).tiling(GroupedChoice.of(knobs))

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: GroupedTiling, output: Output) -> None:
        kernel = output.kernel("", tile.threads)
        with kernel.body():
            made = GroupedKernel(kernel, region, tile)
            made.emit()
        output.launch(kernel, (made.blocks, 1, 1))


@remembered
def _facts_of(fusion: Fusion) -> GroupedFacts:
    op = conv_of(fusion)
    shape = shape_of(op)
    met = [op.moved] if op.moved in fusion.inputs else fusion.inputs
    # Registers of the tap that takes most, of those of X's dims.
    taps = (registers_of(t, shape.c_group) for t in met if t.shape == op.moved.shape)
    return GroupedFacts(shape, op.moved.type, max(taps, default=None))


CONV_GROUPED_SM80 = ConvGroupedSm80Engine()
