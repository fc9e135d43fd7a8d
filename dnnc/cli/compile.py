"""`dnnc compile`: a graph to a plan, or to the text of any stage on the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import outside, worker
from .. import target as targets
from ..api import errata_text, tuning_text
from ..cache import place, plans
from ..errors import DnncError, Status
from ..frontends.default_target import compiled_for_default, single_target
from ..frontends.device_properties import target_rows
from ..options import DEFAULTS, Options
from ..plan import format
from ..plan.format import write, write_whole
from ..plan.plan import Plan
from ..progress import StageTimes
from ..store import MemoryStore
from ..target import Target
from . import as_c, console, files
from .arguments import (
    DEFAULT_MODES,
    ORDER,
    SEPARATOR,
    EngineName,
    Errata,
    Explain,
    Knobs,
    Modes,
    PlanName,
    Stage,
    Targets,
    Tuning,
    parse_modes,
    parse_settings,
)
from .files import Source
from .kept import kept
from .summary import print_summary


def register(app: typer.Typer) -> None:
    console.add_command(
        app,
        "compile",
        compile_file,
        "dnnc compile ffn.py",
        "dnnc compile ffn.json --target sm_80,sm_90a -o ffn.dnnplan",
        "dnnc compile ffn.py --engine matmul_sm80 --knob TILE_M=64 --knob STAGES=3",
        "dnnc compile ffn.py --emit linalg | dnnc opt - -p lower-to-kernels",
        "dnnc compile ffn.py --emit nvvm -o ffn.mlir; dnnc compile ffn.mlir --emit ptx",
        "dnnc compile ffn.dnnplan --emit c -o ffn.c; cc -c ffn.c",
    )


def compile_file(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH",
            help="A .py, .json, .mlir or .ptx file; - is stdin (.mlir).  A .dnnplan for --emit c.",
        ),
    ],
    target: Targets = None,
    emit: Annotated[
        Stage,
        typer.Option(
            "--emit",
            "-e",
            metavar="STAGE",
            help=f"Stop at a stage and write it: {', '.join(Stage)}.",
        ),
    ] = Stage.plan,
    engine: EngineName = None,
    knob: Knobs = None,
    mode: Modes = DEFAULT_MODES,
    variants: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Most configs, each for other values of symbolic sizes."
        ),
    ] = DEFAULTS.most_variants,
    tuning: Tuning = None,
    errata: Errata = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write.  [dim]\\[default: GRAPH's name with .dnnplan, or with .h and .c, "
            "in this folder; stdout for a text][/]",
            show_default=False,
        ),
    ] = None,
    plan_name: PlanName = None,
    in_process: Annotated[
        bool,
        typer.Option(
            "--in-process", help="Compile in this process, not in the worker (for debuggers)."
        ),
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither read nor write the cache.")
    ] = False,
    explain: Explain = False,
) -> None:
    """Compiles a graph to a plan, or prints any stage on the way.

    A graph goes through the stages graph, fused, linalg, kernel, nvvm, ptx, cubin, plan.  The
    text of each stage up to ptx is a graph file again: a compilation that resumes from it makes
    the same cubin.  A text with several targets holds one after the other, separated by
    "// -----".  A text or a cubin has one config, that for typical sizes.  Where several
    fusions have kernels, each has a cubin: FILE.0.cubin, FILE.1.cubin, ... for FILE.cubin.

    --emit c writes the plan, of a graph or of a .dnnplan file, as a header and a source in C that
    need the CUDA driver alone.  The names of their functions begin with that of FILE.

    A plan that was made before is taken from the cache (dnnc cache info).
    """
    modes = parse_modes(mode)
    knobs = tuple(sorted(parse_settings(knob or [], "--knob").items()))
    if knobs and engine is None:
        said = "knobs are an engine's: --engine NAME, too (dnnc engines GRAPH lists them)"
        raise typer.BadParameter(said, param_hint="--knob")
    named = None if target is None else target_rows(target)
    if as_c.is_plan(graph, plan_name):
        wanted = [row.name for row in named or ()]
        plan = as_c.read_plan(graph, plan_name, wanted, emit, bool(engine or knobs))
        as_c.write(plan, str(output or _default_c(graph, plan)), explain=explain)
        return
    is_whole = emit in (Stage.plan, Stage.c)
    choice: dict[str, Any] = {
        "modes": modes, "engine": engine, "knobs": knobs,
        "most_variants": variants if is_whole else 1,
        "sm_count": targets.other_sm_count(named or ()),
        "tuning": _record_text(tuning), "errata": errata_text(errata),
    }  # fmt: skip
    known = kept(graph, named, Options(**choice)) if is_whole and not no_cache else None
    if known is not None and (file := known.find()) is not None:
        _write_kept(file, graph, emit, output, explain)
        return
    is_compiled = emit in (Stage.cubin, Stage.plan, Stage.c)
    in_process = in_process or outside.is_used()
    if is_compiled and not in_process and _is_likely_new(graph, no_cache):
        worker.start()  # it loads the compiler while this process reads the graph
    source = files.read_source(graph)
    verify_stage(source, emit, bool(engine or knobs))
    rows = rows_of(source, named)
    if rows is None and not is_whole:
        rows = (targets.of(single_target()),)
    choice["sm_count"] = targets.other_sm_count(rows or ())
    # The index goes by the whole record, the plan by its entries for the graph.
    choice["tuning"] = tuning_text(source.graph, tuning)
    if rows is not None and ORDER.index(emit) < ORDER.index(Stage.cubin):
        _write_text(_texts(source, rows, emit, choice), output)
        return
    if rows is not None and emit is Stage.cubin:
        _verify_one_cubin(rows, output)
    plan, by_target = compiled_with_times(source, rows, choice, in_process, cache=not no_cache)
    if emit is Stage.cubin:
        _write_cubins(plan, Path(str(output)))
        return
    if known is not None:
        known.keep(plan, source.stage)
    if emit is Stage.c:
        as_c.write(plan, str(output or _default_c(graph, plan)), by_target, explain)
        return
    path = str(output or default_output(graph, plan))
    write(path, plan)
    print_summary(plan, path, by_target, explain)


def _write_cubins(plan: Plan, output: Path) -> None:
    """Writes the cubin of each module; where there are several, their places are in the names."""
    modules = plan.programs[0].modules
    for number, module in enumerate(modules):
        path = output if len(modules) == 1 else output.with_suffix(f".{number}{output.suffix}")
        code = plan.blobs[module.cubin]
        write_whole(str(path), code)
        console.note(f"wrote {path} ({len(code):,} bytes)")


def _record_text(tuning: str | None) -> str:
    """The whole of a tuning record."""
    if tuning is None:
        return ""
    from .. import record

    return record.read(tuning).text()


def _write_kept(file: bytes, graph: str, emit: Stage, output: Path | None, explain: bool) -> None:
    """Writes a plan of the cache as it was made, or as C."""
    plan = format.read(file)
    if emit is Stage.c:
        as_c.write(plan, str(output or _default_c(graph, plan)), [], explain)
        return
    path = str(output or default_output(graph, plan))
    write_whole(path, file)
    print_summary(plan, path, [], explain)


def _is_likely_new(graph: str, no_cache: bool) -> bool:
    """Whether the plan is to be compiled for all that is known before the graph is read."""
    return no_cache or place.settings() is None or Path(graph).suffix != ".py"


# ---- arguments


def verify_stage(source: Source, emit: Stage, has_choice: bool) -> None:
    """A text goes on to later stages only; its engines are chosen at stage graph."""
    at = ORDER.index(Stage(source.stage))
    if ORDER.index(emit) < at:
        raise DnncError(
            Status.BAD_PARAM,
            f"--emit {emit} of a text at stage {source.stage}",
            ", ".join(ORDER[at:]),
            files.label(source.path),
        )
    if has_choice and source.stage != Stage.graph:
        raise DnncError(
            Status.BAD_PARAM,
            f"--engine or --knob for a text at stage {source.stage}, whose engines are chosen",
            "a graph",
            files.label(source.path),
        )


def rows_of(source: Source, named: Sequence[Target] | None) -> tuple[Target, ...] | None:
    """The targets: those asked for, else what the file names; only a graph's may change.

    None where there is neither.
    """
    own = target_rows(source.target) if source.target else None
    names, own_names = (",".join(row.name for row in rows or ()) for rows in (named, own))
    if source.stage != Stage.graph and names and own and names != own_names:
        raise DnncError(
            Status.BAD_PARAM,
            f"--target {names} of a text at stage {source.stage}",
            own_names,
            files.label(source.path),
        )
    found = named or own
    return None if found is None else tuple(found)


def _verify_one_cubin(rows: Sequence[Target], output: Path | None) -> None:
    if output is None:
        raise typer.BadParameter("--emit cubin needs -o FILE", param_hint="--output")
    if len(rows) > 1:
        raise typer.BadParameter("a cubin is for one target", param_hint="--target")


def default_output(graph: str, plan: Plan) -> str:
    """ffn.dnnplan for models/ffn.py, in the current folder."""
    name = plan.name if graph == files.STDIN else Path(graph).name.partition(".")[0]
    return f"{name}{files.PLAN_SUFFIX}"


def _default_c(graph: str, plan: Plan) -> str:
    """ffn, for ffn.h and ffn.c"""
    return default_output(graph, plan).removesuffix(files.PLAN_SUFFIX)


# ---- compiling


def _texts(
    source: Source, rows: Sequence[Target], stage: Stage, choice: dict[str, Any]
) -> list[str]:
    """The text of a stage, for each target."""
    from ..compiler import advance, start
    from ..dialect import dnn

    found: list[str] = []
    for row in rows:
        with dnn.context():
            work = start(source.graph, row) if source.stage == Stage.graph else source.resumed()
            found.append(advance(work, stage, Options(**choice)).text())
    return found


def compiled_with_times(
    source: Source,
    rows: tuple[Target, ...] | None,
    choice: dict[str, Any],
    in_process: bool,
    cache: bool,
) -> tuple[Plan, list[dict[str, float]]]:
    """(the plan, the seconds of each target's stages).  rows: None for the default."""
    times: list[dict[str, float]] = []

    def compile_for(rows: tuple[Target, ...]) -> Plan:
        with console.compiling([row.name for row in rows]) as report:
            plan = compiled(source, rows, choice, report, in_process, cache)
        times[:] = report.by_target
        return plan

    if rows is not None:
        return compile_for(rows), times
    return compiled_for_default(source.graph, Options(**choice), compile_for), times


def compiled(
    source: Source,
    rows: Sequence[Target],
    choice: dict[str, Any],
    times: StageTimes,
    in_process: bool = False,
    cache: bool = True,
) -> Plan:
    """The plan of a graph file, of the worker where it has to be compiled from the graph.

    choice: fields of `Options`.  cache: False to compile anew.  A text at a later stage goes on
    in this process.
    """
    options = Options(**choice)
    if source.stage != Stage.graph:
        from ..compiler import advance, finish
        from ..dialect import dnn

        store = place.store() if cache else MemoryStore()
        with dnn.context():
            work = source.resumed()
            return finish(advance(work, Stage.cubin, options, store, times), options)
    if in_process:
        return plans.compiled_here(source.graph, rows, options, cache=cache, report=times)
    return worker.compile_graph(source.graph, rows, options, cache=cache, report=times)


def _write_text(texts: Sequence[str], output: Path | None) -> None:
    whole = f"{SEPARATOR}\n".join(text if text.endswith("\n") else text + "\n" for text in texts)
    if output is None:
        console.raw(whole)
        return
    write_whole(str(output), whole.encode())
