# pyright: basic
"""Reads off a fusion and its region how a filter's gradient goes on Hopper's main loop."""

from __future__ import annotations

from dataclasses import replace

from ... import dtypes
from ...codegen.ampere.operand_tile import LoadPlan
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.staged_operand import StagePlan
from ...codegen.region import Region
from ...dialect.fusion import Fusion, remembered
from ...dialect.tensor import Tensor
from ..product.facts_sm90 import (
    MOST_SUMS,
    SPLITS,
    EpilogueFacts,
    OperandsFacts,
    ProductFacts,
    ResultFacts,
    epilogue_loads,
    instruction_of_types,
)
from ..product.operands_sm90 import OperandFacts, Raw
from ..product.pattern import is_heavy
from ..product.region_sm90 import product_calls
from ..product.shared_layout_sm90 import SharedLayout, rewriting_bytes
from ..product.tile_parts_sm90 import BlockTile, EpilogueTiles, PixelRing, PixelTiles, TileGrid
from ..product.tile_sm90 import Tiling
from ..product.tiling_sm90 import tiling_of
from .facts_sm90 import REWRITTEN
from .wgrad import (
    CHUNK,
    WgradShape,
    filter_fusion,
    loaded_tensor,
    loss_sum_of,
    shape_of,
    shape_of_call,
    side_by_side,
    wgrad_of,
)
from .wgrad_choice_sm90 import WgradChoice
from .wgrad_halo_sm90 import PixelTile
from .wgrad_matrices_sm90 import filter_view, pixel_tile
from .wgrad_stem_sm90 import WgradStem
from .wgrad_sums import first_region, sums_of

_SUM_BYTES = 4
_NO_FRAGMENTS = "a convolution, whose operands come by TMA"
_MOST_TRANSPOSED_SUMS = 384  # beside which nothing is computed
_PAIR = 2  # neighbouring channels that the epilogue works on together


def hopper_shape(fusion: Fusion) -> WgradShape:
    """The gradient with groups side by side; x, dy: as they are loaded."""
    op = wgrad_of(fusion)
    x, dy = (loaded_tensor(fusion, op, tensor) for tensor in (op.x, op.dy))
    shape = side_by_side(replace(shape_of(op), x=x, dy=dy))
    computes = op.x in fusion.producers and not x.type.is_fp8
    return replace(shape, sums_loss=loss_sum_of(fusion) is not None, computes=computes)


def transposes_operands(shape: WgradShape, choice: WgradChoice) -> bool:
    """Whether products are of bytes, whose operands blocks transpose."""
    return choice.makes and not choice.has_halo and not shape.computes


def row_of(shape: WgradShape, *, transposes: bool) -> wgmma.Instruction:
    """The instruction; transposes: see `transposes_operands`.  Else fp8 becomes f16."""
    types = [t.type for t in (shape.dy, shape.x)]
    if not transposes:
        types = [dtypes.f16 if type_.is_fp8 else type_ for type_ in types]
    return instruction_of_types(*types)


def has_sums(shape: WgradShape, choice: WgradChoice) -> bool:
    """Whether sums go through the workspace: of parts; where some columns are no elements; and
    where three warpgroups leave no registers for what follows."""
    return choice.parts > 1 or not shape.is_whole or choice.has_halo


def facts_of_choice(fusion: Fusion, choice: WgradChoice) -> ProductFacts:
    shape = hopper_shape(fusion)
    transposes = transposes_operands(shape, choice)
    return facts_of(fusion, has_sums(shape, choice), choice.adds, transposes)


@remembered
def facts_of(fusion: Fusion, has_sums: bool, adds: bool, transposes: bool) -> ProductFacts:
    """The facts of a fusion that the engine takes; has_sums: see there.  adds: sums leave registers
    to be added to others.  transposes: see `transposes_operands`.

    Where blocks make operands, stages bring nothing else."""
    shape = hopper_shape(fusion)
    row = row_of(shape, transposes=transposes)
    own = filter_fusion(fusion)
    moved = [t for t in own.outputs if moves_by_tma(shape, t)]
    rewrites = transposes or shape.computes
    loads = [t for t in epilogue_loads(own) if moves_by_tma(shape, t) and not rewrites]
    paths = tuple("tma" if t in moved else "direct" for t in own.outputs)
    epilogue = EpilogueFacts.of(own.outputs, paths, fusion.inputs, loads)
    if has_sums:
        epilogue = EpilogueFacts(("tma",), staged=(_SUM_BYTES,))
    if adds:
        epilogue = EpilogueFacts(("direct",))
    return ProductFacts(
        row=row,
        products=1,
        promotes=transposes and row.a.is_fp8,
        splits=max(SPLITS),
        operands=_operands_of(fusion, shape, transposes=transposes),
        epilogue=(epilogue, epilogue),
        results=ResultFacts(
            swaps=(0,), is_heavy=not has_sums and any(is_heavy(other) for other in fusion.ops)
        ),
        most_sums=_MOST_TRANSPOSED_SUMS if transposes else MOST_SUMS,
        row_bytes=CHUNK if transposes else wgmma.ROW_BYTES,
    )


def _operands_of(fusion: Fusion, shape: WgradShape, *, transposes: bool) -> OperandsFacts:
    """The facts of dY and X: of bytes, which are transposed beside where they come, or of X
    computed in its place."""
    plain = OperandsFacts(((True, True),), (_NO_FRAGMENTS, _NO_FRAGMENTS))
    if shape.computes:
        raw = Raw(fusion.inputs.index(shape.x), shape.x.type.bits)
        x = OperandFacts(False, REWRITTEN, raws=(raw,), beside=(0,))
        return replace(plain, distinct=(OperandFacts(True), x), rewrites=True)
    if not transposes:
        return plain
    operands = tuple(
        OperandFacts(
            is_a, REWRITTEN, row_bytes=CHUNK, beside=(CHUNK,),
            raws=(Raw(fusion.inputs.index(tensor), tensor.type.bits),),
        )
        for is_a, tensor in ((True, shape.dy), (False, shape.x))
    )  # fmt: skip
    return replace(plain, distinct=operands, rewrites=True)


def moves_by_tma(shape: WgradShape, tensor: Tensor) -> bool:
    """Whether tiles of a tensor of dW's dims go through TMA.

    It writes whole 16 bytes: a row of channels that ends inside them would be written past its end.
    """
    is_of_dw = tuple(n.constant for n in tensor.shape) == shape.dw
    row_bits = shape.c_group * tensor.type.bits
    if not is_of_dw or tensor.type.kind == "b" or row_bits % (8 * tma.ALIGNMENT):
        return False
    return tma.refusal(filter_view(shape, tensor, 1), (3, 2)) is None


def wgrad_tiling_of(fusion: Fusion, choice: WgradChoice) -> Tiling:
    """The tiling of a fusion as knobs lay it."""
    shape = hopper_shape(fusion)
    if choice.has_halo:
        tile = pixel_tile_of(shape, choice)
        return _pixel_tiling(row_of(shape, transposes=False), choice.loop.stages, tile)
    tiling = tiling_of(facts_of_choice(fusion, choice), choice.loop)
    return replace(tiling, block=replace(tiling.block, helpers=int(choice.is_helped)))


def pixel_tile_of(shape: WgradShape, choice: WgradChoice) -> PixelTile:
    """The tile whose pixels of X have a halo."""
    return pixel_tile(shape, choice.rows, choice.columns)


def first_sum_of(region: Region, choice: WgradChoice) -> int:
    """Elements before those of a part's sums."""
    stem = _stem_of(region, choice)
    return stem.first if stem else 0


def wgrad_first_region(region: Region, choice: WgradChoice) -> Region:
    """The region of the first kernel, where sums go through the workspace."""
    stem, sums = _stem_of(region, choice), wgrad_sums_of(region, choice)
    columns = stem.tile_columns if stem else 0
    return first_region(region, sums, choice.parts, columns, adds=choice.adds)


def wgrad_sums_of(region: Region, choice: WgradChoice) -> Tensor:
    """The tensor of one part's sums."""
    (call,) = product_calls(region)
    sums = sums_of(region, side_by_side(shape_of_call(region, call)))
    stem = _stem_of(region, choice)
    return stem.sums(sums) if stem else sums


def _stem_of(region: Region, choice: WgradChoice) -> WgradStem | None:
    """The tile of few channels, where pixels have a halo."""
    if not choice.has_halo:
        return None
    (call,) = product_calls(region)
    tile = pixel_tile_of(side_by_side(shape_of_call(region, call)), choice)
    return tile if isinstance(tile, WgradStem) else None


def _pixel_tiling(row: wgmma.Instruction, slots: int, tile: PixelTile) -> Tiling:
    """The tiling of pixels that come with their halo; sums leave registers directly."""
    load = LoadPlan("tma")
    return Tiling(
        types=(row.a, row.b),
        block=_block_of(tile),
        grid=TileGrid(),
        epilogue=EpilogueTiles(outputs=("direct",), pair=_PAIR),
        stages=1,
        operands=(StagePlan(True, True, load), StagePlan(False, False, load)),
        pixels=PixelTiles(ring=_ring_of(tile, slots)),
        rewriting=_rewriting_bytes(tile, slots),
    )


def _block_of(tile: PixelTile) -> BlockTile:
    return BlockTile(wgmma.M, tile.tile_columns, False, tile.consumers)


def _ring_of(tile: PixelTile, slots: int) -> PixelRing:
    return PixelRing(slots, tile.slot_bytes, tile.rows, tile.columns)


def _rewriting_bytes(tile: PixelTile, slots: int) -> int:
    return rewriting_bytes(slots, 0) if tile.widened or tile.shape.computes else 0


def pixel_smem_bytes(tile: PixelTile, slots: int) -> int:
    """Bytes of shared memory of such a tiling."""
    pixels = PixelTiles(ring=_ring_of(tile, slots))
    epilogue = EpilogueTiles(outputs=("direct",))
    return SharedLayout(
        _block_of(tile), TileGrid(), epilogue, pixels, stages=1, stage_bytes=0,
        rewriting=_rewriting_bytes(tile, slots),
    ).bytes  # fmt: skip
