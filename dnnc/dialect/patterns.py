"""Rewrite patterns: of one operation, and of a whole fusion.

    softmax(x)                   ->  max, sub, exp, add, reciprocal, mul        `Op.expand`
    conv_fprop(x f16, w i8)      ->  identity(w) f16, conv_fprop                `operand_types`
    transpose(transpose(x))      ->  transpose(x)                               `merged_views`

    views at a fusion's borders  ->  strides of its inputs and outputs          `fusion_borders`
    reshape [N, C] to [N, C/4, 4]  ->  all of the fusion over [N, C/4, 4]       `views.refined`
    conv_fprop of one tap        ->  a matmul for each image, all around it too  `conv.product`

A pattern of operations (`Pattern`) changes no argument of a function.  A pattern of fusions
(`FusionPattern`) may give inputs and outputs other dims and strides.  Either is written once, over
`Op` or `Fusion`, and applied in two places.  `fusion.rewritten_fusion` applies a list of them in
Python, where engines are asked which fusions they take: no module exists there yet.
`rewriting.rewrite` applies the same list to a function of a module, by MLIR's greedy driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..errors import DnncError, Status
from .op import Op
from .tensor import Tensor

if TYPE_CHECKING:
    from .fusion import Fusion

_MOST_DEPTH = 100  # rewrites of what a rewrite gives

FUNCTION = "func.func"

# Tensor -> the operation that makes it; None: it is an input or a constant.
Producer = Callable[[Tensor], Op | None]


@dataclass(frozen=True, eq=False)
class Pattern:
    """A rewriting of the operations of one class.

    kind: the class; operations of its subclasses are others.
    rewrite: called with an operation, which is verified, and a `Producer`; gives the operations
    that make its results, in order, or None where the operation stays.  What it gives is rewritten
    again, until no pattern matches.
    name: as `dnnc opt` takes it (default: the function's).
    """

    kind: type[Op]
    rewrite: Callable[[Any, Producer], Sequence[Op] | None]
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or _name_of(self.rewrite))

    @property
    def root(self) -> str:
        """The name of the operation that it rewrites."""
        return f"dnn.{self.kind.op_name}"


@dataclass(frozen=True, eq=False)
class FusionPattern:
    """A rewriting of a whole fusion, whose function it replaces.

    rewrite: called with a fusion; gives the one that stands for it, by `Fusion.with_ops`, or None
    where it stays.  Inputs and outputs keep their uids, hence their memory, and outputs their
    order; dims, strides and types may be others.  It is asked once: what it gives stays.
    name: as `dnnc opt` takes it (default: the function's).
    """

    rewrite: Callable[[Fusion], Fusion | None]
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or _name_of(self.rewrite))

    @property
    def root(self) -> str:
        """The name of the operation that it rewrites."""
        return FUNCTION


AnyPattern = Pattern | FusionPattern


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)  # an object that is called
    return name.strip("_").replace("_", "-")


@cache
def in_steps(patterns: tuple[AnyPattern, ...]) -> list[tuple[FusionPattern | Pattern, ...]]:
    """Patterns as they are applied, one step after the other: those of a kind that follow each
    other are one step."""
    return [tuple(run) for _, run in groupby(patterns, key=type)]


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
        made = tuple(
            Pattern(kind, _expand, f"expand-{kind.op_name.replace('_', '-')}")
            for kind in kinds
            if kind.expand is not Op.expand
        )
        _expansions.update(kinds=kinds, patterns=made)
    return _expansions["patterns"]


_expansions: dict[str, Any] = {}  # those of the operations that were known last


def _expand(op: Op, producer: Producer) -> Sequence[Op] | None:
    """The operations that it stands for."""
    return op.expand()
