# pyright: basic
"""Engine matmul_sm80: matrix products on the tensor cores of sm_80 and later, fused.

    g2(C = g1a(inputs) @ g1b(inputs), inputs): `cp.async`, `ldmatrix`, `mma.sync`

`kernel_sm80` has the main loop and the epilogue; here is what is multiplied.  Rows past M and N
repeat the last one, since what they give is not stored; k past K is zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from typing import Any, ClassVar

from ...codegen.ampere.operand_tile import LoadPlan, Side, access_bytes, is_unit
from ...codegen.kernel import Kernel
from ...codegen.memory.matrix_tile import MatrixTile
from ...codegen.memory.smem import CHUNK_BYTES
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.loops import Loops, coordinates_of
from ...dialect.fusion import Fusion, remembered, remembered_at_sizes
from ...dialect.ops import Reduction
from ...dialect.tensor import Tensor
from ...errors import Status
from ...expr import Expr, typical
from ...target import Target
from ..engine import Engine, Knob, Knobs, Prediction, Reason
from ..surface import fp8_reasons, too_large_reasons
from ..views.reads import layout_model
from .bits import bits_reason, booleans_of, swaps_of
from .choice_sm80 import Sm80Choice
from .ends import ends_of
from .exit_model import TileReduction, exit_seconds
from .exits import SpaceAxes
from .kernel_sm80 import (
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
from .knobs_sm80 import (
    all_knobs,
    candidates_of,
    illegal_reasons,
    knobs_of,
    notes_of,
)
from .model_sm80 import EXIT_RATE, OperandLines
from .multiplier_sm80 import is_widened
from .pattern import (
    Product,
    anchor_reasons,
    compute_reasons,
    epilogue_reasons,
    is_along_columns,
    knob_reason,
    matmul_of,
    promotes_sums,
    reducing_epilogue_reasons,
    row_reasons,
    sizes_of,
    tile_reasons,
)
from .shared_layout_sm80 import exit_bytes
from .surface_sm80 import OPERAND_TYPES, Work
from .tile_sm80 import MatmulTiling

_MOST_DEPTH_APART = 64  # of a stage
_BOOLEANS = (
    "boolean outputs of the product's dims with contiguous rows whose length is a multiple of 8 "
    "and whose other strides are, or all with contiguous columns"
)


@dataclass(frozen=True)
class MatmulSm80Engine(Engine):
    """See the file's docstring."""

    tiling = MatmulTiling
    name: str = "matmul_sm80"
    index: int = 4
    families: tuple[str, ...] = ("product",)
    support: tuple[str, ...] = (
        "one matmul of f16, bf16, f32 (as tf32, once or in three products) or i8 operands, or "
        "fp8 ones (each of either type) from sm_89 on, sums in f32 (of HALF compute too, rounded "
        "once) or i32; any sizes, strides, broadcast batches",
        "pointwise and view operations on A, B and beside the product; pointwise operations of "
        "the product's dims after it, the product used anywhere; several outputs, each of which "
        "follows the product, of any type; BOOLEAN ones, packed, have the product's dims and "
        "contiguous rows (or all of them columns) of a multiple of 8 elements",
        "outputs of one matmul may be parts of its columns that begin and end at multiples of 8, "
        "and have axes that count through its rows or columns together (packed heads)",
        "reductions at the exit over any axes; those of rows, as a norm's, not where other kernels "
        "take both them and the product",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if reasons := anchor_reasons(fusion):
            return reasons
        return (
            *self._type_reasons(matmul_of(fusion)),
            *_after_reasons(ends_of(fusion).fusion),
            *fp8_reasons(fusion, target),
            *too_large_reasons(fusion),
            *tile_reasons(matmul_of(fusion)),
        )

    def _type_reasons(self, op: Product) -> list[Reason]:
        alike = op.a.type == op.b.type and op.a.type in OPERAND_TYPES
        if alike or (op.a.type.is_fp8 and op.b.type.is_fp8):
            return compute_reasons(op.compute_type, op.a.type, op.b.type)
        return [
            Reason(
                Status.NOT_SUPPORTED_DATA_TYPE,
                "operand types",
                f"A {op.a.type}, B {op.b.type}",
                "both f16, bf16, f32 or i8, or each of an fp8 type (identity casts an operand)",
            )
        ]

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = all_knobs(
        "rows of a block's tile", "columns of a block's tile"
    )

    def knobs(self, fusion: Fusion, target: Target) -> tuple[Knob, ...]:
        return knobs_of(matmul_of(fusion).a.type, self.all_knobs)

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        return _illegal(Sm80Choice.of(knobs), fusion, target)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        type_ = matmul_of(fusion).a.type
        found = candidates_of(type_, lambda choice: _illegal(choice, fusion, target))
        return [choice.knobs for choice in found]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        fusion = ends_of(fusion).fusion
        op, choice = matmul_of(fusion), Sm80Choice.of(knobs)
        a, b = (lines.time(choice.depth) for lines in _operand_lines(fusion))
        work = _work(fusion)
        found = work.predict(choice, op.a.type, (a, b), target, _accesses(fusion))
        if not work.reductions:
            return found
        more = _exit_seconds(op, work.reductions, choice.tile, target)
        return replace(found, seconds=found.seconds + more)

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        op = matmul_of(fusion)
        is_reduced = op.a.type.is_fp8 and not promotes_sums(op.a.type, op.compute_type)
        return (
            *notes_of(Sm80Choice.of(knobs)),
            *(("REDUCED_PRECISION_REDUCTION",) if is_reduced else ()),
        )

    def register_pressure(self, knobs: Knobs) -> int:
        return Sm80Choice.of(knobs).area

    def is_weighed_against_parts(self, fusion: Fusion, target: Target) -> bool:
        return target.arch_specific

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> MatmulTiling:
        ends = ends_of(fusion)
        fusion = ends.fusion
        op = matmul_of(fusion)
        a, b = _operand_plans(fusion)
        whole = whole_outputs(fusion, op.c)
        along = _along(whole)
        width = fragment_width((t.type for t in whole), op.c.shape[-2 if along == "m" else -1])
        for grain in filter(None, ends.grains):
            width = gcd(width, grain.rows if along == "m" else grain.columns)
        plan = tile_plan(Sm80Choice.of(knobs), a, b, along, width, output_paths(fusion, whole))
        return MatmulTiling(**vars(plan), ends=ends.of_outputs)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: MatmulTiling, output: Output) -> None:
        emit_product(region.behind_parts(tile.ends), tile, output, _matrices)


def _illegal(choice: Sm80Choice, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
    """Why knobs can't be."""
    op = matmul_of(fusion)
    if choice.depth > _MOST_DEPTH_APART and _is_summed_apart(op, target):
        # All products of a stage may be under way at once, and larger stages would spill.
        what = f"fp8 products in {op.compute_type.cudnn} with stages of {choice.depth}"
        supported = f"TILEK={_MOST_DEPTH_APART}, or compute type FAST_FLOAT_FOR_FP8"
        return (knob_reason(what, supported),)
    rank = len(op.c.shape)
    exits = partial(exit_bytes, fusion, ((rank - 2,), (rank - 1,)), choice.tile)
    return illegal_reasons(choice, op.a.type, target, exits=exits)


def _is_summed_apart(op: Product, target: Target) -> bool:
    """Whether each fp8 product of a stage is summed from zero, see `multiplier_sm80`."""
    return promotes_sums(op.a.type, op.compute_type) and not is_widened(op.a.type, target)


def _after_reasons(fusion: Fusion) -> list[Reason]:
    """Why what follows the product is not pointwise work, or reductions at its exit."""
    if fusion.with_role("reduction"):
        found = reducing_epilogue_reasons(fusion, 0) or row_reasons(fusion)
    else:
        found = epilogue_reasons(fusion, matmul_of(fusion), takes_booleans=True)
    return found or _boolean_reasons(fusion)


def _boolean_reasons(fusion: Fusion) -> list[Reason]:
    if not (booleans := booleans_of(fusion)):
        return []
    dims = matmul_of(fusion).c.shape
    strange = [t for t in booleans if t.shape != dims]
    if not strange and swaps_of(booleans):
        return []
    return [bits_reason((strange or booleans)[0], _BOOLEANS)]


def _along(whole: Sequence[Tensor]) -> str:
    """The axis, m or n, that the epilogue's fragments lie along: the contiguous one of the
    product's outputs, if each fragment then holds whole bytes of all boolean ones."""
    sides = swaps_of([t for t in whole if t.type.kind == "b"])
    wanted = int(bool(whole) and is_along_columns(whole[0]))
    return "nm"[wanted if wanted in sides else sides[0]]


def _exit_seconds(
    op: Product, reductions: Sequence[Reduction], tile: tuple[int, int], target: Target
) -> float:
    """Seconds that reductions after a product take beside the rest."""
    m, n, _, count = map(typical, sizes_of(op))
    sides = -(-m // tile[0]), -(-n // tile[1])
    found = []
    for reduction in reductions:
        kept = [reduction.y.shape[axis] == op.c.shape[axis] for axis in (-2, -1)]
        parts = count * m * n // max(1, typical(reduction.y.elements()))
        for side, size, keeps in zip(sides, (m, n), kept, strict=True):
            parts = parts if keeps else parts * side // max(1, size)
        found.append(TileReduction(reduction, EXIT_RATE, max(1, parts)))
    return exit_seconds(found, count * m * n, target)


@remembered_at_sizes
def _work(fusion: Fusion) -> Work:
    return Work.of(fusion, *sizes_of(matmul_of(fusion)))


@remembered
def _operand_lines(fusion: Fusion) -> tuple[OperandLines, OperandLines]:
    op = matmul_of(fusion)
    a, b = op.a, op.b
    return OperandLines.of(a, a.rank - 1), OperandLines.of(b, b.rank - 2)


@remembered
def _accesses(fusion: Fusion) -> tuple[int, int]:
    """Bytes of A and B that an instruction loads; 0: elements come one by one."""
    op = matmul_of(fusion)
    return _access(fusion, op.a, is_a=True), _access(fusion, op.b, is_a=False)


def _access(fusion: Fusion, operand: Tensor, *, is_a: bool) -> int:
    """The access that `_operand_plan` finds; for a computed operand, that of its largest source,
    counted as what its elements become."""
    rows, depth = _axes_of(operand, is_a=is_a)
    sources = [operand] if operand in fusion.inputs else fusion.read_inputs(operand)
    alike = [t for t in sources if t.shape == operand.shape]
    if not alike:
        return CHUNK_BYTES  # views: nothing was timed
    model = max(alike, key=lambda t: t.type.bits)
    along = _contiguous_axis(model, rows, depth)
    if along is None:
        return 0
    bits = access_bytes(model, along) * operand.type.bits
    access = min(CHUNK_BYTES, bits // model.type.bits)
    return access if access >= 4 else 0


@remembered
def _operand_plans(fusion: Fusion) -> tuple[LoadPlan, LoadPlan]:
    op = matmul_of(fusion)
    return _operand_plan(fusion, op.a, is_a=True), _operand_plan(fusion, op.b, is_a=False)


def _operand_plan(fusion: Fusion, operand: Tensor, *, is_a: bool) -> LoadPlan:
    """Orientation and path of an operand: see `OperandTile`."""
    rows, depth = _axes_of(operand, is_a=is_a)
    model = layout_model(fusion, operand)
    contiguous = None if model is None else _contiguous_axis(model, rows, depth)
    transposes = operand.type.bits == 16 and contiguous == rows
    along = rows if transposes else depth
    access = access_bytes(operand, along) if model is operand and contiguous == along else 0
    return LoadPlan(
        "async" if access >= 4 else "registers",
        k_contiguous=not transposes,
        loads_along_k=contiguous != rows,
        access_bytes=access,
    )


def _contiguous_axis(tensor: Tensor, rows: int, depth: int) -> int | None:
    """The axis of those along m (or n) and k whose elements lie together; None: neither.

    Where both do, a row of one element, it is that along k.
    """
    return next((axis for axis in (depth, rows) if is_unit(tensor, axis)), None)


def _axes_of(operand: Tensor, *, is_a: bool) -> tuple[int, int]:
    """The axes of the rows and of k."""
    last = operand.rank - 1
    return (last - 1, last) if is_a else (last, last - 1)


@dataclass(frozen=True)
class _LastAxes:
    """Rows and columns of the product are its last two axes."""

    dims: tuple[Expr, ...]

    def is_there(self, batch: Batch, row: Any) -> Any:
        return None

    def at(self, batch: Batch, row: Index, column: Index, width: int) -> list[Coordinate]:
        place = {len(self.dims) - 2: row, len(self.dims) - 1: column}
        return coordinates_of(len(self.dims), batch, place)


def _matrices(kernel: Kernel, region: Region, tile: MatmulTiling) -> Matrices:
    """The matrices of the matmul of a region."""
    call, types = anchor_call(region), operand_types(region)
    tile_m, tile_n, tile_k = tile.sides
    sides = (Side(types[0], True, tile_m, tile_k), Side(types[1], False, tile_n, tile_k))
    a = MatrixTile(kernel, region, call.operands[0], tile.a, sides[0])
    b = MatrixTile(kernel, region, call.operands[1], tile.b, sides[1])
    dims = region.dims_of(call.results[0])
    batch_axes = [i for i, n in enumerate(dims[:-2]) if n.constant != 1]
    batch = Loops(dims, tuple((axis,) for axis in batch_axes))
    others = {axis: axis for axis in batch_axes}
    axes = SpaceAxes((len(dims) - 2,), (len(dims) - 1,), others)
    return Matrices(call, a, b, (a.size, b.size, a.k_size), batch, _LastAxes(dims), axes)


MATMUL_SM80 = MatmulSm80Engine()
