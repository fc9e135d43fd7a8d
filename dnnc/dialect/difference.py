# pyright: basic
"""Where two pieces of IR differ: operations, attributes, types, and how values flow."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ..mlir import attributes_of, ir


@dataclass(frozen=True)
class Difference:
    """operation: of the first piece, None where it has fewer.  what: how it differs there.
    wanted: what the second piece has."""

    operation: Any
    what: str
    wanted: str


def first_difference(
    actual: Any,
    wanted: Any,
    ignored: Collection[str] = (),
    is_free: Callable[[Any, Any], bool] = lambda actual, wanted: False,
) -> Difference | None:
    """Where an operation first differs from another of the same context, with all inside.

    ignored: attributes of the two operations themselves that may differ.  is_free: whether what
    is inside two operations, which are alike themselves, may differ.
    """
    return _operations(actual, wanted, {}, ignored, is_free)


def _operations(
    actual: Any,
    wanted: Any,
    values: dict[Any, Any],
    ignored: Collection[str],
    is_free: Callable[[Any, Any], bool],
) -> Difference | None:
    if actual.name != wanted.name:
        return Difference(actual, actual.name, wanted.name)
    mine, theirs = attributes_of(actual), attributes_of(wanted)
    for key in sorted((mine.keys() | theirs.keys()) - set(ignored)):
        if key not in mine or key not in theirs or mine[key] != theirs[key]:
            is_there = f"{key} of {actual.name} = {mine.get(key)}"
            what = is_there if key in mine else f"{actual.name} without {key}"
            given = f"{key} = {theirs[key]}" if key in theirs else f"no {key}"
            return Difference(actual, what, given)
    for position, (value, other) in enumerate(zip_longest(actual.operands, wanted.operands)):
        if value is None or other is None or values.get(value) != other:
            what = f"operand {position} of {actual.name}"
            return Difference(actual, what, _spelled(wanted))
    types = [[result.type for result in op.results] for op in (actual, wanted)]
    if types[0] != types[1]:
        said, meant = (", ".join(map(str, t)) for t in types)
        return Difference(actual, f"result of {actual.name} of type {said}", meant)
    values.update(zip(actual.results, wanted.results, strict=True))
    if is_free(actual, wanted):
        return None
    for region, other in zip_longest(actual.regions, wanted.regions):
        found = _blocks(actual, region, other, values, is_free)
        if found is not None:
            return found
    return None


def _blocks(
    parent: Any, actual: Any, wanted: Any, values: dict[Any, Any], is_free: Any
) -> Difference | None:
    mine, theirs = ([] if r is None else list(r.blocks) for r in (actual, wanted))
    if len(mine) != len(theirs):
        return Difference(parent, f"{len(mine)} blocks in {parent.name}", f"{len(theirs)}")
    for block, other in zip(mine, theirs, strict=True):
        types = [[argument.type for argument in b.arguments] for b in (block, other)]
        if types[0] != types[1]:
            return Difference(parent, f"arguments of {parent.name}", ", ".join(map(str, types[1])))
        values.update(zip(block.arguments, other.arguments, strict=True))
        for view, meant in zip_longest(block.operations, other.operations):
            if view is None:
                return Difference(parent, f"the end of {parent.name}", _spelled(meant.operation))
            if meant is None:
                return Difference(view.operation, view.operation.name, "nothing")
            found = _operations(view.operation, meant.operation, values, (), is_free)
            if found is not None:
                return found
    return None


def _spelled(operation: Any) -> str:
    text = operation.get_asm(assume_verified=True).splitlines()[0].strip()
    return text if len(text) <= 120 else f"{text[:117]}..."


def has_only(operation: Any, names: Collection[str]) -> bool:
    """Whether the one block of an operation holds only these operations, none of an index."""
    for view in operation.regions[0].blocks[0].operations:
        op = view.operation
        if op.name not in names or any(isinstance(r.type, ir.IndexType) for r in op.results):
            return False
    return True
