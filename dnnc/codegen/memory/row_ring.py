# pyright: basic
"""RowRing: rows of tensors on their way through shared memory, ahead of those who work on them.

    stage s:  tensor 0: row 0 | row 1 | ...   tensor 1: row 0 | ...

Of each row a block takes a part, which is one run of bytes: a plain bulk copy brings it, so that
no thread waits for loads, and none holds them in registers.
Source: PTX ISA, "cp.async.bulk".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...dialect.tensor import Tensor
from ...expr import Expr
from ...mlir import nvvm
from ...target import WARP_THREADS
from .. import ops
from ..hopper import mbarrier
from ..hopper.pipeline import Cursor, Pipeline
from ..kernel import Kernel
from ..walk.index import Coordinate
from .smem import byte_pointer
from .tensors import GlobalTensor

ALIGNMENT = 16  # of a run, and what divides its bytes
MOST_ROWS = WARP_THREADS  # of a stage, each copied by a lane


def is_run(tensor: Tensor, axes: Sequence[int]) -> bool:
    """Whether a row along these axes is one run of bytes that a bulk copy takes."""
    size = tensor.type.bits // 8
    if tensor.is_by_value or tensor.type.kind == "b" or tensor.alignment % ALIGNMENT:
        return False
    wide = [axis for axis, n in enumerate(tensor.shape) if n.constant != 1]
    order = sorted((a for a in wide if a in axes), key=lambda a: tensor.layout[a].bounds()[1])
    if not runs_in_order(tensor, order[::-1]):
        return False
    reached = Expr.of(1)
    for axis in order:
        reached = reached * tensor.shape[axis]
    steps = [tensor.layout[axis] for axis in wide if axis not in axes]
    return all((n * size).known_divisor() % ALIGNMENT == 0 for n in (reached, *steps))


def runs_in_order(tensor: Tensor, axes: Sequence[int]) -> bool:
    """Whether these axes, the slowest first, are packed in memory in this order."""
    reached = Expr.of(1)
    for axis in reversed(axes):
        if tensor.shape[axis].constant != 1:
            if tensor.layout[axis] != reached:
                return False
            reached = reached * tensor.shape[axis]
    return True


def pitch(bits: int, elements: int) -> int:
    """Bytes from one row's part of so many elements to the next; bits: of an element."""
    return -(-elements * (bits // 8) // ALIGNMENT) * ALIGNMENT


def ring_bytes(bits: Sequence[int], elements: int, rows: int, stages: int) -> int:
    """Shared memory of a ring's stages.  bits: of an element of each tensor.  elements: of a part,
    at most."""
    return stages * rows * sum(pitch(of_tensor, elements) for of_tensor in bits)


@dataclass(frozen=True)
class RowPart:
    """The elements of a row that a block takes, one at least.  most: of them."""

    first: Any
    count: Any
    most: int


@dataclass(frozen=True)
class RowRing:
    """A ring, of a block or of one of its warps.

    sources: tensors, whose rows are runs along `axes`.  rows: of a stage.  part: of each row.
    at: (group, row of it) -> coordinates of the first element of the row's part.
    memory: !llvm.ptr<3>, of `ring_bytes`.  barriers: of `Pipeline.barrier_bytes`.
    """

    kernel: Kernel
    sources: Sequence[GlobalTensor]
    axes: Sequence[int]
    rows: int
    stages: int
    part: RowPart
    at: Callable[[Any, Any], Sequence[Coordinate]]
    memory: Any
    barriers: Any

    @property
    def pipeline(self) -> Pipeline:
        bits = [source.tensor.type.bits for source in self.sources]
        stage = ring_bytes(bits, self.part.most, self.rows, 1)
        return Pipeline.of(self.memory, stage, self.stages, self.barriers)

    def fill(self, cursor: Cursor, group: Any) -> None:
        """Starts the copies of a group's rows, by a warp; after all have read the stage, and ended
        their reads (`tma.end_reads`)."""
        lane = ops.thread_id() & (WARP_THREADS - 1)
        bytes_ = [self.part.count * (s.tensor.type.bits // 8) for s in self.sources]
        with ops.if_(lane.eq(0)):
            total: Any = 0
            for each in bytes_:
                total = total + each * self.rows
            self.pipeline.expect(cursor, total)
        nvvm.bar_warp_sync(ops.const(-1))
        with ops.if_(lane < self.rows):
            at = self.at(group, lane)
            for i, (source, size) in enumerate(zip(self.sources, bytes_, strict=True)):
                nvvm.cp_async_bulk_shared_cluster_global(
                    mbarrier.in_cluster(self._place(cursor.stage, i, lane)), source.address(at),
                    self.pipeline.full_barrier(cursor), ops.value_of(size),
                )  # fmt: skip

    def leaf(self, source: int, stage: Any, row: Any) -> GlobalTensor:
        """A row of a stage as the tensor that it is from, at any coordinates across rows."""
        tensor, part = self.sources[source].tensor, self.part
        strides = tuple(
            s if axis in self.axes else Expr.of(0) for axis, s in enumerate(tensor.layout)
        )
        before = part.first * -(tensor.type.bits // 8)
        place = byte_pointer(self._place(stage, source, row), before)
        return GlobalTensor(self.kernel, replace(tensor, strides=strides), True, place)

    def _place(self, stage: Any, source: int, row: Any) -> Any:
        pitches = [pitch(s.tensor.type.bits, self.part.most) for s in self.sources[: source + 1]]
        before, inside = self.rows * sum(pitches[:-1]), row * pitches[-1]
        return byte_pointer(self.pipeline.slot(Cursor(stage)), inside + before)
