"""`dnnc.autotune`: the whole way from a graph to a record, in one process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from .. import errata as rules_of
from .. import given, tools
from .. import record as records
from ..api import graph_of
from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..expr import bounds_of, range_text, typical_sizes, verify_products
from ..frontends.device_properties import DeviceProperties, target_rows
from ..frontends.enums import heur_mode, modes_of
from ..options import Options
from ..progress import Report, silent
from ..record import Record
from ..target import Target
from . import files
from .candidates import Candidate, Sizes, candidates, compiled
from .measure import measured
from .race import Rules
from .results import Tuned
from .timer import DeviceTimer, Timer

MODES = ("B", "FALLBACK")
MOST = 32


@given.checked
def autotune(
    graph: Any,
    target: str | os.PathLike[str] | DeviceProperties | None = None,
    *,
    sizes: Sizes | Sequence[Sizes] | None = None,
    modes: Sequence[str | heur_mode] = MODES,
    most: int = MOST,
    executor: Executor | None = None,
    timer: Timer | None = None,
    cold_l2: bool = False,
    rules: Rules = Rules(),  # noqa: B008  (it is frozen)
    record: str | os.PathLike[str] | Record | None = None,
    errata: str | os.PathLike[str] | None = None,
    report: Report = silent,
) -> Tuned:
    """Compiles the most promising configs of a graph, times them, and gives a record of the best.

    graph: as `dnnc.compile` takes it.  target: one, or a device, as it takes them (default: what a
    pygraph names, else the timer's).
    sizes: values of the graph's symbols, or several sets of them (default: those that predictions
    assume).  modes, most: which configs, and how many for each set of sizes.  executor: what runs
    the compilations, any of `concurrent.futures` (default: threads, each with a compile worker).
    timer: what times (default: the CUDA device).  cold_l2: that device's L2 is emptied
    before every launch.  rules: rounds and early stopping.  record: one to merge into, or its
    file, which is not written.  errata: as `dnnc.compile` takes them.
    report: called with (what is done, how much is done, of how much), see `dnnc.progress`.
    """
    made = graph_of(graph)
    clock = timer or DeviceTimer(cold_l2=cold_l2)
    try:
        named = getattr(graph, "named_target", None) if target is None else target
        row = _row_of(clock.target if named is None else named)
        every, values = _ranked(made, row, sizes, modes, most, errata)
        plans = compiled(
            made, row, every, executor, lambda done, count: report("compiling", done, count)
        )
        known = records.read(record)
        versions = tools.versions()
        return measured(made, row.name, every, plans, values, clock, rules, known, versions, report)
    finally:
        if timer is None:
            clock.close()


@given.checked
def compile_candidates(
    graph: Any,
    folder: str | os.PathLike[str],
    target: str | os.PathLike[str] | DeviceProperties,
    *,
    sizes: Sizes | Sequence[Sizes] | None = None,
    modes: Sequence[str | heur_mode] = MODES,
    most: int = MOST,
    executor: Executor | None = None,
    errata: str | os.PathLike[str] | None = None,
    report: Report = silent,
) -> list[DnncError]:
    """Compiles candidates into a folder, for `time_candidates` on another machine.

    folder: is made if it is not there; what an earlier call left in it is replaced.  The rest is
    as `autotune` takes it.  Gives the errors of those that could not be compiled, if not all.
    """
    made, row = graph_of(graph), _row_of(target)
    every, values = _ranked(made, row, sizes, modes, most, errata)
    plans = compiled(
        made, row, every, executor, lambda done, count: report("compiling", done, count)
    )
    failed = [plan for plan in plans if isinstance(plan, DnncError)]
    if len(failed) == len(plans):
        raise failed[0]
    files.write(folder, made, row.name, values, every, plans, tools.versions())
    return failed


def _row_of(target: str | os.PathLike[str] | DeviceProperties) -> Target:
    rows = target_rows(target)
    if len(rows) != 1:
        what = f"targets {', '.join(row.name for row in rows)}"
        raise DnncError(Status.BAD_PARAM, what, "one: what is timed runs on one device", "autotune")
    return rows[0]


def _ranked(
    graph: OperationGraph,
    target: Target,
    sizes: Sizes | Sequence[Sizes] | None,
    modes: Sequence[str | heur_mode],
    most: int,
    errata: str | os.PathLike[str] | None,
) -> tuple[list[Candidate], list[Sizes]]:
    if most < 1:
        raise DnncError(Status.BAD_PARAM, f"most={most}", "1 or more", "autotune")
    if any(field.is_peer for op in graph.ops for field, _ in op.tensors("operand")):
        # Its kernels wait for those of other devices.
        raise DnncError(
            Status.NOT_SUPPORTED,
            "a graph over several devices",
            "a graph of one device: its parts on either side of the exchange",
            f"graph '{graph.name}'",
        )
    values = _every_size(graph, sizes)
    options = Options(errata=rules_of.text_of(errata))
    return candidates(graph, target, values, modes_of(modes), most, options), values


def _every_size(graph: OperationGraph, sizes: Sizes | Sequence[Sizes] | None) -> list[Sizes]:
    """The sets of sizes, each whole."""
    if sizes is not None and not isinstance(sizes, Mapping):
        given.verify_list(sizes, "sizes")
    sets = [sizes] if isinstance(sizes, Mapping) else list(sizes or [{}])
    found: list[Sizes] = []
    for values in sets:
        given.verify_sizes(values)
        for name, size in values.items():
            dim = graph.symbols.get(name)
            if dim is None:
                known = ", ".join(graph.symbols) or "none: every size is fixed"
                raise DnncError(Status.BAD_PARAM, f"no size is called {name!r}", known, "sizes")
            if not dim.min <= size <= dim.max or size % dim.multiple_of:
                wanted = range_text(dim)
                raise DnncError(Status.BAD_PARAM_SHAPE_MISMATCH, f"{name} = {size}", wanted)
        whole = typical_sizes(graph.symbols, values)
        verify_products(bounds_of(graph.symbols.values()), whole, "sizes")
        if whole not in found:
            found.append(whole)
    return found
