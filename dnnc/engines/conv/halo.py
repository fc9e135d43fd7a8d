# pyright: basic
"""Pixels with their halo: how a tile of X is loaded once, and read by every tap of a filter.

A tile is whole rows of an image of Y, or, of images that are wide or whose width is known at run
time, so many columns of some rows; a volume is one image after the other, each of which meets
images of X one tap of depth apart.  In shared memory lie, flat, the rows of X that its taps meet,
padding included: `pitch` pixels each.  Position f = row * pitch + column is an output pixel, and
the tap (r, s) meets it at position f + r * pitch + s (times the dilations): a shift of where the
instruction begins to read.  The last pitch - Q positions of each row of Q are no pixels of the
output: they are computed, and not stored.  So much is known when a kernel is compiled; where a
tile's columns begin, and how many of them an image has, is not.

With a stride in the image, pixels come by their phases (`conv.phases`), each of which is read as if
there were none: a load brings those of one, for the taps that meet them.

A pixel is a panel of its channels, 128 or 64 bytes under the swizzle of as many.  The swizzle
mixes bits of the address, and repeats every eight pixels from where a slot begins, so that a read
may begin at any pixel, with no base offset in its descriptor.

Example, 56 columns, 3x3, padding 1: pitch 58, so that 4 rows are 4 * 58 = 232 positions, 224 of
which are pixels, and tap (1, 2) reads from position 60 on.  Of an image of 100 columns such tiles
are two side by side, the second of which has 44 columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.im2col import Window
from ...codegen.hopper.staged_store import ALIGNMENT, TRANSPOSED_BYTES
from ...dialect.tensor import Tensor
from ...expr import Expr, ceildiv, product
from ...visible import counted
from .pattern import ConvShape, image_view
from .phases import Phase, phases_of

CONSUMERS = 2  # warpgroups that multiply a tile
MOST_TAPS = 64  # of a filter
MOST_PHASES = 4  # of an image, each of which has a tensor map of its own
_STEP = 8  # positions that an instruction counts in


@dataclass(frozen=True)
class Halo:
    """A tile of pixels.

    windows: of the rows and columns of an image.  columns, rows: of Y's image, of a warpgroup's
    part.  parts: one below the other in a tile, 1 or 2.  row_bytes: of a pixel in shared memory, a
    panel of its channels.  depth: the window of a volume.  is_cut: whether images may have other
    columns than a tile: fewer, or tiles side by side.
    """

    windows: tuple[Window, Window]
    columns: int
    rows: int
    parts: int
    row_bytes: int
    depth: Window | None = None
    is_cut: bool = False

    @staticmethod
    def of(shape: ConvShape, rows: int, parts: int, element_bytes: int, columns: int = 0) -> Halo:
        """element_bytes: of what is multiplied.  columns: 0: all of an image, see
        `columns_refusal`."""
        *outer, height, width = shape.windows
        across = columns or width.outputs(shape.x.shape[-1]).constant
        assert across is not None, "columns_refusal takes images of a fixed width"
        row_bytes, depth = shape.panel_bytes(element_bytes), outer[0] if outer else None
        return Halo((height, width), across, rows, parts, row_bytes, depth, columns > 0)

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """Phases of an image: those that a load brings one of, in the order of loads."""
        return phases_of(*self.windows)

    @property
    def slots(self) -> int:
        """Tiles of pixels in shared memory, one more where few taps read each."""
        return 2 if len(self.phases) == 1 else 3

    @property
    def pitch(self) -> int:
        """Pixels of a phase in a row, padding included."""
        return self.columns + max(phase.columns.reach for phase in self.phases)

    @property
    def positions(self) -> int:
        """Positions of a part: what an instruction computes, up to the last pixel."""
        needed = (self.rows - 1) * self.pitch + self.columns
        return -(-needed // _STEP) * _STEP

    @property
    def tile_rows(self) -> int:
        """Rows of Y's image in a tile."""
        return self.rows * self.parts

    @property
    def part_step(self) -> int:
        """Positions in shared memory from a part to the next."""
        return self.rows * self.pitch

    def input_rows(self, phase: Phase) -> int:
        """Rows of X in a tile."""
        return self.tile_rows + phase.rows.reach

    @property
    def taps(self) -> int:
        """Taps of an image."""
        return self.windows[0].taps * self.windows[1].taps

    @property
    def images(self) -> int:
        """Images of X that an image of Y meets."""
        return self.depth.taps if self.depth else 1

    def shift(self, phase: Phase, row: int, column: int) -> int:
        """Positions from an output pixel to where a tap of a phase meets it; row, column: its place
        among those."""
        return row * phase.rows.step * self.pitch + column * phase.columns.step

    def load_bytes(self, phase: Phase) -> int:
        """Bytes of one load, of a panel of channels."""
        return self.input_rows(phase) * self.pitch * self.row_bytes

    @property
    def slot_bytes(self) -> int:
        """Bytes that are loaded, and that the last tap of the last position reads past them."""
        most = max(max(self.load_bytes(phase), self._read_bytes(phase)) for phase in self.phases)
        return -(-most // ALIGNMENT) * ALIGNMENT

    def _read_bytes(self, phase: Phase) -> int:
        last = self.shift(phase, phase.rows.taps - 1, phase.columns.taps - 1)
        return ((self.parts - 1) * self.part_step + self.positions + last) * self.row_bytes

    @property
    def buffer_bytes(self) -> int:
        """Bytes of a part of a staged output or load."""
        bytes_ = self.part_step * wgmma.M * TRANSPOSED_BYTES
        return -(-bytes_ // ALIGNMENT) * ALIGNMENT

    def across(self, width: Expr) -> Expr:
        """Tiles side by side in an image of Y of so many columns."""
        return ceildiv(width, self.columns) if self.is_cut else Expr.of(1)

    def tiles_of_image(self, dims: Sequence[Expr]) -> Expr:
        """dims: of Y."""
        return ceildiv(dims[-2], self.tile_rows) * self.across(dims[-1])

    def tiles(self, shape: ConvShape) -> Expr:
        """Tiles of all images."""
        outer = shape.y[2:-2]
        return product((shape.x.shape[0], *outer)) * self.tiles_of_image(shape.y)

    def counted(self, shape: ConvShape) -> Expr:
        """Positions of all tiles."""
        return self.tiles(shape) * (self.parts * self.positions)

    @property
    def load_share(self) -> float:
        """The share that is loaded of what each step would load, if every tap loaded its pixels."""
        loaded = sum(self.input_rows(phase) * self.pitch for phase in self.phases)
        return loaded / (self.parts * self.positions * self.taps)


def parts_of(channels: int) -> int:
    """Parts of a tile of so many output channels: of 64, each warpgroup has pixels of its own."""
    return 2 if channels == wgmma.M else 1


def stays(shape: ConvShape, channels: int, stages: int, panels: int) -> bool:
    """Whether a block's filters are loaded once: all are there, and every tile has the same."""
    has_one = shape.groups == 1 and shape.k_group <= channels
    return has_one and stages == shape.taps * panels


def halo_refusal(shape: ConvShape, panel: int) -> str | None:
    """Why pixels of X can't be loaded with their halo."""
    if len(shape.windows) not in (2, 3):
        return counted(len(shape.windows), "spatial dim")
    height, width = shape.windows[-2:]
    if height.taps * width.taps == 1 or shape.taps > MOST_TAPS:
        return f"a filter of {' x '.join(str(window.taps) for window in shape.windows)} taps"
    if (what := _phase_refusal(shape, phases_of(height, width))) is not None:
        return what
    if len(shape.windows) == 3 and shape.groups > 1:
        return "volumes of several groups"
    if shape.is_split_by_groups(panel):
        return f"groups of {shape.c_group} channels"
    if (what := tma.refusal(shape.x, loaded_axes(shape.x))) is not None:
        return f"X with {what}"
    return None


def _phase_refusal(shape: ConvShape, phases: tuple[Phase, ...]) -> str | None:
    """Why taps share no pixels, or are of too many phases."""
    height, width = shape.windows[-2:]
    if len(phases) > MOST_PHASES:
        return f"convolution strides of {height.stride} and {width.stride}"
    if len(phases) == height.taps * width.taps:
        return f"{height.taps} x {width.taps} taps, no two of which meet the same pixels"
    rows, columns = shape.x.shape[-2:]
    for phase in phases:
        if min(phase.rows.extent(rows).bounds()[0], phase.columns.extent(columns).bounds()[0]) < 1:
            return f"images of {rows} x {columns} pixels, which a stride may be larger than"
    return None


def columns_refusal(shape: ConvShape, columns: int) -> str | None:
    """Why a tile's columns are not those of an image, 0."""
    width = shape.x.shape[-1]
    if columns == 0 and width.constant is None:
        return f"whole rows of images of a width of {width}"
    return None


def tile_refusal(halo: Halo, instruction: wgmma.Instruction) -> str | None:
    """Why a tile is none, of a convolution that has halos."""
    rows = max(map(halo.input_rows, halo.phases))
    if max(halo.pitch, rows) > tma.MAX_BOX:
        return f"{rows} rows of {halo.pitch} pixels"
    if not instruction.takes_columns(halo.positions):
        return f"{halo.positions} positions"
    return None


def loaded_axes(x: Tensor) -> tuple[int, ...]:
    """The axes of a box of pixels: channels, columns, rows, and for volumes, whose depth may be
    padded, one image."""
    return 1, *reversed(range(2, x.rank))


def stored_view(tensor: Tensor, groups: int) -> tuple[Tensor, tuple[int, int, int]]:
    """(a tensor of Y's dims as boxes of a group's channels see it, their axes: channels, columns,
    rows)."""
    if tensor.rank == 5:
        return tensor, (1, 4, 3)  # of one group: TMA has no sixth axis
    return image_view(tensor, groups), (2, 4, 3)


def image_moves(tensor: Tensor, groups: int) -> bool:
    """Whether TMA moves boxes of images of a tensor of Y's dims, transposed."""
    if tensor.type.bits != 8 * TRANSPOSED_BYTES or tensor.rank not in (4, 5):
        return False
    return tma.refusal(*stored_view(tensor, groups)) is None


def image_stored(tensor: Tensor, groups: int) -> bool:
    """Whether it stores them: it writes whole 16 bytes, so that a group's channels have to end
    with them."""
    k_group = tensor.shape[1] // groups
    whole = k_group.known_divisor() * tensor.type.bits % (8 * tma.ALIGNMENT) == 0
    return whole and image_moves(tensor, groups)
