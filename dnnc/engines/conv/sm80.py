# pyright: basic
"""Engine conv_sm80: convolutions on the tensor cores of sm_80 and later, fused.

    Y = g2(conv(g1a(inputs), g1b(inputs)), inputs): gathers by `cp.async`, `ldmatrix`, `mma.sync`

An implicit matrix product on the main loop of matmul_sm80 (`kernel_sm80`): rows are pixels of the
output, columns output channels, k counts through the taps and channels of a group.  See
`conv.tiles_sm80` for how tiles of X are gathered, `conv.beside_sm80` for groups that share one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

from ...codegen.ampere.operand_tile import Side, is_unit
from ...codegen.kernel import Kernel
from ...codegen.output import Output
from ...codegen.region import Region
from ...dialect.fusion import Fusion, remembered, remembered_at_sizes, rewritten_fusion
from ...dialect.ops import ConvDgrad, ConvFprop
from ...dialect.ops.conv import Convolved
from ...dialect.patterns import AnyPattern
from ...dialect.tensor import Tensor
from ...expr import Expr
from ...target import Target
from ..engine import Engine, Knob, Knobs, Prediction, Reason
from ..product.bits import bits_reason, booleans_of, whole_bytes
from ..product.choice_sm80 import Sm80Choice
from ..product.exits import SpaceAxes
from ..product.kernel_sm80 import (
    Batch,
    Matrices,
    anchor_call,
    emit_product,
    fragment_width,
    operand_types,
    output_paths,
    tile_plan,
    whole_outputs,
)
from ..product.knobs_sm80 import (
    NARROW_COLUMNS,
    all_knobs,
    candidates_of,
    illegal_reasons,
    knobs_of,
    narrow_candidates,
    notes_of,
    threads_of,
)
from ..product.model_sm80 import EXIT_RATE, LINE_BYTES, OperandLines
from ..product.pattern import (
    compute_reasons,
    knob_reason,
    reducing_epilogue_reasons,
)
from ..product.shared_layout_sm80 import exit_bytes
from ..product.surface_sm80 import OPERAND_TYPES, Work
from ..product.tile_sm80 import ConvTiling
from ..surface import fp8_reasons, too_large_reasons
from ..views.operand_types import CASTABLE, casts, loses_bits_as_tf32, takes_other_type
from .beside_sm80 import BesidePixels, shape_of_choice
from .exits import exit_axes_reasons, exit_seconds, exits_of, has_whole_bytes
from .filter_sm80 import FilterTile, filter_plan, matrix_bytes, transposed_bytes
from .pattern import ConvShape, conv_of, conv_of_call, conv_shape_of, shape_of
from .pixel_places import PixelPlaces
from .surface import anchor_reasons, count_reasons, filter_reasons, type_reasons
from .tiles_sm80 import (
    CHANNEL,
    Depth,
    Phase,
    PixelSpace,
    PixelTile,
    depth_axes,
    gather_bytes,
    pixel_plan,
)
from .together_sm80 import (
    Meetings,
    PhasesFilter,
    PhasesSpace,
    dense_shape,
    together_refusal,
    whole_steps,
)
from .together_sm80 import filter_plan as phases_filter_plan

_BOOLEANS = (
    "boolean outputs of Y's dims with channels last, those of a group a multiple of 8, or all with "
    "contiguous rows of a multiple of 8 pixels (no strides of a gradient)"
)
_PATTERN = "one conv_fprop or conv_dgrad, pointwise and view operations"
# Types of X and W that are multiplied as they are; others are cast.
_CASTS = casts("conv_sm80", [ConvFprop, ConvDgrad], [(type_, type_) for type_ in OPERAND_TYPES])
# The time of copies of fewer than 16 bytes, and of elements that come one by one, against whole
# ones: by the instructions that each byte takes.  None of this is measured.
_NARROW_TIME = {16: 1.0, 8: 1.6, 4: 2.8}
_VECTOR_TIME = 1.4
_ELEMENT_TIME = 3.0
_FAR_ELEMENT_TIME = 5.0  # channels of which are no neighbours
_ELEMENT_BYTES = 2  # of such elements, or more
_MOST_HELD = 4  # fragments of 16 bytes of a thread that do not come by copies
_MOST_COPIES = 16  # of 16 bytes of a thread: each has a pixel in registers
_GATHER_SHARE = 1.1  # against a matmul's main loop: what says which pixels a tap meets
_START_SECONDS = 0.8e-6  # of taking pixels apart
_BESIDE_SHARE = 2.5  # of groups side by side, against tiles of one group: timed on groups of 8
_NARROW = (
    f"a gradient with strides of 16 bits, {NARROW_COLUMNS} phases by channels, whose images are "
    "whole strides, and a multiple of TILEK channels of dY"
)
_DOUBT = 1.8  # on Hopper, which has engines of its own: two layers took 1.7 and 1.8 times as long


@dataclass(frozen=True)
class ConvSm80Engine(Engine):
    """See the file's docstring."""

    tiling = ConvTiling
    name: str = "conv_sm80"
    index: int = 13
    families: tuple[str, ...] = ("convolution",)
    updates_outputs: bool = True
    patterns: tuple[AnyPattern, ...] = _CASTS
    gathers_views: bool = True
    support: tuple[str, ...] = (
        "one conv_fprop of one to three spatial dims; X and W of f16, bf16, f32 (as tf32, once or "
        "in three products) or i8, sums in f32 (of HALF compute too, rounded once) or i32; of "
        "other pairs of these, ui8 and fp8 in the type that holds both, an X of f32 that is "
        "computed in W's 16 bits; any channels, groups and layouts, the channels last and a "
        "multiple of 16, 8 or 4 bytes for asynchronous copies",
        "any filter size, stride, dilation, paddings, both modes; N and the spatial dims may be "
        "symbols",
        "pointwise and view operations on X, padded after them, and on W; pointwise operations of "
        "Y's dims after it, the convolution used anywhere; several outputs, each of which follows "
        "it, of any type and layout; BOOLEAN ones, packed, have channels last, those of a group a "
        "multiple of 8, or all of them pixels of a row of such a number",
        "reductions at the exit, over all pixels (genstats), over all channels, or over both",
        "conv_dgrad, whose X is dY and Y is dX, as a convolution with the filter transposed; with "
        "strides in one launch, reductions over all pixels at its exit",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := anchor_reasons(
            fusion, _PATTERN, reduces=True, takes_gradients=True, takes_strides=True
        ):
            return declined
        fusion = rewritten_fusion(fusion, _CASTS)
        op = conv_of(fusion)
        return (
            *self._type_reasons(op),
            *self._shape_reasons(op),
            *_after_reasons(fusion),
            *fp8_reasons(fusion, target),
            *too_large_reasons(fusion),
        )

    def _type_reasons(self, op: Convolved) -> list[Reason]:
        if op.moved.type == op.w.type and op.moved.type in OPERAND_TYPES:
            return compute_reasons(op.compute_type, op.moved.type, op.w.type)
        return type_reasons(op, f"{CASTABLE} (identity casts an operand)")

    def _shape_reasons(self, op: Convolved) -> list[Reason]:
        return filter_reasons(op) or count_reasons(shape_of(op).pixels, "Y")

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = tuple(
        replace(knob, values=(*knob.values, NARROW_COLUMNS)) if knob.name == "TILE_N" else knob
        for knob in all_knobs(
            "output pixels of a block's tile",
            "output channels of it; 64: of groups side by side, of 8, 16 or 32 each; "
            f"{NARROW_COLUMNS}: of all phases of a gradient with a stride",
        )
    )

    def knobs(self, fusion: Fusion, target: Target) -> tuple[Knob, ...]:
        return knobs_of(conv_of(rewritten_fusion(fusion, _CASTS)).moved.type, self.all_knobs)

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        return _illegal(Sm80Choice.of(knobs), rewritten_fusion(fusion, _CASTS), target)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        fusion = rewritten_fusion(fusion, _CASTS)
        type_ = conv_of(fusion).moved.type
        found = candidates_of(type_, lambda choice: _illegal(choice, fusion, target))
        narrow = narrow_candidates(type_) if _has_phases(fusion) else []
        found += [choice for choice in narrow if not _illegal(choice, fusion, target)]
        return [choice.knobs for choice in (*found, *_of_few_stages(fusion, found))]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        fusion, choice = rewritten_fusion(fusion, _CASTS), Sm80Choice.of(knobs)
        beside = _shape(fusion, choice).beside
        depths = (choice.depth * beside, choice.depth)
        loads = zip(_loads(fusion, beside), depths, strict=True)
        x, w = (load.time(depth) for load, depth in loads)
        found = _work(fusion, beside, _is_narrow(choice)).predict(
            choice, conv_of(fusion).moved.type, (x * beside, w), target, beside=beside
        )
        share = _GATHER_SHARE if beside == 1 else _GATHER_SHARE * _BESIDE_SHARE
        seconds = found.seconds * share + _START_SECONDS
        seconds += exit_seconds(fusion, choice.tile, target, lambda _: (1, EXIT_RATE))
        is_a_guess = target.name == "sm_90a" and beside == 1
        return replace(found, seconds=seconds * (_DOUBT if is_a_guess else 1.0))

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        op, choice = conv_of(fusion), Sm80Choice.of(knobs)
        is_rounded = takes_other_type(fusion, op)
        return notes_of(choice, is_rounded=is_rounded, is_wide=loses_bits_as_tf32(fusion, op))

    def is_weighed_against_parts(self, fusion: Fusion, target: Target) -> bool:
        return True

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> ConvTiling:
        fusion, choice = rewritten_fusion(fusion, _CASTS), Sm80Choice.of(knobs)
        op, shape = conv_of(fusion), _shape(fusion, choice)
        axes, pixels = depth_axes(fusion, shape), pixel_plan(fusion, shape)
        whole = whole_outputs(fusion, op.made)
        types, paths = [t.type for t in whole], output_paths(fusion, whole)
        if _is_narrow(choice):
            width = fragment_width(types, Expr.of(shape.k))
            kept = replace(pixels, is_kept=True)
            plan = tile_plan(choice, kept, phases_filter_plan(), "n", width, paths)
            return ConvTiling(**vars(plan), depth=axes)
        filter_ = filter_plan(fusion, shape, Depth.of(shape_of(op), axes))
        along = "m" if whole and _is_along_pixels(whole[0]) else "n"
        if booleans := booleans_of(fusion):
            sides = _bit_sides(booleans, shape_of(op), op.made.shape)
            along = along if along in sides else sides[0]
        extent = whole[0].shape[-1] if whole and along == "m" else Expr.of(shape.k_group)
        is_apart = along == "m" and shape.spread is not None  # neighbours are of other phases
        width = 1 if is_apart else fragment_width(types, extent)
        plan = tile_plan(choice, pixels, filter_, along, width, paths)
        return ConvTiling(**vars(plan), depth=axes, beside=shape.beside)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: ConvTiling, output: Output) -> None:
        emit_product(region, tile, output, _matrices)


def _after_reasons(fusion: Fusion) -> list[Reason]:
    """Why what follows the convolution is not pointwise work, or reductions at its exit."""
    op = conv_of(fusion)
    return (
        reducing_epilogue_reasons(fusion, 0)
        or exit_axes_reasons(fusion)
        or _boolean_reasons(booleans_of(fusion), shape_of(op), op.made.shape)
    )


def _boolean_reasons(
    booleans: Sequence[Tensor], shape: ConvShape, made: Sequence[Expr]
) -> list[Reason]:
    if not booleans or _bit_sides(booleans, shape, made):
        return []
    return [bits_reason(booleans[0], _BOOLEANS)]


def _bit_sides(booleans: Sequence[Tensor], shape: ConvShape, made: Sequence[Expr]) -> list[str]:
    """Along what fragments may lie so that each holds whole bytes of all boolean outputs: channels
    (n), pixels of a row (m).  made: Y's dims."""
    dims, last = tuple(made), len(made) - 1
    sides = {
        "n": all(has_whole_bytes(t, made, shape.k_group) for t in booleans),
        "m": shape.spread is None
        and all(t.shape == dims and whole_bytes(t, last, dims[last]) for t in booleans),
    }
    return [side for side, fits in sides.items() if fits]


def _matrices(kernel: Kernel, region: Region, tile: ConvTiling) -> Matrices:
    """The matrices of the convolution of a region."""
    call, (type_, _) = anchor_call(region), operand_types(region)
    apart = conv_of_call(region, call)
    beside = tile.beside
    shape, depth = replace(apart, beside=beside), Depth.of(apart, tile.depth)
    tile_m, tile_n, tile_k = tile.sides
    x, w = call.operands
    if tile_n == NARROW_COLUMNS:
        return _phases_together(kernel, region, tile, apart)
    columns = Side(type_, False, tile_n, tile_k)
    if beside == 1:
        pixels = PixelTile(
            kernel, region, x, tile.a, Side(type_, True, tile_m, tile_k), conv=shape, depth=depth
        )
    else:
        pixels = BesidePixels(
            kernel, region, x, tile.a, Side(type_, True, tile_m, tile_k * beside),
            conv=shape, depth=depth, group_k=tile_k, channels=apart.c_group,
        )  # fmt: skip
    filter_ = FilterTile(kernel, region, w, tile.b, columns, conv=shape, depth_of_conv=depth)
    return Matrices(
        call,
        pixels,
        filter_,
        (shape.pixels, Expr.of(shape.k_group), Expr.of(depth.size)),
        shape.batch,
        PixelSpace(PixelPlaces(kernel, region.dims_of(call.results[0]), shape)),
        SpaceAxes((0, *range(2, shape.x.rank)), (1,), shape.batch_axes),
        beside,
        _depth_of(shape),
    )


def _phases_together(
    kernel: Kernel, region: Region, tile: ConvTiling, shape: ConvShape
) -> Matrices:
    """The matrices of all phases of a gradient with a stride, see `conv.together_sm80`."""
    call, (type_, _) = anchor_call(region), operand_types(region)
    dense, (tile_m, tile_n, tile_k) = dense_shape(shape), tile.sides
    depth = Depth.of(dense, tile.depth)
    x, w = call.operands
    (steps,) = whole_steps(shape, tile_k)
    return Matrices(
        call,
        PixelTile(
            kernel, region, x, tile.a, Side(type_, True, tile_m, tile_k), conv=dense, depth=depth
        ),
        PhasesFilter(kernel, region, w, tile.b, Side(type_, False, tile_n, tile_k), conv=shape),
        (shape.pixels, Expr.of(NARROW_COLUMNS), Expr.of(depth.size)),
        dense.batch,
        PhasesSpace(kernel, region.dims_of(call.results[0]), shape),
        meets=Meetings(shape, steps),
    )


def _depth_of(shape: ConvShape) -> Callable[[Batch], Any] | None:
    """See `Matrices`: of phases, which meet some of the taps each."""
    if shape.spread is None:
        return None
    return lambda batch: cast(Phase, Phase.of(shape, batch)).end


def _is_along_pixels(output: Tensor) -> bool:
    """Whether an output's pixels of a row, not its channels, are contiguous."""
    return is_unit(output, output.rank - 1) and not is_unit(output, 1)


# ---- knobs


def _illegal(choice: Sm80Choice, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
    """Why knobs can't be."""
    type_ = conv_of(fusion).moved.type
    beside, is_narrow = _shape(fusion, choice).beside, _is_narrow(choice)
    pixels = (0, *range(2, conv_of(fusion).moved.rank))
    exits = partial(exit_bytes, fusion, (pixels, (1,)), choice.tile)
    if reasons := illegal_reasons(choice, type_, target, beside, exits=exits, is_narrow=is_narrow):
        return reasons
    if is_narrow and (reason := _narrow_refusal(fusion, choice)) is not None:
        return (knob_reason(f"TILE_N={NARROW_COLUMNS} with {reason}", _NARROW),)
    copied = choice.tile_m * choice.depth * beside
    held = copied * type_.bits // (8 * 16 * threads_of(choice.tile))
    if held <= (_MOST_COPIES if _copy_bytes(fusion) else _MOST_HELD):
        return ()
    tile = f"tile {choice.tile_m}x{choice.tile_n}x{choice.depth}"
    if beside > 1:
        what = f"{tile} of {beside} groups"
        return (knob_reason(what, f"{_MOST_COPIES} copies a thread, not {held}"),)
    # More of a thread's elements, each with its address, would spill.
    what = f"{tile} of an X that asynchronous copies do not bring"
    return (knob_reason(what, f"{_MOST_HELD * 16} bytes of X a thread, not {held * 16}"),)


def _of_few_stages(fusion: Fusion, found: Sequence[Sm80Choice]) -> list[Sm80Choice]:
    """Choices for groups side by side, whose stages are large: the flat ones of each tile
    again with less memory, so that an SM has several blocks."""
    beside = [choice for choice in found if _shape(fusion, choice).beside > 1]
    flat = min((choice.depth for choice in beside), default=0)
    return [
        replace(choice, stages=stages)
        for choice in beside
        for stages in (2, 3)
        if choice.depth == flat
    ]


# ---- the prediction


def _shape(fusion: Fusion, choice: Sm80Choice) -> ConvShape:
    """The convolution as knobs take it."""
    op = conv_of(fusion)
    return shape_of_choice(
        conv_shape_of(fusion), op.moved if op.moved in fusion.inputs else None, choice
    )


def _is_narrow(choice: Sm80Choice) -> bool:
    """Whether a tile has all phases of a gradient with a stride."""
    return choice.tile_n == NARROW_COLUMNS


def _has_phases(fusion: Fusion) -> bool:
    return conv_shape_of(fusion).spread is not None


def _narrow_refusal(fusion: Fusion, choice: Sm80Choice) -> str | None:
    """Why a tile can't have all phases."""
    op = conv_of(fusion)
    are_inputs = op.moved in fusion.inputs and op.w in fusion.inputs and not op.w.is_by_value
    shape = shape_of(op)
    what = together_refusal(shape, op.moved if are_inputs else None)
    if exits_of(fusion):
        what = "reductions after it"
    if what is None and not whole_steps(shape, choice.depth):
        what = f"{shape.c_group} channels of dY and TILEK={choice.depth}"
    return what


@remembered_at_sizes
def _work(fusion: Fusion, beside: int, is_narrow: bool) -> Work:
    apart = conv_shape_of(fusion)
    if is_narrow:
        k = dense_shape(apart).taps * apart.c_group
        return Work.of(fusion, apart.pixels, *map(Expr.of, (NARROW_COLUMNS, k, 1)))
    shape = replace(apart, beside=beside)
    taps, count = apart.taps, shape.groups
    if shape.spread:
        count *= shape.spread.phases
        taps = max(1, round(sum(shape.spread.phase_taps) / shape.spread.phases))
    sizes = (shape.k_group, taps * apart.c_group, count)
    return Work.of(fusion, shape.pixels, *map(Expr.of, sizes))


@dataclass(frozen=True)
class _Load:
    """How an operand's tiles are loaded.  times: the time of a byte, against copies of 16 bytes.
    lines, run: how copies touch lines, and the elements along k that lie together; elements that
    come one by one take their instructions' time."""

    times: float
    lines: OperandLines | None = None
    run: int = 1

    def time(self, depth: int) -> float:
        return self.times * (self.lines.time(min(depth, self.run)) if self.lines else 1.0)


@remembered
def _copy_bytes(fusion: Fusion) -> int:
    """Bytes of a copy of X; 0: it comes through registers."""
    op = conv_of(fusion)
    access = gather_bytes(op.moved, shape_of(op)) if op.moved in fusion.inputs else 0
    return access if access >= 4 else 0


@remembered
def _loads(fusion: Fusion, beside: int) -> tuple[_Load, _Load]:
    op = conv_of(fusion)
    shape, size = shape_of(op), op.moved.type.bits // 8
    sources = fusion.read_inputs(op.moved)
    alike = [t for t in sources if t.shape == op.moved.shape]
    # Views leave X without a tensor that is read as it is: its elements come one by one.
    is_near = is_unit(max(alike, key=lambda t: t.type.bits), 1) if alike else False
    access = _copy_bytes(fusion)
    is_vector = is_near and shape.c_group * size % 16 == 0
    narrow = max(1.0, _ELEMENT_BYTES / size)  # an instruction brings fewer bytes
    pixels = _Load(narrow * (_ELEMENT_TIME if is_near else _FAR_ELEMENT_TIME))
    if access or is_vector:
        times = _NARROW_TIME.get(access, _VECTOR_TIME)
        run = shape.c_group * beside
        is_split = shape.groups > 1 if beside == 1 else run * size % LINE_BYTES > 0
        pixels = _Load(times, OperandLines(size, True, is_split), run)
    return pixels, _filter_load(fusion, shape, narrow)


def _filter_load(fusion: Fusion, shape: ConvShape, narrow: float) -> _Load:
    """narrow: against elements of 2 bytes, what an instruction brings fewer of."""
    w, size = shape.w, shape.w.type.bits // 8
    depth_ = Depth.of(shape, (*range(2, w.rank), CHANNEL))
    is_stored = w in fusion.inputs
    access = matrix_bytes(w, shape, depth_) if is_stored else 0
    transposed = transposed_bytes(w, shape) if is_stored and shape.is_transposed else 0
    if access < 4 <= transposed:
        is_split = w.layout[0].known_divisor() * size % LINE_BYTES != 0
        return _Load(_NARROW_TIME[transposed], OperandLines(size, False, is_split))
    if access < 4:
        return _Load(narrow * _ELEMENT_TIME)
    depth = shape.taps * shape.c_group
    is_split = depth * size % LINE_BYTES != 0
    return _Load(_NARROW_TIME[access], OperandLines(size, True, is_split), depth)


CONV_SM80 = ConvSm80Engine()
