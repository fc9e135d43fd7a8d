# pyright: basic
"""Walks of an attention on a consumer warpgroup, whose result leaves by TMA."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.online_softmax import OnlineSoftmax, Rows
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.staged_store import StagedStore
from ...codegen.walk.index import Index
from ...codegen.walk.loops import coordinates_of
from ...mlir import arith, ir
from .entry import Entry
from .region import SdpaRegion
from .result import ResultWalk
from .schedule import QueryTile
from .scores import ScoreWalk
from .tile_sm90 import SdpaTiling


@dataclass
class WarpgroupRegion(SdpaRegion):
    """thread: of the warpgroup."""

    tiling: SdpaTiling

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stores = self._staged_stores()

    def _staged_stores(self) -> list[tuple[int, StagedStore, Any]]:
        """(output, how a panel of it is stored, its tensor map) of the output that is staged."""
        place = self.tiling.staged
        if place < 0:
            return []
        tensor = self.region.outputs[place][1]
        panel = self.tiling.staged_panel
        box = tma.Box(tensor, (tensor.rank - 1, tensor.rank - 2), (panel, wgmma.M))
        return [(place, StagedStore(box), tma.map_argument(self.kernel, box))]

    def at(self, tile: QueryTile, row: Any) -> WarpgroupWalk:
        """row: the warpgroup's first query of a tile."""
        return WarpgroupWalk(self, tile, row)


@dataclass
class WarpgroupWalk(ScoreWalk, ResultWalk):
    """The walks of one tile."""

    shared: WarpgroupRegion

    def store_staged(
        self, softmax: OnlineSoftmax, rows: Rows, result: Sequence[Any], buffer: Any,
        meet: Callable[[], None],
    ) -> None:  # fmt: skip
        """`store`, of which one output goes through shared memory.

        buffer: its i32 address.  meet: of the warpgroup.
        """
        self._store_staged(self.divided(softmax, rows, result), buffer, meet)

    def _store_staged(self, result: Sequence[Any], buffer: Any, meet: Callable[[], None]) -> None:
        s = self.shared
        staged = {place for place, _, _ in s.stores}
        self.store_others(result, staged)
        if not s.stores:
            return
        meet()  # all warps' products have read the queries, in whose place this goes
        ((place, store, map_),) = s.stores
        if place in s.packed:
            entry = self.entry_of(place)

            def whole() -> None:
                self._stage(place, store, map_, result, buffer, meet, entry)

            def part() -> None:
                self.store_direct(place, result)

            has_all = self.row + wgmma.M <= entry.length
            ops.if_else(has_all, self._apart(whole), self._apart(part))
        else:
            self._stage(place, store, map_, result, buffer, meet, None)

    def _apart(self, body: Callable[[], None]) -> Callable[[], None]:
        """For a branch: what is walked there is not known after it."""

        def run() -> None:
            walk, self.walk = self.walk, self.walk.branch()
            body()
            self.walk = walk

        return run

    def store_nothing(self, softmax: OnlineSoftmax) -> None:
        """Stores nothing of a tile none of whose scores is kept."""
        self._store_nothing(softmax, has_result=True)

    def store_no_statistics(self, softmax: OnlineSoftmax) -> None:
        """The statistics of rows without scores."""
        self._store_nothing(softmax, has_result=False)

    def _store_nothing(self, softmax: OnlineSoftmax, *, has_result: bool) -> None:
        rows, zeros = self.nothing()
        zeros = self.divided(softmax, rows, zeros if has_result else [])
        if has_result:
            self.store_others(zeros)

    def nothing(self) -> tuple[Rows, list[Any]]:
        """(statistics, result) of rows without scores."""
        zero, low = (
            arith.ConstantOp(ops.f32_type(), ir.FloatAttr.get(ops.f32_type(), n)).result
            for n in (0.0, -math.inf)
        )
        return Rows([low, low], [zero, zero]), [zero] * (self.shared.tiling.width // 2)

    def _stage(
        self, place: int, store: StagedStore, map_: Any, result: Sequence[Any], buffer: Any,
        meet: Callable[[], None], entry: Entry | None,
    ) -> None:  # fmt: skip
        """Through shared memory; entry: of a packed output."""
        s = self.shared
        value, target = s.targets[place]
        batch, row = dict(self.tile.batch), self.row
        if entry is not None:
            value = s.made(place)
            batch, row = {**batch, 0: Index.of(0)}, entry.first + row
        panel = s.tiling.staged_panel
        blocks, whole = -(-s.tiling.width // 16), panel // 16
        put = store.put_quads if s.of_bytes else store.put
        for first in range(0, blocks, whole):
            pieces = self.pieces(result, first, min(whole, blocks - first))
            made = [self.made_of(value, piece) for piece in pieces]
            rows = [made[i : i + 2] for i in range(0, len(made), 2)]
            put(buffer + first // whole * store.bytes, self.thread, rows)
        tma.show_writes()
        meet()
        is_first = self.thread.eq(0)
        with ops.if_(ops.both(is_first, s.schedule.not_before(self.row))):
            for number in range(s.tiling.staged_panels):
                column = Index.of(number * panel)
                at = coordinates_of(
                    target.tensor.rank, batch,
                    {target.tensor.rank - 2: Index(row), target.tensor.rank - 1: column},
                )  # fmt: skip
                source = buffer + number * store.bytes
                store.start(map_, source, tma.place(store.box, at))
            tma.commit()
