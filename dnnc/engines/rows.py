# pyright: basic
"""Engine rows: reductions along rows whose results flow on within the row, as one kernel.

    softmax: max, exp(x - max), sum, divide     layer norm: mean, variance, normalise, scale

A row is the elements that are reduced together.  Threads of a warp, a block or a cluster share a
row and hold it in registers, so that it is read once, however many reductions follow each other;
a longer row is read again in each pass.  Fragments lie along the row where its fastest axis is
reduced, else across rows, each thread working on several rows' elements.

Sums of columns beside that (the gradients of a norm's scale and bias) stay in registers while
blocks go through the rows; a second kernel adds up what the blocks leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as product_of
from math import gcd
from typing import Any, ClassVar, TypeGuard

from .. import dtypes
from ..codegen.fragments import kept_bytes
from ..codegen.output import Output
from ..codegen.region import Region, loop_groups
from ..codegen.row_ring import is_run
from ..codegen.row_totals import ROWS_ACROSS, parts_across
from ..codegen.totals_ahead import exchange_bytes
from ..codegen.walk import inputs_of
from ..dialect.fusion import Fusion, remembered
from ..dialect.op import Op
from ..dialect.ops import Pointwise, Reduction
from ..dialect.tensor import Tensor
from ..errors import Status
from ..expr import Expr, product, typical
from ..target import REGISTERS_PER_THREAD, STATIC_SMEM_BYTES, WARP_THREADS, Target
from .engine import Knob, Knobs, Prediction, Reason
from .product import knob_reason
from .reduced import (
    accesses_of,
    after_reasons,
    agreement_reasons,
    axis_order,
    inputs_read_again,
    output_reasons,
    read_again,
    reads_of_passes,
    reductions_of,
    region_levels,
    runs_along_row,
    sizes_along,
)
from .rows_columns import COLUMNS_BYTES, bytes_of_block
from .rows_kernel import RowsEmitter
from .rows_model import RowsModel
from .rows_ring import PRODUCER_THREADS, is_shared, memory_bytes
from .rows_tiling import RowsTiling, split_region
from .surface import (
    bytes_of,
    fp8_reasons,
    pattern_reason,
    smem_reasons,
    too_large_reasons,
)

_THREADS = 128  # of a block, at least
_MOST_THREADS = 1024
_QUARTERS = 4 * WARP_THREADS
_THREADS_OF_ROWS = (32, 1, 2, 4, 8, 16, 64, 128, 256, 512, 1024)
_ELEMENTS = (8, 0, 1, 2, 4, 16, 32, 64)
_LONG_ROW = 16384  # elements
_KEPT_BYTES = 64 << 10  # of a row, from where on it may
_EXCHANGE_BYTES = 4096  # of shared memory beside such a row, at most
_MOST_SUMS = (
    32  # of a thread, beside which fragments of a ring leave registers; of more, narrow ones
)
_NARROW = 4  # elements
_FUNCTIONS = {
    "exp", "log", "pow", "atan2", "sin", "cos", "tan", "erf", "tanh_fwd", "tanh_bwd",
    "sigmoid_fwd", "sigmoid_bwd", "swish_fwd", "swish_bwd", "gelu_fwd", "gelu_bwd",
    "gelu_approx_tanh_fwd", "gelu_approx_tanh_bwd", "elu_fwd", "elu_bwd", "softplus_fwd",
    "softplus_bwd",
}  # fmt: skip
_MOST_ACROSS = 64  # threads that share a row, where fragments lie across rows


@dataclass(frozen=True)
class RowsEngine:
    """See the file's docstring."""

    name: str = "rows"
    index: int = 6
    inlines_anchors: bool = False
    support: tuple[str, ...] = (
        "reductions of equal dims and axes, also of what other such reductions give (softmax, "
        "norms), any mode; pointwise and view operations before, pointwise ones after, of the "
        "dims of the rows or of their results; outputs of those dims; packed boolean outputs "
        "whose rows are a multiple of 8 contiguous elements; sums over all other axes beside "
        "them (gradients of scale and bias)",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if heavy := fusion.with_role("anchor"):
            return (pattern_reason(heavy[0].label, "reduction, pointwise, view"),)
        along, columns = split_reductions(fusion)
        if not along:
            return (pattern_reason("no reduction", "one reduction at least"),)
        reasons = agreement_reasons(along) + _empty_reasons(along[0])
        if not reasons:
            reasons += self._column_reasons(fusion, along[0], columns)
            reasons += after_reasons(fusion, along, columns)
            reasons += output_reasons(fusion, along[0], _holds_bytes, columns)
        reasons += fp8_reasons(fusion, target) + too_large_reasons(fusion)
        if not reasons and columns and not self.candidates(fusion, target):
            what = f"sums of columns of up to {_row_elements(fusion).bounds()[1]} elements"
            supported = "rows that the registers of a block or cluster hold"
            reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, "sums of columns", what, supported))
        return tuple(reasons)

    def _column_reasons(
        self, fusion: Fusion, first: Reduction, columns: Sequence[Reduction]
    ) -> list[Reason]:
        if columns and not runs_along_row(fusion, first):
            what = f"{columns[0].label} beside rows that are not contiguous"
            return [Reason(Status.NOT_SUPPORTED_LAYOUT, "sums of columns", what, "contiguous rows")]
        needed = sum(COLUMNS_BYTES * max(4, op.compute_type.bits // 8) for op in columns)
        if needed > STATIC_SMEM_BYTES:
            what = f"{len(columns)} sums of columns, {needed} bytes of shared memory"
            return [pattern_reason(what, f"sums of at most {STATIC_SMEM_BYTES} bytes")]
        return []

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_COLS", _THREADS_OF_ROWS, "threads of a block that share a row"),
        Knob(
            "TILE_ROWS", (0, 1, 2, 4, 8, 16, 32),
            "rows side by side in a block; 0: as many as 128 threads have, one at least",
        ),
        Knob(
            "ARRAY_SIZE_PER_THREAD", _ELEMENTS,
            "elements of a row that a thread holds; 0: each pass reads the row again",
        ),
        Knob("TILE_CGA", (1, 2, 4, 8), "blocks of a cluster that share a row"),
        Knob(
            "CTA_COUNT", (0, 1, 2, 3, 4, 8),
            "blocks of a multiprocessor that go through the rows; 0: a block for some rows",
        ),
        Knob(
            "STAGES", (0, 1, 2, 3, 4),
            "stages of rows in shared memory; 0: none; 1: a row that is read again stays there",
        ),
    )  # fmt: skip

    def knobs(self, fusion: Fusion, target: Target) -> tuple[Knob, ...]:
        return self.all_knobs

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        along, columns = split_reductions(fusion)
        threads, held = knobs["TILE_COLS"], knobs["ARRAY_SIZE_PER_THREAD"]
        blocks = knobs["TILE_CGA"]
        if blocks > 1 and target.capability < (9, 0):
            return (knob_reason(f"TILE_CGA={blocks} on {target}", "TILE_CGA=1"),)
        if blocks > 1 and threads < WARP_THREADS:
            return (knob_reason(f"TILE_CGA={blocks}, TILE_COLS={threads}", "whole warps"),)
        is_along = runs_along_row(fusion, along[0])
        if not is_along:
            if blocks > 1 or threads > _MOST_ACROSS or knobs["CTA_COUNT"]:
                what = f"TILE_COLS={threads}, TILE_CGA={blocks}, CTA_COUNT={knobs['CTA_COUNT']}"
                supported = f"TILE_COLS up to {_MOST_ACROSS}, TILE_CGA=1, CTA_COUNT=0"
                return (knob_reason(f"{what} across rows", supported),)
        elif threads < 2:
            return (knob_reason("TILE_COLS=1", "2 or more along rows"),)
        if (rows := knobs["TILE_ROWS"]) and (not is_along or rows * threads < _THREADS):
            what = f"TILE_ROWS={rows}, TILE_COLS={threads}"
            return (knob_reason(what, f"TILE_ROWS=0, or {_THREADS} threads along rows"),)
        row = _row_elements(fusion).bounds()[1]
        if held and held * threads * blocks < row:
            what = f"{threads * blocks} threads of {held} elements for rows of {row}"
            return (knob_reason(what, "as many as a row has, or ARRAY_SIZE_PER_THREAD=0"),)
        launched = _launched(knobs, is_along)
        if launched > _MOST_THREADS:
            what = f"STAGES={knobs['STAGES']}, TILE_COLS={threads}"
            return (knob_reason(what, f"{_MOST_THREADS} threads with the warp that loads"),)
        registers = -(-_registers(fusion, knobs) // 8) * 8
        # Each quarter of a multiprocessor has its registers, and warps of every block.
        resident = -(-launched // _QUARTERS) * _QUARTERS * max(1, knobs["CTA_COUNT"])
        if registers * resident > target.registers_sm or registers > REGISTERS_PER_THREAD:
            what = f"{held} elements of each of {resident} threads of a multiprocessor"
            return (knob_reason(what, "fewer: they do not fit the registers"),)
        if (needed := _static_bytes(fusion, knobs)) > STATIC_SMEM_BYTES:
            what = f"{needed} bytes of shared memory for the totals of {len(along)} reductions"
            return (knob_reason(what, f"{STATIC_SMEM_BYTES}: fewer threads a row"),)
        if columns and not (held and knobs["CTA_COUNT"]):
            return (knob_reason("sums of columns", "held rows, CTA_COUNT of 1 or more"),)
        needed += _dynamic_bytes(fusion, knobs)
        if (needed + 1024) * max(1, knobs["CTA_COUNT"]) > target.smem_sm_bytes:
            what = f"{needed} bytes of shared memory for each of {knobs['CTA_COUNT']} blocks"
            return (knob_reason(what, f"{target.smem_sm_bytes} in all"),)
        if reasons := smem_reasons(needed, target):
            return reasons
        return self._ring_reasons(knobs, fusion, target, is_along=is_along)

    def _ring_reasons(
        self, knobs: Knobs, fusion: Fusion, target: Target, *, is_along: bool
    ) -> tuple[Reason, ...]:
        """Why rows can't come through shared memory."""
        if not (stages := knobs["STAGES"]):
            return ()
        if stages == 1:
            fits = _static_bytes(fusion, knobs) <= _EXCHANGE_BYTES
            if is_along and not knobs["ARRAY_SIZE_PER_THREAD"] and _reads_again(fusion) and fits:
                return ()
            what = f"STAGES=1, ARRAY_SIZE_PER_THREAD={knobs['ARRAY_SIZE_PER_THREAD']}"
            return (knob_reason(what, "ARRAY_SIZE_PER_THREAD=0, inputs along rows"),)
        whole, _ = _staged(fusion)
        if target.capability < (9, 0) or not (is_along and whole):
            what = f"STAGES={stages} on {target}, {len(whole)} inputs whose rows are runs of bytes"
            return (knob_reason(what, "sm_90, rows of contiguous multiples of 16 bytes"),)
        if not (knobs["CTA_COUNT"] and knobs["ARRAY_SIZE_PER_THREAD"]):
            what = f"STAGES={stages} with CTA_COUNT={knobs['CTA_COUNT']}"
            return (knob_reason(what, "CTA_COUNT of 1 or more, held rows"),)
        part = knobs["TILE_COLS"] * knobs["ARRAY_SIZE_PER_THREAD"]
        least = _row_elements(fusion).bounds()[0]
        if (knobs["TILE_CGA"] - 1) * part >= least:
            what = f"TILE_CGA={knobs['TILE_CGA']}, {part} elements of each block, rows of {least}"
            return (knob_reason(what, "rows of which every block has some"),)
        return ()

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        along, columns = split_reductions(fusion)
        row = _row_elements(fusion).bounds()[1]
        is_along = runs_along_row(fusion, along[0])
        least = _width(fusion) if is_along else 1
        found: list[Knobs] = []
        counts, stages_of = ((1, 2, 3, 4, 8), (0, 3, 4)) if columns else ((0,), (0,))
        for blocks, threads, held, count, stages, rows in product_of(
            (1, 2, 4, 8), _THREADS_OF_ROWS, sorted(_ELEMENTS), counts, (1, *stages_of), (0, 8, 16)
        ):
            if rows and (stages < 2 or is_shared(threads, blocks)):
                continue  # more than a warp's rows have to wait for each other
            if stages == 1 and not self._is_worth_keeping(fusion, blocks, threads, target):
                continue
            is_slow = is_along and not held and threads * 64 < min(row, 1 << 15)
            if is_slow or (blocks > 1 and row <= (_LONG_ROW if columns else 2 * _LONG_ROW - 1)):
                continue  # a cluster waits longer than a block; few threads take long
            knobs = {
                "TILE_COLS": threads, "TILE_ROWS": rows, "ARRAY_SIZE_PER_THREAD": held,
                "TILE_CGA": blocks, "CTA_COUNT": count, "STAGES": stages,
            }  # fmt: skip
            # More would have nothing to do.
            is_wasteful = held > least and held // 2 * threads * blocks >= row
            is_wasteful |= 0 < held < least or (threads > 2 and threads // 2 * least >= row)
            if not is_wasteful and not self.legal(knobs, fusion, target):
                found.append(knobs)
        return found

    def _is_worth_keeping(self, fusion: Fusion, blocks: int, threads: int, target: Target) -> bool:
        """Whether a row that is read again had better stay in shared memory.

        One block of a multiprocessor computes while nothing is loaded: functions before a
        reduction take longer than reading again does, if they have a pass of their own.
        """
        if threads != _MOST_THREADS or blocks > 1:
            return False
        if _has_functions_before_sums(fusion) and not _sums_of_exponentials(fusion):
            return False
        row = _row_elements(fusion).bounds()[1]
        return row * sum(max(8, t.type.bits) // 8 for t in _reads_again(fusion)) >= _KEPT_BYTES

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        along, columns = split_reductions(fusion)
        reduced, kept = sizes_along(along[0])
        moved = bytes_of((*fusion.inputs, *fusion.outputs))
        whole = bytes_of(t for t in fusion.inputs if t.shape == along[0].x.shape)
        model = RowsModel(
            rows=typical(product(kept)),
            row=typical(product(reduced)),
            moved=moved,
            read=whole,
            levels=_passes(fusion, knobs),
            threads=knobs["TILE_COLS"],
            block=_block(knobs, runs_along_row(fusion, along[0])),
            width=1 if runs_along_row(fusion, along[0]) else _width(fusion),
            held=knobs["ARRAY_SIZE_PER_THREAD"],
            blocks=knobs["TILE_CGA"],
            resident=knobs["CTA_COUNT"],
            is_staged=knobs["STAGES"] > 1,
            slot_bytes=_slot_bytes(fusion, knobs, target),
            registers=_registers(fusion, knobs),
            columns=len(columns),
        )
        return model.predict(target)

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        return ()

    # ---- tiling

    def tile(self, region: Region, knobs: Knobs, target: Target) -> dict[str, Any]:
        reductions, columns = split_region(region)
        dims = region.dims_of(inputs_of(reductions[0])[0])
        kept_dims = region.dims_of(reductions[0].results[0])
        kept = [axis for axis in range(len(dims)) if kept_dims[axis] == dims[axis]]
        accesses = accesses_of(region, reductions)
        order = axis_order(dims, accesses)
        groups = [
            loop_groups(dims, [a for a in order if (a in kept) == is_kept], accesses)
            for is_kept in (True, False)
        ]
        fastest = [axis for axis in order if dims[axis].constant != 1][-1:]
        is_row = not fastest or fastest[0] not in kept
        # Views may have hidden from `legal` how memory runs; along rows everything is right.
        is_row |= bool(columns or knobs["TILE_CGA"] > 1 or knobs["CTA_COUNT"])
        is_row |= knobs["TILE_COLS"] > _MOST_ACROSS or knobs["STAGES"] == 1
        is_row |= any(t.type.kind == "b" and t.shape == tuple(dims) for _, t in region.outputs)
        inner = groups[1 if is_row else 0][-1:]
        size = product(dims[axis] for axis in inner[0]) if inner else Expr.of(1)
        smallest = min(max(8, t.type.bits) for t, _ in accesses)
        width = gcd(size.known_divisor(), max(1, 128 // smallest))
        if _is_narrow(len(columns), knobs):
            width = gcd(width, _NARROW)
        threads, blocks = knobs["TILE_COLS"], knobs["TILE_CGA"]
        held = knobs["ARRAY_SIZE_PER_THREAD"]
        row = product(dims[axis] for group in groups[1] for axis in group)
        fragments = -(-row.bounds()[1] // (width if is_row else 1))
        step = threads * blocks
        again = read_again(region, reads_of_passes(region, region_levels(region, reductions)))
        count = -(-fragments // step) if held else 0
        return {
            "kept": groups[0],
            "reduced": groups[1],
            "vector_elems": width,
            "along": "row" if is_row else "column",
            "threads": _block(knobs, is_row),
            "row_threads": threads,
            "held": count,
            "is_whole": row.constant is not None and bool(held) and count * step == fragments,
            "cluster": blocks,
            "blocks": knobs["CTA_COUNT"],
            "stages": knobs["STAGES"] if knobs["STAGES"] > 1 else 0,
            "slots": _slots([tensor for _, tensor in again], fragments, width, knobs, target),
        }

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: Mapping[str, Any], output: Output) -> None:
        RowsEmitter(region, RowsTiling.of(tile), output).emit()


# ---- what a fusion says


@remembered
def split_reductions(fusion: Fusion) -> tuple[list[Reduction], list[Reduction]]:
    """(reductions along rows, sums of columns): the first reduction says what a row is, if
    others need it; else the one whose axes run fastest."""
    found = reductions_of(fusion)
    below = [{r for t in op.operands for r in fusion.upstream(t)} for op in found]
    needed = [op for op in found if any(op in ops for ops in below) or _flows_on(fusion, op)]
    first = (needed or found)[:1]
    columns = [op for op in found if first and _is_across(op, first[0])]
    return [op for op in found if op not in columns], columns


def _flows_on(fusion: Fusion, op: Reduction) -> bool:
    """Whether its result goes into work of its input's dims."""
    return any(
        t.shape == op.x.shape and op in fusion.upstream(t) for o in fusion.ops for t in o.results
    )


def _is_across(op: Reduction, row: Reduction) -> bool:
    """Whether a reduction is over all axes that another one keeps."""
    kept = [axis for axis, n in enumerate(row.x.shape) if axis not in row.axes and n.constant != 1]
    return op.x.shape == row.x.shape and bool(kept) and list(op.axes) == kept


@remembered
def _levels(fusion: Fusion) -> list[int]:
    along, _ = split_reductions(fusion)
    depths: dict[Op, int] = {}
    for op in along:
        above = [depths[r] for r in along if r in depths and r in fusion.upstream(op.x)]
        depths[op] = 1 + max(above, default=0)
    return sorted(set(depths.values()))


def _passes(fusion: Fusion, knobs: Knobs) -> int:
    """Passes over a row for its reductions: some are made of what an earlier pass has found."""
    found = len(_levels(fusion))
    return found if knobs["ARRAY_SIZE_PER_THREAD"] else found - len(_sums_of_exponentials(fusion))


@remembered
def _sums_of_exponentials(fusion: Fusion) -> list[Reduction]:
    """Sums of exp(x - max(x)); see `codegen.exponentials`, which asks the region itself."""
    along, _ = split_reductions(fusion)
    if not runs_along_row(fusion, along[0]):
        return []
    return [op for op in along if _maximum_behind(fusion, op)]


def _maximum_behind(fusion: Fusion, op: Reduction) -> bool:
    exponential = fusion.producers.get(op.x)
    if op.mode != "add" or not _is_pointwise(exponential, "exp") or op.x.type is not dtypes.f32:
        return False
    centred = fusion.producers.get(exponential.x)
    if not _is_pointwise(centred, "sub") or centred.b is None:
        return False
    maximum = fusion.producers.get(centred.b)
    return isinstance(maximum, Reduction) and (maximum.mode, maximum.x) == ("max", centred.x)


def _is_pointwise(op: Op | None, mode: str) -> TypeGuard[Pointwise]:
    return isinstance(op, Pointwise) and op.mode == mode


@remembered
def _row_elements(fusion: Fusion) -> Expr:
    along, _ = split_reductions(fusion)
    return product(sizes_along(along[0])[0])


@remembered
def _width(fusion: Fusion) -> int:
    smallest = min(max(8, t.type.bits) for t in (*fusion.inputs, *fusion.outputs))
    return max(1, 128 // smallest)


@remembered
def _whole_and_vectors(fusion: Fusion) -> tuple[int, int]:
    """How many inputs have the dims of the rows, and how many those of one row."""
    first = split_reductions(fusion)[0][0]
    dims = first.x.shape
    vectors = sum(
        t.shape != dims and t.rank == len(dims)
        and all(t.shape[axis] == dims[axis] for axis in first.axes)
        for t in fusion.inputs
    )  # fmt: skip
    return sum(t.shape == dims for t in fusion.inputs), vectors


def _registers(fusion: Fusion, knobs: Knobs) -> int:
    """Of a thread: an estimate, so that nothing is spilled."""
    along, columns = split_reductions(fusion)
    held = knobs["ARRAY_SIZE_PER_THREAD"]
    whole, vectors = _whole_and_vectors(fusion)
    if not held:
        return 64
    if not runs_along_row(fusion, along[0]):
        held *= _width(fusion)
    if knobs["STAGES"] > 1:
        sums = held * len(columns)
        if not is_shared(knobs["TILE_COLS"], knobs["TILE_CGA"]):
            return round(52 + 1.6 * sums)  # these threads fill the ring, too
        return (32 if _is_narrow(len(columns), knobs) else 52) + sums
    if columns:
        return 32 + held * (whole + 2 * len(columns))
    levels = len(_levels(fusion)) - 1
    return round(20 + held * (0.9 * whole + 0.5 * vectors + 0.8 * levels + 0.3))


def _is_narrow(columns: int, knobs: Knobs) -> bool:
    """Whether a ring's fragments are narrow, beside so many sums of columns."""
    return knobs["STAGES"] > 1 and columns * knobs["ARRAY_SIZE_PER_THREAD"] > _MOST_SUMS


def _block(knobs: Knobs, is_along: bool) -> int:
    """Threads of a block that work on rows; across rows, several lie side by side, so that whole
    sectors are read."""
    threads, rows = knobs["TILE_COLS"], knobs["TILE_ROWS"]
    return threads * rows or max(_THREADS, threads if is_along else ROWS_ACROSS * threads)


def _launched(knobs: Knobs, is_along: bool) -> int:
    """Threads of a block, with those that load."""
    threads, blocks = knobs["TILE_COLS"], knobs["TILE_CGA"]
    loads = knobs["STAGES"] > 1 and is_shared(threads, blocks)
    return _block(knobs, is_along) + (PRODUCER_THREADS if loads else 0)


@remembered
def _staged(fusion: Fusion) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs whose rows a ring may bring, and those that are the same in all rows."""
    first = split_reductions(fusion)[0][0]
    dims = first.x.shape
    row = tuple(n if axis in first.axes else Expr.of(1) for axis, n in enumerate(dims))
    runs = [t for t in fusion.inputs if is_run(t, first.axes)]
    return [t for t in runs if t.shape == dims], [t for t in runs if t.shape == row]


def _dynamic_bytes(fusion: Fusion, knobs: Knobs) -> int:
    """Shared memory of a block for its ring, and for its sums of columns when all rows are done."""
    if knobs["STAGES"] <= 1:
        return _sums_bytes(fusion, knobs)
    whole, vectors = _staged(fusion)
    threads, blocks = knobs["TILE_COLS"], knobs["TILE_CGA"]
    row, part = _row_elements(fusion).bounds()[1], knobs["ARRAY_SIZE_PER_THREAD"] * threads
    elements, rows = row if blocks == 1 else part, _block(knobs, True) // threads
    later = _sums_bytes(fusion, knobs)
    return memory_bytes(whole, vectors, elements, rows, knobs["STAGES"], later)


def _sums_bytes(fusion: Fusion, knobs: Knobs) -> int:
    """Dynamic shared memory in which the rows of a block are added up."""
    _, columns = split_reductions(fusion)
    threads = knobs["TILE_COLS"]
    sizes = [max(4, op.compute_type.bits // 8) for op in columns]
    elements = threads * max(_width(fusion), knobs["ARRAY_SIZE_PER_THREAD"])
    return bytes_of_block(_block(knobs, True) // threads, elements, sizes)


def _static_bytes(fusion: Fusion, knobs: Knobs) -> int:
    """Of shared memory, where totals of rows are exchanged."""
    along, _ = split_reductions(fusion)
    threads = knobs["TILE_COLS"]
    sizes = sum(max(4, op.compute_type.bits // 8) for op in along)
    if runs_along_row(fusion, along[0]):
        blocks, rows = knobs["TILE_CGA"], _block(knobs, True) // threads
        if knobs["STAGES"] > 1:
            if not is_shared(threads, blocks):
                return 0
            each = [max(4, op.compute_type.bits // 8) for op in along]
            levels = len(_levels(fusion))
            return exchange_bytes(each, threads // WARP_THREADS, rows, blocks, levels)
        parts = max(1, threads // WARP_THREADS) * blocks
        return 2 * rows * parts * sizes if parts > 1 else 0
    rows = _block(knobs, False) // threads
    return parts_across(threads, rows) * rows * _width(fusion) * sizes if threads > 1 else 0


@remembered
def _reads_again(fusion: Fusion) -> list[Tensor]:
    return inputs_read_again(fusion, split_reductions(fusion)[0])


@remembered
def _has_functions_before_sums(fusion: Fusion) -> bool:
    along, _ = split_reductions(fusion)
    above = {op for r in along for op in fusion.upstream(r.x)}
    return any(isinstance(op, Pointwise) and op.mode in _FUNCTIONS for op in above)


def _slots(tensors: Sequence[Tensor], fragments: int, width: int, knobs: Knobs, t: Target) -> int:
    """Fragments that a thread keeps in shared memory, of so many of a row: what fits."""
    if knobs["STAGES"] != 1 or not tensors:
        return 0
    threads = _block(knobs, True)
    most = (t.smem_block_bytes - _EXCHANGE_BYTES) // kept_bytes(tensors, width, 1, threads)
    return min(most, -(-fragments // (knobs["TILE_COLS"] * knobs["TILE_CGA"])))


def _slot_bytes(fusion: Fusion, knobs: Knobs, target: Target) -> int:
    tensors, width = _reads_again(fusion), _width(fusion)
    fragments = -(-_row_elements(fusion).bounds()[1] // width)
    slots = _slots(tensors, fragments, width, knobs, target)
    return kept_bytes(tensors, width, slots, _block(knobs, True))


def _holds_bytes(output: Tensor, first: Reduction) -> bool:
    """Whether each byte of a boolean output has elements of one row, one after the other."""
    if output.elements().constant == 1:
        return True
    if output.shape != first.x.shape or first.axes != (output.rank - 1,):
        return False
    strides = [s for n, s in zip(output.shape, output.layout, strict=True) if n.constant != 1]
    is_last = output.layout[-1].constant == 1 and output.shape[-1].known_divisor() % 8 == 0
    return is_last and all(s.known_divisor() % 8 == 0 for s in strides[:-1])


def _empty_reasons(first: Reduction) -> list[Reason]:
    """Rows may not be empty: what a thread reads past the end of one is its last element."""
    for axis in first.axes:
        if first.x.shape[axis].bounds()[0] < 1:
            what = f"rows along axis {axis}, whose size {first.x.shape[axis]} may be 0"
            supported = "a symbol whose min is at least 1"
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "rows", what, supported)]
    return []


ROWS = RowsEngine()
