# pyright: basic
"""X that operations before a filter's gradient give, on Hopper: computed in place by warps of the
producer, see `hopper.rewriting`.

TapRewriter    panels of 64 pixels and channels of one tap, of filters without padding
HaloRewriter   pixels that come once for all taps: each is computed once, and padding, which is of
               what the operations give, is seen from its place in the tile
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...codegen import ops
from ...codegen.hopper import tma
from ...codegen.hopper.pipeline import Cursor
from ...codegen.hopper.rewriting import Columns, RawRows, Rewriting
from ...codegen.hopper.wgmma import ROW_BYTES, WARPGROUP_THREADS
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.region import Region
from ...codegen.state import each
from ...codegen.tiles.schedule import TilePlace
from ...dialect.attributes import data_type_of
from ...expr import Expr
from .wgrad import CHUNK, WgradShape, group_of, loaded_values, part_of, tap_and_channel
from .wgrad_rewriting_sm90 import OperandRewriter

_TOGETHER = 6  # rows of a thread that are in registers at a time: those of a panel


def rewriting_of(
    kernel: Kernel, region: Region, call: Any, shape: WgradShape, offset: int, helpers: int = 0
) -> Rewriting:
    """How X is computed; offset: of its tile, bytes from the slot's start.  helpers: warpgroups
    beside the producer that compute it."""
    value, loaded = call.operands[0], loaded_values(region, call)[0]
    type_ = data_type_of(value)
    raw = RawRows(loaded, shape.x, offset, CHUNK)
    return Rewriting(
        kernel, region, value, type_, [raw], shape.c_group, offset, warpgroups=1 + helpers
    )


@dataclass
class TapRewriter(OperandRewriter):
    """See the file's docstring.

    tile_rows: columns of the block's tile.  steps: of a part.  is_whole: whether all pixels of the
    steps are there.  Warpgroups take panels alternately.
    """

    kernel: Kernel = field(kw_only=True)
    shape: WgradShape = field(kw_only=True)
    rewriting: Rewriting = field(kw_only=True)
    tile_rows: int = field(kw_only=True)
    steps: Expr = field(kw_only=True)
    is_whole: bool = field(kw_only=True)
    alone: Columns | None = field(init=False, default=None)

    def _tile(self, place: TilePlace, here: Cursor) -> Cursor:
        if self.tile_rows == CHUNK * (1 + self.helpers):  # a panel, the same in every step
            self.alone = self._columns(place, self._first_panel)
        return super()._tile(place, here)

    def make_slot(self, here: Cursor, place: TilePlace, step: Any) -> None:
        slot = self.ring.slot(here)
        first = (part_of(place.batch) * self.kernel.size(self.steps) + step) * CHUNK
        pixels = self.kernel.size(self.shape.pixels)

        def rewrite(panel: Any, columns: Columns) -> None:
            self.rewriting.rewrite(
                smem.byte_pointer(slot, panel * ROW_BYTES), CHUNK, columns,
                lambda row: None if self.is_whole else first + row < pixels,
                lambda: self.wait(here), together=_TOGETHER,
            )  # fmt: skip

        if self.alone:
            rewrite(self._first_panel, self.alone)
        else:

            @each(self._first_panel, self.tile_rows, CHUNK * (1 + self.helpers))
            def _(panel: Any) -> None:
                rewrite(panel, self._columns(place, panel))

        tma.show_writes()

    @property
    def _first_panel(self) -> Any:
        """The first row of the warpgroup's panels."""
        if not self.helpers:
            return 0
        return ops.minimum(ops.thread_id() // WARPGROUP_THREADS, self.helpers) * CHUNK

    def _columns(self, place: TilePlace, panel: Any) -> Columns:
        shape = self.shape
        _, channel = tap_and_channel(shape, place.column + panel)
        group = group_of(place.batch) * shape.c_group
        return self.rewriting.columns(ops.minimum(channel, (shape.chunks - 1) * CHUNK), group)


@dataclass
class HaloRewriter(OperandRewriter):
    """See the file's docstring.  tile: a `WgradHalo`.  corner(number): image, row and column of dY
    where a tile begins.  steps: of a part."""

    kernel: Kernel = field(kw_only=True)
    tile: Any = field(kw_only=True)
    rewriting: Rewriting = field(kw_only=True)
    steps: Expr = field(kw_only=True)

    def make_slot(self, here: Cursor, place: TilePlace, step: Any) -> None:
        tile, shape = self.tile, self.tile.shape
        number = part_of(place.batch) * self.kernel.size(self.steps) + step
        _, row, column = tile.corner(self.kernel, number)
        _, _, *starts = tile.x_place(0, 0, row, column)

        def inside(position: Any) -> Any:
            down = position // tile.pitch
            found, places = None, (down, position - down * tile.pitch)
            for window, moved, start, axis in zip(
                shape.windows, places, starts, (2, 3), strict=True
            ):
                if window.pre or window.post:
                    extent = self.kernel.size(shape.x.shape[axis])
                    found = ops.both(found, ops.compare("ult", moved + start, extent))
            return found

        channel = place.column // tile.tile_columns * CHUNK
        group = group_of(place.batch) * shape.c_group
        rows = tile.input_rows * tile.pitch
        self.rewriting.rewrite(
            self.ring.slot(here), rows, self.rewriting.columns(channel, group), inside,
            lambda: self.wait(here), together=_TOGETHER,
        )  # fmt: skip
        tma.show_writes()
