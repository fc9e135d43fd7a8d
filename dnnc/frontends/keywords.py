"""Calls with keywords that nobody knows, or with values of a wrong type, are told what is known."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any

from .. import given

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def explain_keywords(kind: type, but: Collection[str] = (), shown: str = "") -> None:
    """Has a class's public methods, and what makes its objects, refuse wrong calls by name.

    An unknown keyword is told the nearest known one; a value that the parameter's annotation
    excludes is told what is accepted (`given.checked`).  but: methods that are left as they are,
    which every microsecond counts in.  shown: what errors call the class (default: its name).
    """
    made: dict[Any, Callable[..., Any]] = {}  # of two names for one method there is one
    for name, method in list(vars(kind).items()):
        is_public = name == "__init__" or not name.startswith("_")
        if is_public and name not in but and inspect.isfunction(method):
            of = shown or kind.__name__
            if method not in made:
                called = of if name == "__init__" else f"{of}.{name}"
                made[method] = explained(method, called)
            setattr(kind, name, made[method])


def explained(method: Callable[..., Any], shown: str) -> Callable[..., Any]:
    """The method; shown: what errors call it."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    checked = given.checked(method)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return checked
    known = [p.name for p in parameters if p.kind in _NAMED]
    names = frozenset(known)

    @functools.wraps(method)
    def explaining(*args: Any, **kwargs: Any) -> Any:
        if not names.issuperset(kwargs):
            raise TypeError(_unknown(shown, kwargs, known))
        return checked(*args, **kwargs)

    return explaining


def _unknown(shown: str, used: Iterable[str], known: list[str]) -> str:
    said: list[str] = []
    for name in used:
        if name not in known:
            same = [other for other in known if other.lower() == name.lower()]
            near = same or difflib.get_close_matches(name, known, 1, 0.5)
            said.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    takes = ", ".join(known) or "none"
    return f"{shown}() has no keyword {', '.join(said)}; accepted: {takes}"
