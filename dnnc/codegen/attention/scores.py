# pyright: basic
"""Finds how scores follow from an attention's first product: factors of all of them, a cap, and
whether finite ones may be far from any that products give."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...mlir import ir
from ..region import Region
from ..scalars.matching import (
    body_of,
    extracts,
    is_single,
    leads_to,
    operand_of,
    pointwise,
    times_positive,
)
from ..scalars.math import allows
from ..walk.region_walk import indexing_maps, inputs_of
from .magnitudes import LARGE, Magnitudes, number_of
from .masks import Masks, masked_by
from .online_softmax import STEEP

_STEEP_FUNCTIONS = ("math.exp", "math.exp2", "math.expm1", "math.powf", "math.tan", "math.rsqrt")


@dataclass(frozen=True)
class Cap:
    """The tanh of scores.  value: what it gives.  inner: of what.  is_coarse: within 2.6e-6.
    is_exact: to nearest, or about."""

    value: Any
    inner: Any
    is_coarse: bool
    is_exact: bool


@dataclass(frozen=True, eq=False)
class ScoreSteps:
    """The generics between the first product and the maximum.

    first: what the product gives.  masks: those that come last.  of_bytes: whether operands have 8
    bits.
    """

    region: Region
    first: Any
    masks: Masks
    of_bytes: bool

    @cached_property
    def scaled(self) -> tuple[Any, Any, float] | None:
        """(what a product by a positive number gives, what it multiplies, the number), where only
        masks come after: S = number * T."""
        return times_positive(self.masks.inner)

    @cached_property
    def scaling(self) -> tuple[Any, Any, list[Any]] | None:
        """(what products by single numbers give, what they multiply, the numbers), where only masks
        come after: as `scaled`, but numbers may be in memory, and of any sign.  A number is a
        constant's operation or a tensor of one element."""
        value = self.masks.inner
        inner, numbers = value, list[Any]()
        while (found := self._single(inner)) is not None:
            inner, number = found
            numbers.append(number)
        return (value, inner, numbers) if numbers else None

    def _single(self, value: Any) -> tuple[Any, Any] | None:
        """(what a product multiplies, the one number)."""
        operation = pointwise(value)
        if operation is None or not leads_to(self.first, value):
            return None
        if [op.name for op in body_of(operation) if op.name != "arith.constant"] != ["arith.mulf"]:
            return None
        along = [v for v in inputs_of(operation) if leads_to(self.first, v)]
        others = [v for v in inputs_of(operation) if v not in along]
        numbers = [v for v in others if is_single(self.region, v)]
        numbers += [op for op in body_of(operation) if op.name == "arith.constant"]
        if (
            len(along) != 1
            or len(numbers) != 1
            or len(others) > 1
            or (others and others != numbers)
        ):
            return None
        return along[0], numbers[0]

    @cached_property
    def cap(self) -> Cap | None:
        """The one step that is a tanh of f32, of which exponentials alone are taken."""
        found = self.tanh
        return None if found is None or found.is_exact else found

    @cached_property
    def tanh(self) -> Cap | None:
        """The one step that is a tanh of f32 and nothing else."""
        found = [op for op in self._steps() if _has_tanh(op)]
        if len(found) != 1:
            return None
        (step,), body = found, body_of(found[0])
        maps = indexing_maps(step)
        is_plain = len(body) == 1 and len(inputs_of(step)) == 1 and maps[0] == maps[1]
        if not is_plain or not isinstance(body[0].results[0].type, ir.F32Type):
            return None
        inner, (tanh,) = inputs_of(step)[0], body
        return Cap(step.results[0], inner, allows(tanh, "contract"), not allows(tanh, "arcp"))

    @cached_property
    def may_be_far(self) -> bool:
        """Whether finite scores may be beyond any that products give: where numbers that are large,
        or of no known bound, as those in memory, are added or stand for masked scores, or where
        what scores are multiplied by is large, or not known."""
        steps = list(self._steps())
        factor = math.prod(self._growth(op) for op in steps)
        return factor >= STEEP or any(self._adds_far(op) for op in steps)

    def _growth(self, operation: Any) -> float:
        """The factor by which a generic makes scores larger at most; infinity: not known.

        Of bytes single numbers in memory count as 1: they are ordinary, or see `ScoreScale`.
        """
        found = 1.0
        for op in body_of(operation):
            if op.name in ("arith.mulf", "arith.divf"):
                if self.of_bytes and any(self._is_single(operation, v) for v in op.operands):
                    continue
                is_ratio = op.name == "arith.divf"
                others = list(op.operands)[1:] if is_ratio else op.operands
                number = next(filter(None, map(number_of, others)), None)
                if number is None:
                    return math.inf
                found *= max(1.0, 1 / number if is_ratio else number)
            elif op.name in _STEEP_FUNCTIONS:
                return math.inf
        return found

    def _is_single(self, operation: Any, value: Any) -> bool:
        """Whether a body's value is that of a tensor of one element."""
        operand = operand_of(operation, value)
        return operand is not None and is_single(self.region, operand)

    def _steps(self) -> Iterator[Any]:
        """The generics between the first product and the maximum, but for masks of -inf."""
        pending, seen = [self.masks.score], set[Any]()
        while pending:
            value = pending.pop()
            if value in seen or value == self.first or not leads_to(self.first, value):
                continue
            seen.add(value)
            if value.owner.name == "linalg.generic":
                masked = masked_by(value)
                pending += [*inputs_of(value.owner), *extracts(value.owner)]
                if masked is None:
                    yield value.owner

    def _adds_far(self, operation: Any) -> bool:
        return any(
            self._is_far(operation, term) for op in body_of(operation) for term in _alternatives(op)
        )

    def _is_far(self, operation: Any, value: Any) -> bool:
        """Whether a body's value, one of two that are added or chosen from, may be large."""
        known = self._magnitudes
        return known.of(operation, value) >= LARGE and not known.is_share_of_distance(
            operation, value
        )

    @cached_property
    def _magnitudes(self) -> Magnitudes:
        return Magnitudes(self.region, lambda tensor: leads_to(self.first, tensor))


def _alternatives(op: Any) -> list[Any]:
    """The alternatives that a sum adds, or a selection chooses from."""
    if op.name in ("arith.addf", "arith.subf", "arith.maximumf", "arith.minimumf"):
        return list(op.operands)
    return list(op.operands)[1:] if op.name == "arith.select" else []


def _has_tanh(operation: Any) -> bool:
    return any(op.name == "math.tanh" for op in body_of(operation))
