# pyright: basic
"""The parts of an attention in a region of linalg operations; see `engines.attention.pattern`.

    call first     scores' generics     maximum, base     exponential, total     share
    weights' generics     call second     generics on the result; of rows: statistics

A kernel computes the maximum and the sum as it goes through the keys, the exponentials itself,
and walks the rest: the scores on what `first` gives, the weights on the exponentials, the result
on what `second` gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...dialect.attributes import data_type_of
from ...dialect.tensor import Tensor, packed_strides
from ...expr import Expr
from ..region import Region
from ..scalars.matching import extracts
from ..walk.region_walk import inputs_of
from .masks import Masks
from .outputs import Outputs
from .scores import ScoreSteps
from .sources import Source, makers, multiple, source_of
from .weights import Weights


@dataclass(frozen=True, eq=False)
class AttentionRegion:
    """SSA values of the parts."""

    region: Region

    @cached_property
    def calls(self) -> tuple[Any, Any]:
        return self.region.part("first"), self.region.part("second")

    @property
    def first(self) -> Any:
        """The result of the first product."""
        return self.calls[0].results[0]

    @property
    def second(self) -> Any:
        return self.calls[1].results[0]

    @cached_property
    def reductions(self) -> tuple[Any, Any]:
        """The operations that reduce rows to their maximum and their sum."""
        return self.region.part("maximum"), self.region.part("total")

    @property
    def score(self) -> Any:
        return inputs_of(self.reductions[0])[0]

    @property
    def exponential(self) -> Any:
        return inputs_of(self.reductions[1])[0]

    @cached_property
    def dims(self) -> tuple[Expr, ...]:
        """The dims of the scores."""
        return self.region.dims_of(self.score)

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def base(self) -> Any:
        """The value that is subtracted from a row's scores: E = exp(S - base)."""
        return inputs_of(self.region.part("distance"))[1]

    # ---- operands

    def operand(self, call: int, place: int) -> tuple[Tensor, bool]:
        """(tensor in memory, whether its last two axes are exchanged) of a product's operand."""
        source = self.source(call, place)
        return source.tensor, source.is_transposed

    def source(self, call: int, place: int) -> Source:
        """Where a product's operand lies in memory; of computed queries, as if they did."""
        if (call, place) == (0, 0) and self.queries is not None:
            return self._computed_source
        return source_of(self.region, self.calls[call].operands[place])

    @cached_property
    def queries(self) -> Any:
        """The value of queries that the kernel computes; None: they lie in memory."""
        found = self.region.parts.get("queries", ())
        return found[0].results[0] if found else None

    @property
    def query_parts(self) -> list[Any]:
        """The values of which each row of computed queries is made, one after the other."""
        return [tensor for tensor in reversed(extracts(self.queries.owner))]

    @cached_property
    def _computed_source(self) -> Source:
        dims = self.region.dims_of(self.queries)
        dtype = data_type_of(self.queries)
        tensor = Tensor(dims=dims, strides=packed_strides(dims), dtype=dtype, is_virtual=True)
        return Source(tensor, False)

    @property
    def gathers(self) -> bool:
        """Whether rows of an operand are looked up."""
        return any(self.source(*place).is_gathered for place in ((0, 0), (0, 1), (1, 1)))

    @cached_property
    def multiples(self) -> tuple[Any, ...]:
        """Products by numbers that make the first product's operands."""
        return tuple(
            operation
            for value in list(self.calls[0].operands)[int(self.queries is not None) :]
            for operation in makers(self.region, value)
            if multiple(self.region, operation) is not None
        )

    @property
    def of_bytes(self) -> bool:
        """Whether operands have 8 bits."""
        return self.operand(1, 1)[0].type.bits == 8

    # ---- between the products and after them

    @cached_property
    def masks(self) -> Masks:
        """The masks of the scores."""
        return Masks(self.region, self.score)

    @cached_property
    def score_steps(self) -> ScoreSteps:
        """From the first product to the scores."""
        return ScoreSteps(self.region, self.first, self.masks, self.of_bytes)

    @cached_property
    def weights(self) -> Weights:
        """From the exponentials to the second product."""
        total = self.reductions[1].results[0]
        value, of_values = self.calls[1].operands[0], self.operand(1, 1)[0].type
        return Weights(self.region, value, self.exponential, total, of_values)

    @cached_property
    def outputs(self) -> Outputs:
        return Outputs(self.region, self.dims, self.second, self.reductions, self.weights.share)
