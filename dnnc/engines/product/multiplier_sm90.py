# pyright: basic
"""Multiplies the sums of a tile in a consumer warpgroup of engines matmul_sm90 and conv_sm90.

For each k block: wait until its stage is full, start its products, release the stage before.  With
sums of fp8 in f32 the products of a stage are waited for and added; an operand that g1 gives may
come through registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...codegen import ops
from ...codegen.hopper import wgmma
from ...codegen.hopper.operand_fragments import OperandFragments
from ...codegen.hopper.ping_pong import TilePingPong, later
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.state import loop
from ...codegen.stretch import stretch
from ...codegen.tiles.schedule import TilePlace
from .matrices_sm90 import Loop, Matrices
from .tile_loop_sm90 import Tiles
from .tile_sm90 import Tiling


@dataclass(frozen=True)
class Places:
    """Where a consumer warpgroup is.

    stages: in the ring of the operands.  phase: of its next tile; None: it does not ping-pong.
    loop: the record of another main loop, in rings of its own; None: there is none.
    """

    stages: Cursor | None
    phase: Any = None
    loop: Any = None


@dataclass(frozen=True)
class Mainloop:
    """here: the stage that comes.  previous: the one whose products still run, or -1.  row_sums: of
    the first operand's rows; empty: nobody needs them."""

    here: Cursor
    previous: Any
    sums: list[Any]
    row_sums: list[Any]


@dataclass(frozen=True)
class Promoted:
    """here: the stage that comes.  totals: the registers of all sums so far, in f32."""

    here: Cursor
    totals: list[Any]


@dataclass(frozen=True)
class Fragments:
    """here: the stage whose first operand is in registers.  words: those registers."""

    here: Cursor
    words: list[Any]
    sums: list[Any]


@dataclass(frozen=True)
class Multiplier:
    """The products of one warpgroup, by all of its threads.

    pipeline: of the operands' stages.  sharers: blocks that release a stage to each other.  loop:
    where pixels of a convolution come once for all taps.  ping_pong: of warpgroups that have whole
    tiles.  own, lane: the warpgroup's number, and the thread's in its warp.  tiles: of the block.
    """

    tiling: Tiling
    matrices: Matrices
    pipeline: Pipeline
    sharers: int
    loop: Loop | None
    ping_pong: TilePingPong
    own: Any
    lane: Any
    tiles: Tiles

    @property
    def operands(self) -> Sequence[Any]:
        return self.matrices.operands

    def skip(self, cursor: Cursor, place: TilePlace) -> Cursor:
        """Lets the stages of a tile go by."""

        @loop(0, place.steps, state=cursor)
        def end(i: Any, here: Cursor) -> Cursor:
            self.pipeline.wait_full(here)
            self._release(here)
            return here.next(self.tiling.stages)

        return end

    @stretch("mainloop")
    def tile(self, places: Places, place: TilePlace) -> tuple[Places, list[Any]]:
        """(places, accumulators) after a tile: of each product, one for each 64 rows of the
        warpgroup.

        place: of the warpgroup's tile.
        """
        if self.loop:
            own, sums = self.loop.multiply(
                places.loop, place, self.own, self.lane, self._undefined(), self._start_products
            )
            return replace(places, loop=own), sums
        assert places.stages is not None
        if self.tiling.block.is_ping_pong:  # once the warpgroup before has begun its last products
            self.ping_pong.wait(self.own, places.phase)
        multiply = self._multiply_panels
        if self.tiling.promotes:
            multiply = self._multiply_promoted
        elif self.tiling.takes_fragments:
            multiply = self._multiply_fragments
        cursor, sums = multiply(places.stages, place)
        return replace(places, stages=cursor), sums

    def first_places(self) -> Places:
        """This warpgroup's places before its first tile."""
        if self.loop:
            return Places(None, loop=self.loop.start())
        if not self.tiling.block.is_ping_pong:
            return Places(Cursor())
        t = self.tiling
        steps = self.tiles.first_steps() + t.shared.load_steps
        return Places(Cursor.at(self.own * steps, t.stages), self.ping_pong.first(self.own))

    def following(self, places: Places, place: TilePlace) -> Places:
        """This warpgroup's places in the rings, once it has finished a tile."""
        t = self.tiling
        if not t.block.is_ping_pong:
            return places
        assert places.stages is not None
        steps = place.steps if place.next_steps is None else place.next_steps
        others = (steps + t.shared.load_steps) * (t.block.consumers - 1)
        return replace(
            places, stages=later(places.stages, others, t.stages), phase=places.phase ^ 1
        )

    def _multiply_panels(self, cursor: Cursor, place: TilePlace) -> tuple[Cursor, list[Any]]:
        """A group of products for each panel, of which the last of a round ends in the next one.

        The others are waited for at once: where two that begin in a round are under way together,
        ptxas 13.0 loses count, and moves reads of accumulators ahead of the wait for the last.
        """
        t = self.tiling
        last = len(self._panels) - 1

        rows = self.matrices.row_sums
        start = Mainloop(cursor, -1, self._undefined(), rows.start() if rows else [])

        @loop(0, place.steps, len(self._panels), state=start)
        def end(i: Any, now: Mainloop) -> Mainloop:
            for number, k_steps in enumerate(self._panels):
                self.pipeline.wait_full(now.here)
                sums = self._multiply_stage(now.here, i + number, now.sums, k_steps=k_steps)
                row_sums = now.row_sums
                if rows:
                    row_sums = rows.added(row_sums, place, i + number, self._first_rows(now.here))
                wgmma.wait(int(number == last))
                if number == 0:
                    with ops.if_(now.previous >= 0):
                        self._release(Cursor(now.previous))
                if number < last:
                    self._release(now.here)
                now = Mainloop(now.here.next(t.stages), now.here.stage, sums, row_sums)
            return now

        has_more = t.shared.load_steps > 0
        if t.block.is_ping_pong and not has_more:
            self.ping_pong.end(self.own, self.lane)
        sums = wgmma.wait_for(end.sums)
        self._release(Cursor(end.previous))
        if t.block.is_ping_pong and has_more:
            self._hand_over(end.here)
        if rows:
            rows.store(end.row_sums, place)
        return end.here, sums

    def _first_rows(self, cursor: Cursor) -> Any:
        """The address of the warpgroup's rows of the first operand in a stage."""
        return self._own_part(self.operands[0], self.pipeline.address(cursor))

    def _own_part(self, operand: Any, stage: Any) -> Any:
        """The address of the warpgroup's part of an operand in a stage."""
        step = self.tiling.block.part_step[0 if operand.is_rows else 1] * operand.panels.k_bytes
        return stage + operand.plan.offset + self.own * step

    @property
    def _panels(self) -> Sequence[int]:
        """The instructions along k of stages that follow each other, again and again."""
        return self.tiling.pixels.steps or (self.tiling.k_steps,)

    def _hand_over(self, cursor: Cursor) -> None:
        """Once the stages after a tile's last step are there, of which another would take its own
        too early for loaded."""
        for _ in range(self.tiling.shared.load_steps):
            self.pipeline.wait_full(cursor)
            cursor = cursor.next(self.tiling.stages)
        self.ping_pong.end(self.own, self.lane)

    def _multiply_promoted(self, cursor: Cursor, place: TilePlace) -> tuple[Cursor, list[Any]]:
        """Multiplies, and adds the sums of one stage, or some, by additions that round to f32."""
        t = self.tiling
        undefined = self._undefined()
        k_steps = max(self._panels)
        columns = t.block.part[1]
        type_ = wgmma.accumulator_type(self.tiling.row, columns)

        registers = len(undefined) * columns // 2
        start = Promoted(cursor, [ops.zeros(ops.f32_type())] * registers)

        def added(now: Promoted, stages: int) -> Promoted:
            here, parts = now.here, undefined
            for number in range(stages):
                before = here
                here = here.next(t.stages) if number else here
                self.pipeline.wait_full(here)
                is_added = ops.const(int(number > 0))
                parts = self._multiply_stage(here, is_added, parts, k_steps=k_steps)
                if number:
                    wgmma.wait(1)
                    self._release(before)
            parts = wgmma.wait_for(parts)
            self._release(here)
            flat = [value for part in parts for value in wgmma.unpacked(part)]
            totals = [total + value for total, value in zip(now.totals, flat, strict=True)]
            return Promoted(here.next(t.stages), totals)

        together = t.promoted_stages
        whole = place.steps // together * together if together > 1 else place.steps

        @loop(0, whole, together, state=start)
        def end(i: Any, now: Promoted) -> Promoted:
            return added(now, together)

        if together > 1:

            @loop(whole, place.steps, state=end)
            def rest(i: Any, now: Promoted) -> Promoted:
                return added(now, 1)

            end = rest
        each = columns // 2
        parts = [end.totals[i : i + each] for i in range(0, registers, each)]
        return end.here, [wgmma.packed(type_, part) for part in parts]

    def _multiply_fragments(self, cursor: Cursor, place: TilePlace) -> tuple[Cursor, list[Any]]:
        """Multiplies with the operand along the rows in registers.

        The fragments of a stage are computed while another warpgroup's products run.
        """
        t = self.tiling
        operand = self.operands[t.products[0][0]]
        thread = ops.thread_id() & (wgmma.WARPGROUP_THREADS - 1)
        batch = place.batch_of(is_a=operand.is_a)
        fragments = OperandFragments(operand, batch, place.row, t.block.blocks_of_rows, thread)
        own_row = self.own * t.block.part[0]

        def take(here: Cursor, step: Any) -> list[Any]:
            self.pipeline.wait_full(here)
            first_k = (place.first_step + step) * self.matrices.k_panel
            blocks = fragments.take(self.pipeline.slot(here), own_row, first_k)
            return [word for words in blocks for word in words]

        def start(here: Cursor, step: Any, words: Sequence[Any], sums: Sequence[Any]) -> Any:
            per_block = len(words) // t.block.blocks_of_rows
            blocks = [words[i : i + per_block] for i in range(0, len(words), per_block)]
            return self._multiply_stage(here, step, sums, blocks)

        words = wgmma.settled(take(cursor, 0))
        last = place.steps - 1

        @loop(0, last, state=Fragments(cursor, words, self._undefined()))
        def end(i: Any, now: Fragments) -> Fragments:
            sums = start(now.here, i, now.words, now.sums)
            following = now.here.next(t.stages)
            # Words that are computed while products run would be written to registers that these
            # read, or make the assembler serialize them (C7513): the other warpgroup's run then.
            wgmma.wait(0)
            self._release(now.here)
            return Fragments(following, wgmma.settled(take(following, i + 1)), sums)

        sums = start(end.here, last, end.words, end.sums)
        sums = wgmma.wait_for(sums)
        self._release(end.here)
        return end.here.next(t.stages), sums

    def _undefined(self) -> list[Any]:
        """Accumulators whose first products do not read them."""
        count = len(self.tiling.products) * self.tiling.block.blocks_of_rows
        return [wgmma.undefined(self.tiling.row, self.tiling.block.part[1])] * count

    def _release(self, cursor: Cursor) -> None:
        self.pipeline.release(cursor, self.lane, self.sharers)

    def _multiply_stage(
        self, cursor: Cursor, is_added: Any, sums: Sequence[Any], words: Sequence[Any] = (),
        k_steps: int | None = None,
    ) -> list[Any]:  # fmt: skip
        """Starts the products of a stage; is_added: 0 where they are the first of the tile.

        words: [block of rows][words of each step of k] of a first operand in registers.  k_steps:
        how many are taken; None: all.
        """
        stage = self.pipeline.address(cursor)
        descriptors = list[Any]()
        for operand in self.operands:
            place = self._own_part(operand, stage)
            descriptors.append(wgmma.descriptor(place, operand.panels))
        return self._start_products(descriptors, is_added, sums, words, k_steps)

    def _start_products(
        self,
        descriptors: Sequence[Any],
        is_added: Any,
        sums: Sequence[Any],
        words: Sequence[Any] = (),
        k_steps: int | None = None,
    ) -> list[Any]:
        """Starts the products of operands that lie where some descriptors say."""
        t = self.tiling
        sums, own = list(sums), t.block.part[1] // t.pixels.beside
        wgmma.fence()
        for k in range(k_steps or t.k_steps):
            for i, (a, b) in enumerate(t.products):
                first, second = self.operands[a].panels, self.operands[b].panels
                column, inner = self._columns_of_step(k)
                for block in range(t.block.blocks_of_rows):
                    place = i * t.block.blocks_of_rows + block
                    rows = (
                        words[block][4 * k : 4 * k + 4]
                        if words
                        else wgmma.moved(descriptors[a], first.offset(block * wgmma.M, k))
                    )
                    made = wgmma.multiply(
                        t.row,
                        own,
                        rows,
                        wgmma.moved(descriptors[b], second.offset(column, inner)),
                        wgmma.columns_of(t.row, sums[place], column, own),
                        is_added if inner == 0 else 1,
                        a_k_major=first.is_k_major,
                        b_k_major=second.is_k_major,
                    )
                    sums[place] = wgmma.with_columns(sums[place], column, made)
        wgmma.commit()
        return sums

    def _columns_of_step(self, k: int) -> tuple[int, int]:
        """(first column that step k of a panel adds to, the step of the filter's rows)."""
        t = self.tiling
        group, inner = divmod(k, t.k_steps // t.pixels.beside)
        return group * (t.block.part[1] // t.pixels.beside), inner
