# pyright: basic
"""The warpgroup of sdpa_fwd_sm90 that loads: a tile's queries, then keys and values by blocks.

One thread issues all copies; where values are transposed, the other warps do that
(`transposer_sm90`).  A tile's last values wait for room the longest, and are needed after the next
tile's first keys: where that tile is looked up, they come when it is known where it lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.hopper import wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.state import chosen, loop
from ...codegen.stretch import stretch
from ...mlir import nvvm
from .block_sm90 import SdpaBlock, unless
from .entry import Entry
from .schedule import KeyBlocks, QueryTile
from .transposer_sm90 import ValueTransposer


@dataclass(frozen=True)
class Loading:
    """Places in the rings of keys and of values.  pending: the block whose values come next, where
    blocks are left out; None: each does, in order."""

    keys: Cursor
    values: Cursor
    pending: Any = None


@dataclass(frozen=True)
class Last:
    """A tile's last values, which are still to come.  block: of keys, -1: there are none.  head: of
    the tile.  entry: of the values."""

    block: Any
    head: Any
    entry: Entry


@dataclass(frozen=True)
class Loaded:
    """Places in the rings, the number of tiles, and the last values of the last one; None: they
    have come."""

    keys: Cursor
    values: Cursor
    count: Any
    last: Last | None


@dataclass
class SdpaProducer:
    """Warpgroup 0 of a block."""

    block: SdpaBlock

    def __post_init__(self) -> None:
        block = self.block
        self.tiling, self.schedule, self.operands = block.tiling, block.schedule, block.operands
        self.keys, self.values, self.raw = block.keys, block.values, block.raw

    def run(self) -> None:
        """Loads all of the block's tiles."""
        t = self.tiling
        if t.registers:
            wgmma.set_registers(t.registers[0], grows=False)
        is_first = self.block.warp.eq(0)
        with ops.if_(ops.both(is_first, nvvm.elect_sync())):
            for operand in self.operands.values():
                operand.prefetch()
            self._load_last(self.block.each_tile(self._start(), self._load_tile, takes=True))
        if t.transposes_values:
            with ops.if_(ops.less(0, self.block.warp)):
                block = self.block
                transposer = ValueTransposer(
                    t, self.schedule, self.raw, self.values, block.warp, block.blocks
                )
                self.block.each_tile(Cursor(), transposer.tile, takes=False)

    def _start(self) -> Loaded:
        if not self.tiling.entries:
            return Loaded(Cursor(), Cursor(), 0, None)
        kind = self.operands["v"].source.kind
        entry = Entry(0 if kind else None, 0 if kind == "packed" else None)
        return Loaded(Cursor(), Cursor(), 0, Last(-1, 0, entry))

    def _load_tile(self, tile: QueryTile, now: Loaded) -> Loaded:
        blocks = self.block.blocks(tile)
        entries = {name: operand.entry(tile) for name, operand in self.operands.items()}
        here = now
        if now.last is not None:
            here = replace(now, values=self._load_last(now), last=replace(now.last, block=-1))
        return unless(blocks.is_empty, here, lambda: self._load_rows(tile, blocks, entries, here))

    def _load_last(self, now: Loaded) -> Cursor:
        """Loads the last values of the tile before; gives the place of the next ones."""
        if (last := now.last) is None:
            return now.values
        tile = self.schedule.tile(0, last.head)

        def load() -> Cursor:
            return self._load_block("v", self.raw, tile, last.entry, now.values, last.block)

        return chosen(last.block >= 0, now.values, load, lambda: now.values)

    def _load_rows(
        self, tile: QueryTile, blocks: KeyBlocks, entries: Mapping[str, Entry], now: Loaded
    ) -> Loaded:  # fmt: skip
        """Queries, keys and values, but the last ones where these come later."""
        if self.block.parts.queries is None:
            self._load_queries(tile, entries["q"], now.count)
        last = blocks.end - 1
        load_keys = partial(self._load_block, "k", self.keys, tile, entries["k"])
        load_values = partial(self._load_block, "v", self.raw, tile, entries["v"])
        start = Loading(load_keys(now.keys, last), now.values)
        steps = last - blocks.first
        if not self.schedule.is_sparse:

            @loop(0, steps, state=start)
            def end(i: Any, at: Loading) -> Loading:
                block = last - i
                return Loading(load_keys(at.keys, block - 1), load_values(at.values, block))

            final = blocks.first
        else:  # values come one step after the keys, whichever these are

            @loop(0, steps, state=replace(start, pending=last))
            def end(i: Any, at: Loading) -> Loading:
                block = last - 1 - i

                def load() -> Loading:
                    keys, values = load_keys(at.keys, block), load_values(at.values, at.pending)
                    return Loading(keys, values, block)

                return chosen(self.schedule.sees(tile, block), at, load, lambda: at)

            final = end.pending
        if now.last is None:
            return Loaded(end.keys, load_values(end.values, final), now.count + 1, None)
        return Loaded(end.keys, end.values, now.count + 1, Last(final, tile.head, entries["v"]))

    @stretch("load")
    def _load_queries(self, tile: QueryTile, entry: Entry, count: Any) -> None:
        t, cursor, operand = self.tiling, self.block.query_cursor(count), self.operands["q"]
        for own in range(t.consumers):
            ring = self.block.queries_of(own)
            ring.wait_empty(cursor)
            ring.expect(cursor, t.depth_panels * wgmma.M * wgmma.ROW_BYTES)
            row = self.schedule.from_first(tile.row + own * wgmma.M)
            operand.load(ring.slot(cursor), ring.full_barrier(cursor), tile, entry, row)

    @stretch("load")
    def _load_block(
        self, name: str, ring: Pipeline, tile: QueryTile, entry: Entry, cursor: Cursor, block: Any
    ) -> Cursor:
        ring.wait_empty(cursor)
        ring.expect(cursor, ring.stage_bytes)
        row = block * self.tiling.keys
        slot, barrier = ring.slot(cursor), ring.full_barrier(cursor)
        self.operands[name].load(slot, barrier, tile, entry, row)
        return cursor.next(self.tiling.stages)
