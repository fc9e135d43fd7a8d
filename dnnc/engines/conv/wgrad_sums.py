# pyright: basic
"""Sums of parts of the pixels: the first kernel leaves them, the second adds them up.

    first    [parts][dW's dims] of f32, channels last, in the workspace
    second   dW = g2(part 0 + part 1 + ...)

The second kernel's region has the sums in place of the gradient.  The order is fixed, so the result
is the same in every run.  Its blocks may be there before the first ends, and wait.

*Added* (REDUCTION_MODE=1), all parts share one place, zeroed before, to which blocks add their sums
as they end: in any order, so that the last bits differ from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.state import loop
from ...codegen.stretch import stretch
from ...codegen.totals import reduce
from ...codegen.walk.index import Coordinate
from ...codegen.walk.loops import Loops, coordinates_of
from ...codegen.walk.region_walk import Walk
from ...dialect.attributes import data_type_of
from ...dialect.tensor import Tensor, packed_strides
from ...expr import Expr, ceildiv
from ...mlir import arith, nvvm
from ...target import Target
from ..elementwise.pointwise import iteration_of_region
from ..product.region_sm90 import product_calls
from ..surface import MEMSET_SECONDS
from .loss_sums_sm90 import LossTotals
from .wgrad import PITCH, WgradShape, values_before

_UID = 1 << 61  # that no tensor of a region has
_ALIGNMENT = 256  # of what lies in the workspace
_TOGETHER = 8  # parts that a thread loads at the same time
_THREADS = 128  # of a block of the second kernel
_LANES = (8, 4, 2)  # that share an element's parts, of which each has so many at least
_LEAST_PARTS = 4
_SUM_SECONDS = 3.4e-6  # of the second launch, and of a thread's first loads
_SUM_RATE_SHARE = 0.72  # of memory's bandwidth, by way of L2, that it reads sums at
_ADD_RATE = 3.5e12  # bytes a second that L2 adds: of 40 configurations of 14 layers on an H200
_ACCESS_BYTES = 8  # of an element's narrowest tensor, at most


def sums_of(region: Region, shape: WgradShape) -> Tensor:
    """The tensor of one part's sums; of groups side by side, with the channels of all of them."""
    (call,) = product_calls(region)
    dims = region.dims_of(call.results[0])
    padded = [*dims]
    padded[1] = Expr.of(-(-shape.c_group // PITCH) * PITCH)
    type_ = data_type_of(call.results[0])
    strides = packed_strides(padded, (0, *range(2, len(dims)), 1))
    return Tensor(uid=_UID, dims=dims, strides=strides, dtype=type_, alignment=_ALIGNMENT)


def first_region(
    region: Region, sums: Tensor, parts: int, columns: int = 0, *, adds: bool = False
) -> Region:
    """The region of the first kernel: the gradient alone, that of parts one after the other, or
    where it adds, of all.

    columns: it is a matrix of so many; 0: it has dW's dims.
    """
    (call,) = product_calls(region)
    value, (k, *rest) = call.results[0], sums.shape
    if columns:
        rest = list(map(Expr.of, (columns, *[1] * (len(rest) - 1))))
    elif rest[0].constant == 1:  # channels that groups side by side have more of
        rest[0] = Expr.of(PITCH)
    sums = replace(sums, dims=(k * places_of(parts, adds=adds), *rest))
    before = values_before(region, call.operands)
    arguments = {v: t for v, t in region.arguments.items() if v in before}
    return replace(region, arguments=arguments, outputs=((value, sums),), adds=adds)


def places_of(parts: int, *, adds: bool) -> int:
    """The places of sums in the workspace."""
    return 1 if adds else parts


def emit_sum(
    region: Region, sums: Tensor, parts: int, output: Output, *, first: int = 0,
    shape: WgradShape | None = None, losses: LossTotals | None = None,
) -> None:  # fmt: skip
    """Adds the second kernel to a fusion's.

    first: elements before those of a part's sums.  shape: of groups that may be side by side.
    losses: sums of dY, which further blocks add up.
    Several lanes share a fragment of the outputs, each of which adds up some parts.
    """
    (call,) = product_calls(region)
    value, before = call.results[0], values_before(region, call.operands)
    gone = before - values_before(region, [result for result, _ in region.outputs])
    arguments = {v: t for v, t in region.arguments.items() if v not in gone}
    region = replace(region, arguments={**arguments, value: sums})
    groups, width = iteration_of_region(region, _ACCESS_BYTES)
    loops = Loops(region.outputs[0][1].shape, groups, width)
    beside = shape if shape is not None and shape.beside > 1 else None
    if not loops.is_whole or (beside and 0 in groups[-1]):
        loops = replace(loops, width=1)
    lanes = next((n for n in _LANES if parts >= n * _LEAST_PARTS), 1)
    is_early = output.target.overlaps_launches
    kernel = output.kernel("sum", _THREADS)
    blocks = ceildiv(loops.fragments * lanes, _THREADS)
    own = PartSums(kernel, sums, parts, first, lanes, beside)
    with kernel.body():
        if losses is None:
            _emit_sum(kernel, region, value, loops, own, is_early=is_early)
        else:
            before = kernel.size(blocks)
            ops.if_else(
                ops.block_id() < before,
                lambda: _emit_sum(kernel, region, value, loops, own, is_early=is_early),
                lambda: _emit_losses(kernel, losses, before, is_early=is_early),
            )
    grid = (blocks + (losses.blocks(_THREADS) if losses else 0), 1, 1)
    output.launch(kernel, grid, programmatic=is_early)


def emit_losses(losses: LossTotals, output: Output) -> None:
    """Adds a second kernel that adds up sums of dY alone."""
    is_early = output.target.overlaps_launches
    kernel = output.kernel("sum", _THREADS)
    with kernel.body():
        _emit_losses(kernel, losses, 0, is_early=is_early)
    output.launch(kernel, (losses.blocks(_THREADS), 1, 1), programmatic=is_early)


def _emit_losses(kernel: Kernel, losses: LossTotals, before: Any, *, is_early: bool) -> None:
    """Emits the totals of dY.  before: blocks ahead, which have other work."""
    if is_early:
        nvvm.griddepcontrol(nvvm.GridDepActionKind.wait)
    block = ops.block_id() - before
    losses.emit(kernel, block * _THREADS + ops.thread_id())


def _emit_sum(
    kernel: Kernel, region: Region, value: Any, loops: Loops, own: PartSums, *, is_early: bool
) -> None:
    """is_early: it may start before the first kernel ends."""
    lanes = own.lanes
    thread = ops.block_id() * _THREADS + ops.thread_id()
    fragment, lane = thread // lanes, thread % lanes
    count = kernel.size(loops.fragments, loops.bits)
    clamped = ops.minimum(fragment, count - 1)
    at = coordinates_of(len(loops.dims), loops.coordinates(kernel, clamped))
    leaves = region.leaves(kernel, is_exclusive=False)
    if is_early:
        nvvm.griddepcontrol(nvvm.GridDepActionKind.wait)
    own = replace(own, lane=lane)
    walk = Walk(kernel, {**leaves, value: own}, region.symbols)
    values = [walk.value(result, at, loops.width) for result, _ in region.outputs]
    targets = region.targets(kernel, is_exclusive=False)
    is_writer = ops.both(fragment < count, ops.compare("eq", lane, 0))
    with ops.if_(is_writer):
        for (_, target), found in zip(targets, values, strict=True):
            target.store(at, found)


@dataclass(frozen=True, eq=False)
class PartSums:
    """Elements of all parts, added up: a leaf of a walk.

    sums: of the first one; the others follow.  first: elements before it.  lanes: neighbours that
    share the parts, each every so many-th one.  beside: whose groups lie side by side, the
    channels of each behind those of the one before.  lane: the thread's.
    """

    kernel: Kernel
    sums: Tensor
    parts: int
    first: int
    lanes: int
    beside: WgradShape | None = None
    lane: Any = 0

    @stretch("sum of parts")
    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        rounds = -(-self.parts // self.lanes)  # of which the last may have no part for a lane
        full = rounds if self.parts % self.lanes == 0 else rounds - 1
        total, done = self._part(0, at, width), 1
        together = (full - 1) // _TOGETHER * _TOGETHER
        if together:

            @loop(1, 1 + together, _TOGETHER, state=total)
            def several(i: Any, total: Any) -> Any:
                return self._added(total, i, _TOGETHER, at, width)

            total, done = several, done + together
        total = self._added(total, done, full - done, at, width)
        if full < rounds:
            total = self._with_last(total, full, at, width)
        distance = 1
        while distance < self.lanes:
            other = [reduce.shuffle_xor(e, distance) for e in ops.elements(total)]
            total = total + ops.from_elements(other)
            distance *= 2
        return total

    def _with_last(self, total: Any, number: int, at: Sequence[Coordinate], width: int) -> Any:
        """The sums with a last round's part, where there is one for the lane; else with zeros."""
        left = self.parts - number * self.lanes
        is_there = ops.less(self.lane, left)
        last = self._part(number, at, width, ops.select(is_there, self.lane, 0))
        last = arith.SelectOp(ops.splat(is_there, width), last, ops.zeros(last.type)).result
        return total + last

    def _added(
        self, total: Any, first: Any, count: int, at: Sequence[Coordinate], width: int
    ) -> Any:
        """The sums with some rounds' parts, loaded together and added one after the other."""
        loaded = [self._part(first + i, at, width) for i in range(count)]
        for value in loaded:
            total = total + value
        return total

    def _part(self, number: Any, at: Sequence[Coordinate], width: int, lane: Any = None) -> Any:
        """The elements of a round's part; lane: in place of the thread's."""
        own = number * self.lanes + (self.lane if lane is None else lane)
        span = part_span(self.sums)
        pointer = self.kernel.pointer(self.sums, is_exclusive=False)
        place = ops.to_i64(own) * span + self.first
        if self.beside is not None:
            place = place + ops.to_i64(self._before(at[0]))
        there = ops.gep(pointer, place, ops.f32_type())
        return GlobalTensor(self.kernel, self.sums, pointer_=there).load(at, width)

    def _before(self, output: Coordinate) -> Any:
        """Channels before those of an output channel's group."""
        shape = self.beside
        assert shape is not None and output.is_uniform, "a fragment has one output channel"
        group = output.index().base // (shape.k_group // shape.beside)
        return group % shape.beside * shape.dw[1]


def part_span(sums: Tensor) -> int:
    """Elements from a part's sums to the next one's."""
    runs = ((n * step).constant or 0 for n, step in zip(sums.shape, sums.layout, strict=True))
    return max(runs)


def sum_seconds(elements: int, target: Target) -> float:
    """Seconds of the second kernel; elements: sums of all parts."""
    return _SUM_SECONDS + 4 * elements / (target.dram_gbs * 1e9 * _SUM_RATE_SHARE)


def added_seconds(elements: int, parts: int, target: Target) -> float:
    """Seconds of parts' sums that are added to one place, beside those of their products."""
    return MEMSET_SECONDS + 4 * elements * parts / _ADD_RATE + sum_seconds(elements, target)


def place_sums(output: Output, sums: Tensor, parts: int, *, adds: bool = False) -> None:
    """Asks for the workspace of all parts' sums, zeroed where they are added."""
    assert sums.uid is not None, "sums have a uid"
    bytes_ = part_span(sums) * places_of(parts, adds=adds) * sums.type.bits // 8
    buffer = output.tensors[sums.uid] = output.workspace("sums", bytes_)
    if adds:
        output.memset(buffer, bytes_)
