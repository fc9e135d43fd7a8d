"""The state of the resident CTAs, and what the closures of instructions see of it.

A *row* is a warp; rows of one gang are neighbours, so that a gang's registers are slices.  A
*gang* is the rows that execute together: all stand at one pc, and `mask` says which of their
lanes do.  Lanes of a row that stand elsewhere wait until the lowest pc has come up to theirs.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np

from .arena import Arena
from .barriers import Barriers
from .copies import AsyncCopies
from .decode import Slot
from .failure import InterpreterError, failure
from .geometry import WARP, Geometry, special_register
from .global_races import GlobalRaces
from .hopper import Hopper
from .memory import Fail, Memory
from .program import Program
from .ptx import Instruction
from .ptxtypes import UNSIGNED_OF_WIDTH, VIEWS, Array
from .shared import SHARED_BASE, PrivateMemory, SharedMemory

# A lane's pc once it has exited.
EXITED = np.iinfo(np.int32).max
# Returned by a control: the gang's rows no longer share a pc, or must wait.
LEAVE = -1


class Machine:
    """Registers, memories and program counters of a batch of CTAs.

    ctas: linear numbers of the batch's CTAs.  by_cta: rows of one CTA are neighbours; otherwise
    equal warps of all CTAs are.  global_races: of the launch, if global memory is watched.
    """

    def __init__(
        self,
        program: Program,
        geometry: Geometry,
        memory: Memory,
        symbols: dict[str, int],
        params: Arena,
        dynamic_smem_bytes: int,
        ctas: Sequence[int],
        by_cta: bool,
        rng: random.Random,
        global_races: GlobalRaces | None = None,
    ):
        self.program = program
        self.geometry = geometry
        self.memory = memory
        self.symbols = symbols
        self.params = params
        self.rng = rng
        self.numpy_rng = np.random.default_rng(rng.getrandbits(64))
        self.steps = 0
        warps = geometry.warps
        count = len(ctas)
        self._place_rows(np.asarray(ctas), warps, by_cta)
        self._make_registers()
        layout = program.layout
        self.dynamic_smem_bytes = dynamic_smem_bytes
        self.smem_bytes = layout.static_smem_bytes
        if layout.dynamic_smem_base is not None:
            self.smem_bytes = layout.dynamic_smem_base + dynamic_smem_bytes
        self.cluster_ctas = geometry.cluster_ctas
        self.shared = SharedMemory(
            count,
            warps,
            self.smem_bytes,
            program.needs.granule,
            self.cluster_ctas,
            program.needs.asynchronous,
            None if global_races is None else global_races.columns,
        )
        self.global_races = global_races
        if global_races is not None and self.shared.races is not None:
            global_races.seat(ctas, self.shared.races)
        self.private = PrivateMemory(self.lane_count, layout.frame_bytes)
        self.barriers = Barriers(count, warps, self.shared.races)
        self.copies = AsyncCopies(self) if program.needs.copies else None
        # Rows that sleep -> what for.  Those in `patient` may be told that their time is up.
        self.asleep: dict[int, str] = {}
        self.patient: set[int] = set()
        self.timed_out: set[int] = set()
        # Counts what others may be waiting for.
        self.events = 0
        self.events_at_timeout = -1
        self.hopper = Hopper(self) if program.needs.asynchronous else None
        # The gang.
        self.low = 0
        self.high = 0
        self.lanes = slice(0, 0)
        self.mask: Array | None = None
        self.members: Array | None = None

    def _place_rows(self, ctas: Array, warps: int, by_cta: bool) -> None:
        count = len(ctas)
        row = np.arange(count * warps)
        self.row_cta, self.row_warp = (
            (row // warps, row % warps) if by_cta else (row % count, row // count)
        )
        self.row_clock = self.row_cta * warps + self.row_warp
        self.row_of_clock = np.argsort(self.row_clock)
        self.lane_count = row.size * WARP
        self.lane_cta = np.repeat(self.row_cta, WARP)
        self.lane_clock = np.repeat(self.row_clock, WARP)
        self.lane_thread = (self.row_warp[:, None] * WARP + np.arange(WARP)).reshape(-1)
        self.lane_grid_cta = ctas[self.lane_cta]
        self.lane_pc = np.where(self.lane_thread < self.geometry.threads, 0, EXITED).astype(
            np.int32
        )
        self.row_pc = self.lane_pc.reshape(-1, WARP).min(axis=1)
        self.blocked = np.zeros(row.size, bool)
        self._specials: dict[str, Array] = {}

    def _make_registers(self) -> None:
        blocks = self.blocks = {
            width: np.zeros((count, self.lane_count), UNSIGNED_OF_WIDTH[width])
            for width, count in self.program.layout.registers.items()
        }
        self.views: list[list[Array]] = []
        for code, dtype in enumerate(VIEWS):
            used = code in self.program.needs.codes
            width = 1 if dtype.kind == "b" else 8 * dtype.itemsize
            self.views.append(list(blocks[width].view(dtype)) if used else [])
        # Poison of registers: set bits are poisoned.  A register without an entry is clean.
        self.shadow: dict[int, Array] = {}
        for slot in self.program.needs.unwritten:
            width = min(slot.width, 64)
            ones = np.zeros(self.lane_count, UNSIGNED_OF_WIDTH[width])
            self.shadow[slot.key] = ~ones

    # What instructions ask ----------------------------------------------------------------

    def special(self, name: str) -> Array:
        """A special register of every lane of the batch."""
        found = self._specials.get(name)
        if found is None:
            found = self._specials[name] = special_register(
                name,
                self.geometry,
                self.lane_grid_cta,
                self.lane_thread,
                (self.dynamic_smem_bytes, SHARED_BASE + self.smem_bytes),
            )
        return found

    def active(self) -> Array | None:
        """Positions in the gang of the active lanes; None when all are."""
        return None if self.mask is None else np.flatnonzero(self.mask)

    def at(self, values: Array, active: Array | None) -> Array:
        """Values of the active lanes; a single value is repeated."""
        if values.size == 1:
            count = self.lanes.stop - self.lanes.start if active is None else active.size
            return np.full(count, values[0])
        return values if active is None else values.take(active)

    def put(self, slot: Slot, code: int, values: Array, active: Array | None) -> None:
        """Set a register in the active lanes: values are one for each of them."""
        out = self.views[code][slot.number][self.lanes]
        if active is None:
            out[...] = values
        else:
            out[active] = values

    def warp_lanes(self, values: Array) -> Array:
        """Values of the gang's lanes as [rows, 32]."""
        if values.size == 1:
            return np.full((self.high - self.low, WARP), values[0])
        return values.reshape(-1, WARP)

    def active_lanes(self) -> Array:
        """Which lanes of the gang are active, [rows, 32]."""
        if self.mask is None:
            return np.ones((self.high - self.low, WARP), bool)
        return self.mask.reshape(-1, WARP)

    def live_lanes(self) -> Array:
        """Which lanes of the gang have not exited, [rows, 32]."""
        return np.not_equal(self.lane_pc[self.lanes], EXITED).reshape(-1, WARP)

    def converged_rows(self, instruction: Instruction) -> Array:
        """Rows [n] with active lanes; an error unless all their living lanes are active."""
        active = self.active_lanes()
        rows = np.any(active, axis=1)
        missing = self.live_lanes() & ~active & rows[:, None]
        if np.count_nonzero(missing):
            lane = int(missing.reshape(-1).argmax())
            raise self.fail(instruction, "needs the whole warp, but this lane is elsewhere", lane)
        return rows

    def full_rows(self, instruction: Instruction) -> tuple[Array, Array | None]:
        """Rows of the gang with active lanes, and their lanes (None: all of the gang).

        An error unless all 32 lanes of them are active, as matrix instructions need.
        """
        if self.mask is None:
            return np.arange(self.high - self.low), None
        active = self.mask.reshape(-1, WARP)
        rows = np.any(active, axis=1)
        missing = ~active & rows[:, None]
        if np.count_nonzero(missing):
            lane = int(missing.reshape(-1).argmax())
            raise self.fail(instruction, "needs all 32 lanes, but this one is not here", lane)
        return np.flatnonzero(rows), np.flatnonzero(self.mask)

    # Poison -------------------------------------------------------------------------------

    def shadow_of(self, slot: Slot) -> Array | None:
        """Poisoned bits of a register in the gang's lanes, None when it is clean."""
        found = self.shadow.get(slot.key)
        return None if found is None else found[self.lanes]

    def is_clean(self, keys: Iterable[int]) -> bool:
        """Whether none of these registers is poisoned in the gang's lanes; in others' it may be."""
        for key in keys:
            found = self.shadow.get(key)
            if found is not None and np.count_nonzero(found[self.lanes]):
                return False
        return True

    def set_shadow(self, slot: Slot, bits: Array | None) -> None:
        """Set a register's poisoned bits (one value a lane of the gang) in the active lanes."""
        found = self.shadow.get(slot.key)
        if found is None:
            if bits is None:
                return
            found = np.zeros(self.lane_count, UNSIGNED_OF_WIDTH[slot.width])
        out = found[self.lanes]
        value = 0 if bits is None else bits
        if self.mask is None:
            out[...] = value
        else:
            np.copyto(out, value, where=self.mask, casting="unsafe")
        if np.count_nonzero(found):
            self.shadow[slot.key] = found
        else:
            self.shadow.pop(slot.key, None)

    def put_shadow(self, slot: Slot, bits: Array | None, active: Array | None) -> None:
        """Set a register's poisoned bits, given one value for each active lane."""
        if bits is None:
            if slot.key in self.shadow:
                self.set_shadow(slot, None)
            return
        spread = np.zeros(self.lanes.stop - self.lanes.start, bits.dtype)
        spread[slice(None) if active is None else active] = bits
        self.set_shadow(slot, spread)

    def require_clean(self, instruction: Instruction, slot: Slot, role: str) -> None:
        """Fail where a register that must not be poisoned is, in an active lane."""
        bits = self.shadow_of(slot)
        if bits is None:
            return
        bad = bits != 0
        if self.mask is not None:
            bad = bad & self.mask
        if np.count_nonzero(bad):
            raise self.fail(instruction, f"poison reaches {role}", int(bad.argmax()))

    # Errors -------------------------------------------------------------------------------

    def fail(
        self, instruction: Instruction, what: str, lane: int | None = None
    ) -> InterpreterError:
        """An error that names the instruction, and the lane (a position in the gang)."""
        where = f"kernel {self.program.name!r}, PTX line {instruction.line}"
        if lane is not None:
            number = self.lanes.start + lane
            cta = self.geometry.coordinates(int(self.lane_grid_cta[number]))
            warp = int(self.row_warp[number // WARP])
            where += f", CTA {cta} warp {warp} lane {number % WARP}"
        return failure(f"`{instruction.text}`: {what}", where)

    def failing(self, instruction: Instruction, address: Array, active: Array | None) -> Fail:
        """The `Fail` of an access by the active lanes to these addresses."""

        def fail(reason: str, position: int) -> InterpreterError:
            lane = position if active is None else int(active[position])
            return self.fail(instruction, f"address 0x{int(address[position]):x} {reason}", lane)

        return fail

    # Sleeping -----------------------------------------------------------------------------

    def row_name(self, row: int) -> str:
        """A row for people: `1 of CTA (0, 0, 0)`."""
        cta = self.geometry.coordinates(int(self.lane_grid_cta[row * WARP]))
        return f"{int(self.row_warp[row])} of CTA {cta}"

    def sleep(self, row: int, why: str, times_out: bool = False) -> None:
        """A row waits for others.  times_out: its instruction may give up by itself."""
        self.blocked[row] = True
        self.asleep[row] = why
        if times_out:
            self.patient.add(row)

    def wake(self, rows: Iterable[int]) -> None:
        """Let sleeping rows look again; others are left alone."""
        for row in rows:
            if self.asleep.pop(row, None) is not None:
                self.blocked[row] = False
                self.patient.discard(row)

    def unstick(self) -> bool:
        """Nobody can run: let a late copy arrive, or waits time out.  False: it's a deadlock."""
        if self.hopper is not None and self.hopper.hurry():
            return True
        if not self.patient or self.events == self.events_at_timeout:
            return False
        self.events_at_timeout = self.events
        self.timed_out |= self.patient
        self.wake(list(self.patient))
        return True

    # Program counters ---------------------------------------------------------------------

    def send(self, pc: int | Array, lanes: Array | None = None) -> None:
        """Put the active lanes, or these (bool, of the gang), at pc (one, or one a lane)."""
        out = self.lane_pc[self.lanes]
        where = self.mask if lanes is None else lanes
        if where is None:
            out[...] = pc
        else:
            np.copyto(out, pc, where=where, casting="unsafe")

    def go(self, pc: int) -> int:
        """Send the active lanes to pc; returns the gang's next pc, or LEAVE (see `meet`)."""
        if self.mask is None:
            return pc
        self.send(pc)
        return self.meet()

    def meet(self) -> int:
        """The gang's next pc: the lowest of each row's lanes, if that is one for all rows.

        Sets the mask to the lanes that stand there.  LEAVE where rows differ, or have exited.
        """
        pcs = self.lane_pc[self.lanes].reshape(-1, WARP)
        low = np.minimum.reduce(pcs, axis=1)
        ours = low if self.members is None else low[self.members]
        pc = int(ours[0])
        if pc == EXITED or np.count_nonzero(ours != pc):
            return LEAVE
        mask = pcs == pc
        if self.members is not None:
            mask &= self.members[:, None]
        self.mask = None if np.count_nonzero(mask) == mask.size else mask.reshape(-1)
        return pc
