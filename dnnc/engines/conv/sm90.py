# pyright: basic
"""Engine conv_sm90: convolutions on Hopper's tensor cores, fused: implicit matrix products.

    Y = g2(conv(X, W), inputs): im2col TMA, mbarriers, `wgmma`, persistent blocks

The kernel is that of matmul_sm90 with other operands: for each tap of the filter and each panel
of 128 bytes of channels, or 64 of few ones, a stage holds the pixels that the tap meets, for a tile
of output pixels counted through rows and images, and that tap's filter.  Rows of the product are
pixels, columns output channels, so that channels-last tensors are matrices.  See `pattern` for what
k counts through.  With TILE_ROWS and TILE_COLS a tile is a rectangle of pixels, whose inputs come
once for all taps (`halo_sm90`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ...codegen.hopper import wgmma
from ...codegen.output import Output
from ...codegen.region import Region
from ...dialect.fusion import Fusion, remembered, rewritten_fusion
from ...dialect.ops import ConvDgrad, ConvFprop
from ...dialect.ops.conv import Convolved
from ...dialect.patterns import AnyPattern
from ...errors import Status
from ...target import Target
from ..engine import Engine, Knob, Knobs, Prediction, Reason
from ..product.bits import booleans_of
from ..product.choice_sm90 import PING_PONG, Choice
from ..product.facts_sm90 import SPLITS, ProductFacts
from ..product.knobs_sm90 import (
    BESIDE,
    COLUMNS,
    PING_PONG_TILES,
    ROWS,
    STAGES,
    SWIZZLES,
    TILES,
    TRANSPOSED_COLUMNS,
    across_tiles,
    illegal_reasons,
    legal_choices,
)
from ..product.launch_sm90 import emit_product
from ..product.model_sm90 import HopperBlock, PixelLoads, hopper_tile
from ..product.pattern import compute_reasons, knob_reason
from ..product.tile_sm90 import Tiling
from ..surface import RATE_OF, pattern_reason, too_large_reasons
from ..views.operand_types import CASTABLE, casts, loses_bits_as_tf32, takes_other_type
from ..views.relaid import RelaidFusion
from .before_sm90 import before_reasons, computed_shape_reasons, computes, loaded_shape, raws_of
from .choice_sm90 import ConvChoice
from .exits import exits_of
from .exits_sm90 import exit_knob_reasons, exit_reasons, exit_seconds_of, exit_share
from .facts_sm90 import (
    beside_of,
    conv_facts_of,
    conv_work_of,
    gradient_lines,
    multiplied_share,
    side_by_side_of,
    tiled_shape_of,
    y_loads,
)
from .halo_knobs_sm90 import COLUMNS as HALO_COLUMNS
from .halo_knobs_sm90 import ROWS as HALO_ROWS
from .halo_knobs_sm90 import (
    STAYING,
    halo_candidates,
    halo_loads,
    halo_of_choice,
    halo_reasons,
    halo_stages,
    halo_tile,
    halo_work,
)
from .layouts import Copied, relaid_fusion, relaid_region
from .matrices_sm90 import conv_matrices
from .pattern import ConvShape, conv_of, conv_shape_of
from .surface import anchor_reasons, count_reasons, hopper_reasons, type_reasons
from .tiling_sm90 import chunk_of_phases, conv_tiling_of, halo_tiling_of

# Pixels by channels: of few channels, whose pixels are loaded again for every tap, many pixels.
_TILES = (*TILES, (256, 64))
# Channels by pixels.
_SWAPPED = ((256, 192), (256, 128), (128, 256), (128, 192), (64, 512), (64, 384), (64, 256))
_ALL = Copied(filters=True, results=True, has_gaps=True)
_OPERANDS = Copied(filters=True, results=False, has_gaps=True)
_TRANSPOSED = Copied(filters=True, results=True, has_gaps=True, transposes=True)
_PATTERN = (
    "one conv_fprop or conv_dgrad, pointwise operations before X, and with reductions after it"
)
_MOST_PHASES = 16  # of the pixels of a gradient with a stride
_FEW = 64  # output channels, which wide tiles have rows for
# Types of X and W that are multiplied as they are; others are cast.
_CASTS = casts("conv_sm90", [ConvFprop, ConvDgrad], wgmma.INSTRUCTIONS)


def _first(default: int, values: Sequence[int]) -> tuple[int, ...]:
    """A knob's values, each once, its default first."""
    return tuple(dict.fromkeys((default, *values)))


@dataclass(frozen=True)
class ConvSm90Engine(Engine):
    """See the file's docstring."""

    tiling = Tiling
    name: str = "conv_sm90"
    index: int = 11
    families: tuple[str, ...] = ("convolution",)
    only_target: str = "sm_90a"
    updates_outputs: bool = True
    reduces_in_registers: bool = True
    patterns: tuple[AnyPattern, ...] = _CASTS
    support: tuple[str, ...] = (
        "sm_90a: one conv_fprop of one to three spatial dims; X and W of f16, bf16, f32 (as tf32, "
        "a numerical note), i8 or fp8, sums in f32 or i32; of other pairs of these and ui8 in the "
        "type that holds both, W converted by a copy ahead; channels of a group a multiple of 16 "
        "bytes, or any number in one group; channels last: X, W and, without SWAP_AB or with "
        "TILE_ROWS, what has Y's dims are copied first, or last, where they are not",
        "any filter size, stride up to 8, dilation, paddings (of 2D 128 pixels at most on a side, "
        "of 3D 16), both modes, groups; N and the spatial dims may be symbols (with "
        "TILE_ROWS, the width where TILE_COLS is not 0)",
        "pointwise operations on X before it, padded after them: of one or two tensors of X's "
        "dims, of types of up to 32 bits, and of tensors and scalars of one element "
        "along all axes but the channels; with W of 16 bits, an X of f32 takes its type; of one "
        "tap, stride 1 and no padding, what is computed may be an output too",
        "pointwise operations of Y's dims after it, the convolution used anywhere; several "
        "outputs, each of which follows it, of any type and layout; BOOLEAN ones, packed, with "
        "channels last, those of a group a multiple of 8",
        "reductions at the exit, over all pixels (genstats), over all channels, or over both",
        "conv_dgrad, whose X is dY and Y is dX, as a convolution with the filter transposed: of 16 "
        "bits as it lies in memory, else, and for tiles of fewer than 64 channels, copied first; "
        "with strides, up to "
        f"{_MOST_PHASES} phases of pixels in one launch, with reductions over all pixels, without "
        "BOOLEAN outputs after it, TILE_ROWS=0; operations on dY in f32 there by a kernel ahead, "
        "no others",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := anchor_reasons(
            fusion, _PATTERN, reduces=True, takes_gradients=True, takes_strides=True
        ):
            return declined
        copies = _relaid(fusion, _ALL)
        if declined := copies.reasons(target):
            return declined
        fusion = copies.fusion
        reasons = hopper_reasons(
            fusion, target, _PATTERN, _type_reasons,
            lambda shape: _operand_reasons(fusion, shape), before_reasons,
        )  # fmt: skip
        reasons += exit_reasons(fusion)
        return (*reasons, *too_large_reasons(fusion))

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "TILE_M",
            _first(128, (*ROWS, *COLUMNS, *BESIDE, *TRANSPOSED_COLUMNS)),
            "output pixels of the tile",
        ),
        Knob(
            "TILE_N",
            _first(256, (*COLUMNS, *ROWS)),
            "output channels of the tile; all of groups of 32 or 64 bytes of channels that fill "
            "128 bytes: these groups together",
        ),
        Knob("STAGES", (*STAGES, *STAYING), "stages in shared memory"),
        Knob("TILE_CGA_M", (1, 2), "blocks of a cluster of other pixels, which share W"),
        Knob("TILE_CGA_N", (1, 2), "blocks of a cluster of other channels, which share X"),
        Knob("SPLIT_K_SLC", SPLITS, "blocks of a cluster that share a tile's taps"),
        Knob(
            "SWAP_AB",
            (0, 1),
            "1: channels along the instruction's rows, pixels along its columns",
        ),
        Knob(
            "TILE_ROWS",
            (0, *HALO_ROWS),
            "rows of Y's images of the tile, whose pixels come once for all taps; 0: im2col",
        ),
        Knob(
            "TILE_COLS",
            (0, *HALO_COLUMNS),
            "columns of Y's images of such a tile, its images as wide as they may be; 0: all",
        ),
        Knob(
            "WARP_SPEC_CFG",
            (1, PING_PONG),
            f"1: the warpgroups that multiply share their tiles; {PING_PONG}: two ping-pong, "
            "and one's epilogue runs beside the other's products",
        ),
        Knob(
            "SWIZZLE",
            SWIZZLES,
            "output pixels whose tiles follow each other, so that they find W in L2",
        ),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        choice = ConvChoice.of(knobs)
        fusion = _relaid(fusion, _copied(choice)).fusion
        if choice.has_halo:
            return halo_reasons(choice, fusion, target)
        if choice.columns:
            return (knob_reason(f"TILE_COLS={choice.columns} by im2col", "TILE_COLS=0"),)
        facts = conv_facts_of(fusion, beside_of(fusion, choice))
        reasons = illegal_reasons(choice.loop, facts, target)
        return reasons or exit_knob_reasons(choice, fusion)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        along, across = _relaid(fusion, _ALL).fusion, _relaid(fusion, _OPERANDS).fusion
        return [
            *_by_im2col(along, target, 0, _TILES),
            *self._narrow(fusion, target),
            *_by_im2col(across, target, 1, (*_SWAPPED, *_fitting(across, target))),
            *halo_candidates(along, target),
        ]

    def _narrow(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        """Tiles of few outputs for a filter that products would transpose in wider ones."""
        shape = conv_shape_of(_relaid(fusion, _ALL).fusion)
        if shape.is_filter_k_major or shape.k_group >= wgmma.PANEL_ROWS:
            return ()
        found = _by_im2col(_relaid(fusion, _TRANSPOSED).fusion, target, 0, _TILES)
        return [knobs for knobs in found if ConvChoice.of(knobs).channels < wgmma.PANEL_ROWS]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        choice = ConvChoice.of(knobs)
        loop, copies = choice.loop, _relaid(fusion, _copied(choice))
        fusion = copies.fusion
        beside = beside_of(fusion, choice)
        facts = conv_facts_of(fusion, beside)
        tile, stages = (loop.tile_m, loop.tile_n), loop.stages
        loads, work = (1.0, 1.0), conv_work_of(fusion, beside)
        if choice.has_halo:
            tile, stages = halo_tile(choice, fusion), halo_stages(choice, fusion)
            loads, work = halo_loads(choice, fusion), halo_work(choice, fusion)
        block = HopperBlock(
            tile,
            (loop.blocks_m, loop.blocks_n),
            stages,
            facts.panel_k,
            loop.swaps,
            loop.splits,
            is_ping_pong=loop.is_ping_pong,
        )
        pixels = PixelLoads(
            is_im2col=not choice.has_halo,
            loads=loads,
            has_phases=any(window.stride > 1 for window in conv_shape_of(fusion).windows[-2:]),
            rewrites=computes(fusion),
            filters=work.count * -(-work.n // tile[1]),
            multiplied=multiplied_share(fusion, beside, choice),
            chunk=chunk_of_phases(tiled_shape_of(fusion), choice, target),
            past=_past_rows(facts, work.n, tile[1]),
            lines=gradient_lines(
                conv_shape_of(fusion), facts.row.element_bytes, has_halo=choice.has_halo
            ),
        )
        found = hopper_tile(
            block,
            1,
            facts.operands.loads,
            facts.results.is_heavy,
            facts.epilogue[loop.swaps].is_direct,
            target.mma_tflops[RATE_OF[facts.row.a]],
            target,
            pixels,
        ).predict(work)
        more = exit_seconds_of(fusion, tile, target, swaps=loop.swaps)
        more += copies.seconds(target)
        share = exit_share(fusion, choice, reads=bool(y_loads(fusion)))
        seconds = found.seconds * share + more
        return replace(found, seconds=seconds) if seconds != found.seconds else found

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        found = ["TENSOR_CORE"]
        op = conv_of(fusion)
        if takes_other_type(fusion, op) or loses_bits_as_tf32(fusion, op):
            found.append("DOWN_CONVERT_INPUTS")
        facts = conv_facts_of(_relaid(fusion, _copied(ConvChoice.of(knobs))).fusion, 1)
        if facts.row.a.is_fp8 and not facts.promotes:
            found.append("REDUCED_PRECISION_REDUCTION")
        return tuple(found)

    def register_pressure(self, knobs: Knobs) -> int:
        return ConvChoice.of(knobs).loop.accumulators

    def is_weighed_against_parts(self, fusion: Fusion, target: Target) -> bool:
        return bool(fusion.with_role("reduction"))

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> Tiling:
        choice = ConvChoice.of(knobs)
        copies = _relaid(fusion, _copied(choice))
        if choice.has_halo:
            halo = halo_of_choice(copies.fusion, choice)
            tiling = halo_tiling_of(copies.fusion, halo, choice)
        else:
            tiling = conv_tiling_of(copies.fusion, choice, target)
        return tiling.renumbered(copies.places)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: Tiling, output: Output) -> None:
        copies = relaid_region(region, _copied(ConvChoice.of(knobs)))
        copies.emit(output, lambda: emit_product(copies.region, tile, output, conv_matrices))


def _past_rows(facts: ProductFacts, outputs: int, columns: int) -> int:
    """See `PixelLoads.past`."""
    is_transposed = facts.operands.along_rows[0][1]
    return max(0, columns - outputs) if outputs < _FEW and not is_transposed else 0


@remembered
def _relaid(fusion: Fusion, copied: Copied) -> RelaidFusion:
    """The fusion as the engine has it: operands of types that it multiplies, where TMA reads."""
    return relaid_fusion(rewritten_fusion(fusion, _CASTS), copied)


def _copied(choice: ConvChoice) -> Copied:
    """Where threads go along pixels, results and what is read beside them stay as they are: with
    channels first these are neighbours in memory.  Of narrow tiles products can't transpose
    filters.
    """
    if choice.has_halo:
        return _ALL
    if choice.loop.swaps:
        return _OPERANDS
    return _TRANSPOSED if choice.loop.tile_n < wgmma.PANEL_ROWS else _ALL


def _fitting(fusion: Fusion, target: Target) -> tuple[tuple[int, int], ...]:
    """Tiles of channels by pixels that fill the rounds they take."""
    # The times of gradients were fitted to other tiles; reductions would spill beside the sums.
    if conv_shape_of(fusion).is_transposed or exits_of(fusion):
        return ()
    work = conv_work_of(fusion, 1)
    found = across_tiles((work.m, work.n, work.count), target)
    return tuple(tile for tile in found if tile not in _SWAPPED)


def _by_im2col(
    fusion: Fusion, target: Target, swaps: int, tiles: Sequence[tuple[int, int]]
) -> list[Knobs]:
    together = None if swaps or computes(fusion) else side_by_side_of(fusion)
    columns = together.k_group if together is not None else 0

    def apart(tiles: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        return tuple(tile for tile in tiles if tile[1] != columns)

    facts = conv_facts_of(fusion, 1)
    choices = [*legal_choices(facts, target, swaps, apart(tiles))]
    if not swaps and not y_loads(
        fusion
    ):  # beside a residual ping-pong took 360 us, shared tiles 336
        choices += legal_choices(facts, target, swaps, apart(PING_PONG_TILES), (PING_PONG,))
    if together is not None:
        facts = conv_facts_of(fusion, together.beside)
        choices += legal_choices(facts, target, swaps, tuple((rows, columns) for rows in ROWS))
    found = [ConvChoice(Choice.of(knobs)) for knobs in choices]
    return [choice.knobs for choice in found if not exit_knob_reasons(choice, fusion)]


def _type_reasons(op: Convolved) -> list[Reason]:
    if (op.moved.type, op.w.type) in wgmma.INSTRUCTIONS:
        return compute_reasons(op.compute_type, op.moved.type, op.w.type)
    return type_reasons(op, CASTABLE)


def _operand_reasons(fusion: Fusion, shape: ConvShape) -> list[Reason]:
    if declined := count_reasons(shape.pixels, "Y") or _phase_reasons(fusion, shape):
        return declined
    if computes(fusion):
        if before_reasons(fusion):
            return []
        if declined := computed_shape_reasons(fusion, shape):
            return declined
    panel = shape.panel(shape.w.type.bits // 8)
    shapes = (loaded_shape(fusion, place) for place in range(len(raws_of(fusion))))
    found = [what for loaded in shapes if (what := loaded.refusal(panel)) is not None]
    if not found:
        return []
    supported = (
        "X and W with channels of a group a multiple of 16 bytes (with three spatial dims 64, or a "
        "multiple of 128), or one group; strides up to 8; paddings and filters of 2D up to 128 "
        "pixels, of 3D and of groups up to 16"
    )
    return [Reason(Status.NOT_SUPPORTED_LAYOUT, "operands by TMA", found[0], supported)]


def _phase_reasons(fusion: Fusion, shape: ConvShape) -> list[Reason]:
    """Reasons against work around a gradient with a stride, and against too many phases."""
    if shape.spread is None:
        return []
    supported = (
        "of a gradient with a stride: pointwise operations after it, no boolean outputs, "
        f"up to {_MOST_PHASES} phases of pixels"
    )
    op = conv_of(fusion)
    if shape.spread.phases > _MOST_PHASES:
        what = f"{op.label} of strides {list(op.stride)}"
        return [Reason(Status.NOT_SUPPORTED_SHAPE, "stride", what, supported)]
    if computes(fusion) or booleans_of(fusion):
        what = f"{op.label} of strides {list(op.stride)}, and what is around it"
        return [pattern_reason(what, supported)]
    return []


CONV_SM90 = ConvSm90Engine()
