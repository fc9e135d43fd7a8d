# pyright: basic
"""Convolutions of few channels: windows that overlap, read where a row of pixels lies.

What a tap row of the filter meets of X is one run of S * C elements, channels last; the run of
the next output pixel begins stride * C elements further on.  So a tile holds rows of X as they
are, and each thread reads the elements that its part of the product's A needs: no element is
stored twice.  k counts through the rows of the filter, each a whole number of groups of eight
elements, those past S * C zeros.  A tile begins at a whole 16 bytes of a row of X, and a thread
reads two elements at a time: where padding makes runs begin at odd places, one element before
them is a zero too.  Where runs are an odd number of elements apart, every other pixel's words lie
across two, and both are read.

A warp has 16 pixels of a row of Y; a block of 64 pixels is four rows of 16.  The words that its
lanes take together are of 8 pixels: where runs are a multiple of 32 bytes apart these would lie in
few banks, so rows come in units of 32, 64 or 128 bytes, each under the swizzle of its length, if
rows of X are a whole number of them.

Example, 7x7 filter, 3 channels, stride 2, padding 3: runs of 21 elements, from 9 before an even
place on: with one before them three groups of eight, of seven rows: 21 groups, or 11 steps of 16
with one group of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ... import dtypes
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.im2col import Window
from ...dialect.tensor import Tensor
from ...expr import Expr, ceildiv
from ...visible import counted
from .pattern import ConvShape

ACROSS = 16  # pixels of a block in a row of Y
DOWN = wgmma.M // ACROSS  # rows of it
GROUP = 8  # elements of k that lie together
MOST_CHANNELS = 32  # more fill panels of im2col loads, which cost fewer instructions
MOST_STEPS = 100  # of k, each 16 elements, which are written out one after the other
# Those whose words are in registers at the same time, beside few sums and beside more.
_TOGETHER, _TOGETHER_OF_MORE = 24, 8
_FEW_SUMS = 64  # of a thread
_SLOT_ALIGNMENT = 1024
_SIZE = 2  # bytes of an element
_WIDE = 4  # elements that TMA may take for one, of 8 bytes
_UNITS = (64, 32, 16)  # elements that a swizzle moves together
_BANKS = 32  # of shared memory, of four bytes


@dataclass(frozen=True)
class Stem:
    """A tile of rows of X.

    windows: of the rows and columns of an image.  channels: of X.  blocks: of 64 pixels of Y, one
    below the other.  unit: elements of a row that are swizzled together; 0: rows are as they lie.
    """

    windows: tuple[Window, Window]
    channels: int
    blocks: int
    unit: int

    @staticmethod
    def of(shape: ConvShape, blocks: int) -> Stem:
        height, width = shape.windows
        step = width.stride * shape.c_group
        row = row_of(shape.x).known_divisor()
        units = (unit for unit in _UNITS if step % unit == 0 and row % unit == 0)
        return Stem((height, width), shape.c_group, blocks, next(units, 0))

    @property
    def elements(self) -> int:
        """Elements of a run."""
        return self.windows[1].taps * self.channels

    @property
    def lead(self) -> int:
        """Elements from a tile's first, a whole 16 bytes or unit, to the first run."""
        return self.windows[1].lower * self.channels % (self.unit or GROUP)

    @property
    def before(self) -> int:
        """Elements that are read before a run."""
        return self.lead % 2

    @property
    def groups(self) -> int:
        """Groups of a run and what is before it, each of eight elements."""
        return -(-(self.before + self.elements) // GROUP)

    @property
    def steps(self) -> int:
        """Steps of k, each two groups."""
        return -(-self.windows[0].taps * self.groups // 2)

    @property
    def step(self) -> int:
        """Elements from an output pixel's run to the next one's."""
        return self.windows[1].stride * self.channels

    @property
    def is_split(self) -> bool:
        """Whether words of every other pixel lie across two of the tile's."""
        return self.step % 2 == 1

    @property
    def pitch(self) -> int:
        """Elements of a row of the tile: a whole number of 16 bytes, or of units."""
        needed = self.lead - self.before + (ACROSS - 1) * self.step + self.groups * GROUP
        needed += 1 if self.is_split else 0
        whole = self.unit or GROUP
        return -(-needed // whole) * whole

    @property
    def together(self) -> int:
        """Elements that a box counts as one: it has up to 256 of them."""
        if self.unit:
            return self.unit
        return 1 if self.pitch <= tma.MAX_BOX else _WIDE

    @property
    def box(self) -> tuple[int, ...]:
        """The box of a tile, in `rows_view`, innermost first."""
        rows = (self.pitch // self.together, self.input_rows)
        return (self.unit, *rows) if self.unit else rows

    def swizzled(self, place: Any) -> Any:
        """Where some bytes of a tile lie under the swizzle; place: counted from a whole 1024."""
        mask = self.unit * _SIZE - tma.ALIGNMENT
        return place ^ ((place >> 3) & mask) if self.unit else place

    @property
    def rows(self) -> int:
        """Rows of Y's image in a tile."""
        return DOWN * self.blocks

    @property
    def input_rows(self) -> int:
        """Rows of X's image in a tile."""
        return (self.rows - 1) * self.windows[0].stride + self.windows[0].reach + 1

    @property
    def load_bytes(self) -> int:
        return self.input_rows * self.pitch * _SIZE

    @property
    def slot_bytes(self) -> int:
        return -(-self.load_bytes // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT

    def shares(self, sums: int) -> list[range]:
        """The shares of the steps whose words are taken together: as many in each, or one less.

        sums: of a thread.
        """
        count = -(-self.steps // (_TOGETHER if sums <= _FEW_SUMS else _TOGETHER_OF_MORE))
        ends = [self.steps * i // count for i in range(count + 1)]
        return list(map(range, ends, ends[1:]))

    @property
    def conflicts(self) -> int:
        """Times that a bank of shared memory is read, where the lanes of a warp take a word.

        Example, words of 8 pixels, four neighbours each, that are 16 elements apart: 2, or 1 where
        they are swizzled.
        """
        words = {pixel * self.step // 2 + lane for pixel in range(8) for lane in range(4)}
        banks = [self.swizzled(4 * word) // 4 % _BANKS for word in words]
        return max(map(banks.count, banks)) * (2 if self.is_split else 1)

    @property
    def panels(self) -> int:
        """Panels of the filter in shared memory, each 128 bytes of k."""
        return -(-self.steps * 2 * GROUP * _SIZE // wgmma.ROW_BYTES)

    def offset(self, group: int) -> int | None:
        """Bytes from a tile's row, for its first run, to a group's elements; None: zeros."""
        row, inner = divmod(group, self.groups)
        height = self.windows[0]
        if row >= height.taps:
            return None
        first = self.lead - self.before
        return (row * height.dilation * self.pitch + first + inner * GROUP) * _SIZE

    def valid(self, group: int) -> range:
        """Which elements of a group are some of a run."""
        first = group % self.groups * GROUP
        end = self.before + self.elements - first
        return range(max(0, self.before - first), min(GROUP, end))

    def tiles(self, dims: tuple[Expr, ...]) -> tuple[Expr, Expr]:
        """Tiles of an image, down and across; dims: of Y."""
        return ceildiv(dims[2], self.rows), ceildiv(dims[3], ACROSS)


def row_of(x: Tensor) -> Expr:
    """Elements of a row of X."""
    return x.shape[3] * x.shape[1]


def rows_view(tensor: Tensor, stem: Stem | None = None) -> Tensor:
    """X as a tile's copy reads it: rows of elements, of numbers of 8 bytes, or of units.

    [N, H, W * C], [N, H, W * C / 4] or [N, H, W * C / unit, unit].
    """
    n, _, h, _ = tensor.shape
    image, _, row, _ = tensor.layout
    elements, one = row_of(tensor), Expr.of(1)
    if stem is None or stem.together == 1:
        return replace(tensor, dims=(n, h, elements), strides=(image, row, one))
    count = elements // stem.together
    if stem.unit:
        unit = Expr.of(stem.unit)
        return replace(tensor, dims=(n, h, count, unit), strides=(image, row, unit, one))
    strides = (image // stem.together, row // stem.together, one)
    offset = tensor.offset // stem.together
    return replace(tensor, dims=(n, h, count), strides=strides, dtype=dtypes.i64, offset=offset)


def stem_refusal(shape: ConvShape) -> str | None:
    """Why rows of X can't be read as runs."""
    if len(shape.windows) != 2:
        return counted(len(shape.windows), "spatial dim")
    if shape.groups != 1:
        return f"{shape.groups} groups"
    if shape.c_group > MOST_CHANNELS:
        return f"{shape.c_group} channels"
    x = shape.x
    if 1 not in (x.layout[1].constant, x.shape[1].constant) or x.layout[3] != x.shape[1]:
        return "pixels that do not follow each other, channels last"
    if (what := tma.refusal(rows_view(x), (2, 1))) is not None:
        return f"rows of X with {what}"
    height, width = shape.windows
    if width.dilation != 1:
        return f"a dilation of {width.dilation} along rows"
    stem = Stem.of(shape, 1)
    if stem.steps > MOST_STEPS:
        return f"{height.taps} rows of {stem.elements} elements of a filter"
    if max(stem.pitch // stem.together, stem.input_rows) > tma.MAX_BOX:
        return f"tiles of {stem.input_rows} rows of {stem.pitch} elements"
    if row_of(x).known_divisor() % stem.together:
        return f"tiles of rows of {stem.pitch} elements, X of rows of {row_of(x)}"
    return None
