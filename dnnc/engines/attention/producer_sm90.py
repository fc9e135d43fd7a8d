# pyright: basic
"""The warpgroup of sdpa_fwd_sm90 that loads: a tile's queries, then keys and values by blocks.

One thread issues all copies; where values are turned, the other warps do that (`turner_sm90`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.hopper import wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...mlir import nvvm
from .block_sm90 import SdpaBlock, unless
from .entry import Entry
from .schedule import KeyBlocks, QueryTile
from .turner_sm90 import ValueTurner


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
        is_first = ops.compare("eq", self.block.warp, 0)
        with ops.if_(ops.both(is_first, nvvm.elect_sync())):
            for operand in self.operands.values():
                operand.prefetch()
            start = [*Cursor().values, *Cursor().values, ops.const(0)]
            self.block.each_tile(start, self._load_tile, takes=True)
        if t.turns:
            with ops.if_(ops.less(0, self.block.warp)):
                turner = ValueTurner(t, self.schedule, self.raw, self.values, self.block.warp)
                self.block.each_tile(turner.start, turner.tile, takes=False)

    def _load_tile(self, tile: QueryTile, carried: Sequence[Any]) -> Sequence[Any]:
        blocks = self.block.blocks(tile)
        return unless(blocks.is_empty, carried, lambda: self._load_rows(tile, blocks, carried))

    def _load_rows(
        self, tile: QueryTile, blocks: KeyBlocks, carried: Sequence[Any]
    ) -> Sequence[Any]:
        keys, values, count = Cursor(*carried[:2]), Cursor(*carried[2:4]), carried[4]
        self._load_queries(tile, count)
        last = ops.sub(blocks.end, 1)
        load_keys = partial(self._load_block, "k", self.keys, tile, self.operands["k"].entry(tile))
        load_values = partial(self._load_block, "v", self.raw, tile, self.operands["v"].entry(tile))
        keys = load_keys(keys, last)

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            block = ops.sub(last, i)
            keys = load_keys(Cursor(*carried[:2]), ops.sub(block, 1))
            values = load_values(Cursor(*carried[2:]), block)
            return [*keys.values, *values.values]

        def step_if_seen(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            block = ops.sub(ops.sub(last, 1), i)

            def load() -> Sequence[Any]:
                keys = load_keys(Cursor(*carried[:2]), block)
                values = load_values(Cursor(*carried[2:4]), carried[4])
                return [*keys.values, *values.values, block]

            is_seen = self.schedule.sees(tile, block)
            return ops.either(is_seen, [v.type for v in carried], load, lambda: carried)

        start, steps = [*keys.values, *values.values], ops.sub(last, blocks.first)
        if not self.schedule.is_sparse:
            *keys_, stage, phase = ops.for_(0, steps, 1, start, step)
            final = blocks.first
        else:  # values come one step after the keys, whichever these are
            start = [*start, ops.value_of(last)]
            *keys_, stage, phase, final = ops.for_(0, steps, 1, start, step_if_seen)
        values = load_values(Cursor(stage, phase), final)
        return [*keys_, *values.values, ops.add(count, 1)]

    def _load_queries(self, tile: QueryTile, count: Any) -> None:
        t, cursor, operand = self.tiling, self.block.query_cursor(count), self.operands["q"]
        entry = operand.entry(tile)
        for own in range(t.consumers):
            ring = self.block.queries_of(own)
            ring.wait_empty(cursor)
            ring.expect(cursor, t.depth_panels * wgmma.M * wgmma.ROW_BYTES)
            row = self.schedule.from_first(ops.add(tile.row, own * wgmma.M))
            operand.load(ring.slot(cursor), ring.full_barrier(cursor), tile, entry, row)

    def _load_block(
        self, name: str, ring: Pipeline, tile: QueryTile, entry: Entry, cursor: Cursor, block: Any
    ) -> Cursor:
        ring.wait_empty(cursor)
        ring.expect(cursor, ring.stage_bytes)
        row = ops.mul(block, self.tiling.keys)
        slot, barrier = ring.slot(cursor), ring.full_barrier(cursor)
        self.operands[name].load(slot, barrier, tile, entry, row)
        return cursor.next(self.tiling.stages)
