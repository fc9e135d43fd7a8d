"""Times candidates side by side, and lets those that are clearly slower go early."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import DnncError

# Launches a given number of times: seconds a launch.
Run = Callable[[int], float]
Report = Callable[[int, int], object]

_MOST_CALLS = 512


@dataclass
class Timed:
    """The times that were seen of one candidate.

    rounds: seconds of an execution in each round.  error: why it has none, "" if it has.
    is_stopped: it was clearly slower, and has fewer rounds than others.
    """

    rounds: list[float] = field(default_factory=list[float])
    error: str = ""
    is_stopped: bool = False

    @property
    def seconds(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds)


@dataclass(frozen=True)
class Rules:
    """How candidates are timed.

    rounds: of those that stay.  warm_calls: before the first.  round_seconds: about how long a
    round of one candidate takes.  give_up: a candidate whose fastest round takes so many times
    the fastest candidate's is stopped (after one round: 1.5 times, or more if so given).
    """

    rounds: int = 7
    warm_calls: int = 3
    round_seconds: float = 2e-3
    give_up: float = 1.15


def race(
    runs: Sequence[Run | DnncError],
    rules: Rules = Rules(),
    report: Report = lambda done, count: None,
) -> list[Timed]:
    """The times that were seen of each candidate, in their order.

    runs: of each, or the error that kept it from running.  The order turns round in every round,
    so that a device that gets slower or faster is so for all.  A run that raises a DnncError is
    out of the race.  report: called with (rounds that are done or will not be run, all of them).
    """
    found = [Timed(error=str(run) if isinstance(run, DnncError) else "") for run in runs]
    entrants = [_Entrant(run, t) for run, t in zip(runs, found, strict=True) if callable(run)]
    live = [entrant for entrant in entrants if entrant.warms_up(rules)]
    for number in range(rules.rounds):
        for entrant in live if number % 2 == 0 else reversed(live):
            entrant.runs_once()
        live = _left(live, rules.give_up if number else max(1.5, rules.give_up))
        report((number + 1) * len(found), rules.rounds * len(found))
        if not live:
            break
    return found


class _Entrant:
    """A candidate that runs."""

    def __init__(self, run: Run, timed: Timed):
        self.run, self.timed, self.calls = run, timed, 1
        self.least = 0.0  # of all its rounds and the warming up: one slow round is no reason

    def warms_up(self, rules: Rules) -> bool:
        """Runs it a few times, and finds how many calls make a round; False if it fails."""
        try:
            self.run(1)
            self.least = self.run(rules.warm_calls)
        except DnncError as error:
            self.timed.error = str(error)
            return False
        if not (0.0 < self.least < math.inf):
            self.timed.error = f"the timer gave {self.least} s"
            return False
        calls = round(rules.round_seconds / max(self.least, 1e-9))
        self.calls = max(1, min(_MOST_CALLS, calls))
        return True

    def runs_once(self) -> None:
        try:
            self.timed.rounds.append(self.run(self.calls))
            self.least = min(self.least, self.timed.rounds[-1])
        except DnncError as error:
            self.timed.error = str(error)
            self.timed.rounds.clear()


def _left(live: Sequence[_Entrant], give_up: float) -> list[_Entrant]:
    """The entrants that are not clearly slower than the fastest."""
    running = [entrant for entrant in live if not entrant.timed.error]
    best = min((entrant.least for entrant in running), default=0.0)
    for entrant in running:
        entrant.timed.is_stopped = entrant.least > give_up * best
    return [entrant for entrant in running if not entrant.timed.is_stopped]
