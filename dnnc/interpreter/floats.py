"""Exact float32 and float64 arithmetic on arrays, as the PTX ISA defines it.

NumPy's own add, multiply, divide and square root round to nearest even, which is PTX's `.rn`.
What it lacks is here: fused multiply-add, the other rounding modes, flushing of subnormals,
and the canonical NaN that float32 results have.  NaNs of float64 keep a payload on the hardware
as they do on the host, and are left as NumPy makes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from .formats import F32, round_to
from .ptxtypes import Array

_F32_NAN = np.uint32(0x7FFFFFFF).view(np.float32)
_F32_LEAST = np.float32(2.0**-126)


def has_nan(x: Array) -> bool:
    """Whether a NaN is in x: a sum of squares is NaN just then, and one fast call."""
    square = x.dot(x)
    return bool(square != square)


def canonical(x: Array) -> Array:
    """x with every NaN made the canonical one, 0x7FFFFFFF (float64: as it is)."""
    if x.dtype.char == "f" and has_nan(x):
        return np.where(np.isnan(x), _F32_NAN, x)
    return x


def flush(x: Array) -> Array:
    """x with subnormals made zeros of their sign (`.ftz`; float32)."""
    tiny = np.abs(x) < _F32_LEAST
    return np.where(tiny, np.copysign(np.float32(0), x), x) if np.count_nonzero(tiny) else x


def saturate(x: Array) -> Array:
    """x clamped to [0, 1]; NaN and -0 give +0 (`.sat`)."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """float64 s and e with s = round(a + b) and a + b = s + e exactly (no overflow)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def to_odd(s: Array, e: Array) -> Array:
    """s + e rounded to odd, where s = round(s + e): inexact results get an odd last bit."""
    bits = s.view(np.uint64)
    move = (e != 0) & ((bits & np.uint64(1)) == 0) & np.isfinite(s)
    if not np.count_nonzero(move):
        return s
    # The odd neighbour lies on the side of the error: away from zero where the signs agree.
    away = (e > 0) == (s > 0)
    step = np.where(away, np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF))
    return np.where(move, bits + step, bits).view(np.float64)


def add_odd(a: Array, b: Array) -> Array:
    """a + b in float64, rounded to odd."""
    return to_odd(*two_sum(a, b))


_TIE_MASK = np.uint64(0x1FFFFFFF)
_TIE = np.uint64(0x10000000)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """round(a * b + c), float32, rounded once.

    The product is exact in float64.  Rounding the float64 sum again to float32 goes wrong only
    where it lies on a tie of float32, or where the result is subnormal: those take the slow way.
    """
    product = np.multiply(a, b, dtype=np.float64)
    s = np.add(product, c)
    suspect = (s.view(np.uint64) & _TIE_MASK) == _TIE
    magnitude = np.abs(s)
    if not magnitude[magnitude.argmin()] >= 2.0**-125:
        suspect |= (magnitude < 2.0**-125) & (magnitude > 0)
    if np.count_nonzero(suspect):
        lanes = np.flatnonzero(suspect)
        wide = np.broadcast_to(c, s.shape)[lanes].astype(np.float64)
        s[lanes] = add_odd(np.broadcast_to(product, s.shape)[lanes], wide)
    return canonical(s.astype(np.float32))


def fma32_directed(a: Array, b: Array, c: Array, mode: str) -> Array:
    """a * b + c, float32, in rounding mode rz, rm or rp."""
    return _sum_directed(np.multiply(a, b, dtype=np.float64), c.astype(np.float64), mode)


def add32_directed(a: Array, b: Array, mode: str) -> Array:
    """a + b, float32, in rounding mode rz, rm or rp."""
    return _sum_directed(a.astype(np.float64), b.astype(np.float64), mode)


def mul32_directed(a: Array, b: Array, mode: str) -> Array:
    """a * b, float32, in rounding mode rz, rm or rp (the product is exact in float64)."""
    product = np.multiply(a, b, dtype=np.float64)
    return canonical(round_to(product, F32, mode).astype(np.float32))


def _sum_directed(x: Array, y: Array, mode: str) -> Array:
    s = x + y
    exact_or_odd = np.where(np.isfinite(s), add_odd(x, y), s)
    out = round_to(exact_or_odd, F32, mode)
    if mode == "rm":
        out = np.where(s == 0, zero_sum_down(x, y), out)
    return canonical(out.astype(np.float32))


def zero_sum_down(x: Array, y: Array) -> Array:
    """The zero that a sum of zero is when rounding down: -0, but for +0 and +0 (IEEE 754, 6.3)."""
    plus = (x == 0) & (y == 0) & ~np.signbit(x) & ~np.signbit(y)
    return np.where(plus, 0.0, -0.0)


def div32_directed(a: Array, b: Array, mode: str) -> Array:
    """a / b, float32, in rounding mode rz, rm or rp."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    q = wide_a / wide_b
    # q * b is off by the remainder, which float64 fma would give; its sign is all we need.
    remainder = -fma64(q, wide_b, -wide_a)
    error = np.where(np.isfinite(q) & np.isfinite(wide_b), remainder * np.sign(wide_b), 0.0)
    return canonical(round_to(to_odd(q, error), F32, mode).astype(np.float32))


def sqrt32_directed(a: Array, mode: str) -> Array:
    """The square root of a, float32, in rounding mode rz, rm or rp."""
    wide = a.astype(np.float64)
    root = np.sqrt(wide)
    error = np.where(np.isfinite(root), -fma64(root, root, -wide), 0.0)
    return canonical(round_to(to_odd(root, error), F32, mode).astype(np.float32))


# float64 ----------------------------------------------------------------------------------

_SPLIT = 134217729.0  # 2**27 + 1, Veltkamp's constant
_SAFE_LOW, _SAFE_HIGH = 2.0**-400, 2.0**400


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """float64 p and e with a * b = p + e exactly, where nothing over- or underflows."""
    p = a * b
    ta, tb = a * _SPLIT, b * _SPLIT
    a_high, b_high = ta - (ta - a), tb - (tb - b)
    a_low, b_low = a - a_high, b - b_high
    return p, a_low * b_low - (((p - a_high * b_high) - a_low * b_high) - a_high * b_low)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """round(a * b + c), float64, rounded once (Boldo and Melquiond's algorithm).

    Lanes with magnitudes outside 2**-400 .. 2**400 are done with rational numbers, one by one.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    high, low = two_product(a, b)
    sum_high, sum_low = two_sum(c, low)
    total, rest = two_sum(high, sum_high)
    out = total + add_odd(sum_low, rest)
    safe = _is_safe(a) & _is_safe(b) & _is_safe(c) & (a != 0) & (b != 0)
    if np.count_nonzero(safe) < safe.size:
        factors = np.isfinite(a) & np.isfinite(b)
        # A product of finite numbers is finite, also where float64 overflows.
        plain = np.where(factors & np.isinf(c), c, a * b + c)
        out = np.where(safe, out, plain)
        finite = factors & np.isfinite(c) & (a != 0) & (b != 0)
        for lane in np.flatnonzero(finite & ~safe):
            out[lane] = _fma_rational(float(a[lane]), float(b[lane]), float(c[lane]))
    return canonical(out)


def _is_safe(x: Array) -> Array:
    magnitude = np.abs(x)
    return ((magnitude > _SAFE_LOW) & (magnitude < _SAFE_HIGH)) | (x == 0)


def _fma_rational(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        # A zero product is excluded, so the terms cancel: +0.
        return 0.0
    sign = 1.0 if exact > 0 else -1.0
    try:
        # Division of integers rounds once, to subnormals too.
        return exact.numerator / exact.denominator or math.copysign(0.0, sign)
    except OverflowError:
        return math.copysign(math.inf, sign)


def fma64_directed(a: Array, b: Array, c: Array, mode: str) -> Array:
    """a * b + c, float64, in rounding mode rz, rm or rp, with rational numbers."""
    a, b, c = np.broadcast_arrays(a, b, c)

    def exact(lane: int) -> Fraction:
        return Fraction(float(a[lane])) * Fraction(float(b[lane])) + Fraction(float(c[lane]))

    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    return directed64(fma64(a, b, c), finite, exact, mode, zero_sum_down(a * b, c))


def directed64(
    nearest: Array,
    finite: Array,
    exact: Callable[[int], Fraction],
    mode: str,
    zeros: Array | None = None,
) -> Array:
    """float64 results moved from the nearest number to that of mode rz, rm or rp.

    exact: the exact result of a lane; asked for where `finite`.  zeros: what exact zeros become
    when rounding down, where not what they are to nearest.
    """
    out = nearest.copy()
    for lane in np.flatnonzero(finite).tolist():
        value = exact(lane)
        if value != 0:
            out[lane] = _step_towards(float(out[lane]), value, mode)
        elif mode == "rm" and zeros is not None:
            out[lane] = zeros[lane]
    return out


def _step_towards(nearest: float, exact: Fraction, mode: str) -> float:
    """The float64 on the side of `exact`, not zero, that the mode asks for."""
    if mode == "rz":
        mode = "rm" if exact > 0 else "rp"
    if mode == "rm":
        if nearest == np.inf or (nearest > -np.inf and Fraction(nearest) > exact):
            return float(np.nextafter(nearest, -np.inf))
    elif nearest == -np.inf or (nearest < np.inf and Fraction(nearest) < exact):
        return float(np.nextafter(nearest, np.inf))
    return nearest


# Selection --------------------------------------------------------------------------------


def maximum(a: Array, b: Array) -> Array:
    """The larger; the number if the other is NaN; +0 over -0."""
    out = np.fmax(a, b)
    return canonical(_zeros(out, a, b, np.bitwise_and))


def minimum(a: Array, b: Array) -> Array:
    """The smaller; the number if the other is NaN; -0 under +0."""
    out = np.fmin(a, b)
    return canonical(_zeros(out, a, b, np.bitwise_or))


def maximum_nan(a: Array, b: Array) -> Array:
    """The larger; NaN if either is (`max.NaN`)."""
    return canonical(_zeros(np.maximum(a, b), a, b, np.bitwise_and))


def minimum_nan(a: Array, b: Array) -> Array:
    """The smaller; NaN if either is (`min.NaN`)."""
    return canonical(_zeros(np.minimum(a, b), a, b, np.bitwise_or))


def _zeros(out: Array, a: Array, b: Array, combine: np.ufunc) -> Array:
    """out with the sign of zeros settled: NumPy leaves it open which of +0 and -0 it returns."""
    if not np.count_nonzero(out == 0):
        return out
    zero = (a == 0) & (b == 0)
    unsigned = np.dtype(f"uint{8 * out.dtype.itemsize}")
    return np.where(zero, combine(a.view(unsigned), b.view(unsigned)).view(out.dtype), out)
