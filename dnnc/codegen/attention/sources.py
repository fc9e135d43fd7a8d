# pyright: basic
"""Where the operands of an attention's products lie in memory: transposed, gathered, or multiplied
by numbers on their way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...dialect import structure
from ...dialect.tensor import Tensor
from ...expr import Expr
from ...mlir import arith, ir
from ..region import Region
from ..scalars.matching import body_of, extracts, operand_of
from ..walk.region_walk import indexing_maps, inputs_of, is_reduction

# Of a generic that gathers rows: how, see `Source`.  Its body extracts from lengths, index, tensor.
LOAD = "dnn.load"
FACTOR = "dnn.factor"

# What stands in a body beside its arithmetic.
_CONVERSIONS = ("arith.constant", "arith.extf", "arith.truncf")


@dataclass(frozen=True, eq=False)
class Source:
    """Where an operand lies.  is_transposed: whether its last two axes are exchanged.

    kind: "", or how rows are found: "paged", tensor [blocks, heads, size, elements], index the
    table of pages; "packed", tensor [1, heads, rows, elements], index where each entry of the
    batch begins, in elements over `factor`; "cut", in place, index None.  lengths: rows that each
    entry has; the others are zeros.  Both are None where they are computed; values: theirs, SSA.
    entries: of the batch.
    """

    tensor: Tensor
    is_transposed: bool
    kind: str = ""
    lengths: Tensor | None = None
    index: Tensor | None = None
    values: tuple[Any, Any] = (None, None)
    entries: Expr | None = None
    factor: int = 1

    @property
    def is_gathered(self) -> bool:
        """Whether rows are looked up."""
        return self.kind in ("paged", "packed")

    def axes(self, *, is_transposed: bool) -> tuple[int, int]:
        """(axis of a head's elements, axis of rows); is_transposed: of one [elements, rows]."""
        last, before = self.tensor.rank - 1, self.tensor.rank - 2
        return (last, before) if self.is_transposed == is_transposed else (before, last)

    @property
    def batch(self) -> tuple[Expr, ...]:
        """The axes that count heads."""
        if self.entries is None:
            return self.tensor.shape[:-2]
        return (self.entries, self.tensor.shape[1])


def source_of(region: Region, value: Any) -> Source:
    """Where a product's operand lies in memory."""
    is_transposed, arguments, lengths = False, region.arguments, None
    while value not in arguments:
        operation = value.owner
        if LOAD in operation.attributes:
            return _gathered(region, operation, is_transposed)
        if (along := multiple(region, operation)) is not None:
            value = along
            continue
        if _selects(operation):
            value, lengths = _cut(operation)
            continue
        is_transposed ^= exchanges_last(operation)
        inputs = inputs_of(operation)
        value = inputs[0] if inputs else _extracted(operation)
    if lengths is None:
        return Source(arguments[value], is_transposed)
    known = arguments.get(lengths)
    return Source(arguments[value], is_transposed, "cut", known, values=(lengths, None))


def _selects(operation: Any) -> bool:
    names = [op.name for op in body_of(operation) if op.name not in _CONVERSIONS]
    return names == ["arith.select"]


def _cut(operation: Any) -> tuple[Any, Any]:
    """(rows, lengths) of a selection of zeros past lengths: row < length, or length > row."""
    (select,) = (op for op in body_of(operation) if op.name == "arith.select")
    test, rows = (operand_of(operation, value) for value in list(select.operands)[:2])
    (compare,) = body_of(test.owner)
    sides = [operand_of(test.owner, value) for value in compare.operands]
    is_less = ir.IntegerAttr(compare.attributes["predicate"]).value == arith.CmpIPredicate.slt
    return rows, sides[1 if is_less else 0]


def _gathered(region: Region, operation: Any, is_transposed: bool) -> Source:
    kind = ir.StringAttr(operation.attributes[LOAD]).value
    lengths, index, memory = extracts(operation)
    arguments = region.arguments
    factor = 1
    if FACTOR in operation.attributes:
        factor = structure.from_attribute(operation.attributes[FACTOR])
    return Source(
        arguments[memory], is_transposed, kind, arguments.get(lengths), arguments.get(index),
        (lengths, index), region.dims_of(lengths)[0], factor,
    )  # fmt: skip


def multiple(region: Region, operation: Any) -> Any:
    """The value that a product by a number multiplies; None: it is another operation."""
    names = [op.name for op in body_of(operation) if op.name not in _CONVERSIONS]
    if is_reduction(operation) or names != ["arith.mulf"]:
        return None
    dims = region.dims_of(operation.results[0])
    (along,) = (v for v in inputs_of(operation) if region.dims_of(v) == dims)
    return along


def makers(region: Region, value: Any) -> Iterator[Any]:
    """The operations that an operand comes from, up to memory or to what gathers its rows."""
    while value not in region.arguments:
        operation = value.owner
        if LOAD in operation.attributes:
            return
        yield operation
        along = multiple(region, operation)
        inputs = inputs_of(operation)
        value = along or (inputs[0] if inputs else _extracted(operation))


def _extracted(operation: Any) -> Any:
    (found,) = extracts(operation)
    return found


def exchanges_last(operation: Any) -> bool:
    """Whether a view exchanges the last two axes."""
    if not inputs_of(operation):
        return False  # a reshape of the batch
    last = [result.maybe_downcast() for result in indexing_maps(operation)[0].results][-1]
    rank = indexing_maps(operation)[0].n_dims
    return isinstance(last, ir.AffineDimExpr) and last.position == rank - 2
