# pyright: basic
"""Loops and branches whose state is a named record.

A record is a dataclass, a list or a tuple of records, values, ints (i32 in the loop) and None
(nothing is carried).  Its values are carried in the order of its fields.

    @dataclass(frozen=True)
    class Mainloop:
        here: Cursor
        sums: list[Any]

    @loop(0, steps, state=Mainloop(Cursor(), zeros))
    def end(i, now):
        ...
        return replace(now, here=now.here.next(stages))

    end.sums        # `end` is the record after the last round, and no function

The body runs once, at once.  A value made in the body is known inside only: what is used after the
loop has to be in the record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..mlir import ir
from . import ops
from .value import wrapped

Body = Callable[..., Any]


def loop(low: Any, high: Any, step: Any = 1, *, state: Any) -> Callable[[Body], Any]:
    """A counted loop: the decorated body(i, record) gives the next record, and its name becomes
    the record after the last round.

    TypeError: the body gives a record of another shape or of other types; it names the field.
    """

    def run(body: Body) -> Any:
        what, inits = _name_of(body), _values(state)

        def one(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            return _following(state, inits, body(i, _rebuilt(state, iter(carried))), what)

        return _rebuilt(state, iter(ops.for_(low, high, step, inits, one)))

    return run


def each(low: Any, high: Any, step: Any = 1) -> Callable[[Body], None]:
    """A counted loop that carries nothing: the decorated body(i)."""

    def run(body: Body) -> None:
        def one(i: Any, nothing: Sequence[Any]) -> Sequence[Any]:
            body(i)
            return nothing

        ops.for_(low, high, step, [], one)

    return run


def repeat(condition: Callable[[Any], Any], *, state: Any) -> Callable[[Body], Any]:
    """A loop that runs while condition(record) holds: the same of a body(record)."""

    def run(body: Body) -> Any:
        what, inits = _name_of(body), _values(state)

        def holds(carried: Sequence[Any]) -> Any:
            return condition(_rebuilt(state, iter(carried)))

        def one(carried: Sequence[Any]) -> Sequence[Any]:
            return _following(state, inits, body(_rebuilt(state, iter(carried))), what)

        return _rebuilt(state, iter(ops.while_(inits, holds, one)))

    return run


def chosen(condition: Any, state: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """A record like `state`: of `then` where a condition holds, or is None; else of `other`."""
    if condition is None:
        return then()
    like = _values(state)
    types = [made.type for made in like]
    branches = (
        lambda: _following(state, like, then(), "a branch"),
        lambda: _following(state, like, other(), "the other branch"),
    )
    return _rebuilt(state, iter(ops.either(condition, types, *branches)))


# ---- records


def _name_of(body: Body) -> str:
    return f"loop {getattr(body, '__name__', '')}".rstrip()


def _leaves(record: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value or int) of all that a record carries, in order."""
    if record is None:
        return
    if isinstance(record, ir.Value | int) and not isinstance(record, bool):
        yield path, record
    elif dataclasses.is_dataclass(record):
        for field in dataclasses.fields(record):
            yield from _leaves(getattr(record, field.name), f"{path}.{field.name}")
    elif isinstance(record, list | tuple):
        for number, part in enumerate(record):
            yield from _leaves(part, f"{path}[{number}]")
    else:
        raise TypeError(f"{path or 'state'}: a {type(record).__name__} can't be carried")


def _values(record: Any) -> list[Any]:
    return [ops.value_of(leaf) for _, leaf in _leaves(record)]


def _rebuilt(like: Any, values: Iterator[Any]) -> Any:
    """The record of the shape of another one."""
    if like is None:
        return None
    if isinstance(like, ir.Value | int):
        return wrapped(next(values))
    if dataclasses.is_dataclass(like) and not isinstance(like, type):
        names = [field.name for field in dataclasses.fields(like)]
        made = {name: _rebuilt(getattr(like, name), values) for name in names}
        return dataclasses.replace(like, **made)
    make: Any = type(like)
    parts: Any = like
    return make(_rebuilt(part, values) for part in parts)


def _following(state: Any, inits: Sequence[Any], given: Any, what: str) -> list[Any]:
    """The values of the record that a body gives, of the types that `state` begins with."""
    name, found = type(state).__name__, list(_leaves(given))
    wanted, got = [path for path, _ in _leaves(state)], [path for path, _ in found]
    if wanted != got:
        missing = ", ".join(name + path for path in wanted if path not in got)
        added = ", ".join(path or "a value" for path in got if path not in wanted)
        raise TypeError(
            f"{what} gives no {missing or 'such record'}; it gives {added or 'no more'}"
        )
    made = []
    for (path, leaf), init in zip(found, inits, strict=True):
        if isinstance(leaf, int) and isinstance(init.type, ir.IntegerType):
            leaf = ops.const(leaf, init.type)
        kind = "int" if isinstance(leaf, int) else leaf.type
        if kind != init.type:
            raise TypeError(f"{what}: {name}{path} is {init.type}, its body gives {kind}")
        made.append(leaf)
    return made
