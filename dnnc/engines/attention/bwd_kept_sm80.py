# pyright: basic
"""Kernels of engine sdpa_bwd_sm80 where P is in memory, as attention of short sequences keeps it.

    tile of queries    through blocks of V:         dP = dO @ V'      delta = sum(P * dP)
                       through blocks of K and V:   dP = dO @ V'      dQ += dS @ K
    tile of keys       through blocks of Q and dO:  dP' = V @ dO'     dV += P' @ dO, dK += dS' @ Q

Queries come first, and leave -delta in the workspace.  Either each has a kernel of its own, or a
block of threads does all the work of a head, tile by tile, in one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.ampere import mma
from ...codegen.ampere.async_ring import Slots
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.output import Output
from ...codegen.state import each, loop
from ...codegen.totals.reduce import across_lanes
from ...expr import ceildiv
from ...mlir import arith
from .bwd_kernel_sm80 import PassEmitter
from .bwd_query_side import QuerySchedule, QueryWalk
from .bwd_rows import RowNumbers
from .bwd_schedule import GradientSchedule
from .bwd_sums import Elements, added
from .bwd_tile_sm80 import ROWS, PassTiling
from .schedule import QueryTile

_LANES = 4  # that share a row of a product's sums


def emit(
    parts: GradientRegion, output: Output, passes: Sequence[PassTiling], buffer: str,
    sums: Mapping[int, Elements], *, is_one: bool,
) -> None:  # fmt: skip
    """Emits the kernels, of queries first.

    buffer: of the workspace, for what queries have.  is_one: as one kernel.
    """
    if parts.stored:
        output.needs_ptx(mma.TRANSPOSED_PTX)
    batch, heads, queries, _ = parts.dims
    numbers = RowNumbers(buffer, ceildiv(queries, ROWS), has_base=False)
    if not is_one:
        for tiling in passes:
            kernel = output.kernel("_".join(tiling.makes), tiling.threads)
            with kernel.body():
                emitter = _emitter(kernel, parts, tiling, numbers, sums)
                emitter.emit()
            output.launch(kernel, (emitter.schedule.tiles, 1, 1))
        return
    kernel = output.kernel("main", passes[0].threads)
    with kernel.body():
        base = kernel.dynamic_shared(max(tiling.smem_bytes for tiling in passes))
        for tiling in passes:
            _emitter(kernel, parts, tiling, numbers, sums).of_head(base, ops.block_id())
    output.launch(kernel, (batch * heads, 1, 1))


def _emitter(
    kernel: Kernel, parts: GradientRegion, tiling: PassTiling, numbers: RowNumbers,
    sums: Mapping[int, Elements],
) -> KeptPassEmitter:  # fmt: skip
    if tiling.of_keys:
        schedule, kept = GradientSchedule(kernel, parts, tiling, 1), []
    else:
        targets = parts.region.targets(kernel)
        kept = [targets[place] for place in parts.kept]
        kept += added(kernel, parts, sums, of_scores=True)
        schedule = QuerySchedule(kernel, parts, tiling, 1, sees_all=True)
    return KeptPassEmitter(kernel, parts, tiling, schedule, numbers, 1, kept)


@dataclass
class KeptPassEmitter(PassEmitter):
    """A pass over tiles of keys, or of queries, whose delta it finds first."""

    def of_head(self, base: Any, number: Any) -> None:
        """The work of all tiles of a head, one after the other; number: of the head."""
        tiles = self.kernel.size(self.schedule.columns)

        @each(0, tiles)
        def _(tile: Any) -> None:
            self.work(base, number * tiles + tile)
            # All have left shared memory, and what they wrote of queries is there for all.
            ops.barrier()

    def _own_numbers(self, head: QueryTile) -> list[list[Any]]:
        t, s, walk = self.tiling, self.schedule, self.walk
        assert isinstance(walk, QueryWalk), "tiles of queries have numbers in registers"
        blocks = s.query_blocks(self.tile, head)
        for stage in range(t.stages - 1):
            place = stage * t.stage_bytes
            self._load(head, blocks.first + stage, blocks.end, place, has_first=False)
        zero = ops.zeros(ops.f32_type())
        state = self.ring.first(), [zero, zero]
        for first, end, is_masked in s.runs(self.tile, blocks):
            step = partial(self._add_up, walk, head, blocks.end, is_masked=is_masked)
            state = loop(first, end, state=state)(step)
        ops.barrier()  # all have left the stages
        totals = [
            across_lanes(total, _LANES, lambda a, b: arith.AddFOp(a, b).result)
            for total in state[1]
        ]
        found = walk.negated_deltas(totals, self.tile, head)
        first = self.tile.key + walk.down
        with ops.if_(ops.compare("eq", walk.right, 0)):
            for half, value in enumerate(found):
                self.numbers.store_delta(self.kernel, head.head, first + 8 * half, value)
        return [[], found]

    def _add_up(
        self, walk: QueryWalk, head: QueryTile, end: Any, block: Any,
        state: tuple[Slots, list[Any]], *, is_masked: bool,
    ) -> tuple[Slots, list[Any]]:  # fmt: skip
        """The sums of rows after a block."""
        t, (slots, before) = self.tiling, state
        place = self.tile, head, block * t.step
        fetched = walk.fetch(*place)
        load = partial(self._load, head, block + (t.stages - 1), end, has_first=False)
        at = self.ring.advance(slots, load)
        slot = self._at(at + t.stages_offset)
        products = self._products(smem.byte_pointer(slot, t.others[0].bytes))
        sums = walk.row_sums(products, *place, before, is_masked=is_masked, fetched=fetched)
        return self.ring.next(slots), sums
