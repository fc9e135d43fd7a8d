"""Operations of other packages: classes of `Op` that are made of the package's own operations.

    class Centre(Op): ...                  op_name, fields, infer, verify, expand, reference
    dnnc.operations.register(Centre)       g.centre(x), `dnn.centre` in MLIR and JSON

`expand` says what an operation is made of, so that every engine takes it with its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from . import outside
from .dialect.expansion import Steps
from .dialect.op import Op, attribute, operand, result
from .dialect.ops import BY_NAME
from .errors import DnncError, Status
from .frontends.keywords import explained
from .frontends.methods import operation_method
from .frontends.operations import Operations
from .frontends.pygraph import pygraph
from .frontends.signatures import describe

__all__ = ["Op", "Steps", "attribute", "operand", "register", "registered", "result"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def register(kind: type[Op]) -> None:
    """Adds an operation from outside the package, for the rest of this process.

    Graphs get a method of its name.  While there is one, graphs are compiled in this process, and
    plans are neither taken from the cache nor kept there.  The name, of lower-case letters, digits
    and `_`, is no other method's.
    """
    _verify(kind)
    name = kind.op_name
    BY_NAME[name] = kind
    method = operation_method(kind)
    describe({name: method})
    setattr(Operations, name, explained(method, f"pygraph.{name}"))
    outside.set_operations((*outside.operations(), name))


@contextmanager
def registered(*kinds: type[Op]) -> Generator[None]:
    """Registers operations for the length of a `with` statement."""
    before = outside.operations()
    try:
        for kind in kinds:
            register(kind)
        yield
    finally:
        for name in outside.operations()[len(before) :]:
            del BY_NAME[name]
            delattr(Operations, name)
        outside.set_operations(before)


def _verify(kind: Any) -> None:
    def error(what: str, accepted: str) -> DnncError:
        return DnncError(Status.BAD_PARAM, what, accepted, "dnnc.operations.register")

    if not (isinstance(kind, type) and issubclass(kind, Op)):
        raise error(f"{kind!r:.80}", "a subclass of dnnc.operations.Op")
    name = getattr(kind, "op_name", "")
    if _NAME.fullmatch(name) is None or name in BY_NAME or hasattr(pygraph, name):
        accepted = "lower-case letters, digits and _, no name of another operation or method"
        raise error(f"op_name {name!r}", accepted)
    if not kind.is_composite or kind.expand is Op.expand:
        accepted = "is_composite = True, and `expand` into operations that engines know"
        raise error(f"operation {name}, which expands into no others", accepted)
