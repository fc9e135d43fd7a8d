"""The functions of the package: compile a graph, run its reference."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import given
from . import target as targets
from .dialect.graph import OperationGraph
from .errors import DnncError, Status
from .frontends.default_target import compiled_for_default, default_rows
from .frontends.device_properties import target_rows
from .frontends.enums import modes_of, text_of
from .options import DEFAULT_MODES, DEFAULTS, Options
from .plan.plan import Plan
from .progress import Report, StageTimes, silent
from .target import Target

if TYPE_CHECKING:
    from .dialect.reference import Outputs
    from .frontends.device_properties import DeviceProperties
    from .frontends.enums import heur_mode
    from .record import Record


@given.checked
def compile(
    graph: Any,
    target: str | os.PathLike[str] | DeviceProperties | None = None,
    *,
    engine: str | None = None,
    knobs: Mapping[str, int] | None = None,
    modes: Sequence[str | heur_mode] = DEFAULT_MODES,
    variants: int = DEFAULTS.most_variants,
    tuning: str | os.PathLike[str] | Record | None = None,
    errata: str | os.PathLike[str] | None = None,
    device: str = "",
    driver: str = "",
    in_process: bool = False,
    cache: bool = True,
    report: Report = silent,
) -> Plan:
    """Compiles a graph ahead of time, on a machine with or without a GPU.

    graph: a `dnnc.pygraph`, an `OperationGraph` or its JSON form (a dict).  target: `sm_80`,
    `sm_90a`, an alias such as `h100`, or several by commas, for one plan with code for all; or a
    device, as `dnnc.create_device_properties` gives it, its JSON, or the path of a file with that:
    its target is compiled for, and configs are ranked for its SMs (default: what a pygraph names
    by `target`, `sm_version` or `device_property`; else the device that is here; without one,
    `sm_80,sm_90a`: any card runs it, and Hopper at its full rate).  engine: the one to
    take (default: the best prediction).  knobs: of that engine; those not given are the best that
    go with them.  modes: heuristic modes in order.  variants: how many
    configs a plan of symbols may hold for different sizes, where no engine is asked for.
    tuning: a tuning record or its file (`dnnc.autotune`), whose config for the graph comes first.
    errata: a file of rules that bar configs (default: what DNNC_ERRATA_FILE names, if it does).
    device, driver: the device whose times count in the record, and the driver version that rules
    look at (default: any).  in_process: compile here and not in the worker process; refused in a
    process that uses numba_cuda_mlir.  cache: take the plan from the cache if it is there, and
    keep it there; False to compile anew.  report: called with (what is done, how much is done, of
    how much), see `dnnc.progress`.
    Gives a `Plan`; `dnnc.write_plan` makes a file of it, `dnnc.load` makes it executable.
    A graph that no engine takes is a cudnnGraphNotSupportedError with the nearest engine's reason;
    its `details` have every engine's.
    """
    if knobs is not None:
        given.verify_knobs(knobs)
    if variants < 1:
        raise DnncError(Status.BAD_PARAM, f"variants={variants}", "1 or more")
    if driver and not driver[0].isdecimal():
        raise DnncError(Status.BAD_PARAM, f"driver={driver!r}", "a version, as 575.51")
    named = getattr(graph, "named_target", None) if target is None else target
    finalized = graph_of(graph)
    rows = None if named is None else target_rows(named)
    if knobs and engine is None:
        raise _no_engine(finalized, (rows or default_rows())[-1], knobs)
    options = Options(
        modes=modes_of(modes),
        engine=engine,
        knobs=tuple(sorted((text_of(name), value) for name, value in (knobs or {}).items())),
        most_variants=variants,
        tuning=tuning_text(finalized, tuning),
        errata=errata_text(errata),
        device=device,
        driver=driver,
        sm_count=targets.other_sm_count(rows or ()),
    )

    def compile_for(rows: tuple[Target, ...]) -> Plan:
        times = StageTimes([row.name for row in rows], report)
        if in_process:
            from .cache import plans

            plan = plans.compiled_here(finalized, rows, options, cache=cache, report=times)
        else:
            from . import worker

            plan = worker.compile_graph(finalized, rows, options, cache=cache, report=times)
        times.end()
        return plan

    if rows is None:
        return compiled_for_default(finalized, options, compile_for)
    return compile_for(rows)


def _no_engine(graph: OperationGraph, target: Target, knobs: Mapping[str, int]) -> DnncError:
    """Knobs are an engine's, and which one the heuristics take may change."""
    from .choosing.explicit import engines_with
    from .dialect.fusion import partition

    (whole,) = partition(graph, [graph.live_ops])
    named = ", ".join(f"{text_of(name)}={value}" for name, value in knobs.items())
    found = ", ".join(engines_with(map(text_of, knobs), whole, target))
    accepted = f"engine=, one of {found}" if found else f"none: no engine has them on {target}"
    what = f"knobs {named} without an engine"
    return DnncError(Status.BAD_PARAM, what, accepted, f"graph '{graph.name}'")


def tuning_text(graph: OperationGraph, source: str | os.PathLike[str] | Record | None) -> str:
    """The entries of a tuning record that are for a graph: `Options.tuning`."""
    if source is None:
        return ""
    from . import record

    return record.text_for(graph, source)


def errata_text(source: str | os.PathLike[str] | None = None) -> str:
    """The rules of a file, or of the one that DNNC_ERRATA_FILE names: `Options.errata`."""
    if source is None and not os.environ.get("DNNC_ERRATA_FILE"):
        return ""
    from . import errata

    return errata.text_of(source)


@given.checked
def reference(
    graph: Any,
    inputs: Mapping[Any, Any],
    *,
    sizes: Mapping[str, int] | None = None,
    exact_outputs: bool = False,
) -> Outputs:
    """The outputs of a graph or of a plan's graph on NumPy, arrays of the logical dims.

    They are looked up by uid, unique name or tensor, and iterated by uid.
    inputs: by uid, unique name or tensor.  sizes: values of symbols that no input shows.
    exact_outputs: leave outputs as float64, int64 or bool.  Rules: docs/numerics.md.
    """
    from .dialect.reference import reference as run

    given.verify_mapping(inputs, "uid, unique name or tensor -> array", "inputs")
    if sizes is not None:
        given.verify_sizes(sizes)
    return run(graph_of(graph), inputs, sizes=sizes, exact_outputs=exact_outputs)


def graph_of(source: Any) -> OperationGraph:
    """The finalized graph of a pygraph, an OperationGraph, a plan, or a JSON form."""
    from .dialect.json_form import from_json

    if isinstance(source, OperationGraph):
        return source.finalize()
    if isinstance(source, Plan):
        return from_json(dict(source.graph))
    plan = getattr(source, "plan", None) if type(source).__name__ == "ExecutionPlan" else None
    if isinstance(plan, Plan):
        return from_json(dict(plan.graph))
    if isinstance(source, dict):
        return from_json(source)
    build = getattr(source, "build_operation_graph", None)
    if build is not None:
        build()
        return source.graph
    raise DnncError(
        Status.BAD_PARAM,
        f"a {type(source).__name__}",
        "a pygraph, an OperationGraph, a plan, or the JSON form of a graph",
    )
