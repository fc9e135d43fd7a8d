"""Recursive functions whose depth Python's stack does not bound.

A graph may be thousands of operations deep.  A function over it that is easiest to write as a
recursion is written as a generator that yields the calls of itself and gets their results:

    def depth(op):                       # before
        return 1 + max(depth(other) for other in op.needs)

    def _depth(op):                      # after: evaluated(_depth(op))
        found = []
        for other in op.needs:
            found.append((yield _depth(other)))
        return 1 + max(found)
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

_T = TypeVar("_T")

Steps = Generator["Steps[Any]", Any, _T]  # yields calls, gets their results


def evaluated(call: Steps[_T]) -> _T:
    """The result of a call; the calls that it yields are evaluated as it needs them."""
    calls: list[Steps[Any]] = [call]
    result: Any = None
    while calls:
        try:
            following = calls[-1].send(result)
        except StopIteration as end:
            calls.pop()
            result = end.value
        else:
            calls.append(following)
            result = None
    return result
