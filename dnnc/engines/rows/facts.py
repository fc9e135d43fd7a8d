# pyright: basic
"""Reads a fusion for engine rows: its reductions, and what its kernels take of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from ... import dtypes
from ...codegen.memory.row_ring import is_run
from ...codegen.totals.row_totals import ROWS_ACROSS, parts_across
from ...codegen.totals.totals_ahead import exchange_bytes
from ...codegen.walk.fragments import kept_bytes
from ...dialect.averages import total_type
from ...dialect.fusion import Fusion, remembered
from ...dialect.op import Op
from ...dialect.ops import Pointwise, Reduction
from ...dialect.tensor import Tensor
from ...expr import Expr, product
from ...target import WARP_THREADS, Target
from ..views.reduced import (
    inputs_read_again,
    is_squared_distance,
    reductions_of,
    runs_along_row,
    sizes_along,
)
from .choice import RowsChoice
from .columns import bytes_of_block
from .extremes import BYTES, MODES
from .ring import PRODUCER_THREADS, memory_bytes
from .tiling import RowParts, is_shared

LEAST_THREADS = 128  # of a block
_LINE_BYTES = 128
EXCHANGE_BYTES = 6144  # of shared memory beside a row that stays there, at most
NARROW = 4  # elements of a narrow fragment
_MOST_SUMS = 32  # of a thread, beside which wide fragments of a ring leave registers
_FUNCTIONS = {
    "exp", "log", "pow", "atan2", "sin", "cos", "tan", "erf", "tanh_fwd", "tanh_bwd",
    "sigmoid_fwd", "sigmoid_bwd", "swish_fwd", "swish_bwd", "gelu_fwd", "gelu_bwd",
    "gelu_approx_tanh_fwd", "gelu_approx_tanh_bwd", "elu_fwd", "elu_bwd", "softplus_fwd",
    "softplus_bwd",
}  # fmt: skip


def split_reductions(fusion: Fusion) -> tuple[list[Reduction], list[Reduction]]:
    """(reductions along rows, sums of columns), see `parts_of`."""
    parts = parts_of(fusion)
    return [*parts.along], [*parts.columns]


def extremes_of(fusion: Fusion) -> Sequence[tuple[Reduction, Reduction]]:
    """The largest and smallest elements of all rows, see `RowParts`."""
    return parts_of(fusion).extremes


@remembered
def parts_of(fusion: Fusion) -> RowParts:
    """The reductions of a fusion by what they are to the kernels.

    The first reduction says what a row is, if others need it; else the one whose axes run fastest.
    """
    found = reductions_of(fusion)
    below = [{r for t in op.operands for r in fusion.upstream(t)} for op in found]
    needed = [op for op in found if any(op in ops for ops in below) or _flows_on(fusion, op)]
    first = list(needed or found)[:1]
    if not first:
        return RowParts(())
    extremes = [
        (op, source)
        for op in found
        if op not in first and (source := _elements_of(fusion, op, first[0])) is not None
    ]
    beside = set[Op](op for op, _ in extremes)
    columns = [op for op in found if op not in beside and _is_across(op, first[0])]
    beside.update(source for op, source in extremes if not _is_read_beside(fusion, source, op))
    along = [op for op in found if op not in beside and op not in columns]
    return RowParts(along or first, columns, extremes)


def _elements_of(fusion: Fusion, op: Reduction, row: Reduction) -> Reduction | None:
    """The reduction whose elements an extreme of all rows is of; None: there is none."""
    is_whole = op.y.elements().constant == 1 and row.y.elements().constant != 1
    if op.mode not in MODES or op.index is not None or not is_whole:
        return None
    if op.x.shape == row.x.shape:
        return op
    source = fusion.producers.get(op.x)
    if not isinstance(source, Reduction) or (source.mode, source.index) != (op.mode, None):
        return None
    is_of_rows = (source.x.shape, source.y.shape) == (row.x.shape, row.y.shape)
    return source if is_of_rows else None


def _is_read_beside(fusion: Fusion, source: Reduction, op: Reduction) -> bool:
    """Whether more than an extreme needs each row's."""
    others = [other for other in fusion.ops if source.y in other.operands and other is not op]
    return source is not op and (bool(others) or source.y in fusion.outputs)


@remembered
def without_extremes(fusion: Fusion) -> Fusion:
    """The rest, as it is where there are none."""
    parts = parts_of(fusion)
    if not parts.extremes:
        return fusion
    left_out = set[Op](op for pair in parts.extremes for op in pair)
    left_out = left_out.difference(parts.along, parts.columns)
    outputs = {op.y for op, _ in parts.extremes}
    return Fusion(
        fusion.index,
        tuple(op for op in fusion.ops if op not in left_out),
        tuple(t for t in fusion.outputs if t not in outputs),
    )


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
def levels_of(fusion: Fusion) -> list[int]:
    along, _ = split_reductions(fusion)
    depths: dict[Op, int] = {}
    for op in along:
        above = [depths[r] for r in along if r in depths and r in fusion.upstream(op.x)]
        depths[op] = 1 + max(above, default=0)
    return sorted(set(depths.values()))


def passes_of(fusion: Fusion, choice: RowsChoice) -> int:
    """Passes over a row for its reductions: some are made of what an earlier pass has found."""
    found = len(levels_of(fusion))
    return found if choice.held else found - len(sums_of_exponentials(fusion))


@remembered
def sums_of_exponentials(fusion: Fusion) -> list[Reduction]:
    """Sums of exp(x - max(x)); see `codegen.totals.exponentials`, which asks the region itself."""
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
def row_elements(fusion: Fusion) -> Expr:
    along, _ = split_reductions(fusion)
    return product(sizes_along(along[0])[0])


@remembered
def width_of(fusion: Fusion) -> int:
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


def held_of(fusion: Fusion, choice: RowsChoice) -> int:
    """Elements of a row that a thread holds, at most; along rows whole fragments, and no more than
    there are.

    Example: of 5120 elements by 128 threads 40, ARRAY_SIZE_PER_THREAD=64.
    """
    most = choice.held
    if not is_along(fusion):
        return most
    width = width_of(fusion)
    each = width * choice.threads * choice.blocks
    return min(most, -(-row_elements(fusion).bounds()[1] // each) * width)


def registers_of(fusion: Fusion, choice: RowsChoice) -> int:
    """Registers of a thread: an estimate, so that nothing is spilled."""
    along, columns = split_reductions(fusion)
    held = held_of(fusion, choice)
    whole, vectors = _whole_and_vectors(fusion)
    if not held:
        return 64
    if not runs_along_row(fusion, along[0]):
        held *= width_of(fusion)
    sums = held * len(columns)
    if choice.has_own_rings:
        if not is_shared(choice.threads, choice.blocks):
            return round(52 + 1.6 * sums)  # these threads fill the ring, too
        return (32 if is_narrow(len(columns), choice) else 52) + sums
    if columns and choice.stages:
        return round(40 + sums + 1.4 * held)
    if columns:
        return 32 + held * (whole + 2 * len(columns))
    levels = len(levels_of(fusion)) - 1
    needed = round(20 + held * (0.9 * whole + 0.5 * vectors + 0.8 * levels + 0.3))
    return needed + len(extremes_of(fusion))


def is_narrow(columns: int, choice: RowsChoice) -> bool:
    """Whether fragments of warps' own rings are narrow, beside so many sums of columns."""
    return choice.has_own_rings and columns * choice.held > _MOST_SUMS


def block_threads(choice: RowsChoice, is_along: bool) -> int:
    """Threads of a block that work on rows; across rows, several lie side by side, so that whole
    sectors are read."""
    threads, rows = choice.threads, choice.rows
    return threads * rows or max(LEAST_THREADS, threads if is_along else ROWS_ACROSS * threads)


def launched_threads(choice: RowsChoice, is_along: bool) -> int:
    """Threads of a block, with those that load."""
    threads, blocks = choice.threads, choice.blocks
    loads = choice.has_own_rings and is_shared(threads, blocks)
    return block_threads(choice, is_along) + (PRODUCER_THREADS if loads else 0)


def part_elements(fusion: Fusion, choice: RowsChoice) -> int:
    """Elements of a row that a block of a cluster takes, where each takes neighbouring ones.

    At most: fragments are narrower where rows are no multiple of them, and parts smaller.
    """
    _, columns = split_reductions(fusion)
    width = width_of(fusion)
    if is_narrow(len(columns), choice):
        width = min(width, NARROW)
    threads, row = choice.threads, row_elements(fusion).bounds()[1]
    return -(-row // (width * threads * choice.blocks)) * width * threads


@remembered
def ring_inputs(fusion: Fusion) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs whose rows a ring may bring, and those that are the same in all rows."""
    first = split_reductions(fusion)[0][0]
    dims = first.x.shape
    row = tuple(n if axis in first.axes else Expr.of(1) for axis, n in enumerate(dims))
    runs = [t for t in fusion.inputs if is_run(t, first.axes)]
    return [t for t in runs if t.shape == dims], [t for t in runs if t.shape == row]


def dynamic_bytes(fusion: Fusion, choice: RowsChoice, target: Target) -> int:
    """Shared memory of a block for its ring or for rows that are read again, and for its sums of
    columns when all rows are done."""
    if choice.stages == 1:
        return slot_bytes(fusion, choice, target)
    if not choice.stages:
        return _sums_bytes(fusion, choice)
    whole, vectors = ring_inputs(fusion)
    if not choice.has_own_rings:
        vectors = []
    elements = row_elements(fusion).bounds()[1]
    if choice.blocks > 1:
        elements = part_elements(fusion, choice)
    rows = block_threads(choice, True) // choice.threads
    later = _sums_bytes(fusion, choice)
    return memory_bytes(whole, vectors, elements, rows, choice.stages, later)


def _sums_bytes(fusion: Fusion, choice: RowsChoice) -> int:
    """Dynamic shared memory in which the rows of a block are added up."""
    _, columns = split_reductions(fusion)
    threads = choice.threads
    sizes = [_total_bytes(fusion, op) for op in columns]
    elements = threads * max(width_of(fusion), choice.held)
    return bytes_of_block(block_threads(choice, True) // threads, elements, sizes)


def static_bytes(fusion: Fusion, choice: RowsChoice) -> int:
    """Bytes of shared memory, where totals of rows are exchanged, and a block's extremes."""
    warps = block_threads(choice, is_along(fusion)) // WARP_THREADS
    return _totals_bytes(fusion, choice) + len(extremes_of(fusion)) * warps * BYTES


def is_along(fusion: Fusion) -> bool:
    """Whether fragments lie along the rows."""
    return runs_along_row(fusion, split_reductions(fusion)[0][0])


def _totals_bytes(fusion: Fusion, choice: RowsChoice) -> int:
    along, _ = split_reductions(fusion)
    threads = choice.threads
    sizes = sum(_total_bytes(fusion, op) for op in along)
    if runs_along_row(fusion, along[0]):
        blocks, rows = choice.blocks, block_threads(choice, True) // threads
        if choice.has_own_rings:
            if not is_shared(threads, blocks):
                return 0
            needed = _ahead_bytes(fusion, choice)
            # ptxas, which assembles what clusters share, fills up lines.
            return -(-needed // _LINE_BYTES) * _LINE_BYTES if blocks > 1 else needed
        parts = max(1, threads // WARP_THREADS) * blocks
        return 2 * rows * parts * sizes if parts > 1 else 0
    rows = block_threads(choice, False) // threads
    return parts_across(threads, rows) * rows * width_of(fusion) * sizes if threads > 1 else 0


def _total_bytes(fusion: Fusion, op: Reduction) -> int:
    return max(4, total_type(fusion, op).bits // 8)


def _ahead_bytes(fusion: Fusion, choice: RowsChoice) -> int:
    """Bytes of shared memory, where warps share rows of their own ring."""
    along, _ = split_reductions(fusion)
    threads, blocks = choice.threads, choice.blocks
    rows, warps = block_threads(choice, True) // threads, threads // WARP_THREADS
    each = [
        max(4, op.compute_type.bits // 8) * (2 if is_squared_distance(fusion, op) else 1)
        for op in along
    ]
    counts = any(total_type(fusion, op) != op.compute_type for op in along)
    row, step = row_elements(fusion).constant, width_of(fusion) * threads * blocks
    counts = counts and (row is None or row % step != 0)
    return exchange_bytes(each, warps, rows, blocks, len(levels_of(fusion)), counts=counts)


@remembered
def reads_again(fusion: Fusion) -> list[Tensor]:
    return inputs_read_again(fusion, split_reductions(fusion)[0])


@remembered
def has_functions_before_sums(fusion: Fusion) -> bool:
    along, _ = split_reductions(fusion)
    above = {op for r in along for op in fusion.upstream(r.x)}
    return any(isinstance(op, Pointwise) and op.mode in _FUNCTIONS for op in above)


def slots_of(
    tensors: Sequence[Tensor], fragments: int, width: int, choice: RowsChoice, target: Target
) -> int:
    """Fragments that a thread keeps in shared memory, of so many of a row: what fits."""
    if choice.stages != 1 or not tensors:
        return 0
    room = target.limits.smem_block_bytes - EXCHANGE_BYTES
    most = room // kept_bytes(tensors, width, 1, block_threads(choice, True))
    return min(most, -(-fragments // (choice.threads * choice.blocks)))


def slot_bytes(fusion: Fusion, choice: RowsChoice, target: Target) -> int:
    tensors, width = reads_again(fusion), width_of(fusion)
    fragments = -(-row_elements(fusion).bounds()[1] // width)
    slots = slots_of(tensors, fragments, width, choice, target)
    return kept_bytes(tensors, width, slots, block_threads(choice, True))
