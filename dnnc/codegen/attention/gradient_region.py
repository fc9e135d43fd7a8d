# pyright: basic
"""The parts of attention's gradient in a region of linalg operations; see
`engines.attention.bwd_pattern`.

    call S     scores' generics     exponential     P     call dV
    call dP    core = P * (dP - delta)     dS     calls dQ, dK

A kernel computes the exponentials and the core itself, and walks the rest: the scores on what S
gives, P on the exponentials, dS on the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...expr import Expr
from ...mlir import ir
from ..region import Region
from ..scalars.matching import body_of, extracts, leads_to, pointwise
from ..walk.region_walk import indexing_maps, inputs_of, is_reduction
from .mask_conditions import Anything, Both, Compare, Condition, Either, Linear, conjuncts
from .mask_reader import MaskReader
from .masks import Masked, Masks, masked_by
from .sources import Source, source_of, turns

_VIEWS = {"tensor.extract", "arith.constant", "linalg.index"}
_LINEAR = ({"arith.mulf"}, {"arith.truncf"}, {"arith.extf"}, set[str](), {"arith.divf"})


@dataclass(frozen=True, eq=False)
class GradientRegion:
    """SSA values of the parts."""

    region: Region

    # ---- products

    @cached_property
    def _calls(self) -> list[Any]:
        return [op for op in self.region.operations if op.name == "func.call"]

    @cached_property
    def _ahead(self) -> dict[Any, list[Any]]:
        """Call -> the calls whose results it multiplies something made of."""
        return {
            call: [
                other
                for other in self._calls
                if other != call
                and any(leads_to(other.results[0], value) for value in call.operands)
            ]
            for call in self._calls
        }

    @cached_property
    def call_v(self) -> Any:
        """The product that makes dV."""
        (found,) = (call for call in self._calls if len(self._ahead[call]) == 1)
        return found

    @cached_property
    def call_s(self) -> Any:
        return self._ahead[self.call_v][0]

    @cached_property
    def call_p(self) -> Any:
        """The product that makes dP."""
        first = [call for call in self._calls if not self._ahead[call]]
        (found,) = (call for call in first if call != self.call_s)
        return found

    @cached_property
    def _of_both(self) -> dict[bool, Any]:
        """Whether weights are transposed -> the product."""
        found = [call for call in self._calls if len(self._ahead[call]) > 1]
        return {self._weights(call)[1]: call for call in found}

    @property
    def call_q(self) -> Any:
        """The product that makes dQ."""
        return self._of_both[False]

    @property
    def call_k(self) -> Any:
        """The product that makes dK."""
        return self._of_both[True]

    def _weights(self, call: Any) -> tuple[Any, bool]:
        """(a product's first operand before views, whether its last axes are exchanged)."""
        value, is_turned = call.operands[0], False
        while (viewed := _viewed(value)) is not None:
            is_turned ^= turns(value.owner)
            value = viewed
        return value, is_turned

    def source(self, name: str) -> Source:
        """Where an operand lies in memory, and whether it is zeros past lengths; name: q, k, v or
        do.  Of [rows, elements], but v, which is [elements, rows]."""
        call = {"q": self.call_k, "k": self.call_q, "do": self.call_v, "v": self.call_p}[name]
        return source_of(self.region, call.operands[1])

    @cached_property
    def results(self) -> dict[str, int]:
        """The places of dq, dk and dv among the region's outputs."""
        calls = {"dq": self.call_q, "dk": self.call_k, "dv": self.call_v}
        values = [value for value, _ in self.region.outputs]
        return {
            name: next(i for i, v in enumerate(values) if leads_to(call.results[0], v))
            for name, call in calls.items()
        }

    # ---- between the products

    @cached_property
    def weights(self) -> Any:
        """P as dV's product takes it, [B, Hq, Sq, Skv]."""
        return self._weights(self.call_v)[0]

    @cached_property
    def gradients(self) -> tuple[Any, Any]:
        """dS as the products of dQ and of dK take it."""
        return self._weights(self.call_q)[0], self._weights(self.call_k)[0]

    @cached_property
    def dims(self) -> tuple[Expr, ...]:
        """The dims of the scores."""
        return self.region.dims_of(self.weights)

    @cached_property
    def delta(self) -> Any:
        """The reduction of rows of dO * O."""
        (found,) = (op for op in self.region.generics() if is_reduction(op))
        return found

    @cached_property
    def distance(self) -> Any:
        """dP - delta."""
        (found,) = (
            op
            for op in self.region.generics()
            if _names(op) == ["arith.subf"]
            and len(inputs_of(op)) == 2
            and leads_to(self.call_p.results[0], inputs_of(op)[0])
            and leads_to(self.delta.results[0], inputs_of(op)[1], self.call_q.results[0])
        )
        return found

    @cached_property
    def core(self) -> Any:
        """P * (dP - delta)."""
        users = {use.owner.operation for use in self.distance.results[0].uses}
        (found,) = (op for op in self.region.generics() if op in users)
        return found

    @cached_property
    def share(self) -> Any:
        """P as it is multiplied by dP - delta."""
        (found,) = (v for v in inputs_of(self.core) if v != self.distance.results[0])
        return found

    @cached_property
    def exponential(self) -> Any:
        """The generic E = exp(S - base)."""
        (found,) = (
            op
            for op in self.region.generics()
            if _names(op) == ["math.exp"]
            and leads_to(op.results[0], self.share)
            and self._is_distance(inputs_of(op)[0])
        )
        return found

    def _is_distance(self, value: Any) -> bool:
        operation = pointwise(value)
        if operation is None or _names(operation) != ["arith.subf"]:
            return False
        inputs = inputs_of(operation)
        own = len(inputs) == 2 and self.region.dims_of(inputs[1])[-1].constant == 1
        return own and leads_to(self.call_s.results[0], inputs[0])

    @property
    def score(self) -> Any:
        return inputs_of(inputs_of(self.exponential)[0].owner)[0]

    @property
    def base(self) -> Any:
        """The value of each row that is subtracted from its scores."""
        return inputs_of(inputs_of(self.exponential)[0].owner)[1]

    # ---- masks

    @cached_property
    def score_masks(self) -> Masks:
        return Masks(self.region, self.score)

    @cached_property
    def weight_masks(self) -> Masks:
        """The selections of zeros that make P of exponentials."""
        return Masks(self.region, self.share, 0.0)

    @cached_property
    def condition(self) -> Condition:
        """Where P may be other than 0, and with it what the products add up."""
        parts: list[Condition] = []
        if self.score_masks.steps:
            parts.append(self.score_masks.condition)
        if self.weight_masks.steps and self._is_share_alone:
            parts.append(self.weight_masks.condition)
        return Both(tuple(part for whole in parts for part in conjuncts(whole)))

    @property
    def _is_share_alone(self) -> bool:
        """Whether what the products take is 0 where P is."""
        return all(
            self._is_linear(value, source)
            for value, source in (
                (self.weights, self.share),
                *((ds, self.core.results[0]) for ds in self.gradients),
            )
        )

    def _is_linear(self, value: Any, source: Any) -> bool:
        while value != source:
            operation = pointwise(value)
            if operation is None:
                return False
            along = [v for v in read_by(operation) if leads_to(source, v)]
            names = set(_names(operation)) - {"arith.constant"}
            is_masked = masked_by(value, 0.0) is not None
            if len(along) != 1 or not (names in _LINEAR or is_masked):
                return False
            if names == {"arith.divf"} and inputs_of(operation)[0] != along[0]:
                return False
            (value,) = along
        return True

    @cached_property
    def has_masks(self) -> bool:
        """Whether scores or weights are hidden."""
        steps = (*self.score_masks.steps, *self.weight_masks.steps)
        return bool(steps)

    @cached_property
    def selections(self) -> list[tuple[Any, Any]]:
        """(values, what they are where the condition holds) of selections of zeros."""
        found: list[tuple[Any, Any]] = []
        known = conjuncts(self.condition)
        for operation in self.region.generics():
            masked = masked_by(operation.results[0], 0.0)
            if masked is not None and self._is_implied(masked, known):
                found.append((masked.value, masked.score))
        return found

    def _is_implied(self, masked: Masked, known: Sequence[Condition]) -> bool:
        if len(self.region.dims_of(masked.value)) != len(self.dims):
            return False
        reader = MaskReader(self.region, self.dims)
        parts = conjuncts(reader.condition(masked.condition, masked.access))
        is_known = bool(parts) and all(p in known and not isinstance(p, Anything) for p in parts)
        return masked.is_kept and is_known

    # ---- numbers that join others

    @cached_property
    def scaled(self) -> tuple[Any, Any, float] | None:
        """(what a product of scores by a positive number gives, what it multiplies, the number),
        where only masks come after."""
        found = _times_number(self.score_masks.inner)
        return found if found is not None and 0 < found[2] < float("inf") else None

    @cached_property
    def gradient_scales(self) -> list[tuple[Any, Any, float]]:
        """Products of dS by a number, where only masks and conversions lie between them and the
        core: of all that the products take, and all by the same number; else none."""
        found: dict[Any, tuple[Any, Any, float]] = {}
        for value in self.gradients:
            while value != self.core.results[0]:
                masked, times = masked_by(value, 0.0), _times_number(value)
                operation = pointwise(value)
                if masked is not None:
                    value = masked.score
                elif times is not None and times[0] not in found:
                    found[times[0]] = times
                    value = times[1]
                elif times is not None:
                    value = times[1]
                elif operation is not None and set(_names(operation)) <= {"arith.truncf"}:
                    (value,) = inputs_of(operation)
                else:
                    return []
        return list(found.values()) if len(found) == 1 else []


def transposed(condition: Condition) -> Condition:
    """The condition with rows in place of columns."""
    if isinstance(condition, Both):
        return Both(tuple(map(transposed, condition.parts)))
    if isinstance(condition, Either):
        return Either(tuple(map(transposed, condition.parts)))
    if isinstance(condition, Compare):
        form = condition.form
        turned = Linear(form.column, form.row, form.number, form.terms)
        return Compare(condition.predicate, turned, condition.places)
    return Anything()


def read_by(operation: Any) -> list[Any]:
    """The tensors whose elements a generic reads."""
    return [*inputs_of(operation), *extracts(operation)]


def _names(operation: Any) -> list[str]:
    return [op.name for op in body_of(operation)]


def _times_number(value: Any) -> tuple[Any, Any, float] | None:
    """(a product by a constant, what it multiplies, the constant)."""
    operation = pointwise(value)
    if operation is None or len(inputs_of(operation)) != 1:
        return None
    maps = indexing_maps(operation)
    body = body_of(operation)
    if maps[0] != maps[1] or _names(operation) != ["arith.constant", "arith.mulf"]:
        return None
    number = ir.FloatAttr(body[0].attributes["value"]).value
    return value, inputs_of(operation)[0], number


def _viewed(value: Any) -> Any:
    """The value that a view looks at; None: it is none."""
    operation = pointwise(value)
    if operation is None:
        return None
    names = _names(operation)
    inputs = inputs_of(operation)
    if not names and len(inputs) == 1:
        return inputs[0]
    taken = extracts(operation)
    is_view = not inputs and len(taken) == 1 and not any(_is_float(op) for op in body_of(operation))
    return taken[0] if is_view else None


def _is_float(op: Any) -> bool:
    """Whether it computes with floats."""
    return op.name.startswith("math.") or (op.name.startswith("arith.") and op.name.endswith("f"))
