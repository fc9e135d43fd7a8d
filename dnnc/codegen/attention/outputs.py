# pyright: basic
"""Parts of an attention's outputs: the result, weights, statistics of rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...dialect import structure
from ...expr import Expr
from ...mlir import ir
from ..region import Region
from ..scalars.matching import body_of, leads_to, pointwise
from ..walk.region_walk import inputs_of
from .sources import Source

STORE = "ragged_store"  # the anchor of an output that is packed
_MULTIPLIER = "dnn.offset_multiplier"


@dataclass(frozen=True, eq=False)
class Outputs:
    """dims: of the scores.  second: what the second product gives.  reductions: of rows, to their
    maximum and their sum.  share: what makes weights of exponentials and their sum, None: nothing.
    """

    region: Region
    dims: tuple[Expr, ...]
    second: Any
    reductions: tuple[Any, Any]
    share: Any

    @cached_property
    def largest(self) -> dict[int, Any]:
        """Place of an output -> the tensor whose largest magnitude it is, P or O."""
        return largest_of_outputs(self.region)

    @property
    def has_padded_statistics(self) -> bool:
        """Whether an output of rows has those of all queries, not packed."""
        return any(
            place not in self.largest and self.is_of_rows(value) and self.packed(value) is None
            for place, (value, _) in enumerate(self.region.outputs)
        )

    def packed(self, value: Any) -> tuple[Any, Source] | None:
        """(what is packed, where its rows go) of an output that is; None: of another."""
        return packed_output(self.region, value)

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


def is_store(operation: Any) -> bool:
    """Whether an operation packs rows."""
    if operation.name != "func.call":
        return False
    anchor = structure.anchor_of(operation)
    return ir.StringAttr(anchor.attributes["dnn.anchor"]).value == STORE


def largest_of_outputs(region: Region) -> dict[int, Any]:
    """Place of an output -> the tensor whose largest magnitude it is."""
    places = {value: place for place, (value, _) in enumerate(region.outputs)}
    return {
        places[op.results[0]]: inputs_of(inputs_of(op)[0].owner)[0]  # of absolute values
        for op in region.parts.get("largest", ())
    }


def packed_output(region: Region, value: Any) -> tuple[Any, Source] | None:
    """(what is packed, where its rows go) of an output that is; None: of another."""
    operation = value.owner
    if isinstance(operation, ir.Block) or not is_store(operation):
        return None
    made, index, lengths = operation.operands
    tensor = next(t for v, t in region.outputs if v == value)
    factor = structure.from_attribute(structure.anchor_of(operation).attributes[_MULTIPLIER])
    entries = region.dims_of(lengths)[0]
    return made, Source(tensor, False, "packed", None, None, (lengths, index), entries, factor)
