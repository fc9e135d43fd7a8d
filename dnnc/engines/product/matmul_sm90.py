# pyright: basic
"""Engine matmul_sm90: matrix products on Hopper's tensor cores, fused.

    g2(C = g1a(inputs) @ g1b(inputs), inputs): TMA, mbarriers, `wgmma`, persistent blocks

    warpgroup 0     loads   | stage | stage | ... |   ring of tiles of both operands
    warpgroups 1..  multiply a stage each step, a part of the tile each, or whole tiles alternately;
                    then walk g2 on the accumulators where they are, and store through shared
                    memory by TMA

A block works through tiles t, t + blocks, ...; its producer runs ahead into the next tile while
the consumers are at the epilogue.  Blocks of a cluster load what they share once.  An operand
that TMA can't load as the instruction wants it (g1, unaligned rows, 8- and 32-bit elements with k
not contiguous) goes through the producer's registers.  SWAP_AB computes the transpose of C, for
outputs whose columns are contiguous and for few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ... import dtypes
from ...codegen.hopper import wgmma
from ...codegen.output import Output
from ...codegen.region import Region
from ...dialect.fusion import Fusion, remembered_at_sizes
from ...dialect.ops import MoeGroupedMatmul
from ...errors import Status
from ...expr import typical
from ...target import Target
from ..engine import Engine, Knob, Knobs, Prediction, Reason
from ..surface import RATE_OF, bytes_of, pattern_reason, target_reasons, too_large_reasons
from .bits_sm90 import bits_reasons
from .choice_sm90 import FRAGMENTS, PING_PONG, Choice
from .ends import ends_of
from .facts_sm90 import SPLITS, facts_of, promotes
from .knobs_sm90 import (
    COLUMNS,
    MOST_BLOCKS,
    ROWS,
    STAGES,
    SWIZZLES,
    TRANSPOSED_COLUMNS,
    candidates_of,
    illegal_reasons,
    most_columns,
)
from .launch_sm90 import emit_product
from .matrices_sm90 import matmul_matrices
from .model_sm90 import HopperBlock, hopper_tile
from .pattern import (
    Product,
    compute_reasons,
    groups_of,
    matmul_of,
    matmuls_of,
    products_reasons,
    reducing_epilogue_reasons,
    row_reasons,
    sizes_of,
    tile_reasons,
)
from .tile_sm90 import Tiling
from .tiling_sm90 import leaves_few, tiling_of
from .work import ProductWork

_MOST_PRODUCTS = 2
_MOST_GROUPS = 1024  # of rows: their table lies in shared memory
_SIDES = tuple(dict.fromkeys((128, *ROWS, *COLUMNS)))
_ROWS = tuple(dict.fromkeys((*_SIDES, *TRANSPOSED_COLUMNS)))


@dataclass(frozen=True)
class MatmulSm90Engine(Engine):
    """See the file's docstring."""

    tiling = Tiling
    name: str = "matmul_sm90"
    index: int = 5
    families: tuple[str, ...] = ("product",)
    only_target: str = "sm_90a"
    support: tuple[str, ...] = (
        "sm_90a: one matmul of f16, bf16, f32 (as tf32, a numerical note), i8, or fp8 operands "
        "(each of either fp8 type), sums in f32 or i32; any layouts, sizes, strides, broadcast "
        "batches",
        "pointwise and view operations on A, B and beside the product; pointwise operations of "
        "the product's dims after it, the product used anywhere; several outputs, each of which "
        "follows the product, of any type; BOOLEAN ones, packed, have the product's dims and "
        "contiguous rows (or all of them columns) of a multiple of 8 elements",
        "outputs of one matmul may be parts of its columns that begin and end at multiples of 8, "
        "and have axes that count through its rows or columns together (packed heads)",
        "two matmuls with one epilogue (gated pairs); reductions at the exit over any axes, those "
        "of rows, as a norm's, not where other kernels take both them and the product; "
        "reductions of rows of up to 768 elements that flow on (softmax, rms-norm), over the "
        "blocks of a cluster where a tile does not hold the row",
        "moe_grouped_matmul of up to 1024 experts, one, or two of the same offsets, with pointwise "
        "operations before and after",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if refused := products_reasons(fusion, _MOST_PRODUCTS):
            return refused
        reasons = [*target_reasons(self.only_target, target), *too_large_reasons(fusion)]
        fusion = ends_of(fusion).fusion
        first, *others = matmuls_of(fusion)
        for op in (first, *others):
            reasons += self._operand_reasons(op)
        for op in others:
            if (op.a.type, op.b.type, op.compute_type) != (
                first.a.type, first.b.type, first.compute_type,
            ):  # fmt: skip
                reasons.append(
                    Reason(
                        Status.NOT_SUPPORTED_DATA_TYPE,
                        "operand types",
                        f"{op.label} of {_types(op)}",
                        f"those of {first.label}: {_types(first)}",
                    )
                )
        if isinstance(first, MoeGroupedMatmul):
            reasons += self._group_reasons(first, fusion)
        epilogue = reducing_epilogue_reasons(fusion, most_columns(fusion) * MOST_BLOCKS)
        reasons += [*(epilogue or row_reasons(fusion)), *bits_reasons(fusion)]
        return (*reasons, *tile_reasons(first))

    def _group_reasons(self, op: MoeGroupedMatmul, fusion: Fusion) -> list[Reason]:
        if reductions := fusion.with_role("reduction"):
            what = f"{reductions[0].label} after {op.label}"
            return [pattern_reason(what, "pointwise operations after a grouped product")]
        if op.experts.bounds()[1] > _MOST_GROUPS:
            what = f"up to {op.experts.bounds()[1]} experts of {op.label}"
            supported = f"at most {_MOST_GROUPS}"
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "experts", what, supported)]
        return []

    def _operand_reasons(self, op: Product) -> list[Reason]:
        reasons: list[Reason] = []
        if (op.a.type, op.b.type) not in wgmma.INSTRUCTIONS:
            reasons.append(
                Reason(
                    Status.NOT_SUPPORTED_DATA_TYPE,
                    "operand types",
                    f"A {op.a.type}, B {op.b.type}",
                    "both f16, bf16, f32 or i8, or each of an fp8 type (identity casts an operand)",
                )
            )
        else:
            reasons += compute_reasons(op.compute_type, op.a.type, op.b.type)
        if op.a.shape[-1].bounds()[0] < 1:
            reasons.append(
                Reason(
                    Status.NOT_SUPPORTED_SHAPE,
                    "depth",
                    f"{op.a.shape[-1]}, which may be 0",
                    "1 or more",
                )
            )
        return reasons

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_M", _ROWS, "rows of a block's tile"),
        Knob("TILE_N", tuple(sorted(_SIDES, key=lambda side: side != 256)), "columns of the tile"),
        Knob("STAGES", STAGES, "stages in shared memory"),
        Knob(
            "TILE_CGA_M",
            (1, 2),
            "blocks of a cluster along M, which share tiles of B; of grouped rows, two share tiles "
            "of A where a group has one tile of rows too many for that",
        ),
        Knob("TILE_CGA_N", (1, 2, 4), "blocks of a cluster along N, which share tiles of A"),
        Knob("SPLIT_K_SLC", SPLITS, "blocks of a cluster that share a tile's k"),
        Knob(
            "WARP_SPEC_CFG",
            (1, 2, FRAGMENTS, PING_PONG),
            "1, 2: warpgroups that load and compute operands; 3: one that loads, and those "
            "that multiply compute the operand along the instruction's rows; 4: one that loads, "
            "and two that ping-pong: one's epilogue runs beside the other's products",
        ),
        Knob(
            "SWIZZLE",
            SWIZZLES,
            "rows of the product whose tiles follow each other, so that they find B in the L2",
        ),
        Knob("SWAP_AB", (0, 1), "1: the transpose of C is computed, from B and A"),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        return illegal_reasons(Choice.of(knobs), facts_of(fusion), target)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        m, n, _, count = map(typical, sizes_of(matmul_of(fusion)))
        found = candidates_of(facts_of(fusion), target, (m, n, count))
        return [dict(knobs) for knobs in found]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        facts, choice = facts_of(fusion), Choice.of(knobs)
        block = HopperBlock(
            (choice.tile_m, choice.tile_n),
            (choice.blocks_m, choice.blocks_n),
            choice.stages,
            facts.row.panel_k,
            choice.swaps,
            choice.splits,
            0 if choice.takes_fragments else choice.producers,
            choice.is_ping_pong,
        )
        return hopper_tile(
            block,
            facts.products,
            facts.operands.loads,
            facts.results.is_heavy,
            facts.epilogue[choice.swaps].is_direct or leaves_few(choice, facts),
            target.mma_tflops[RATE_OF[facts.row.a]],
            target,
        ).predict(_work(ends_of(fusion).fusion))

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        op = matmul_of(fusion)
        found = ["TENSOR_CORE"]
        if op.a.type == dtypes.f32:
            found.append("DOWN_CONVERT_INPUTS")
        if op.a.type.is_fp8 and not promotes(op):
            found.append("REDUCED_PRECISION_REDUCTION")
        return tuple(found)

    def register_pressure(self, knobs: Knobs) -> int:
        return Choice.of(knobs).accumulators

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> Tiling:
        return tiling_of(facts_of(fusion), Choice.of(knobs))

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: Tiling, output: Output) -> None:
        region = region.behind_parts(tile.epilogue.ends)
        emit_product(region, tile, output, matmul_matrices)


def _types(op: Product) -> str:
    return f"A {op.a.type}, B {op.b.type} in {op.compute_type}"


@remembered_at_sizes
def _work(fusion: Fusion) -> ProductWork:
    op = matmul_of(fusion)
    m, n, k, count = (typical(size) for size in sizes_of(op))
    moved_bytes = bytes_of((*fusion.inputs, *fusion.outputs))
    return ProductWork(m, n, k, count, moved_bytes, typical(groups_of(fusion)))


MATMUL_SM90 = MatmulSm90Engine()
