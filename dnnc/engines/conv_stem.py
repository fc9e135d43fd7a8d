# pyright: basic
"""Convolutions of few channels: windows that overlap, read where a row of pixels lies.

What a tap row of the filter meets of X is one run of S * C elements, channels last; the run of
the next output pixel begins stride * C elements further on.  So a tile holds rows of X as they
are, and each thread reads the elements that its part of the product's A needs: no element is
stored twice.  k counts through the rows of the filter, each a whole number of groups of eight
elements, those past S * C zeros.  A tile begins at a whole 16 bytes of a row of X, and a thread
reads two elements at a time: where padding makes runs begin at odd places, one element before
them is a zero too.

A warp has 16 pixels of a row of Y; a block of 64 pixels is four rows of 16.

Example, 7x7 filter, 3 channels, stride 2, padding 3: runs of 21 elements, from 9 before an even
place on: with one before them three groups of eight, of seven rows: 21 groups, or 11 steps of 16
with one group of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..codegen import tma, wgmma
from ..codegen.im2col import Window
from ..dialect.tensor import Tensor
from ..expr import Expr, ceildiv
from .conv import ConvShape

ACROSS = 16  # pixels of a block in a row of Y
DOWN = wgmma.M // ACROSS  # rows of it
GROUP = 8  # elements of k that lie together
MOST_STEPS = 24  # of k, each 16 elements, which are written out one after the other
_SLOT_ALIGNMENT = 1024
_SIZE = 2  # bytes of an element


@dataclass(frozen=True)
class Stem:
    """A tile of rows of X.

    windows: of the rows and columns of an image.  channels: of X.  blocks: of 64 pixels of Y, one
    below the other.
    """

    windows: tuple[Window, Window]
    channels: int
    blocks: int

    @staticmethod
    def of(shape: ConvShape, blocks: int) -> Stem:
        height, width = shape.windows
        return Stem((height, width), shape.c_group, blocks)

    @property
    def elements(self) -> int:
        """Of a run."""
        return self.windows[1].taps * self.channels

    @property
    def lead(self) -> int:
        """Elements from a tile's first, a whole 16 bytes, to the first run."""
        return self.windows[1].lower * self.channels % GROUP

    @property
    def before(self) -> int:
        """Elements that are read before a run."""
        return self.lead % 2

    @property
    def groups(self) -> int:
        """Of a run and what is before it, each of eight elements."""
        return -(-(self.before + self.elements) // GROUP)

    @property
    def steps(self) -> int:
        """Of k, each two groups."""
        return -(-self.windows[0].taps * self.groups // 2)

    @property
    def step(self) -> int:
        """Elements from an output pixel's run to the next one's."""
        return self.windows[1].stride * self.channels

    @property
    def pitch(self) -> int:
        """Elements of a row of the tile: a whole number of 16 bytes."""
        needed = self.lead - self.before + (ACROSS - 1) * self.step + self.groups * GROUP
        return -(-needed // GROUP) * GROUP

    @property
    def rows(self) -> int:
        """Of Y's image, of a tile."""
        return DOWN * self.blocks

    @property
    def input_rows(self) -> int:
        """Of X's image."""
        return (self.rows - 1) * self.windows[0].stride + self.windows[0].reach + 1

    @property
    def load_bytes(self) -> int:
        return self.input_rows * self.pitch * _SIZE

    @property
    def slot_bytes(self) -> int:
        return -(-self.load_bytes // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT

    @property
    def panels(self) -> int:
        """Of the filter in shared memory, each 128 bytes of k."""
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
        """Of an image, down and across; dims: of Y."""
        return ceildiv(dims[2], self.rows), ceildiv(dims[3], ACROSS)


def rows_view(tensor: Tensor) -> Tensor:
    """X as [N, H, W * C]: rows of elements."""
    n, c, h, w = tensor.shape
    strides = tensor.layout
    dims = (n, h, w * c)
    return replace(tensor, dims=dims, strides=(strides[0], strides[2], Expr.of(1)))


def stem_refusal(shape: ConvShape) -> str | None:
    """Why rows of X can't be read as runs."""
    if len(shape.windows) != 2:
        return f"{len(shape.windows)} spatial dims"
    if shape.groups != 1:
        return f"{shape.groups} groups"
    x = shape.x
    if x.layout[1].constant != 1 or x.layout[3] != x.shape[1]:
        return "pixels that do not follow each other, channels last"
    if (what := tma.refusal(rows_view(x), (2, 1))) is not None:
        return f"rows of X with {what}"
    height, width = shape.windows
    if width.dilation != 1:
        return f"a dilation of {width.dilation} along rows"
    stem = Stem.of(shape, 1)
    if stem.step % 2:
        return f"runs {stem.step} elements apart, an odd number"
    if stem.steps > MOST_STEPS:
        return f"{height.taps} rows of {stem.elements} elements of a filter"
    if max(stem.pitch, stem.input_rows) > tma.MAX_BOX:
        return f"tiles of {stem.input_rows} rows of {stem.pitch} elements"
    return None
