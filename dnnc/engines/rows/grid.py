# pyright: basic
"""Engine grid: reductions whose results flow on, over more elements than a cluster holds.

    batch norm: mean and variance of each channel of [N, H, W, C], normalise, scale, activate
    quantise: amax of a whole tensor, divide

One cooperative launch of as many blocks as are resident.  Each block has a slice of the reduced
elements, of some of the kept ones; blocks leave their totals in global memory and meet, once for
every level of reductions.  The first fragments of a slice stay in shared memory and registers, the
last ones in L2, so that the later passes read little again.  A variance takes no pass
of its own (`codegen.totals.moments`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as product_of
from math import gcd
from typing import Annotated, ClassVar

from ...codegen.output import Output
from ...codegen.region import Access, Region
from ...codegen.walk.fragments import register_words
from ...dialect.averages import is_summed_in_double, total_type
from ...dialect.fusion import Fusion, remembered, remembered_at_sizes
from ...dialect.ops import Reduction
from ...dialect.tensor import Tensor, stride_order, text
from ...errors import Status
from ...expr import Expr, product, typical
from ...target import REGISTERS_PER_THREAD, Target
from ..engine import Engine, Knob, Knobs, Marks, Prediction, Reason
from ..knob_values import KnobValues
from ..product.pattern import knob_reason
from ..surface import (
    LAUNCH_SECONDS,
    MEMSET_SECONDS,
    bytes_of,
    fp8_reasons,
    pattern_reason,
    smem_reasons,
    too_large_reasons,
)
from ..views.reduced import (
    Together,
    accesses_of,
    after_reasons,
    agreement_reasons,
    counts_whole,
    holds_bytes,
    inputs_read_again,
    levels_of,
    output_reasons,
    reads_of_passes,
    reduced_axes,
    reductions_of,
    runs_along_row,
    sizes_along,
)
from .grid_kernel import GridEmitter, l2_bytes
from .grid_records import GridLayout, GridTiling, GridTotal
from .records import AxisGroups, loads_of, reads_of
from .same_pass import fixed_of, squared_distances

_ROWS = (512, 256, 128, 64, 32, 16, 8, 4)
_HELD = (0, 1, 2, 3, 4, 6, 8, 10, 12, 13, 14, 16, 20, 22, 24, 25, 26, 27, 32, 40, 48)
_IN_REGISTERS = (0, 2, 4, 6, 8, 10, 12, 14, 16)
_REGISTERS_LEFT = 8  # by fragments in registers, or some kernels spill
_STAGES = (4, 2, 1, 8)
_MOST_GROUPS = 16  # of blocks; a device has as many SMs, however few
_FEW_SLICES = 8  # whose parts every block combines itself
_MEET_SECONDS = 5.0e-6  # of a level: combine, write, wait, read
_SHARE = 0.79  # of the memory's rate
_SECTOR_BYTES = 32
# What moves once more at each end of a piece that is no whole sectors, which two blocks touch: a
# batch norm of 170x55x55x216 took 425 us by two blocks a pixel and 262 by one.
_TORN_BYTES = 64
_LONG_PIECE_BYTES = 256
_SHORT_PIECES = 0.97  # of the rate, where blocks share pixels in shorter ones


@dataclass(frozen=True)
class _Choice(KnobValues):
    """One value of each knob.

    rows: threads of a block along the reduced axes.  held: fragments of each input that a thread
    keeps in shared memory.  in_registers: such in registers.  together: fragments that a thread
    loads before it uses the first.
    """

    rows: Annotated[int, "TILE_ROWS"]
    held: Annotated[int, "ARRAY_SIZE_PER_THREAD"]
    in_registers: Annotated[int, "SPECFILT"]
    together: Annotated[int, "STAGES"]


@dataclass(frozen=True)
class GridEngine(Engine):
    """See the file's docstring."""

    tiling = GridTiling
    name: str = "grid"
    index: int = 8
    families: tuple[str, ...] = ("reduction",)
    support: tuple[str, ...] = (
        "reductions of equal dims and axes, also of what other such reductions give, whose "
        "results flow on (batch norm, a tensor's amax and its quantisation, the index of its "
        "maximum), any mode; pointwise operations before, and after, of the dims of the input or "
        "of the results; packed boolean outputs whose fastest axis is a multiple of 8 contiguous "
        "elements; up to 16 groups of kept elements, of 1024 each where types have 16 bits; no "
        "sizes that may be 0",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if others := [*fusion.with_role("anchor"), *fusion.with_role("view")]:
            return (pattern_reason(others[0].label, "reduction, pointwise"),)
        reductions = reductions_of(fusion)
        if not reductions:
            return (pattern_reason("no reduction", "one reduction at least"),)
        reasons = agreement_reasons(reductions)
        if not reasons:
            reasons += after_reasons(fusion, reductions)
            reasons += output_reasons(fusion, reductions[0], holds_bytes)
        first = reductions[0].x.shape
        if any(extent.bounds()[0] < 1 for extent in first):
            what = f"{text(first)}, which may be empty"
            wanted = "a reduced tensor of one element at least"
            reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, "size", what, wanted))
        if not any(t.shape == first for t in fusion.inputs):
            what = f"inputs without dims {text(first)}"
            reasons.append(pattern_reason(what, "an input of the reduced tensor's dims"))
        has_whole = any(output.shape == first for output in fusion.outputs)
        if not reasons and not has_whole and len(_levels(fusion)) == 1:
            what = f"outputs without dims {text(first)}, reductions that need no other"
            wanted = "an output of the reduced tensor's dims, or a reduction of what another gives"
            reasons.append(pattern_reason(what, wanted))
        reasons += fp8_reasons(fusion, target) + too_large_reasons(fusion)
        if not reasons and not self.candidates(fusion, target):
            # What takes least of everything is illegal too.
            rows = _threads(target) if _is_along(fusion) else min(_ROWS)
            least = _Choice(rows, 0, 0, min(_STAGES))
            reasons += _illegal(least, fusion, target)
        return tuple(reasons)

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_ROWS", _ROWS, "threads of a block along the reduced axes"),
        Knob(
            "ARRAY_SIZE_PER_THREAD", _HELD,
            "fragments of each input that a thread keeps in shared memory",
        ),
        Knob("SPECFILT", _IN_REGISTERS, "such of 16 bits and more in registers; 0 before sm_90"),
        Knob("STAGES", _STAGES, "fragments that a thread loads before it uses the first"),
    )  # fmt: skip

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        return _illegal(_Choice.of(knobs), fusion, target)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        found: list[Knobs] = []
        for rows in (n for n in _ROWS if n <= _threads(target)):
            columns = _threads(target) // rows
            if columns > 1 and columns // 2 >= typical(_kept_fragments(fusion)):
                continue  # more would have nothing to do
            roomy = _most_held(_Choice(rows, 1, 0, 1), fusion, target)
            tried = [held for held in reversed(_HELD) if held <= roomy]
            for stages, held in product_of(_stages_tried(fusion), tried):
                choice = _Choice(rows, held, 0, stages)
                if not _illegal(choice, fusion, target):
                    most = _most_in_registers(choice, fusion, target)
                    # The second for choices of other knobs, which leave fewer registers.
                    ways = sorted({most, 0}, reverse=True)
                    found += [replace(choice, in_registers=n).knobs for n in ways]
                    break
        return found

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        choice = _Choice.of(knobs)
        columns = _threads(target) // choice.rows
        groups, slices = _blocks(fusion, choice, target)
        again = bytes_of(_read_again(fusion))
        kept = choice.in_registers * 4 * _register_words(fusion) * _threads(target)
        kept += GridLayout(_tiling_of(fusion, choice, target)).slot_bytes
        kept *= target.sm_count
        levels = len(_levels(fusion))
        moved = bytes_of((*fusion.inputs, *fusion.outputs))
        moved += levels * max(0, again - kept - l2_bytes(target))
        rate = target.dram_gbs * 1e9 * _SHARE
        if not _is_along(fusion):
            rate *= _share_of_pieces(fusion, columns, groups)
        rate *= groups * slices / target.sm_count
        meeting = levels * _MEET_SECONDS
        seconds = LAUNCH_SECONDS + MEMSET_SECONDS + meeting + moved / rate
        return Prediction(seconds, "memory" if moved / rate > meeting else "latency")

    # ---- tiling

    def marks(self, fusion: Fusion) -> Marks:
        return Marks(fixed=fixed_of(fusion))

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> GridTiling:
        return _tiling_of(fusion, _Choice.of(knobs), target)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: GridTiling, output: Output) -> None:
        GridEmitter(region, tile, output).emit()


def _order_of(fusion: Fusion, reductions: tuple[Reduction, ...]) -> Sequence[int]:
    """The axes as `runs_along_row` has them, which `legal` goes by."""
    whole = [t for t in fusion.inputs if t.shape == reductions[0].x.shape]
    leaf = max(whole, key=lambda t: t.type.bits)
    return stride_order(leaf.shape, leaf.layout)


# ---- tiling


@remembered_at_sizes
def _tiling_of(fusion: Fusion, choice: _Choice, target: Target) -> GridTiling:
    reductions = reductions_of(fusion)
    axes = reduced_axes(fusion, reductions, _order_of, counts_whole)
    smallest = min(_bits(t) for t, _ in accesses_of(fusion, reductions))
    width = gcd(axes.along(is_row=axes.is_row).known_divisor(), max(1, 128 // smallest))
    columns = _threads(target) // choice.rows
    kept = product(n for n, own in zip(reductions[0].y.shape, axes.dims, strict=True) if n == own)
    fragments = kept // (1 if axes.is_row else width)
    blocks_of_entry = target.sm_count / max(1, -(-typical(fragments) // columns))
    return GridTiling(
        axes=AxisGroups(axes.kept, axes.reduced),
        vector_elems=width,
        along="row" if axes.is_row else "column",
        rows=choice.rows,
        columns=columns,
        held=choice.held,
        in_registers=choice.in_registers,
        together=choice.together,
        is_spread=blocks_of_entry > _FEW_SLICES,
        totals=_totals(fusion),
        reads=tuple(reads_of(fusion, found) for found in _passes(fusion)),
        again=loads_of(fusion, _read_again(fusion)),
    )


@remembered
def _totals(fusion: Fusion) -> tuple[GridTotal, ...]:
    reductions, distances = reductions_of(fusion), squared_distances(fusion)
    levels = {op: number for number, level in enumerate(_levels(fusion)) for op in level}

    def way(op: Reduction) -> str:
        if op in distances:
            return "distances"
        if op in distances.values():
            return "mean"
        return "average" if is_summed_in_double(fusion, op) else ""

    return tuple(
        GridTotal(
            levels[op],
            way(op),
            reductions.index(distances.get(op, op)),
            total_type(fusion, op).bits,
        )
        for op in reductions
    )


# ---- knobs


def _illegal(choice: _Choice, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
    """Why knobs can't be."""
    rows, threads = choice.rows, _threads(target)
    if rows > threads or (_is_along(fusion) and rows != threads):
        what = f"TILE_ROWS={rows} of {threads} threads"
        return (knob_reason(what, f"up to {threads}; along rows {threads}"),)
    groups = -(-_kept_fragments(fusion).bounds()[1] // (threads // rows))
    if groups > _MOST_GROUPS:
        what = f"{groups} groups of kept elements"
        return (knob_reason(what, f"up to {_MOST_GROUPS}: fewer TILE_ROWS"),)
    if choice.in_registers and target.capability < (9, 0):
        what = f"SPECFILT={choice.in_registers} for {target}, where kernels spill beside any"
        return (knob_reason(what, "SPECFILT=0"),)
    if choice.in_registers and not _register_words(fusion):
        what = f"SPECFILT={choice.in_registers}, fragments of no whole words of 16 bits and more"
        return (knob_reason(what, "SPECFILT=0"),)
    most = min(REGISTERS_PER_THREAD, target.limits.registers_sm // threads)
    if (registers := _registers(fusion, choice, target)) > most:
        return (knob_reason(f"{registers} registers of a thread", f"at most {most}"),)
    return smem_reasons(GridLayout(_tiling_of(fusion, choice, target)).bytes, target)


def _most_held(one: _Choice, fusion: Fusion, target: Target) -> int:
    """Most fragments that leave the room that shapes had which were timed; one: a choice that holds
    one."""
    layout = GridLayout(_tiling_of(fusion, one, target))
    room = target.limits.smem_block_bytes - layout.roomy_bytes
    return max(0, room // layout.slot_bytes) if layout.slot_bytes else max(_HELD)


def _most_in_registers(choice: _Choice, fusion: Fusion, target: Target) -> int:
    """Most fragments in registers that shared memory does not hold; fewer make less code."""
    left = _fragments_of_thread(fusion, choice, target) - choice.held
    legal = [
        n
        for n in _IN_REGISTERS
        if n <= left and not _illegal(replace(choice, in_registers=n), fusion, target)
    ]
    return max(legal, default=0)


# ---- what a fusion says


def _threads(target: Target) -> int:
    """Threads of a block, the only one of its SM: fewer before sm_90, where code takes
    more registers.

    On an H100 256 threads, which keep four times as many fragments in registers each, lose: a batch
    norm of 103 MB takes 107 us, not 101.
    """
    return 512 if target.capability >= (9, 0) else 256


def _stages_tried(fusion: Fusion) -> tuple[int, ...]:
    """The stages to try: for several tensors as many bytes are on their way with fewer fragments
    together, and registers keep more: DReluForkDBn of 51 MB took 104 us, not 108."""
    return (2, 4, 1) if len(_read_again(fusion)) > 1 else (4, 2, 1)


@remembered
def _is_along(fusion: Fusion) -> bool:
    return runs_along_row(fusion, reductions_of(fusion)[0])


@remembered
def _kept_elements(fusion: Fusion) -> Expr:
    return product(sizes_along(reductions_of(fusion)[0])[1])


@remembered
def _width(fusion: Fusion) -> int:
    """Elements of a fragment, at most."""
    smallest = min(_bits(t) for t in (*fusion.inputs, *fusion.outputs))
    return max(1, 128 // smallest)


def _bits(tensor: Tensor) -> int:
    """Bits of an element, as far as the size of fragments goes: eight booleans are a byte."""
    return 16 if tensor.type.kind == "b" else max(8, tensor.type.bits)


@remembered
def _kept_fragments(fusion: Fusion) -> Expr:
    """At most: the axes of a fragment may have a size that its width does not divide."""
    if _is_along(fusion):
        return _kept_elements(fusion)
    first = reductions_of(fusion)[0]
    inner = product(n for axis, n in enumerate(first.x.shape) if axis not in first.axes)
    return -(-inner // gcd(_fastest(fusion).known_divisor(), _width(fusion)))


@remembered
def _fastest(fusion: Fusion) -> Expr:
    """The size of the fastest axis of the whole tensors."""
    first = reductions_of(fusion)[0]
    leaves = [t for t in fusion.inputs if t.shape == first.x.shape] or [first.x]
    leaf = max(leaves, key=lambda t: t.type.bits)
    order = [a for a in stride_order(leaf.shape, leaf.layout) if leaf.shape[a].constant != 1]
    return leaf.shape[order[-1]] if order else Expr.of(1)


def _read_again(fusion: Fusion) -> tuple[Tensor, ...]:
    return inputs_read_again(_passes(fusion))


def _passes(fusion: Fusion) -> tuple[Mapping[Tensor, list[Access]], ...]:
    """How inputs are read in each pass."""
    return reads_of_passes(fusion, _levels(fusion), _together(fusion))


def _levels(fusion: Fusion) -> tuple[tuple[Reduction, ...], ...]:
    """The levels of reductions, one after the other; a variance has its mean's."""
    return levels_of(fusion, reductions_of(fusion), _together(fusion))


@remembered
def _together(fusion: Fusion) -> Together:
    return frozenset(squared_distances(fusion).items())


def _fragment_bytes(fusion: Fusion, tensor: Tensor) -> int:
    return _width(fusion) * max(8, tensor.type.bits) // 8


@remembered
def _register_words(fusion: Fusion) -> int:
    """Registers of one fragment of each, of the width that fragments have at least."""
    width = gcd(_fastest(fusion).known_divisor(), _width(fusion))
    return sum(register_words(t, width) for t in _read_again(fusion))


def _blocks(fusion: Fusion, choice: _Choice, target: Target) -> tuple[int, int]:
    """(groups of kept elements, slices of the reduced ones)."""
    columns = _threads(target) // choice.rows
    groups = max(1, -(-typical(_kept_fragments(fusion)) // columns))
    return groups, max(1, target.sm_count // groups)


def _share_of_pieces(fusion: Fusion, columns: int, groups: int) -> float:
    """The share of the memory's rate where blocks take so many neighbouring fragments of a pixel.

    Threads without a fragment are loads fewer on their way: of 17 of 32 that have one, 1.4 times
    as long was measured, of 27 of 32 1.1.
    """
    fragment = _fragment_bytes(fusion, fusion.inputs[0])
    share = (typical(_kept_fragments(fusion)) / (groups * columns)) ** 0.5
    pixel = typical(_fastest(fusion)) * max(8, fusion.inputs[0].type.bits) // 8
    if pixel <= columns * fragment:
        return share  # a piece is whole pixels, and the next row's lies beside it
    share *= min(1.0, columns * fragment / 128)
    if columns * fragment < _LONG_PIECE_BYTES:
        share *= _SHORT_PIECES
    if pixel % _SECTOR_BYTES:
        pieces = -(-pixel // (columns * fragment))
        share /= 1 + pieces * _TORN_BYTES / pixel
    return share


def _fragments_of_thread(fusion: Fusion, choice: _Choice, target: Target) -> int:
    """Along the reduced elements."""
    _, slices = _blocks(fusion, choice, target)
    reduced = typical(product(sizes_along(reductions_of(fusion)[0])[0]))
    fragments = reduced // _width(fusion) if _is_along(fusion) else reduced
    return fragments // (slices * choice.rows)


def _registers(fusion: Fusion, choice: _Choice, target: Target) -> int:
    """Registers of a thread: an estimate, so that nothing is spilled."""
    first = reductions_of(fusion)[0].x.shape
    whole = sum(t.type.bits / 32 for t in fusion.inputs if t.shape == first)
    loaded = choice.together * whole + len(reductions_of(fusion)) + 2
    more = 32 if target.capability >= (10, 0) else 0  # what code for them takes beside
    kept = choice.in_registers * _register_words(fusion)
    kept += _REGISTERS_LEFT if kept else 0
    return round(40 + more + _width(fusion) * loaded + kept)


GRID = GridEngine()
