# pyright: basic
"""The operands of a filter's gradient on the main loop of `mma.sync`: dY, and what taps meet of X.

    A  [output channels, pixels]       dY, a matrix of pixels by channels
    B  [pixels, taps * channels]       gathered from X: a thread's rows are channels of a tap

k counts through the pixels of a part.  Both lie with their rows, not k, contiguous in shared
memory, [k][row], and `ldmatrix` transposes them.  A thread's columns are the same in every step,
so that a tap and a channel are found once a tile; the pixels are others each time, and are taken
apart into image and place.  Channels of a tap are in whole groups of eight, of bytes of sixteen or
four, those past the last one zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...codegen import ops
from ...codegen.ampere.operand_tile import OperandTile
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.smem import CHUNK_BYTES
from ...codegen.memory.tensors import offset_bits, register_type
from ...codegen.walk import index as idx
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.region_walk import Walk
from ...dialect.tensor import Tensor
from ...expr import Expr
from ..product.kernel_sm80 import Batch
from .pattern import pixel_matrix
from .wgrad import (
    WORD_BYTES,
    WgradShape,
    group_of,
    is_of_words,
    part_of,
    place_of_part,
    tap_places,
)

_GROUP_CHANNELS = 8


def padded_channels(shape: WgradShape) -> int:
    """Channels of a tap's columns, of which a copy is of one tap."""
    if is_of_words(shape):
        return WORD_BYTES
    together = max(_GROUP_CHANNELS, CHUNK_BYTES * 8 // shape.x.type.bits)
    return -(-shape.c_group // together) * together


@dataclass(frozen=True)
class Start:
    """The place that the tiles along k of a thread have in common.

    pixel: the part's first.  pieces: of each fragment, (its place and k in the tile, what is known
    of its rows).
    """

    pixel: Any
    pieces: Sequence[tuple[Any, Any, Any]]


@dataclass
class WgradTile(OperandTile):
    """conv: the gradient.  steps: pixels of a part, in whole tiles."""

    conv: WgradShape = field(kw_only=True)
    part: Expr = field(kw_only=True)

    @property
    def _elems(self) -> int:
        return self.plan.access_bytes // self.bytes

    @property
    def _tensor(self) -> Tensor:
        return self.region.arguments[self.value]

    def start(self, batch: Batch, first_row: Any) -> Start:
        """The place that the tiles along k, from a row on, have in common."""
        group = group_of(batch)
        pieces = [
            (row, k, self._rows(first_row + row, group))
            for row, k in self._pieces(self._elems, False)
        ]
        return Start(part_of(batch) * self.kernel.size(self.part), pieces)

    def issue(self, place: Start, first_k: Any, slot: Any) -> None:
        """Starts the copies of a tile."""
        first = place.pixel + first_k
        pixels = self.kernel.size(self.conv.pixels)
        bits = offset_bits(self._tensor)
        pointer = self.kernel.pointer(self._tensor, is_exclusive=True)
        for i, (row, k, known) in enumerate(place.pieces):
            number = first + k
            is_there = ops.less(number, pixels)
            kept = ops.select(is_there, number, 0)
            offset, valid, inside = self._find(kept, known, bits)
            count = ops.select(ops.both(is_there, inside), valid, 0)
            address = ops.gep(
                pointer, ops.select(ops.compare("ne", count, 0), offset, 0),
                register_type(self._tensor.type),
            )  # fmt: skip
            with ops.if_(self._guard(self._elems, i)):
                target = smem.byte_pointer(slot, self._place(row, k))
                smem.copy_async(target, address, self.plan.access_bytes, count)

    def fetch(self, walk: Walk, place: Any, first_k: Any) -> list[Any]:
        raise AssertionError("its elements come by copies")

    def _rows(self, row: Any, group: Any) -> Any:
        """The numbers that are known of a fragment from a row on."""
        raise NotImplementedError

    def _find(self, pixel: Any, known: Any, bits: int) -> tuple[Any, Any, Any]:
        """(elements from the tensor's first to a pixel's fragment; bytes of it that there are;
        whether it is inside, None: always)."""
        raise NotImplementedError

    def _valid(self, left: Any) -> Any:
        """Bytes of a fragment of which so many elements are left."""
        return ops.minimum(ops.maximum(left, 0), self._elems) * self.bytes


@dataclass
class GradientTile(WgradTile):
    """dY: rows are output channels of a group."""

    def _rows(self, row: Any, group: Any) -> Any:
        channel = group * self.conv.k_group + row
        return channel, self._valid(self.conv.k_group - row)

    def _find(self, pixel: Any, known: Any, bits: int) -> tuple[Any, Any, Any]:
        channel, valid = known
        matrix = pixel_matrix(self._tensor, 1)
        assert matrix is not None, "pixels of dY have no stride"
        place = _wide(pixel, bits) * self.kernel.size(matrix.layout[1], bits)
        return place + _wide(channel, bits), valid, None


@dataclass
class ImageTile(WgradTile):
    """X: rows are columns of dW's matrix, taps and channels of a group."""

    def _rows(self, row: Any, group: Any) -> Any:
        padded = padded_channels(self.conv)
        tap = row // padded
        own = row - tap * padded
        tap = ops.minimum(tap, self.conv.taps - 1)  # past the end, any: its sums are not stored
        if self.conv.is_flipped:
            tap = self.conv.taps - 1 - tap
        moves: list[Any] = []
        for window in self.conv.windows[::-1]:
            moves.append(tap % window.taps * window.dilation)
            tap = tap // window.taps
        channel = group * self.conv.c_group + own
        return channel, self._valid(self.conv.c_group - own), moves[::-1]

    def _find(self, pixel: Any, known: Any, bits: int) -> tuple[Any, Any, Any]:
        channel, valid, moves = known
        x, windows = self._tensor, self.conv.windows
        inside, offset = None, _wide(channel, bits)
        for axis in reversed(range(2, x.rank)):
            window, outputs = windows[axis - 2], self.conv.dy.shape[axis]
            quotient = self.kernel.divide(pixel, outputs)
            output = self.kernel.remainder(pixel, outputs, quotient)
            place = output * window.stride + (moves[axis - 2] + window.lower)
            if window.pre or window.post:
                is_there = ops.compare("ult", place, self.kernel.size(x.shape[axis]))
                inside = ops.both(inside, is_there)
            if x.shape[axis].constant != 1:
                stride = self.kernel.size(x.layout[axis], bits)
                offset = offset + _wide(place, bits) * stride
            pixel = quotient
        image = _wide(pixel, bits) * self.kernel.size(x.layout[0], bits)
        return offset + image, valid, inside


def _wide(number: Any, bits: int) -> Any:
    return ops.to_i64(number) if bits == 64 else number


@dataclass(frozen=True)
class FilterSpace:
    """Rows are the output channels of a group, columns taps and channels of each.

    is_matrix: what is stored is sums, whose columns are those of the product.  adds: those of all
    parts are added to one place.
    """

    kernel: Kernel
    shape: WgradShape
    is_matrix: bool
    adds: bool = False

    def is_there(self, batch: Batch, row: Any) -> Any:
        return None

    def at(self, batch: Batch, row: Index, column: Index, width: int) -> list[Coordinate]:
        first = group_of(batch) * self.shape.k_group
        own = idx.add(Index.of(first), row)
        rank = len(self.shape.dw)
        if self.is_matrix:
            part = place_of_part(batch, adds=self.adds) * self.shape.dw[0]
            return [idx.add(Index.of(part), own), column, *[Index.of(0)] * (rank - 2)]
        padded = padded_channels(self.shape)
        tap = column.base // padded
        channel = Index(column.base - tap * padded, column.step, column.divisor)
        return [own, channel, *map(Index.of, tap_places(self.shape, tap))]
