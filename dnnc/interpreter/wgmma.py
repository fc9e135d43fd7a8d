"""Warpgroup products: what is in flight, and the shared memory that descriptors mean.

The four warps of a warpgroup issue their instructions one by one; a product is computed when the
last of them has issued it, from shared memory as it is then.  From its issue to the wait that
covers its group, a warp may not touch the accumulators and the registers of A, and nobody may
write the shared memory that it reads.  As the wait, a late reader also counts for the race
detector, so it does not matter when exactly the product was computed.

Shared memory layouts (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"), in
chunks of 16 bytes, s the swizzle's span in chunks (1 without a swizzle):
  K-major    row r, chunk c:    8 rows of s chunks are an atom; atoms SBO apart along the rows;
             c + s * (r % 8) + SBO * (r // 8); without a swizzle the two chunks are LBO apart.
  MN-major   chunk c of the rows, step k of K: s * (k % 8) + c % s, the next 8 steps SBO apart,
             the next s chunks LBO apart (without a swizzle: the other way round).
The swizzle is then applied to the address bits, so a descriptor may begin inside an atom.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from .geometry import WARP
from .memory import Fail
from .ptx import Instruction
from .ptxtypes import Array
from .tma import CHUNK, swizzled

if TYPE_CHECKING:
    from .machine import Machine
    from .proxy import AsyncProxy

WARPS = 4
ROWS = 64
# Bits 62 and 63 of a descriptor -> span of the swizzle in bytes.
SPAN = (16, 128, 64, 32)
# The swizzles repeat after so many bytes.
PERIOD = 1024


@dataclass(frozen=True)
class Operand:
    """How a matrix lies: rows (M or N), K, bytes of an element, whether MN-major."""

    rows: int
    k: int
    element_bytes: int
    mn_major: bool


@dataclass(frozen=True)
class Descriptor:
    """A matrix descriptor.  start: shared address.  lbo, sbo: bytes.  span: of the swizzle."""

    start: int
    lbo: int
    sbo: int
    span: int
    base_offset: int

    @classmethod
    def of(cls, bits: int) -> Descriptor:
        start, lbo, sbo = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
        return cls(start, lbo, sbo, SPAN[bits >> 62], bits >> 49 & 7)


@lru_cache(256)
def places(operand: Operand, lbo: int, sbo: int, span: int, phase: int) -> tuple[Array, Array]:
    """Byte offsets of the elements [rows, K] from a start address, and of the chunks they fill.

    phase: the start address modulo the period of the swizzles.
    """
    row, k = np.indices((operand.rows, operand.k), np.int64)
    size, chunks = operand.element_bytes, span // CHUNK
    per_chunk = CHUNK // size
    if operand.mn_major:
        chunk, inside = row // per_chunk, row % per_chunk
        far, near = (sbo, lbo) if span == CHUNK else (lbo, sbo)
        offset = chunk // chunks * far + chunk % chunks * CHUNK
        offset += k // 8 * near + k % 8 * span + inside * size
    else:
        chunk, inside = k // per_chunk, k % per_chunk
        step = lbo if span == CHUNK else CHUNK
        offset = row // 8 * sbo + row % 8 * span + chunk * step + inside * size
    found = swizzled(phase + offset, span) - phase
    return found, np.unique(found // CHUNK) * CHUNK


@dataclass(eq=False)
class Product:
    """One instruction of a warpgroup.  op: its form, from the decoder.

    issued: how many of its warps have issued it.  waits: those that have not waited for it.
    chunks: of shared memory it reads, byte indices in the arena.
    """

    op: ProductForm
    descriptors: tuple[int, ...]
    accumulates: bool
    issued: int = 0
    waits: int = WARPS
    chunks: Array = field(default_factory=lambda: np.zeros(0, np.int64))


class ProductForm:
    """The form of an instruction as the decoder tells it; it computes the product."""

    instruction: Instruction
    accumulators: tuple[int, ...]
    inputs: frozenset[int]
    shape: object

    def execute(self, m: Machine, lanes: Array, product: Product, cta: int) -> Array:
        """Compute the product for the lanes [128] of a warpgroup; the chunks that it read."""
        raise NotImplementedError


@dataclass
class _Warp:
    """A warp's side.  issued, waited: products.  groups: how many were issued at each commit."""

    issued: int = 0
    waited: int = 0
    groups: list[int] = field(default_factory=list[int])
    fenced: bool = False
    touched: set[int] = field(default_factory=set[int])


class Warpgroups:
    """The warpgroups of the resident CTAs."""

    def __init__(self, machine: Machine, proxy: AsyncProxy):
        self.machine = machine
        self.proxy = proxy
        self.warps = [_Warp() for _ in range(machine.row_pc.size)]
        # (CTA, warpgroup) -> products that some warp has not waited for, and the first's number.
        self.queues: dict[tuple[int, int], list[Product]] = {}
        self.firsts: dict[tuple[int, int], int] = {}
        # Rows with products under way.
        self.busy = np.zeros(machine.row_pc.size, bool)
        self.waiting: dict[tuple[int, int], set[int]] = {}
        self.row_at = {
            (int(cta), int(warp)): row
            for row, (cta, warp) in enumerate(
                zip(machine.row_cta.tolist(), machine.row_warp.tolist(), strict=True)
            )
        }

    def _key(self, row: int) -> tuple[int, int]:
        return int(self.machine.row_cta[row]), int(self.machine.row_warp[row]) // WARPS

    def _open(self, key: tuple[int, int]) -> tuple[list[Product], int]:
        return self.queues.setdefault(key, []), self.firsts.setdefault(key, 0)

    # What a warp does ---------------------------------------------------------------------

    def fence(self, row: int) -> None:
        """wgmma.fence: registers written so far are known to the products that follow."""
        self.warps[row].fenced = True
        self.warps[row].touched.clear()

    def touch(
        self, low: int, rows: Array, reads: frozenset[int], writes: frozenset[int]
    ) -> int | None:
        """Warps (positions from row `low`) touch registers that products use.

        Returns the position of one that may not, because a product is under way.
        """
        for at in rows.tolist():
            row = low + at
            if self.busy[row] and self._in_flight(row, reads | writes):
                return at
            if writes:
                self.warps[row].touched |= writes
        return None

    def _in_flight(self, row: int, keys: frozenset[int]) -> bool:
        key = self._key(row)
        queue, first = self._open(key)
        warp = self.warps[row]
        for number in range(warp.waited, warp.issued):
            op = queue[number - first].op
            if not keys.isdisjoint(op.accumulators):
                return True
        return False

    def issue(self, row: int, made: Product, fail: Fail) -> None:
        """A warp issues a product: the last of its warpgroup computes it."""
        warp, key = self.warps[row], self._key(row)
        queue, first = self._open(key)
        self._check(row, warp, made, fail)
        at = warp.issued - first
        if at == len(queue):
            queue.append(made)
        product = queue[at]
        same = (product.op, product.descriptors, product.accumulates)
        if same != (made.op, made.descriptors, made.accumulates):
            raise fail("differs between the warps of the warpgroup, or comes in another order", 0)
        product.issued += 1
        warp.issued += 1
        self.busy[row] = True
        if product.issued == WARPS:
            self._execute(key, product)

    def _check(self, row: int, warp: _Warp, made: Product, fail: Fail) -> None:
        if not warp.fenced:
            raise fail("comes with no wgmma.fence before it", 0)
        if warp.touched:
            used = made.op.inputs.union(made.op.accumulators if made.accumulates else ())
            if not warp.touched.isdisjoint(used):
                raise fail("uses registers written since the last wgmma.fence", 0)
        queue, first = self._open(self._key(row))
        for number in range(warp.waited, warp.issued):
            other = queue[number - first].op
            if made.op.inputs and not made.op.inputs.isdisjoint(other.accumulators):
                raise fail("reads an accumulator that is in flight", 0)
            if other.inputs and not other.inputs.isdisjoint(made.op.accumulators):
                raise fail("writes an input of a product that is in flight", 0)
            if other.accumulators != made.op.accumulators or other.shape != made.op.shape:
                if not set(other.accumulators).isdisjoint(made.op.accumulators):
                    raise fail("uses an accumulator in flight in another shape", 0)

    def _execute(self, key: tuple[int, int], product: Product) -> None:
        m = self.machine
        cta, group = key
        rows = [self.row_at[cta, WARPS * group + warp] for warp in range(WARPS)]
        lanes = (np.array(rows)[:, None] * WARP + np.arange(WARP)).reshape(-1)
        product.chunks = product.op.execute(m, lanes, product, cta)
        self.proxy.begin_read(product.chunks, CHUNK)
        m.wake(self.waiting.pop(key, ()))

    def read_ready(self, chunks: Array, cta: int, group: int, fail: Fail) -> None:
        """Check the shared memory that a product reads: ordered, and known to the proxy."""
        self.proxy.require_fenced(chunks, CHUNK, fail)
        races = self.machine.shared.races
        if races is None:
            return
        clocks = cta * races.warps + WARPS * group + np.arange(WARPS)
        readers = np.repeat(clocks, chunks.size)
        races.read(np.tile(chunks, WARPS), CHUNK, readers, fail, by_unit=True)

    def commit(self, row: int) -> None:
        self.warps[row].groups.append(self.warps[row].issued)

    def wait(self, row: int, pending: int) -> bool:
        """A warp waits for all but its newest groups; False: it sleeps till the others come."""
        warp, key = self.warps[row], self._key(row)
        count = len(warp.groups) - pending
        if count <= 0:
            return True
        until = warp.groups[count - 1]
        queue, first = self._open(key)
        if any(queue[n - first].issued < WARPS for n in range(warp.waited, until)):
            self.waiting.setdefault(key, set()).add(row)
            name = self.machine.row_name(row)
            what = f"warp {name} waits for wgmma that not all of its warpgroup have issued"
            self.machine.sleep(row, what)
            return False
        for number in range(warp.waited, until):
            self._waited(row, queue[number - first])
        warp.waited = max(warp.waited, until)
        del warp.groups[:count]
        self.busy[row] = warp.waited < warp.issued
        while queue and queue[0].waits == 0:
            queue.pop(0)
            self.firsts[key] += 1
        return True

    def _waited(self, row: int, product: Product) -> None:
        races = self.machine.shared.races
        if races is not None:
            clocks = np.full(product.chunks.size, self.machine.row_clock[row])
            races.still_reading(product.chunks, CHUNK, clocks)
        product.waits -= 1
        if product.waits == 0:
            self.proxy.end_read(product.chunks, CHUNK)

    def exit(self, instruction: Instruction, rows: Array) -> None:
        """Rows exit: nothing of theirs may be under way."""
        busy = rows[self.busy[rows]]
        if busy.size:
            lane = int(busy[0] - self.machine.low) * WARP
            raise self.machine.fail(instruction, "the warp exits with wgmma in flight", lane)
