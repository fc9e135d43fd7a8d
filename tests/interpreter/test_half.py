"""f16 and bf16 arithmetic against integer rounding of exact results."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from .exact import BF16, F16, Array, Float, one_nan, patterns, reference
from .lanes import evaluate, same_bits
from .test_floating import binary, fused, select

COUNT = 2000


def inputs(to: Float, number: int, seed: int) -> list[tuple[Array, Array]]:
    """Bits, and the values they mean as float64."""
    rng = np.random.default_rng(seed)
    out: list[tuple[Array, Array]] = []
    for _ in range(number):
        if to is F16:
            bits = patterns(rng, 16, COUNT)
            out.append((bits, bits.view(np.float16).astype(np.float64)))
        else:
            bits = (patterns(rng, 32, COUNT) >> 16).astype(np.uint16)
            wide = (bits.astype(np.uint32) << 16).view(np.float32)
            with np.errstate(invalid="ignore"):
                out.append((bits, wide.astype(np.float64)))
    return out


def packed(low: Array, high: Array) -> Array:
    return low.astype(np.uint32) | (high.astype(np.uint32) << 16)


@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
@pytest.mark.parametrize(("name", "to"), [("f16", F16), ("bf16", BF16)])
def test_arithmetic(operation: str, name: str, to: Float):
    (a, x), (b, y) = inputs(to, 2, 1)
    got = evaluate(f"{operation}.rn.{name} %d, %a, %b;", a, b, out=np.uint16)
    want = reference(lambda p, q: binary(operation, "rn", p, q), x, y, to=to)
    same_bits(got, want)
    pair = evaluate(
        f"{operation}.rn.{name}x2 %d, %a, %b;", packed(a, b), packed(b, a), out=np.uint32
    )
    same_bits((pair & 0xFFFF).astype(np.uint16), want)
    swapped = reference(lambda p, q: binary(operation, "rn", p, q), y, x, to=to)
    same_bits((pair >> 16).astype(np.uint16), swapped)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("name", "to"), [("f16", F16), ("bf16", BF16)])
def test_fma(relu: bool, name: str, to: Float):
    (a, x), (b, y), (c, z) = inputs(to, 3, 2)

    def want_one(p: float, q: float, r: float) -> Fraction | float:
        exact = fused("rn", p, q, r)
        return 0.0 if relu and not math.isnan(exact) and exact <= 0 else exact

    want = reference(want_one, x, y, z, to=to)
    opcode = f"fma.rn{'.relu' if relu else ''}.{name}"
    same_bits(evaluate(f"{opcode} %d, %a, %b, %c;", a, b, c, out=np.uint16), want)
    pairs = [packed(value, value) for value in (a, b, c)]
    same_bits(evaluate(f"{opcode}x2 %d, %a, %b, %c;", *pairs, out=np.uint32), packed(want, want))


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("operation", ["min", "max"])
@pytest.mark.parametrize(("name", "to"), [("f16", F16), ("bf16", BF16)])
def test_min_max(operation: str, nan: bool, name: str, to: Float):
    (a, x), (b, y) = inputs(to, 2, 3)
    want = reference(lambda p, q: select(operation == "max", nan, p, q), x, y, to=to)
    opcode = f"{operation}{'.NaN' if nan else ''}.{name}"
    same_bits(evaluate(f"{opcode} %d, %a, %b;", a, b, out=np.uint16), want)


@pytest.mark.parametrize(("name", "to"), [("f16", F16), ("bf16", BF16)])
def test_signs(name: str, to: Float):
    """The sign alone changes, except that NaNs become canonical."""
    (a, _), (b, _) = inputs(to, 2, 4)
    negative = [one_nan(v ^ np.uint16(0x8000), to) for v in (a, b)]
    same_bits(evaluate(f"neg.{name} %d, %a;", a, out=np.uint16), negative[0])
    pair = packed(a, b)
    same_bits(evaluate(f"neg.{name}x2 %d, %a;", pair, out=np.uint32), packed(*negative))
    positive = [one_nan(v & np.uint16(0x7FFF), to) for v in (a, b)]
    same_bits(evaluate(f"abs.{name}x2 %d, %a;", pair, out=np.uint32), packed(*positive))


def test_tanh_of_packed_halves():
    x = np.linspace(-4, 4, 256).astype(np.float16)
    got = evaluate("tanh.approx.f16x2 %d, %a;", x.view(np.uint32), out=np.uint32)
    want = np.tanh(x.astype(np.float64)).astype(np.float16)
    same_bits(got, want.view(np.uint32))


def test_comparison_of_packed_halves():
    low, high = np.float16([1, 2, np.nan]), np.float16([3, 1, 0])
    a = packed(low.view(np.uint16), high.view(np.uint16))
    b = packed(np.float16([1, 3, 1]).view(np.uint16), np.float16([2, 2, 0]).view(np.uint16))
    body = (
        "setp.ge.f16x2 %p1|%p2, %a, %b; selp.u32 %d, 1, 0, %p1; selp.u32 %r1, 2, 0, %p2;"
        "or.b32 %d, %d, %r1;"
    )
    assert evaluate(body, a, b, out=np.uint32).tolist() == [3, 0, 2]


def test_ftz_and_sat():
    """Subnormals of f16 vanish before and after; saturation takes NaN to zero."""
    tiny = np.float16([2.0**-15, -(2.0**-15), 2.0**-14, 1.0, np.nan, 2.0])
    a = tiny.view(np.uint16)
    one = np.full(6, np.float16(1)).view(np.uint16)
    half = np.full(6, np.float16(0.5)).view(np.uint16)
    got = evaluate("mul.ftz.f16 %d, %a, %b;", a, one, out=np.uint16).view(np.float16)
    assert got[:4].tolist() == [0, 0, 2.0**-14, 1]
    assert np.signbit(got[1])
    got = evaluate("mul.ftz.f16 %d, %a, %b;", a, half, out=np.uint16).view(np.float16)
    assert got[:4].tolist() == [0, 0, 0, 0.5]
    got = evaluate("fma.rn.ftz.f16 %d, %a, %b, %b;", a, half, out=np.uint16).view(np.float16)
    assert got[:4].tolist() == [0.5, 0.5, 0.5, 1]
    got = evaluate("max.ftz.f16 %d, %a, %a;", a, out=np.uint16).view(np.float16)
    assert got[:4].tolist() == [0, 0, 2.0**-14, 1]
    for opcode in ("add.sat.f16 %d, %a, %b;", "fma.rn.sat.f16 %d, %a, %c, %b;"):
        got = evaluate(opcode, a, half, one, out=np.uint16).view(np.float16)
        assert got[2:].tolist() == [0.5, 1, 0, 1]


@pytest.mark.parametrize("comparison", ["lt", "geu", "ne", "nan"])
def test_comparisons_of_bf16(comparison: str):
    (a, x), (b, y) = inputs(BF16, 2, 5)
    functions = {
        "lt": x < y,
        "geu": ~(x < y),
        "ne": (x != y) & ~np.isnan(x) & ~np.isnan(y),
        "nan": np.isnan(x) | np.isnan(y),
    }
    body = f"setp.{comparison}.bf16 %p1, %a, %b; selp.u32 %d, 1, 0, %p1;"
    got = evaluate(body, a, b, out=np.uint32)
    assert (got == functions[comparison]).all()
