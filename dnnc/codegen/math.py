# pyright: basic
"""Scalar operations on fragments: which instruction each one becomes.

Exact functions stay `math` operations, which the pipeline turns into calls of libdevice and
links (2 ulp or better in f32).  With `fastmath<afn>` the hardware's approximations are used
instead, and with `arcp` on a division whose divisor is at least 1.  Their errors, relative unless
said: exp, log, rsqrt, sqrt and divisions within about 2**-22 (PTX ISA, "Floating Point
Instructions"); tanh within 2**-10.9, or with `arcp` in place of `afn` (scores of attention) within
2.4e-7 absolute, with `contract` too 2.6e-6; erf within 1.5e-7 absolute (Abramowitz and Stegun,
7.1.26).
Results of exp and of a division with `arcp` that are subnormal become 0.
fp8 is carried as i8; conversions saturate and keep NaN.
"""

from __future__ import annotations

import functools
import math as python_math
from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..mlir import arith, attributes_of, ir, llvm
from ..mlir import math as mlir_math
from ..target import Target
from . import ops
from .scalar import convert
from .votes import is_any_above

_MOST_COUNT = 1 << 24  # which f32 has exactly
_CONVERSIONS = ("vector.broadcast", "arith.sitofp", "arith.extsi", "arith.index_cast")
_F8 = {"f8E4M3FN": "e4m3x2", "f8E5M2": "e5m2x2"}
_BYTES: dict[tuple[int | None, int | None], str] = {(-128, 127): "s8", (0, 255): "u8"}


def lower(
    target: Target, op: Any, types: Sequence[Any], operands: Sequence[Any], width: int
) -> Any:
    """`op` of a body on fragments of one width; types: of its operands, as scalars."""
    result = op.results[0].type
    if op.name == "arith.extf" and str(types[0]) in _F8:
        return _from_f8(operands[0], str(types[0]), width)
    if op.name == "arith.truncf" and str(result) in _F8:
        return _to_f8(operands[0], str(result), width)
    rule = _APPROXIMATE.get(op.name)
    if rule is not None and allows(op, "arcp" if op.name == "arith.divf" else "afn"):
        return rule(*operands)
    if op.name == "math.tanh" and allows(op, "arcp"):
        return _tanh_of_exponential(*operands, is_capped=allows(op, "contract"))
    if width % 2 == 0 and (made := _from_bytes(op, types[0], operands[0], width)) is not None:
        return made
    if op.name == "arith.fptosi" and (clipped := _clipped(operands[0])) is not None:
        return _to_nearest(*clipped)
    if op.name == "arith.trunci" and str(result) == "i8" and width % 2 == 0:
        if (saturated := _saturated(operands[0])) is not None:
            return _packed_bytes(*saturated)
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
    types = [str(value.type) for value in (*op.operands, *op.results)]
    if op.name != "arith.extf" or types != ["bf16", "f32"] or width % 2:
        return None
    return ops.from_elements(_from_bf16(operands[0]))


def widened(value: Any, source: DType, target: DType) -> list[Any]:
    """The elements of a fragment of one data type as scalars of another, which has at least as
    many bits."""
    if source.is_float and source.bits == 8:
        value = _from_f8(value, source.name, ops.width_of(value))
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
    count = _integer_behind(y) if isinstance(element, ir.F32Type) else None
    if count is None or not 0 < count < _MOST_COUNT or not count & (count - 1):
        return arith.DivFOp(x, y).result
    return _divided_by(x, count)


def _divided_by(x: Any, count: int) -> Any:
    """By the reciprocal, corrected by the rest until it is to nearest, unless it is subnormal.

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


def _integer_behind(value: Any) -> int | None:
    """The constant integer that a float is made of, if it is made of one."""
    op = value.owner
    while not isinstance(op, ir.Block) and op.name in _CONVERSIONS:
        op = op.operands[0].owner
    if isinstance(op, ir.Block) or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    return attribute.value if isinstance(attribute, ir.IntegerAttr) else None


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
    return ir.IntegerType.get_signless(8) if str(type_) in _F8 else type_


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


def _number(value: float) -> Any:
    return arith.ConstantOp(ir.F32Type.get(), ir.FloatAttr.get(ir.F32Type.get(), value)).result


def _filled(value: float, like: Any) -> Any:
    return ops.splat(_number(value), ops.width_of(like))


def _mul(a: Any, b: Any) -> Any:
    return arith.MulFOp(a, b).result


def _fma(a: Any, b: Any, c: Any) -> Any:
    return mlir_math.FmaOp(a, b, c).result


_ex2 = _intrinsic("ex2.approx.ftz.f")
_lg2 = _intrinsic("lg2.approx.f")
_rcp = _intrinsic("rcp.approx.ftz.f")
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


def tanh_together(given: Sequence[Any], *, is_capped: bool) -> list[Any]:
    """The tanh of fragments, as `_tanh_of_exponential` has it.

    Where all numbers of a warp are near 0, as scores beside their cap are, by powers of these: four
    or five instructions an element, none of which the special function unit has.
    """
    factored = [_constant_product(x) for x in given]

    def near() -> list[Any]:
        return [e for x, factor in factored for e in _tanh_by_powers(x, factor, is_capped)]

    def far() -> list[Any]:
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
        constant = _constant_of(found[1])
        if constant is None:
            break
        y, number = found[0], number * constant
    is_held = 2.0**-_FACTOR_EXPONENT <= abs(number) <= 2.0**_FACTOR_EXPONENT
    return (y, number) if is_held else (x, 1.0)


def _constant_of(scalar: Any) -> float | None:
    owner = scalar.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return None
    return ir.FloatAttr(owner.operation.attributes["value"]).value


def _tanh_by_powers(x: Any, factor: float, is_capped: bool) -> list[Any]:
    """Elements of tanh(x factor): x times a polynomial of its square, with the factor in it."""
    coefficients = [
        _number(coefficient * factor ** (2 * i + 1))
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
    sizes = [_mul(_largest_size(found), _number(factor)) for factor, found in largest.items()]
    return is_any_above(_most(sizes), _NEAR)


def _largest_size(elements: Sequence[Any]) -> Any:
    """The largest absolute value of some elements, NaN aside."""
    sizes = [mlir_math.AbsFOp(element).result for element in elements]
    return _most([_most(sizes[i::_CHAINS]) for i in range(min(_CHAINS, len(sizes)))])


def _most(values: Sequence[Any]) -> Any:
    return functools.reduce(lambda a, b: arith.MaxNumFOp(a, b).result, values)


def _tanh_by_reciprocal(z: Any) -> Any:
    """1 - 1 / h, h = 2**z + 1/2."""
    return arith.SubFOp(_number(1.0), _rcp(_plus(_ex2(z), 0.5))).result


def _tanh_by_newton(z: Any) -> Any:
    """The same: -1 / h by a guess, a polynomial and a step of Newton's method."""
    h, guess, t = _guessed(z)
    found = _mul(guess, _polynomial(_NEAR_INVERSE, t))
    rest = _fma(h, found, _number(1.0))
    return _fma(found, rest, _plus(found, 1.0))


def _tanh_by_polynomial(z: Any) -> Any:
    """The same: -1 / h by a guess and a polynomial."""
    _, guess, t = _guessed(z)
    return _fma(guess, _polynomial(_INVERSE, t), _number(1.0))


def _guessed(z: Any) -> tuple[Any, Any, Any]:
    """(h = 2**z + 1/2, about -1 / h by the bits of h, their product)."""
    h = _plus(_ex2(arith.MinimumFOp(z, _number(_LARGEST_EXPONENT)).result), 0.5)
    bits = llvm.BitcastOp(ops.i32_type(), h).result
    guess = llvm.BitcastOp(h.type, ops.sub(ops.const(_GUESS), bits)).result
    return h, guess, _mul(h, guess)


def _polynomial(coefficients: Sequence[float], t: Any) -> Any:
    """c0 + c1 t + ... + t**n."""
    *rest, last = coefficients
    found = _plus(t, last)
    for coefficient in reversed(rest):
        found = _fma(found, t, _number(coefficient))
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
    factor = _number(number)
    while (found := _uniform_factor(x)) is not None:
        x, other = found
        factor = _mul(factor, other)
    return x, factor


def factors_of(x: Any) -> tuple[Any, Any] | None:
    """Those of a product of f32; None: it is none."""
    owner = x.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.mulf":
        return None
    return owner.operands[0], owner.operands[1]


def _broadcast(value: Any) -> Any:
    """The scalar that a fragment repeats; None: it is another."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "vector.broadcast":
        return None
    scalar = owner.operands[0]
    return None if isinstance(scalar.type, ir.VectorType) else scalar


def _uniform_factor(x: Any) -> tuple[Any, Any] | None:
    """(y, scalar) of a fragment y * scalar."""
    factors = factors_of(x)
    for y, factor in (factors, factors[::-1]) if factors else ():
        if (scalar := _broadcast(factor)) is not None:
            return y, scalar
    return None


def _exp(x: Any) -> Any:
    return _ex2(_mul(x, _filled(python_math.log2(python_math.e), x)))


def _log(x: Any) -> Any:
    return _mul(_lg2(x), _filled(python_math.log(2), x))


def _div(x: Any, y: Any) -> Any:
    return _mul(x, _rcp(y))


def _full_div(x: Any, y: Any) -> Any:
    f32, pairs = ir.F32Type.get(), zip(ops.elements(x), ops.elements(y), strict=True)
    divided = [llvm.inline_asm(f32, [a, b], "div.full.f32 $0, $1, $2;", "=f,f,f") for a, b in pairs]
    return ops.from_elements(divided)


def _erf(x: Any) -> Any:
    """1 - (a1 t + ... + a5 t**5) exp(-x*x), t = 1 / (1 + p |x|), with the sign of x."""
    size = mlir_math.AbsFOp(x).result
    t = _rcp(_fma(size, _filled(0.3275911, x), _filled(1.0, x)))
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


# ---- integers of 8 bits


def _from_bytes(op: Any, source: Any, value: Any, width: int) -> Any:
    """Floats of signed bytes, where `op` of a body makes those; else None.

    Not by the conversions of an H100, which are a quarter as fast as what these take: a byte is put
    below the exponent of a number whose last bits it then is, from which that number is taken.
    bf16 and f16 have them all; of bf16 the back end multiplies pairs, where it may.
    """
    element = str(op.results[0].type)
    if op.name == "arith.sitofp" and str(source) == "i8" and element == "f32":
        if _becomes_f16(op):
            return None
        f32 = ops.vector_type(ops.f32_type(), width)
        return arith.ExtFOp(f32, _bf16_of_bytes(value, width)).result
    if op.name == "arith.truncf" and element == "f16":
        integer = _operands_of(value, "arith.sitofp")
        if integer and str(integer[0].type.element_type) == "i8":
            return _f16_of_bytes(integer[0], width)
    return None


def _becomes_f16(op: Any) -> bool:
    """Whether what an operation of a body gives is only made f16."""
    users = [use.owner for use in op.results[0].uses]
    return all(u.name == "arith.truncf" and str(u.results[0].type) == "f16" for u in users)


def _permuted(word: Any, other: int, selector: int) -> Any:
    """Bytes of a word (0 to 3) and a number (4 to 7): `prmt`."""
    text = f"prmt.b32 $0, $1, {other:#x}, {selector:#x};"
    return llvm.inline_asm(ops.i32_type(), [word], text, "=r,r")


def _words_of_bytes(value: Any, width: int) -> list[tuple[Any, int]]:
    """For each pair of bytes (the i32 that has it, the first one's place there)."""
    if width % 4 == 0:
        words = ops.elements(
            llvm.BitcastOp(ops.vector_type(ops.i32_type(), width // 4), value).result
        )
        return [(word, place) for word in words for place in (0, 2)]
    halves = ops.vector_type(ir.IntegerType.get_signless(16), width // 2)
    found = ops.elements(llvm.BitcastOp(halves, value).result)
    return [(arith.ExtUIOp(ops.i32_type(), half).result, 0) for half in found]


def _pairs_of(type_: Any, words: Sequence[Any], width: int) -> Any:
    """A fragment of 16-bit elements, two to a word."""
    whole = ops.from_elements(list(words))
    return llvm.BitcastOp(ops.vector_type(type_, width), whole).result


def _f16_of_bytes(value: Any, width: int) -> Any:
    """2**10 + byte + 128, less that."""
    pair = ops.vector_type(ir.F16Type.get(), 2)
    one = arith.ConstantOp(pair, ir.Attribute.parse(f"dense<1.152000e+03> : {pair}")).result
    words: list[Any] = []
    for word, place in _words_of_bytes(value, width):
        shifted = ops.xor(word, 0x80808080 - (1 << 32))
        bits = _permuted(shifted, 0x64646464, 0x4040 + place + ((place + 1) << 8))
        number = llvm.BitcastOp(pair, bits).result
        words.append(llvm.BitcastOp(ops.i32_type(), arith.SubFOp(number, one).result).result)
    return _pairs_of(ir.F16Type.get(), words, width)


def _bf16_of_bytes(value: Any, width: int) -> Any:
    """128 + the byte's lower seven bits, less 128 or, of a negative byte, 256.

    The last bit of the exponent of those two is where the byte has its sign.
    """
    pair = ops.vector_type(ir.BF16Type.get(), 2)
    one = arith.ConstantOp(pair, ir.Attribute.parse(f"dense<1.0> : {pair}")).result
    words: list[Any] = []
    for word, place in _words_of_bytes(value, width):
        bits = _permuted(word, 0x43434343, 0x4040 + place + ((place + 1) << 8))
        low = ops.and_(bits, 0xFF7FFF7F - (1 << 32))
        base = ops.xor(ops.and_(bits, 0xFF80FF80 - (1 << 32)), 0x80008000 - (1 << 32))
        numbers = [llvm.BitcastOp(pair, half).result for half in (low, base)]
        whole = mlir_math.FmaOp(numbers[0], one, numbers[1]).result
        words.append(llvm.BitcastOp(ops.i32_type(), whole).result)
    return _pairs_of(ir.BF16Type.get(), words, width)


def _clipped(value: Any) -> tuple[Any, int, int] | None:
    """(x, low, high) of a fragment of f32 that `scalar.convert` has rounded and clipped for a type
    of 8 bits, NaN to 0; None: it is another."""
    chosen = _operands_of(value, "arith.select")
    below = _operands_of(chosen[2], "arith.minimumf") if chosen else None
    above = _operands_of(below[0], "arith.maximumf") if below else None
    rounded = _operands_of(above[0], "math.roundeven") if above else None
    if chosen is None or below is None or above is None or rounded is None:
        return None
    unordered = _operands_of(chosen[0], "arith.cmpf")
    zero, low, high = (_repeated(of) for of in (chosen[1], above[1], below[1]))
    is_whole = unordered is not None and all(of == above[0] for of in unordered)
    element = rounded[0].type.element_type if isinstance(value.type, ir.VectorType) else value.type
    if not is_whole or zero != 0.0 or low is None or high is None or element != ops.f32_type():
        return None
    return rounded[0], int(low), int(high)


def _operands_of(value: Any, name: str) -> list[Any] | None:
    """Those of the operation that gives a value, if it has this name."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != name:
        return None
    return list(owner.operands)


def _repeated(value: Any) -> float | None:
    """The constant that a fragment repeats."""
    scalar = _broadcast(value) if isinstance(value.type, ir.VectorType) else value
    return None if scalar is None else _constant_of(scalar)


def _to_nearest(x: Any, low: int, high: int) -> Any:
    """i32 of f32, to nearest even, in a range; of NaN 0.  Source: PTX ISA, "cvt", which saturates
    from floats to integers, and of NaN gives 0 in 32 bits."""
    text = "cvt.rni.s32.f32 $0, $1;"
    width = ops.width_of(x)
    number = ops.from_elements([
        llvm.inline_asm(ops.i32_type(), [e], text, "=r,f", has_side_effects=False)
        for e in ops.elements(x)
    ])  # fmt: skip
    bounds = [ops.splat(ops.const(bound), width) for bound in (low, high)]
    return arith.MinSIOp(arith.MaxSIOp(number, bounds[0]).result, bounds[1]).result


def _saturated(value: Any) -> tuple[Any, str] | None:
    """(x, "s8" or "u8") of a fragment of i32 that is x in the range of that type."""
    below = _operands_of(value, "arith.minsi")
    above = _operands_of(below[0], "arith.maxsi") if below else None
    if below is None or above is None or value.type.element_type != ops.i32_type():
        return None
    kind = _BYTES.get((_integer_behind(above[1]), _integer_behind(below[1])))
    return None if kind is None else (above[0], kind)


def _packed_bytes(x: Any, kind: str) -> Any:
    """i8 of i32, saturating, two an instruction."""
    text = f"cvt.pack.sat.{kind}.s32.b32 $0, $1, $2, 0;"
    pairs = [
        llvm.inline_asm(ops.i32_type(), [high, low], text, "=r,r,r")
        for low, high in _pairs(x, ops.width_of(x))
    ]
    i16 = ir.IntegerType.get_signless(16)
    return _bytes_of([arith.TruncIOp(i16, pair).result for pair in pairs], ops.width_of(x))


# ---- fp8, two at a time


def _pairs(value: Any, width: int) -> list[tuple[Any, Any]]:
    """(low, high) pairs of a fragment; an odd one is paired with itself."""
    scalars = ops.elements(value)
    return [(scalars[i], scalars[min(i + 1, width - 1)]) for i in range(0, width, 2)]


def _from_f8(value: Any, kind: str, width: int) -> Any:
    """f32 of fp8 elements, through f16, which holds every one of them."""
    i16, f16 = ir.IntegerType.get_signless(16), ir.F16Type.get()
    found: list[Any] = []
    for low, high in _pairs(value, width):
        wide = [arith.ExtUIOp(i16, byte).result for byte in (low, high)]
        packed = ops.or_(wide[0], ops.shl(wide[1], 8))
        text = f"cvt.rn.f16x2.{_F8[kind]} $0, $1;"
        halves = llvm.inline_asm(ops.i32_type(), [packed], text, "=r,h")
        both = llvm.BitcastOp(ir.VectorType.get([2], f16), halves).result
        found += ops.elements(both)
    halves = ops.from_elements(found[:width])
    return arith.ExtFOp(ops.vector_type(ir.F32Type.get(), width), halves).result


def _to_f8(value: Any, kind: str, width: int) -> Any:
    """fp8 of f32 elements, to nearest even, saturating."""
    text = f"cvt.rn.satfinite.{_F8[kind]}.f32 $0, $1, $2;"
    i16 = ir.IntegerType.get_signless(16)
    return _bytes_of(
        [llvm.inline_asm(i16, [high, low], text, "=h,f,f") for low, high in _pairs(value, width)],
        width,
    )


def _bytes_of(pairs: Sequence[Any], width: int) -> Any:
    """A fragment of bytes, of which there are two in each i16; the last may be half used.

    As a whole: bytes that are taken apart the back end puts together again one by one.
    """
    i8 = ir.IntegerType.get_signless(8)
    found = llvm.BitcastOp(ops.vector_type(i8, 2 * len(pairs)), ops.from_elements(pairs)).result
    return found if width % 2 == 0 else ops.from_elements(ops.elements(found)[:width])


def f8_word(values: Sequence[Any], kind: str) -> Any:
    """Four f32 as fp8, to nearest even, saturating, in an i32; the first is the lowest byte."""
    name = _F8[kind]
    text = (
        "{ .reg .b16 low, high; "
        f"cvt.rn.satfinite.{name}.f32 low, $2, $1; cvt.rn.satfinite.{name}.f32 high, $4, $3; "
        "mov.b32 $0, {low, high}; }"
    )
    return llvm.inline_asm(ops.i32_type(), list(values), text, "=r,f,f,f,f")
