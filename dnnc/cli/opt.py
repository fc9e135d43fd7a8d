# pyright: basic
"""`dnnc opt`: passes, ours and MLIR's, over the text of any stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from ..errors import DnncError, Status
from ..frontends.device_properties import target_rows
from ..places import Place
from ..target import Target, other_sm_count
from . import completion, console, files
from .arguments import SEPARATOR, target_or
from .diagnostics import Diagnostic, differences, expected_in


def register(app: typer.Typer) -> None:
    console.add_command(
        app,
        "opt",
        opt,
        "dnnc opt ffn.mlir -p fuse,select-engine",
        "dnnc opt ffn.py -p 'fuse,select-engine{choices=fallback:LOAD_SIZE=4},prepare-fusions'",
        "dnnc opt ffn.mlir -p canonicalize,cse,verify --print-between-passes",
        "dnnc opt invalid.mlir --split-input-file --verify-diagnostics",
        "dnnc opt --list-passes",
        "dnnc opt --print-irdl",
    )


def _print_irdl(is_asked: bool) -> None:
    if is_asked:
        from ..dialect import dnn

        console.raw(dnn.definitions())
        raise typer.Exit()


def _list_passes(is_asked: bool) -> None:
    if is_asked:
        from .list_passes import listing

        console.raw(listing())
        raise typer.Exit()


def opt(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A .mlir, .json or .py file; - is stdin (.mlir).")
    ],
    pipeline: Annotated[
        str,
        typer.Option(
            "--pipeline",
            "-p",
            metavar="PASSES",
            help="Passes in order, options in braces: fuse{modes=B},select-engine.  Ours are "
            "listed above; any other name is a pass of MLIR.  \\[default: none]",
            show_default=False,
            autocompletion=completion.passes,
        ),
    ] = "",
    split_input_file: Annotated[
        bool,
        typer.Option(
            "--split-input-file", help=f'Treat each part between "{SEPARATOR}" lines as a module.'
        ),
    ] = False,
    verify_diagnostics: Annotated[
        bool,
        typer.Option(
            "--verify-diagnostics",
            help="Succeed if exactly the errors occur that comments expect: "
            "// expected-error@+1 {{part of the text}}.",
        ),
    ] = False,
    print_between_passes: Annotated[
        bool,
        typer.Option("--print-between-passes", help="Print the module to stderr after each pass."),
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            metavar="NAME",
            help="Compile for another architecture than FILE names, or for a device: the JSON of "
            "its properties, or a .json file with it.",
            autocompletion=completion.target_names,
        ),
    ] = None,
    print_debuginfo: Annotated[
        bool, typer.Option("--mlir-print-debuginfo", help="Print the location of each operation.")
    ] = False,
    print_op_generic: Annotated[
        bool, typer.Option("--mlir-print-op-generic", help="Print operations in the generic form.")
    ] = False,
    print_irdl: Annotated[
        bool,
        typer.Option(
            "--print-irdl",
            is_eager=True,
            callback=_print_irdl,
            help="Print the dialect in IRDL, which mlir-opt --irdl-file loads, and nothing else.",
        ),
    ] = False,
    list_passes: Annotated[
        bool,
        typer.Option(
            "--list-passes",
            is_eager=True,
            callback=_list_passes,
            help="Print the passes and the rewrite patterns, and nothing else.",
        ),
    ] = False,
) -> None:
    """Runs passes over a module and prints it.

    Passes of dnnc: verify, canonicalize-graph, expand-composites, apply-patterns, fuse,
    select-engine, prepare-fusions, lower-to-linalg, tile, lower-to-kernels, assign-workspace,
    lower-to-nvvm.  --list-passes says what each does, and names the rewrite patterns.

    An error in one part of a split file is printed, the parts after it still run, and the exit
    status is 1.
    """
    from .. import passes

    after = _print_module if print_between_passes else _ignore
    text, named = _module_text(file)  # a graph file may register passes
    steps = passes.parse_pipeline(pipeline)
    row = _one_row(target_or(target, named))
    steps = [_ranked_for(step, row) for step in steps]
    form = {"enable_debug_info": print_debuginfo, "print_generic_op_form": print_op_generic}
    problems: list[Diagnostic] = []
    printed: list[str] = []
    for part in _parts(text) if split_input_file else [text]:
        made, errors = _run_part(part, files.label(file), steps, row, after, form)
        problems += differences(expected_in(part), errors) if verify_diagnostics else errors
        if made is not None:
            printed.append(made)
    console.raw(f"{SEPARATOR}\n".join(printed))
    for problem in problems:
        console.show_problem(problem.shown(files.label(file)))
    if problems:
        raise typer.Exit(1)


def _module_text(file: str) -> tuple[str, Any]:
    """(the module of a file as text, the target that the file names, if it is no text itself).

    Graphs of other files are written as a module, with the places of operations in a program.
    """
    files.suffix_of(file, (".mlir", ".json", ".py"))
    if _is_text(files.label(file)):
        return files.read_text(file), None
    from ..dialect import dnn

    source = files.read_source(file)
    with dnn.context():
        module = dnn.to_mlir(source.graph)
        return module.operation.get_asm(enable_debug_info=True), source.target


def _is_text(file: str) -> bool:
    """Whether a file, by the name that messages have, holds the module itself."""
    return file == files.label(files.STDIN) or file.endswith(".mlir")


def _one_row(target: Any) -> Target | None:
    """The one target to compile for, if something is named: a module has one."""
    if target is None:
        return None
    rows = target_rows(target)
    if len(rows) != 1:
        names = ", ".join(row.name for row in rows)
        raise DnncError(Status.BAD_PARAM, f"targets {names}", "one: --target NAME", "dnnc opt")
    return rows[0]


def _ranked_for(step: Any, row: Target | None) -> Any:
    """The pass, which ranks for a device's SMs unless its options say how many."""
    sm_count = other_sm_count([row] if row else [])
    is_free = getattr(step, "sm_count", None) == 0
    return replace(step, sm_count=sm_count) if is_free and sm_count else step


def _parts(text: str) -> Iterator[str]:
    """The parts of a split file, each behind as many empty lines as stood before it."""
    before = 0
    part: list[str] = []
    for line in [*text.splitlines(keepends=True), SEPARATOR]:
        part.append(line)
        if line.rstrip() == SEPARATOR:
            yield "\n" * before + "".join(part[:-1])
            before += len(part)
            part = []


def _run_part(
    text: str,
    file: str,
    steps: Any,
    target: Any,
    after: Callable[[str, Any], None],
    form: Mapping[str, bool],
) -> tuple[str | None, list[Diagnostic]]:
    """(the module after the passes, None if there were errors; the errors).

    file: the name of what has the text.  form: how MLIR prints it.
    """
    from .. import mlir, passes
    from ..codegen.stretch import marked, read_marks
    from ..dialect import dnn
    from ..mlir import ir
    from ..passes import stages, unchanged

    with dnn.context():
        try:
            module = mlir.parse(text, file)
            read_marks(module)
            if "dnn.graph" in text:
                unchanged.verify(module, stages.stage_of(module))
            if target is not None:
                module.operation.attributes["dnn.target"] = ir.StringAttr.get(target.name)
            passes.run(module, steps, after)
        except DnncError as error:
            return None, _diagnostics_of(error, text, file)
        made = marked(module, **form)
    return made if made.endswith("\n") else made + "\n", []


def _diagnostics_of(error: DnncError, text: str, file: str) -> list[Diagnostic]:
    """MLIR's errors behind an error, at their places; else the error at its place.

    One of no place is at the first line of a text.
    """
    from ..mlir import place_of

    behind = getattr(error.__cause__, "error_diagnostics", None)
    if not behind:
        made_at, error.made_at = error.made_at, None
        return [_diagnostic(str(error), made_at, text, file)]
    return [_diagnostic(each.message, place_of(each.location, file), text, file) for each in behind]


def _diagnostic(said: str, place: Place | None, text: str, file: str) -> Diagnostic:
    if place is None:
        return Diagnostic(_first_line(text) if _is_text(file) else 0, said)
    return Diagnostic(place.line, said, place.column, "" if place.file == file else place.file)


def _first_line(text: str) -> int:
    """The number of the first line that holds more than a comment."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("//"):
            return number
    return 1


# ---- printing between passes


def _print_module(name: str, module: Any) -> None:
    typer.echo(f"// ----- after {name}\n{module}", err=True)


def _ignore(name: str, module: Any) -> None:
    pass
