"""The one error of the interpreter."""

from __future__ import annotations

from ..errors import DnncRuntimeError, Status


class InterpreterError(DnncRuntimeError):
    """A kernel did what the hardware does not define, or what the interpreter does not know.

    The status is always EXECUTION_FAILED.  where: kernel and line of PTX.  what: the
    instruction's text, what went wrong, and the CTA, warp and lane where they apply.
    """


def failure(what: str, where: str = "") -> InterpreterError:
    """An `InterpreterError` with these words."""
    made = InterpreterError(Status.EXECUTION_FAILED, what, "", where)
    assert isinstance(made, InterpreterError)
    return made
