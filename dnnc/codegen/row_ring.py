# pyright: basic
"""RowRing: rows of tensors on their way through shared memory, ahead of those who work on them.

    stage s:  tensor 0: row 0 | row 1 | ...   tensor 1: row 0 | ...

A block goes through groups of rows; one warp starts the copies of the group that is `stages`
further on as soon as all threads are done with a stage.  A row is one run of bytes, which a
plain bulk copy brings: no thread waits for loads, and none holds them in registers.
Source: PTX ISA, "cp.async.bulk".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..dialect.tensor import Tensor
from ..expr import Expr, product
from ..mlir import nvvm
from ..target import WARP_THREADS
from . import mbarrier, ops
from .index import Coordinate
from .kernel import Kernel
from .memory import GlobalTensor
from .pipeline import Cursor
from .smem import byte_pointer

ALIGNMENT = 16  # of a run, and what divides its bytes
MOST_ROWS = WARP_THREADS  # of a stage, each copied by a lane


def is_run(tensor: Tensor, axes: Sequence[int]) -> bool:
    """Whether a row along these axes is one run of bytes that a bulk copy takes."""
    size = tensor.type.bits // 8
    if tensor.is_by_value or tensor.type.kind == "b" or tensor.alignment % ALIGNMENT:
        return False
    wide = [axis for axis, n in enumerate(tensor.shape) if n.constant != 1]
    reached = Expr.of(1)
    for axis in sorted((a for a in wide if a in axes), key=lambda a: tensor.layout[a].bounds()[1]):
        if tensor.layout[axis] != reached:
            return False
        reached = reached * tensor.shape[axis]
    steps = [tensor.layout[axis] for axis in wide if axis not in axes]
    return all((n * size).known_divisor() % ALIGNMENT == 0 for n in (reached, *steps))


def row_bytes(tensor: Tensor, axes: Sequence[int]) -> int:
    """Of a row, at most."""
    return product(tensor.shape[a] for a in axes).bounds()[1] * (tensor.type.bits // 8)


def ring_bytes(tensors: Sequence[Tensor], axes: Sequence[int], rows: int, stages: int) -> int:
    """Shared memory of a ring, its barriers included."""
    stage = rows * sum(row_bytes(tensor, axes) for tensor in tensors)
    return stages * (stage + mbarrier.BYTES)


@dataclass(frozen=True)
class RowRing:
    """The ring of one block.

    sources: tensors, whose rows are runs along `axes`.  rows: of a group.
    at: (group, row of it) -> coordinates of the row's first element.  memory: !llvm.ptr<3>, of
    `ring_bytes`.
    """

    kernel: Kernel
    sources: Sequence[GlobalTensor]
    axes: Sequence[int]
    rows: int
    stages: int
    at: Callable[[Any, Any], Sequence[Coordinate]]
    memory: Any

    @property
    def _stage_bytes(self) -> int:
        return self.rows * sum(row_bytes(s.tensor, self.axes) for s in self.sources)

    def _place(self, stage: Any, source: int, row: Any) -> Any:
        before = sum(row_bytes(s.tensor, self.axes) for s in self.sources[:source])
        inside = ops.mul(row, row_bytes(self.sources[source].tensor, self.axes))
        offset = ops.add(ops.mul(stage, self._stage_bytes), ops.add(self.rows * before, inside))
        return byte_pointer(self.memory, offset)

    def _barrier(self, stage: Any) -> Any:
        first = byte_pointer(self.memory, self.stages * self._stage_bytes)
        return byte_pointer(first, ops.mul(stage, mbarrier.BYTES))

    def make(self) -> None:
        """Makes the barriers, by all threads; before anything else."""
        with ops.if_(ops.compare("eq", ops.thread_id(), 0)):
            for stage in range(self.stages):
                mbarrier.make(self._barrier(stage), 1)
            mbarrier.make_visible()
        ops.barrier()

    def fill(self, stage: Any, group: Any, count: Any) -> None:
        """Starts the copies of a group of rows, if there is one so far, by the first warp.

        Called when no thread reads the stage any more.  count: of groups.
        """
        lane = ops.thread_id()
        is_warp = ops.less(lane, WARP_THREADS)
        with ops.if_(ops.both(is_warp, ops.less(group, count))):
            barrier = self._barrier(stage)
            with ops.if_(ops.compare("eq", lane, 0)):
                total: Any = 0
                for source in self.sources:
                    total = ops.add(total, ops.mul(self._bytes(source), self.rows))
                mbarrier.expect(barrier, total)
            nvvm.bar_warp_sync(ops.const(-1))
            with ops.if_(ops.less(lane, self.rows)):
                at = self.at(group, lane)
                for i, source in enumerate(self.sources):
                    nvvm.cp_async_bulk_shared_cluster_global(
                        mbarrier.in_cluster(self._place(stage, i, lane)), source.address(at),
                        barrier, ops.value_of(self._bytes(source)),
                    )  # fmt: skip

    def _bytes(self, source: GlobalTensor) -> Any:
        """Of a row, now."""
        elements = product(source.tensor.shape[axis] for axis in self.axes)
        return self.kernel.size(elements * (source.tensor.type.bits // 8))

    def wait(self, cursor: Cursor) -> None:
        """Until a stage's rows are there."""
        mbarrier.wait(self._barrier(cursor.stage), cursor.phase)

    def leaf(self, source: int, stage: Any, row: Any) -> GlobalTensor:
        """A row of a stage as the tensor that it is from, at any coordinates across rows."""
        tensor = self.sources[source].tensor
        strides = tuple(
            s if axis in self.axes else Expr.of(0) for axis, s in enumerate(tensor.layout)
        )
        place = self._place(stage, source, row)
        return GlobalTensor(self.kernel, replace(tensor, strides=strides), True, place)
