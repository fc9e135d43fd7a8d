# pyright: basic
"""Sums over axes of what scores or rows have, as gradients of biases and of sinks are.

The kernels before leave the elements in the workspace, in f32; here a block of threads adds up
those of one number, or of 32 neighbours where the last axis is none of the summed ones: each thread
its own, in order, then all threads, in order, so that sums have the same bits each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ... import dtypes
from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.output import Output
from ...codegen.scalars.scalar import element_type
from ...codegen.state import loop
from ...codegen.stretch import stretch
from ...codegen.totals.reduce import across_lanes
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.loops import Loops
from ...codegen.walk.region_walk import Walk, inputs_of, reduced_axes
from ...dialect.tensor import Tensor, packed_strides
from ...expr import Expr, ceildiv, product
from ...mlir import arith
from ...target import WARP_THREADS
from .walk import Hand

THREADS = 256
_WARPS = THREADS // WARP_THREADS
_BYTES = 4


@dataclass(frozen=True)
class Elements:
    """Elements to add up.  buffer: of the workspace, [dims] in f32.  axes: that are summed."""

    buffer: str
    dims: tuple[Expr, ...]
    axes: tuple[int, ...]

    @staticmethod
    def bytes_of(dims: tuple[Expr, ...]) -> Expr:
        return product(dims) * _BYTES

    def tensor(self, kernel: Kernel) -> GlobalTensor:
        tensor = Tensor(dims=self.dims, strides=packed_strides(self.dims), dtype=dtypes.f32)
        return GlobalTensor(kernel, tensor, pointer_=kernel.workspace(self.buffer))

    @property
    def last(self) -> int:
        """The last axis that has several elements, or may have."""
        several = [axis for axis, n in enumerate(self.dims) if n.constant != 1]
        return several[-1] if several else 0

    @property
    def sums_last(self) -> bool:
        return self.last in self.axes

    @property
    def outer(self) -> list[int]:
        """The axes before the last one that are summed."""
        return [axis for axis in self.axes if axis < self.last]

    @property
    def kept(self) -> list[int]:
        """The axes before the last one that are not summed."""
        return [axis for axis in range(self.last) if axis not in self.axes]

    @property
    def columns(self) -> Expr:
        """Blocks of the last axis."""
        return Expr.of(1) if self.sums_last else ceildiv(self.dims[self.last], WARP_THREADS)

    @property
    def blocks(self) -> Expr:
        return product([self.dims[axis] for axis in self.kept]) * self.columns


def elements_of(parts: GradientRegion, place: int, output: Output) -> Elements:
    """The elements in the workspace that an output adds up."""
    operation = parts.sums[place]
    dims = parts.region.dims_of(inputs_of(operation)[0])
    buffer = output.workspace(f"elements{place}", Elements.bytes_of(dims))
    return Elements(buffer, dims, tuple(reduced_axes(operation)))


def added(
    kernel: Kernel, parts: GradientRegion, sums: Mapping[int, Elements], *, of_scores: bool
) -> list[tuple[Any, GlobalTensor]]:
    """(value, where it is stored) of what is added up, of scores or of rows."""
    return [
        (inputs_of(operation)[0], sums[place].tensor(kernel))
        for place, operation in parts.sums.items()
        if parts.is_of_scores(operation) == of_scores
    ]


# Gives an element of an output: (its sum, coordinates).
Finish = Callable[[Any, Sequence[Coordinate]], Any]


def finish_of(kernel: Kernel, parts: GradientRegion, place: int) -> Finish | None:
    """The function that makes an output of its sums; None: it is these, but for its type."""
    if parts.is_total(place):
        return None
    region, hand = parts.region, Hand()
    leaves = {**region.leaves(kernel), parts.sums[place].results[0]: hand}
    walk = Walk(kernel, leaves, region.symbols)

    def finish(total: Any, at: Sequence[Coordinate]) -> Any:
        hand.current = total
        return walk.branch().value(region.outputs[place][0], at, 1)

    return finish


@dataclass
class SumsEmitter:
    """target: [dims], 1 along the axes that are summed.  finish: by `finish_of`.  shared_name: of
    the kernel's buffer."""

    kernel: Kernel
    elements: Elements
    target: GlobalTensor
    finish: Finish | None = None
    shared_name: str = "totals"

    @stretch("sum of parts")
    def emit(self, number: Any) -> None:
        """Writes what a block of threads adds up; number: of the block."""
        kernel, e = self.kernel, self.elements
        thread = ops.thread_id()
        warp, lane = thread >> 5, thread & (WARP_THREADS - 1)
        block = number
        number = kernel.divide(block, e.columns)
        column = kernel.remainder(block, e.columns, number) * WARP_THREADS
        self.source = e.tensor(kernel)
        self.at: dict[int, Coordinate] = dict.fromkeys(range(len(e.dims)), Index.of(0))
        self.at |= self._coordinates(e.kept, number)
        count = kernel.size(product([e.dims[axis] for axis in e.outer]))
        size = kernel.size(e.dims[e.last])
        zero, inside = ops.zeros(ops.f32_type()), None
        if e.sums_last:
            row = partial(self._row, thread, size)
            total = across_lanes(loop(0, count, state=zero)(row), WARP_THREADS, _add)
            lanes = 1
        else:
            column = column + lane
            inside = ops.less(column, size)
            kept = ops.minimum(column, size - 1)
            total = loop(warp, count, _WARPS, state=zero)(partial(self._one, kept))
            lanes = WARP_THREADS
        total = self._over_warps(total, warp, lane, lanes)
        own = ops.less(thread, lanes)
        at = dict(self.at)
        if not e.sums_last:
            at[e.last] = Index.of(ops.minimum(column, size - 1))
        element = element_type(self.target.tensor.type)
        place = [at[axis] for axis in range(len(e.dims))]
        if self.finish is not None:
            total = self.finish(total, place)
        elif total.type != element:
            total = arith.TruncFOp(element, total).result
        self.target.store(place, total, ops.both(own, inside))

    def _coordinates(self, axes: list[int], number: Any) -> dict[int, Coordinate]:
        if not axes:
            return {}
        dims = tuple(self.elements.dims[axis] for axis in axes)
        loops = Loops(dims, tuple((axis,) for axis in range(len(dims))))
        found = loops.coordinates(self.kernel, number)
        return {axis: found[i] for i, axis in enumerate(axes)}

    def _one(self, column: Any, number: Any, total: Any) -> Any:
        """A sum and one element more, of the outer summed axes' number and a column."""
        at = {**self.at, **self._coordinates(self.elements.outer, number)}
        at[self.elements.last] = Index.of(column)
        return total + self.source.load([at[axis] for axis in range(len(at))], 1)

    def _row(self, thread: Any, size: Any, number: Any, total: Any) -> Any:
        """A sum and a thread's elements of the last axis."""

        @loop(thread, size, THREADS, state=total)
        def end(i: Any, now: Any) -> Any:
            return self._one(i, number, now)

        return end

    def _over_warps(self, total: Any, warp: Any, lane: Any, lanes: int) -> Any:
        """The sum over warps of what their lanes have, in the first threads."""
        base = self.kernel.shared(self.shared_name, THREADS * _BYTES)
        place = (warp * WARP_THREADS + lane) * _BYTES
        ops.store(smem.byte_pointer(base, place), total, _BYTES)
        ops.barrier()
        found = ops.zeros(ops.f32_type())
        for other in range(_WARPS):
            offset = (lane + other * WARP_THREADS) * _BYTES
            part = ops.load(smem.byte_pointer(base, offset), ops.f32_type(), _BYTES)
            found = found + part
        return found


def _add(a: Any, b: Any) -> Any:
    return a + b
