"""Bulk copies: TMA tiles, im2col columns and plain runs of bytes, behind the threads' backs.

A load's destination is IN_FLIGHT from its issue until the data arrives, at a time that the seed
decides: at once, some turns later, or only when nobody else can run.  Then its bytes count at
its mbarrier.  For the race detector a load writes at its issue, as its thread; what it brings is
seen by those who wait at the mbarrier.  A store's source may not be written before the wait of
its group; it writes global memory at some time up to the wait without `.read`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .arena import CLEAN, IN_FLIGHT
from .formats import TF32, round_to
from .memory import Fail
from .ptx import Instruction
from .ptxtypes import Array
from .shared import SHARED_BASE
from .tensor_map import EncodedMap

if TYPE_CHECKING:
    from .machine import Machine
    from .mbarrier import Mbarrier, Mbarriers
    from .proxy import AsyncProxy

CHUNK = 16
# Where a tile goes in shared memory: multiples of this.
TILE_ALIGNMENT = 128
# old, new -> what a reducing store leaves; bytes in the element's dtype.
Combine = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Rows:
    """A box in global memory as rows of equal length.

    start: address of each row [k], also of those outside.  inside: which rows are in the
    tensor.  low, high: which bytes of every row are.  nbytes: of a row, as shared memory holds it.
    """

    start: Array
    inside: Array
    low: int
    high: int
    nbytes: int


@dataclass(eq=False)
class Load:
    """A copy to shared memory.  index: of its 16-byte chunks in the arena, in the box's order."""

    rows: Rows
    index: Array
    cta: int
    barrier: Mbarrier
    due: float
    rounds: bool
    fail: Fail


@dataclass(eq=False)
class Store:
    """A copy from shared memory.  reading: its thread has not waited yet for the read to end."""

    rows: Rows
    index: Array
    cta: int
    lane: int
    data: Array
    due: float
    fail: Fail
    combine: Combine | None = None
    reading: bool = True
    written: bool = False


@dataclass
class Groups:
    """A thread's bulk groups: the open one, and those committed, the newest last."""

    open: list[Store] = field(default_factory=list[Store])
    committed: list[list[Store]] = field(default_factory=list[list[Store]])


def due(machine: Machine) -> float:
    """When something asynchronous happens that is issued now, in steps of the machine."""
    rng, now = machine.rng, machine.steps
    kind = rng.random()
    if kind < 0.3:
        return now
    # The late ones wait till nobody can run, or, while somebody spins, for a long time.
    return now + (rng.expovariate(1 / 200) if kind < 0.75 else rng.uniform(2000, 20000))


class BulkCopies:
    """The bulk copies under way of the resident CTAs."""

    def __init__(self, machine: Machine, proxy: AsyncProxy, mbarriers: Mbarriers):
        self.machine = machine
        self.proxy = proxy
        self.mbarriers = mbarriers
        self.loads: list[Load] = []
        self.stores: list[Store] = []
        self.groups: dict[int, Groups] = {}

    # Time ---------------------------------------------------------------------------------

    def progress(self) -> None:
        """Do what is due."""
        now = self.machine.steps
        for load in [load for load in self.loads if load.due <= now]:
            self._arrive(load)
        for store in [store for store in self.stores if store.due <= now]:
            self._write(store)

    def hurry(self) -> bool:
        """Nobody can run: do one of the copies that are late.  False when there are none."""
        if not self.loads:
            return False
        self._arrive(self.loads[self.machine.rng.randrange(len(self.loads))])
        return True

    def finish(self) -> None:
        """The kernel is over."""
        for store in list(self.stores):
            self._write(store)

    def exit(self, instruction: Instruction, cta: int) -> None:
        """A CTA gives its shared memory back: nothing may be using it."""
        if any(load.cta == cta for load in self.loads):
            raise self.machine.fail(
                instruction, "the CTA exits while a bulk load to it is in flight"
            )
        groups = [g for lane, g in self.groups.items() if self.machine.lane_cta[lane] == cta]
        stores = [s for g in groups for part in (g.open, *g.committed) for s in part]
        if any(store.reading for store in stores):
            what = "the CTA exits while a bulk store may still read its shared memory"
            raise self.machine.fail(instruction, what)

    # Loads --------------------------------------------------------------------------------

    def load(
        self,
        instruction: Instruction,
        rows: Rows,
        index: Array,
        cta: int,
        barrier: Mbarrier,
        lane: int,
        rounds: bool,
        fail: Fail,
    ) -> None:
        """Issue a load by thread `lane` into the chunks `index` of a CTA."""
        if not barrier.fenced:
            raise fail("counts at an mbarrier that no fence.mbarrier_init made known", 0)
        shared = self.machine.shared
        self.proxy.refuse_read(index, CHUNK, fail)
        self.proxy.require_fenced(index, CHUNK, fail)
        shared.refuse_in_flight(index, CHUNK, fail)
        if shared.races is not None:
            row = int(self.machine.lane_clock[lane])
            shared.races.copy(index, CHUNK, row, cta, fail)
        shared.arena.set_states(index, CHUNK, IN_FLIGHT)
        self._check_rows(rows, fail)
        if self.machine.global_races is not None and (starts := _starts(rows)).size:
            row = int(self.machine.lane_clock[lane])
            self.machine.global_races.copy_from(starts, rows.high - rows.low, row, fail)
        self.machine.events += 1
        late = self._late(instruction)
        self.loads.append(Load(rows, index, cta, barrier, due(self.machine), rounds, late))

    def _late(self, instruction: Instruction) -> Fail:
        """For what goes wrong after the issue, when other threads are running."""
        return lambda reason, _: self.machine.fail(instruction, f"its data {reason}")

    def _check_rows(self, rows: Rows, fail: Fail) -> None:
        """A bad place in global memory shows at the instruction."""
        if rows.high > rows.low and np.count_nonzero(rows.inside):
            starts = rows.start[rows.inside] + rows.low
            self.machine.memory.check_rows(starts, rows.high - rows.low, fail)

    def _fetch(self, rows: Rows, fail: Fail) -> tuple[Array, Array | None]:
        """Bytes [rows, nbytes] of a box, zeros outside the tensor, and their states."""
        out = np.zeros((rows.start.size, rows.nbytes), np.uint8)
        if rows.high <= rows.low or not np.count_nonzero(rows.inside):
            return out, None
        starts = rows.start[rows.inside] + rows.low
        data, states = self.machine.memory.gather(starts, rows.high - rows.low, fail)
        out[rows.inside, rows.low : rows.high] = data
        if states is None:
            return out, None
        bad = np.zeros_like(out)
        bad[rows.inside, rows.low : rows.high] = states
        return out, bad

    def _arrive(self, load: Load) -> None:
        """The data is there."""
        machine = self.machine
        self.loads.remove(load)
        data, states = self._fetch(load.rows, load.fail)
        if load.rounds:
            values = data.view(np.float32).astype(np.float64)
            data = round_to(values, TF32).astype(np.float32).view(np.uint8)
        flat = None if states is None else states.reshape(-1, CHUNK)
        machine.shared.arena.store(load.index, CHUNK, data.reshape(-1, CHUNK), flat)
        self.proxy.arrived(load.index, CHUNK)
        races, clock = machine.shared.races, None
        if races is not None:
            clock = races.arrive_copy(load.index, CHUNK, load.cta)
        self.mbarriers.complete_bytes(load.barrier, data.size, clock, load.fail)

    # Stores -------------------------------------------------------------------------------

    def store(
        self,
        instruction: Instruction,
        rows: Rows,
        index: Array,
        cta: int,
        lane: int,
        fail: Fail,
        combine: Combine | None = None,
    ) -> None:
        """Issue a store by thread `lane` of the chunks `index`."""
        machine = self.machine
        races = machine.shared.races
        if races is not None:
            readers = np.full(index.size, machine.lane_clock[lane])
            races.read(index, CHUNK, readers, fail, by_unit=True)
        self.proxy.require_fenced(index, CHUNK, fail)
        self.proxy.begin_read(index, CHUNK)
        data, states = machine.shared.arena.load(index, CHUNK, 0, CHUNK)
        data = data.reshape(-1, rows.nbytes).copy()
        if states is not None:
            bad = states.reshape(-1, rows.nbytes)[rows.inside, rows.low : rows.high] != CLEAN
            if np.count_nonzero(bad):
                raise fail("is stored to global memory, but holds poison", 0)
        self._check_rows(rows, fail)
        if machine.global_races is not None and (starts := _starts(rows)).size:
            row, adds = int(machine.lane_clock[lane]), combine is not None
            machine.global_races.copy_to(starts, rows.high - rows.low, row, fail, adds)
        late = self._late(instruction)
        made = Store(rows, index, cta, lane, data, due(self.machine), late, combine)
        self.groups.setdefault(lane, Groups()).open.append(made)
        self.stores.append(made)

    def _write(self, store: Store) -> None:
        """Put a store's bytes into global memory."""
        self.stores.remove(store)
        store.written = True
        rows = store.rows
        if rows.high <= rows.low or not np.count_nonzero(rows.inside):
            return
        starts = rows.start[rows.inside] + rows.low
        data = store.data[rows.inside, rows.low : rows.high]
        memory = self.machine.memory
        if store.combine is not None:
            old, states = memory.gather(starts, rows.high - rows.low, store.fail)
            if states is not None:
                raise store.fail("is added to global memory that was never written", 0)
            data = store.combine(old, data)
        memory.scatter(starts, data, store.fail)

    def commit(self, lane: int) -> None:
        """A thread closes its open group."""
        groups = self.groups.setdefault(lane, Groups())
        groups.committed.append(groups.open)
        groups.open = []

    def wait(self, lane: int, pending: int, only_read: bool) -> None:
        """A thread waits until at most `pending` of its newest groups are under way."""
        groups = self.groups.get(lane)
        if groups is None:
            return
        count = max(len(groups.committed) - pending, 0)
        for store in [store for group in groups.committed[:count] for store in group]:
            if store.reading:
                self._end_read(store)
            if not only_read:
                self._finish(store)
        if not only_read:
            del groups.committed[:count]

    def _finish(self, store: Store) -> None:
        """Its thread has waited for all of a store."""
        if not store.written:
            self._write(store)
        writes, rows = self.machine.global_races, store.rows
        if writes is not None and (starts := _starts(rows)).size:
            row = int(self.machine.lane_clock[store.lane])
            writes.copied(starts, rows.high - rows.low, row)

    def _end_read(self, store: Store) -> None:
        store.reading = False
        self.proxy.end_read(store.index, CHUNK)
        races = self.machine.shared.races
        if races is not None:
            row = np.full(store.index.size, self.machine.lane_clock[store.lane])
            races.still_reading(store.index, CHUNK, row)


def _starts(rows: Rows) -> Array:
    """Addresses of the bytes that are copied, row by row; of those inside the tensor."""
    if rows.high <= rows.low:
        return rows.start[:0]
    return rows.start[rows.inside] + rows.low


# Boxes ------------------------------------------------------------------------------------


def tile_rows(tensor: EncodedMap, coordinates: list[int]) -> Rows:
    """The rows of a tile whose first element has these coordinates, innermost first."""
    shape = tensor.box[:0:-1]
    grids = np.indices(shape, np.int64).reshape(len(shape), -1)[::-1]
    start = np.full(int(np.prod(shape, dtype=np.int64)), tensor.address, np.int64)
    inside = np.ones(start.size, bool)
    for axis in range(1, tensor.rank):
        at = grids[axis - 1] + coordinates[axis]
        inside &= (at >= 0) & (at < tensor.dims[axis])
        start += at * tensor.strides[axis - 1]
    return _rows(tensor, start, inside, coordinates[0], tensor.box[0])


def column_rows(tensor: EncodedMap, coordinates: list[int], offsets: list[int]) -> Rows:
    """The rows, one a pixel, of an im2col column: pixels walk the bounding box, w fastest."""
    channels, pixels = tensor.box
    at = list(coordinates[1:])
    spatial = tensor.rank - 2
    places = np.zeros((pixels, spatial + 1), np.int64)
    for pixel in range(pixels):
        places[pixel] = at
        for axis in range(spatial):
            at[axis] += tensor.element_strides[axis + 1]
            if at[axis] <= tensor.dims[axis + 1] - 1 + tensor.upper[axis]:
                break
            at[axis] = tensor.lower[axis]
        else:
            at[spatial] += 1
    places[:, :spatial] += offsets
    start = tensor.address + places @ np.array(tensor.strides, np.int64)
    inside = np.all((places >= 0) & (places < np.array(tensor.dims[1:])), axis=1)
    return _rows(tensor, start, inside, coordinates[0], channels)


def _rows(tensor: EncodedMap, start: Array, inside: Array, first: int, count: int) -> Rows:
    size = tensor.element_bytes
    low, high = max(0, -first), min(count, tensor.dims[0] - first)
    return Rows(start + first * size, inside, low * size, high * size, count * size)


def chunk_addresses(first: int, count: int, swizzle_bytes: int) -> Array:
    """Shared addresses of `count` chunks in a row from `first` on, as the swizzle scatters them.

    The swizzle is on address bits: those from 4 up are mixed with those from 7 up, one bit for
    32 bytes, two for 64, three for 128.
    """
    linear = first + CHUNK * np.arange(count, dtype=np.int64)
    return swizzled(linear, swizzle_bytes)


def swizzled(address: Array, swizzle_bytes: int) -> Array:
    """Where the byte of an unswizzled shared address lies."""
    return address ^ ((address >> 3) & (swizzle_bytes - CHUNK))


def run_of_bytes(address: int, nbytes: int) -> Rows:
    """A plain run of global bytes as one row."""
    return Rows(np.array([address], np.int64), np.ones(1, bool), 0, nbytes, nbytes)


def window_index(machine: Machine, address: Array, cta: int, fail: Fail) -> Array:
    """Byte indices in the arena of a CTA's chunks."""
    relative = address - SHARED_BASE
    if int(relative.min()) < 0 or int(relative.max()) + CHUNK > machine.smem_bytes:
        raise fail(f"begins a box outside the {machine.smem_bytes} bytes of shared memory", 0)
    return relative + cta * machine.shared.stride
