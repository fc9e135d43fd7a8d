"""`dnnc view`: a graph or a plan as one page of HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import target as targets
from ..api import errata_text, tuning_text
from ..errors import DnncError, Status
from ..frontends.device_properties import target_rows
from ..options import Options
from ..plan.format import write_whole
from ..plan.plan import Plan, Program
from ..target import Target
from . import console, files
from .arguments import (
    DEFAULT_MODES,
    EngineName,
    Errata,
    Explain,
    GraphOrPlan,
    Knobs,
    Modes,
    PlanName,
    Stage,
    Targets,
    Tuning,
    parse_modes,
    parse_settings,
)
from .compile import compiled_with_times, default_output, rows_of, verify_stage
from .files import Source
from .sass import disassembled, find_tool
from .show_plan import rule_text

if TYPE_CHECKING:
    from ..view.page import Section, Text
    from ..view.parts import ProgramParts

_ABOUT = {
    "graph": "cuDNN's operations, in MLIR",
    "fused": "fusions, their engines and knobs",
    "linalg": "scalar arithmetic, tile sizes",
    "kernel": "loops, copies, tensor-core instructions",
    "nvvm": "what LLVM is given",
}


def register(app: typer.Typer) -> None:
    console.add_command(
        app,
        "view",
        view,
        "dnnc view ffn.py -o ffn.html",
        "dnnc view ffn.py --target sm_80,sm_90a --size tokens=100",
        "dnnc view ffn.dnnplan",
    )


def view(
    file: GraphOrPlan,
    target: Targets = None,
    engine: EngineName = None,
    knob: Knobs = None,
    mode: Modes = DEFAULT_MODES,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            "-s",
            metavar="NAME=N",
            help="A size that times are predicted for; repeatable.  "
            "[dim]\\[default: 1024, or as near as its range allows][/]",
            show_default=False,
        ),
    ] = None,
    tuning: Tuning = None,
    errata: Errata = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The page.  [dim]\\[default: the name of GRAPH or PLAN with .html, "
            "in this folder][/]",
            show_default=False,
        ),
    ] = None,
    plan: PlanName = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither read nor write the cache.")
    ] = False,
    explain: Explain = False,  # of a refusal; the page has all reasons
) -> None:
    """Writes a page of HTML that shows what a graph is compiled to; it needs no network.

    The graph is drawn with its fusions; each kernel has its engine, knobs, registers, shared
    memory, predicted time and what bounds it, and a place in a roofline.  The text of each stage
    is folded, PTX too, and machine code where nvdisasm or cuobjdump is installed.

    A graph is compiled as dnnc compile does.  A plan has its PTX and machine code, and no other
    stages.  Needs the packages of the extra view.
    """
    from ..dialect.json_form import from_json
    from ..view.page import page, require_packages
    from ..view.parts import ProgramParts
    from .arrays import verify_sizes

    require_packages()
    sizes = parse_settings(size or [], "--size")
    modes = parse_modes(mode)
    knobs = tuple(sorted(parse_settings(knob or [], "--knob").items()))
    if knobs and engine is None:
        said = "knobs are an engine's: --engine NAME, too (dnnc engines GRAPH lists them)"
        raise typer.BadParameter(said, param_hint="--knob")
    rows = None if target is None else tuple(target_rows(target))
    source = None
    if files.suffix_of(file, (files.PLAN_SUFFIX, *files.GRAPH_SUFFIXES)) == files.PLAN_SUFFIX:
        if engine or knobs or tuning or errata or modes != parse_modes(DEFAULT_MODES):
            what = "--engine, --knob, --mode, --tuning or --errata for a plan, which is compiled"
            raise DnncError(Status.BAD_PARAM, what, "a graph", file)
        made = _read(file, plan, rows)
    elif plan is not None:
        raise DnncError(Status.BAD_PARAM, f"--plan {plan} of a graph", files.PLAN_SUFFIX, file)
    else:
        source = files.read_source(file)
        verify_sizes(source.graph, sizes)
        choice: dict[str, Any] = {
            "modes": modes, "engine": engine, "knobs": knobs,
            "tuning": tuning_text(source.graph, tuning), "errata": errata_text(errata),
        }  # fmt: skip
        verify_stage(source, Stage.plan, bool(engine or knobs))
        rows = rows_of(source, rows)
        choice["sm_count"] = targets.other_sm_count(rows or ())
        made, _ = compiled_with_times(source, rows, choice, in_process=False, cache=not no_cache)
    graph = from_json(made.graph)
    verify_sizes(graph, sizes)
    sections = [
        _section(ProgramParts(made, program, graph, _row(program, rows), sizes), source)
        for program in made.programs
    ]
    text = page(made, graph, sections, len(made.serialize()))
    path = str(output or f"{Path(default_output(file, made)).stem}.html")
    write_whole(path, text.encode())
    console.heading(f"{path}: {len(text):,} bytes")


def _read(file: str, name: str | None, named: Sequence[Target] | None) -> Plan:
    """The plan of a file, with the programs for the targets that are named (None: all)."""
    found = files.read_plan(file, name)
    if named is None:
        return found
    programs = [p for row in named for p in files.programs_of(found, row.name)]
    return replace(found, programs=tuple(programs))


def _row(program: Program, named: Sequence[Target] | None) -> Target:
    """The row that predictions are for: with a device's own SMs, if one was named."""
    return next((r for r in named or () if r.name == program.target), targets.of(program.target))


# ---- texts


def _section(parts: ProgramParts, source: Source | None) -> Section:
    from ..view.page import Section

    texts = [*_stages(source, parts)] if source is not None else []
    return Section(parts, rule_text(parts.program), [*texts, *_code(parts)])


def _stages(source: Source, parts: ProgramParts) -> Iterator[Text]:
    """The texts from the source's stage to nvvm, of the config that the sizes asked for take."""
    from ..compiler import TEXT_STAGES, advance, start
    from ..dialect import dnn
    from ..view.page import Text

    case = parts.taken
    of_config = f", for {case.guard}" if len(parts.cases) > 1 else ""
    with dnn.context():
        if source.stage == Stage.graph:
            work = start(source.graph, parts.target, max(0, case.config))
        else:
            work = source.resumed()
        options = Options(partition=parts.partition_text, choices=parts.choices_text)
        for stage in TEXT_STAGES[TEXT_STAGES.index(work.stage) : -1]:
            about = _ABOUT[stage] + (of_config if stage != Stage.graph else "")
            yield Text(stage, about, advance(work, stage, options).text())


def _code(parts: ProgramParts) -> Iterator[Text]:
    """PTX and machine code of each module of the program."""
    from ..view.page import Text

    plan, modules = parts.plan, list(enumerate(parts.program.modules))

    def about(place: int) -> str:
        """The fusions and the sizes that a module is for, where there are several."""
        configs = (f.config_place for f in parts.program.fusions if f.module == place)
        config = next(configs, place)
        every = parts.program.fusions_of(config)
        own = [str(i) for i, fusion in enumerate(every) if fusion.module == place]
        said = [f"of fusion {', '.join(own)}"] if len(own) < len(every) else []
        guards = [case.guard for case in parts.cases if case.config == config]
        said += [f"for {', '.join(guards)}"] if len(parts.cases) > 1 else []
        return ", ".join(said)

    for place, module in modules:
        if module.ptx >= 0:
            yield Text("ptx", about(place), plan.text(module.ptx))
    if not _has_disassembler():
        return
    for place, module in modules:
        yield Text("sass", about(place), _sass(plan.blobs[module.cubin]))


def _has_disassembler() -> bool:
    try:
        find_tool()
    except DnncError:
        return False
    return True


def _sass(cubin: bytes) -> str:
    """Machine code, or why the disassembler gave none."""
    try:
        return disassembled(cubin)
    except DnncError as error:
        return str(error)
