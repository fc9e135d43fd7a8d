# pyright: basic
"""The parts of attention's gradient in a region of linalg operations; see
`engines.attention.bwd_pattern`.

    call S     scores' generics     exponential     P     call dV
    call dP    core = P * (dP - delta)     dS     calls dQ, dK

Without a call S, P is made of tensors in memory.
A kernel computes the exponentials and the core itself, and walks the rest: the scores on what S
gives, P on the exponentials, dS on the core.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ...dialect.tensor import Tensor
from ...expr import Expr
from ...mlir import ir
from ..region import Region
from ..scalars.matching import (
    body_of,
    extracts,
    leads_to,
    operand_of,
    pointwise,
    times_number,
    times_positive,
)
from ..walk.region_walk import inputs_of, is_reduction
from .mask_conditions import Anything, Both, Compare, Condition, Either, Linear, conjuncts
from .mask_reader import MaskReader
from .masks import Masked, Masks, masked_by
from .outputs import largest_of_outputs, packed_output
from .scores import Cap, ScoreSteps
from .sources import Source, source_of

_CONVERSIONS = ("arith.truncf", "arith.extf", "arith.negf")


@dataclass(frozen=True, eq=False)
class GradientRegion:
    """SSA values of the parts.

    twins: tensors in the workspace that hold operands, in a wider type or at other strides, by the
    operand's name.  transposed: those that hold them with rows contiguous; see `bwd_transposed`.
    """

    region: Region
    twins: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    transposed: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    # ---- products

    @property
    def has_scores(self) -> bool:
        """Whether P is made of scores; else of tensors in memory."""
        return "s" in self.region.parts

    @property
    def call_s(self) -> Any:
        """The product that makes S."""
        return self.region.part("s")

    @property
    def call_p(self) -> Any:
        """The product that makes dP."""
        return self.region.part("dp")

    @property
    def call_q(self) -> Any:
        """The product that makes dQ."""
        return self.region.part("dq")

    @property
    def call_k(self) -> Any:
        """The product that makes dK."""
        return self.region.part("dk")

    @property
    def call_v(self) -> Any:
        """The product that makes dV."""
        return self.region.part("dv")

    def source(self, name: str) -> Source:
        """Where an operand lies in memory, and whether it is zeros past lengths; name: q, k, v or
        do.  Of [rows, elements], but v, which is [elements, rows]."""
        call = {"q": self.call_k, "k": self.call_q, "do": self.call_v, "v": self.call_p}[name]
        found = source_of(self.region, call.operands[1])
        return replace(found, tensor=self.twins.get(name, found.tensor))

    @cached_property
    def is_fp8(self) -> bool:
        """Whether operands are of fp8, in the graph."""
        return source_of(self.region, self.call_k.operands[1]).tensor.type.is_fp8

    @cached_property
    def results(self) -> dict[str, int]:
        """The places of dq, dk and dv among the region's outputs."""
        calls = {"dq": self.call_q, "dk": self.call_k, "dv": self.call_v}
        values = [value for value, _ in self.region.outputs]
        return {
            name: next(
                i
                for i, v in enumerate(values)
                if i not in self.largest and leads_to(call.results[0], v)
            )
            for name, call in calls.items()
        }

    def product_of(self, name: str) -> Any:
        """The tensor that the product of dq, dk or dv gives, which the result is made of."""
        calls = {"dq": self.call_q, "dk": self.call_k, "dv": self.call_v}
        return calls[name].results[0]

    @cached_property
    def largest(self) -> dict[int, Any]:
        """Place of an output -> the tensor whose largest magnitude it is."""
        return largest_of_outputs(self.region)

    def largest_of(self, name: str) -> dict[int, Any]:
        """The entries of `largest` that the result dq, dk or dv gives; "": those of the scores."""
        names = [n for n in self.results if not name or n == name]
        return {
            place: value
            for place, value in self.largest.items()
            if any(leads_to(self.product_of(n), value) for n in names) == bool(name)
        }

    def is_finished(self, name: str) -> bool:
        """Whether the result dq, dk or dv is its product, but for its type."""
        value, _ = self.region.outputs[self.results[name]]
        packed = packed_output(self.region, value)
        value = value if packed is None else packed[0]
        while value != self.product_of(name):
            operation = value.owner
            if set(_names(operation)) & {"arith.mulf"}:
                return False
            value = (inputs_of(operation) or extracts(operation))[0]
        return True

    def packed(self, name: str) -> Source | None:
        """Where rows of dq, dk or dv go, if they are packed."""
        value, _ = self.region.outputs[self.results[name]]
        found = packed_output(self.region, value)
        return None if found is None else found[1]

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """The places of outputs that have an element for each score."""
        return tuple(place for place in self._others if self._sum(place) is None)

    @cached_property
    def sums(self) -> dict[int, Any]:
        """Place of an output -> the reduction that it is made of, of what scores or rows have."""
        found = {place: self._sum(place) for place in self._others}
        return {place: operation for place, operation in found.items() if operation is not None}

    @property
    def _others(self) -> list[int]:
        places = range(len(self.region.outputs))
        known = (*self.results.values(), *self.largest)
        return [place for place in places if place not in known]

    def _sum(self, place: int) -> Any:
        """The reduction that an output is made of, one element of the other; None: it is none."""
        value, _ = self.region.outputs[place]
        dims, pending, seen = self.region.dims_of(value), [value], set[Any]()
        while pending:
            value = pending.pop()
            operation = value.owner
            if value in seen or isinstance(operation, ir.Block):
                continue
            seen.add(value)
            if operation.name != "linalg.generic":
                continue
            if is_reduction(operation):
                return operation
            pending += [v for v in read_by(operation) if self.region.dims_of(v) == dims]
        return None

    def is_total(self, place: int) -> bool:
        """Whether an output is its reduction, but for its type."""
        value, _ = self.region.outputs[place]
        operation = value.owner
        while not is_reduction(operation):
            is_rounding = set(_names(operation)) <= {"arith.truncf", "arith.extf"}
            if not is_rounding or len(inputs_of(operation)) != 1:
                return False
            (value,) = inputs_of(operation)
            operation = value.owner
        return True

    def is_of_scores(self, operation: Any) -> bool:
        """Whether a sum is of what scores have."""
        return self.region.dims_of(inputs_of(operation)[0]) == self.dims

    # ---- between the products

    @cached_property
    def stored(self) -> list[tuple[Any, Tensor]]:
        """(tensor of the scores' dims, what holds it in the order F16x16) of those in memory."""
        made = self.region.parts.get("stored", ())
        return [(op.results[0], self.region.arguments[extracts(op)[0]]) for op in made]

    @cached_property
    def reads_scores(self) -> bool:
        """Whether the work on scores reads tensors of several queries or keys."""
        ends = {self.delta.results[0], *(call.results[0] for call in self._first)}
        if self.has_scores:
            ends.add(self.base)
        pending, seen = [self.weights, self.gradients], set[Any]()
        while pending:
            value = pending.pop()
            if value in seen or value in ends:
                continue
            seen.add(value)
            if value in self.region.arguments:
                if any(size.constant != 1 for size in self.region.dims_of(value)[-2:]):
                    return True
            elif value.owner.name == "linalg.generic":
                pending += read_by(value.owner)
        return False

    @property
    def _first(self) -> list[Any]:
        return [self.call_s, self.call_p] if self.has_scores else [self.call_p]

    @property
    def drawn(self) -> list[Any]:
        """Tensors of the scores' dims whose elements are drawn, zeros and ones."""
        return [op.results[0] for op in self.region.parts.get("drawn", ())]

    @property
    def weights(self) -> Any:
        """P as dV's product takes it, [B, Hq, Sq, Skv]; without scores [B, Hq, Skv, Sq]."""
        if not self.has_scores:
            return self.call_v.operands[0]
        return self.region.part("weights").results[0]

    @property
    def gradients(self) -> Any:
        """dS as the products of dQ and of dK take it."""
        return self.region.part("gradients").results[0]

    @cached_property
    def dims(self) -> tuple[Expr, ...]:
        """The dims of the scores."""
        return self.region.dims_of(self.core.results[0])

    @property
    def group(self) -> int:
        """Query heads that share a head of keys, one of dK."""
        whole, own = self.dims[1], self.region.outputs[self.results["dk"]][1].shape[1]
        return 1 if own == whole else (whole.constant or 1) // (own.constant or 1)

    @property
    def delta(self) -> Any:
        """The reduction of rows of dO * O, or without scores of P * dP."""
        return self.region.part("delta")

    @property
    def distance(self) -> Any:
        """dP - delta."""
        return self.region.part("distance")

    @property
    def core(self) -> Any:
        """P * (dP - delta)."""
        return self.region.part("core")

    @cached_property
    def share(self) -> Any:
        """P as it is multiplied by dP - delta."""
        (found,) = (v for v in inputs_of(self.core) if v != self.distance.results[0])
        return found

    @property
    def exponential(self) -> Any:
        """The generic E = exp(S - base)."""
        return self.region.part("exponential")

    @property
    def score(self) -> Any:
        return inputs_of(inputs_of(self.exponential)[0].owner)[0]

    @property
    def base(self) -> Any:
        """The value of each row that is subtracted from its scores."""
        return inputs_of(inputs_of(self.exponential)[0].owner)[1]

    # ---- a cap

    @cached_property
    def cap(self) -> Cap | None:
        """The tanh of scores, if there is one."""
        if self.score_masks is None or self.is_fp8:
            return None
        first = self.call_s.results[0]
        return ScoreSteps(self.region, first, self.score_masks, of_bytes=False).tanh

    @cached_property
    def slopes(self) -> list[tuple[Any, Any]]:
        """(values, what is multiplied) of products by 1 - T * T, T the tanh of `cap`."""
        found: list[tuple[Any, Any]] = []
        for operation in self.region.generics():
            if self.cap is not None and (factor := _times_slope(operation, self.cap.inner)):
                found.append((operation.results[0], factor))
        return found

    @cached_property
    def carried(self) -> Any:
        """The tensor that scores are made of, and gradients of functions of scores, too, as near
        to the scores as there is one; None: gradients are made of exponentials alone."""
        masks = self.score_masks
        if masks is None or self.is_fp8 or not self._has_slopes:
            return None
        ends = {masks.inner, *(() if self.scaled is None else self.scaled[:2])}
        found = self.call_s.results[0]
        while found not in ends:
            readers = [op for op in self.region.generics() if found in read_by(op)]
            results = {op.results[0] for op in readers}
            if self.cap is not None and found == self.cap.inner:
                slopes = {value for value, _ in self.slopes}
                return self.cap.value if results - slopes == {self.cap.value} else found
            if len(readers) != 1 or self.region.dims_of(readers[0].results[0]) != self.dims:
                break
            found = readers[0].results[0]
        return found

    @property
    def _has_slopes(self) -> bool:
        """Whether anything but the exponentials is made of the first product."""
        made = {self.call_s.results[0]}
        for op in self.region.generics():
            if op != self.exponential and not made.isdisjoint(read_by(op)):
                made.add(op.results[0])
        (exponent, *_) = inputs_of(self.exponential)
        return not all(leads_to(value, exponent) for value in made)

    # ---- masks

    @cached_property
    def score_masks(self) -> Masks | None:
        """None: there are no scores."""
        return Masks(self.region, self.score) if self.has_scores else None

    @cached_property
    def weight_masks(self) -> Masks:
        """The selections of zeros that make P of exponentials."""
        return Masks(self.region, self.share, 0.0)

    @cached_property
    def condition(self) -> Condition:
        """Where P may be other than 0, and with it what the products add up."""
        parts: list[Condition] = []
        if self.score_masks is not None and self.score_masks.steps:
            parts.append(self.score_masks.condition)
        if self.weight_masks.steps and self._is_share_alone:
            parts.append(self.weight_masks.condition)
        return Both(tuple(part for whole in parts for part in conjuncts(whole)))

    @property
    def _is_share_alone(self) -> bool:
        """Whether what the products take is 0 where P is."""
        ds_is_linear = self._is_linear(self.gradients, self.core.results[0])
        return ds_is_linear and self._is_linear(self.weights, self.share)

    def _is_linear(self, value: Any, source: Any) -> bool:
        while value != source:
            operation = pointwise(value)
            if operation is None:
                return False
            along = [v for v in read_by(operation) if leads_to(source, v)]
            is_masked = masked_by(value, 0.0) is not None
            if len(along) != 1 or not (is_masked or _keeps_zeros(operation, along[0])):
                return False
            (value,) = along
        return True

    @cached_property
    def has_masks(self) -> bool:
        """Whether scores or weights are hidden."""
        masks = (self.score_masks, self.weight_masks)
        return any(found is not None and found.steps for found in masks)

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
        masks = self.score_masks
        return None if masks is None else times_positive(masks.inner)

    def multiple_of(self, product: Any, value: Any) -> tuple[Any, list[Any]]:
        """(the last product by a number on the way from a product to a value, those numbers):
        constants and tensors of one element, in the order in which they multiply."""
        found: list[tuple[Any, Any]] = []
        while value != product:
            operation = pointwise(value)
            along = [v for v in read_by(operation) if leads_to(product, v)] if operation else []
            if len(along) != 1:
                return product, []
            number = _number_of(self.region, operation, along[0])
            found = [(value, number), *found] if number is not None else []
            (value,) = along
        return (found[-1][0], [number for _, number in found]) if found else (product, [])

    @cached_property
    def gradient_scales(self) -> list[tuple[Any, Any, float]]:
        """Products of dS by numbers, where only these, a cap's slope, masks and conversions lie
        between dS and the core.  What other outputs are made of has no such number."""
        if self.kept or any(map(self.is_of_scores, self.sums.values())):
            return []
        found, slopes = list[tuple[Any, Any, float]](), dict(self.slopes)
        value = self.gradients
        while value != self.core.results[0]:
            masked, times = masked_by(value, 0.0), times_number(value)
            operation = pointwise(value)
            if masked is not None:
                value = masked.score
            elif times is not None:
                found.append(times)
                value = times[1]
            elif value in slopes:
                value = slopes[value]
            elif operation is not None and set(_names(operation)) <= {"arith.truncf"}:
                (value,) = inputs_of(operation)
            elif self.is_fp8 and (scaled := _times_element(self.region, operation)) is not None:
                value = scaled
            else:
                return []
        largest = self.largest_of("").values()
        is_in_all = all(leads_to(made, value) for made, _, _ in found for value in largest)
        return found if is_in_all else []

    @property
    def gradient_scale(self) -> float:
        """The product of the factors of `gradient_scales`."""
        return math.prod(number for _, _, number in self.gradient_scales)


def transposed(condition: Condition) -> Condition:
    """The condition with rows in place of columns."""
    if isinstance(condition, Both):
        return Both(tuple(map(transposed, condition.parts)))
    if isinstance(condition, Either):
        return Either(tuple(map(transposed, condition.parts)))
    if isinstance(condition, Compare):
        form = condition.form
        exchanged = Linear(form.column, form.row, form.number, form.terms)
        return Compare(condition.predicate, exchanged, condition.places)
    return Anything()


def read_by(operation: Any) -> list[Any]:
    """The tensors whose elements a generic reads."""
    return [*inputs_of(operation), *extracts(operation)]


def _names(operation: Any) -> list[str]:
    return [op.name for op in body_of(operation)]


def _keeps_zeros(operation: Any, along: Any) -> bool:
    """Whether a generic gives 0 wherever a tensor that it reads is 0: products with it."""
    block = operation.regions[0].blocks[0]
    inputs = inputs_of(operation)
    zeros = {block.arguments[i] for i, value in enumerate(inputs) if value == along}
    for view in block.operations:
        op = view.operation
        if op.name == "linalg.yield":
            return op.operands[0] in zeros
        first = len(op.operands) > 0 and op.operands[0] in zeros
        is_zero = first and op.name in (*_CONVERSIONS, "arith.divf")
        if is_zero or (op.name == "arith.mulf" and any(v in zeros for v in op.operands)):
            zeros.add(op.results[0])
    return False


def _number_of(region: Region, operation: Any, along: Any) -> Any:
    """The number that a product multiplies a tensor by: a constant's operation, or a tensor of one
    element in memory; None: it is another operation."""
    body = [op for op in body_of(operation) if op.name != "arith.constant"]
    if [op.name for op in body] != ["arith.mulf"]:
        return None
    constants = [op for op in body_of(operation) if op.name == "arith.constant"]
    others = [value for value in inputs_of(operation) if value != along]
    if constants and not others:
        return constants[0]
    is_number = len(others) == 1 and all(n.constant == 1 for n in region.dims_of(others[0]))
    return others[0] if is_number and others[0] in region.arguments else None


def _times_element(region: Region, operation: Any) -> Any:
    """The factor beside a number in memory; None: it is another operation."""
    if operation is None:
        return None
    dims = region.dims_of(operation.results[0])
    along = [value for value in inputs_of(operation) if region.dims_of(value) == dims]
    is_product = len(along) == 1 and _number_of(region, operation, along[0]) is not None
    return along[0] if is_product else None


def _times_slope(operation: Any, inner: Any) -> Any:
    """The factor of 1 - T * T that a generic computes, T the tanh of a tensor; None: no such."""
    if pointwise(operation.results[0]) is None:
        return None
    body = [op for op in body_of(operation) if op.name != "arith.constant"]
    if [op.name for op in body] != ["math.tanh", "arith.mulf", "arith.subf", "arith.mulf"]:
        return None
    tanh, square, slope, product = body
    t = tanh.results[0]
    if operand_of(operation, tanh.operands[0]) != inner or list(square.operands) != [t, t]:
        return None
    one, what = slope.operands
    if what != square.results[0] or not _is_one(one):
        return None
    factors = [value for value in product.operands if value != slope.results[0]]
    return operand_of(operation, factors[0]) if len(factors) == 1 else None


def _is_one(value: Any) -> bool:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return False
    return ir.FloatAttr(owner.attributes["value"]).value == 1.0
