# pyright: basic
"""Values of a kernel with Python's operators: `a * b + c`, `i < n`, `-x`, `x // 8`.

An operator on integers is the call of `ops` of the same meaning, with what that folds; on floats
and vectors it is one operation of `arith`.  Numbers of Python go on either side.  Integers are
signed in `<` `<=` `>` `>=`, and not negative in `//` `%` `>>`.

`==` stays Python's: whether two names mean one value, which records and `ops.sub` ask.  `a.eq(b)`
and `a.ne(b)` compare at run time.  A value has no truth in Python, so `if a < b`, `0 < i < n` and
`a and b` raise instead of emitting one branch; `(a < b) & (c < d)` needs its brackets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..mlir import arith, ir

_NUMBERS = (int, float, ir.Value)
_INTEGERS = (ir.IntegerType, ir.IndexType)


def element_of(type_: Any) -> Any:
    """The element type of a vector; another type as it is."""
    return type_.element_type if isinstance(type_, ir.VectorType) else type_


def wrapped(made: Any) -> Any:
    """An operation's result, or a value, with operators; a number of Python as it is."""
    if isinstance(made, int | Value):
        return made
    return Value(made if isinstance(made, ir.Value) else made.result)


def built(
    name: str, type_: Any, operands: list[Any], attributes: dict[str, Any] | None = None
) -> Any:
    """The result of a new operation, with operators.

    For operations that kernels have thousands of: it takes a third of the time of the bindings'
    classes, which find out types and convert attributes.
    """
    made = ir.Operation.create(name, results=[type_], operands=operands, attributes=attributes)
    return Value(made.result)


def _type_of(a: Any, b: Any) -> Any:
    """The type that an operator works in: of the vector, if one is."""
    if not isinstance(a, ir.Value):
        return b.type
    if not isinstance(b, ir.Value) or isinstance(a.type, ir.VectorType):
        return a.type
    return b.type if isinstance(b.type, ir.VectorType) else a.type


def _filled(number: Any, type_: Any) -> Any:
    """A number of Python, or a scalar, as a value of a type."""
    element = element_of(type_)
    if not isinstance(number, ir.Value):
        if isinstance(number, float) and not isinstance(element, ir.FloatType):
            raise TypeError(f"{number} beside {type_}: cast one of them")
        attribute = ir.FloatAttr if isinstance(element, ir.FloatType) else ir.IntegerAttr
        number = arith.ConstantOp(element, attribute.get(element, number)).result
    if number.type == type_:
        return number
    if number.type != element:
        raise TypeError(f"{number.type} beside {type_}: cast one of them")
    return ops.splat(number, type_.shape[0])


def _checked(a: Any, b: Any, type_: Any) -> None:
    """Raises for scalars that `ops` does not take: it extends an i32 beside an i64, no other."""
    for number in (a, b):
        if isinstance(number, float):
            raise TypeError(f"{number} beside {type_}: cast one of them")
        if isinstance(number, ir.Value) and number.type != type_:
            words = (ops.i32_type(), ops.i64_type())
            if number.type not in words or type_ not in words:
                raise TypeError(f"{number.type} beside {type_}: cast one of them")


def _binary(fold: str, integer: str, float_: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """An operator and its mirror.

    fold: the function of `ops` for scalar integers.  integer, float_: the operations of `arith` on
    vectors of integers, and on floats.  "": there is none.
    """

    def emit(a: Any, b: Any) -> Any:
        type_ = _type_of(a, b)
        if fold and isinstance(type_, _INTEGERS):
            _checked(a, b, type_)
            return getattr(ops, fold)(a, b)
        name = float_ if isinstance(element_of(type_), ir.FloatType) else integer
        if not name:
            raise TypeError(f"an operator that {type_} does not have")
        return built(f"arith.{name}", type_, [_filled(a, type_), _filled(b, type_)])

    return _mirrored(emit)


def _mirrored(emit: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: Any, other: Any) -> Any:
        return emit(self, other) if isinstance(other, _NUMBERS) else NotImplemented

    def backward(self: Any, other: Any) -> Any:
        return emit(other, self) if isinstance(other, _NUMBERS) else NotImplemented

    return forward, backward


def _compared(integer: str, float_: str) -> Callable[..., Any]:
    """A comparison; its operands' names of the predicates of integers and of floats."""
    of_vectors = getattr(arith.CmpIPredicate, integer)
    of_floats = getattr(arith.CmpFPredicate, float_.upper())

    def emit(a: Any, b: Any) -> Any:
        type_ = _type_of(a, b)
        if isinstance(type_, _INTEGERS):
            _checked(a, b, type_)
            return ops.compare(integer, a, b)
        first, second = _filled(a, type_), _filled(b, type_)
        if isinstance(element_of(type_), ir.FloatType):
            return wrapped(arith.CmpFOp(of_floats, first, second))
        return wrapped(arith.CmpIOp(of_vectors, first, second))

    return _mirrored(emit)[0]


class Value(ir.Value):
    """See the file's docstring."""

    __add__, __radd__ = _binary("add", "addi", "addf")
    __sub__, __rsub__ = _binary("sub", "subi", "subf")
    __mul__, __rmul__ = _binary("mul", "muli", "mulf")
    __truediv__, __rtruediv__ = _binary("", "", "divf")
    __floordiv__, __rfloordiv__ = _binary("div", "divui", "")
    __mod__, __rmod__ = _binary("rem", "remui", "")
    __and__, __rand__ = _binary("and_", "andi", "")
    __or__, __ror__ = _binary("or_", "ori", "")
    __xor__, __rxor__ = _binary("xor", "xori", "")
    __lshift__, __rlshift__ = _binary("shl", "shli", "")
    __rshift__, __rrshift__ = _binary("shr", "shrui", "")

    __lt__, __le__ = _compared("slt", "olt"), _compared("sle", "ole")
    __gt__, __ge__ = _compared("sgt", "ogt"), _compared("sge", "oge")
    eq, ne = _compared("eq", "oeq"), _compared("ne", "une")

    def __neg__(self) -> Any:
        is_float = isinstance(element_of(self.type), ir.FloatType)
        return wrapped(arith.NegFOp(self)) if is_float else 0 - self

    def __bool__(self) -> bool:
        raise TypeError("a kernel's value has no truth in Python: use if_, select, & and |")


from . import ops  # noqa: E402  (it gives values, whose operators call it)
