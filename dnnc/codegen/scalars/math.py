# pyright: basic
"""Scalar operations on fragments: which instruction each one becomes.

Exact functions stay `math` operations, which the pipeline turns into calls of libdevice and
links (2 ulp or better in f32).  With `fastmath<afn>` the hardware's approximations are used
instead, and with `arcp` on a division whose divisor is at least 1.  Their errors, relative unless
said: exp, log, rsqrt, sqrt and divisions within about 2**-22 (PTX ISA, "Floating Point
Instructions"); tanh within 2**-10.9, or with `arcp` in place of `afn` (scores of attention) within
2.4e-7 absolute, with `contract` too 2.6e-6; erf within 3.5e-6, with `contract` too 4e-7 absolute
(Abramowitz and Stegun, 7.1.26).
Results of exp and of a division with `arcp` that are subnormal become 0.
Elements of 8 bits: `byte_math`.
"""

from __future__ import annotations

import functools
import math as python_math
from collections.abc import Callable, Sequence
from typing import Any

from ... import dtypes
from ...dtypes import DType
from ...mlir import arith, attributes_of, ir, llvm
from ...mlir import math as mlir_math
from ...target import Target
from .. import ops
from ..totals.votes import is_any_above
from . import byte_math
from .byte_math import F8, from_f8
from .defined_by import broadcast_of, constant_of, integer_behind
from .scalar import convert

_MOST_COUNT = 1 << 24  # which f32 has exactly


def lower(
    target: Target, op: Any, types: Sequence[Any], operands: Sequence[Any], width: int
) -> Any:
    """`op` of a body on fragments of one width; types: of its operands, as scalars."""
    result = op.results[0].type
    if (made := byte_math.lower(op, types[0], operands[0], width)) is not None:
        return made
    if op.name == "math.erf" and allows(op, "contract"):
        return _erf_beside_1(*operands)
    rule = _APPROXIMATE.get(op.name)
    if rule is not None and allows(op, "arcp" if op.name == "arith.divf" else "afn"):
        return rule(*operands)
    if op.name == "math.tanh" and allows(op, "arcp"):
        return _tanh_of_exponential(*operands, is_capped=allows(op, "contract"))
    if op.name == "arith.divf":
        return _full_div(*operands) if allows(op, "afn") else quotient(*operands)
    if op.name in ("math.sqrt", "math.rsqrt"):  # libdevice's are approximations in f32
        return _exact_root(operands[0], is_reciprocal=op.name == "math.rsqrt")
    made = ir.Operation.create(
        op.name,
        results=[ops.vector_type(_register(result), width)],
        operands=list(operands),
        attributes=attributes_of(op),
    )
    return made.results[0]


def unpacked(op: Any, operands: Sequence[Any], width: int) -> Any:
    """f32 of a fragment of bf16, where `op` of a body makes that; else None.

    An instruction an element: the back end's own conversion takes two for every other one.  But it
    does what is rounded to bf16 again in bf16, two elements at once.
    """
    if op.name != "arith.extf" or width % 2:
        return None
    if [str(value.type) for value in (*op.operands, *op.results)] != ["bf16", "f32"]:
        return None
    return ops.from_elements(_from_bf16(operands[0]))


def widened(value: Any, source: DType, target: DType) -> list[Any]:
    """The elements of a fragment of one data type as scalars of another, which has at least as
    many bits."""
    if source.is_float and source.bits == 8:
        value = from_f8(value, source.name, ops.width_of(value))
        source = dtypes.f32
    if source == dtypes.bf16 and ops.width_of(value) % 2 == 0:
        return [convert(element, dtypes.f32, target) for element in _from_bf16(value)]
    return [convert(element, source, target) for element in ops.elements(value)]


def _from_bf16(value: Any) -> list[Any]:
    """f32 of pairs of bf16 elements, an instruction each: they are the upper halves of f32."""
    words = ops.vector_type(ops.i32_type(), ops.width_of(value) // 2)
    found: list[Any] = []
    for word in ops.elements(llvm.BitcastOp(words, value).result):
        for bits in (ops.shl(word, 16), ops.and_(word, -(1 << 16))):
            found.append(llvm.BitcastOp(ops.f32_type(), bits).result)
    return found


def quotient(x: Any, y: Any) -> Any:
    """x / y to nearest.

    By a count of elements that is a constant, without an instruction that divides: its rare cases
    are a function of the assembler's, around which a thread that has many sums spills registers.
    """
    element = x.type.element_type if isinstance(x.type, ir.VectorType) else x.type
    count = integer_behind(y) if isinstance(element, ir.F32Type) else None
    if count is None or not 0 < count < _MOST_COUNT or not count & (count - 1):
        return arith.DivFOp(x, y).result
    return _divided_by(x, count)


def _divided_by(x: Any, count: int) -> Any:
    """x / count by the reciprocal, corrected until it is to nearest, unless it is subnormal.

    Nothing is left of an exact one, and NaN of what is not finite.
    Source: Markstein, "IA-64 and Elementary Functions", 2000.
    """
    reciprocal, divisor = _filled(1 / count, x), _filled(-float(count), x)
    first = arith.MulFOp(x, reciprocal).result
    rest = mlir_math.FmaOp(first, divisor, x).result
    near = mlir_math.FmaOp(rest, reciprocal, first).result
    rest_of_near = mlir_math.FmaOp(near, divisor, x).result
    nearest = mlir_math.FmaOp(rest_of_near, reciprocal, near).result
    is_off = arith.CmpFOp(arith.CmpFPredicate.ONE, rest, ops.zeros(x.type)).result
    return arith.SelectOp(is_off, nearest, first).result


def _exact_root(x: Any, *, is_reciprocal: bool) -> Any:
    """The square root to nearest, or 1 over it, rounded again."""
    element = x.type.element_type if isinstance(x.type, ir.VectorType) else x.type
    name = f"llvm.nvvm.sqrt.rn.{'d' if element.width == 64 else 'f'}"
    root = _each(lambda e: llvm.call_intrinsic(element, name, [e], [], []), x)
    if not is_reciprocal:
        return root
    one = arith.ConstantOp(element, ir.FloatAttr.get(element, 1.0)).result
    return arith.DivFOp(ops.splat(one, ops.width_of(x)), root).result


def _register(type_: Any) -> Any:
    return ir.IntegerType.get_signless(8) if str(type_) in F8 else type_


def allows(op: Any, flag: str) -> bool:
    return "fastmath" in op.attributes and flag in str(op.attributes["fastmath"])


# ---- approximate functions of f32


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    return ops.from_elements([function(element) for element in ops.elements(value)])


def _intrinsic(name: str) -> Callable[[Any], Any]:
    """A one-operand f32 intrinsic, element by element."""

    def call(value: Any) -> Any:
        f32 = ir.F32Type.get()
        return _each(lambda x: llvm.call_intrinsic(f32, f"llvm.nvvm.{name}", [x], [], []), value)

    return call


def _filled(value: float, like: Any) -> Any:
    return ops.splat(ops.f32(value), ops.width_of(like))


def _mul(a: Any, b: Any) -> Any:
    return arith.MulFOp(a, b).result


def _fma(a: Any, b: Any, c: Any) -> Any:
    return mlir_math.FmaOp(a, b, c).result


_ex2 = _intrinsic("ex2.approx.ftz.f")
_lg2 = _intrinsic("lg2.approx.f")
rcp = _intrinsic("rcp.approx.ftz.f")
_rsqrt = _intrinsic("rsqrt.approx.f")
_sqrt = _intrinsic("sqrt.approx.f")


def _tanh(x: Any) -> Any:
    f32 = ir.F32Type.get()
    return _each(lambda e: llvm.inline_asm(f32, [e], "tanh.approx.f32 $0, $1;", "=f,f"), x)


def _tanh_of_exponential(x: Any, *, is_capped: bool) -> Any:
    """1 - 1 / h, h = exp(2 x) / 2 + 1/2.

    The special function unit, which is what attention waits for, has the exponentials, and every
    other reciprocal: multiply-adds make the rest.  is_capped: within 2.6e-6, not 2.4e-7.
    """
    x, factor = _uniform_product(2 * python_math.log2(python_math.e), x)
    z = _fma(x, ops.splat(factor, ops.width_of(x)), _filled(-1.0, x))
    by_multiply_adds = _tanh_by_polynomial if is_capped else _tanh_by_newton
    found = [
        by_multiply_adds(number) if place % 2 else _tanh_by_reciprocal(number)
        for place, number in enumerate(ops.elements(z))
    ]
    return ops.from_elements(found)


def tanh_together(given: Sequence[Any], *, is_capped: bool, is_exact: bool = False) -> list[Any]:
    """The tanh of fragments, as `_tanh_of_exponential` has it; is_exact: as libdevice has it.

    Where all numbers of a warp are near 0, as scores beside their cap are, by powers of these: four
    or five instructions an element, none of which the special function unit has.
    """
    factored = [_constant_product(x) for x in given]

    def near() -> list[Any]:
        return [e for x, factor in factored for e in _tanh_by_powers(x, factor, is_capped)]

    def far() -> list[Any]:
        if is_exact:
            made = [mlir_math.TanhOp(x).result for x in given]
        else:
            made = [_tanh_of_exponential(x, is_capped=is_capped) for x in given]
        return [e for fragment in made for e in ops.elements(fragment)]

    widths = [ops.width_of(x) for x in given]
    found = ops.either(_is_any_far(factored), [ops.f32_type()] * sum(widths), far, near)
    return [ops.from_elements([found.pop(0) for _ in range(width)]) for width in widths]


def _constant_product(x: Any) -> tuple[Any, float]:
    """(y, number): y times the number is x; constants that multiply all of a fragment are in it,
    but where an f32 would not hold its powers."""
    y, number = x, 1.0
    while (found := _uniform_factor(y)) is not None:
        constant = constant_of(found[1])
        if constant is None:
            break
        y, number = found[0], number * constant
    is_held = 2.0**-_FACTOR_EXPONENT <= abs(number) <= 2.0**_FACTOR_EXPONENT
    return (y, number) if is_held else (x, 1.0)


def _tanh_by_powers(x: Any, factor: float, is_capped: bool) -> list[Any]:
    """Elements of tanh(x factor): x times a polynomial of its square, with the factor in it."""
    coefficients = [
        ops.f32(coefficient * factor ** (2 * i + 1))
        for i, coefficient in enumerate(_TANH[is_capped])
    ]
    found = []
    for element in ops.elements(x):
        t = _mul(element, element)
        value = coefficients[-1]
        for coefficient in reversed(coefficients[:-1]):
            value = _fma(value, t, coefficient)
        found.append(_mul(element, value))
    return found


def _is_any_far(factored: Sequence[tuple[Any, float]]) -> Any:
    """Whether powers are not enough for all x factor of a warp; of NaN they make NaN."""
    largest: dict[float, list[Any]] = {}
    for x, factor in factored:
        largest.setdefault(abs(factor), []).extend(ops.elements(x))
    sizes = [_mul(_largest_size(found), ops.f32(factor)) for factor, found in largest.items()]
    return is_any_above(_most(sizes), _NEAR)


def _largest_size(elements: Sequence[Any]) -> Any:
    """The largest absolute value of some elements, NaN aside."""
    sizes = [mlir_math.AbsFOp(element).result for element in elements]
    return _most([_most(sizes[i::_CHAINS]) for i in range(min(_CHAINS, len(sizes)))])


def _most(values: Sequence[Any]) -> Any:
    return functools.reduce(lambda a, b: arith.MaxNumFOp(a, b).result, values)


def _tanh_by_reciprocal(z: Any) -> Any:
    """1 - 1 / h, h = 2**z + 1/2."""
    return arith.SubFOp(ops.f32(1.0), rcp(_plus(_ex2(z), 0.5))).result


def _tanh_by_newton(z: Any) -> Any:
    """The same: -1 / h by a guess, a polynomial and a step of Newton's method."""
    h, guess, t = _guessed(z)
    found = _mul(guess, _polynomial(_NEAR_INVERSE, t))
    rest = _fma(h, found, ops.f32(1.0))
    return _fma(found, rest, _plus(found, 1.0))


def _tanh_by_polynomial(z: Any) -> Any:
    """The same: -1 / h by a guess and a polynomial."""
    _, guess, t = _guessed(z)
    return _fma(guess, _polynomial(_INVERSE, t), ops.f32(1.0))


def _guessed(z: Any) -> tuple[Any, Any, Any]:
    """(h = 2**z + 1/2, about -1 / h by the bits of h, their product)."""
    h = _plus(_ex2(arith.MinimumFOp(z, ops.f32(_LARGEST_EXPONENT)).result), 0.5)
    bits = llvm.BitcastOp(ops.i32_type(), h).result
    guess = llvm.BitcastOp(h.type, ops.sub(ops.const(ops.signed(_GUESS)), bits)).result
    return h, guess, _mul(h, guess)


def _polynomial(coefficients: Sequence[float], t: Any) -> Any:
    """c0 + c1 t + ... + t**n."""
    *rest, last = coefficients
    found = _plus(t, last)
    for coefficient in reversed(rest):
        found = _fma(found, t, ops.f32(coefficient))
    return found


# Up to here x times a polynomial of x**2 is tanh(x), within 2.3e-6 and, of one degree more, 7.1e-8;
# of all such polynomials those whose greatest error is least.  One more coefficient of the first
# would do up to 0.7, for an instruction an element.
_NEAR = 0.44
_TANH = {
    True: (0.9999635, -0.33178943, 0.11678196),
    False: (0.9999991, -0.33327137, 0.13215363, -0.045493612),
}
_FACTOR_EXPONENT = 12  # the seventh power of 2**-12 is normal, and so is a coefficient of it
_CHAINS = 4  # of maxima, which don't wait for each other
# 1 / (1 + 2**60) is nothing beside 1, and what follows holds up to there.
_LARGEST_EXPONENT = 60.0
# A number whose difference to the bits of h, read as f32, times h is t, -1.051 to -0.950; and the
# lower coefficients of the polynomials, of which the highest is 1, that are nearest to -1 / t
# there: of degree 2, within 3.3e-5, and 3, within 8.3e-7.  The guess is such that no other factor
# is wanted.
_GUESS = 0xFEF33408
_NEAR_INVERSE = (3.0019262, 3.0019274)
_INVERSE = (4.002565, 6.005129, 4.002563)


def _plus(x: Any, number: float) -> Any:
    return arith.AddFOp(x, _filled(number, x)).result


def _uniform_product(number: float, x: Any) -> tuple[Any, Any]:
    """(y, scalar): y * scalar is x * number; what multiplies all of a fragment is in the scalar."""
    factor = ops.f32(number)
    while (found := _uniform_factor(x)) is not None:
        x, other = found
        factor = _mul(factor, other)
    return x, factor


def factors_of(x: Any) -> tuple[Any, Any] | None:
    """The factors of a product of f32; None: it is no product."""
    owner = x.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.mulf":
        return None
    return owner.operands[0], owner.operands[1]


def _uniform_factor(x: Any) -> tuple[Any, Any] | None:
    """(y, scalar) of a fragment y * scalar."""
    factors = factors_of(x)
    for y, factor in (factors, factors[::-1]) if factors else ():
        if (scalar := broadcast_of(factor)) is not None:
            return y, scalar
    return None


def _exp(x: Any) -> Any:
    return _ex2(_mul(x, _filled(python_math.log2(python_math.e), x)))


def _log(x: Any) -> Any:
    return _mul(_lg2(x), _filled(python_math.log(2), x))


def _div(x: Any, y: Any) -> Any:
    return _mul(x, rcp(y))


def _full_div(x: Any, y: Any) -> Any:
    f32, pairs = ir.F32Type.get(), zip(ops.elements(x), ops.elements(y), strict=True)
    divided = [llvm.inline_asm(f32, [a, b], "div.full.f32 $0, $1, $2;", "=f,f,f") for a, b in pairs]
    return ops.from_elements(divided)


_LEAST_ERF = 0.125  # of whose erf the absolute error of the other way is 3e-6


def _erf(x: Any) -> Any:
    """Erf: for small x, three terms of the series, whose next one is 1e-7 of them at the most."""
    scale, square = 2 / python_math.sqrt(python_math.pi), _mul(x, x)
    series = _fma(square, _filled(scale / 10, x), _filled(-scale / 3, x))
    series = _fma(square, series, _filled(scale, x))
    size, least = mlir_math.AbsFOp(x).result, _filled(_LEAST_ERF, x)
    is_small = arith.CmpFOp(arith.CmpFPredicate.OLT, size, least).result
    return arith.SelectOp(is_small, _mul(x, series), _erf_beside_1(x)).result


def _erf_beside_1(x: Any) -> Any:
    """1 - (a1 t + ... + a5 t**5) exp(-x*x), t = 1 / (1 + p |x|), with the sign of x."""
    size = mlir_math.AbsFOp(x).result
    t = rcp(_fma(size, _filled(0.3275911, x), _filled(1.0, x)))
    poly = _filled(1.061405429, x)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        poly = _fma(poly, t, _filled(coefficient, x))
    bell = _ex2(_mul(_mul(x, x), _filled(-python_math.log2(python_math.e), x)))
    tail = _mul(_mul(poly, t), bell)
    value = arith.SubFOp(_filled(1.0, x), tail).result
    return mlir_math.CopySignOp(value, x).result


_APPROXIMATE: dict[str, Callable[..., Any]] = {
    "math.exp": _exp,
    "math.log": _log,
    "math.tanh": _tanh,
    "math.erf": _erf,
    "math.rsqrt": _rsqrt,
    "math.sqrt": _sqrt,
    "arith.divf": _div,
}
