# pyright: basic
"""Engine conv_wgrad_sm80: gradients of filters on the tensor cores of sm_80 and later.

    dW = g2(dY^T @ taps(X), inputs): gathers by `cp.async`, `ldmatrix`, `mma.sync`

An implicit matrix product on the main loop of matmul_sm80; see `wgrad_tiles_sm80`.  Parts of the
pixels have sums of their own in the workspace (SPLIT_K_BUF), which a second kernel adds up in a
fixed order, and which has g2 then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Annotated, ClassVar

from ... import dtypes
from ...codegen.ampere.operand_tile import LoadPlan, Side
from ...codegen.kernel import Kernel
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.walk.loops import Loops
from ...dialect.fusion import Fusion, remembered_at_sizes, rewritten_fusion
from ...dialect.ops import ConvWgrad
from ...dialect.patterns import AnyPattern
from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr, ceildiv, typical
from ...target import Target
from ..engine import Engine, Knob, Knobs, Prediction, Reason
from ..knob_values import KnobValues
from ..product.choice_sm80 import Sm80Choice
from ..product.kernel_sm80 import (
    Matrices,
    anchor_call,
    emit_product,
    fragment_width,
    operand_types,
    tile_plan,
)
from ..product.knobs_sm80 import all_knobs, candidates_of, illegal_reasons, knobs_of, notes_of
from ..product.surface_sm80 import Work
from ..product.tile_sm80 import PartSums, WgradTiling
from ..product.work import ProductWork
from ..surface import bytes_of, fp8_reasons, too_large_reasons
from ..views.operand_types import casts, loses_bits_as_tf32, takes_other_type
from ..views.relaid import RelaidFusion
from .wgrad import (
    GROUP,
    PART,
    REDUCTION,
    SUPPORT_AFTER,
    SUPPORT_COPIES,
    WORD_BYTES,
    WgradShape,
    anchor_reasons,
    is_of_words,
    operand_reasons,
    reduction_reasons,
    relaid_fusion,
    relaid_region,
    repeats_in_any_order,
    shape_of,
    shape_of_call,
    size_reasons,
    type_reasons,
    wgrad_of,
)
from .wgrad_sums import (
    added_seconds,
    emit_sum,
    first_region,
    place_sums,
    places_of,
    sum_seconds,
    sums_of,
)
from .wgrad_tiles_sm80 import FilterSpace, GradientTile, ImageTile, padded_channels

_TYPES = (dtypes.f16, dtypes.bf16, dtypes.f32)  # of X and dY, as they are multiplied
_CASTS = casts("conv_wgrad_sm80", [ConvWgrad], [(type_, type_) for type_ in _TYPES])
_CHUNK_BYTES = 16
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_GATHER_SHARE = 1.4  # against a matmul's main loop: pixels are taken apart in every step
_DOUBT = 1.8  # on Hopper, which has an engine of its own
_BLOCKS = 2  # of an SM, that parts are made to fill


@dataclass(frozen=True)
class _Choice(KnobValues):
    """One value of each knob.

    parts: of the pixels, whose sums a second kernel adds up, or, where they may be added in any
    order, blocks do.
    """

    tile: Sm80Choice
    parts: Annotated[int, "SPLIT_K_BUF"]
    any_order: Annotated[bool, "REDUCTION_MODE"] = False

    @property
    def adds(self) -> bool:
        """Whether blocks add sums of parts to one place."""
        return self.any_order and self.parts > 1


@dataclass(frozen=True)
class ConvWgradSm80Engine(Engine):
    """See the file's docstring."""

    tiling = WgradTiling
    name: str = "conv_wgrad_sm80"
    index: int = 22
    families: tuple[str, ...] = ("convolution gradient",)
    updates_outputs: bool = True
    patterns: tuple[AnyPattern, ...] = _CASTS
    support: tuple[str, ...] = (
        "one conv_wgrad of one to three spatial dims; X and DY both f16, both bf16 or both f32 (as "
        f"tf32, once or in three products), sums in f32; {SUPPORT_COPIES}; channels of a group "
        "that are multiples of 4 bytes, or any number in one group",
        "any filter size, stride, dilation, paddings, both modes, groups; N and the spatial dims "
        "may be symbols, of at least 1",
        f"{SUPPORT_AFTER} (without REDUCTION_MODE=1)",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := anchor_reasons(fusion):
            return declined
        fusion = rewritten_fusion(fusion, _CASTS)
        op = wgrad_of(fusion)
        reasons = [
            *fp8_reasons(fusion, target),
            *operand_reasons(fusion, op),
            *(type_reasons(op, _TYPES) or size_reasons(op)),
        ]
        if reasons:
            return tuple(reasons)
        copies = relaid_fusion(fusion, has_rows=False, has_words=True)
        reasons += copies.reasons(target) or _access_reasons(shape_of(wgrad_of(copies.fusion)))
        return (*reasons, *too_large_reasons(fusion))

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        *all_knobs("output channels of a block's tile", "columns of it: taps and channels"),
        Knob("SPLIT_K_BUF", _PARTS, "parts of the pixels, whose sums a second kernel adds up"),
        REDUCTION,
    )

    def knobs(self, fusion: Fusion, target: Target) -> tuple[Knob, ...]:
        *common, parts, reduction = self.all_knobs
        return (*knobs_of(_type(fusion), tuple(common)), parts, reduction)

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        choice = _Choice.of(knobs)
        return reduction_reasons(fusion, adds=choice.adds) or illegal_reasons(
            choice.tile, _type(fusion), target
        )

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        type_ = _type(fusion)
        return [
            _Choice(tile, parts).knobs
            for tile in candidates_of(type_, lambda tile: illegal_reasons(tile, type_, target))
            for parts in _fitting_parts(fusion, tile, target)
        ]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        copies = _relaid(fusion)
        op, choice = wgrad_of(copies.fusion), _Choice.of(knobs)
        shape, parts = shape_of(op), choice.parts
        work = _work(fusion)
        whole = work.product
        product = replace(whole, k=-(-whole.k // parts), count=whole.count * parts)
        part = replace(work, product=product)
        accesses = (_access(shape.dy, shape.k_group, shape), _access(shape.x, shape.c_group, shape))
        found = part.predict(choice.tile, op.x.type, (1.0, 1.0), target, accesses)
        seconds = found.seconds * _GATHER_SHARE * (_DOUBT if target.name == "sm_90a" else 1.0)
        if choice.adds:
            seconds += added_seconds(whole.m * whole.n * whole.count, parts, target)
        elif _has_sums(shape, parts):
            seconds += sum_seconds(whole.m * whole.n * whole.count * parts, target)
        return replace(found, seconds=seconds + copies.seconds(target))

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        op, choice = wgrad_of(fusion), _Choice.of(knobs)
        is_rounded, is_wide = takes_other_type(fusion, op), loses_bits_as_tf32(fusion, op)
        found = notes_of(choice.tile, is_rounded=is_rounded, is_wide=is_wide)
        is_any = choice.adds and not repeats_in_any_order(fusion)
        return (*found, "NONDETERMINISTIC") if is_any else found

    def register_pressure(self, knobs: Knobs) -> int:
        return _Choice.of(knobs).tile.area

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> WgradTiling:
        relaid = _relaid(fusion).fusion
        shape, choice = shape_of(wgrad_of(relaid)), _Choice.of(knobs)
        a, b = (
            LoadPlan("async", is_aligned=True, access_bytes=_access(tensor, channels, shape))
            for tensor, channels in ((shape.dy, shape.k_group), (shape.x, shape.c_group))
        )
        has_sums = _has_sums(shape, choice.parts)
        types = [dtypes.f32] if has_sums else [t.type for t in relaid.outputs]
        width = fragment_width(types, Expr.of(padded_channels(shape)))
        plan = tile_plan(choice.tile, a, b, "n", width, ["direct"] * len(types))
        return WgradTiling(**vars(plan), sums=PartSums(choice.parts, has_sums, bool(choice.adds)))

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: WgradTiling, output: Output) -> None:
        copies = relaid_region(region, has_rows=False, has_words=True)
        copies.emit(output, lambda: _emit(copies.region, tile, output))


def _emit(region: Region, tile: WgradTiling, output: Output) -> None:
    if not tile.sums.in_workspace:
        emit_product(region, tile, output, _matrices)
        return
    shape, parts, adds = shape_of_call(region, anchor_call(region)), tile.sums.parts, tile.sums.adds
    sums = _sums(region, shape)
    place_sums(output, sums, parts, adds=adds)
    emit_product(_first_region(region, shape, parts, adds=adds), tile, output, _matrices)
    emit_sum(region, sums, places_of(parts, adds=adds), output)


def _matrices(kernel: Kernel, region: Region, tile: WgradTiling) -> Matrices:
    call, (type_, _) = anchor_call(region), operand_types(region)
    shape, parts = shape_of_call(region, call), tile.sums.parts
    tile_m, tile_n, tile_k = tile.sides
    x, dy = call.operands
    part = ceildiv(ceildiv(shape.pixels, parts), tile_k) * tile_k
    sides = (Side(type_, True, tile_m, tile_k), Side(type_, False, tile_n, tile_k))
    a = GradientTile(kernel, region, dy, tile.a, sides[0], conv=shape, part=part)
    b = ImageTile(kernel, region, x, tile.b, sides[1], conv=shape, part=part)
    counts = (parts, shape.groups)
    axes = tuple((axis,) for axis in (PART, GROUP) if counts[axis] > 1)
    return Matrices(
        call,
        a,
        b,
        (Expr.of(shape.k_group), Expr.of(_columns(shape)), part),
        Loops(tuple(map(Expr.of, counts)), axes),
        FilterSpace(kernel, shape, tile.sums.in_workspace, tile.sums.adds),
    )


def _columns(shape: WgradShape) -> int:
    """Columns of a group's product."""
    return shape.taps * padded_channels(shape)


def _has_sums(shape: WgradShape, parts: int) -> bool:
    """Whether sums go through the workspace: of parts, and where some columns are no elements."""
    return parts > 1 or padded_channels(shape) != shape.c_group


def _sums(region: Region, shape: WgradShape) -> Tensor:
    """The tensor of one part's sums, in the order of columns."""
    padded, strides = padded_channels(shape), list[int]()
    for taps in (1, *shape.dw[:2:-1]):
        strides.append((strides[-1] if strides else padded) * taps)
    order = (_columns(shape), 1, *reversed(strides))
    return replace(sums_of(region, shape), strides=tuple(map(Expr.of, order)))


def _first_region(region: Region, shape: WgradShape, parts: int, *, adds: bool) -> Region:
    return first_region(region, _sums(region, shape), parts, _columns(shape), adds=adds)


def _relaid(fusion: Fusion) -> RelaidFusion:
    """The fusion as the kernel reads it."""
    cast = rewritten_fusion(fusion, _CASTS)
    return relaid_fusion(cast, has_rows=False, has_words=True)


def _access(tensor: Tensor, channels: int, shape: WgradShape) -> int:
    """Bytes of a copy: where a group's channels begin, it is aligned."""
    if tensor is shape.x and is_of_words(shape):
        return WORD_BYTES
    step = channels * tensor.type.bits // 8 if shape.groups > 1 else _CHUNK_BYTES
    return gcd(_CHUNK_BYTES, step)


def _access_reasons(shape: WgradShape) -> list[Reason]:
    accesses = (_access(shape.x, shape.c_group, shape), _access(shape.dy, shape.k_group, shape))
    if min(accesses) >= 4:
        return []
    what = f"groups of {shape.c_group} and {shape.k_group} channels"
    supported = "channels of groups that are multiples of 4 bytes, or one group"
    return [Reason(Status.NOT_SUPPORTED_LAYOUT, "groups", what, supported)]


def _type(fusion: Fusion) -> DType:
    """The type that is multiplied."""
    return wgrad_of(rewritten_fusion(fusion, _CASTS)).x.type


def _fitting_parts(fusion: Fusion, tile: Sm80Choice, target: Target) -> list[int]:
    """Parts with which the blocks are one or two rounds, and one."""
    work = _work(fusion).product
    tiles = -(-work.m // tile.tile_m) * -(-work.n // tile.tile_n) * work.count
    found = {1}
    for rounds in (1, 2):
        most = rounds * _BLOCKS * target.sm_count
        found.update([parts for parts in _PARTS if parts * tiles <= most][-1:])
    return sorted(parts for parts in found if parts * tile.depth <= max(work.k, tile.depth))


@remembered_at_sizes
def _work(fusion: Fusion) -> Work:
    shape = shape_of(wgrad_of(rewritten_fusion(fusion, _CASTS)))
    sizes = (shape.k_group, _columns(shape), typical(shape.pixels), shape.groups)
    moved_bytes = bytes_of((*fusion.inputs, *fusion.outputs))
    return Work(ProductWork(*sizes, moved_bytes), False)


CONV_WGRAD_SM80 = ConvWgradSm80Engine()
