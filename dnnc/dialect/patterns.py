"""Rewrite patterns: one operation, and the operations that stand for it.

    softmax(x)                   ->  max, sub, exp, add, reciprocal, mul        `Op.expand`
    conv_fprop(x f16, w i8)      ->  identity(w) f16, conv_fprop                `operand_types`
    transpose(transpose(x))      ->  transpose(x)                               `merged_views`

A pattern is written once, over `Op`, and applied in two places.  `rewritten` applies it to
operations in Python, where engines are asked which fusions they take: no module exists there yet.
`rewriting.rewrite` applies it to the operations of a module, by MLIR's greedy driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import DnncError, Status
from .op import Op
from .tensor import Tensor

_MOST_DEPTH = 100  # rewrites of what a rewrite gives

# Tensor -> the operation that makes it; None: it is an input or a constant.
Producer = Callable[[Tensor], Op | None]


@dataclass(frozen=True)
class Pattern:
    """A rewriting of the operations of one class.

    kind: the class; operations of its subclasses are others.
    rewrite: called with an operation, which is verified, and a `Producer`; gives the operations
    that make its results, in order, or None where the operation stays.  What it gives is rewritten
    again, until no pattern matches.
    """

    kind: type[Op]
    rewrite: Callable[[Any, Producer], Sequence[Op] | None]


def in_place_of(op: Op, **values: Any) -> Any:
    """An operation like another one, with new virtual results, and with other values of fields."""
    made = op.with_tensors({t: replace(t, uid=None, is_virtual=True, is_output=False)
                            for t in op.results})  # fmt: skip
    for name, value in values.items():
        setattr(made, name, value)
    return made


def rewritten(ops: Iterable[Op], patterns: Sequence[Pattern]) -> list[Op]:
    """The operations, in order, each replaced by what the first pattern that matches gives."""
    found: list[Op] = []
    producers: dict[Tensor, Op] = {}

    def take(op: Op, depth: int) -> None:
        for pattern in patterns:
            if pattern.kind is type(op):
                steps = pattern.rewrite(op, producers.get)
                if steps is not None:
                    if depth == _MOST_DEPTH:
                        what = f"rewrite patterns still match {op.label} after {depth} rewrites"
                        accepted = "patterns that match nothing in the end"
                        raise DnncError(Status.BAD_PARAM, what, accepted)
                    for step in steps:
                        take(step, depth + 1)
                    return
        found.append(op)
        producers.update(dict.fromkeys(op.results, op))

    for op in ops:
        take(op, 0)
    return found


def expansions() -> tuple[Pattern, ...]:
    """A pattern for each operation with `Op.expand`, registered ones included."""
    from .ops import BY_NAME  # operations need NumPy

    kinds = tuple(BY_NAME.values())
    if _expansions.get("kinds") != kinds:
        made = tuple(Pattern(kind, _expand) for kind in kinds if kind.expand is not Op.expand)
        _expansions.update(kinds=kinds, patterns=made)
    return _expansions["patterns"]


_expansions: dict[str, Any] = {}  # those of the operations that were known last


def _expand(op: Op, producer: Producer) -> Sequence[Op] | None:
    return op.expand()
