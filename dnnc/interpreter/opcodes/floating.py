"""float32 and float64 arithmetic (PTX ISA, "Floating Point Instructions").

`.approx` instructions give the nearest number, as if they were exact; the hardware's own results
are within the few units in the last place that the ISA states.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from .. import floats
from ..decode import Decoder, Run, decodes
from ..ptxtypes import TYPES, Array, PtxType
from . import half
from .elementwise import elementwise

_ROUNDING = ("rn", "rz", "rm", "rp")
Function = Callable[..., Array]


def arithmetic(d: Decoder, of: PtxType) -> Run:
    """add, sub, mul of floats."""
    if of.name not in ("f32", "f64"):
        return half.arithmetic(d, of)
    mode = d.choose(_ROUNDING, "rn")
    ftz, sat = d.take("ftz"), d.take("sat")
    d.finish()
    name = d.opcode[0]
    if mode == "rn":
        ufunc = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]

        def nearest(a: Array, b: Array) -> Array:
            return floats.canonical(ufunc(a, b))

        function: Function = nearest
    elif of.name == "f32":
        directed = floats.mul32_directed if name == "mul" else floats.add32_directed
        negate = name == "sub"
        function = lambda a, b: directed(a, -b if negate else b, mode)  # noqa: E731
    else:
        function = _directed64(name, mode)
    return elementwise(d, adjusted(function, ftz, sat), of)


def adjusted(function: Function, ftz: bool, sat: bool) -> Function:
    """The function with flushed subnormals (`.ftz`) and a result clamped to [0, 1] (`.sat`)."""
    if not ftz and not sat:
        return function

    def run(*sources: Array) -> Array:
        out = function(*(floats.flush(a) for a in sources)) if ftz else function(*sources)
        if ftz:
            out = floats.flush(out)
        return floats.saturate(out) if sat else out

    return run


def _directed64(name: str, mode: str) -> Function:
    """add, sub, mul, div, sqrt, rcp of float64 rounded to zero, down or up: lane by lane."""
    ufuncs: dict[str, Any] = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
    }
    exact: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
    }

    def function(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)

        def value(lane: int) -> Fraction:
            return exact[name](Fraction(float(a[lane])), Fraction(float(b[lane])))

        finite = np.isfinite(a) & np.isfinite(b)
        zeros = None
        if name == "div":
            finite &= b != 0
        elif name != "mul":
            zeros = floats.zero_sum_down(a, b if name == "add" else -b)
        nearest = floats.canonical(ufuncs[name](a, b))
        return floats.directed64(nearest, finite, value, mode, zeros)

    return function


@decodes("fma")
def fma(d: Decoder) -> Run:
    return fused(d, d.take_type())


def fused(d: Decoder, of: PtxType) -> Run:
    """fma and mad of floats: one rounding."""
    if of.name not in ("f32", "f64"):
        return half.fused(d, of)
    mode = d.choose(_ROUNDING, "rn")
    ftz, sat = d.take("ftz"), d.take("sat")
    d.finish()
    d.expect(4)
    if mode == "rn":
        function: Function = floats.fma32 if of.name == "f32" else floats.fma64
    else:
        directed = floats.fma32_directed if of.name == "f32" else floats.fma64_directed
        function = lambda a, b, c: directed(a, b, c, mode)  # noqa: E731
    return elementwise(d, adjusted(function, ftz, sat), of)


def divide(d: Decoder, of: PtxType) -> Run:
    """div: `.full` gives the nearest quotient; so does `.approx`, for divisors up to 2**126."""
    if of.name not in ("f32", "f64"):
        raise d.error(f"no division of type {of.name}")
    approx = d.take("approx")
    d.take("full")
    mode = d.choose(_ROUNDING, "rn")
    ftz = d.take("ftz")
    d.finish()
    if approx:
        function: Function = _divide_approximately
    elif mode == "rn":
        function = lambda a, b: floats.canonical(np.divide(a, b))  # noqa: E731
    elif of.name == "f32":
        function = lambda a, b: floats.div32_directed(a, b, mode)  # noqa: E731
    else:
        function = _directed64("div", mode)
    return elementwise(d, adjusted(function, ftz, False), of)


def _divide_approximately(a: Array, b: Array) -> Array:
    """Finite divisors beyond 2**126 give 0, or NaN for an infinite dividend (PTX ISA, "div")."""
    far = np.isfinite(b) & (np.abs(b) > np.float32(2.0**126))
    reciprocal = np.where(far, np.copysign(np.float32(0), b), np.float32(1) / b)
    quotient = np.where(far | np.isinf(a), a * reciprocal, a / b)
    return floats.canonical(quotient)


@decodes("rcp")
def reciprocal(d: Decoder) -> Run:
    of = d.take_type()
    d.take("approx")
    mode = d.choose(_ROUNDING, "rn")
    ftz = d.take("ftz")
    d.finish()
    one = of.dtype.type(1)
    if mode == "rn":
        function: Function = lambda a: floats.canonical(np.divide(one, a))  # noqa: E731
    elif of.name == "f32":
        function = lambda a: floats.div32_directed(np.full_like(a, 1), a, mode)  # noqa: E731
    else:
        quotient = _directed64("div", mode)
        function = lambda a: quotient(np.full_like(a, 1), a)  # noqa: E731
    # `rcp.approx.ftz.f64` flushes too, but float64 subnormals are beyond what it is used for.
    return elementwise(d, adjusted(function, ftz and of.name == "f32", False), of)


@decodes("sqrt")
def square_root(d: Decoder) -> Run:
    of = d.take_type()
    d.take("approx")
    mode = d.choose(_ROUNDING, "rn")
    ftz = d.take("ftz")
    d.finish()
    if mode == "rn":
        function: Function = lambda a: floats.canonical(np.sqrt(a))  # noqa: E731
    elif of.name == "f32":
        function = lambda a: floats.sqrt32_directed(a, mode)  # noqa: E731
    else:
        raise d.error("float64 square roots are modelled to nearest only")
    return elementwise(d, adjusted(function, ftz, False), of)


def by_float64(function: Callable[[Array], Array]) -> Function:
    """A function of float32 (or float64) computed in float64 and rounded once."""

    def run(a: Array) -> Array:
        return floats.canonical(function(a.astype(np.float64)).astype(a.dtype))

    return run


APPROXIMATE: dict[str, Callable[[Array], Array]] = {
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


@decodes(*APPROXIMATE)
def approximate(d: Decoder) -> Run:
    of = d.take_type()
    ftz = d.take("ftz")
    if not d.take("approx"):
        raise d.error("only the approximate form exists")
    d.finish()
    if of.name not in ("f32", "f64"):
        return half.approximate(d, of, APPROXIMATE[d.opcode[0]])
    function = by_float64(APPROXIMATE[d.opcode[0]])
    return elementwise(d, adjusted(function, ftz and of.name == "f32", False), of)


def min_max(d: Decoder, of: PtxType) -> Run:
    """min and max of two or three floats."""
    if of.name not in ("f32", "f64"):
        return half.min_max(d, of)
    ftz, nan, xorsign = d.take("ftz"), d.take("NaN"), d.take("xorsign")
    absolute = d.take("abs")
    d.finish()
    function = extreme(d.opcode[0] == "max", nan)

    def run(*sources: Array) -> Array:
        values = [np.abs(a) for a in sources] if absolute else list(sources)
        out = values[0]
        for value in values[1:]:
            out = function(out, value)
        if xorsign:
            sign = np.signbit(sources[0]) ^ np.signbit(sources[1])
            out = np.where(sign & ~np.isnan(out), -out, out)
        return out

    return elementwise(d, adjusted(run, ftz, False), of)


def extreme(larger: bool, nan: bool) -> Callable[[Array, Array], Array]:
    """The maximum or minimum, whose NaN spreads or not."""
    if larger:
        return floats.maximum_nan if nan else floats.maximum
    return floats.minimum_nan if nan else floats.minimum


def sign_operation(d: Decoder, of: PtxType, ftz: bool) -> Run:
    """abs and neg."""
    d.finish()
    if of.name not in ("f32", "f64"):
        return half.sign_operation(d, of)
    ufunc = np.abs if d.opcode[0] == "abs" else np.negative

    def function(a: Array) -> Array:
        out = ufunc(floats.flush(a) if ftz else a)
        # The sign of a NaN stays, where the NaN does.
        return floats.canonical(out) if of.name == "f32" else np.where(np.isnan(a), a, out)

    return elementwise(d, function, of)


@decodes("copysign")
def copy_sign(d: Decoder) -> Run:
    """The sign of a on the magnitude of b."""
    of = d.only_type()
    return elementwise(d, lambda a, b: np.copysign(b, a), of)


@decodes("testp")
def test_property(d: Decoder) -> Run:
    names = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    name = d.choose(names)
    of = d.only_type()
    least = np.finfo(of.dtype).tiny
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        # A zero counts as normal: no infinity, no NaN, not subnormal.
        "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= least) | (a == 0)),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < least),
    }
    return elementwise(d, tests[name], of, TYPES["pred"])
