"""Times plans of candidates with a timer, at each set of sizes: needs no compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..dialect.graph import OperationGraph
from ..errors import DnncError
from ..plan.plan import Plan
from ..progress import Report, silent
from ..record import Record
from .candidates import Candidate, Sizes
from .race import Rules, Run, race
from .results import Row, Tuned, entry_of, ranked
from .timer import Timer


def measured(
    graph: OperationGraph,
    target: str,
    every: Sequence[Candidate],
    plans: Sequence[Plan | DnncError],
    sizes: Sequence[Sizes],
    timer: Timer,
    rules: Rules,
    record: Record,
    tools: Mapping[str, str],
    report: Report = silent,
) -> Tuned:
    """Times what was compiled, at each set of sizes the candidates that were ranked for it.

    Sizes at which no candidate runs are an error.
    """
    rows: list[Row] = []
    for place, values in enumerate(sizes):
        chosen = [i for i, candidate in enumerate(every) if place in candidate.predicted]
        runs = [_loaded(plans[i], values, timer) for i in chosen]

        def said(done: int, count: int, values: Sizes = values) -> None:
            text = " ".join(f"{name}={size}" for name, size in values.items())
            report(f"timing {text}".strip(), done, count)

        found = race(runs, rules, said)
        rows += ranked(
            [
                Row(every[i], values, every[i].predicted[place], timed)
                for i, timed in zip(chosen, found, strict=True)
            ]
        )
    firsts = [next(row for row in rows if row.sizes == values) for values in sizes]
    entries = [entry_of(graph, target, row, timer, tools) for row in firsts]
    return Tuned(tuple(rows), record.merged(Record(tuple(entries))))


def _loaded(plan: Plan | DnncError, sizes: Sizes, timer: Timer) -> Run | DnncError:
    if isinstance(plan, DnncError):
        return plan
    try:
        return timer.load(plan, sizes)
    except DnncError as error:
        return error
