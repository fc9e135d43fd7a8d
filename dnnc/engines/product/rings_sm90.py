# pyright: basic
"""The rings of a block of engines matmul_sm90 and conv_sm90, where `SharedLayout` puts them.

stages   tiles of the operands, which all consumer warpgroups read
loads    what the epilogues of one consumer warpgroup read, a ring for each
raw      tiles that a producer warpgroup's threads read, a ring for each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen.hopper.pipeline import Pipeline
from ...codegen.memory.smem import byte_pointer
from .shared_layout_sm90 import SharedLayout


@dataclass(frozen=True)
class Rings:
    """See the file's docstring.  base: !llvm.ptr<3> of the block's shared memory."""

    base: Any
    layout: SharedLayout
    stages: Pipeline
    loads: Sequence[Pipeline]
    raw: Sequence[Pipeline]

    @staticmethod
    def of(base: Any, layout: SharedLayout) -> Rings:
        barriers = byte_pointer(base, layout.barriers_offset)
        return Rings(
            base,
            layout,
            Pipeline.of(base, layout.stage_bytes, layout.stages, barriers),
            _load_rings(base, layout),
            [_raw_ring(base, layout, i) for i in range(layout.block.producers)],
        )

    def at(self, offset: int) -> Any:
        """The memory at an offset of `SharedLayout`."""
        return byte_pointer(self.base, offset)

    def raw_of(self, producer: Any) -> Pipeline:
        """The ring of raw tiles of a producer whose number is known at run time."""
        return _raw_ring(self.base, self.layout, producer)

    def loads_of(self, own: Any) -> Pipeline:
        """The ring of loads of a consumer warpgroup whose number is known at run time."""
        first, s = self.loads[0], self.layout
        data = byte_pointer(first.data, own * (s.load_buffers * s.load_bytes))
        barriers = byte_pointer(first.full, own * Pipeline.barrier_bytes(s.load_buffers))
        return Pipeline.of(data, s.load_bytes, s.load_buffers, barriers)


def _raw_ring(base: Any, s: SharedLayout, own: Any) -> Pipeline:
    bytes_, barriers = s.raw_buffers * s.raw_bytes, Pipeline.barrier_bytes(s.raw_buffers)
    return Pipeline.of(
        byte_pointer(byte_pointer(base, s.raw_offset), own * bytes_),
        s.raw_bytes,
        s.raw_buffers,
        byte_pointer(byte_pointer(base, s.raw_barriers_offset), own * barriers),
    )


def _load_rings(base: Any, s: SharedLayout) -> list[Pipeline]:
    if not s.load_buffers:
        return []
    bytes_, barriers = s.load_buffers * s.load_bytes, Pipeline.barrier_bytes(s.load_buffers)
    return [
        Pipeline.of(
            byte_pointer(base, s.loads_offset + i * bytes_),
            s.load_bytes,
            s.load_buffers,
            byte_pointer(base, s.load_barriers_offset + i * barriers),
        )
        for i in range(s.block.consumers)
    ]
