# pyright: basic
"""Engine conv_wgrad_sm90: gradients of filters on Hopper's tensor cores: implicit matrix products.

    dW = g2(dY^T @ im2col(X), inputs): TMA, im2col TMA, mbarriers, `wgmma`, persistent blocks

The kernel is that of matmul_sm90 with other operands (`wgrad_matrices_sm90`).  Its k, the pixels of
all images, is long, and its tiles are few: blocks of a cluster share a tile's k (SPLIT_K_SLC), and
parts of the pixels have sums of their own in the workspace (SPLIT_K_BUF), which a second, small
kernel adds up in a fixed order, and which has g2 then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ... import dtypes
from ...codegen.hopper import im2col, tma
from ...codegen.kernel import Kernel
from ...codegen.output import Output
from ...codegen.region import Region
from ...dialect.fusion import Fusion, remembered_at_sizes, rewritten_fusion
from ...dialect.ops import ConvWgrad, Pointwise
from ...dialect.patterns import AnyPattern
from ...dialect.tensor import Tensor
from ...errors import Status
from ...expr import typical
from ...target import Target
from ..engine import Engine, Knob, Knobs, Prediction, Reason
from ..product.choice_sm90 import Choice
from ..product.facts_sm90 import SPLITS
from ..product.knobs_sm90 import SWIZZLES, illegal_reasons, legal_choices
from ..product.launch_sm90 import emit_product
from ..product.matmul_sm90 import RATE_OF
from ..product.matrices_sm90 import Matrices
from ..product.pattern import knob_reason
from ..product.region_sm90 import product_calls
from ..product.tile_sm90 import Tiling
from ..surface import bytes_of, pattern_reason, target_reasons, too_large_reasons
from ..views.operand_types import casts, takes_other_type
from ..views.relaid import RelaidFusion
from .loss_sums_sm90 import apart, loss_sums_of, place_loss_sums, sharers_of
from .wgrad import (
    CHUNK,
    MAKING,
    PATTERN,
    PATTERN_WITH_SUM,
    REDUCTION,
    SUPPORT_AFTER,
    SUPPORT_COPIES,
    WgradShape,
    anchor_reasons,
    channel_pitch,
    filter_fusion,
    loss_sum_of,
    loss_sum_reasons,
    operand_reasons,
    reduction_reasons,
    relaid_fusion,
    relaid_region,
    repeats_in_any_order,
    shape_of_call,
    side_by_side,
    size_reasons,
    type_reasons,
    wgrad_of,
)
from .wgrad_choice_sm90 import WgradChoice
from .wgrad_knobs_sm90 import (
    ALL_COLUMNS,
    HALO_COLUMNS,
    PARTS,
    ROWS,
    computed_rows,
    fitting_parts,
    pixel_candidates,
    pixel_reasons,
    pixel_sizes,
    pixel_work,
)
from .wgrad_matrices_sm90 import steps_of, wgrad_matrices
from .wgrad_model_sm90 import MadeOperands, SumsWay, WgradTile, WgradWork
from .wgrad_region_sm90 import (
    facts_of,
    facts_of_choice,
    first_sum_of,
    has_sums,
    hopper_shape,
    pixel_tile_of,
    transposes_operands,
    wgrad_first_region,
    wgrad_sums_of,
    wgrad_tiling_of,
)
from .wgrad_sums import emit_losses, emit_sum, place_sums, places_of, sum_seconds

_TYPES = (dtypes.f16, dtypes.bf16)  # of X and dY, as they are multiplied
_CASTS = casts("conv_wgrad_sm90", [ConvWgrad], [(type_, type_) for type_ in _TYPES])
_TILES = (
    (128, 256), (256, 128), (128, 192), (128, 128), (64, 384), (64, 256), (64, 192), (128, 64),
    (64, 128), (64, 64),
)  # fmt: skip


@dataclass(frozen=True)
class ConvWgradSm90Engine(Engine):
    """See the file's docstring."""

    tiling = Tiling
    name: str = "conv_wgrad_sm90"
    index: int = 19
    families: tuple[str, ...] = ("convolution gradient",)
    only_target: str = "sm_90a"
    updates_outputs: bool = True
    patterns: tuple[AnyPattern, ...] = _CASTS
    support: tuple[str, ...] = (
        "sm_90a: one conv_wgrad of one to three spatial dims; X and DY both f16 or both bf16, sums "
        f"in f32; {SUPPORT_COPIES}; channels of a group multiples of 8, or any number in one group",
        f"X and DY of fp8, each of either, without a copy ({MAKING.name}=1), or one of them where "
        "TILE_ROWS is not 0; both of i8 always so, and without TILE_ROWS; groups of a multiple of "
        "16 channels",
        "any filter size, stride up to 8, dilation, paddings (of 2D 128 pixels at most on a side, "
        "of 3D 16), both modes, groups; N and the spatial dims may be symbols, of at least 1",
        f"{SUPPORT_AFTER} (without REDUCTION_MODE=1)",
        "beside it the sum of DY, which is not cast, in f32 over all axes but its channels, and "
        "pointwise operations after that",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := anchor_reasons(fusion, PATTERN_WITH_SUM, sums=1):
            return declined
        fusion = rewritten_fusion(fusion, _CASTS)
        op = wgrad_of(fusion)
        if beside := loss_sum_reasons(fusion) or _integer_sum_reasons(fusion, op):
            return tuple(beside)
        reasons = [*target_reasons("sm_90a", target), *operand_reasons(filter_fusion(fusion), op)]
        reasons += type_reasons(op, _TYPES) or size_reasons(op)
        if reasons:
            return tuple(reasons)
        copies = relaid_fusion(fusion, has_rows=False)
        reasons += copies.reasons(target) or _load_reasons(copies.fusion)
        return (*reasons, *too_large_reasons(fusion))

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_M", (128, 64, 256), "output channels of the tile"),
        Knob(
            "TILE_N",
            (256, 64, 128, 192, 384, ALL_COLUMNS),
            f"columns of the tile; {ALL_COLUMNS} with TILE_ROWS",
        ),
        Knob("STAGES", (4, 2, 3, 5, 6, 7, 8, 10, 12), "stages in shared memory"),
        Knob("TILE_CGA_M", (1, 2, 4), "blocks of a cluster of other rows, which share X"),
        Knob("TILE_CGA_N", (1, 2), "blocks of a cluster of other columns, which share DY"),
        Knob("SPLIT_K_SLC", SPLITS, "blocks of a cluster that share a tile's pixels"),
        Knob("SPLIT_K_BUF", PARTS, "parts of the pixels, whose sums a second kernel adds up"),
        REDUCTION,
        MAKING,
        Knob(
            "TILE_ROWS",
            (0, *ROWS),
            "rows of DY's images of a tile, whose pixels of X come once for all taps; 0: im2col",
        ),
        Knob(
            "TILE_COLS",
            (0, *HALO_COLUMNS),
            "columns of DY's images of such a tile; 0: all",
        ),
        Knob("SWIZZLE", SWIZZLES, "output channels whose tiles follow each other"),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        choice = WgradChoice.of(knobs)
        loop, fusion = choice.loop, _relaid(fusion, choice).fusion
        shape = hopper_shape(fusion)
        reasons = reduction_reasons(fusion, adds=choice.adds)
        reasons = reasons or _making_reasons(fusion, makes=choice.makes, has_halo=choice.has_halo)
        if reasons := reasons or _help_reasons(choice, shape):
            return reasons
        if choice.has_halo:
            return pixel_reasons(choice, shape, target)
        if choice.columns:
            return (knob_reason(f"TILE_COLS={choice.columns} by im2col", "TILE_COLS=0"),)
        least = steps_of(shape, choice.parts).bounds()[0]
        if least < loop.splits:
            what = f"SPLIT_K_SLC={loop.splits} of parts of {least} times {CHUNK} pixels"
            return (knob_reason(what, f"up to {least}"),)
        if reasons := _spill_reasons(loop, transposes=transposes_operands(shape, choice)):
            return reasons
        return illegal_reasons(loop, facts_of_choice(fusion, choice), target)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        fusion = rewritten_fusion(fusion, _CASTS)
        found = [
            replace(choice, makes=makes)
            for makes in (False, True)
            for choice in (
                *self._halo_candidates(fusion, target, makes=makes),
                *self._tap_candidates(fusion, target, makes=makes),
            )
        ]
        shape = hopper_shape(fusion)
        helped = [replace(choice, is_helped=True) for choice in found if choice.makes]
        return [choice.knobs for choice in (*found, *helped) if not _help_reasons(choice, shape)]

    def _halo_candidates(
        self, fusion: Fusion, target: Target, *, makes: bool
    ) -> Sequence[WgradChoice]:
        """Where pixels come once for all taps."""
        relaid = relaid_fusion(fusion, has_rows=True, makes=makes).fusion
        if _making_reasons(relaid, makes=makes, has_halo=True):
            return []
        return pixel_candidates(hopper_shape(relaid), _work(relaid), target)

    def _tap_candidates(
        self, fusion: Fusion, target: Target, *, makes: bool
    ) -> Sequence[WgradChoice]:
        """Where each tap has pixels of its own."""
        fusion = relaid_fusion(fusion, has_rows=False, makes=makes).fusion
        if _making_reasons(fusion, makes=makes, has_halo=False):
            return []
        shape = hopper_shape(fusion)
        work, found = _work(fusion), list[WgradChoice]()
        transposes = makes and not shape.computes
        for parts_apart in (False, True):
            if not (parts_apart or shape.is_whole):
                continue
            facts = facts_of(fusion, parts_apart, False, transposes)
            for loop in map(Choice.of, legal_choices(facts, target, 0, _TILES)):
                if _spill_reasons(loop, transposes=transposes):
                    continue
                found += [
                    choice
                    for parts in fitting_parts(work, loop, target)
                    if has_sums(shape, choice := WgradChoice(loop, parts)) == parts_apart
                    and steps_of(shape, parts).bounds()[0] >= loop.splits
                ]
        return found

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        choice = WgradChoice.of(knobs)
        loop, copies = choice.loop, _relaid(fusion, choice)
        fusion = copies.fusion
        shape = hopper_shape(fusion)
        facts, work = facts_of_choice(fusion, choice), _work(fusion)
        if choice.has_halo:
            work = pixel_sizes(work, pixel_tile_of(shape, choice))
        sums_pass = has_sums(shape, choice)
        found = WgradTile(
            (loop.tile_m, loop.tile_n),
            (loop.blocks_m, loop.blocks_n),
            loop.stages,
            loop.splits,
            SumsWay(choice.parts, sums_pass, facts.epilogue[0].is_direct, choice.adds),
            MadeOperands(
                choice.makes,
                transposes_operands(shape, choice),
                computed_rows(choice, shape),
                choice.is_helped,
            ),
            target.mma_tflops[RATE_OF[facts.row.a]],
            target,
            pixel_work(choice, shape),
        ).predict(work)
        more = copies.seconds(target)
        if shape.sums_loss and not sums_pass:
            more += sum_seconds(0, target)
        return replace(found, seconds=found.seconds + more) if more else found

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        is_rounded = takes_other_type(fusion, wgrad_of(fusion))
        found = ("TENSOR_CORE", *(("DOWN_CONVERT_INPUTS",) if is_rounded else ()))
        is_any = WgradChoice.of(knobs).adds and not repeats_in_any_order(fusion)
        return (*found, "NONDETERMINISTIC") if is_any else found

    def register_pressure(self, knobs: Knobs) -> int:
        return WgradChoice.of(knobs).loop.accumulators

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> Tiling:
        choice = WgradChoice.of(knobs)
        copies = _relaid(fusion, choice)
        tiling = wgrad_tiling_of(copies.fusion, choice)
        return tiling.renumbered(copies.places)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: Tiling, output: Output) -> None:
        choice = WgradChoice.of(knobs)
        copies = relaid_region(region, has_rows=choice.has_halo, makes=choice.makes)
        copies.emit(output, lambda: _emit(copies.region, choice, tile, output))


def _relaid(fusion: Fusion, choice: WgradChoice) -> RelaidFusion:
    """The fusion as a choice of knobs reads it."""
    cast = rewritten_fusion(fusion, _CASTS)
    return relaid_fusion(cast, has_rows=choice.has_halo, makes=choice.makes)


def _emit(region: Region, choice: WgradChoice, tiling: Tiling, output: Output) -> None:
    (call,) = product_calls(region)
    shape, losses = side_by_side(shape_of_call(region, call)), None
    parts = choice.parts

    def matrices(kernel: Kernel, region: Region, tiling: Tiling) -> Matrices:
        return wgrad_matrices(kernel, region, tiling, parts)

    def kernel(region: Region) -> None:
        emit_product(region, tiling, output, matrices)

    if shape.sums_loss:
        is_stem = channel_pitch(shape) and tiling.pixels.ring.slots
        sharers = sharers_of(tiling.block.columns if is_stem else shape.columns, tiling.block)
        region, losses = apart(region, loss_sums_of(shape, parts, tiling.grid.splits, sharers))
        place_loss_sums(output, losses.sums)
    if not has_sums(shape, choice):
        kernel(region)
        if losses:
            emit_losses(losses, output)
        return
    sums, adds = wgrad_sums_of(region, choice), choice.adds
    place_sums(output, sums, parts, adds=adds)
    kernel(wgrad_first_region(region, choice))
    emit_sum(
        region, sums, places_of(parts, adds=adds), output,
        first=first_sum_of(region, choice), shape=shape, losses=losses,
    )  # fmt: skip


@remembered_at_sizes
def _work(fusion: Fusion) -> WgradWork:
    shape = hopper_shape(fusion)
    others = {t for t in (*fusion.inputs, *fusion.outputs) if t is not shape.x}
    return WgradWork(
        shape.k_group,
        shape.columns,
        -(-typical(shape.pixels) // CHUNK),
        shape.groups,
        bytes_of(others) + round(bytes_of([shape.x]) * shape.read_share),
        shape.k_group * shape.groups * shape.c_group * shape.taps,
    )


def _making_reasons(fusion: Fusion, *, makes: bool, has_halo: bool) -> tuple[Reason, ...]:
    """Why blocks can't make operands of the bytes of a relaid fusion, where a choice says so; or
    can't but make them."""
    shape, made = hopper_shape(fusion), f"{MAKING.name}=1"
    types = [t.type for t in (shape.x, shape.dy)]
    if wgrad_of(fusion).x.type.is_integer:
        if makes and not has_halo:
            return tuple(_load_reasons(fusion))
        what = "TILE_ROWS of i8" if has_halo else f"{MAKING.name}=0 of i8"
        return (knob_reason(what, f"{made} and TILE_ROWS=0"),)
    if not makes:
        return ()
    if shape.computes:
        return _computed_reasons(fusion, shape, has_halo=has_halo)
    is_of_bytes = any if has_halo else all
    if not is_of_bytes(type_.is_fp8 for type_ in types):
        what = f"{made} of X {types[0]}, DY {types[1]}"
        return (knob_reason(what, f"both of fp8, or one with TILE_ROWS; {MAKING.name}=0"),)
    if shape.sums_loss:
        return (knob_reason(f"{made} beside the sum of DY", f"{MAKING.name}=0"),)
    return () if has_halo else tuple(_load_reasons(fusion))


def _integer_sum_reasons(fusion: Fusion, op: ConvWgrad) -> list[Reason]:
    """Why the sum of DY is not beside the gradient: its bytes are transposed, not read in f32."""
    if loss_sum_of(fusion) is None or not op.compute_type.is_integer:
        return []
    return [pattern_reason(f"a sum beside {op.label} of {op.dy.type}", PATTERN, op)]


def _help_reasons(choice: WgradChoice, shape: WgradShape) -> tuple[Reason, ...]:
    """Why a warpgroup more can't compute X."""
    if not choice.is_helped:
        return ()
    loop, what = choice.loop, ""
    if not (choice.makes and shape.computes) or choice.has_halo:
        what = "no X that is computed by im2col"
    elif loop.tile_n != 2 * CHUNK or loop.block.consumers != 2:
        # Of four warpgroups, a thread has 128 registers at launch: too few for 256 columns.
        what = f"a tile of {loop.tile_m}x{loop.tile_n}"
    if not what:
        return ()
    supported = f"pointwise operations before X, tiles of 128 or 256 rows and {2 * CHUNK} columns"
    return (knob_reason(f"{MAKING.name}=3 with {what}", f"{supported}; {MAKING.name}=1"),)


def _computed_reasons(fusion: Fusion, shape: WgradShape, *, has_halo: bool) -> tuple[Reason, ...]:
    """Why blocks can't compute X."""
    op, what = wgrad_of(fusion), ""
    others = [t for t in fusion.read_inputs(op.x) if t is not shape.x]
    if any(not isinstance(each, Pointwise) for each in fusion.upstream(op.x)):
        what = "operations that are not pointwise"
    elif shape.x.shape != op.x.shape or any(not _is_of_channels(t) for t in others):
        what = "several tensors of its dims, or others that are not of channels"
    elif not has_halo and any(window.pre or window.post for window in shape.windows):
        what = "padding without TILE_ROWS"
    elif op.dy in fusion.producers or shape.c_group % (tma.ALIGNMENT // 2):
        what = f"a DY that is cast, or groups of {shape.c_group} channels"
    if not what:
        return () if has_halo else tuple(_load_reasons(fusion))
    supported = "pointwise operations on one X of 16 bits and on tensors of its channels, a "
    supported += f"multiple of 8; TILE_ROWS, or no padding; else {MAKING.name}=0"
    return (knob_reason(f"{MAKING.name}=1 with an X of {what}", supported),)


def _is_of_channels(tensor: Tensor) -> bool:
    others = (extent for axis, extent in enumerate(tensor.shape) if axis != 1)
    return tensor.is_by_value or all(extent.constant == 1 for extent in others)


def _spill_reasons(loop: Choice, *, transposes: bool) -> tuple[Reason, ...]:
    """Sums of 256 columns in one warpgroup leave no registers for an exchange of them; beside
    warps that transpose operands, sums of 192 columns in two."""
    tile = (loop.tile_m, loop.tile_n)
    if loop.splits == 1 or not (tile == (64, 256) or (transposes and tile == (128, 192))):
        return ()
    what = f"SPLIT_K_SLC > 1 with a tile of {tile[0]}x{tile[1]}"
    return (knob_reason(what, "another tile, or SPLIT_K_SLC=1"),)


def _load_reasons(fusion: Fusion) -> list[Reason]:
    """Why TMA can't bring an operand that is channels last."""
    shape = hopper_shape(fusion)
    what = im2col.refusal(shape.x, shape.windows) or tma.refusal(shape.dy, (1,))
    per_group = (shape.c_group, shape.k_group)
    step = 8 * tma.ALIGNMENT // min(shape.x.type.bits, shape.dy.type.bits)
    if what is None and shape.groups > 1 and any(n % step for n in per_group):
        what = f"groups of {shape.c_group} and {shape.k_group} channels"
    if what is None:
        return []
    supported = f"channels of groups that are multiples of {step}; strides up to 8; paddings and "
    supported += "filters of 2D up to 128 pixels, of 3D up to 16"
    return [Reason(Status.NOT_SUPPORTED_LAYOUT, "operands by TMA", what, supported)]


CONV_WGRAD_SM90 = ConvWgradSm90Engine()
