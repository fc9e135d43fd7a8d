# pyright: basic
"""Multiplies tiles and stores them in the consumer warpgroups of matmul_sm90 and conv_sm90.

tile:  multiply (`multiplier_sm90`)
       split k:    exchange sums with the blocks that share the tile; finish a slice
       otherwise:  finish: the epilogue (`epilogue_sm90`) on whole sums
or, where the warpgroup has no rows of a group: let the stages of the tile go by
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...codegen import ops
from ...codegen.hopper import wgmma
from ...codegen.hopper.pipeline import Cursor
from ...codegen.hopper.split import SplitSum
from ...codegen.state import chosen
from ...codegen.stretch import stretch
from ...codegen.tiles.schedule import TilePlace
from .epilogue_loads_sm90 import Loads, RingLoads, StageLoads
from .epilogue_sm90 import Epilogue
from .multiplier_sm90 import Multiplier, Places
from .rings_sm90 import Rings
from .tile_loop_sm90 import has_epilogue, own_part
from .tile_sm90 import Tiling

Sums = Sequence[Sequence[Any]]  # [accumulator][register]


@dataclass(frozen=True)
class Progress:
    """The state that a consumer warpgroup keeps from tile to tile.

    loads: its place in its ring of loads; None: it has none.  parity: of the tile, for exchanges
    and split sums; None: there are none.
    """

    places: Places
    loads: Cursor | None
    parity: Any


@dataclass(frozen=True)
class Consumer:
    """One consumer warpgroup, by all of its threads.

    split: of blocks that share a tile's k.  loads: what its epilogues read; None: nothing.
    rank: of the block in its cluster.
    """

    tiling: Tiling
    multiplier: Multiplier
    epilogue: Epilogue
    split: SplitSum
    loads: Loads | None
    rank: Any

    @property
    def own(self) -> Any:
        """The warpgroup's number among the consumers."""
        return self.multiplier.own

    def run(self) -> None:
        t, multiplier = self.tiling, self.multiplier
        start = Progress(
            multiplier.first_places(),
            Cursor() if t.shared.load_buffers else None,
            0 if t.grid.splits > 1 or t.epilogue.exchanges else None,
        )
        if multiplier.loop:
            first = t.block.producers * wgmma.WARPGROUP_THREADS
            multiplier.loop.begin(
                ops.thread_id() - first, t.block.consumers * wgmma.WARPGROUP_THREADS
            )
        multiplier.tiles.each(start, self._tile, self.own)
        self.epilogue.end()

    def _tile(self, place: TilePlace, now: Progress) -> Progress:
        place = own_part(self.tiling, place, self.own)
        return chosen(
            has_epilogue(self.tiling, place), now,
            lambda: self._multiply(place, now), lambda: self._skip(place, now),
        )  # fmt: skip

    def _skip(self, place: TilePlace, now: Progress) -> Progress:
        assert now.places.stages is not None
        following = self.multiplier.skip(now.places.stages, place)
        return replace(now, places=replace(now.places, stages=following))

    def _multiply(self, place: TilePlace, now: Progress) -> Progress:
        places, sums = self.multiplier.tile(now.places, place)
        now = replace(now, places=places)
        if self.tiling.grid.splits > 1:
            self._finish_split(place, sums, now.parity)
            return replace(now, parity=now.parity ^ 1)
        registers = [wgmma.unpacked(accumulator) for accumulator in sums]
        now = self._finish(place, registers, now)
        return replace(now, places=self.multiplier.following(now.places, place))

    # ---- the epilogue

    def _finish(self, place: TilePlace, sums: Sums, now: Progress) -> Progress:
        """The epilogue of a tile's whole sums."""
        is_in_stages = self.tiling.shared.loads_per_stage > 0  # after the operands
        loads = now.places.stages if is_in_stages else now.loads
        parity = 0 if now.parity is None else now.parity
        loads = self.epilogue.run(place, self._by_product(sums), self.loads, loads, parity)
        if is_in_stages:
            now = replace(now, places=replace(now.places, stages=loads))
        else:
            now = replace(now, loads=loads)
        return now if now.parity is None else replace(now, parity=parity ^ 1)

    @stretch("sum of parts")
    def _finish_split(self, place: TilePlace, sums: Sequence[Any], phase: Any) -> None:
        """Adds the sums of the blocks that share the tile; those that have a slice finish it."""
        t = self.tiling
        thread = ops.thread_id() - t.block.producers * wgmma.WARPGROUP_THREADS
        self.split.exchange(sums, thread, phase)
        has_slice = self.rank < t.shared.slices if t.shared.slices < t.grid.splits else None
        with ops.if_(has_slice):
            registers = self.split.total(sums, t.shared.own_columns, thread, self.rank)
            own = place.moved(0, self.rank * t.shared.own_columns)
            self.epilogue.run(own, self._by_product(registers), None, None)
        self.split.free(thread)

    def _by_product(self, sums: Sequence[Any]) -> list[list[Any]]:
        """[product][block of rows] of what there is for each accumulator."""
        blocks = self.tiling.block.blocks_of_rows
        return [list(sums[i : i + blocks]) for i in range(0, len(sums), blocks)]


def own_loads(tiling: Tiling, rings: Rings, own: Any, blocks: int) -> Loads | None:
    """The tensors that a warpgroup's epilogues read; blocks: of the cluster, that share stages."""
    if tiling.shared.loads_per_stage:
        return StageLoads(rings.stages, tiling, own if tiling.block.sharers > 1 else 0, blocks)
    return RingLoads(rings.loads_of(own)) if rings.loads else None
