# pyright: basic
"""Operands of bytes of a filter's gradient on Hopper: made in shared memory as products read them.

    producer, one thread   brings bytes, [pixels][64 channels] a panel, for a barrier of their own
    its other warps        wait for them, make the operands of them, arrive at `full`

By im2col they *transpose* them, i8 or fp8: products of 8 bits read both operands along k, the
pixels. With a halo, whose taps are pixels apart along k and not whole 16 bytes, they *widen* fp8 to
f16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...codegen import ops
from ...codegen.hopper import mbarrier, tma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.rewriting import WARPS
from ...codegen.memory import smem
from ...codegen.state import loop
from ...codegen.stretch import stretch
from ...codegen.tiles.schedule import TilePlace
from ...mlir import nvvm
from ...target import WARP_THREADS
from ..product.tile_loop_sm90 import Tiles


@dataclass(frozen=True)
class Making:
    """How warps make one operand of a slot: `how.run`, see
    `hopper.transposed_bytes.TransposedPanels`.

    source, target: bytes from the slot's start.
    """

    how: Any
    source: int
    target: int


@dataclass
class OperandRewriter:
    """The warps of the producer that make operands; see `product.matrices_sm90.Rewriter`.

    operands: whose copies arrive at barriers of their own.  helpers: warpgroups beside the
    producer, of which as many warps make them.
    """

    operands: Sequence[Any]
    helpers: int = 0
    ring: Pipeline = field(init=False)
    barriers: Any = field(init=False)

    maps = ()  # the operands' own, which are prefetched as any

    @property
    def arrivals(self) -> int:
        return WARPS * (1 + self.helpers)

    def place(self, ring: Pipeline, memory: Any) -> None:
        """memory: of a barrier for each slot."""
        self.ring, self.barriers = ring, memory

    def make(self) -> None:
        """Makes the barriers, by one thread."""
        for slot in range(self.ring.stages):
            mbarrier.make(smem.byte_pointer(self.barriers, slot * mbarrier.BYTES), 1)

    def barrier(self, cursor: Cursor) -> Any:
        """That of what comes to a slot."""
        return smem.byte_pointer(self.barriers, cursor.stage * mbarrier.BYTES)

    @stretch("transform operand")
    def run(self, tiles: Tiles) -> None:
        """Makes operands of bytes, by WARPS warps of the producer: all but its first one."""
        tiles.each(Cursor(), self._tile)

    def _tile(self, place: TilePlace, here: Cursor) -> Cursor:
        @loop(place.first_step, place.end_step, state=here)
        def end(i: Any, here: Cursor) -> Cursor:
            self.make_slot(here, place, i)
            nvvm.bar_warp_sync(ops.const(-1))
            with ops.if_((ops.thread_id() & (WARP_THREADS - 1)).eq(0)):
                mbarrier.arrive(self.ring.full_barrier(here))
            return here.next(self.ring.stages)

        return end

    def wait(self, here: Cursor) -> None:
        """Waits for what comes to a slot."""
        mbarrier.wait(self.barrier(here), here.phase)

    def make_slot(self, here: Cursor, place: TilePlace, step: Any) -> None:
        """Waits, makes the operands of a slot, and shows them to products; step: of the tile."""
        raise NotImplementedError


@dataclass
class ByteRewriter(OperandRewriter):
    """Makes operands of bytes.  makings: of a slot."""

    makings: Sequence[Making] = field(kw_only=True)

    def make_slot(self, here: Cursor, place: TilePlace, step: Any) -> None:
        thread = ops.thread_id()
        warp, lane = thread // WARP_THREADS - 1, thread & (WARP_THREADS - 1)
        slot = self.ring.address(here)
        self.wait(here)
        for making in self.makings:
            making.how.run(slot + making.source, slot + making.target, warp, WARPS, lane)
        tma.show_writes()
