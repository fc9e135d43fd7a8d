# pyright: basic
"""All phases of a gradient with a stride in one tile of conv_sm80, where channels are few.

    rows      pixels of a phase, the same numbers of all phases
    columns   phases by channels of dX: 32
    k         outputs that any phase meets, and the channels of dY

Each phase has a few columns, so tiles of one phase would bring dY again for each, and for each of
its taps.  Here a tile of dY, of one output for every pixel, is multiplied for all phases that meet
it, and for no other: nothing is multiplied by zeros in place of a tap.  The outputs beside it lie
in the same lines, which copies leave in the first cache.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...codegen import ops
from ...codegen.ampere.operand_tile import LoadPlan, OperandTile
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.tensors import offset_bits, register_type
from ...codegen.walk.index import Coordinate, Group, Index, Part
from ...codegen.walk.loops import coordinates_of
from ...codegen.walk.region_walk import Walk
from ...dialect.tensor import Tensor
from ...expr import Expr
from ...visible import counted
from ..product.kernel_sm80 import Batch
from ..product.knobs_sm80 import NARROW_COLUMNS
from .filter_sm80 import transposed_bytes
from .pattern import ConvShape
from .spread import AxisSpread, ChosenPhase, Spread, SpreadPlaces
from .tiles_sm80 import gather_bytes

_COPY_BYTES = 16
_ELEMENTS = 8  # of such a copy of 16 bits
_MOST_MET = 32  # outputs that any phase meets: a bit each
_MOST_PLACES = 16  # phases by outputs of an axis, in half a byte each
_NO_TAP = 15


def together_refusal(shape: ConvShape, x: Tensor | None) -> str | None:
    """Why a convolution has no such tiles; x: X, None if it is computed."""
    spread = shape.spread
    if spread is None:
        return "no gradient with a stride"
    if x is None or shape.groups > 1 or x.type.bits != 16:
        return "groups, a dY that is computed or is not of 16 bits"
    if spread.phases * shape.k != NARROW_COLUMNS or shape.k % _ELEMENTS:
        return f"{counted(spread.phases, 'phase')} of {shape.k} channels"
    if gather_bytes(x, shape) != _COPY_BYTES or transposed_bytes(shape.w, shape) != _COPY_BYTES:
        return "channels that copies of 16 bytes do not bring"
    sizes = zip(spread.axes, shape.y[2:], shape.x.shape[2:], strict=True)
    if not all(axis.is_whole(pixels, outputs) for axis, pixels, outputs in sizes):
        return "an image of which some phases have fewer pixels than others"
    places = (len(axis.phases) * axis.window.taps for axis in spread.axes)
    if max(places) > _MOST_PLACES or _met_outputs(spread) > _MOST_MET:
        return "a filter of many taps"
    return None


def dense_shape(shape: ConvShape) -> ConvShape:
    """The gradient as a convolution of stride 1: of all outputs that any phase meets."""
    return replace(shape, spread=None, made=())


def _met_outputs(spread: Spread) -> int:
    return math.prod(axis.window.taps for axis in spread.axes)


def _tap(axis: AxisSpread, phase: int, output: int) -> int | None:
    """The filter's tap by which an axis' phase meets an output, counted from the least one."""
    own = axis.phases[phase]
    number, rest = divmod(output - axis.offset(own), axis.step)
    if rest or not 0 <= number < own.taps:
        return None
    return own.first_tap + number * own.tap_step


def _met_bits(spread: Spread) -> list[int]:
    """Bits of each phase, one for each output that it meets, the last axis fastest."""
    outputs = list(itertools.product(*(range(axis.window.taps) for axis in spread.axes)))
    found = []
    for phase in itertools.product(*map(range, spread.counts)):
        bits = 0
        for place, output in enumerate(outputs):
            pairs = zip(spread.axes, phase, output, strict=True)
            if all(_tap(axis, number, at) is not None for axis, number, at in pairs):
                bits |= 1 << place
        found.append(bits)
    return found


@dataclass(frozen=True)
class Meetings:
    """Which tiles along k the columns of a tile meet; steps: tiles of an output's channels."""

    shape: ConvShape
    steps: int

    def __call__(self, tile: Any, column: int) -> Any:
        """Whether columns from one on, of one phase, meet a tile along k, i1; None: they do."""
        spread = self.shape.spread
        assert spread is not None, "there are phases"
        bits = _met_bits(spread)[column // self.shape.k]
        count = _met_outputs(spread)
        if bits == (1 << count) - 1:
            return None
        output = tile // self.steps
        signed = bits - (1 << 32) if bits >> 31 else bits
        return ((ops.const(signed) >> output) & 1).ne(0)


@dataclass
class PhasesFilter(OperandTile):
    """W: columns are channels of all phases; zeros where a phase does not meet an output."""

    conv: ConvShape = field(kw_only=True)

    @property
    def _spread(self) -> Spread:
        assert self.conv.spread is not None, "there are phases"
        return self.conv.spread

    def start(self, batch: Batch, first_row: Any) -> None:
        return None

    def fetch(self, walk: Walk, place: Any, first_k: Any) -> list[Any]:
        raise AssertionError("its elements come by copies")

    def issue(self, place: None, first_k: Any, slot: Any) -> None:
        """Starts the copies of a tile, which is of one output."""
        w, spread = self.region.arguments[self.value], self._spread
        bits, pointer = offset_bits(w), self.kernel.pointer(w, is_exclusive=True)
        output = first_k // self.conv.c_group
        channel = first_k - output * self.conv.c_group
        outputs: list[Any] = []
        for axis in reversed(spread.axes):
            outputs.insert(0, output % axis.window.taps)
            output = output // axis.window.taps
        for i, (row, k) in enumerate(self._pieces(_ELEMENTS, False)):
            phase = row // self.conv.k
            own = row - phase * self.conv.k
            numbers = _numbers(spread, phase)
            taps = [_looked_up(*of) for of in zip(spread.axes, numbers, outputs, strict=True)]
            is_there = None
            for tap in taps:
                is_there = ops.both(is_there, ops.compare("ne", tap, _NO_TAP))
            offset: Any = ops.to_i64(own) if bits == 64 else own
            for coordinate, stride in zip(
                (channel + k, *taps), (w.layout[0], *w.layout[2:]), strict=True
            ):
                wide = ops.to_i64(coordinate) if bits == 64 else coordinate
                offset = offset + wide * self.kernel.size(stride, bits)
            address = ops.gep(pointer, ops.select(is_there, offset, 0), register_type(w.type))
            with ops.if_(self._guard(_ELEMENTS, i)):
                target = smem.byte_pointer(slot, self._place(row, k))
                valid = ops.select(is_there, _COPY_BYTES, 0)
                smem.copy_async(target, address, _COPY_BYTES, valid)


def _numbers(spread: Spread, phase: Any) -> list[Any]:
    """The numbers along the axes of the phase with a number among all."""
    found: list[Any] = []
    for count in reversed(spread.counts):
        found.insert(0, phase % count)
        phase = phase // count
    return found


def _looked_up(axis: AxisSpread, phase: Any, output: Any) -> Any:
    """`_tap` at run time; _NO_TAP: there is none."""
    reach, table = axis.window.taps, 0
    for number, at in itertools.product(range(len(axis.phases)), range(reach)):
        tap = _tap(axis, number, at)
        code = _NO_TAP if tap is None else tap
        table |= code << 4 * (number * reach + at)
    table -= (table >> 63) << 64
    place = (phase * reach + output) * 4
    found = ops.const(table, ops.i64_type()) >> ops.to_i64(place)
    return ops.to_i32(found) & _NO_TAP


@dataclass(frozen=True)
class PhasesSpace:
    """Rows are pixels of a phase, columns the channels of all phases; dims: of dX."""

    kernel: Kernel
    dims: tuple[Expr, ...]
    shape: ConvShape

    def is_there(self, batch: Batch, row: Any) -> Any:
        return None

    def at(self, batch: Batch, row: Index, column: Index, width: int) -> list[Coordinate]:
        spread = self.shape.spread
        assert spread is not None, "there are phases"
        phase = column.base // self.shape.k
        chosen = ChosenPhase(spread, tuple(_numbers(spread, phase)))
        places = SpreadPlaces(self.kernel, spread, self.dims, self.shape.x.shape[2:])
        pixel = Group(self.kernel, self.shape.counted, row, width)
        parts: dict[int, Coordinate] = {0: Part(pixel, 0)}
        for axis in range(len(self.dims) - 2):
            parts[2 + axis] = places.place(chosen, axis, Part(pixel, 1 + axis).index())
        own = column.base - phase * self.shape.k
        return coordinates_of(len(self.dims), parts, {1: replace(column, base=own)})


def filter_plan() -> LoadPlan:
    """How W comes: see `OperandTile`."""
    return LoadPlan("async", access_bytes=_COPY_BYTES)


def whole_steps(shape: ConvShape, depth: int) -> Sequence[int]:
    """Tiles along k of an output's channels; none where a tile would have those of two."""
    return () if shape.c_group % depth else (shape.c_group // depth,)
