# pyright: basic
"""Sums of dY over all pixels, the gradient of a bias, beside the gradient of a filter.

    first    while a warpgroup's products read a stage of dY, its threads read it, too
    second   db = after(sums of a channel)

A thread has eight channels of every sixteenth pixel, in f32.  Warpgroups of all columns read the
same dY: they take its stages alternately, so that each element is added once and all work as much.
Each warp leaves a number for each of its channels; `emit` adds them up in a fixed order, a warp for
each channel.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ... import dtypes
from ...codegen import ops
from ...codegen.hopper import wgmma
from ...codegen.hopper.cluster import Cluster
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.tensors import register_type
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.state import chosen, loop
from ...codegen.stretch import stretch
from ...codegen.tiles.schedule import TilePlace
from ...codegen.totals import reduce
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk, is_reduction
from ...dialect.tensor import Tensor, packed_strides
from ...expr import Expr
from ...mlir import arith
from ...target import WARP_THREADS
from ..product.region_sm90 import product_calls
from ..product.tile_parts_sm90 import BlockTile
from .wgrad import WgradShape, group_of, part_of

_UID = (1 << 61) + 1  # that no tensor of a region has
_WIDTH = 8  # channels of a thread: 16 bytes
_PIECES = wgmma.PANEL_ROWS // _WIDTH  # threads that have a pixel's channels of a panel
_PIXELS = wgmma.WARPGROUP_THREADS // _PIECES  # that a warpgroup reads at once
_TOGETHER = 4  # loads of a thread under way
_WARPS = 4  # of a warpgroup
_BATCH = 16  # numbers of a lane that are loaded together


def sharers_of(columns: int, block: BlockTile) -> int:
    """Warpgroups that multiply the same rows of dY, of a product of so many columns."""
    return -(-columns // block.part[1])


def loss_sums_of(shape: WgradShape, parts: int, splits: int, sharers: int) -> Tensor:
    """The numbers that the warps of all blocks leave: f32 [output channels, warps]; sharers: see
    `sharers_of`."""
    dims = tuple(map(Expr.of, (shape.dw[0], parts * splits * sharers * _WARPS)))
    return Tensor(uid=_UID, dims=dims, strides=packed_strides(dims), dtype=dtypes.f32)


def place_loss_sums(output: Output, sums: Tensor) -> None:
    """Asks for the workspace of the numbers."""
    assert sums.uid is not None, "sums have a uid"
    bytes_ = (sums.elements().constant or 0) * sums.type.bits // 8
    output.tensors[sums.uid] = output.workspace("losses", bytes_)


@dataclass(frozen=True)
class LossSums:
    """The part of the first kernel.

    sums: see `loss_sums_of`.  rows: output channels of a warpgroup.  panel_bytes: from 64 of them
    to the next 64 in shared memory.  pixels: of a stage.  columns: of a warpgroup.  sharers: see
    `sharers_of`.
    """

    kernel: Kernel
    shape: WgradShape
    sums: Tensor
    cluster: Cluster
    rows: int
    panel_bytes: int
    pixels: int
    columns: int
    sharers: int

    @property
    def _panels(self) -> range:
        return range(0, self.rows, wgmma.PANEL_ROWS)

    def start(self) -> list[Any]:
        """The sums of a tile's beginning: eight channels of each panel."""
        return [ops.zeros(ops.vector_type(ops.f32_type(), _WIDTH)) for _ in self._panels]

    def added(self, sums: Sequence[Any], place: TilePlace, step: Any, address: Any) -> list[Any]:
        """The sums with a stage's pixels, if it is for this warpgroup; address: of the
        warpgroup's rows, i32."""
        sums = list(sums)
        if self.is_alone:
            return self._all_added(sums, address)
        is_own = ops.compare("eq", step % self.sharers, self._share(place))
        return chosen(is_own, sums, lambda: self._all_added(sums, address), lambda: sums)

    @property
    def is_alone(self) -> bool:
        """Whether one warpgroup has all the stages."""
        return self.sharers == 1

    def with_round(self, sums: Sequence[Any], address: Any, number: int) -> list[Any]:
        """The sums with the n-th 16 pixels of a stage of one panel."""
        (own,) = sums
        return [self._read(own, address + self._inside(), number, 1)]

    def _share(self, place: TilePlace) -> Any:
        """The number of the warpgroup among the sharers; place: its own."""
        return place.column // self.columns if self.sharers > 1 else 0

    @stretch("sum of rows")
    def _all_added(self, sums: Sequence[Any], address: Any) -> list[Any]:
        inside = self._inside()
        rounds = self.pixels // _PIXELS
        whole = rounds // _TOGETHER * _TOGETHER

        def read(sums: Sequence[Any], first: Any, count: int) -> list[Any]:
            return [
                self._read(own, address + inside + panel * self.panel_bytes, first, count)
                for own, panel in zip(sums, range(len(sums)), strict=True)
            ]

        if whole > _TOGETHER:

            @loop(0, whole, _TOGETHER, state=list(sums))
            def found(i: Any, now: list[Any]) -> list[Any]:
                return read(now, i, _TOGETHER)

            return read(found, whole, rounds - whole)
        return read(sums, 0, rounds)

    def _inside(self) -> Any:
        """Bytes to the thread's place in 16 pixels of a panel."""
        thread = ops.thread_id() & (wgmma.WARPGROUP_THREADS - 1)
        pixel, piece = thread // _PIECES, thread % _PIECES
        return pixel * wgmma.ROW_BYTES + ((piece ^ (pixel & (_PIECES - 1))) << 4)

    def _read(self, own: Any, address: Any, first: Any, count: int) -> Any:
        """The sums of a panel with some rounds' pixels."""
        type_ = ops.vector_type(register_type(self.shape.dy.type), _WIDTH)
        place = address + first * (_PIXELS * wgmma.ROW_BYTES)
        loaded = [
            ops.load(smem.pointer_to(place + i * _PIXELS * wgmma.ROW_BYTES), type_, 16)
            for i in range(count)
        ]
        for values in loaded:
            own = own + arith.ExtFOp(own.type, values).result
        return own

    def store(self, sums: Sequence[Any], place: TilePlace) -> None:
        """Stores the sums of a tile's warps; place: of the warpgroup, whose columns may be past
        the last."""
        with ops.if_(self._share(place) < self.sharers if self.sharers > 1 else None):
            for number, own in enumerate(sums):
                self._store(own, place, place.row + number * wgmma.PANEL_ROWS)

    def _store(self, own: Any, place: TilePlace, first_row: Any) -> None:
        shape, thread = self.shape, ops.thread_id()
        lane, warp = thread % WARP_THREADS, (thread // WARP_THREADS) % _WARPS
        own = reduce.across_lanes(own, WARP_THREADS // _PIECES, _add, step=_PIECES)
        slice_ = self.cluster.slice(self.cluster.rank())
        part = part_of(place.batch) * self.cluster.slices
        part = ((part + slice_) * self.sharers + self._share(place)) * _WARPS + warp
        row = first_row + lane * _WIDTH
        channel = group_of(place.batch) * shape.k_group + row
        count = self.sums.shape[1].constant or 0
        pointer = self.kernel.pointer(self.sums)
        for i, value in enumerate(ops.elements(own)):
            with ops.if_(ops.both(lane < _PIECES, row + i < shape.k_group)):
                there = ops.gep(pointer, (channel + i) * count + part, value.type)
                ops.store(there, value, 4)


def _add(a: Any, b: Any) -> Any:
    return arith.AddFOp(a, b).result


# ---- the second kernel


def apart(region: Region, sums: Tensor) -> tuple[Region, LossTotals]:
    """(region of what follows the filter's gradient, that of what follows the sums of dY)."""
    (found,) = filter(is_reduction, region.generics())
    value, (call,) = found.results[0], product_calls(region)
    arguments = {v: t for v, t in region.arguments.items() if v not in list(call.operands)}
    after = [region.depends_on(result, [value]) for result, _ in region.outputs]
    own, rest = (
        tuple(pair for pair, is_own in zip(region.outputs, after, strict=True) if is_own == wanted)
        for wanted in (True, False)
    )
    losses = LossTotals(replace(region, arguments=arguments, outputs=own), value, sums)
    return replace(region, outputs=rest), losses


@dataclass(frozen=True)
class LossTotals:
    """The part of the second kernel, in blocks of their own.

    region: whose outputs follow the sums.  value: the reduction's result there.  sums: see
    `loss_sums_of`.
    """

    region: Region
    value: Any
    sums: Tensor

    def blocks(self, threads: int) -> int:
        """Blocks of so many threads."""
        channels = self.sums.shape[0].constant or 0
        return -(-channels * WARP_THREADS // threads)

    @stretch("sum of parts")
    def emit(self, kernel: Kernel, thread: Any) -> None:
        """Adds up a channel's numbers, by a warp; thread: counted through the blocks."""
        channels, count = (n.constant or 0 for n in self.sums.shape)
        number, lane = thread // WARP_THREADS, thread % WARP_THREADS
        channel = ops.minimum(number, channels - 1)
        pointer = kernel.pointer(self.sums, is_exclusive=False)
        element = ops.f32_type()

        def batch(first: Any, rounds: int) -> Any:
            """The sum of a lane's numbers of some rounds of the warp, loaded together."""
            places = [first + (lane + i * WARP_THREADS) for i in range(rounds)]
            rows = [channel * count + ops.minimum(place, count - 1) for place in places]
            loaded = [ops.load(ops.gep(pointer, row, element), element, 4) for row in rows]
            pairs = zip(places, loaded, strict=True)
            found = [ops.select(place < count, value, zero) for place, value in pairs]
            return functools.reduce(_add, found)

        zero, rounds = ops.zeros(element), -(-count // WARP_THREADS)
        whole = rounds // _BATCH * _BATCH

        total = batch(whole * WARP_THREADS, rounds - whole) if whole < rounds else zero
        if whole:

            @loop(0, whole * WARP_THREADS, _BATCH * WARP_THREADS, state=total)
            def end(i: Any, now: Any) -> Any:
                return now + batch(i, _BATCH)

            total = end

        total = reduce.across_lanes(total, WARP_THREADS, _add)
        leaves = {**self.region.leaves(kernel, is_exclusive=False), self.value: reduce.Total(total)}
        walk = Walk(kernel, leaves, self.region.symbols)
        with ops.if_(ops.both(number < channels, lane.eq(0))):
            for value, target in self.region.targets(kernel, is_exclusive=False):
                at = [Index.of(0)] * len(self.region.dims_of(value))
                at[1] = Index(channel)
                target.store(at, walk.value(value, at, 1))
