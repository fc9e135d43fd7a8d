# pyright: basic
"""Where a mask is true: columns of a tile of rows that it may keep, and those that it all keeps.

A condition on the row and the column of a score is read off its scalar operations as comparisons
of linear forms,

    r * row + c * column + terms  <  0,        c of -1, 0, 1; terms: loaded, the same for all scores

joined by and, or, not.  Each says, for rows `first` to `last`, from which column to which it holds
for some row, and for every row (`Ranges`).  What is not linear may hold anywhere, and is never
known to.  Products of work on columns outside the first range need not be computed; in the second
the condition need not be looked at.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..mlir import arith, ir
from . import ops
from .region import Access, Region, identity_access
from .walk import indexing_maps, inputs_of, is_reduction

# Of a generic that is a mask of blocks: their rows and columns.
BLOCKS = "dnn.blocks"

# Past every column, and far from what overflows.
_FAR = 1 << 30


@dataclass(frozen=True)
class Linear:
    """row * r + column * c + number + the sum of terms.

    terms: (factor, leaf, how it is addressed).
    """

    row: int = 0
    column: int = 0
    number: int = 0
    terms: tuple[tuple[int, Any, Access], ...] = ()

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        more = tuple((factor * f, leaf, access) for f, leaf, access in other.terms)
        return Linear(
            self.row + factor * other.row,
            self.column + factor * other.column,
            self.number + factor * other.number,
            self.terms + more,
        )

    def times(self, factor: int) -> Linear:
        return Linear().plus(self, factor)

    @property
    def is_number(self) -> bool:
        return self == Linear(number=self.number)


@dataclass(frozen=True)
class Compare:
    """form <predicate> 0, predicate of eq, ne, slt, sle, sgt, sge."""

    predicate: str
    form: Linear


@dataclass(frozen=True)
class Both:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Either:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Anything:
    """A condition that nothing is known of."""


@dataclass(frozen=True)
class Blocks:
    """A bit for each block of scores, eight to a byte.

    mask: bytes [.., blocks of rows, bytes of blocks of columns].  shared: whether all entries of
    each other axis share one.  rows, columns: of a block.
    """

    mask: Any
    shared: tuple[bool, ...]
    rows: int
    columns: int


Condition = Compare | Both | Either | Anything | Blocks

_OPPOSITE = {"eq": "ne", "ne": "eq", "slt": "sge", "sge": "slt", "sle": "sgt", "sgt": "sle"}
_MIRRORED = {"eq": "eq", "ne": "ne", "slt": "sgt", "sgt": "slt", "sle": "sge", "sge": "sle"}
_ORDERS = {"slt": operator.lt, "sle": operator.le, "sgt": operator.gt, "sge": operator.ge}


def negated(condition: Condition) -> Condition:
    if isinstance(condition, Compare):
        return replace(condition, predicate=_OPPOSITE[condition.predicate])
    if isinstance(condition, Both):
        return Either(tuple(map(negated, condition.parts)))
    if isinstance(condition, Either):
        return Both(tuple(map(negated, condition.parts)))
    return Anything()


def conjuncts(condition: Condition) -> list[Condition]:
    """Conditions that all have to hold."""
    if isinstance(condition, Both):
        return [found for part in condition.parts for found in conjuncts(part)]
    return [condition]


# ---- reading conditions


@dataclass(frozen=True)
class MaskReader:
    """Reads conditions of a region's tensors [.., rows, columns].

    rank: of the scores, whose last two axes are rows and columns.
    """

    region: Region
    rank: int

    def condition(self, value: Any, access: Access) -> Condition:
        """Of a boolean tensor, addressed so by the scores' loops."""
        found = self._value(value, access)
        return found if isinstance(found, Condition) else Anything()

    def _value(self, value: Any, at: Access) -> Linear | Condition | None:
        """A tensor at some coordinates; None: not known."""
        found = None if value in self.region.arguments else self._made(value, at)
        return self._term(value, at) if found is None else found

    def _made(self, value: Any, at: Access) -> Linear | Condition | None:
        """Of a tensor that is computed, if its operations are known."""
        operation = value.owner
        if isinstance(operation, ir.Block) or operation.name != "linalg.generic":
            return None
        if is_reduction(operation):
            return None
        if BLOCKS in operation.attributes:
            return self._blocks(operation, at)
        block = operation.regions[0].blocks[0]
        known: dict[Any, Any] = {}
        maps = indexing_maps(operation)
        for argument, operand, map_ in zip(
            block.arguments, inputs_of(operation), maps, strict=False
        ):
            known[argument] = self._value(operand, places_of(map_, at))
        for view in block.operations:
            op = view.operation
            if op.name == "linalg.yield":
                return self._known(op.operands[0], known)
            known[op.results[0]] = self._scalar(op, known, at)
        return None

    def _blocks(self, operation: Any, at: Access) -> Blocks | None:
        """A mask of blocks of the scores themselves."""
        if at != identity_access(self.rank):
            return None
        rows, columns = ir.DenseI64ArrayAttr(operation.attributes[BLOCKS])
        body = operation.regions[0].blocks[0].operations
        (taken,) = (v.operation for v in body if v.operation.name == "tensor.extract")
        mask = taken.operands[0]
        shared = tuple(n.constant == 1 for n in self.region.dims_of(mask)[:-2])
        return Blocks(mask, shared, rows, columns)

    def _term(self, value: Any, at: Access) -> Linear | None:
        """A term, if it is an integer that neither row nor column changes and a walk computes."""
        moving = (("loop", self.rank - 2), ("loop", self.rank - 1))
        is_fixed = all(
            extent.constant == 1 or (place not in moving and place[0] != "other")
            for extent, place in zip(self.region.dims_of(value), at, strict=True)
        )
        type_ = ir.RankedTensorType(value.type).element_type
        if not is_fixed or type_ != ops.i32_type() or not _is_walked(value):
            return None
        return Linear(terms=((1, value, at),))

    def _known(self, value: Any, known: dict[Any, Any]) -> Any:
        if value in known:
            return known[value]
        owner = value.owner
        is_constant = not isinstance(owner, ir.Block) and owner.name == "arith.constant"
        return _constant(owner) if is_constant else None

    def _scalar(self, op: Any, known: dict[Any, Any], at: Access) -> Linear | Condition | None:
        if op.name == "arith.constant":
            return _constant(op)
        if op.name == "linalg.index":
            return self._index(at[ir.IntegerAttr(op.attributes["dim"]).value])
        operands = [self._known(operand, known) for operand in op.operands]
        rule = _RULES.get(op.name)
        if rule is None or any(operand is None for operand in operands):
            return None
        return rule(op, *operands)

    def _index(self, place: tuple[Any, ...]) -> Linear | None:
        if place == ("loop", self.rank - 2):
            return Linear(row=1)
        if place == ("loop", self.rank - 1):
            return Linear(column=1)
        return Linear() if place == ("zero",) else None


def _is_walked(value: Any) -> bool:
    """Whether a walk needs no products and no reductions for a tensor."""
    operation = value.owner
    if isinstance(operation, ir.Block):
        return True
    if operation.name != "linalg.generic" or is_reduction(operation):
        return False
    body = operation.regions[0].blocks[0].operations
    taken = [view.operation.operands[0] for view in body if view.operation.name == "tensor.extract"]
    return all(map(_is_walked, [*inputs_of(operation), *taken]))


def places_of(map_: Any, at: Access) -> Access:
    """How an operand of an indexing map is addressed, by what its loops are."""
    found = []
    for result in map_.results:
        result = result.maybe_downcast()
        if isinstance(result, ir.AffineDimExpr):
            found.append(at[result.position])
        else:
            is_zero = isinstance(result, ir.AffineConstantExpr) and result.value == 0
            found.append(("zero",) if is_zero else ("other",))
    return tuple(found)


def _constant(op: Any) -> Linear | None:
    attribute = op.attributes["value"]
    if isinstance(op.results[0].type, ir.F32Type):
        return None
    try:
        number = ir.IntegerAttr(attribute).value
    except ValueError:
        return None
    return Linear(number=int(number)) if abs(int(number)) < _FAR else None


def _added(op: Any, a: Any, b: Any) -> Linear | None:
    return a.plus(b) if isinstance(a, Linear) and isinstance(b, Linear) else None


def _subtracted(op: Any, a: Any, b: Any) -> Linear | None:
    return a.plus(b, -1) if isinstance(a, Linear) and isinstance(b, Linear) else None


def _multiplied(op: Any, a: Any, b: Any) -> Linear | None:
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Linear) and one.is_number and isinstance(other, Linear):
            return other.times(one.number)
    return None


def _compared(op: Any, a: Any, b: Any) -> Condition | None:
    number = ir.IntegerAttr(op.attributes["predicate"]).value
    names = ("eq", "ne", "slt", "sle", "sgt", "sge")
    if number >= len(names) or not isinstance(a, Linear) or not isinstance(b, Linear):
        return None
    return Compare(names[number], a.plus(b, -1))


def _joined(kind: type[Both] | type[Either]) -> Callable[..., Condition | None]:
    def join(op: Any, a: Any, b: Any) -> Condition | None:
        return kind((a, b)) if isinstance(a, Condition) and isinstance(b, Condition) else None

    return join


def _flipped(op: Any, a: Any, b: Any) -> Condition | None:
    """xor with true."""
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Linear) and one.is_number and one.number in (1, -1):
            return negated(other) if isinstance(other, Condition) else None
    return None


_RULES: dict[str, Callable[..., Linear | Condition | None]] = {
    "arith.index_cast": lambda op, a: a if isinstance(a, Linear) else None,
    "arith.addi": _added,
    "arith.subi": _subtracted,
    "arith.muli": _multiplied,
    "arith.cmpi": _compared,
    "arith.andi": _joined(Both),
    "arith.ori": _joined(Either),
    "arith.xori": _flipped,
}


def terms(condition: Condition) -> list[tuple[Any, Access]]:
    """(leaf, how it is addressed) of what a condition compares rows and columns with."""
    if isinstance(condition, Compare):
        return [(leaf, access) for _, leaf, access in condition.form.terms]
    if isinstance(condition, Both | Either):
        return [term for part in condition.parts for term in terms(part)]
    return []


# ---- ranges of columns


@dataclass(frozen=True)
class Ranges:
    """Columns [some, some_end) of which the condition may hold, [all, all_end) of which it does.

    Numbers, or i32 values; empty where the end is not above the start.
    """

    some: Any
    some_end: Any
    all: Any
    all_end: Any

    @staticmethod
    def everywhere() -> Ranges:
        return Ranges(0, _FAR, 0, _FAR)

    @staticmethod
    def unknown() -> Ranges:
        return Ranges(0, _FAR, 0, 0)


def ranges(
    condition: Condition, first: Any, last: Any, load: Callable[[Any, Access], Any]
) -> Ranges:
    """Those of a condition, for rows `first` to `last`; load(leaf, access): a term's number."""
    if isinstance(condition, Both):
        parts = [ranges(part, first, last, load) for part in condition.parts]
        if not parts:
            return Ranges.everywhere()
        return Ranges(
            _most([p.some for p in parts]), _least([p.some_end for p in parts]),
            _most([p.all for p in parts]), _least([p.all_end for p in parts]),
        )  # fmt: skip
    if isinstance(condition, Either):
        parts = [ranges(part, first, last, load) for part in condition.parts]
        one = parts[0]
        for part in parts[1:]:
            lengths = ops.sub(part.all_end, part.all), ops.sub(one.all_end, one.all)
            one = replace(
                one,
                all=_where("sgt", *lengths, part.all, one.all),
                all_end=_where("sgt", *lengths, part.all_end, one.all_end),
            )
        return replace(
            one, some=_least([p.some for p in parts]), some_end=_most([p.some_end for p in parts])
        )
    if isinstance(condition, Compare) and abs(condition.form.column) <= 1:
        return _of_comparison(condition, first, last, load)
    return Ranges.unknown()


def _of_comparison(
    condition: Compare, first: Any, last: Any, load: Callable[[Any, Access], Any]
) -> Ranges:
    form, predicate = condition.form, condition.predicate
    if form.column == 0:
        return _of_rows(form, predicate, first, last, load)
    # column <predicate> bound
    bound = replace(form, column=0).times(-form.column)
    if form.column < 0:
        predicate = _MIRRORED[predicate]
    low, high = _extremes(bound, first, last, load)
    if predicate in ("slt", "sle"):
        more = int(predicate == "sle")
        return Ranges(0, ops.add(high, more), 0, ops.add(low, more))
    if predicate in ("sgt", "sge"):
        more = int(predicate == "sgt")
        return Ranges(ops.add(low, more), _FAR, ops.add(high, more), _FAR)
    if predicate == "eq":
        return Ranges(low, ops.add(high, 1), 0, 0)
    return Ranges.unknown()


def _of_rows(
    form: Linear, predicate: str, first: Any, last: Any, load: Callable[[Any, Access], Any]
) -> Ranges:
    """Of a condition on rows alone: all columns, or none."""
    low, high = _extremes(form, first, last, load)
    if predicate in ("eq", "ne"):
        return Ranges.unknown()
    less = predicate in ("slt", "sle")
    some_end = _where(predicate, low if less else high, 0, _FAR, 0)
    return Ranges(0, some_end, 0, _where(predicate, high if less else low, 0, _FAR, 0))


def _extremes(
    form: Linear, first: Any, last: Any, load: Callable[[Any, Access], Any]
) -> tuple[Any, Any]:
    """(least, largest) of a form without columns, over the rows."""
    rest: Any = form.number
    for factor, leaf, access in form.terms:
        rest = _sum(rest, _scaled(load(leaf, access), factor))
    ends = [_sum(_scaled(row, form.row), rest) for row in (first, last)]
    return (ends[0], ends[1]) if form.row >= 0 else (ends[1], ends[0])


def _scaled(number: Any, factor: int) -> Any:
    return ops.sub(0, number) if factor == -1 else ops.mul(number, factor)


def _sum(a: Any, b: Any) -> Any:
    """Kept within +-_FAR, in 64 bits on the way: what terms hold is not known."""
    if isinstance(a, int) and isinstance(b, int):
        return max(-_FAR, min(_FAR, a + b))
    wide = ops.add(ops.to_i64(ops.value_of(a)), ops.to_i64(ops.value_of(b)))
    low, high = (ops.const(n, ops.i64_type()) for n in (-_FAR, _FAR))
    return ops.to_i32(arith.MaxSIOp(low, arith.MinSIOp(wide, high).result).result)


def _where(predicate: str, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """yes where a <predicate> b, else no; predicate: slt, sle, sgt or sge."""
    if isinstance(a, int) and isinstance(b, int):
        return yes if _ORDERS[predicate](a, b) else no
    return ops.select(ops.compare(predicate, a, b), yes, no)


def _most(numbers: Sequence[Any]) -> Any:
    found = numbers[0]
    for number in numbers[1:]:
        found = ops.maximum(found, number)
    return found


def _least(numbers: Sequence[Any]) -> Any:
    found = numbers[0]
    for number in numbers[1:]:
        found = ops.minimum(found, number)
    return found


def is_triangular(condition: Condition) -> bool:
    """Whether later rows keep more columns, and no row drops what one before it keeps."""
    if isinstance(condition, Both):
        moving = [
            part for part in condition.parts if not (_is_level(part) or isinstance(part, Blocks))
        ]
        return bool(moving) and all(map(is_triangular, moving))
    if not isinstance(condition, Compare) or abs(condition.form.column) != 1:
        return False
    form, predicate = condition.form, condition.predicate
    if form.column < 0:
        predicate = _MIRRORED[predicate]
    return predicate in ("slt", "sle") and -form.row * form.column > 0


def _is_level(condition: Condition) -> bool:
    """Whether a condition is the same for every row, or on rows alone."""
    if isinstance(condition, Compare):
        return condition.form.row == 0 or condition.form.column == 0
    if isinstance(condition, Both | Either):
        return all(map(_is_level, condition.parts))
    return False
