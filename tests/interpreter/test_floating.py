"""float32 and float64 arithmetic against integer rounding of exact results."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from .exact import F32, F64, Array, Float, one_nan, patterns, reference
from .lanes import evaluate, same_bits

COUNT = 1500
MODES = ("rn", "rz", "rm", "rp")


def inputs(bits: int, number: int, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [patterns(rng, bits, COUNT).view(f"f{bits // 8}") for _ in range(number)]


def results(body: str, *sources: Array, to: Float) -> Array:
    """Bits of the results; NaNs of float64 keep some payload, which does not count."""
    bits = evaluate(body, *sources, out=f"u{to.bits // 8}")
    return one_nan(bits, to) if to is F64 else bits


def plain(operation: str, mode: str, x: float, y: float) -> float:
    """The IEEE result where an operand is not finite, or a zero decides the sign."""
    with np.errstate(all="ignore"):
        a, b = np.float64(x), np.float64(y)
        result = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b}[operation]
    if result == 0 and operation in ("add", "sub") and mode == "rm":
        # Signs that differ cancel to -0 when rounding down.
        same_sign = math.copysign(1, x) == math.copysign(1, y if operation == "add" else -y)
        return float(result) if same_sign else -0.0
    return float(result)


def binary(operation: str, mode: str, x: float, y: float) -> Fraction | float:
    if not (math.isfinite(x) and math.isfinite(y)) or (operation == "div" and y == 0):
        return plain(operation, mode, x, y)
    a, b = Fraction(x), Fraction(y)
    if operation == "div":
        exact = a / b
    else:
        exact = {"add": a + b, "sub": a - b, "mul": a * b}[operation]
    return exact if exact else plain(operation, mode, x, y)


def fused(mode: str, x: float, y: float, z: float) -> Fraction | float:
    if not all(map(math.isfinite, (x, y, z))):
        with np.errstate(all="ignore"):
            # A product of finite numbers is finite: it may only meet an infinite z.
            finite = math.isfinite(x) and math.isfinite(y)
            product = np.float64(0.0 if finite else np.float64(x) * np.float64(y))
            return float(product + np.float64(z))
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact:
        return exact
    product = math.copysign(0.0, x) * math.copysign(1.0, y)
    if x and y:
        return -0.0 if mode == "rm" else 0.0
    return plain("add", mode, product, z)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize(("name", "to"), [("f32", F32), ("f64", F64)])
def test_arithmetic(operation: str, mode: str, name: str, to: Float):
    a, b = inputs(to.bits, 2, 1)
    got = results(f"{operation}.{mode}.{name} %d, %a, %b;", a, b, to=to)
    want = reference(lambda x, y: binary(operation, mode, x, y), a, b, to=to, mode=mode)
    same_bits(got, want)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "to"), [("f32", F32), ("f64", F64)])
def test_fma(mode: str, name: str, to: Float):
    a, b, c = inputs(to.bits, 3, 2)
    # Half of the sums nearly cancel the product, or leave it on a tie.
    with np.errstate(all="ignore"):
        c = np.where(np.arange(COUNT) % 2, (-a * b).astype(c.dtype), c)
    got = results(f"fma.{mode}.{name} %d, %a, %b, %c;", a, b, c, to=to)
    want = reference(lambda x, y, z: fused(mode, x, y, z), a, b, c, to=to, mode=mode)
    same_bits(got, want)


def root(x: float) -> Fraction | float:
    """A rational close enough to the square root, and on its side, for every rounding mode."""
    if x < 0 or not math.isfinite(x):
        return math.nan if x < 0 or math.isnan(x) else x
    if x == 0:
        return x
    scaled = Fraction(x) * Fraction(4) ** 600
    whole = math.isqrt(scaled.numerator // scaled.denominator)
    sticky = Fraction(whole) if Fraction(whole) ** 2 == scaled else Fraction(2 * whole + 1, 2)
    return sticky / Fraction(2) ** 600


@pytest.mark.parametrize("mode", MODES)
def test_sqrt_f32(mode: str):
    (a,) = inputs(32, 1, 3)
    got = evaluate(f"sqrt.{mode}.f32 %d, %a;", a, out=np.uint32)
    same_bits(got, reference(root, a, to=F32, mode=mode))


def test_sqrt_f64():
    (a,) = inputs(64, 1, 3)
    got = results("sqrt.rn.f64 %d, %a;", a, to=F64)
    same_bits(got, reference(root, a, to=F64))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "to"), [("f32", F32), ("f64", F64)])
def test_rcp(mode: str, name: str, to: Float):
    (a,) = inputs(to.bits, 1, 4)
    got = results(f"rcp.{mode}.{name} %d, %a;", a, to=to)
    want = reference(lambda x: binary("div", mode, 1.0, x), a, to=to, mode=mode)
    same_bits(got, want)


def flush(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x


def test_ftz_flushes_inputs_and_results():
    a, b = inputs(32, 2, 5)
    got = evaluate("mul.ftz.f32 %d, %a, %b;", a, b, out=np.float32)
    want = reference(lambda x, y: binary("mul", "rn", flush(x), flush(y)), a, b, to=F32).view(
        np.float32
    )
    want = np.where(np.abs(want) < 2.0**-126, np.copysign(np.float32(0), want), want)
    same_bits(got, want)


def test_sat_clamps_and_takes_nan_to_zero():
    a = np.array([-1.0, -0.0, 0.25, 1.5, np.nan, np.inf, -np.inf, 1e-40], np.float32)
    got = evaluate("add.sat.f32 %d, %a, 0f00000000;", a, out=np.float32)
    want = np.array([0, 0, 0.25, 1, 0, 1, 0, 1e-40], np.float32)
    same_bits(got, want)


def select(larger: bool, nan: bool, x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y):
        return math.nan if nan or (math.isnan(x) and math.isnan(y)) else y if math.isnan(x) else x
    first = (x, math.copysign(1, x)) > (y, math.copysign(1, y))
    return x if first == larger else y


@pytest.mark.parametrize("operation", ["min", "max"])
@pytest.mark.parametrize(
    ("name", "to", "nan"), [("f32", F32, False), ("f32", F32, True), ("f64", F64, False)]
)
def test_min_max(operation: str, nan: bool, name: str, to: Float):
    a, b = inputs(to.bits, 2, 6)
    a[::7] = 0.0
    b[::7] = -0.0
    b[3::7], a[3::7] = 0.0, -0.0
    opcode = f"{operation}{'.NaN' if nan else ''}.{name}"
    got = results(f"{opcode} %d, %a, %b;", a, b, to=to)
    same_bits(got, reference(lambda x, y: select(operation == "max", nan, x, y), a, b, to=to))


def test_xorsign_takes_the_sign_of_the_product():
    a = np.array([-1, 2, -3, 4, -1], np.float32)
    b = np.array([2, 1, -4, 3, np.nan], np.float32)
    got = evaluate("max.xorsign.abs.f32 %d, %a, %b;", a, b, out=np.float32)
    assert got.tolist() == [-2, 2, 4, 4, -1]
    got = evaluate("max.NaN.xorsign.abs.f32 %d, %a, %b;", a, b, out=np.uint32)
    assert got[4] == 0x7FFFFFFF


def test_signs():
    """The sign alone changes, except that float32 NaNs become canonical."""
    a, b = inputs(32, 2, 7)
    bits, other = a.view(np.uint32), b.view(np.uint32)
    sign, rest = np.uint32(0x80000000), np.uint32(0x7FFFFFFF)
    same_bits(evaluate("neg.f32 %d, %a;", a, out=np.uint32), one_nan(bits ^ sign, F32))
    same_bits(evaluate("abs.f32 %d, %a;", a, out=np.uint32), one_nan(bits & rest, F32))
    copied = evaluate("copysign.f32 %d, %a, %b;", a, b, out=np.uint32)
    same_bits(copied, (bits & sign) | (other & rest))
    (c,) = inputs(64, 1, 7)
    want = np.where(np.isnan(c), c, -c)
    assert np.array_equal(evaluate("neg.f64 %d, %a;", c, out=np.float64), want, equal_nan=True)


def test_approximate_division_by_huge_numbers():
    a = np.array([1, 1, np.inf, 3, -2], np.float32)
    b = np.array([2.0**127, np.inf, 2.0**127, 2.0**126, -(2.0**127)], np.float32)
    got = evaluate("div.approx.f32 %d, %a, %b;", a, b, out=np.float32)
    want = np.array([0, 0, np.nan, 3 * 2.0**-126, 0], np.float32)
    assert np.array_equal(got, want, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("finite", math.isfinite),
        ("infinite", math.isinf),
        ("number", lambda x: not math.isnan(x)),
        ("notanumber", math.isnan),
        ("normal", lambda x: math.isfinite(x) and (x == 0 or abs(x) >= 2.0**-126)),
        ("subnormal", lambda x: 0 < abs(x) < 2.0**-126),
    ],
)
def test_testp(name: str, test):
    (a,) = inputs(32, 1, 8)
    body = f"testp.{name}.f32 %p1, %a; selp.u32 %d, 1, 0, %p1;"
    got = evaluate(body, a, out=np.uint32)
    assert got.tolist() == [int(test(float(x))) for x in a]


@pytest.mark.parametrize(
    ("opcode", "function"),
    [
        ("ex2.approx.f32", np.exp2),
        ("lg2.approx.f32", np.log2),
        ("sin.approx.f32", np.sin),
        ("cos.approx.f32", np.cos),
        ("tanh.approx.f32", np.tanh),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x)),
        ("sqrt.approx.f32", np.sqrt),
        ("rcp.approx.ftz.f32", lambda x: 1 / x),
    ],
)
def test_approximations_are_the_nearest_numbers(opcode: str, function):
    x = np.random.default_rng(9).uniform(0.01, 30, 512).astype(np.float32)
    got = evaluate(f"{opcode} %d, %a;", x, out=np.float32)
    want = function(x.astype(np.longdouble))
    assert np.abs((got - want) / np.spacing(np.abs(want).astype(np.float32))).max() <= 0.51


def test_approximations_at_the_ends():
    x = np.array([np.inf, -np.inf, np.nan, 0.0], np.float32)
    ex2 = evaluate("ex2.approx.ftz.f32 %d, %a;", x, out=np.float32)
    same_bits(ex2.view(np.uint32), np.array([0x7F800000, 0, 0x7FFFFFFF, 0x3F800000], np.uint32))
    lg2 = evaluate("lg2.approx.f32 %d, %a;", x, out=np.float32)
    assert lg2[0] == np.inf
    assert np.isnan(lg2[1])
    assert lg2[3] == -np.inf
    tanh = evaluate("tanh.approx.f32 %d, %a;", x, out=np.float32)
    assert tanh[:2].tolist() == [1, -1]
