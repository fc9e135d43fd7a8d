"""Keys of what compilations make: hashes of everything that they depend on."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from . import __version__, outside, tools
from .options import Options

# Parts of the package that no compilation depends on.
_NOT_COMPILING = ("cli", "interpreter", "runtime", "__pycache__")


def hash_of(*parts: Any) -> str:
    """The SHA-256, in hexadecimal digits, of values and of dnnc's version.

    Values: None, booleans, numbers, texts, bytes, and sequences, mappings with texts as keys and
    dataclasses of these, all of whose fields count.  Any other is a TypeError: a value that has
    no canonical form must not be left out of a key unseen.
    """
    text = json.dumps([__version__, *map(_canonical, parts)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"sha256": hashlib.sha256(value).hexdigest()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: _canonical(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        if all(isinstance(key, str) for key in entries):
            return {key: _canonical(item) for key, item in entries.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in cast("Sequence[Any]", value)]
    raise TypeError(f"no key of a {type(value).__name__}")


def plan_key(graph_text: str, targets: Sequence[str], options: Options) -> str:
    """The key of a plan: of its graph, its targets by name, all options, the tools' versions, and
    the engines from outside the package that are asked, too.

    graph_text: `OperationGraph.canonical_text()`.
    """
    more = [[engine.name, engine.index] for engine in outside.engines()]
    return hash_of(
        "plan", graph_text, list(targets), options, tools.versions(), *([more] if more else [])
    )


@functools.cache
def installation() -> str:
    """The SHA-256 of what compiles here and has no version in a key.

    A key names dnnc and its tools by their versions.  What outlives a process is told apart by
    this, too: whoever changes an engine must not get the code of the one before.
    """
    return hash_of(_sources(), _unversioned_assembler())


def _unversioned_assembler() -> list[Any]:
    """Path, size and time of the ptxas that is used where its package is not installed."""
    path = shutil.which("ptxas")
    if path is None or tools.versions()["nvidia-cuda-nvcc"] != "absent":
        return []
    status = os.stat(path)
    return [path, status.st_size, status.st_mtime_ns]


def _sources() -> str:
    found = hashlib.sha256()
    package = os.path.dirname(os.path.abspath(__file__))
    for path in sorted(_modules(package)):
        with open(path, "rb") as file:
            data = file.read()
        found.update(f"{os.path.relpath(path, package)} {len(data)}\n".encode())
        found.update(data)
    return found.hexdigest()


def _modules(package: str) -> Iterator[str]:
    for folder, inside, files in os.walk(package):
        inside[:] = [name for name in inside if name not in _NOT_COMPILING]
        for name in files:
            if name.endswith((".py", ".json")):
                yield os.path.join(folder, name)
