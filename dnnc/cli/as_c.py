"""`dnnc compile --emit c`: a plan as a header and a source, of a graph or of a plan file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..emit import write_c
from ..errors import DnncError, Status
from ..plan.plan import Plan
from . import console, files
from .arguments import Stage
from .summary import print_kernels, print_times


def is_plan(graph: str, name: str | None) -> bool:
    """Whether a GRAPH argument is a plan file; --plan of another one is BAD_PARAM."""
    found = graph != files.STDIN and Path(graph).suffix == files.PLAN_SUFFIX
    if name is not None and not found:
        raise DnncError(Status.BAD_PARAM, f"--plan {name} of a graph", files.PLAN_SUFFIX, graph)
    return found


def read_plan(
    graph: str, name: str | None, targets: Sequence[str], emit: Stage, has_choice: bool
) -> Plan:
    """The plan of a file, with the programs for some targets (none named: all).

    name: which one of a bundle.  Another stage than c, and an engine or knobs, are BAD_PARAM.
    """
    if emit is not Stage.c:
        raise DnncError(Status.BAD_PARAM, f"--emit {emit} of a plan", Stage.c, where=graph)
    if has_choice:
        raise DnncError(
            Status.BAD_PARAM, "--engine or --knob for a plan, whose engines are chosen", "a graph",
            where=graph,
        )  # fmt: skip
    plan = files.read_plan(graph, name)
    found = [program for target in targets for program in files.programs_of(plan, target)]
    return replace(plan, programs=tuple(found)) if targets else plan


def write(
    plan: Plan, path: str, times: Sequence[dict[str, float]] | None = None, explain: bool = False
) -> None:
    """Writes the header and the source, and says so: the files, what to call, the kernels.

    times: of the stages; none of them: the plan is from the cache.  None: it is from a file.
    explain: whether the reasons of all engines are wanted.
    """
    written = write_c(path, plan)
    size = sum(each.stat().st_size for each in written)
    names = ", ".join(map(str, written))
    console.heading(f"{names}: plan '{plan.name}', {size:,} bytes, key {plan.key[:12]}")
    prefix = written[1].stem
    functions = ("load", "workspace_size", "run", "unload", "error_string")
    console.field("functions", ", ".join(f"{prefix}_{name}" for name in functions))
    console.field("build", f"cc -std=c99 -c {written[1]}; link with -lcuda")
    print_kernels(plan, explain)
    if times is not None:
        print_times(plan, times)
