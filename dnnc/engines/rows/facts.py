# pyright: basic
"""Reads a fusion for engine rows: its reductions, and what its kernels take of a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...codegen.memory.row_ring import is_run, runs_in_order
from ...codegen.region import Access, identity_access
from ...codegen.totals.row_totals import ROWS_ACROSS
from ...dialect.fusion import Fusion, remembered
from ...dialect.op import Op
from ...dialect.ops import Pointwise, Reduction
from ...dialect.tensor import Tensor
from ...expr import Expr, product
from ..views.reduced import (
    ReducedAxes,
    Together,
    axis_order,
    found_reads,
    inputs_read_again,
    levels_of,
    reads_of_passes,
    reduced_axes,
    reductions_of,
    runs_along_row,
    sizes_along,
)
from .choice import RowsChoice
from .extremes import MODES
from .records import RowParts, is_shared
from .ring import PRODUCER_THREADS
from .same_pass import sums_of_any_exponentials

LEAST_THREADS = 128  # of a block
MOST_ACROSS = 64  # threads that share a row, where fragments lie across rows
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


def passes_of(fusion: Fusion, choice: RowsChoice) -> int:
    """Passes over a row for its reductions: some are made of what an earlier pass has found."""
    found = len(along_levels(fusion))
    return found if choice.held else found - len(exponentials_of(fusion))


@remembered
def exponentials_of(fusion: Fusion) -> Mapping[Reduction, Reduction]:
    """Sums of rows' exponentials, each with its maximum; the model was fitted as if all of them
    were found in the pass of the maximum."""
    return of_rows(fusion, sums_of_any_exponentials(fusion)) if is_along(fusion) else {}


def of_rows(fusion: Fusion, found: Mapping[Reduction, Reduction]) -> dict[Reduction, Reduction]:
    """The pairs of reductions that both are along rows."""
    along = parts_of(fusion).along
    return {op: of for op, of in found.items() if op in along and of in along}


def along_levels(
    fusion: Fusion, together: Together = frozenset()
) -> tuple[tuple[Reduction, ...], ...]:
    return levels_of(fusion, tuple(parts_of(fusion).along), together)


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
    levels = len(along_levels(fusion)) - 1
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


@remembered
def has_functions_before_sums(fusion: Fusion) -> bool:
    along, _ = split_reductions(fusion)
    above = {op for r in along for op in fusion.upstream(r.x)}
    return any(isinstance(op, Pointwise) and op.mode in _FUNCTIONS for op in above)


def is_along(fusion: Fusion) -> bool:
    """Whether fragments lie along the rows."""
    return runs_along_row(fusion, split_reductions(fusion)[0][0])


# ---- what shared memory has


@remembered
def reads_again(fusion: Fusion) -> tuple[Tensor, ...]:
    """Inputs that the first pass over a row reads, and a later one."""
    passes = reads_of_passes(fusion, along_levels(fusion), after=_seen_last(fusion))
    return inputs_read_again(passes)


def _seen_last(fusion: Fusion) -> tuple[Tensor, ...]:
    """The tensors whose extremes the last pass over a row finds."""
    return tuple(source.x for _, source in extremes_of(fusion))


@remembered
def row_reads(fusion: Fusion, together: Together = frozenset()) -> Mapping[Tensor, list[Access]]:
    """How inputs are read by work of the rows' dims, in the order of the passes."""
    parts = parts_of(fusion)
    dims = parts.along[0].x.shape
    tensors = [op.x for level in along_levels(fusion, together) for op in level]
    tensors += [op.x for op in parts.columns]
    tensors += [*_seen_last(fusion), *(t for t in fusion.outputs if t.shape == dims)]
    return found_reads(fusion, tensors, len(dims), {op.y for op in parts.along})


@remembered
def ring_inputs(
    fusion: Fusion, together: Together = frozenset()
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs whose rows a ring may bring, and those that are the same in all rows."""
    dims, axes = parts_of(fusion).along[0].x.shape, axes_of(fusion)
    row_axes = [axis for group in axes.reduced for axis in group]
    row = tuple(n if axis in row_axes else Expr.of(1) for axis, n in enumerate(dims))
    found = row_reads(fusion, together)
    runs = {
        t: ways
        for t, ways in found.items()
        if t.rank == len(dims) and is_run(t, row_axes) and runs_in_order(t, row_axes)
    }
    wide = [axis for axis in row_axes if dims[axis].constant != 1]
    return (
        tuple(t for t, w in runs.items() if t.shape == dims and w == [identity_access(t.rank)]),
        tuple(
            t
            for t, ways in runs.items()
            if t.shape == row and all(w[axis] == ("loop", axis) for w in ways for axis in wide)
        ),
    )


@remembered
def axes_of(fusion: Fusion) -> ReducedAxes:
    """The axes of the rows' elements, as loops go through them."""
    parts = parts_of(fusion)
    # What finds a row's extreme may be no reduction of its own.
    elements = [source for _, source in parts.extremes]
    sources = (*parts.along, *(source for source in elements if source not in parts.along))
    return reduced_axes(fusion, sources, axis_order, _counts_short)


def _counts_short(fusion: Fusion, found: object) -> bool:
    """Loops of rows count in 31 bits."""
    return False
