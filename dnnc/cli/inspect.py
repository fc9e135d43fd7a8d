"""`dnnc inspect`: what is in a plan, a bundle of plans, a cubin, or the text of a stage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from ..errors import DnncError, Status
from ..plan import codec, format
from ..plan.plan import Plan, Program
from . import completion, console, files
from .arguments import Explain, PlanName
from .sass import disassembled
from .show_plan import show_bundle, show_plan
from .show_stage import show_cubin, show_source


def register(app: typer.Typer) -> None:
    console.add_command(
        app,
        "inspect",
        inspect,
        "dnnc inspect ffn.dnnplan",
        "dnnc inspect ffn.dnnplan --ptx --target sm_90a",
        "dnnc inspect ffn.dnnplan --graph > ffn.json; dnnc compile ffn.json",
        "dnnc compile ffn.py --emit kernel | dnnc inspect -",
    )


def inspect(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A .dnnplan, .cubin, .mlir, .ptx, .json or .py file; - is stdin (.mlir).",
        ),
    ],
    ptx: Annotated[bool, typer.Option("--ptx", help="Print the PTX instead.")] = False,
    sass: Annotated[
        bool,
        typer.Option("--sass", help="Print the machine code instead; needs nvdisasm or cuobjdump."),
    ] = False,
    graph: Annotated[
        bool, typer.Option("--graph", help="Print the graph's JSON form instead: a graph file.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the plan's records as JSON instead.")
    ] = False,
    plan: PlanName = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            metavar="NAME",
            help="Only what is for this target.",
            autocompletion=completion.target_names,
        ),
    ] = None,
    explain: Explain = False,
) -> None:
    """Shows what is in a file: tensors, fusions with engine and knobs, launches, kernels with
    registers, spills and shared memory; for a bundle, its plans.

    The text of a stage is shown with its functions and kernels.
    """
    asked = {"ptx": ptx, "sass": sass, "graph": graph, "json": as_json}
    parts = [name for name, is_asked in asked.items() if is_asked]
    if len(parts) > 1:
        raise typer.BadParameter("one of --ptx, --sass, --graph, --json")
    part = parts[0] if parts else ""
    accepted = (files.PLAN_SUFFIX, files.CUBIN_SUFFIX, *files.GRAPH_SUFFIXES)
    suffix = files.suffix_of(file, accepted)
    if suffix == files.PLAN_SUFFIX:
        _inspect_plan(file, plan, target, part, explain)
    elif suffix == files.CUBIN_SUFFIX:
        _inspect_cubin(file, part)
    else:
        _inspect_source(file, part)


def _absent(part: str, what: str, file: str) -> DnncError:
    """A part was asked for that a file does not have."""
    return DnncError(
        Status.BAD_PARAM, f"--{part} of {what}", f"a plan ({files.PLAN_SUFFIX})", files.label(file)
    )


# ---- plans


def _inspect_plan(
    file: str, name: str | None, target: str | None, part: str, explain: bool
) -> None:
    bundle = format.Bundle(file)
    if len(bundle.names) > 1 and name is None and not part:
        show_bundle(bundle)
        return
    plan = bundle.plan(name)
    programs = files.programs_of(plan, target)
    if part == "graph":
        console.raw(json.dumps(plan.graph, indent=1) + "\n")
    elif part == "json":
        console.raw(json.dumps(codec.encode(plan), indent=1) + "\n")
    elif part:
        console.raw("".join(_codes(plan, programs, part)))
    else:
        show_plan(plan, programs, explain)


def _codes(plan: Plan, programs: Sequence[Program], part: str) -> Iterator[str]:
    """The code of programs; the target stands above it where there are several."""
    for program in programs:
        if len(programs) > 1:
            yield f"// ----- {program.target}\n"
        for module in program.modules:
            if part == "sass":
                yield disassembled(plan.blobs[module.cubin])
            elif module.ptx >= 0:
                yield plan.text(module.ptx)


# ---- other files


def _inspect_cubin(file: str, part: str) -> None:
    code = files.read_bytes(file)
    if part not in ("", "sass"):
        raise _absent(part, "a cubin", file)
    if part == "sass":
        console.raw(disassembled(code))
        return
    show_cubin(file, code)


def _inspect_source(file: str, part: str) -> None:
    source = files.read_source(file)
    if part == "graph":
        from ..dialect.json_form import to_json

        console.raw(json.dumps(to_json(source.graph), indent=1) + "\n")
    elif part == "ptx" and source.stage == "ptx":
        console.raw(source.text.partition("//! ")[0])
    elif part:
        raise _absent(part, f"a file at stage {source.stage}", file)
    else:
        show_source(source)
