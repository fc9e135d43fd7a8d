# pyright: basic
"""An entry of the batch whose rows are looked up: how many there are, and where they begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.sources import Source
from ...codegen.kernel import Kernel
from ...codegen.region import Region
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk


@dataclass(frozen=True)
class Entry:
    """Rows of a tile's entry of the batch: how many there are, None: all of the tensor; and the
    first, None: they are not packed."""

    length: Any = None
    first: Any = None


def packed_entry(kernel: Kernel, region: Region, source: Source, batch: Any, axis: int) -> Entry:
    """The entry of packed rows.  batch: the entry's number.  axis: of rows."""
    length = ops.to_i32(read(kernel, region, source.values[0], batch))
    return Entry(length, first_row(kernel, region, source, batch, axis))


def cut_length(kernel: Kernel, region: Region, source: Source, batch: Sequence[Any]) -> Any:
    """The number of rows before those that are replaced by zeros, i32.  batch: coordinates of the
    operand's entry, along its axes of heads."""
    lengths = source.values[0]
    dims = region.dims_of(lengths)
    at = [0 if n.constant == 1 else place for n, place in zip(dims, batch, strict=False)]
    return ops.to_i32(read(kernel, region, lengths, *at))


def read(kernel: Kernel, region: Region, value: Any, *at: Any) -> Any:
    """An integer of an SSA tensor of the region."""
    walk = Walk(kernel, region.leaves(kernel), region.symbols)
    places = [*at, *[0] * (len(region.dims_of(value)) - len(at))]
    return walk.value(value, [Index.of(place) for place in places], 1)


def first_row(kernel: Kernel, region: Region, source: Source, batch: Any, axis: int) -> Any:
    """The row of a packed tensor where an entry of the batch begins; axis: of rows."""
    elements = ops.to_i64(read(kernel, region, source.values[1], batch))
    number = ops.mul(elements, source.factor)
    # Where it is found it stays: computed again at each use it takes more registers.
    return ops.opaque(kernel.divide_long(number, source.tensor.layout[axis]))
