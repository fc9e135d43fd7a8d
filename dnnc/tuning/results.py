"""The results of a tuning: entries for a record, and every candidate's times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import __version__
from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..record import Entry, Record, structure_key, symbol_names, to_structure
from .candidates import Candidate, Sizes
from .race import Timed
from .timer import Timer


@dataclass(frozen=True)
class Row:
    """A candidate at one set of sizes."""

    candidate: Candidate
    sizes: Sizes
    predicted: float
    timed: Timed

    @property
    def is_whole(self) -> bool:
        """Whether it ran all of its rounds."""
        return not self.timed.error and not self.timed.is_stopped and bool(self.timed.rounds)


@dataclass(frozen=True)
class Tuned:
    """rows: of each set of sizes, the fastest first, then what was stopped, then what failed.
    record: the fastest config of each set of sizes, merged into the record that was given.
    """

    rows: tuple[Row, ...]
    record: Record

    @property
    def best(self) -> Row:
        """The fastest candidate of the first set of sizes."""
        return self.rows[0]


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The fastest first, then those that were stopped, then those that failed."""

    def key(row: Row) -> tuple[int, float]:
        if row.timed.error or not row.timed.rounds:
            return 2, row.predicted
        return int(row.timed.is_stopped), row.timed.seconds

    return sorted(rows, key=key)


def entry_of(
    graph: OperationGraph, target: str, row: Row, timer: Timer, tools: Mapping[str, str]
) -> Entry:
    """The entry that a record keeps of the fastest candidate; one that did not run is an error."""
    if not row.is_whole:
        raise DnncError(
            Status.EXECUTION_FAILED,
            f"no candidate ran: {row.timed.error or 'none has a time'}",
            f"a device that runs {target}",
            f"graph '{graph.name}'",
        )
    names = symbol_names(graph)
    return Entry(
        graph=structure_key(graph),
        name=graph.name,
        sizes={names[name]: size for name, size in row.sizes.items() if name in names},
        target=target,
        device=timer.device,
        driver=timer.driver,
        l2=timer.l2,
        versions={"dnnc": __version__, **tools},
        partition=to_structure(row.candidate.partition, graph),
        choices=row.candidate.choices,
        seconds=row.timed.seconds,
    )
