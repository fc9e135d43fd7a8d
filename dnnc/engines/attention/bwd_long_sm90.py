# pyright: basic
"""The main kernel of engine sdpa_bwd_sm90 where heads are longer than 128.

    warps 0, 3   load, and fill sums of dQ with zeros, as for shorter heads
    warpgroup 1  for each block of queries, of the tile's 64 keys:
                   start S' = K @ Q' and dP' = V @ dO', exponentials while dP' runs
                   P', dS' in registers; dS to shared memory; dV += P' @ dO
    warpgroup 2  for each block of queries, once its dS is there:
                   start dQ = dS @ K, of some columns, and dK += dS' @ Q
                   add dQ to memory from registers while dK runs; then the other columns

The second is at one block while the first is at the next: products of one run while the other one
computes.  There are two buffers of dS, used in step with stages of queries: a stage is only
loaded anew once the second warpgroup has left its block, and dS with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.pipeline import Cursor
from ...codegen.memory import atomic, smem
from ...mlir import nvvm
from ...target import WARP_THREADS
from .bwd_add_order import AddOrder, AddState
from .bwd_kernel_sm90 import BOTH_THREADS, PARTS, GradientEmitter, moved
from .bwd_tile_sm90 import STAGES, LongTiling
from .schedule import QueryTile

_TOGETHER = 4  # registers that are added to memory at once


@dataclass(frozen=True)
class ValueSums:
    """State that the first warpgroup carries between blocks; see `bwd_kernel_sm90.Sums`."""

    cursor: Cursor
    dv: list[Any]
    met: list[Any]


@dataclass(frozen=True)
class KeySums:
    """State that the second warpgroup carries between blocks.  added: of its additions to
    dQ, if these have an order."""

    cursor: Cursor
    dk: list[Any]
    added: AddState | None


@dataclass
class LongGradientEmitter(GradientEmitter):
    """See the file's docstring."""

    @property
    def tiling(self) -> LongTiling:
        return self.schedule.tiling

    @property
    def readers(self) -> tuple[int, int]:
        return 2, 1

    def _add_queries(self) -> None:
        """The second warpgroup adds them."""

    def _consume(self) -> None:
        wgmma.set_registers(self.tiling.registers[1], grows=True)
        ops.if_else(self.own.eq(0), self._values, self._keys)

    def _begin_role(self) -> None:
        """Finds a role's own places: what both share would be kept in registers for the other."""
        self.address = ops.opaque(smem.address(self.base))
        self.thread = ops.opaque(ops.thread_id()) & (wgmma.WARPGROUP_THREADS - 1)
        self.lane = self.thread & (WARP_THREADS - 1)

    def _leave(self, name: str, sums: list[Any], offset: int) -> None:
        """The sums of dK or dV to memory; offset: of shared memory that nobody reads any more."""
        tile = self.found_tile()
        if self.buffers.kept:
            self.results[name].keep(sums, tile, 0, self.thread)
            return
        self.meet_own()  # products of all warps have read that memory
        self.store(name, sums, offset, tile, 0)
        with ops.if_(self.thread.eq(0)):
            tma.wait_read(0)

    def _described_here(self, offset: int, panels: wgmma.Panels) -> Any:
        """A descriptor such that those of each instruction, some bytes further on, are not kept in
        registers around a loop."""
        return wgmma.descriptor(ops.opaque(self.address) + offset, panels)

    # ---- scores and dV

    def _values(self) -> None:
        t = self.tiling
        self._begin_role()
        self.begin_walk(0)
        if not self.describes_here:
            self._describe()
        zeros = wgmma.settled([ops.zeros(ops.f32_type())] * (t.width // 2))
        mbarrier.wait(self.k_full, 0)
        mbarrier.wait(self.v_full, 0)
        start = ValueSums(Cursor(), zeros, self.no_magnitudes)
        end = self.schedule.each_run(self.tile, start, self._value_step)
        self.meet_magnitudes(end.met)
        self._leave("dv", end.dv, t.v_offset)

    def _describe(self) -> None:
        self.describe_queries()
        self.find_places(0)

    def _value_step(
        self, head: QueryTile, block: Any, now: ValueSums, is_masked: bool
    ) -> ValueSums:
        t, cursor = self.tiling, now.cursor
        tile, head, row = self.begin_step(head, block, is_masked)
        self.walk.met = now.met
        rows = self.row_place + cursor.stage * t.row_bytes
        q, do = (moved(cursor.stage, bytes_) for bytes_ in (t.q_bytes, t.do_bytes))
        q, do, do_transposed = self.q_rows + q, self.do_rows + do, self.do_transposed_ + do
        dv: Any = now.dv
        self.q.wait_full(cursor)
        for query in range(0, t.queries, t.at_once):
            k = self._described_here(0, self.key_rows)
            v = self._described_here(t.v_offset, self.key_rows)
            first = query * wgmma.ROW_BYTES
            scores = self.of_rows(self.qk, k, wgmma.moved(q, first), t.depth, t.at_once)
            if query == 0:
                self.do.wait_full(cursor)
            products = self.of_rows(self.vo, v, wgmma.moved(do, first), t.width, t.at_once)
            fetched = self.walk.fetch(tile, head, row + query)
            (scores,) = wgmma.wait_for([scores], 1)
            sums, at = wgmma.unpacked(scores), (tile, head, row + query, rows + query * 4)
            e = self.walk.exponentials(sums, *at, is_masked=is_masked)
            (products,) = wgmma.wait_for([products])
            weights, gradients = self.walk.words(
                e, wgmma.unpacked(products), *at, is_masked=is_masked, fetched=fetched
            )
            self.put_gradients(gradients, cursor.stage, query)
            if query + t.at_once == t.queries:
                self.arrive(PARTS, cursor.stage, BOTH_THREADS)
                self.q.release(cursor, self.lane)
            weights = wgmma.settled(weights)
            of_part = wgmma.moved(do_transposed, self.do_transposed.offset(0, query // self.vo.k))
            (dv,) = wgmma.wait_for(
                [self.add(self.vo, t.width, dv, weights, of_part, self.do_transposed)]
            )
            dv = wgmma.unpacked(dv)
        self.do.release(cursor, self.lane)
        return ValueSums(cursor.next(STAGES), dv, self.walk.met)

    # ---- dK and dQ

    def _keys(self) -> None:
        t = self.tiling
        self._begin_role()
        self.ds_rows = self.described(t.ds_offset, self.query_rows)
        self.gradients_transposed = wgmma.Panels(t.keys, 2, False, t.queries)
        self.ds_transposed = self.described(t.ds_offset, self.gradients_transposed)
        self.describe_queries()
        zeros = wgmma.settled([ops.zeros(ops.f32_type())] * (t.depth // 2))
        mbarrier.wait(self.k_full, 0)
        order = self.add_order(0)
        start = KeySums(Cursor(), zeros, None if order is None else AddState())

        def step(head: QueryTile, block: Any, now: KeySums, is_masked: bool) -> KeySums:
            return self._key_step(head, block, now, order)

        end = self.schedule.each_step(self.tile, start, step)
        if order is not None:
            self.meet_own()
            with ops.if_(self.thread.eq(0)):
                order.end(end.added.seen)
        self._leave("dk", end.dk, 0)

    def _key_step(
        self, head: QueryTile, block: Any, now: KeySums, order: AddOrder | None
    ) -> KeySums:
        t, cursor = self.tiling, now.cursor
        ds, q = (moved(cursor.stage, bytes_) for bytes_ in (t.ds_bytes, t.q_bytes))
        first, *others = t.dq_parts
        self.q.wait_full(cursor)
        self.meet(PARTS, cursor.stage, BOTH_THREADS)
        k = self._described_here(0, self.keys_transposed)
        dq = self._of_gradients(self.ds_rows + ds, k, first)
        dk = self._add_gradients(now.dk, self.ds_transposed + ds, self.q_transposed + q)
        added = now.added
        if order is not None and added is not None:
            # All threads have come here since the last block's additions.
            with ops.if_(self.thread.eq(0)):
                order.show(added.done)
        (dq,) = wgmma.wait_for([dq], 1)
        if order is not None and added is not None:
            added = self._wait_to_add(order, head, block, added)
        sums = self.sums_place(head, block, self.thread * 16)
        self._add_to_memory(sums, dq, first)
        for part in others:
            dq = self._of_gradients(self.ds_rows + ds, k, part)
            (dq,) = wgmma.wait_for([dq])
            self._add_to_memory(sums, dq, part)
        (dk,) = wgmma.wait_for([dk])
        self.q.release(cursor, self.lane)
        return KeySums(cursor.next(STAGES), wgmma.unpacked(dk), added)

    def _of_gradients(self, a: Any, b: Any, part: tuple[int, int]) -> Any:
        """Starts [queries, columns of a part] = dS @ K."""
        row, (first, columns) = self.qk, part
        sums = wgmma.undefined(row, columns)
        wgmma.fence()
        for step in range(self.tiling.keys // row.k):
            sums = wgmma.multiply(
                row, columns, wgmma.moved(a, self.query_rows.offset(0, step)),
                wgmma.moved(b, self.keys_transposed.offset(first, step)),
                sums, int(step > 0), b_k_major=False,
            )  # fmt: skip
        wgmma.commit()
        return sums

    def _add_gradients(self, sums: list[Any], a: Any, b: Any) -> Any:
        """Starts sums + dS' @ Q, [keys, D], both transposed in shared memory."""
        row, depth = self.qk, self.tiling.depth
        made = wgmma.packed(wgmma.accumulator_type(row, depth), sums)
        wgmma.fence()
        for step in range(self.tiling.queries // row.k):
            made = wgmma.multiply(
                row, depth, wgmma.moved(a, self.gradients_transposed.offset(0, step)),
                wgmma.moved(b, self.queries_transposed.offset(0, step)), made, 1,
                a_k_major=False, b_k_major=False,
            )  # fmt: skip
        wgmma.commit()
        return made

    def _add_to_memory(self, place: Any, sums: Any, part: tuple[int, int]) -> None:
        """Adds a part of dQ to memory, [4 registers of each thread]; place: the thread's, of the
        block's first column."""
        registers = wgmma.unpacked(sums)
        for at in range(0, len(registers), _TOGETHER):
            offset = (part[0] // 2 + at) * wgmma.WARPGROUP_THREADS * 4
            four = ops.from_elements(registers[at : at + _TOGETHER])
            atomic.add(smem.byte_pointer(place, offset), four, is_together=True)
        # Else the assembler moves them past the products that follow, which need the registers.
        nvvm.bar_warp_sync(ops.const(-1))

    def _wait_to_add(
        self, order: AddOrder, head: QueryTile, block: Any, added: AddState
    ) -> AddState:
        """Waits until the tile before has added to a block; gives the state after that."""
        number = self.schedule.step_number(self.tile, head, block) + 1
        seen = ops.value_of(added.seen)
        (now,) = ops.either(
            self.thread.eq(0), [seen.type], lambda: [order.wait(number, seen)], lambda: [seen]
        )
        self.meet_own()
        return AddState(now, number)
