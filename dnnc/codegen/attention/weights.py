# pyright: basic
"""Finds how an attention's weights follow from exponentials: a share, and factors of all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ... import dtypes
from ...dtypes import DType
from ..region import Region, composed, identity_access
from ..scalars.matching import body_of, extracts, is_single, leads_to, operand_of, unrounded
from ..walk.region_walk import indexing_maps, inputs_of
from .masks import Masks


@dataclass(frozen=True, eq=False)
class Weights:
    """The generics between the exponentials and the second product.

    value: the product's first operand.  total: the sum of exponentials.  of_values: V's type.
    """

    region: Region
    value: Any
    exponential: Any
    total: Any
    of_values: DType

    @cached_property
    def share(self) -> Any:
        """The generic that makes weights of exponentials and their sum; None: there is none."""
        return next(iter(self.region.parts.get("share", ())), None)

    @property
    def shared(self) -> Any:
        """In the body of `share`: the exponential times its share, before it is rounded."""
        return unrounded(self.share)

    @property
    def type(self) -> DType:
        """The type of the second product's first operand as the tensor cores take it: the
        graph's, or V's."""
        element = str(self.value.type.element_type)
        known = {dtype.name: dtype for dtype in dtypes.ALL}
        stated, of_values = known.get(element), self.of_values
        return stated if stated is not None and stated.bits == of_values.bits else of_values

    @property
    def first(self) -> Any:
        """The value that the share gives; the exponentials where there is none."""
        return self.share.results[0] if self.share is not None else self.exponential

    @cached_property
    def _steps(self) -> list[Any]:
        """The generics from the second product's operand down to the share, or what stands for it,
        which is not among them."""
        value, found = self.value, []
        while value != self.first:
            found.append(value.owner)
            inputs = [*inputs_of(value.owner), *extracts(value.owner)]
            (value,) = [v for v in inputs if self._is_made_of_exponentials(v)]
        return found

    @cached_property
    def factors(self) -> list[tuple[Any, Any, Any]]:
        """(a product, what it multiplies, by what) of products of all weights by one number, which
        is a tensor's or the product's own constant.  The last rounding, to 8 bits, is left to who
        takes the weights: such a step without a product has None."""
        found = []
        is_last = True
        for operation in self._steps:
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

    def selections(self, masks: Masks) -> list[tuple[Any, Any]]:
        """(weights, what they are where all scores are kept) of selections of zeros where masks of
        the scores hide them, too."""
        found = []
        for operation in self._steps:
            if [op.name for op in body_of(operation)] != ["arith.constant", "arith.select"]:
                continue
            condition, chosen, _ = (
                operand_of(operation, value) for value in body_of(operation)[1].operands
            )
            if chosen is None or not self._is_made_of_exponentials(chosen):
                continue
            maps = dict(zip(inputs_of(operation), indexing_maps(operation), strict=False))
            access = composed(maps[condition], identity_access(len(masks.dims)))
            if len(masks.dims) == maps[condition].n_dims and masks.imply(condition, access):
                found.append((operation.results[0], chosen))
        return found

    def keeps_zeros(self, value: Any) -> bool:
        """Whether weights are 0 where their exponentials are, whatever else is in memory."""
        while value != self.first:
            operation = value.owner
            names = {op.name for op in body_of(operation)}
            if names - {"arith.truncf", "arith.extf"} or len(inputs_of(operation)) != 1:
                return False
            (value,) = inputs_of(operation)
        return True

    def _factor(self, operation: Any) -> list[tuple[Any, Any, Any]]:
        (main,) = [v for v in inputs_of(operation) if self._is_made_of_exponentials(v)]
        others = [v for v in inputs_of(operation) if v != main]
        if len(others) > 1 or not all(is_single(self.region, v) for v in others):
            return []
        number = others[0] if others else body_of(operation)[0]
        return [(operation.results[0], main, number)]

    def _is_made_of_exponentials(self, value: Any) -> bool:
        return value != self.total and leads_to(self.exponential, value, self.total)
