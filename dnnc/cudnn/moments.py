"""The step at which a graph is refused, and the class of the error, as in cudnn-frontend.

dnnc checks all of a graph when it is validated.  cudnn-frontend leaves some checks to the steps
after: those of cuDNN's descriptors are a RuntimeError of `build_operation_graph`, and what no
engine takes is a cudnnGraphNotSupportedError of `create_execution_plans`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import DnncError, DnncRuntimeError, Status, cudnnGraphNotSupportedError

VALIDATE = "validate"
BUILD = "build_operation_graph"
PLAN = "create_execution_plans"


class Refusal(NamedTuple):
    """An error, and the step that raises it."""

    step: str
    error: DnncError


# Operations whose shapes cudnn-frontend checks itself.  cuDNN's descriptors check those of others,
# and the ranks of a matmul.
_OWN_SHAPES = ("pointwise", "matmul", "slice", "concatenate")

# Operations whose constraints cudnn-frontend checks itself, when it validates; those of numbers of
# heads are cudnnGraphNotSupportedErrors there.
_VALIDATED = ("sdpa", "sdpa_fp8", "sdpa_backward", "sdpa_fp8_backward")
_UNSUPPORTED = ("C2", "C10")


def refusal(error: DnncError) -> Refusal:
    """When cudnn-frontend would refuse a graph that dnnc refuses, and with which error."""
    operation, constraint = _place(error.where)
    if error.status.category is Status.NOT_SUPPORTED:
        return Refusal(VALIDATE if operation in _VALIDATED else PLAN, error)
    if operation in _VALIDATED and constraint in _UNSUPPORTED:
        return Refusal(VALIDATE, _as_unsupported(error))
    is_shape = error.status is Status.BAD_PARAM_SHAPE_MISMATCH
    is_own = operation in _OWN_SHAPES and (operation, constraint) != ("matmul", "C1")
    if is_shape and constraint and not is_own and operation != "transpose":
        return Refusal(BUILD, as_runtime(error))
    if operation == "transpose" and constraint:
        return Refusal(VALIDATE, as_runtime(error))
    return Refusal(VALIDATE, error)


def as_runtime(error: DnncError) -> DnncError:
    """The error as a RuntimeError."""
    return _like(error, DnncRuntimeError, error.status)


def _as_unsupported(error: DnncError) -> DnncError:
    return _like(error, cudnnGraphNotSupportedError, Status.NOT_SUPPORTED_GRAPH_PATTERN)


def _like(error: DnncError, kind: type[DnncError], status: Status) -> DnncError:
    """The error as one of another class."""
    texts = (error.what, error.supported, error.where)
    return kind(status, *texts, made_at=error.made_at, details=error.details)


def unsupported(what: str, supported: str, where: str) -> Refusal:
    """A graph that no engine takes."""
    status = Status.NOT_SUPPORTED_GRAPH_PATTERN
    return Refusal(PLAN, cudnnGraphNotSupportedError(status, what, supported, where))


def _place(where: str) -> tuple[str, str]:
    """("matmul", "C1") of "matmul 'qk' (C1)", as operations name the place of an error."""
    found = re.search(r"\((C\d+)\)", where)
    return re.split(r"[ :]", where, maxsplit=1)[0], found.group(1) if found else ""
