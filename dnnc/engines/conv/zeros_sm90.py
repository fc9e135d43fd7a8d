# pyright: basic
"""Zeros of a gradient with strides, stored beside its products.

The pixels of some phases meet no tap, three quarters of them under a 1x1 filter of stride 2.  The
tensor cores have no tiles of those: the warps of the producer that load nothing store them, while
the others multiply.  All such warps of the grid go through the pixels of a phase side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.memory.smem import CHUNK_BYTES
from ...codegen.memory.tensors import GlobalTensor, register_type
from ...codegen.state import each
from ...codegen.stretch import stretch
from ...codegen.walk.index import Index
from ...target import WARP_THREADS
from ..product.matrices_sm90 import MatrixSpace
from .pattern import ConvShape

_WARPS = 3  # of a block's producer: the first one loads


@dataclass(frozen=True)
class PhaseZeros:
    """shape: with all phases.  space: of its pixels by the channels of all groups.  targets: the
    outputs that are the gradient, channels last."""

    kernel: Kernel
    shape: ConvShape
    space: MatrixSpace
    targets: Sequence[GlobalTensor]

    @stretch("epilogue")
    def run(self, warp: Any) -> None:
        """Stores the zeros, by all threads of the warps that load nothing; warp: of the thread,
        from 1 on."""
        assert self.shape.spread is not None, "a gradient with strides"
        number = ops.block_id() * _WARPS + (warp - 1)
        for phase in self.shape.spread.empty:
            for target in self.targets:
                self._store(target, phase, number)

    def _store(self, target: GlobalTensor, phase: Sequence[int], number: Any) -> None:
        """Stores a phase; number: of the warp in the grid."""
        shape, type_ = self.shape, target.tensor.type
        assert shape.spread is not None, "a gradient with strides"
        elems = CHUNK_BYTES * 8 // type_.bits
        chunks = shape.k // elems  # of a pixel
        together = max(1, WARP_THREADS // chunks)  # pixels that a warp stores at once
        lane = ops.thread_id() & (WARP_THREADS - 1)
        own, first = (lane // chunks, lane % chunks) if together > 1 else (ops.const(0), lane)
        is_busy = ops.less(own, together) if together * chunks < WARP_THREADS else None
        zeros = ops.zeros(ops.vector_type(register_type(type_), elems))
        batch = {
            axis: Index.of(place)
            for axis, place in zip(shape.spread.batch_axes, phase, strict=True)
        }
        pixels = self.kernel.size(shape.pixels)

        @each(number * together, pixels, ops.block_count() * (_WARPS * together))
        def _(begin: Any) -> None:
            pixel, is_there = begin + own, is_busy
            if together > 1:
                is_there = ops.both(is_there, ops.less(pixel, pixels))
                pixel = ops.minimum(pixel, pixels - 1)
            is_there = ops.both(is_there, self.space.is_row(batch, pixel))

            @each(first, chunks, WARP_THREADS)
            def _(chunk: Any) -> None:
                channels = Index(chunk * elems, 1, elems)
                target.store(self.space.at(batch, Index(pixel), channels), zeros, is_there)
