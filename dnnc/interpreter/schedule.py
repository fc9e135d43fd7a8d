"""Which warps run when.

At each turn a random runnable warp is picked, and with it a gang of others that stand at the
same pc, of the same CTA and of others.  The gang runs as arrays until its warps part, until one
must wait, or until its quantum of segments is used up.  How gangs are chosen is the launch's
*style*, drawn from the seed: together, all warps move as one and the slowest come first; apart,
gangs are small and change often; cta by cta, one CTA runs as far as it can before another does.

Waiting lanes of a warp meet the others at the lowest pc: a warp always runs the lanes that are
furthest behind.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from .decode import LANES, OWN, PRED, Step
from .failure import failure
from .geometry import WARP
from .machine import EXITED, LEAVE, Machine
from .ptxtypes import Array


@dataclass(frozen=True)
class Style:
    """quantum: mean segments of a gang's turn.  together: chance that a gang takes every warp it
    can.  slowest: chance that the turn goes to the lowest pc.  same_cta: keep to one CTA."""

    name: str
    quantum: int
    together: float
    slowest: float
    same_cta: bool = False


TOGETHER = Style("together", 500, 1.0, 0.8)
APART = Style("apart", 16, 0.3, 0.1)
CTA_BY_CTA = Style("cta by cta", 100, 0.8, 0.3, same_cta=True)

# Above this many warps small gangs would take too long.
_MANY_WARPS = 256


def choose_style(rng: random.Random, warps: int) -> Style:
    """The style of a launch with this many warps."""
    if warps > _MANY_WARPS:
        return TOGETHER
    return rng.choices((TOGETHER, APART, CTA_BY_CTA), (4, 4, 2))[0]


class Scheduler:
    """Runs a machine to its end.  step_limit: instructions, each counted once a gang."""

    def __init__(self, machine: Machine, style: Style, step_limit: int):
        self.machine = machine
        self.style = style
        self.step_limit = step_limit
        self.rng = machine.rng
        self.turns = 0
        self.cta = -1
        # The rows whose turn ended because its time was up: they may be spinning.
        self.spent: Array | None = None

    def run(self) -> None:
        m = self.machine
        while True:
            if m.hopper is not None:
                m.hopper.progress()
            ready = np.flatnonzero(~m.blocked & (m.row_pc != EXITED))
            if ready.size == 0:
                if np.count_nonzero(m.blocked) and m.unstick():
                    continue
                break
            self.turns += 1
            if self.spent is not None:
                # Whoever they wait for must come to its turn first.
                others = ready[~self.spent[ready]]
                ready = others if others.size else ready
                self.spent = None
            self._run_gang(self._form_gang(ready))
        if np.count_nonzero(m.blocked):
            where = f"kernel {m.program.name!r}"
            raise failure(f"deadlock: {'; '.join(self._waits())}", where)
        if m.hopper is not None:
            m.hopper.bulk.finish()

    def _waits(self) -> list[str]:
        """The events that the blocked rows wait for, the first of them."""
        m = self.machine
        # Those at mbarriers say more than those who wait for them.
        rows = sorted(m.asleep, key=lambda row: row not in m.patient)
        asleep = [m.asleep[row] for row in rows[:4]]
        at_barriers = m.barriers.describe()
        return [*asleep, at_barriers] if at_barriers or not asleep else asleep

    # Gangs --------------------------------------------------------------------------------

    def _form_gang(self, ready: Array) -> int:
        """Choose the next gang among these rows; returns its pc."""
        m, style, rng = self.machine, self.style, self.rng
        if style.same_cta:
            same = ready[m.row_cta[ready] == self.cta]
            if same.size == 0 or rng.random() < 0.1:
                self.cta = int(m.row_cta[ready[rng.randrange(ready.size)]])
                same = ready[m.row_cta[ready] == self.cta]
            ready = same
        pcs = m.row_pc[ready]
        if rng.random() < style.slowest:
            first = int(pcs.argmin())
        else:
            first = rng.randrange(ready.size)
        pc = int(pcs[first])
        rows = ready[pcs == pc]
        if rows.size > 1 and rng.random() >= style.together:
            kept = m.numpy_rng.random(rows.size) < rng.random()
            kept[np.searchsorted(rows, ready[first])] = True
            rows = rows[kept]
        self._set_gang(rows, int(ready[first]), pc)
        return pc

    def _set_gang(self, rows: Array, first: int, pc: int) -> None:
        """Make these rows the gang, or, where they lie too far apart, the neighbours of `first`."""
        m = self.machine
        low, high = int(rows[0]), int(rows[-1]) + 1
        if rows.size * 2 < high - low:
            at = int(np.searchsorted(rows, first))
            run = np.flatnonzero(np.diff(rows) != 1) + 1
            begin = int(run[run <= at][-1]) if np.count_nonzero(run <= at) else 0
            end = int(run[run > at][0]) if np.count_nonzero(run > at) else rows.size
            rows = rows[begin:end]
            low, high = int(rows[0]), int(rows[-1]) + 1
        m.low, m.high = low, high
        m.lanes = slice(low * WARP, high * WARP)
        m.members = None
        if rows.size != high - low:
            m.members = np.zeros(high - low, bool)
            m.members[rows - low] = True
        self._set_mask(m.lane_pc[m.lanes].reshape(-1, WARP), pc)

    def _set_mask(self, pcs: Array, pc: int) -> None:
        """Activate the members' lanes that stand at pc."""
        m = self.machine
        mask = pcs == pc
        if m.members is not None:
            mask &= m.members[:, None]
        m.mask = None if np.count_nonzero(mask) == mask.size else mask.reshape(-1)

    # Running ------------------------------------------------------------------------------

    def _run_gang(self, pc: int) -> None:
        m = self.machine
        program = m.program
        stops, controls, leaders = program.flow.stops, program.flow.controls, program.flow.leaders
        budget = 1 + int(self.rng.expovariate(1.0 / self.style.quantum))
        while True:
            stop = stops[pc]
            if m.shadow and not m.shadow.keys().isdisjoint(program.touched(pc)):
                self._run_poisoned(pc, stop)
            else:
                for run in program.segment(pc):
                    run(m)
            m.steps += stop - pc + 1
            if m.steps > self.step_limit:
                where = f"kernel {program.name!r}"
                text = program.steps[pc].instruction
                raise failure(
                    f"more than {self.step_limit} steps (livelock?), now at line {text.line} "
                    f"`{text.text}`",
                    where,
                )
            if m.mask is not None and stop != pc and stop in leaders:
                # Lanes may be waiting here for those that come from above.
                pc = m.go(stop)
            elif (control := controls.get(stop)) is not None:
                pc = control(m, stop)
            else:
                pc = stop
            if pc == LEAVE:
                self._leave()
                return
            budget -= 1
            if budget <= 0:
                self._park(pc)
                return

    def _park(self, pc: int) -> None:
        """Stop where the gang is, its time being up."""
        m = self.machine
        m.send(pc)
        spent = np.zeros(m.row_pc.size, bool)
        spent[m.low : m.high] = True if m.members is None else m.members
        self.spent = spent
        self._leave()

    def _leave(self) -> None:
        """Note where the gang's rows stand."""
        m = self.machine
        m.row_pc[m.low : m.high] = m.lane_pc[m.lanes].reshape(-1, WARP).min(axis=1)

    # Poison -------------------------------------------------------------------------------

    def _run_poisoned(self, pc: int, stop: int) -> None:
        """A segment that touches registers which are poisoned in some lanes."""
        m = self.machine
        steps, touches, checks = m.program.steps, m.program.touches, m.program.checks
        for at in range(pc, stop):
            if (check := checks.get(at)) is not None:
                check(m)
            step, keys = steps[at], touches[at]
            if m.shadow.keys().isdisjoint(keys) or (step.poison is not OWN and m.is_clean(keys)):
                step.run(m)
            else:
                run_poisoned(m, step)


def run_poisoned(m: Machine, step: Step) -> None:
    """Execute a step that touches poisoned registers, and say what it poisons in turn."""
    outer = m.mask
    if step.guard is not None:
        slot, negated = step.guard
        m.require_clean(step.instruction, slot, "the guard predicate")
        allowed = m.views[PRED.code][slot.number][m.lanes] != negated
        mask = allowed if outer is None else allowed & outer
        if not np.count_nonzero(mask):
            return
        m.mask = None if outer is None and np.count_nonzero(mask) == mask.size else mask
    for slot in step.strict:
        m.require_clean(step.instruction, slot, "an address or an operand that must be known")
    if step.poison is OWN:
        step.body(m)
    else:
        if step.poison is LANES:
            bits = _lanes_poisoned(m, step)
            shadows = [bits] * len(step.writes)
        else:
            assert callable(step.poison)
            shadows = step.poison(m)
        step.body(m)
        for slot, bits in zip(step.writes, shadows, strict=True):
            m.set_shadow(slot, all_ones(bits, slot.width) if step.poison is LANES else bits)
    m.mask = outer


def _lanes_poisoned(m: Machine, step: Step) -> Array | None:
    """Lanes of the gang where any register read is poisoned, at all bits of its outputs."""
    found: Array | None = None
    for slot in step.reads:
        bits = m.shadow_of(slot)
        if bits is not None:
            bad = bits != 0
            found = bad if found is None else found | bad
    return found


def all_ones(bad: Array | None, width: int) -> Array | None:
    """Lanes (bool) as shadows of a register of this width."""
    if bad is None or width == 1:
        return bad
    return np.where(bad, np.array(-1).astype(f"uint{width}"), np.array(0, f"uint{width}"))
