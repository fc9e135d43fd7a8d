"""`dnnc bundle`: many plans in one file, for a whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ..errors import DnncError, Status
from ..plan.format import SUFFIX, Bundle, to_bytes, write_whole
from ..plan.plan import Plan
from ..visible import counted
from . import console, files


def register(app: typer.Typer) -> None:
    console.add_command(
        app,
        "bundle",
        bundle,
        "dnnc bundle model.dnnplan ffn_in.dnnplan ffn_out.dnnplan",
        "dnnc bundle model.dnnplan layer0=a.dnnplan layer1=b.dnnplan; "
        "dnnc run model.dnnplan --plan layer0 --random",
        "dnnc inspect model.dnnplan",
    )


def bundle(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write: .dnnplan.")],
    plans: Annotated[
        list[str],
        typer.Argument(
            metavar="PLAN...",
            help="A .dnnplan file; all plans of one that is a bundle.  NAME=FILE renames a plan.",
        ),
    ],
) -> None:
    """Writes many plans to one file, for a whole model.

    Code that several plans have is stored once.  Names have to differ.  The file is opened by
    dnnc.load_bundle, which reads a plan when it is asked for; every command that takes a PLAN
    takes it with --plan NAME.
    """
    files.suffix_of(str(out), (SUFFIX,))
    found = [plan for argument in plans for plan in _plans_of(argument)]
    _verify_names(found, plans)
    data = to_bytes(found)
    write_whole(str(out), data)
    _show(out, found, len(data))


def _plans_of(argument: str) -> Iterator[Plan]:
    name, path = _parts(argument)
    files.suffix_of(path, (SUFFIX,))
    opened = Bundle(path)
    if name is None:
        yield from (opened.plan(each) for each in opened.names)
        return
    if len(opened.names) != 1:
        raise DnncError(
            Status.BAD_PARAM,
            f"{name}={path} names a bundle of {len(opened.names)} plans",
            "NAME=FILE of a file with one plan",
            path,
        )
    yield replace(opened.plan(), name=name)


def _parts(argument: str) -> tuple[str | None, str]:
    """(name, path) of NAME=FILE; a file that is there is no such pair, whatever its name."""
    name, equals, path = argument.partition("=")
    is_pair = equals and name and not Path(argument).exists()
    return (name, path) if is_pair else (None, argument)


def _verify_names(plans: Sequence[Plan], arguments: Sequence[str]) -> None:
    names = [plan.name for plan in plans]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DnncError(
            Status.BAD_PARAM_DUPLICATED_ENTRIES,
            f"several plans are called {', '.join(map(repr, twice))}",
            "a name each: NAME=FILE gives another",
            ", ".join(arguments),
        )


def _show(out: Path, plans: Sequence[Plan], size: int) -> None:
    code = [blob for plan in plans for blob in plan.blobs]
    shared = sum(map(len, code)) - sum(map(len, set(code)))
    console.heading(f"{out}: {counted(len(plans), 'plan')}, {size:,} bytes")
    if shared:
        console.field("shared", f"{shared:,} bytes of code that several plans have")
    for plan in plans:
        console.field("plan", f"{plan.name} ({', '.join(p.target for p in plan.programs)})")
