"""A plan as C: a header and a source on the CUDA driver API, with no dnnc at run time.

What the runtime does from a plan in Python, the generated functions do in C99; docs/c.md is for
those who call them.
"""

from __future__ import annotations

import os
from pathlib import Path

from .. import given
from ..errors import DnncError, Status
from ..plan.format import write_whole
from ..plan.plan import Plan
from .header import header
from .interface import Interface
from .names import prefix
from .source import source

SUFFIXES = (".h", ".c")


def c_text(plan: Plan, name: str) -> tuple[str, str]:
    """(header, source) of a plan; name: what its names begin with, made an identifier."""
    interface = Interface(plan, prefix(name))
    return header(interface), source(interface)


def write_c(path: str | os.PathLike[str], plan: Plan) -> tuple[Path, Path]:
    """Writes a plan as C; gives the paths of the header and of the source.

    path: of either, or without a suffix.  Its last part is what the names in C begin with: "ffn"
    writes ffn.h and ffn.c with `ffn_load`, `ffn_workspace_size`, `ffn_run` and `ffn_unload`; what
    is no identifier is made one, in the names of the files too.  The same plan gives the same
    bytes.  What can't be written is BAD_PARAM; an argument that C has no form for, of a plan that
    dnnc did not compile, is NOT_SUPPORTED.
    """
    _verify(path, plan)
    whole = Path(path)
    named = whole.with_suffix("") if whole.suffix in SUFFIXES else whole
    if not named.name:
        raise DnncError(Status.BAD_PARAM, f"the path {path!r}", "a path with a name")
    texts = c_text(plan, named.name)
    paths = tuple(named.with_name(prefix(named.name) + suffix) for suffix in SUFFIXES)
    for each, text in zip(paths, texts, strict=True):
        write_whole(each, text.encode())
    return paths[0], paths[1]


def _verify(path: object, plan: object) -> None:
    """Callers are not all typed."""
    if not given.is_path(path) or not isinstance(plan, Plan):
        what = f"a {type(path).__name__} and a {type(plan).__name__}"
        raise DnncError(Status.BAD_PARAM, what, "a path, then a plan")
