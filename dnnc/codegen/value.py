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


def element_of(type_: Any) -> Any:
    """The element type of a vector; another type as it is."""
    return type_.element_type if isinstance(type_, ir.VectorType) else type_


def wrapped(made: Any) -> Any:
    """An operation's result, or a value, with operators; a number of Python as it is."""
    if isinstance(made, int | Value):
        return made
    return Value(made if isinstance(made, ir.Value) else made.result)


def _is_integer(type_: Any) -> bool:
    return isinstance(type_, ir.IntegerType | ir.IndexType)


def _type_of(a: Any, b: Any) -> Any:
    """The type that an operator works in: of the vector, if one is."""
    types = [number.type for number in (a, b) if isinstance(number, ir.Value)]
    return next((type_ for type_ in types if isinstance(type_, ir.VectorType)), types[0])


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
    words = (ops.i32_type(), ops.i64_type())
    for number in (a, b):
        if isinstance(number, float):
            raise TypeError(f"{number} beside {type_}: cast one of them")
        if isinstance(number, ir.Value) and number.type != type_:
            if number.type not in words or type_ not in words:
                raise TypeError(f"{number.type} beside {type_}: cast one of them")


def _binary(fold: str, integer: Any, float_: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """An operator and its mirror.

    fold: the function of `ops` for scalar integers; "" where there is none.  integer, float_: the
    operations on vectors of integers, and on floats; None: there are none.
    """

    def emit(a: Any, b: Any) -> Any:
        type_ = _type_of(a, b)
        if fold and _is_integer(type_):
            _checked(a, b, type_)
            return wrapped(getattr(ops, fold)(a, b))
        make = float_ if isinstance(element_of(type_), ir.FloatType) else integer
        if make is None:
            raise TypeError(f"an operator that {type_} does not have")
        return wrapped(make(_filled(a, type_), _filled(b, type_)))

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
        if _is_integer(type_):
            _checked(a, b, type_)
            return wrapped(ops.compare(integer, a, b))
        first, second = _filled(a, type_), _filled(b, type_)
        if isinstance(element_of(type_), ir.FloatType):
            return wrapped(arith.CmpFOp(of_floats, first, second))
        return wrapped(arith.CmpIOp(of_vectors, first, second))

    return _mirrored(emit)[0]


class Value(ir.Value):
    """See the file's docstring."""

    __add__, __radd__ = _binary("add", arith.AddIOp, arith.AddFOp)
    __sub__, __rsub__ = _binary("sub", arith.SubIOp, arith.SubFOp)
    __mul__, __rmul__ = _binary("mul", arith.MulIOp, arith.MulFOp)
    __truediv__, __rtruediv__ = _binary("", None, arith.DivFOp)
    __floordiv__, __rfloordiv__ = _binary("div", arith.DivUIOp, None)
    __mod__, __rmod__ = _binary("rem", arith.RemUIOp, None)
    __and__, __rand__ = _binary("and_", arith.AndIOp, None)
    __or__, __ror__ = _binary("or_", arith.OrIOp, None)
    __xor__, __rxor__ = _binary("xor", arith.XOrIOp, None)
    __lshift__, __rlshift__ = _binary("shl", arith.ShLIOp, None)
    __rshift__, __rrshift__ = _binary("shr", arith.ShRUIOp, None)

    __lt__, __le__ = _compared("slt", "olt"), _compared("sle", "ole")
    __gt__, __ge__ = _compared("sgt", "ogt"), _compared("sge", "oge")
    eq, ne = _compared("eq", "oeq"), _compared("ne", "une")

    def __neg__(self) -> Any:
        is_float = isinstance(element_of(self.type), ir.FloatType)
        return wrapped(arith.NegFOp(self)) if is_float else 0 - self

    def __bool__(self) -> bool:
        raise TypeError("a kernel's value has no truth in Python: use if_, select, & and |")


from . import ops  # noqa: E402  (it gives values, whose operators call it)
