"""Writes dnnc/frontends/operations.pyi: the operation methods of a pygraph, for editors.

    python docs/generate_stubs.py            rewrites it
    python docs/generate_stubs.py --check    exits 1 if it is not current

The methods are made as dnnc is imported, of the operations' fields; type checkers run no code.
Parameters, defaults, types of results and docstrings are those that `help` shows, without the
constraints of the operations.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

# This checkout's dnnc.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dnnc.frontends import argument_types
from dnnc.frontends.operations import Operations
from dnnc.frontends.signatures import CONSTRAINTS, is_required, signatures

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "dnnc" / "frontends" / "operations.pyi"

_HEAD = """\
# python docs/generate_stubs.py writes this file, from the operations' fields.
# ruff: noqa: E501
from typing import Literal, SupportsIndex, overload

from ..dialect.tensor import Tensor
from ..expr import Size
from . import enums
from .argument_types import {names}
from .graph_tensor import GraphTensor

class Operations:
    {doc}
"""


def text() -> str:
    """The whole file."""
    methods = {n: m for n, m in vars(Operations).items() if inspect.isfunction(m)}
    body = "\n".join(line for name in methods for line in _method(name, methods))
    used = set(re.findall(r"\w+", body))
    names = sorted(name for name in vars(argument_types) if name in used and name in _own_names())
    head = _HEAD.format(names=", ".join(names), doc=_docstring(Operations, 4).strip())
    return _formatted(head + body + "\n")


def _own_names() -> set[str]:
    """The types that the module defines, without those that it imports."""
    source = inspect.getsource(argument_types)
    return set(re.findall(r"^(\w+): TypeAlias", source, re.MULTILINE))


def _method(name: str, methods: dict[str, Any]) -> Iterator[str]:
    """A method, once for each of its overloads; a second name of one is an assignment."""
    method = methods[name]
    if method.__name__ != name:
        yield f"    {name} = {method.__name__}"
        return
    forms = list(signatures(name, inspect.signature(method)))
    for signature in forms:
        if len(forms) > 1:
            yield "    @overload"
        yield f"    def {name}({_parameters(name, signature)}) -> {signature.return_annotation}:"
        yield _docstring(method, 8) if signature is forms[0] else "        ..."


def _parameters(method: str, signature: inspect.Signature) -> str:
    listed = ["self"]
    for p in list(signature.parameters.values())[1:]:
        if p.kind is p.KEYWORD_ONLY and "*" not in listed:
            listed.append("*")
        default = "" if p.default is p.empty else f" = {_default(method, p)}"
        listed.append(f"{p.name}: {p.annotation}{default}")
    return ", ".join(listed)


def _default(method: str, parameter: inspect.Parameter) -> str:
    """The default as it is written; `...` where Python has one of what must be given."""
    if is_required(method, parameter):
        return "..."
    default = parameter.default
    return f"enums.{default}" if isinstance(default, Enum) else repr(default)


def _docstring(documented: Any, indent: int) -> str:
    text = inspect.cleandoc(documented.__doc__).partition(CONSTRAINTS)[0]
    mark = "r" if "\\" in text else ""
    end = "\n" if "\n" in text else ""
    return textwrap.indent(f'{mark}"""{text}{end}"""', " " * indent)


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", STUB, "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def main(arguments: Sequence[str], path: Path = STUB) -> int:
    """Writes the file, or with --check says whether it is current; gives the exit status."""
    made = text()
    if "--check" not in arguments:
        path.write_text(made)
        return 0
    if path.exists() and path.read_text() == made:
        return 0
    print(f"{path.name} is not current; run python docs/generate_stubs.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
