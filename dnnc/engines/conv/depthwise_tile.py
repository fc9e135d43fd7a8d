"""Decisions of engine conv_depthwise on a convolution before it emits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from ...codegen.ampere.staged_filter import StagedFilter
from ...codegen.hopper.im2col import Window
from ...codegen.memory.tensors import MAX_ACCESS_BYTES
from ...codegen.tiles.strips import met
from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...expr import Expr, ceildiv
from ...target import REGISTERS_PER_THREAD, STATIC_SMEM_BYTES
from ..knob_values import KnobValues
from .pattern import ConvShape

# Multiply-adds that are written out one after the other: of more, code is slow to fetch and
# registers run short.
MOST_UNROLLED = 2000
MOST_TAPS_UNROLLED = 32
MOST_SUMS = 112  # registers of a thread
MOST_HELD = 176  # registers of a filter that stays in them, and of the sums

# Numbers that a thread works with at once (see `DepthwiseFacts.live`) for which the assembler found
# enough registers, and what it needs beside them: of few taps at the least, of more where nothing
# is to spill.
MOST_LIVE = 208
_FEW_TAPS = 9
_OTHER_REGISTERS = 28
_OTHER_REGISTERS_OF_MORE = 45
_OTHER_REGISTERS_AFTER = 5  # for what operations after the convolution read

# Blocks of an SM that may be asked for.
OCCUPANCIES = (1, 2, 3, 4, 5, 6, 8)
REGISTERS_SM = 65536  # of every architecture (see `Target`)
REGISTER_UNIT = 8  # that threads get registers in
LINE_BYTES = 128  # of neighbouring channels that a block had better read together


@dataclass(frozen=True)
class DepthwiseChoice(KnobValues):
    """One value of each knob.

    load_bytes: of X's channels, or of as many of Y's, of a thread.  rows, columns: of the output
    pixels that a thread has at once.  rounds: tiles that a thread works on, one after the other.
    holds_filter: whether it stays in registers from tile to tile.  min_blocks: of an SM, see
    `Kernel`; 0: as they come.
    """

    load_bytes: Annotated[int, "LOAD_SIZE"]
    rows: Annotated[int, "TILE_ROWS"]
    columns: Annotated[int, "TILE_COLS"]
    rounds: Annotated[int, "ARRAY_SIZE_PER_THREAD"]
    holds_filter: Annotated[bool, "SPECFILT"]
    threads: Annotated[int, "BLOCK_SIZE"]
    min_blocks: Annotated[int, "OCCUPANCY"]


@dataclass(frozen=True)
class DepthwiseTiling:
    """See the file's docstring.

    width: output channels of a thread, a fragment.  fragments: of a block.  strips: of a block,
    tiles of `rows` x `columns` output pixels along the last two axes.  threads: of the block.
    rounds: tiles that a thread works on, one after the other.
    along: columns of an access to X and to Y, where these are contiguous; 1: those of a pixel are.
    unrolled: what of the filter is written out: "filter", "row" or "tap".
    is_held: whether all of it stays in registers.
    min_blocks: of an SM, see `Kernel`.
    """

    width: int
    fragments: int
    strips: int
    threads: int
    rows: int
    columns: int
    along: int
    rounds: int
    unrolled: str
    is_held: bool
    min_blocks: int

    def tiles(self, axes: int) -> tuple[int, ...]:
        """Output pixels of a tile along each spatial axis."""
        return (1,) * (axes - 2) + (self.rows, self.columns)[-axes:]

    def counts(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """Tiles along each spatial axis of the output."""
        tiles = self.tiles(len(extents))
        return tuple(ceildiv(n, tile) for n, tile in zip(extents, tiles, strict=True))


@dataclass(frozen=True, eq=False)
class DepthwiseFacts:
    """Facts of a convolution that knobs and tilings depend on.

    sums: the type of its sums.  bits: of an element of X where it is read.  is_last: whether
    channels are next to each other there.  along: columns of an access at the most, where these are
    next to each other; else 1.
    """

    shape: ConvShape
    sums: DType
    bits: int
    is_last: bool
    along: int

    @staticmethod
    def of(shape: ConvShape, sums: DType, inputs: Iterable[Tensor]) -> DepthwiseFacts:
        """inputs: what is read from memory."""
        like = [t for t in inputs if t.shape == shape.x.shape and not t.is_by_value]
        like = like or [shape.x]
        is_last = any(t.layout[1].constant == 1 for t in like)
        along = 1 if is_last else _along(shape, like)
        return DepthwiseFacts(shape, sums, max(8, min(t.type.bits for t in like)), is_last, along)

    @property
    def channels(self) -> int:
        """Channels of the output."""
        return self.shape.groups * self.shape.k_group

    @property
    def sum_words(self) -> int:
        """Registers of a sum."""
        return max(1, self.sums.bits // 32)

    def width(self, load_bytes: int) -> int:
        """Output channels of a thread; 0: none."""
        return load_bytes * 8 // self.bits

    @property
    def loads(self) -> tuple[int, ...]:
        """Bytes of channels that a thread had better have: 16 or 8, or as many as there may be."""
        size = self.bits // 8
        if not self.is_last:
            return (size,)
        fitting = [load for load in (16, 8, 4, 2, 1) if load >= size and self.fits(load)]
        # Of many taps and channels of a group, fewer outputs leave registers for a pixel.
        few = [load for load in fitting if self.live(1, 1, self.width(load)) <= MOST_LIVE]
        fitting = few or fitting
        return tuple(fitting[: 2 if fitting[0] == MAX_ACCESS_BYTES else 1])

    def fits(self, load_bytes: int) -> bool:
        """Whether threads may have so many channels each: whole groups of outputs, or a part."""
        width, k_group = self.width(load_bytes), self.shape.k_group
        return bool(width) and not (
            self.channels % width
            or (width % k_group and k_group % width)
            or self.filter_bytes(width) > STATIC_SMEM_BYTES
        )

    def filter_bytes(self, channels: int) -> int:
        """Bytes of shared memory for the taps of so many output channels."""
        size = max(1, self.sums.bits // 8)
        return StagedFilter.bytes_of(self.shape.filter_taps, self.shape.c_group, channels, size)

    def products(self, outputs: int) -> int:
        """Multiply-adds of so many elements of the output."""
        taps, spread = self.shape.filter_taps, self.shape.spread
        of_all = outputs * taps * self.shape.c_group
        return -(-of_all // spread.phases) if spread else of_all

    def unrolled(self, outputs: int) -> str:
        """How much of the filter is written out; outputs: elements of a thread's tile."""
        products, taps = self.products(outputs), self.shape.filter_taps * self.shape.c_group
        if products <= MOST_UNROLLED and taps <= MOST_TAPS_UNROLLED:
            return "filter"
        row = outputs * self.shape.windows[-1].taps * self.shape.c_group
        return "row" if row <= MOST_UNROLLED else "tap"

    def live(self, rows: int, columns: int, width: int, *, is_held: bool = False) -> int:
        """Registers of sums, of the taps that lie on one row of X, or of all, and of such a row."""
        windows = (*(Window(1),) * 2, *self.shape.moves)[-2:]
        outputs = rows * columns * width
        taps = min(rows, windows[0].taps) * windows[1].taps * self.shape.c_group * width
        if is_held:
            taps = width * self.shape.filter_taps * self.shape.c_group
        line = len(met(columns, windows[1])) * max(1, width * self.bits // 32)
        return (outputs + taps) * self.sum_words + line

    def _along_of(self, rows: int, columns: int) -> int:
        """Columns of an access of tiles of so many, of one channel."""
        is_written_out = self.unrolled(rows * columns) == "filter"
        return math.gcd(self.along, columns) if is_written_out else 1

    def occupancy(self, live: int, threads: int, *, is_alone: bool) -> int:
        """Most blocks of an SM whose registers suffice for so many live numbers.

        is_alone: whether no operation follows the convolution.
        """
        is_small = self.products(1) <= _FEW_TAPS
        needed = live + (_OTHER_REGISTERS if is_small else _OTHER_REGISTERS_OF_MORE)
        needed += 0 if is_alone else _OTHER_REGISTERS_AFTER
        return max((n for n in OCCUPANCIES if needed <= registers_for(n, threads)), default=1)

    def tiling(self, choice: DepthwiseChoice) -> DepthwiseTiling:
        width, threads = self.width(choice.load_bytes), choice.threads
        rows, columns = choice.rows, choice.columns
        most = min(threads, STATIC_SMEM_BYTES // self.filter_bytes(width)) if self.is_last else 1
        fragment_bytes = width * self.bits // 8
        fragments = fragments_of_block(self.channels // width, fragment_bytes, threads, most)
        return DepthwiseTiling(
            width=width,
            fragments=fragments,
            strips=threads // fragments,
            threads=threads,
            rows=rows,
            columns=columns,
            along=self._along_of(rows, columns) if width == 1 else 1,
            rounds=choice.rounds,
            unrolled=self.unrolled(rows * columns * width),
            is_held=choice.holds_filter,
            min_blocks=choice.min_blocks,
        )

    def illegal(self, choice: DepthwiseChoice) -> Iterable[tuple[str, str]]:
        """(what is wrong, what would be accepted) of each constraint that knobs break."""
        width, k_group = self.width(choice.load_bytes), self.shape.k_group
        if not self.fits(choice.load_bytes):
            what = f"LOAD_SIZE={choice.load_bytes}, {width} of {self.channels} output channels"
            yield (
                what,
                (
                    f"a divisor of them that divides, or is divided by, {k_group} of a group, and "
                    f"whose taps fit {STATIC_SMEM_BYTES} bytes of shared memory"
                ),
            )
            return
        rows, outputs = choice.rows, choice.rows * choice.columns * width
        if self.shape.spread:
            steps = (*(1,) * 2, *(axis.stride for axis in self.shape.spread.axes))[-2:]
            if rows % steps[0] or choice.columns % steps[1]:
                what = f"tiles of {rows} x {choice.columns} pixels of a gradient"
                yield what, f"multiples of its strides {steps[0]} and {steps[1]}"
            if self.unrolled(outputs) != "filter":
                yield f"a gradient's tile of {outputs} sums", f"{MOST_UNROLLED} multiply-adds"
        if rows > 1 and len(self.shape.windows) == 1:
            yield f"TILE_ROWS={rows} of one spatial dim", "1"
        if outputs * self.sum_words > MOST_SUMS:
            what = f"a tile of {outputs} sums of {self.sums} a thread"
            yield what, f"at most {MOST_SUMS} registers"
        most = registers_for(max(1, choice.min_blocks), choice.threads)
        needed = _OTHER_REGISTERS + self.live(rows, choice.columns, width)
        if choice.min_blocks and needed > most:
            yield f"OCCUPANCY={choice.min_blocks}: {needed} registers a thread", f"at most {most}"
        held = width * self.shape.filter_taps * self.shape.c_group + outputs
        held *= self.sum_words
        if choice.holds_filter and (held > MOST_HELD or self.unrolled(outputs) != "filter"):
            what = f"SPECFILT=1: {held} registers of the filter and of sums"
            yield what, f"at most {MOST_HELD}, and {MOST_UNROLLED} multiply-adds of a tile"


def _along(shape: ConvShape, inputs: Sequence[Tensor]) -> int:
    """Columns of an access to each of some tensors of X's dims, and to Y: one channel's rows are
    contiguous, and whole accesses."""
    if shape.spread or shape.windows[-1].stride != 1 or shape.c_group != 1:
        return 1
    found = math.gcd(shape.x.shape[-1].known_divisor(), shape.y[-1].known_divisor())
    for tensor in inputs:
        size = max(1, tensor.type.bits // 8)
        if tensor.layout[-1].constant != 1 or tensor.type.bits < 8:
            return 1
        others = [stride.known_divisor() for stride in tensor.layout[:-1]]
        found = math.gcd(found, min(tensor.alignment, MAX_ACCESS_BYTES) // size, *others)
    return max(1, found)


def registers_for(blocks: int, threads: int) -> int:
    """Most registers of a thread that leave room for so many blocks on an SM."""
    each = REGISTERS_SM // (blocks * threads) // REGISTER_UNIT * REGISTER_UNIT
    return min(REGISTERS_PER_THREAD, each)


def fragments_of_block(count: int, fragment_bytes: int, threads: int, most: int) -> int:
    """How many of `count` fragments of channels a block has: a divisor, so that none is left.

    Most of its threads should have work, and should read whole lines.
    """

    def worth(divisor: int) -> tuple[float, int]:
        used = threads // divisor * divisor / threads
        bytes_ = divisor * fragment_bytes
        # Further channels take the place of neighbouring pixels, which share loads.
        return used * (1.0 if bytes_ >= LINE_BYTES else 0.9), -bytes_

    return max((d for d in range(1, min(count, most) + 1) if count % d == 0), key=worth)
