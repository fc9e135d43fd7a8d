# pyright: basic
"""The parts of an attention in a region of linalg operations; see `engines.attention`.

    call first     scores' generics     maximum, base     exponential, total     share
    weights' generics     call second     generics on the result; of rows: statistics

A kernel computes the maximum and the sum as it goes through the keys, the exponentials itself,
and walks the rest: the scores on what `first` gives, the weights on the exponentials, the result
on what `second` gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .. import dtypes
from ..dialect import structure
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..expr import Expr, product
from ..mlir import ir
from .magnitudes import LARGE, Magnitudes, number_of
from .mask_conditions import (
    Anything,
    Blocks,
    Both,
    Compare,
    Condition,
    Linear,
    conjuncts,
    negated,
)
from .mask_reader import MaskReader, places_of
from .matching import body_of, operand_of, pointwise
from .math import allows
from .online_softmax import STEEP
from .region import Access, Region, identity_access
from .walk import indexing_maps, inputs_of, is_reduction

# Of a generic that gathers rows: how, see `Source`.  Its body extracts from lengths, index, tensor.
LOAD = "dnn.load"
STORE = "ragged_store"  # the anchor of an output that is packed
FACTOR = "dnn.factor"


@dataclass(frozen=True)
class Masked:
    """A score that is -inf where a condition does not hold.

    value: the masked scores.  score: those beside the mask.  condition: a boolean tensor, and how
    it is addressed.  is_kept: whether the score is kept where it holds, or where it does not.
    """

    value: Any
    score: Any
    condition: Any
    access: Access
    is_kept: bool


@dataclass(frozen=True)
class Cap:
    """The tanh of scores.  value: what it gives.  inner: of what.  is_coarse: within 2.6e-6."""

    value: Any
    inner: Any
    is_coarse: bool


@dataclass(frozen=True, eq=False)
class Source:
    """Where an operand lies.  is_turned: whether its last two axes are exchanged.

    kind: "", or how rows are found: "paged", tensor [blocks, heads, size, elements], index the
    table of pages; "packed", tensor [1, heads, rows, elements], index where each entry of the
    batch begins, in elements over `factor`.  lengths: rows that each entry has; the others are
    zeros.  Both are None where they are computed; values: theirs, SSA.  entries: of the batch.
    """

    tensor: Tensor
    is_turned: bool
    kind: str = ""
    lengths: Tensor | None = None
    index: Tensor | None = None
    values: tuple[Any, Any] = (None, None)
    entries: Expr | None = None
    factor: int = 1

    @property
    def batch(self) -> tuple[Expr, ...]:
        """The axes that count heads."""
        if self.entries is None:
            return self.tensor.shape[:-2]
        return (self.entries, self.tensor.shape[1])


@dataclass(frozen=True, eq=False)
class AttentionRegion:
    """SSA values of the parts."""

    region: Region

    @cached_property
    def calls(self) -> tuple[Any, Any]:
        first, second, *_ = (op for op in self.region.operations if op.name == "func.call")
        return first, second

    @property
    def first(self) -> Any:
        """What the first product gives."""
        return self.calls[0].results[0]

    @property
    def second(self) -> Any:
        return self.calls[1].results[0]

    @cached_property
    def reductions(self) -> tuple[Any, Any]:
        """The operations that reduce rows to their maximum and their sum."""
        maximum, total = (op for op in self._reducing if not self._is_returned(op))
        return maximum, total

    @property
    def _reducing(self) -> list[Any]:
        return [op for op in self.region.generics() if is_reduction(op)]

    def _is_returned(self, operation: Any) -> bool:
        """Whether nothing but the function's return reads what an operation gives."""
        users = {use.owner.operation.name for use in operation.results[0].uses}
        return users == {"func.return"}

    @cached_property
    def largest(self) -> dict[int, Any]:
        """Place of an output -> the tensor whose largest absolute value it is, of P or of O."""
        found = {}
        for place, (value, _) in enumerate(self.region.outputs):
            owner = value.owner
            if owner in self._reducing and self._is_returned(owner):
                absolute = pointwise(inputs_of(owner)[0])
                assert absolute is not None, "the largest of absolute values"
                found[place] = inputs_of(absolute)[0]
        return found

    # ---- factors of all weights

    @property
    def weight_type(self) -> DType:
        """Of the second product's first operand as the tensor cores take it: what the graph says,
        or V's type."""
        element = str(self.calls[1].operands[0].type.element_type)
        known = {dtype.name: dtype for dtype in dtypes.ALL}
        stated, of_values = known.get(element), self.operand(1, 1)[0].type
        return stated if stated is not None and stated.bits == of_values.bits else of_values

    @cached_property
    def weight_steps(self) -> list[Any]:
        """The generics from the second product's operand down to the share, or what stands for it,
        which is not among them."""
        value, found = self.calls[1].operands[0], []
        end = self.share.results[0] if self.share is not None else self.exponential
        while value != end:
            found.append(value.owner)
            inputs = [*inputs_of(value.owner), *_extracts(value.owner)]
            (value,) = [v for v in inputs if self._is_made_of_exponentials(v)]
        return found

    @cached_property
    def weight_factors(self) -> list[tuple[Any, Any, Any]]:
        """(a product, what it multiplies, by what) of products of all weights by one number, which
        is a tensor's or the product's own constant.  The last rounding, to 8 bits, is left to who
        takes the weights: such a step without a product has None."""
        found = []
        is_last = True
        for operation in self.weight_steps:
            names = [op.name for op in body_of(operation)]
            rounds = is_last and names[-1:] == ["arith.truncf"]
            if rounds:
                names.pop()
            if "tensor.extract" in names:
                continue  # a view
            is_last = False
            if not names and rounds:
                found.append((operation.results[0], inputs_of(operation)[0], None))
            elif names in (["arith.mulf"], ["arith.constant", "arith.mulf"]):
                found += self._factor(operation)
        return found

    def _factor(self, operation: Any) -> list[tuple[Any, Any, Any]]:
        (main,) = [v for v in inputs_of(operation) if self._is_made_of_exponentials(v)]
        others = [v for v in inputs_of(operation) if v != main]
        if len(others) > 1 or any(_elements(self.region.dims_of(v)) != 1 for v in others):
            return []
        number = others[0] if others else body_of(operation)[0]
        return [(operation.results[0], main, number)]

    @property
    def score(self) -> Any:
        return inputs_of(self.reductions[0])[0]

    @property
    def exponential(self) -> Any:
        return inputs_of(self.reductions[1])[0]

    @cached_property
    def dims(self) -> tuple[Expr, ...]:
        """Of the scores."""
        return self.region.dims_of(self.score)

    @property
    def rank(self) -> int:
        return len(self.dims)

    @cached_property
    def base(self) -> Any:
        """What is subtracted from a row's scores: E = exp(S - base)."""
        distance = pointwise(inputs_of(pointwise(self.exponential))[0])
        assert distance is not None, "exponentials of distances"
        found = operand_of(distance, body_of(distance)[-1].operands[1])
        assert found is not None, "a distance from what rows have"
        return found

    @cached_property
    def share(self) -> Any:
        """The generic that makes weights of exponentials and their sum; None: there is none."""
        value = self.calls[1].operands[0]
        total = self.reductions[1].results[0]
        while value != self.exponential:
            operation = value.owner
            inputs = [*inputs_of(operation), *_extracts(operation)]
            along = [v for v in inputs if self._is_made_of_exponentials(v)]
            assert len(along) == 1, "weights in a chain"
            if any(leads_to(total, v) for v in inputs if v != along[0]):
                return operation
            value = along[0]
        return None

    @property
    def shared(self) -> Any:
        """In the body of `share`: the exponential times its share, before it is rounded."""
        return unrounded(self.share)

    def _is_made_of_exponentials(self, value: Any) -> bool:
        stop = self.reductions[1].results[0]
        return value != stop and leads_to(self.exponential, value, stop)

    # ---- operands

    def operand(self, call: int, place: int) -> tuple[Tensor, bool]:
        """(tensor in memory, whether its last two axes are exchanged) of a product's operand."""
        source = self.source(call, place)
        return source.tensor, source.is_turned

    def source(self, call: int, place: int) -> Source:
        """Where a product's operand lies in memory."""
        value, turned = self.calls[call].operands[place], False
        arguments = self.region.arguments
        while value not in arguments:
            operation = value.owner
            if LOAD in operation.attributes:
                return self._gathered(operation, turned)
            if (along := self.multiple(operation)) is not None:
                value = along
                continue
            turned ^= _turns(operation)
            inputs = inputs_of(operation)
            value = inputs[0] if inputs else _extracted(operation)
        return Source(arguments[value], turned)

    def _gathered(self, operation: Any, turned: bool) -> Source:
        kind = ir.StringAttr(operation.attributes[LOAD]).value
        lengths, index, memory = _extracts(operation)
        arguments = self.region.arguments
        factor = 1
        if FACTOR in operation.attributes:
            factor = structure.from_attribute(operation.attributes[FACTOR])
        return Source(
            arguments[memory], turned, kind, arguments.get(lengths), arguments.get(index),
            (lengths, index), self.region.dims_of(lengths)[0], factor,
        )  # fmt: skip

    @property
    def gathers(self) -> bool:
        """Whether rows of an operand are looked up."""
        return any(self.source(*place).kind for place in ((0, 0), (0, 1), (1, 1)))

    # ---- masks, and factors of all scores

    def multiple(self, operation: Any) -> Any:
        """What a product by a number multiplies; None: it is another operation."""
        names = [op.name for op in body_of(operation) if op.name not in _CONVERSIONS]
        if is_reduction(operation) or names != ["arith.mulf"]:
            return None
        dims = self.region.dims_of(operation.results[0])
        (along,) = (v for v in inputs_of(operation) if self.region.dims_of(v) == dims)
        return along

    @cached_property
    def multiples(self) -> tuple[Any, ...]:
        """Products by numbers that make the first product's operands."""
        return tuple(
            operation
            for value in self.calls[0].operands
            for operation in self._makers(value)
            if self.multiple(operation) is not None
        )

    def _makers(self, value: Any) -> Iterator[Any]:
        """The operations that an operand comes from, up to memory or to what gathers its rows."""
        while value not in self.region.arguments:
            operation = value.owner
            if LOAD in operation.attributes:
                return
            yield operation
            along = self.multiple(operation)
            inputs = inputs_of(operation)
            value = along or (inputs[0] if inputs else _extracted(operation))

    @cached_property
    def masks(self) -> tuple[Masked, ...]:
        """Those that nothing but masks comes after, outermost first."""
        found: list[Masked] = []
        value = self.score
        while (masked := _masked(value)) is not None:
            found.append(masked)
            value = masked.score
        return tuple(found)

    @cached_property
    def condition(self) -> Condition:
        """Where a score may be above -inf."""
        reader = MaskReader(self.region, self.dims)
        parts = []
        for mask in self.masks:
            condition = reader.condition(mask.condition, mask.access)
            parts.append(condition if mask.is_kept else negated(condition))
        return Both(tuple(parts)) if parts else Anything()

    @cached_property
    def hides_rows_past_lengths(self) -> bool:
        """Whether masks keep no score of rows past the ends of packed queries: row < length."""
        lengths = self.source(0, 0).values[0]
        at = (("loop", 0), *(("zero",),) * (len(self.region.dims_of(lengths)) - 1))
        length = MaskReader(self.region, self.dims).form(lengths, at)
        if length is None:
            return False
        row = Linear(row=1)
        forms = {("slt", row.plus(length, -1)), ("sgt", length.plus(row, -1))}
        return any(
            isinstance(part, Compare) and (part.predicate, part.form) in forms
            for part in conjuncts(self.condition)
        )

    @cached_property
    def block_masks(self) -> tuple[Blocks, ...]:
        """Masks of blocks that have to hold."""
        return tuple(part for part in conjuncts(self.condition) if isinstance(part, Blocks))

    @cached_property
    def beside_blocks(self) -> Condition:
        """What else has to hold."""
        return Both(tuple(p for p in conjuncts(self.condition) if not isinstance(p, Blocks)))

    @cached_property
    def scaled(self) -> tuple[Any, Any, float] | None:
        """(what a product by a positive number gives, what it multiplies, the number), where only
        masks come after: S = number * T."""
        value = self.masks[-1].score if self.masks else self.score
        operation = pointwise(value)
        if operation is None or len(inputs_of(operation)) != 1:
            return None
        maps = indexing_maps(operation)
        body = body_of(operation)
        if maps[0] != maps[1] or [op.name for op in body] != ["arith.constant", "arith.mulf"]:
            return None
        number = ir.FloatAttr(body[0].attributes["value"]).value
        return (value, inputs_of(operation)[0], number) if 0 < number < float("inf") else None

    @cached_property
    def may_be_far(self) -> bool:
        """Whether finite scores may be beyond any that products give: where numbers that are large,
        or of no known bound, as those in memory, are added or stand for masked scores, or where
        what scores are multiplied by is large, or not known."""
        steps = list(self._score_steps())
        factor = math.prod(self._growth(op) for op in steps)
        return factor >= STEEP or any(self._adds_far(op) for op in steps)

    @cached_property
    def cap(self) -> Cap | None:
        """The one step that is a tanh of f32 and nothing else."""
        found = [op for op in self._score_steps() if _has_tanh(op)]
        if len(found) != 1:
            return None
        (step,), body = found, body_of(found[0])
        maps = indexing_maps(step)
        is_plain = len(body) == 1 and len(inputs_of(step)) == 1 and maps[0] == maps[1]
        if not is_plain or not isinstance(body[0].results[0].type, ir.F32Type):
            return None
        if not allows(body[0], "arcp"):
            return None
        return Cap(step.results[0], inputs_of(step)[0], allows(body[0], "contract"))

    def _growth(self, operation: Any) -> float:
        """By how much, at most, a generic makes scores larger; infinity: not known.

        Of bytes single numbers in memory count as 1: they are ordinary, or see `ScoreScale`.
        """
        found, of_bytes = 1.0, self.operand(1, 1)[0].type.bits == 8
        for op in body_of(operation):
            if op.name in ("arith.mulf", "arith.divf"):
                if of_bytes and any(self._is_single(operation, v) for v in op.operands):
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
        return operand is not None and _elements(self.region.dims_of(operand)) == 1

    def _score_steps(self) -> Iterator[Any]:
        """The generics between the first product and the maximum, but for masks of -inf."""
        pending, seen = [self.score], set[Any]()
        while pending:
            value = pending.pop()
            if value in seen or value == self.first or not leads_to(self.first, value):
                continue
            seen.add(value)
            if value.owner.name == "linalg.generic":
                masked = _masked(value)
                pending += [*inputs_of(value.owner), *_extracts(value.owner)]
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

    @cached_property
    def scaling(self) -> tuple[Any, Any, list[Any]] | None:
        """(what products by single numbers give, what they multiply, the numbers), where only masks
        come after: as `scaled`, but numbers may be in memory, and of any sign.  A number is a
        constant's operation or a tensor of one element."""
        value = self.masks[-1].score if self.masks else self.score
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
        numbers = [v for v in others if _elements(self.region.dims_of(v)) == 1]
        numbers += [op for op in body_of(operation) if op.name == "arith.constant"]
        if (
            len(along) != 1
            or len(numbers) != 1
            or len(others) > 1
            or (others and others != numbers)
        ):
            return None
        return along[0], numbers[0]

    # ---- outputs

    @property
    def has_padded_statistics(self) -> bool:
        """Whether an output of rows has those of all queries, not packed."""
        return any(
            place not in self.largest and self.is_of_rows(value) and self.packed(value) is None
            for place, (value, _) in enumerate(self.region.outputs)
        )

    def packed(self, value: Any) -> tuple[Any, Source] | None:
        """(what is packed, where its rows go) of an output that is; None: of another."""
        operation = value.owner
        if isinstance(operation, ir.Block) or operation.name != "func.call":
            return None
        anchor = structure.anchor_of(operation)
        if ir.StringAttr(anchor.attributes["dnn.anchor"]).value != STORE:
            return None
        made, index, lengths = operation.operands
        tensor = next(t for v, t in self.region.outputs if v == value)
        factor = structure.from_attribute(anchor.attributes["dnn.offset_multiplier"])
        entries = self.region.dims_of(lengths)[0]
        values = (lengths, index)
        return made, Source(tensor, False, "packed", None, None, values, entries, factor)

    def is_of_result(self, value: Any) -> bool:
        """Whether an output is made of the second product."""
        return leads_to(self.second, value)

    def is_kept(self, value: Any) -> bool:
        """Whether an output has an element for each score: made of weights, or of what has no part
        in them."""
        if self.is_of_result(value) or self.region.dims_of(value) != self.dims:
            return False
        return self.is_of_weights(value) or not any(
            leads_to(op.results[0], value) for op in self.reductions
        )

    def is_of_weights(self, value: Any) -> bool:
        """Whether an output is made of the weights, once the sum has divided them."""
        share = self.share
        return share is not None and leads_to(share.results[0], value, self.second)

    def is_of_rows(self, value: Any) -> bool:
        """Whether an output is made of rows' statistics only."""
        return not self.is_of_result(value) and not self.is_kept(value)

    @cached_property
    def keeps(self) -> bool:
        """Whether an output has an element for each score."""
        return any(self.is_kept(value) for value, _ in self.region.outputs)

    @cached_property
    def keeps_weights(self) -> bool:
        """Whether one of these is made of the weights."""
        return any(
            self.is_kept(value) and self.is_of_weights(value) for value, _ in self.region.outputs
        )

    @cached_property
    def shows_maximum(self) -> bool:
        """Whether an output depends on which maximum the sum is relative to: all but m + log(l)
        do, and what the product gives."""
        statistics = [v for v, _ in self.region.outputs if self.is_of_rows(v)]
        return not all(self._is_log_sum(value) for value in statistics)

    def _is_log_sum(self, value: Any) -> bool:
        operation = pointwise(value)
        if operation is None or [op.name for op in body_of(operation)] != ["arith.addf"]:
            return False
        maximum, total = (op.results[0] for op in self.reductions)
        logs = []
        for operand in inputs_of(operation):
            inner = pointwise(operand)
            names = [op.name for op in body_of(inner)] if inner else []
            logs.append(names == ["math.log"] and inputs_of(inner)[0] == total)
        return sorted(logs) == [False, True] and maximum in inputs_of(operation)


_STEEP_FUNCTIONS = ("math.exp", "math.exp2", "math.expm1", "math.powf", "math.tan", "math.rsqrt")


def _alternatives(op: Any) -> list[Any]:
    """What a sum adds, or a selection chooses from."""
    if op.name in ("arith.addf", "arith.subf", "arith.maximumf", "arith.minimumf"):
        return list(op.operands)
    return list(op.operands)[1:] if op.name == "arith.select" else []


# What stands in a body beside its arithmetic.
_CONVERSIONS = ("arith.constant", "arith.extf", "arith.truncf")


def unrounded(operation: Any) -> Any:
    """What the body of a pointwise operation yields, before it is rounded."""
    value = body_of(operation)[-1].results[0]
    while value.owner.name == "arith.truncf":
        value = value.owner.operands[0]
    return value


def leads_to(source: Any, value: Any, stop: Any = None) -> bool:
    """Whether a value is computed from another, but not through `stop`."""
    if value == source:
        return True
    if (stop is not None and value == stop) or isinstance(value.owner, ir.Block):
        return False
    operation = value.owner
    operands = list(operation.operands)
    if operation.name == "linalg.generic":
        operands = [*inputs_of(operation), *_extracts(operation)]
    return any(leads_to(source, operand, stop) for operand in operands)


def _elements(dims: tuple[Expr, ...]) -> int | None:
    return product(dims).constant


def _extracts(operation: Any) -> list[Any]:
    """Tensors that a body takes elements of."""
    return [op.operands[0] for op in body_of(operation) if op.name == "tensor.extract"]


def _extracted(operation: Any) -> Any:
    (found,) = _extracts(operation)
    return found


def _turns(operation: Any) -> bool:
    """Whether a view exchanges the last two axes."""
    if not inputs_of(operation):
        return False  # a reshape of the batch
    last = [result.maybe_downcast() for result in indexing_maps(operation)[0].results][-1]
    rank = indexing_maps(operation)[0].n_dims
    return isinstance(last, ir.AffineDimExpr) and last.position == rank - 2


def _masked(value: Any) -> Masked | None:
    operation = pointwise(value)
    if operation is None:
        return None
    body = body_of(operation)
    if [op.name for op in body] != ["arith.constant", "arith.select"]:
        return None
    number, select = body
    if not isinstance(number.results[0].type, ir.F32Type):
        return None
    if ir.FloatAttr(number.attributes["value"]).value != float("-inf"):
        return None
    condition, yes, no = select.operands
    is_kept = no == number.results[0]
    score = operand_of(operation, yes if is_kept else no)
    chosen = operand_of(operation, condition)
    if score is None or chosen is None or (not is_kept and yes != number.results[0]):
        return None
    maps = dict(zip(inputs_of(operation), indexing_maps(operation), strict=False))
    if maps[score] != indexing_maps(operation)[-1]:
        return None
    access = places_of(maps[chosen], identity_access(maps[score].n_dims))
    return Masked(value, score, chosen, access, is_kept)


def _has_tanh(operation: Any) -> bool:
    return any(op.name == "math.tanh" for op in body_of(operation))
