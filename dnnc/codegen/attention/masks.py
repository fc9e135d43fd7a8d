# pyright: basic
"""The masks of an attention's scores, -inf where a condition does not hold, or weights, 0 there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...expr import Expr
from ...mlir import ir
from ..region import Access, Region, composed, identity_access
from ..scalars.matching import body_of, operand_of, pointwise
from ..walk.region_walk import indexing_maps, inputs_of
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
from .mask_reader import MaskReader


@dataclass(frozen=True)
class Masked:
    """A score that is -inf, or a weight that is 0, where a condition does not hold.

    value: the masked scores.  score: those beside the mask.  condition: a boolean tensor, and how
    it is addressed.  is_kept: whether the score is kept where it holds, or where it does not.
    """

    value: Any
    score: Any
    condition: Any
    access: Access
    is_kept: bool


@dataclass(frozen=True, eq=False)
class Masks:
    """The masks that only masks follow.  score: the masked scores, or weights.  hidden: what masks
    put in place of those that are hidden."""

    region: Region
    score: Any
    hidden: float = -math.inf

    @cached_property
    def steps(self) -> tuple[Masked, ...]:
        """Outermost first."""
        found: list[Masked] = []
        value = self.score
        while (masked := masked_by(value, self.hidden)) is not None:
            found.append(masked)
            value = masked.score
        return tuple(found)

    @property
    def inner(self) -> Any:
        """The scores beside all masks."""
        return self.steps[-1].score if self.steps else self.score

    @property
    def dims(self) -> tuple[Expr, ...]:
        """The dims of the scores."""
        return self.region.dims_of(self.score)

    @property
    def _reader(self) -> MaskReader:
        return MaskReader(self.region, self.dims)

    @cached_property
    def condition(self) -> Condition:
        """Where a score may be above -inf."""
        reader, parts = self._reader, []
        for mask in self.steps:
            condition = reader.condition(mask.condition, mask.access)
            parts.append(condition if mask.is_kept else negated(condition))
        return Both(tuple(parts)) if parts else Anything()

    def imply(self, value: Any, access: Access) -> bool:
        """Whether a condition holds wherever all scores are kept: a boolean tensor, addressed so by
        the scores' loops."""
        known = conjuncts(self.condition)
        parts = conjuncts(self._reader.condition(value, access))
        return bool(parts) and all(p in known and not isinstance(p, Anything) for p in parts)

    def hide_rows_past(self, lengths: Any) -> bool:
        """Whether no score of rows past lengths is kept, those of packed queries: row < length."""
        return self._hide_past(lengths, Linear(row=1))

    def hide_columns_past(self, lengths: Any) -> bool:
        """Whether no score of columns past lengths is kept, those of an entry of the batch each."""
        return self._hide_past(lengths, Linear(column=1))

    def _hide_past(self, lengths: Any, place: Linear) -> bool:
        at = (("loop", 0), *(("zero",),) * (len(self.region.dims_of(lengths)) - 1))
        length = self._reader.form(lengths, at)
        if length is None:
            return False
        forms = {("slt", place.plus(length, -1)), ("sgt", length.plus(place, -1))}
        return any(
            isinstance(part, Compare) and (part.predicate, part.form) in forms
            for part in conjuncts(self.condition)
        )

    @cached_property
    def blocks(self) -> tuple[Blocks, ...]:
        """Masks of blocks that have to hold."""
        return tuple(part for part in conjuncts(self.condition) if isinstance(part, Blocks))

    @cached_property
    def beside_blocks(self) -> Condition:
        """Further conditions that must hold."""
        return Both(tuple(p for p in conjuncts(self.condition) if not isinstance(p, Blocks)))


def masked_by(value: Any, hidden: float = -math.inf) -> Masked | None:
    """The mask that makes scores of those beside it and a number; None: something else does."""
    operation = pointwise(value)
    if operation is None:
        return None
    body = body_of(operation)
    if [op.name for op in body] != ["arith.constant", "arith.select"]:
        return None
    number, select = body
    if not isinstance(number.results[0].type, ir.F32Type):
        return None
    if ir.FloatAttr(number.attributes["value"]).value != hidden:
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
    access = composed(maps[chosen], identity_access(maps[score].n_dims))
    return Masked(value, score, chosen, access, is_kept)
