# pyright: basic
"""Reads what the commands are given, and writes whole files or none.

A graph file is text of a stage (.mlir, .ptx), a graph's JSON form (.json) or Python (.py).
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..api import graph_of
from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..frontends.device_properties import DeviceProperties
from ..places import Place, is_own, place_of_raise
from ..plan import format
from ..plan.plan import Plan, Program

TEXT_SUFFIXES = (".mlir", ".ptx")
GRAPH_SUFFIXES = (*TEXT_SUFFIXES, ".json", ".py")
PLAN_SUFFIX = format.SUFFIX
CUBIN_SUFFIX = ".cubin"
STDIN = "-"
MAX_TEXT = 64 << 20  # bytes of a graph file


def suffix_of(path: str, accepted: Sequence[str]) -> str:
    """The suffix of a path (.mlir for stdin); one that is not accepted is BAD_PARAM."""
    suffix = ".mlir" if path == STDIN else Path(path).suffix
    if suffix not in accepted:
        raise DnncError(
            Status.BAD_PARAM, f"suffix {suffix!r}", ", ".join(accepted), where=Path(path).name
        )
    return suffix


def label(path: str) -> str:
    """How messages name a path."""
    return "stdin" if path == STDIN else path


def read_text(path: str) -> str:
    """A file's text, stdin's for `-`; what can't be read is BAD_PARAM."""
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(MAX_TEXT + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            raise DnncError(Status.BAD_PARAM, "a longer text", f"{MAX_TEXT} bytes", label(path))
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(label(path), error, "a text file that exists") from error


def read_bytes(path: str) -> bytes:
    """A file's bytes."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error, "a file that exists") from error


def _unreadable(path: str, error: OSError | UnicodeDecodeError, wanted: str) -> DnncError:
    said = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
    return DnncError(Status.BAD_PARAM, f"can't be read: {said}", wanted, where=path)


# ---- graphs


@dataclass(frozen=True)
class Source:
    """A graph file, read.

    stage: which its text is at; "graph" of a file that is no text.  target: the one that it
    names, if it does.  text: what a text file holds, from which a compilation resumes.
    """

    path: str
    graph: OperationGraph
    stage: str = "graph"
    target: str | DeviceProperties | None = None
    text: str = ""

    def resumed(self) -> Any:
        """The compilation from the text, inside a `dnn.context()`."""
        from .. import compiler

        return compiler.resume(self.text, file=label(self.path))


def read_source(path: str) -> Source:
    """A graph file; anything wrong with it is a DnncError that names it."""
    suffix = suffix_of(path, GRAPH_SUFFIXES)
    if suffix == ".json":
        return Source(path, _graph_of_json(path))
    return _source_of_python(path) if suffix == ".py" else _source_of_text(path)


def _source_of_text(path: str) -> Source:
    from .. import compiler
    from ..dialect import dnn

    text = read_text(path)
    try:
        with dnn.context():
            work = compiler.resume(text, file=label(path))
            graph = dnn.from_mlir(work.module)
    except DnncError as error:
        if error.made_at is not None:
            raise
        raise _placed(error, path) from error
    named = work.target.name if "dnn.target" in text else None
    return Source(path, graph, work.stage, named, text)


def _placed(error: DnncError, path: str) -> DnncError:
    """The error with the file's name."""
    where = f"{label(path)}: {error.where}" if error.where else label(path)
    return DnncError(error.status, error.what, error.supported, where)


def _placed_in_python(error: DnncError, where: str) -> DnncError:
    """The error with the line that it came of, or, where no line is known, with a place."""
    error.made_at = error.made_at or place_of_raise(error.__traceback__)
    return error if error.made_at is not None else _placed(error, where)


def _graph_of_json(path: str) -> OperationGraph:
    from ..dialect.json_form import from_json

    text = read_text(path)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DnncError(
            Status.BAD_PARAM, f"not JSON: {error}", "the JSON form of a graph", where=path
        ) from error
    try:
        return from_json(data)
    except DnncError as error:
        raise _placed(error, path) from error


def _source_of_python(path: str) -> Source:
    read_text(path)  # says what is wrong with the path
    made = _built(path)
    return Source(path, _finalized(made, path), target=getattr(made, "named_target", None))


class _NothingWritten(importlib.machinery.SourceFileLoader):
    """Loads a module and leaves no byte code in the user's folder."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        pass


def _built(path: str) -> Any:
    """Runs the file; gives what its build() returns."""
    file = Path(path).resolve()
    loader = _NothingWritten(file.stem, str(file))
    spec = importlib.util.spec_from_loader(file.stem, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))  # the file may import what lies beside it
    try:
        loader.exec_module(module)
        build = getattr(module, "build", None)
        made = build() if callable(build) else None
    except DnncError as error:
        raise _placed_in_python(error, path) from error
    except (Exception, SystemExit) as error:
        raise _failed_build(error, path, str(file)) from error
    finally:
        sys.path.remove(str(file.parent))
    if not callable(build):
        raise DnncError(Status.BAD_PARAM, "no function build()", _WANTED, where=path)
    return made


_WANTED = "a function build() that returns a dnnc.pygraph when it is called without arguments"


def _failed_build(error: BaseException, path: str, file: str) -> DnncError:
    """The error for an exception of the file's code, or of a method of dnnc that it called.

    file: the path that the file's code objects have.
    """
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno is not None:
        made_at = Place(file, error.lineno)
        return DnncError(Status.BAD_PARAM, what, _WANTED, made_at=made_at)
    trace, last = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            last = trace
        trace = trace.tb_next
    if last is None:
        return DnncError(Status.BAD_PARAM, what, _WANTED, where=path)
    is_refused = last.tb_next is not None and is_own(last.tb_next.tb_frame)
    supported = "" if is_refused else _WANTED  # else what dnnc refused says what it accepts
    return DnncError(Status.BAD_PARAM, what, supported, made_at=Place(file, last.tb_lineno))


def _finalized(made: Any, path: str) -> OperationGraph:
    try:
        return graph_of(made)
    except DnncError as error:
        raise _placed_in_python(error, f"{path}: build()") from error


# ---- plans


def read_plan(path: str, name: str | None = None) -> Plan:
    """The plan of a `.dnnplan` file; name: which one of a bundle."""
    return format.read(path, name)


def programs_of(plan: Plan, target: str | None) -> tuple[Program, ...]:
    """A plan's programs, or its program for one target; NOT_SUPPORTED_ARCH_MISMATCH for none."""
    found = tuple(p for p in plan.programs if target in (None, p.target))
    if not found:
        raise DnncError(
            Status.NOT_SUPPORTED_ARCH_MISMATCH,
            f"the plan has no code for {target}",
            ", ".join(p.target for p in plan.programs),
            f"plan '{plan.name}'",
        )
    return found
