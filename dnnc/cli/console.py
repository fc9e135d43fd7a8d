"""How the commands print: consoles, tables, progress, errors."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.text import Text

from ..errors import DnncError
from ..places import Place
from ..plan.plan import Plan
from ..progress import Report, StageTimes
from ..visible import visible
from .tables import Column, Table

# Exit statuses, as shells have them: a reader that has gone away, and ^C.
BROKEN_PIPE, INTERRUPTED = 141, 130

# Columns of tables that hold sentences and lists; cells of the others don't wrap.
_MOST_CODE = 120  # characters of a line that is shown: types of MLIR are long
_WRAPPED = {
    *("accepted", "best knobs", "bound by", "config", "first elements", "holds", "inputs", "knobs"),
    *("notes", "operands", "operations", "outputs", "remark", "results", "values", "what is wrong"),
    *("what it is", "why"),
}


class _Console(Console):
    """A console that prints no control characters but its own."""

    def render(self, *args: Any, **options: Any) -> Iterable[Segment]:
        for segment in super().render(*args, **options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Ends the program when whoever reads its output has."""
        to_nowhere(sys.stdout)
        raise SystemExit(BROKEN_PIPE)


def to_nowhere(stream: Any) -> None:
    """Lets a stream that can't be written take what it still holds."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def raw(text: str) -> None:
    """Prints text as it is, but for control characters."""
    typer.echo(visible(text), nl=False)


def out() -> Console:
    """Standard output."""
    return _Console(highlight=False, markup=False)


def err() -> Console:
    """Standard error: progress, notes and errors."""
    return _Console(stderr=True, highlight=False, markup=False)


def columns() -> int | None:
    """The width of the terminal that standard output is; None if it is none."""
    return out().width if sys.stdout.isatty() else None


def show_error(error: DnncError, explain: bool | None = None) -> None:
    """An error's text, without a trace, and the line of the user's file that it is about.

    explain: whether the command's --explain asks for the details; None: it has no such option.
    """
    show_problem(error.summary)
    if error.made_at is not None:
        _show_line(error.made_at)
    if error.details and explain:
        err().print(Text(visible(error.details)), soft_wrap=True)
    elif error.details:
        wanted = "dnnc engines GRAPH --explain" if explain is None else "--explain"
        note(f"hint: {wanted} lists what each engine says")


def _show_line(place: Place) -> None:
    """A line of a file, where it can be read, by a path that terminals open."""
    linecache.checkcache(place.file)  # another file of this name may have been read before
    code = linecache.getline(place.file, place.line).strip()
    if code:
        note(f"  {place.path}: {code[:_MOST_CODE]}{'...' * (len(code) > _MOST_CODE)}")


def show_problem(text: str) -> None:
    """Prints the problem that ends a command with status 1."""
    line = Text("error: ", "bold red")
    line.append(visible(text), "default")
    err().print(line, soft_wrap=True)


def note(text: str) -> None:
    """A remark that is not the output."""
    err().print(Text(visible(text), "dim"), soft_wrap=True)


def table(*titles: str) -> Table:
    """A table without lines; a column whose title starts with > is right-aligned."""
    names = [title.removeprefix(">") for title in titles]
    return Table(
        [
            Column(name, is_right=name != title, wraps=name in _WRAPPED)
            for name, title in zip(names, titles, strict=True)
        ]
    )


def tensor_table() -> Table:
    """The table of tensors, of a plan's and of a graph's."""
    return table(">uid", "name", "role", "type", "dims", "strides", ">alignment", "value")


def show(made: Table) -> None:
    """Prints a table; every value is whole, however narrow the terminal is."""
    header, body = made.lines(columns())
    for line in header:
        out().print(Text(line, "bold"), soft_wrap=True)
    for line in body:
        out().print(Text(line), soft_wrap=True)


def blank() -> None:
    """Prints an empty line."""
    out().print()


def heading(text: str) -> None:
    """A line above what belongs to it."""
    out().print(Text(visible(text), "bold"), soft_wrap=True)


def field(name: str, value: str) -> None:
    """A line of a record: name, value."""
    line = Text(f"{name:<11}", "dim")
    line.append(visible(value), "default")
    out().print(line, soft_wrap=True)


# ---- help


def add_command(app: typer.Typer, name: str, function: Callable[..., None], *uses: str) -> None:
    """Makes a function a command; its docstring is the help, `uses` are the examples below."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    help_ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    app.command(name, help=help_, epilog=examples(*uses))(function)


def examples(*uses: str) -> str:
    """The end of a help text: a use a line."""
    return "\n".join(["[bold]Examples[/]", "", *(f"  {use}" for use in uses)])


# ---- numbers


def value_text(value: float | None) -> str:
    """A scalar with all its digits: 1e-05, 4194304, 0.08838834764831845; nothing for None."""
    return "" if value is None else repr(value).removesuffix(".0")


def knobs_text(knobs: Mapping[str, int]) -> str:
    """STAGES=3 TILE_M=32"""
    return " ".join(f"{name}={value}" for name, value in sorted(knobs.items()))


def seconds_text(seconds: float) -> str:
    """3.4 us, 12.1 ms, 2.05 s"""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def shape_text(sizes: Sequence[object]) -> str:
    """[1, M, 64]"""
    return f"[{', '.join(map(str, sizes))}]"


# ---- progress


@contextlib.contextmanager
def compiling(targets: Sequence[str]) -> Generator[StageTimes]:
    """A progress bar on a terminal's stderr; gives the `report` of a compilation.

    The command itself prints the hints, so the log leaves them out.
    """
    hints = logging.getLogger("dnnc.hints")
    with counting() as report:
        hints.disabled = True
        try:
            yield StageTimes(targets, report)
        finally:
            hints.disabled = False


def show_hints(plan: Plan) -> None:
    """A line for each of a plan's hints."""
    for program in plan.programs:
        for hint in program.warnings:
            field("hint", f"{program.target}: {hint}")


def show_split(place: str, reason: str, explain: bool | None = None) -> None:
    """Why a plan's program is several fusions: the sentence, and all of it if that is asked for.

    explain: whether the command's --explain asks for it; None: it has no such option.
    """
    sentence, *others = reason.split("\n")
    hint = " (--explain lists what each engine says)" if others and explain is False else ""
    field("split", f"{place}{sentence}{hint}")
    for line in others if explain else ():
        field("", line)


@contextlib.contextmanager
def counting() -> Generator[Report]:
    """A progress bar on a terminal's stderr, for what reports (what is done, how much of how
    much)."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f}"),
        TimeElapsedColumn(),
        console=err(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with progress:
        bar = progress.add_task("starting", total=1)
        yield lambda said, done, count: progress.update(
            bar, completed=done, total=count, description=said
        )


@contextlib.contextmanager
def working(what: str) -> Generator[None]:
    """A spinner on a terminal's stderr."""
    if not sys.stderr.isatty():
        yield
        return
    with err().status(what):
        yield
