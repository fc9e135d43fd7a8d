# pyright: basic
"""Engine transpose: pointwise work on inputs that run along another axis than the outputs.

    y[r, c] = x[r, c] + z[r, c]     y and z run along c, the fast axis; x along r, the slow one

A block works on a tile, TILE_M elements along the slow axis by TILE_N along the fast one.  What
runs along the slow axis is read along it, transposed in registers and shared memory, and met there
by fragments along the fast axis, in which everything else is read, computed and stored:

    x  --16 bytes along r-->  registers, transposed  -->  shared memory  --16 bytes along c-->
    z  --16 bytes along c------------------------------------------------------------->  y

Both are groups of axes that all tensors agree on (NCHW to NHWC: H and W by C); tiles of the other
axes, the batch, follow each other.  A group of few elements, as those of a vector are (NCHW to
NC/4HW4: H and W by 4), is one side of the tile whole, and the other side is so much longer; what
lies in memory as such short lines, one after the other, is read by accesses of 16 bytes all the
same.  Such tiles may be small, as those of small images are: several share a block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as product_of
from typing import Annotated, ClassVar

from ... import dtypes
from ...codegen.kernel import MOST_COUNT
from ...codegen.memory.tensors import MAX_ACCESS_BYTES
from ...codegen.output import Output
from ...codegen.region import Region
from ...dialect.fusion import Fusion
from ...dialect.ops import Pointwise
from ...dialect.tensor import Tensor
from ...errors import Status
from ...expr import Expr, ceildiv, product, typical
from ...mlir import ir
from ...target import STATIC_SMEM_BYTES, WARP_THREADS, Target
from ..engine import Knob, Knobs, Prediction, Reason
from ..knob_values import KnobValues
from ..product.pattern import knob_reason
from ..surface import LAUNCH_SECONDS, boolean_reason, memory_seconds, smem_reasons
from .pointwise import PointwiseEngine
from .sweep import Read, Sweep
from .transpose_kernel import UNKNOWN, TransposedInput, TransposeEmitter, TransposeTiling

_TILE_SIDES = (64, 32, 128)
_SHORT_SIDES = (4, 8, 16, 32)  # of groups of a fixed length that is no longer
_LONG_SIDES = (256, 512, 1024)  # beside these
_SIDES = (*_TILE_SIDES, *_SHORT_SIDES[:-1], *_LONG_SIDES)
_MOST_THREADS = 512
_MOST_ELEMENTS = (1 << 31) - max(_SIDES)  # along a group: tiles end below 2**31

# Of what streaming kernels reach, of lines of 128 bytes and of 64: 8192 x 8192 of bf16 on an H100.
_BANDWIDTH_SHARES = {128: 0.94, 64: 0.86}
_WORD_BYTES = 4  # of a bank of shared memory
_LEAST_TILE_THREADS = 8  # beside a short side; a block has several such tiles
_THREADS_OF_TILES = 128  # of a block of these
_LINE_BYTES = 128  # that a tile's rows and columns should have in memory

# Accesses of 16 bytes to all whole inputs that a thread has under way: with more, registers leave
# room for few threads, which wait for each other at the barrier.
_MOST_ACCESSES = 12
_MOST_ELEMENTS_EACH = 64  # of an output, that are unrolled in a thread; of long work fewer
_LONG_WORK = 8  # operations

# Threads of an SM that registers leave room for, where bytes are little worked on: the
# assembler would rather take all bytes apart at once, into four times the registers.
_THREADS_OF_BYTES = 768
_LIGHT_WORK = 32  # scalar operations
_LIGHT_MATH = ("math.absf", "math.absi", "math.roundeven")


@dataclass(frozen=True)
class _Choice(KnobValues):
    """One value of each knob.

    slow, fast: elements of a block's tile along the transposed inputs and along the outputs.
    accesses: of 16 bytes to the widest tensor that a thread makes.
    """

    slow: Annotated[int, "TILE_M"]
    fast: Annotated[int, "TILE_N"]
    accesses: Annotated[int, "ARRAY_SIZE_PER_THREAD"]

    @property
    def sides(self) -> tuple[int, int]:
        return self.slow, self.fast


@dataclass(frozen=True)
class TransposeEngine(PointwiseEngine):
    """See the file's docstring."""

    tiling = TransposeTiling
    name: str = "transpose"
    index: int = 9
    families: tuple[str, ...] = ("pointwise",)
    updates_outputs: bool = False
    support: tuple[str, ...] = (
        "graphs that pointwise takes, without boolean outputs, in which inputs run along another "
        "axis than the outputs: all of those along the same one",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        reasons = super().supports(fusion, target)
        return reasons or tuple(_layout_reasons(Sweep.of_fusion(fusion), target))

    def _boolean_reasons(self, fusion: Fusion) -> list[Reason]:
        return [boolean_reason(t) for t in fusion.outputs if t.type.kind == "b"][:1]

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_M", _SIDES, "elements of a block's tile along the transposed inputs"),
        Knob("TILE_N", _SIDES, "elements of a block's tile along the outputs"),
        Knob("ARRAY_SIZE_PER_THREAD", (8, 4, 2, 1, 16),
             "accesses of 16 bytes to the widest tensor that a thread makes"),
    )  # fmt: skip

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        sweep = Sweep.of_fusion(fusion)
        choice = _Choice.of(knobs)
        reasons = _side_reasons(sweep, choice.sides)
        threads, least = _threads(sweep, choice), _least_threads(choice)
        if not least <= threads <= _MOST_THREADS:
            wanted = f"{least} to {_MOST_THREADS} threads"
            return (*reasons, knob_reason(f"a tile of {threads} threads", wanted))
        tiles = _tiles_of_a_block(sweep, choice, target)
        needed = _smem_bytes(sweep, math.prod(choice.sides) * tiles)
        return (*reasons, *smem_reasons(needed, target, STATIC_SMEM_BYTES))

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        """Tiles whose lines are whole lines of memory, their neighbours, and small ones."""
        sweep = Sweep.of_fusion(fusion)
        whole = sum(_is_whole(sweep, read) for read in sweep.reads)
        is_long = len(fusion.ops) > _LONG_WORK or any(
            isinstance(op, Pointwise) and op.compute_type == dtypes.f64 for op in fusion.ops
        )
        elements = _MOST_ELEMENTS_EACH // (2 if is_long else 1)
        most = min(8, elements * max(_whole_sizes(sweep)) // MAX_ACCESS_BYTES)
        array = next((n for n in (8, 4, 2) if n <= most and n * whole <= _MOST_ACCESSES), 1)
        other = 2 * array if 2 * array <= most else array // 2
        wanted = tuple(min(64, side) if is_long else side for side in _line_sides(sweep))
        found = [
            _Choice(tile[0], tile[1], n).knobs
            for n in (array, other)
            for tile in (*_short_tiles(sweep, wanted), *_square_tiles(wanted))
        ]
        return [knobs for knobs in found if not self.legal(knobs, fusion, target)]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        """The bytes, at a share of the memory's rate; tiles past the edges cost as much."""
        sweep, choice = Sweep.of_fusion(fusion), _Choice.of(knobs)
        sides = choice.sides
        padded = 1.0
        for group, side in zip(_groups(sweep), sides, strict=True):
            extent = typical(sweep.extent(group))
            padded *= -(-extent // side) * side / max(1, extent)
        elements = typical(fusion.outputs[0].elements()) * padded
        of_block = math.prod(sides) * _tiles_of_a_block(sweep, choice, target)
        memory = memory_seconds(fusion, target, blocks=int(elements) // of_block)
        ends = zip(sides, _sizes(sweep), _are_in_a_row(sweep, sides), strict=True)
        lines = min(
            _LINE_BYTES if in_a_row else min(_LINE_BYTES, side * size)
            for side, size, in_a_row in ends
        )
        whole, half = _BANDWIDTH_SHARES[_LINE_BYTES], _BANDWIDTH_SHARES[_LINE_BYTES // 2]
        share = whole - (whole - half) * 2 * (1 - lines / _LINE_BYTES)
        stream = (memory.seconds - LAUNCH_SECONDS) * padded / share
        return Prediction(LAUNCH_SECONDS + stream, memory.bound)

    def register_pressure(self, knobs: Knobs) -> int:
        return 0

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> TransposeTiling:
        sweep, inputs = Sweep.of_fusion(fusion), self.rewritten(fusion).inputs
        choice = _Choice.of(knobs)
        sides = choice.sides
        threads = min(_MOST_THREADS, max(_least_threads(choice), _threads(sweep, choice)))
        tiles = _tiles_of_a_block(sweep, choice, target)
        each = math.prod(sides) // threads
        is_of_bytes = min(_whole_sizes(sweep)) == 1
        transposed: list[TransposedInput] = []
        for read in sweep.transposed:
            if sweep.across(read) != sweep.slow:
                continue
            vector, lines, together = _block_of(sweep, read, each, sides[1])
            path = read.path(sweep.dims)
            transposed.append(
                TransposedInput(inputs.index(read.source), path, vector, lines, together)
            )
        width = min(_fragment_width(sweep), each)
        rows = _fragment_rows(sweep, width, each, sides[1])
        return TransposeTiling(
            loops=sweep.groups,
            slow=sweep.groups.index(sweep.slow_group),
            tile=sides,
            threads=threads,
            tiles=tiles,
            min_blocks=UNKNOWN if is_of_bytes else 0,
            vector_elems=width * rows,
            rows=rows,
            transposed=tuple(transposed),
        )

    def completed(self, tile: TransposeTiling, region: Region) -> TransposeTiling:
        if tile.min_blocks != UNKNOWN:
            return tile
        blocks = _THREADS_OF_BYTES // (tile.threads * tile.tiles) if _is_light(region) else 0
        return replace(tile, min_blocks=blocks)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: TransposeTiling, output: Output) -> None:
        kernel = output.kernel("", tile.threads * tile.tiles)
        kernel.min_blocks = tile.min_blocks
        emitter = TransposeEmitter(region, tile, kernel)
        with kernel.body():
            emitter.emit()
        output.launch(kernel, (emitter.blocks, 1, 1))


def _layout_reasons(sweep: Sweep, target: Target) -> list[Reason]:
    """Which axes inputs and outputs run along, and how far."""
    whole = {axis: axis for axis, n in enumerate(sweep.dims) if n.constant != 1}
    for output in sweep.outputs if whole else ():
        axis = sweep.fastest(output, whole)
        if axis not in sweep.groups[-1]:
            what = f"{output.label} runs along axis {axis}"
            wanted = f"outputs that run along axis {sweep.fast}"
            return [Reason(Status.NOT_SUPPORTED_LAYOUT, "output order", what, wanted)]
    axes = sorted({axis for axis in map(sweep.across, sweep.transposed) if axis is not None})
    if len(axes) != 1:
        along = " and ".join(map(str, axes))
        what = f"inputs that run along axes {along}" if axes else "no input runs across the outputs"
        wanted = "inputs that run along one other axis than the outputs"
        return [Reason(Status.NOT_SUPPORTED_LAYOUT, "transposed inputs", what, wanted)]
    least = min(_TILE_SIDES)
    tiled = (sweep.slow_group, sweep.groups[-1])
    rest = [group for group in sweep.groups if group not in tiled]
    tiles = product(ceildiv(sweep.extent(group), least) for group in tiled)
    blocks = product([tiles, *map(sweep.extent, rest)]).bounds()[1]
    if blocks > MOST_COUNT or any(sweep.extent(g).bounds()[1] > _MOST_ELEMENTS for g in tiled):
        wanted = f"at most {MOST_COUNT} blocks, axes of at most {_MOST_ELEMENTS}"
        return [Reason(Status.NOT_SUPPORTED_SHAPE, "size", f"{blocks} blocks", wanted)]
    return list(smem_reasons(_smem_bytes(sweep, least * least), target, STATIC_SMEM_BYTES))


def _smem_bytes(sweep: Sweep, elements: int) -> int:
    return elements * sum(_bytes_of(read.tensor) for read in sweep.transposed)


def _bytes_of(tensor: Tensor) -> int:
    """Bytes of an element; booleans are a byte's eighth."""
    return max(8, tensor.type.bits) // 8


def _is_whole(sweep: Sweep, read: Read) -> bool:
    """Whether an input has elements along both sides of a tile."""
    return {sweep.fast, sweep.slow} <= read.loops(sweep.dims).keys()


def _whole_sizes(sweep: Sweep) -> list[int]:
    """Bytes of the elements of outputs and whole inputs."""
    whole = [read.tensor for read in sweep.reads if _is_whole(sweep, read)]
    return [_bytes_of(tensor) for tensor in (*whole, *sweep.outputs)]


def _sizes(sweep: Sweep) -> tuple[int, int]:
    """Bytes of the narrowest element that is read along the slow, written along the fast axis."""
    narrow = min(_bytes_of(read.tensor) for read in sweep.transposed)
    return narrow, min(map(_bytes_of, sweep.outputs))


def _line_sides(sweep: Sweep) -> tuple[int, ...]:
    """A tile whose sides are lines of memory, or half of them where that is no small tile."""
    widest = max(_whole_sizes(sweep))
    least = 32 if widest == 8 else 64
    return tuple(max(least, _LINE_BYTES // size) for size in _sizes(sweep))


def _square_tiles(wanted: Sequence[int]) -> list[tuple[int, ...]]:
    """The tile that is wanted, its neighbours, and the smallest."""

    def distance(tile: tuple[int, ...]) -> int:
        pairs = zip(tile, wanted, strict=True)
        return sum(abs(side.bit_length() - best.bit_length()) for side, best in pairs)

    tiles = sorted(product_of(_TILE_SIDES, repeat=2), key=distance)
    return [t for t in tiles if distance(t) <= 1 or max(t) == min(_TILE_SIDES)]


def _short_tiles(sweep: Sweep, wanted: Sequence[int]) -> list[tuple[int, ...]]:
    """Tiles of about as many elements, of which one side is a whole group of few elements."""
    short = [_short_side(sweep.extent(group)) for group in _groups(sweep)]
    if (short[0] is None) == (short[1] is None):
        return []
    place = 0 if short[1] is None else 1
    side, long = short[place] or 0, typical(sweep.extent(_groups(sweep)[1 - place]))
    best = math.prod(wanted) // side
    found = [n for n in (64, 128, *_LONG_SIDES) if n <= best and (n // 2 < long or n == 64)]
    return [(side, n) if place == 0 else (n, side) for n in reversed(found)]


def _short_side(extent: Expr) -> int | None:
    """The side of a tile that holds a short group whole; None: it is long, or 1."""
    length = extent.constant or 0
    return next((n for n in _SHORT_SIDES if 1 < length <= n), None)


def _side_reasons(sweep: Sweep, sides: tuple[int, int]) -> list[Reason]:
    """Short sides are of short groups, and long ones beside them."""
    reasons: list[Reason] = []
    for group, side in zip(_groups(sweep), sides, strict=True):
        extent = sweep.extent(group)
        if side < min(_TILE_SIDES) and side != _short_side(extent):
            what = f"a side of {side} along {extent} elements"
            wanted = f"{min(_TILE_SIDES)} or more, or the least that holds a fixed number of them"
            reasons.append(knob_reason(what, wanted))
    if min(sides) > max(_SHORT_SIDES) and max(sides) > max(_TILE_SIDES):
        what = f"a tile of {sides[0]}x{sides[1]}"
        reasons.append(knob_reason(what, f"sides of at most {max(_TILE_SIDES)} beside such"))
    if max(sides) < min(_TILE_SIDES):
        what = f"a tile of {sides[0]}x{sides[1]}"
        reasons.append(knob_reason(what, f"a side of at least {min(_TILE_SIDES)}"))
    return reasons


def _least_threads(choice: _Choice) -> int:
    """The least threads of a tile."""
    has_short = min(choice.sides) < min(_TILE_SIDES)
    return _LEAST_TILE_THREADS if has_short else WARP_THREADS


def _tiles_of_a_block(sweep: Sweep, choice: _Choice, target: Target) -> int:
    """Tiles of few threads share a block, as long as there are blocks for all SMs."""
    threads = max(_least_threads(choice), _threads(sweep, choice))
    if min(choice.sides) >= min(_TILE_SIDES) or threads >= _THREADS_OF_TILES:
        return 1
    pairs = zip(_groups(sweep), choice.sides, strict=True)
    rest = [group for group in sweep.groups if group not in _groups(sweep)]
    count = math.prod(typical(ceildiv(sweep.extent(group), side)) for group, side in pairs)
    count *= math.prod(typical(sweep.extent(group)) for group in rest)
    tiles = _THREADS_OF_TILES // threads
    least = max(1, WARP_THREADS // threads)
    while tiles > least and count // tiles < 4 * target.sm_count:
        tiles //= 2
    return tiles


def _groups(sweep: Sweep) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The slow and the fast one."""
    return sweep.slow_group, sweep.groups[-1]


def _threads(sweep: Sweep, choice: _Choice) -> int:
    accesses = MAX_ACCESS_BYTES * choice.accesses
    return math.prod(choice.sides) * max(_whole_sizes(sweep)) // accesses


def _block_of(sweep: Sweep, read: Read, each: int, columns: int) -> tuple[int, int, int]:
    """(elements along the slow axis, lines, lines of an access) of the blocks in which a thread
    brings `each` in; columns: of the tile.

    Wide loads are worth more than wide pieces for shared memory, as long as those are words.
    """
    size = _bytes_of(read.tensor)
    most = MAX_ACCESS_BYTES // size
    lines = min(most, columns)
    loops = read.loops(sweep.dims)
    vector = _aligned_elems(sweep, read.tensor, loops, sweep.slow_group, most)
    together = _lines_of_an_access(sweep, read, vector)
    if together > 1:  # threads side by side read what lies side by side
        lines = min(lines, max(together, _WORD_BYTES // size))
    while vector * lines > each:
        if lines > together and (lines * size > _WORD_BYTES or vector == 1):
            lines //= 2
        else:
            vector, together = vector // 2, 1
    return vector, lines, together


def _lines_of_an_access(sweep: Sweep, read: Read, vector: int) -> int:
    """How many lines along the slow axis, which are `vector` elements each, an access may bring
    in."""
    size = _bytes_of(read.tensor)
    if not _is_in_a_row(sweep, read.tensor, read.loops(sweep.dims), sweep.slow_group):
        return 1
    if sweep.extent(sweep.slow_group).constant != vector or vector * size % _WORD_BYTES:
        return 1
    loops = read.loops(sweep.dims)
    most = MAX_ACCESS_BYTES // (vector * size)
    fast = sweep.groups[-1]
    steps = [
        read.tensor.layout[own].known_divisor() * size
        for axis, own in loops.items()
        if axis not in (*sweep.slow_group, *fast) and sweep.dims[axis].constant != 1
    ]
    known = math.gcd(*steps, read.tensor.alignment, MAX_ACCESS_BYTES) // (vector * size)
    return math.gcd(max(1, known), sweep.extent(fast).known_divisor(), most)


def _is_in_a_row(
    sweep: Sweep, tensor: Tensor, loops: Mapping[int, int], group: Sequence[int]
) -> bool:
    """Whether a tensor's lines along a group of a fixed length follow each other in memory, as
    elements of vectors do."""
    other = sweep.groups[-1] if group == sweep.slow_group else sweep.slow_group
    extent = sweep.extent(group).constant
    if extent is None or group[-1] not in loops or other[-1] not in loops:
        return False
    inner, outer = (tensor.layout[loops[axis]].constant for axis in (group[-1], other[-1]))
    return inner == 1 and outer == extent


def _are_in_a_row(sweep: Sweep, sides: tuple[int, int]) -> tuple[bool, bool]:
    """Whether a tile's lines of all transposed inputs along the slow group are, and those of all
    outputs along the fast one."""
    slow, fast = _groups(sweep)
    own = {axis: axis for axis, n in enumerate(sweep.dims) if n.constant != 1}
    transposed = all(
        _is_in_a_row(sweep, r.tensor, r.loops(sweep.dims), slow) for r in sweep.transposed
    )
    outputs = all(_is_in_a_row(sweep, output, own, fast) for output in sweep.outputs)
    is_whole = [
        (sweep.extent(group).constant or 0) <= side
        for group, side in zip((slow, fast), sides, strict=True)
    ]
    return transposed and is_whole[0], outputs and is_whole[1]


def _fragment_width(sweep: Sweep) -> int:
    """Elements of a fragment along the fast axis: 16 bytes of the narrowest tensor, and no more
    than two accesses to the widest."""
    width = _most_of_a_fragment(sweep)
    loops = {axis: axis for axis in range(len(sweep.dims))}
    for output in sweep.outputs:
        width = _aligned_elems(sweep, output, loops, sweep.groups[-1], width)
    return width


def _most_of_a_fragment(sweep: Sweep) -> int:
    sizes = _whole_sizes(sweep)
    return min(MAX_ACCESS_BYTES // min(sizes), 2 * MAX_ACCESS_BYTES // max(sizes))


def _fragment_rows(sweep: Sweep, width: int, each: int, columns: int) -> int:
    """Rows of a tile that a fragment is, where those of all that is whole and not transposed follow
    each other in memory; width: of a row's part, columns: of the tile."""
    slow, fast = _groups(sweep)
    elements = sweep.extent(slow).bounds()[1] * columns
    if not width == columns == sweep.extent(fast).constant or elements >= 1 << 31:
        return 1
    own = {axis: axis for axis, n in enumerate(sweep.dims) if n.constant != 1}
    straight = [r for r in sweep.reads if r not in sweep.transposed and _is_whole(sweep, r)]
    ends = [(output, own) for output in sweep.outputs]
    ends += [(read.tensor, read.loops(sweep.dims)) for read in straight]
    if not all(_is_in_a_row(sweep, tensor, loops, fast) for tensor, loops in ends):
        return 1
    most = max(1, min(_most_of_a_fragment(sweep), each) // width)
    return math.gcd(sweep.extent(slow).known_divisor(), most)


def _aligned_elems(
    sweep: Sweep, tensor: Tensor, loops: Mapping[int, int], group: Sequence[int], most: int
) -> int:
    """Elements along a group, a divisor of `most`, that any multiple of them starts aligned."""
    if tensor.layout[loops[group[-1]]].constant != 1:
        return 1
    size = _bytes_of(tensor)
    steps = [
        tensor.layout[own].known_divisor()
        for axis, own in loops.items()
        if axis not in group and sweep.dims[axis].constant != 1
    ]
    known = math.gcd(*(step * size for step in steps), tensor.alignment, MAX_ACCESS_BYTES)
    return math.gcd(max(1, known // size), sweep.extent(group).known_divisor(), most)


def _is_light(region: Region) -> bool:
    """Whether an element takes a few instructions."""
    bodies = [generic.regions[0].blocks[0] for generic in region.generics()]
    work = [view.operation for body in bodies for view in body.operations]
    kinds = {op.name for op in work if op.name.startswith("math.")} - {*_LIGHT_MATH}
    is_double = any(isinstance(r.type, ir.F64Type) for op in work for r in op.results)
    return len(work) <= _LIGHT_WORK and not kinds and not is_double


TRANSPOSE = TransposeEngine()
