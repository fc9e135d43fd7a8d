# pyright: basic
"""Reads conditions (`mask_conditions`) off the scalar operations of a region's tensors.

Places, numbers and sums of them are followed in INT32, whose sums may wrap around, and in f32, as
long as they are integers that f32 holds: below 2^24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...expr import Expr
from ...mlir import ir
from ...stackless import Steps, evaluated
from .. import ops
from ..region import Access, Region, composed, identity_access, read_values
from ..walk.region_walk import indexing_maps, inputs_of, is_reduction
from .mask_conditions import (
    BLOCKS,
    FAR,
    WRAPS,
    Anything,
    Blocks,
    Both,
    Compare,
    CompareNumbers,
    Condition,
    Either,
    Linear,
    Numbers,
    Varying,
    is_followed,
    negated,
)

_EXACT = 1 << 24  # integers below it are f32 numbers
_MOST = 1 << 62  # that 64 bits hold
_MOST_FACTOR = 1 << 16  # of what is loaded, which in 64 bits does not overflow then


@dataclass(frozen=True)
class Floating:
    """A form in f32.  is_exact: whether no value is rounded; else it is a term.

    A term that is rounded compares with exact ones as it does itself: they are below 2^24, and a
    term that is not is still no less when it is rounded.
    """

    form: Linear | Varying
    is_exact: bool


@dataclass(frozen=True)
class Truth:
    """1 where a condition holds, else 0."""

    condition: Condition


@dataclass(frozen=True)
class Extreme:
    """The largest or the smallest of some numbers, all `Linear` without terms or all exact
    `Floating`; an absolute value is the larger of a number and its negative."""

    is_largest: bool
    parts: tuple[Linear, ...] | tuple[Floating, ...]


_Known = Linear | Varying | Floating | Extreme | Truth | Condition
_TRUE, _FALSE = Compare("eq", Linear()), Compare("ne", Linear())


@dataclass(frozen=True)
class MaskReader:
    """Reads conditions of a region's tensors [.., rows, columns].

    dims: of the scores, whose last two axes are rows and columns.
    """

    region: Region
    dims: Sequence[Expr]
    _found: dict[Any, Any] = field(default_factory=dict[Any, Any])  # (tensor, places) -> what it is

    @property
    def rank(self) -> int:
        return len(self.dims)

    def condition(self, value: Any, access: Access) -> Condition:
        """The condition of a boolean tensor, addressed so by the scores' loops."""
        found = evaluated(self._value(value, access))
        return found if isinstance(found, Condition) else Anything()

    def form(self, value: Any, access: Access) -> Linear | None:
        """An integer as a linear form; None: it is none."""
        found = evaluated(self._value(value, access))
        return found if isinstance(found, Linear) else None

    def _value(self, value: Any, at: Access) -> Steps[_Known | None]:
        """A tensor at some coordinates; None: not known."""
        key = (value, at)
        if key not in self._found:
            found = None if value in self.region.arguments else (yield self._made(value, at))
            self._found[key] = self._term(value, at) if found is None else found
        return self._found[key]

    def _made(self, value: Any, at: Access) -> Steps[_Known | None]:
        """The form of a tensor that is computed, if its operations are known."""
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
            known[argument] = yield self._value(operand, composed(map_, at))
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

    def _term(self, value: Any, at: Access) -> Linear | Varying | None:
        """A term, if it is an integer that neither row nor column changes and a walk computes; if
        one of them does, its numbers."""
        dims = self.region.dims_of(value)
        places = [p for extent, p in zip(dims, at, strict=True) if extent.constant != 1]
        moving = [axis for axis in (-2, -1) if ("loop", self.rank + axis) in places]
        type_ = ir.RankedTensorType(value.type).element_type
        is_known = type_ == ops.i32_type() and _is_walked(value)
        if not is_known or ("other",) in places or len(moving) > 1:
            return None
        if moving:
            return Varying(Linear(), ((1, Numbers(value, at, moving[0])),))
        return Linear(terms=((1, value, at),))

    def _known(self, value: Any, known: dict[Any, Any]) -> Any:
        if value in known:
            return known[value]
        owner = value.owner
        is_constant = not isinstance(owner, ir.Block) and owner.name == "arith.constant"
        return _constant(owner) if is_constant else None

    def _scalar(self, op: Any, known: dict[Any, Any], at: Access) -> _Known | None:
        if op.name == "arith.constant":
            return _constant(op)
        if op.name == "linalg.index":
            return self._index(at[ir.IntegerAttr(op.attributes["dim"]).value])
        operands = [self._known(operand, known) for operand in op.operands]
        if op.name == "arith.select":
            return {_TRUE: operands[1], _FALSE: operands[2]}.get(operands[0])
        rule = _RULES.get(op.name)
        if rule is None or any(operand is None for operand in operands):
            return None
        found = self._checked(rule(op, *operands))
        return self._noted(found, *operands) if len(operands) == 2 else found

    def _checked(self, found: _Known | None) -> _Known | None:
        """The result of a rule; None where f32 may round it, except a term, where 32 bits don't
        hold it, and for a condition that is too long to be followed."""
        if isinstance(found, Both | Either):
            return found if is_followed(found) else None
        if isinstance(found, Linear | Varying):
            factors = [abs(factor) for factor, *_ in Varying.of(found).loaded]
            is_held = self._places(found) < WRAPS and max(factors, default=0) <= _MOST_FACTOR
            return found if is_held else None
        if not isinstance(found, Floating) or (found.form.is_term and not found.is_exact):
            return found
        form = found.form
        if isinstance(form, Varying):
            return None
        return found if not form.terms and self._places(form) < _EXACT else None

    def _places(self, form: Linear | Varying) -> int:
        """The largest that places and numbers of a form may be."""
        rows, columns = (extent.bounds()[1] for extent in self.dims[-2:])
        own = Varying.of(form).form
        return abs(own.row) * rows + abs(own.column) * columns + abs(own.number)

    def _noted(self, found: _Known | None, a: Any, b: Any) -> _Known | None:
        """A comparison of a and b, which says whether their sums may wrap around."""
        if not isinstance(found, Compare) or not isinstance(a, Linear):
            return found
        if all(side.is_term or not side.terms for side in (a, b)):
            return found
        return replace(found, places=max(map(self._places, (a, b))))

    def _index(self, place: tuple[Any, ...]) -> Linear | None:
        if place == ("loop", self.rank - 2):
            return Linear(row=1)
        if place == ("loop", self.rank - 1):
            return Linear(column=1)
        return Linear() if place == ("zero",) else None


def _is_walked(value: Any) -> bool:
    """Whether a walk needs no products and no reductions for a tensor."""
    pending, seen = [value], {value}
    while pending:
        operation = pending.pop().owner
        if isinstance(operation, ir.Block):
            continue
        if operation.name != "linalg.generic" or is_reduction(operation):
            return False
        read = [value for value in read_values(operation) if value not in seen]
        pending += read
        seen.update(read)
    return True


def _constant(op: Any) -> Linear | Floating | None:
    attribute = op.attributes["value"]
    if isinstance(op.results[0].type, ir.F32Type):
        real = ir.FloatAttr(attribute).value
        is_whole = abs(real) < _MOST and real.is_integer()
        return Floating(Linear(number=int(real)), True) if is_whole else None
    try:
        number = ir.IntegerAttr(attribute).value
    except ValueError:
        return None
    return Linear(number=int(number)) if abs(int(number)) < FAR else None


def _added(op: Any, a: Any, b: Any, factor: int = 1) -> Linear | Varying | None:
    if not isinstance(a, Linear | Varying) or not isinstance(b, Linear | Varying):
        return None
    if isinstance(a, Linear) and isinstance(b, Linear):
        return a.plus(b, factor)
    return Varying.of(a).plus(b, factor)


def _subtracted(op: Any, a: Any, b: Any) -> Linear | Varying | None:
    return _added(op, a, b, -1)


def _multiplied(op: Any, a: Any, b: Any) -> Linear | Varying | None:
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Linear) and one.is_number and isinstance(other, Linear | Varying):
            return other.times(one.number)
    return None


def _absolute(op: Any, a: Any) -> Extreme | None:
    if isinstance(a, Linear) and not a.terms:
        return Extreme(True, (a, a.times(-1)))
    if isinstance(a, Floating) and a.is_exact and isinstance(a.form, Linear):
        return Extreme(True, (a, Floating(a.form.times(-1), True)))
    return None


def _extreme(*, is_largest: bool) -> Callable[[Any, Any, Any], Extreme | None]:
    def found(op: Any, a: Any, b: Any) -> Extreme | None:
        parts: list[Any] = []
        for side in (a, b):
            is_alike = isinstance(side, Extreme) and side.is_largest == is_largest
            parts += side.parts if is_alike else [side]
        are_places = all(isinstance(p, Linear) and not p.terms for p in parts)
        return (
            Extreme(is_largest, tuple(parts)) if are_places or all(map(_is_exact, parts)) else None
        )

    return found


def _is_exact(value: Any) -> bool:
    """Whether it is a number in f32 that is not rounded."""
    return isinstance(value, Floating) and value.is_exact and isinstance(value.form, Linear)


def _of_extremes(
    rule: Callable[[Any, Any, Any], Condition | None], names: Mapping[int, str]
) -> Callable[[Any, Any, Any], Condition | None]:
    """A comparison of each part, all of which or one of which has to hold.

    names: of the predicates.
    """

    def compared(op: Any, a: Any, b: Any) -> Condition | None:
        if not isinstance(a, Extreme) and not isinstance(b, Extreme):
            return rule(op, a, b)
        predicate = names.get(ir.IntegerAttr(op.attributes["predicate"]).value, "")
        is_left = isinstance(a, Extreme)
        extreme, other = (a, b) if is_left else (b, a)
        is_plain = isinstance(other, Linear) and (other.is_term or not other.terms)
        if predicate not in (*_BELOW, *_ABOVE) or not (is_plain or isinstance(other, Floating)):
            return None
        found = [rule(op, *((p, other) if is_left else (other, p))) for p in extreme.parts]
        are_all = extreme.is_largest == ((predicate in _BELOW) == is_left)
        parts = tuple(condition for condition in found if condition is not None)
        return (Both if are_all else Either)(parts) if len(parts) == len(found) else None

    return compared


def _truth(op: Any, a: Any) -> Truth | None:
    return Truth(a) if isinstance(a, Condition) else None


def _compared(op: Any, a: Any, b: Any) -> Condition | None:
    if isinstance(a, Truth):
        return _tested(op, a, b, Linear(), 1)
    name = _OF_INTEGERS.get(ir.IntegerAttr(op.attributes["predicate"]).value)
    sides = [side for side in (a, b) if isinstance(side, Linear | Varying)]
    if name is None or len(sides) < 2:
        return None
    if any(isinstance(side, Varying) for side in sides):
        left, right = map(Varying.of, sides)
        return CompareNumbers(name, left, right)
    return Compare(name, a.plus(b, -1))


def _converted(op: Any, a: Any) -> Floating | None:
    if not isinstance(op.results[0].type, ir.F32Type) or not isinstance(a, Linear | Varying):
        return None
    return Floating(a, isinstance(a, Linear) and not a.terms)


def _whole(op: Any, a: Any) -> Linear | Varying | None:
    return a.form if isinstance(a, Floating) and a.is_exact else None


def _of_floats(
    rule: Callable[[Any, Any, Any], Linear | Varying | None],
) -> Callable[[Any, Any, Any], Floating | None]:
    """The condition in f32."""

    def combined(op: Any, a: Any, b: Any) -> Floating | None:
        if not all(isinstance(operand, Floating) and operand.is_exact for operand in (a, b)):
            return None
        form = rule(op, a.form, b.form)
        return None if form is None else Floating(form, True)

    return combined


def _tested(op: Any, a: Truth, b: Any, zero: Any, predicate: int) -> Condition | None:
    """Whether a truth is not 0."""
    is_test = ir.IntegerAttr(op.attributes["predicate"]).value == predicate
    return a.condition if is_test and b == zero else None


def _floats_compared(op: Any, a: Any, b: Any) -> Condition | None:
    if isinstance(a, Truth):
        return _tested(op, a, b, Floating(Linear(), True), _UNORDERED_NE)
    number = ir.IntegerAttr(op.attributes["predicate"]).value
    if not isinstance(a, Floating) or not isinstance(b, Floating):
        return None
    if number == _UNORDERED:
        return _FALSE
    if number not in _OF_FLOATS:
        return None
    predicate, left, right = _OF_FLOATS[number], a.form, b.form
    if isinstance(left, Varying) or isinstance(right, Varying):
        return CompareNumbers(predicate, Varying.of(left), Varying.of(right), is_float=True)
    if not (a.is_exact or b.is_exact):
        return None
    found = Compare(predicate, left.plus(right, -1))
    if abs(found.form.number) < _EXACT:
        return found
    # Of a number that is beyond all others; of two such, or of a term, nothing is known.
    if not (a.is_exact and b.is_exact) or left.is_number == right.is_number:
        return None
    is_below = found.form.number < 0
    return _TRUE if found.predicate in ("ne", *(_BELOW if is_below else _ABOVE)) else _FALSE


# Predicates of `arith.cmpi` of signed numbers.
_OF_INTEGERS = dict(enumerate(("eq", "ne", "slt", "sle", "sgt", "sge")))
# Predicates of `arith.cmpf`, ordered ones and the others, which are the same of numbers.
_OF_FLOATS = {
    first + i: name
    for first in (1, 8)
    for i, name in enumerate(("eq", "sgt", "sge", "slt", "sle", "ne"))
}
_UNORDERED_NE, _UNORDERED = 13, 14
_BELOW, _ABOVE = ("slt", "sle"), ("sgt", "sge")


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


_RULES: dict[str, Callable[..., _Known | None]] = {
    "arith.index_cast": lambda op, a: a if isinstance(a, Linear) else None,
    "arith.addi": _added,
    "arith.subi": _subtracted,
    "arith.muli": _multiplied,
    "arith.cmpi": _of_extremes(_compared, _OF_INTEGERS),
    "arith.extui": _truth,
    "arith.uitofp": _truth,
    "arith.sitofp": _converted,
    "arith.addf": _of_floats(_added),
    "arith.subf": _of_floats(_subtracted),
    "arith.mulf": _of_floats(_multiplied),
    "arith.cmpf": _of_extremes(_floats_compared, _OF_FLOATS),
    **dict.fromkeys(("math.absf", "math.absi"), _absolute),
    **dict.fromkeys(("arith.maximumf", "arith.maxsi"), _extreme(is_largest=True)),
    **dict.fromkeys(("arith.minimumf", "arith.minsi"), _extreme(is_largest=False)),
    "arith.fptosi": _whole,
    "math.roundeven": lambda op, a: a if isinstance(a, Floating) and a.is_exact else None,
    "arith.andi": _joined(Both),
    "arith.ori": _joined(Either),
    "arith.xori": _flipped,
}
