# pyright: basic
"""Engine conv_stem_sm90: convolutions of few channels on Hopper's tensor cores, fused.

    Y = g2(conv(X, W), inputs): rows of X by TMA, windows of them in registers, `wgmma`

The first layers of networks for images: three channels do not fill the 16 bytes that im2col loads
ask for, and as one padded panel a tap they, or eight or 16, would waste most products.  See
`conv.stem` for how overlapping windows are read; epilogue and tiles are those of matmul_sm90.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from ... import dtypes
from ...codegen.ampere.operand_tile import LoadPlan
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.staged_operand import StagePlan
from ...codegen.kernel import Kernel
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.walk.loops import Loops
from ...dialect.fusion import Fusion, remembered, remembered_at_sizes
from ...dialect.ops.conv import Convolved
from ...dialect.tensor import Tensor, text
from ...errors import Status
from ...expr import Expr, typical
from ...target import Target
from ..engine import Engine, Knob, Knobs, Prediction, Reason
from ..knob_values import KnobValues
from ..product.facts_sm90 import epilogue_loads
from ..product.launch_sm90 import emit_product
from ..product.matrices_sm90 import Matrices
from ..product.model_sm90 import HopperBlock, OperandLoads, PixelLoads, hopper_tile
from ..product.pattern import compute_reasons, epilogue_reasons, is_heavy, knob_reason
from ..product.region_sm90 import product_calls
from ..product.tile_parts_sm90 import (
    BlockTile,
    EpilogueTiles,
    PixelRing,
    PixelTiles,
    TileGrid,
    consumers_of,
)
from ..product.tile_sm90 import Tiling
from ..product.work import ProductWork
from ..surface import RATE_OF, bytes_of, smem_reasons, too_large_reasons
from ..views.relaid import RelaidFusion
from .facts_sm90 import split_of
from .layouts import Copied, relaid_fusion, relaid_region
from .pattern import ConvShape, conv_of, conv_of_call, conv_shape_of, image_view, shape_of
from .stem import MOST_CHANNELS, MOST_STEPS, Stem, stem_refusal
from .stem_kernel_sm90 import StemFilter, StemLoop, StemSpace, runs_operand
from .surface import anchor_reasons, count_reasons, hopper_reasons, type_reasons

_PATTERN = "one conv_fprop or conv_dgrad of few channels, pointwise operations after it"
_AXES = (2, 4, 3)  # of a view of an image: channels, columns, rows
_ROWS = (128, 256)
_COLUMNS = (32, 64, 96, 128, 192, 256)
_MOST_OUTPUTS = 1024  # channels: of few tiles there are blocks for each on any device
_MOST_OF_TALL = 128  # columns of tiles of 256 rows: of more, sums do not fit the registers
_STAGES = (4, 2, 3, 6, 8)
_LARGER = 1.02  # of the time of tiles of 128 pixels
_COPIED = Copied(filters=False, results=True, has_gaps=False)
_ACCESS_BITS = 8 * tma.ALIGNMENT
_DEPTH = 64  # of k: what predictions count in
# Elements a second of an SM, more than the main loop's model says of those stored from
# registers: 170 and 260 outputs of a pixel took 50 and 370 us longer than it does.
_DIRECT_RATE = 3.5e9
_WORDS_RATE = 200e9  # bytes a second that the threads of an SM take of shared memory


@dataclass(frozen=True)
class _Choice(KnobValues):
    """One value of each knob.

    rows, columns: output pixels and channels of a tile.  stages: tiles of X in shared memory.
    """

    rows: Annotated[int, "TILE_M"]
    columns: Annotated[int, "TILE_N"]
    stages: Annotated[int, "STAGES"]


@dataclass(frozen=True)
class ConvStemSm90Engine(Engine):
    """See the file's docstring."""

    tiling = Tiling
    name: str = "conv_stem_sm90"
    index: int = 14
    families: tuple[str, ...] = ("convolution",)
    numerical_notes: tuple[str, ...] = ("TENSOR_CORE",)
    only_target: str = "sm_90a"
    updates_outputs: bool = True
    support: tuple[str, ...] = (
        "sm_90a: one conv_fprop of two spatial dims and one group; X and W of f16 or bf16, sums in "
        "f32",
        f"up to {MOST_CHANNELS} channels, {_MOST_OUTPUTS} output channels; filters of up to "
        f"{MOST_STEPS} steps of 16 elements, whose rows are padded to 8 and whose part for 32 "
        "output channels fits shared memory beside two tiles of X; dilation along columns only; "
        "any strides and paddings, both modes; N, the height and the width may be symbols",
        "pointwise operations of Y's dims after it, the convolution used anywhere; several "
        "outputs, each of which follows it; X is copied first where its channels are not last, "
        "pixels have gaps or rows do not begin at whole 16 bytes; what has Y's dims first or last "
        "where its channels are not last",
        "conv_dgrad of stride 1, whose X is dY and Y is dX, of few filters",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := anchor_reasons(fusion, _PATTERN, takes_gradients=True):
            return declined
        copies = _relaid(fusion)
        if declined := copies.reasons(target):
            return declined
        fusion = copies.fusion
        reasons = hopper_reasons(fusion, target, _PATTERN, _type_reasons, self._operand_reasons)
        reasons += _output_reasons(fusion)
        reasons += epilogue_reasons(fusion, conv_of(fusion))
        reasons += too_large_reasons(fusion)
        return (*reasons, *([] if reasons else _size_reasons(fusion, target)))

    def _operand_reasons(self, shape: ConvShape) -> list[Reason]:
        if (what := stem_refusal(shape)) is not None:
            status = Status.NOT_SUPPORTED_LAYOUT
            supported = f"two spatial dims, one group; {self.support[1]}"
            return [Reason(status, "runs of elements", what, supported)]
        if shape.k_group > _MOST_OUTPUTS:
            what = f"{shape.k_group} output channels"
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "size", what, f"up to {_MOST_OUTPUTS}")]
        return count_reasons(_positions(shape, 1), "tiles")

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_M", _ROWS, "output pixels of the tile"),
        Knob("TILE_N", _COLUMNS, "output channels of the tile, the same of all tiles of a block"),
        Knob("STAGES", _STAGES, "tiles of X in shared memory"),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        fusion = _relaid(fusion).fusion
        shape = conv_shape_of(fusion)
        choice = _Choice.of(knobs)
        rows, columns = choice.rows, choice.columns
        if rows > _ROWS[0] and columns > _MOST_OF_TALL:
            what = f"tile {rows}x{columns}"
            return (knob_reason(what, f"{_ROWS[0]} pixels with over {_MOST_OF_TALL} channels"),)
        stem = Stem.of(shape, rows // wgmma.M)
        if rows // _ROWS[0] * stem.steps > MOST_STEPS:
            what = f"TILE_M={rows} and {stem.steps} steps of k"
            return (knob_reason(what, f"up to {MOST_STEPS} of all blocks of a warpgroup"),)
        if stem.input_rows > tma.MAX_BOX:
            what = f"TILE_M={rows}, {stem.input_rows} rows of X"
            return (knob_reason(what, f"up to {tma.MAX_BOX} rows"),)
        return smem_reasons(tiling_of(fusion, choice).shared.bytes, target)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        return list(self._candidates(fusion, target))

    def _candidates(self, fusion: Fusion, target: Target) -> Iterator[Knobs]:
        least = conv_shape_of(fusion).k_group
        more = sum(n < least for n in _COLUMNS) + 2  # those that have all, and one wider
        for rows in _ROWS:
            for columns in _COLUMNS[:more]:
                for stages in sorted(_STAGES, reverse=True):
                    knobs = _Choice(rows, columns, stages).knobs
                    if stages <= _STAGES[0] and not self.legal(knobs, fusion, target):
                        yield knobs
                        break

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        """Predicted seconds of the larger tile; the smaller one was up to 3% faster, with the
        same work at a time."""
        copies = _relaid(fusion)
        fusion = copies.fusion
        op, rows, choice = conv_of(fusion), _ROWS[1], _Choice.of(knobs)
        stem = Stem.of(shape_of(op), rows // wgmma.M)
        depth = stem.steps * 16
        loaded = stem.load_bytes / (rows * 128) * _DEPTH / depth
        # While a tile is multiplied, so many others may be under way.
        stages = choice.stages * -(-depth // _DEPTH) + 1
        found = hopper_tile(
            HopperBlock((rows, choice.columns), (1, 1), stages, _DEPTH, producers=0),
            1,
            OperandLoads(computed=(0.5, 0)),
            any(is_heavy(other) for other in fusion.ops),
            not all(map(_is_staged, fusion.outputs)),
            target.mma_tflops[RATE_OF[op.moved.type]],
            target,
            PixelLoads(loads=(loaded, 0.0), taken=rows * 128 * stem.conflicts / _WORDS_RATE),
        ).predict(work := _work_of(fusion))
        seconds = found.seconds * (_LARGER if choice.rows == rows else 1)
        direct = sum(not _is_staged(tensor) for tensor in fusion.outputs)
        seconds += direct * work.m * work.n / (target.sm_count * _DIRECT_RATE)
        return replace(found, seconds=seconds + copies.seconds(target))

    def register_pressure(self, knobs: Knobs) -> int:
        choice = _Choice.of(knobs)
        return choice.rows * choice.columns

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> Tiling:
        copies = _relaid(fusion)
        return tiling_of(copies.fusion, _Choice.of(knobs)).renumbered(copies.places)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: Tiling, output: Output) -> None:
        copies = relaid_region(region, _COPIED)
        copies.emit(output, lambda: emit_product(copies.region, tile, output, _matrices))


@remembered
def _relaid(fusion: Fusion) -> RelaidFusion:
    return relaid_fusion(fusion, _COPIED)


def _type_reasons(op: Convolved) -> list[Reason]:
    if op.moved.type == op.w.type and op.moved.type in (dtypes.f16, dtypes.bf16):
        return compute_reasons(op.compute_type, op.moved.type, op.w.type)
    return type_reasons(op, "both f16 or bf16")


def _moves(tensor: Tensor) -> bool:
    """Whether TMA moves boxes of images of a tensor of Y's dims."""
    return tma.refusal(image_view(tensor, 1), _AXES) is None


def _is_staged(tensor: Tensor) -> bool:
    """Whether an output leaves through TMA, which writes whole 16 bytes."""
    return tensor.shape[1].known_divisor() * tensor.type.bits % _ACCESS_BITS == 0 and _moves(tensor)


@remembered
def _output_reasons(fusion: Fusion) -> list[Reason]:
    dims = conv_of(fusion).made.shape
    for tensor in fusion.outputs:
        if tensor.shape != dims or tensor.type.kind == "b":
            what = f"output {tensor.label} of {tensor.type}, {text(tensor.shape)}"
            supported = f"outputs of {text(dims)}, no booleans"
            return [Reason(Status.NOT_SUPPORTED_LAYOUT, "outputs", what, supported)]
    return []


def _positions(shape: ConvShape, blocks: int) -> Expr:
    """Pixels of all tiles, with those that are past the images."""
    stem = Stem.of(shape, blocks)
    down, across = stem.tiles(shape.y)
    return shape.y[0] * down * across * (blocks * wgmma.M)


def _size_reasons(fusion: Fusion, target: Target) -> list[Reason]:
    """Reasons against sizes, by the smallest tile."""
    stem = Stem.of(conv_shape_of(fusion), _ROWS[0] // wgmma.M)
    if stem.input_rows > tma.MAX_BOX:
        what, supported = f"tiles of {stem.input_rows} rows of X", f"up to {tma.MAX_BOX}"
        return [Reason(Status.NOT_SUPPORTED_SHAPE, "size", what, supported)]
    least = _Choice(_ROWS[0], min(_COLUMNS), min(_STAGES))
    return list(smem_reasons(tiling_of(fusion, least).shared.bytes, target))


@remembered_at_sizes
def _work_of(fusion: Fusion) -> ProductWork:
    op = conv_of(fusion)
    shape = shape_of(op)
    depth = Stem.of(shape, 2).steps * 16
    positions = typical(_positions(shape, 2))
    moved = bytes_of({*fusion.inputs, *fusion.outputs})
    split = split_of(fusion.outputs, shape.k_group)
    return ProductWork(positions, shape.k_group, depth, 1, moved, split=split)


def tiling_of(fusion: Fusion, choice: _Choice) -> Tiling:
    """fusion: as it is laid anew."""
    op, rows, columns = conv_of(fusion), choice.rows, choice.columns
    shape = shape_of(op)
    stem = Stem.of(shape, rows // wgmma.M)
    loads = [t for t in epilogue_loads(fusion) if _moves(t)]
    load = LoadPlan("runs")
    filter_bytes = stem.panels * columns * wgmma.ROW_BYTES
    return Tiling(
        types=(op.moved.type, op.w.type),
        block=BlockTile(rows, columns, False, consumers_of(rows, columns)),
        grid=TileGrid(),
        epilogue=EpilogueTiles(
            outputs=tuple("tma" if _is_staged(t) else "direct" for t in fusion.outputs),
            staged_bytes=tuple(t.type.bits // 8 for t in fusion.outputs if _is_staged(t)),
            loads=tuple(map(fusion.inputs.index, loads)),
            loaded_bytes=tuple(t.type.bits // 8 for t in loads),
            pair=2 if shape.k_group % 2 == 0 else 1,
        ),
        stages=1,
        operands=(
            StagePlan(True, True, load),
            StagePlan(False, False, load, bytes=filter_bytes),
        ),
        pixels=PixelTiles(ring=PixelRing(choice.stages, stem.slot_bytes)),
    )


def _matrices(kernel: Kernel, region: Region, tiling: Tiling) -> Matrices:
    (call,) = product_calls(region)
    shape = conv_of_call(region, call)
    stem = Stem.of(shape, tiling.block.rows // wgmma.M)
    dims = region.dims_of(call.results[0])
    _, filter_ = tiling.operands
    operands = [
        runs_operand(kernel, shape, stem, tiling.row),
        StemFilter(
            kernel, region, call.operands[1], shape, stem, filter_, tiling.row, tiling.block.columns
        ),
    ]
    space = StemSpace(kernel, dims, stem)
    down, across = stem.tiles(dims)
    return Matrices(
        [call],
        operands,
        Loops((Expr.of(1),), ()),
        (dims[0] * down * across * tiling.block.rows, Expr.of(shape.k_group)),
        Expr.of(1),
        space,
        lambda operands, filters, pixels: StemLoop(stem, space, operands, filters, pixels),
        beside=-(-shape.k_group // tiling.block.columns),
    )


CONV_STEM_SM90 = ConvStemSm90Engine()
