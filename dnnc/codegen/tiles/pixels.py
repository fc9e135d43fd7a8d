# pyright: basic
"""Fragments of channels of an image's pixels, of which some may lie on its padding.

A `Place` is a coordinate along a spatial axis that may be outside; pixels that are outside along
any axis are zeros.  A tensor in memory whose pixels lie at a fixed distance is read by loads that
look at memory only where they are inside (`StoredPixels`): one address a row, the columns as
offsets in the instructions.  Anything else is a walk (`WalkedPixels`), at the nearest place that
is inside.  Where columns are next to each other, not channels, a walk takes several at once
(`RowPixels`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Protocol

from ...dialect.tensor import Tensor
from ...expr import Expr
from ...mlir import arith, ir, llvm
from .. import ops
from ..kernel import Kernel
from ..memory.tensors import MAX_ACCESS_BYTES, GlobalTensor, offset_bits, register_type
from ..ops import Number
from ..walk.index import Index
from ..walk.region_walk import Walk


@dataclass(frozen=True, eq=False)
class Place:
    """A coordinate along an axis; inside: whether it is (i1), or is known to be."""

    number: Number
    inside: Any

    @staticmethod
    def of(kernel: Kernel, number: Number, extent: Expr, *, may_be_outside: bool = True) -> Place:
        """number: from below 0 to past the extent."""
        if not may_be_outside:
            return Place(number, True)
        if isinstance(number, int) and extent.constant is not None:
            return Place(number, 0 <= number < extent.constant)
        return Place(number, ops.compare("ult", number, kernel.size(extent)))

    def clamped(self, kernel: Kernel, extent: Expr) -> Number:
        """The nearest coordinate inside."""
        if self.inside is True:
            return self.number
        return ops.maximum(ops.minimum(self.number, kernel.size(extent - 1)), 0)


def all_inside(places: Sequence[Place]) -> Any:
    """Whether all are: an i1, or True or False where that is known."""
    found = [place.inside for place in places]
    if any(inside is False for inside in found):
        return False
    unknown = [inside for inside in found if inside is not True]
    return reduce(ops.both, unknown) if unknown else True


@dataclass(frozen=True, eq=False)
class Line:
    """Pixels of one row of an image.  pointer: of the one at the first column."""

    image: Number
    places: tuple[Place, ...]
    inside: Any
    pointer: Any = None


class Pixels(Protocol):
    """width: elements of a fragment, consecutive channels from `channel` on.

    A line's places are along the axes between the channels' and the columns'.
    """

    def line(self, image: Number, places: Sequence[Place], first_column: Number) -> Line: ...

    def load(self, line: Line, step: int, column: Place) -> Any:
        """A line's fragment `step` columns from its first one, which is at this place."""
        ...


def is_stored(tensor: Tensor, width: int) -> bool:
    """Whether `StoredPixels` takes fragments of a tensor."""
    if tensor.is_by_value or tensor.type.bits < 8 or tensor.layout[-1].constant is None:
        return False
    return width == 1 or tensor.layout[1].constant == 1


def registers_of(tensor: Tensor, width: int) -> int:
    """Registers that a fragment of a tensor takes as it comes: parts of a word are one each."""
    size = tensor.type.bits // 8
    elements = _access_elems(tensor, width) if is_stored(tensor, width) else 1
    return width // elements * max(1, elements * size // 4)


def _access_elems(tensor: Tensor, width: int) -> int:
    """Elements of one access to aligned fragments."""
    size = tensor.type.bits // 8
    others = (stride for axis, stride in enumerate(tensor.layout) if axis != 1)
    steps = [stride.known_divisor() * size for stride in others]
    bytes_ = math.gcd(width * size, tensor.alignment, MAX_ACCESS_BYTES, *steps)
    return max(1, bytes_ // size)


@dataclass(eq=False)
class StoredPixels:
    """Pixels of a tensor in memory that `is_stored`; see `Pixels`."""

    leaf: GlobalTensor
    channel: Index
    width: int

    def line(self, image: Number, places: Sequence[Place], first_column: Number) -> Line:
        tensor, kernel = self.leaf.tensor, self.leaf.kernel
        bits = offset_bits(tensor)
        numbers = [image, self.channel.base, *(p.number for p in places), first_column]
        offset: Number = 0
        for number, stride in zip(numbers, tensor.layout, strict=True):
            wide = ops.to_i64(number) if bits == 64 else number
            offset = offset + wide * kernel.size(stride, bits)
        pointer = ops.gep(self.leaf.pointer, offset, register_type(tensor.type))
        return Line(image, tuple(places), all_inside(places), pointer)

    def load(self, line: Line, step: int, column: Place) -> Any:
        tensor = self.leaf.tensor
        element, size = register_type(tensor.type), tensor.type.bits // 8
        inside = all_inside([Place(0, line.inside), column])
        if inside is False:
            return ops.zeros(ops.vector_type(element, self.width))
        stride = tensor.layout[-1].constant
        assert stride is not None, "the distance of columns is fixed"
        count = _access_elems(tensor, self.width)
        type_ = ops.vector_type(element, count)
        parts = []
        for i in range(0, self.width, count):
            offset = step * stride + i
            if inside is True:
                pointer = ops.gep(line.pointer, offset, element)
                parts.append(ops.load(pointer, type_, size * count))
            else:
                parts.append(_load_inside(line.pointer, offset * size, type_, inside))
        return ops.concat(parts)


@dataclass(eq=False)
class WalkedPixels:
    """Pixels of any tensor of a region; dims: its own.  See `Pixels`."""

    walk: Walk
    tensor: Any
    dims: tuple[Expr, ...]
    channel: Index
    width: int
    _known: dict[int, tuple[Place, Index]] = field(default_factory=dict)

    def line(self, image: Number, places: Sequence[Place], first_column: Number) -> Line:
        return Line(image, tuple(places), all_inside(places))

    def load(self, line: Line, step: int, column: Place) -> Any:
        places = (*line.places, column)
        inside = all_inside(places)
        at = [self._at(place, extent) for place, extent in zip(places, self.dims[2:], strict=True)]
        value = self.walk.value(self.tensor, [Index.of(line.image), self.channel, *at], self.width)
        value = ops.splat(value, self.width)
        if inside is True:
            return value
        zeros = ops.zeros(value.type)
        return zeros if inside is False else arith.SelectOp(inside, value, zeros).result

    def _at(self, place: Place, extent: Expr) -> Index:
        """One index for one place, by which a walk knows what it has computed."""
        if id(place) not in self._known:
            self._known[id(place)] = place, Index.of(place.clamped(self.walk.kernel, extent))
        return self._known[id(place)][1]


@dataclass(eq=False)
class RowPixels(WalkedPixels):
    """Pixels of one channel of a tensor whose rows are whole accesses of `elems` columns; see
    `Pixels`.

    start: a multiple of `elems`, the column that lies `ahead` behind a line's first one.
    reaches_past: whether the column so many from a line's first may lie outside.
    """

    start: Number = 0
    ahead: int = 0
    elems: int = 1
    reaches_past: Callable[[int], bool] = bool
    _loaded: dict[tuple[int, int], tuple[Line, Any]] = field(default_factory=dict)

    def load(self, line: Line, step: int, column: Place) -> Any:
        number, element = divmod(step - self.ahead, self.elems)
        key = (id(line), number)
        if key not in self._loaded:
            self._loaded[key] = line, self._access(line, number)
        return ops.extract(self._loaded[key][1], element)

    def _access(self, line: Line, number: int) -> Any:
        """Columns from `number` accesses behind `start` on: all are inside, or none is."""
        kernel, extent = self.walk.kernel, self.dims[-1]
        first = number * self.elems
        ends = (first + self.ahead, first + self.ahead + self.elems - 1)
        column = Place.of(
            kernel, self.start + first, extent, may_be_outside=any(map(self.reaches_past, ends))
        )
        inside = all_inside([Place(0, line.inside), column])
        base = column.number
        if column.inside is not True:
            base = ops.maximum(ops.minimum(base, kernel.size(extent - self.elems)), 0)
        at = [self._at(place, n) for place, n in zip(line.places, self.dims[2:], strict=False)]
        at = [Index.of(line.image), self.channel, *at, Index(base, 1, self.elems)]
        value = self.walk.value(self.tensor, at, self.elems)
        if inside is True:
            return value
        zeros = ops.zeros(value.type)
        return zeros if inside is False else arith.SelectOp(inside, value, zeros).result


def _load_inside(pointer: Any, offset: int, type_: Any, inside: Any) -> Any:
    """Aligned elements of global memory that nothing writes meanwhile, `offset` bytes from a
    pointer, where a condition holds; elsewhere zeros, and memory is left alone.

    Written out: LLVM would make a branch of each such load.
    """
    element = ops.element_of(type_)
    count = type_.shape[0] if element != type_ else 1
    bits = element.width * count
    words = max(1, bits // 32)
    kind, mark = {8: ("u8", "h"), 16: ("b16", "h")}.get(bits, ("b32", "r"))
    word = ir.IntegerType.get_signless(16 if bits < 32 else 32)
    names = [f"${i}" for i in range(words)]
    cleared = " ".join(f"mov.b{word.width} {name}, 0;" for name in names)
    to = f"{{{', '.join(names)}}}" if words > 1 else names[0]
    vector = f"v{words}." if words > 1 else ""
    text = f"{cleared} @${words + 1} ld.global.nc.{vector}{kind} {to}, [${words}+{offset}];"
    address = llvm.PtrToIntOp(ops.i64_type(), pointer).result
    places = ",".join([*[f"=&{mark}"] * words, "l", "b"])
    if words > 1:
        struct = ir.Type.parse(f"!llvm.struct<({', '.join(['i32'] * words)})>")
        made = llvm.inline_asm(struct, [address, inside], text, places)
        loaded = ops.from_elements(ops.members(made, word, words))
    else:
        loaded = llvm.inline_asm(word, [address, inside], text, places)
    if bits == 8:
        loaded = arith.TruncIOp(ir.IntegerType.get_signless(8), loaded).result
    return loaded if loaded.type == type_ else llvm.BitcastOp(type_, loaded).result
