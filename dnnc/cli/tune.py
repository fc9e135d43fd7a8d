"""`dnnc tune`: times the most promising configs of a graph, and keeps the fastest in a record."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import target as targets
from ..errors import DnncError
from ..frontends.default_target import single_target
from ..visible import counted
from . import completion, console, files
from .arguments import Errata, Modes, parse_modes, target_or

if TYPE_CHECKING:
    from ..tuning.results import Row, Tuned

_MODES = "B,FALLBACK"
_MOST = 32
_ROUNDS = 7
_SHOWN = 12
DEFAULT_RECORD = "dnnc-tuning.json"


def register(app: typer.Typer) -> None:
    console.add_command(
        app,
        "tune",
        tune,
        "dnnc tune ffn.py --size tokens=16,4096 -o ffn-tuning.json",
        "dnnc compile ffn.py --target sm_90a --tuning ffn-tuning.json",
        "dnnc tune ffn.py --target sm_90a --compile-only candidates",
        "dnnc tune --time candidates --cold-l2",
    )


def tune(
    graph: Annotated[
        str | None,
        typer.Argument(metavar="[GRAPH]", help="A .py, .json or .mlir file; none with --time."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            metavar="NAME",
            help="One architecture, or a device: its JSON or a .json file.  "
            "[dim]\\[default: what GRAPH names, else the device's; "
            f"with --compile-only {targets.SINGLE} without one][/]",
            show_default=False,
            autocompletion=completion.target_names,
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            "-s",
            metavar="NAME=N,...",
            help="Sizes of a symbol to tune for; repeatable, all combinations.  "
            "[dim]\\[default: those that predictions assume][/]",
            show_default=False,
        ),
    ] = None,
    mode: Modes = _MODES,
    most: Annotated[
        int, typer.Option(metavar="N", min=1, help="Candidates for each set of sizes.")
    ] = _MOST,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Timed rounds.")] = _ROUNDS,
    cold_l2: Annotated[
        bool, typer.Option("--cold-l2", help="Empty L2 before every launch.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            min=1,
            help="Compilations at a time.  [dim]\\[default: as many as processors][/]",
        ),
    ] = None,
    compile_only: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the candidates to a folder; time nothing."),
    ] = None,
    time: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Time the candidates of such a folder; compile nothing."),
    ] = None,
    errata: Errata = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The record; what it holds already is kept."
        ),
    ] = Path(DEFAULT_RECORD),
) -> None:
    """Compiles the configs that are predicted to be fastest, times them on the GPU, and writes the
    fastest into a tuning record, which dnnc compile and dnnc engines take with --tuning.

    The two halves may run on different machines: --compile-only needs no GPU, --time no compiler.
    """
    from ..tuning.race import Rules

    if (graph is None) == (time is None) or (time and compile_only):
        raise typer.BadParameter("GRAPH, with --compile-only DIR or without, or --time DIR alone")
    rules = Rules(rounds=rounds)
    if time is not None:
        from ..tuning import time_candidates

        with console.counting() as report:
            found = time_candidates(
                time, cold_l2=cold_l2, rules=rules, record=_known(output), report=report
            )
        _finish(found, output)
        return
    from ..tuning import autotune, compile_candidates

    source = files.read_source(str(graph))
    named = target_or(target, source.target)
    chosen: dict[str, Any] = {
        "sizes": _sizes(size or []) or None, "modes": parse_modes(mode), "most": most,
        "errata": errata,
    }  # fmt: skip
    with _executor(jobs) as executor, console.counting() as report:
        chosen |= {"executor": executor, "report": report}
        if compile_only is not None:
            row = single_target() if named is None else named
            found = compile_candidates(source.graph, compile_only, row, **chosen)
        else:
            found = autotune(
                source.graph, named, cold_l2=cold_l2, rules=rules, record=_known(output), **chosen
            )
    if compile_only is not None:
        _say_written(compile_only, found)
    else:
        _finish(found, output)


def _sizes(texts: Sequence[str]) -> list[dict[str, int]]:
    """Every combination of M=16,4096 and N=64; [] of none."""
    axes: list[list[tuple[str, int]]] = []
    for text in texts:
        name, _, values = text.partition("=")
        numbers = values.split(",")
        if not name or not all(n.isdecimal() for n in numbers) or name in (a[0][0] for a in axes):
            raise typer.BadParameter(f"{text!r}: NAME=N,..., each NAME once", param_hint="--size")
        axes.append([(name, int(number)) for number in numbers])
    return [dict(pairs) for pairs in itertools.product(*axes)] if axes else []


@contextlib.contextmanager
def _executor(jobs: int | None) -> Generator[ThreadPoolExecutor | None]:
    """Makes `jobs` threads, each of which has a compile worker; None: one a processor."""
    if jobs is None:
        yield None
        return
    with ThreadPoolExecutor(jobs) as threads:
        yield threads


def _known(output: Path) -> Path | None:
    return output if output.exists() else None


# ---- what is printed


def _say_written(folder: Path, failed: Sequence[DnncError]) -> None:
    for error in failed:
        console.note(f"a candidate was not compiled: {error}")
    console.field("wrote", f"{folder} (on the GPU's machine: dnnc tune --time {folder})")


def _finish(found: Tuned, output: Path) -> None:
    """Prints a table for each set of sizes, and writes the record."""
    from ..record import update

    sizes: list[Any] = []
    for row in found.rows:
        if row.sizes not in sizes:
            sizes.append(row.sizes)
    for values in sizes:
        rows = [row for row in found.rows if row.sizes == values]
        _show(rows, " ".join(f"{name}={size}" for name, size in values.items()))
    update(output, found.record)
    entries = counted(len(found.record.entries), "entry", "entries")
    console.field("record", f"{output} ({entries})")


def _show(rows: Sequence[Row], sizes: str) -> None:
    if sizes:
        console.heading(sizes)
    table = console.table(">", "config", ">measured", ">predicted", ">rounds", "remark")
    best = rows[0].timed.seconds
    for place, row in enumerate(rows[:_SHOWN]):
        timed = row.timed
        remark = f"{timed.seconds / best:.2f}x" if timed.rounds else ""
        remark += ", stopped" * timed.is_stopped
        table.add_row(
            str(place),
            row.candidate.choices,
            console.seconds_text(timed.seconds) if timed.rounds else "",
            console.seconds_text(row.predicted),
            str(len(timed.rounds)),
            timed.error or remark,
        )
    console.show(table)
    if len(rows) > _SHOWN:
        console.field("", f"and {len(rows) - _SHOWN} more, slower ones")
