# pyright: basic
"""Engine rows: reductions along rows whose results flow on within the row, as one kernel.

    softmax: max, exp(x - max), sum, divide     layer norm: mean, variance, normalise, scale

A row is the elements that are reduced together.  Threads of a warp, a block or a cluster share a
row and hold it in registers, so that it is read once, however many reductions follow each other;
a longer row is read again in each pass.  Fragments lie along the row where its fastest axis is
reduced, else across rows, each thread working on several rows' elements.

Sums of columns beside that (the gradients of a norm's scale and bias) stay in registers while
blocks go through the rows; a second kernel adds up what the blocks leave.  The largest or smallest
element of all rows (the amax of what is quantised) stays in a register of each thread, and blocks
meet in the output (`rows.extremes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ...codegen.output import Output
from ...codegen.region import Region
from ...dialect.averages import total_type
from ...dialect.fusion import Fusion
from ...dialect.ops import Reduction
from ...dialect.tensor import Tensor
from ...errors import Status
from ...expr import product, typical
from ...target import STATIC_SMEM_BYTES, Target
from ..engine import Engine, Knob, Knobs, Marks, Prediction, Reason
from ..surface import (
    MEMSET_SECONDS,
    bytes_of,
    count_reasons,
    fp8_reasons,
    pattern_reason,
    too_large_reasons,
)
from ..views.reduced import (
    after_reasons,
    agreement_reasons,
    holds_bytes,
    output_reasons,
    runs_along_row,
    sizes_along,
)
from .choice import RowsChoice
from .extremes import extreme_reasons
from .facts import (
    along_levels,
    block_threads,
    extremes_of,
    held_of,
    parts_of,
    passes_of,
    registers_of,
    row_elements,
    split_reductions,
    width_of,
    without_extremes,
)
from .forms import CONFIGS, ELEMENTS, THREADS, worth_a_look
from .kernel import RowsEmitter
from .limits import illegal
from .model import RowsBlock, RowsModel, RowsWork
from .records import RowsTiling
from .same_pass import fixed_of
from .shared_layout import COLUMNS_BYTES, SharedLayout
from .tiling import tiling_of


@dataclass(frozen=True)
class RowsEngine(Engine):
    """See the file's docstring."""

    tiling = RowsTiling
    name: str = "rows"
    index: int = 6
    families: tuple[str, ...] = ("reduction",)
    support: tuple[str, ...] = (
        "reductions of equal dims and axes, also of what other such reductions give (softmax, "
        "norms), any mode; pointwise and view operations before, pointwise ones after, of the "
        "dims of the rows or of their results; outputs of those dims; packed boolean outputs "
        "whose rows are a multiple of 8 contiguous elements; sums over all other axes beside "
        "them (gradients of scale and bias), or amax, max and min over all axes, in FLOAT, as f32 "
        "outputs that nothing else reads (the amax of what is quantised)",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if heavy := fusion.with_role("anchor"):
            return (pattern_reason(heavy[0].label, "reduction, pointwise, view"),)
        along, columns = split_reductions(fusion)
        if not along:
            return (pattern_reason("no reduction", "one reduction at least"),)
        reasons = agreement_reasons(along) + _empty_reasons(along[0]) + _count_reasons(along[0])
        reasons += extreme_reasons(fusion, extremes_of(fusion), columns)
        if not reasons:
            rest = without_extremes(fusion)
            reasons += self._column_reasons(fusion, along[0], columns)
            reasons += after_reasons(rest, along, columns)
            reasons += output_reasons(rest, along[0], _holds_bytes, columns)
        reasons += fp8_reasons(fusion, target) + too_large_reasons(fusion)
        if not reasons and columns and not self.candidates(fusion, target):
            what = f"sums of columns of up to {row_elements(fusion).bounds()[1]} elements"
            supported = "rows that the registers of a block or cluster hold"
            reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, "sums of columns", what, supported))
        return tuple(reasons)

    def _column_reasons(
        self, fusion: Fusion, first: Reduction, columns: Sequence[Reduction]
    ) -> list[Reason]:
        if columns and not runs_along_row(fusion, first):
            what = f"{columns[0].label} beside rows that are not contiguous"
            return [Reason(Status.NOT_SUPPORTED_LAYOUT, "sums of columns", what, "contiguous rows")]
        needed = sum(COLUMNS_BYTES * max(4, total_type(fusion, op).bits // 8) for op in columns)
        if needed > STATIC_SMEM_BYTES:
            what = f"{len(columns)} sums of columns, {needed} bytes of shared memory"
            return [pattern_reason(what, f"sums of at most {STATIC_SMEM_BYTES} bytes")]
        return []

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_COLS", THREADS, "threads of a block that share a row"),
        Knob(
            "TILE_ROWS", (0, 1, 2, 4, 8, 16, 32),
            "rows side by side in a block; 0: as many as 128 threads have, one at least",
        ),
        Knob(
            "ARRAY_SIZE_PER_THREAD", ELEMENTS,
            "elements of a row that a thread holds; 0: each pass reads the row again",
        ),
        Knob("TILE_CGA", (1, 2, 4, 8), "blocks of a cluster that share a row"),
        Knob(
            "CTA_COUNT", (0, 1, 2, 3, 4, 8),
            "blocks of an SM that go through the rows; 0: a block for some rows",
        ),
        Knob(
            "STAGES", (0, 1, 2, 3, 4),
            "stages of rows in shared memory; 0: none; 1: a row that is read again stays there",
        ),
        Knob(
            "KERNEL_CFG", CONFIGS,
            "2: warps go through rings on their own, and the kernel that adds up columns starts "
            "early",
        ),
    )  # fmt: skip

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        return illegal(RowsChoice.of(knobs), fusion, target)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        return [choice.knobs for choice in worth_a_look(fusion, target)]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        choice = RowsChoice.of(knobs)
        along, columns = split_reductions(fusion)
        reduced, kept = sizes_along(along[0])
        moved = bytes_of((*fusion.inputs, *fusion.outputs))
        whole = bytes_of(t for t in fusion.inputs if t.shape == along[0].x.shape)
        is_row = runs_along_row(fusion, along[0])
        work = RowsWork(
            rows=typical(product(kept)),
            row=typical(product(reduced)),
            moved=moved,
            read=whole,
            levels=len(along_levels(fusion)),
            passes=passes_of(fusion, choice),
            columns=len(columns),
            has_extremes=bool(extremes_of(fusion)),
        )
        block = RowsBlock(
            threads=block_threads(choice, is_row),
            row_threads=choice.threads,
            width=1 if is_row else width_of(fusion),
            held=held_of(fusion, choice),
            blocks=choice.blocks,
            resident=choice.resident,
            ahead=max(0, choice.stages - 1),
            config=choice.config,
            registers=registers_of(fusion, choice),
            slot_bytes=SharedLayout(tiling_of(fusion, choice, target)).slot_bytes,
        )
        found = RowsModel(work, block).predict(target)
        if work.has_extremes:
            return replace(found, seconds=found.seconds + MEMSET_SECONDS)
        return found

    # ---- lowering

    def marks(self, fusion: Fusion) -> Marks:
        return Marks(parts=parts_of(fusion).named(), fixed=fixed_of(fusion))

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> RowsTiling:
        return tiling_of(fusion, RowsChoice.of(knobs), target)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: RowsTiling, output: Output) -> None:
        RowsEmitter(region, tile, output).emit()


# ---- what it takes


def _holds_bytes(output: Tensor, first: Reduction) -> bool:
    """Whether each byte of a boolean output has elements of one row, one after the other."""
    if output.elements().constant == 1:
        return True
    runs_along = output.shape[-1].constant != 1 and output.layout[-1].constant == 1
    return runs_along and first.axes == (output.rank - 1,) and holds_bytes(output, first)


def _count_reasons(first: Reduction) -> list[Reason]:
    """Rows, and the elements of each, are counted in 31 bits."""
    for what, extents in zip(("elements of a row", "rows"), sizes_along(first), strict=True):
        if reasons := count_reasons(product(extents), what):
            return reasons
    return []


def _empty_reasons(first: Reduction) -> list[Reason]:
    """Rows may not be empty: what a thread reads past the end of one is its last element."""
    for axis in first.axes:
        if first.x.shape[axis].bounds()[0] < 1:
            what = f"rows along axis {axis}, whose size {first.x.shape[axis]} may be 0"
            supported = "a symbol whose min is at least 1"
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "rows", what, supported)]
    return []


ROWS = RowsEngine()
