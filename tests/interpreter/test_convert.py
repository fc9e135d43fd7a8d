"""Conversions against integer rounding of exact values."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from .exact import BF16, E4M3, E5M2, F16, F32, F64, Array, Float, one_nan, patterns, reference
from .lanes import evaluate, same_bits
from .test_integer import values, wrap

COUNT = 1500
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def floats(name: str, seed: int) -> tuple[Array, Array]:
    """Bits of a format, and the values they mean as float64."""
    rng = np.random.default_rng(seed)
    with np.errstate(invalid="ignore"):
        if name == "bf16":
            bits = (patterns(rng, 32, COUNT) >> 16).astype(np.uint16)
            return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        bits = patterns(rng, FORMATS[name].bits, COUNT)
        return bits, bits.view(f"f{bits.dtype.itemsize}").astype(np.float64)


def exact(x: float) -> Fraction | float:
    """A fraction; zeros keep their sign as floats."""
    return Fraction(x) if math.isfinite(x) and x else x


NARROWING = [
    *[(mode, "f16", "f32") for mode in ("rn", "rz")],
    *[(mode, "bf16", "f32") for mode in ("rn", "rz")],
    *[(mode, "f32", "f64") for mode in ("rn", "rz", "rm", "rp")],
    *[(mode, "f16", "f64") for mode in ("rn", "rz", "rm", "rp")],
]


@pytest.mark.parametrize(("mode", "to", "source"), NARROWING)
def test_narrowing(mode: str, to: str, source: str):
    bits, x = floats(source, 1)
    # Values that the narrow format resolves: its own range, and ties in it.
    rng = np.random.default_rng(2)
    near = np.ldexp(rng.integers(-8192, 8192, COUNT), rng.integers(-30, 8, COUNT))
    x = np.where(np.arange(COUNT) % 2, near, x)
    with np.errstate(all="ignore"):
        bits = x.astype(bits.view(f"f{bits.dtype.itemsize}").dtype)
    out = FORMATS[to]
    got = evaluate(f"cvt.{mode}.{to}.{source} %d, %a;", bits, out=f"u{out.bits // 8}")
    # What a float64 NaN becomes keeps a part of its payload.
    got = one_nan(got, out) if source == "f64" else got
    same_bits(got, reference(exact, bits.astype(np.float64), to=out, mode=mode))


@pytest.mark.parametrize(
    ("to", "source"), [("f32", "f16"), ("f32", "bf16"), ("f64", "f32"), ("f64", "f16")]
)
def test_widening_is_exact(to: str, source: str):
    bits, x = floats(source, 3)
    out = FORMATS[to]
    got = evaluate(f"cvt.{to}.{source} %d, %a;", bits, out=f"u{out.bits // 8}")
    if source == "bf16":
        same_bits(got, bits.astype(np.uint32) << np.uint32(16))
    got = got if source == "f16" and to == "f32" else one_nan(got, out)
    same_bits(got, reference(exact, x, to=out))


def test_relu_and_saturation():
    x = np.array([-1.0, -0.0, 0.3, 2.0, np.nan, np.inf, -np.inf], np.float32)
    got = evaluate("cvt.rn.relu.f16.f32 %d, %a;", x, out=np.uint16).view(np.float16)
    assert got[:4].tolist() == [0, 0, float(np.float16(0.3)), 2]
    assert not np.signbit(got[:2]).any()
    assert np.isnan(got[4])
    assert got[5:].tolist() == [np.inf, 0]
    got = evaluate("cvt.sat.f32.f32 %d, %a;", x, out=np.float32)
    same_bits(got, np.array([0, 0, 0.3, 1, 0, 1, 0], np.float32))


def test_ftz_of_a_conversion():
    x = np.array([1e-40, -1e-40, 1.0], np.float32)
    got = evaluate("cvt.ftz.f64.f32 %d, %a;", x, out=np.float64)
    same_bits(got, np.array([0.0, -0.0, 1.0]))


ROUND = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]


@pytest.mark.parametrize("mode", ROUND)
@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
@pytest.mark.parametrize("to", INTEGERS[2:])
def test_float_to_integer(to: str, source: str, mode: str):
    bits, x = floats(source, 4)
    rng = np.random.default_rng(5)
    # Halves, and the ends of the integer range.
    ends = np.array([2.0**k for k in (15, 16, 31, 32, 63, 64)])
    some = np.where(rng.random(COUNT) < 0.5, rng.integers(-40, 40, COUNT) / 2, rng.choice(ends))
    x = np.where(np.arange(COUNT) % 2, some, x)
    with np.errstate(all="ignore"):
        given = x.astype(bits.view(f"f{bits.dtype.itemsize}").dtype)
    dtype = np.dtype(f"{'i' if to[0] == 's' else 'u'}{int(to[1:]) // 8}")
    limits = np.iinfo(dtype)

    def want(v: float) -> int:
        if math.isnan(v):
            special = source == "f64" or to[1:] == "64"
            return wrap(1 << (int(to[1:]) - 1), dtype) if special else 0
        if math.isinf(v):
            return int(limits.max if v > 0 else limits.min)
        return min(max(ROUND[mode](v), int(limits.min)), int(limits.max))

    got = evaluate(f"cvt.{mode}.{to}.{source} %d, %a;", given, out=dtype)
    same_bits(got, np.array([want(float(v)) for v in given], dtype))


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("source", INTEGERS[2:])
@pytest.mark.parametrize("to", ["f16", "f32", "f64"])
def test_integer_to_float(to: str, source: str, mode: str):
    x = values(source, 6)
    # Numbers whose last digits lie near a tie of the target.
    width = int(source[1:])
    keep = FORMATS[to].precision
    if width > keep + 2:
        tie = (values(source, 7) | x.dtype.type(1 << (width - 2))) & x.dtype.type(
            wrap(-1 << (width - 2 - keep), x.dtype)
        )
        x = np.where(np.arange(x.size) % 2, x, tie + (np.arange(x.size) % 3 - 1).astype(x.dtype))
    out = FORMATS[to]
    got = evaluate(f"cvt.{mode}.{to}.{source} %d, %a;", x, out=f"u{out.bits // 8}")
    want = [np.array([v]) for v in x.tolist()]
    expected = np.concatenate(
        [
            reference(lambda _, v=v: Fraction(int(v[0])), np.zeros(1), to=out, mode=mode)
            for v in want
        ]
    )
    same_bits(got, expected)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", INTEGERS)
def test_integer_to_integer(to: str, source: str):
    """Registers hold at least 16 bits; those of 8-bit results are extended by sign."""
    x = values(source, 8)
    dtype = np.dtype(f"{'i' if to[0] == 's' else 'u'}{int(to[1:]) // 8}")
    held = np.dtype(f"{dtype.kind}{max(dtype.itemsize, 2)}")
    wide = x.astype(f"u{max(x.dtype.itemsize, 2)}")
    plain = evaluate(f"cvt.{to}.{source} %d, %a;", wide, out=held)
    want = [wrap(v, dtype) for v in x.tolist()]
    assert plain.tolist() == want
    limits = np.iinfo(dtype)
    clamped = evaluate(f"cvt.sat.{to}.{source} %d, %a;", wide, out=held)
    assert clamped.tolist() == [min(max(v, int(limits.min)), int(limits.max)) for v in x.tolist()]


def pair(text: str, high: Array, low: Array, out: str) -> Array:
    return evaluate(f"{text} %d, %a, %b;", high, low, out=out)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("name", "to"), [("f16x2", F16), ("bf16x2", BF16)])
def test_packed_halves(name: str, to: Float, relu: bool):
    (_, high), (_, low) = floats("f32", 9), floats("f32", 10)
    high, low = high.astype(np.float32), low.astype(np.float32)
    got = pair(f"cvt.rn{'.relu' if relu else ''}.{name}.f32", high, low, "u4")

    def one(v: float) -> Fraction | float:
        return 0.0 if relu and v <= 0 else exact(v)

    want = [reference(one, v.astype(np.float64), to=to).astype(np.uint32) for v in (high, low)]
    same_bits(got, want[0] << np.uint32(16) | want[1])


@pytest.mark.parametrize(("name", "to"), [("e4m3x2", E4M3), ("e5m2x2", E5M2)])
def test_packed_bytes(name: str, to: Float):
    rng = np.random.default_rng(11)
    high, low = (
        np.where(
            rng.random(COUNT) < 0.3,
            patterns(rng, 32, COUNT).view(np.float32),
            np.ldexp(rng.integers(-64, 64, COUNT), rng.integers(-18, 14, COUNT)),
        ).astype(np.float32)
        for _ in range(2)
    )
    got = pair(f"cvt.rn.satfinite.{name}.f32", high, low, "u2")

    def narrow(v: Array) -> Array:
        finite = np.where(np.isinf(v), np.copysign(np.float32(1e30), v), v)
        return reference(exact, finite.astype(np.float64), to=to, satfinite=True)

    same_bits(got, narrow(high).astype(np.uint16) << np.uint16(8) | narrow(low))
    with np.errstate(over="ignore"):
        halves = np.stack([low, high], axis=1).astype(np.float16)
    got = evaluate(
        f"cvt.rn.satfinite.{name}.f16x2 %d, %a;", halves.view(np.uint32)[:, 0], out=np.uint16
    )
    want = narrow(halves[:, 1]).astype(np.uint16) << np.uint16(8) | narrow(halves[:, 0])
    same_bits(got, want)


@pytest.mark.parametrize(
    ("name", "dtype"), [("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)]
)
def test_bytes_to_halves(name: str, dtype: type):
    every = np.arange(65536, dtype=np.uint16)[::7].copy()
    got = evaluate(f"cvt.rn.f16x2.{name} %d, %a;", every, out=np.uint32).view(np.float16)
    want = every.view(np.uint8).view(dtype).astype(np.float16)
    assert np.array_equal(got, want, equal_nan=True)
    assert set(got.view(np.uint16)[np.isnan(want)].tolist()) == {0x7FFF}


def test_tf32_rounds_ties_away():
    x = np.array([1 + 2.0**-11, 1 + 2.0**-10 + 2.0**-11, -(1 + 2.0**-11), 1 + 2.0**-12, 3e38])
    got = evaluate("cvt.rna.tf32.f32 %d, %a;", x.astype(np.float32), out=np.float32)
    assert got[:4].tolist() == [1 + 2.0**-10, 1 + 2.0**-9, -(1 + 2.0**-10), 1.0]
    assert got.view(np.uint32)[4] & 0x1FFF == 0


def test_packing_of_integers():
    a, b, c = values("s32", 1), values("s32", 2), values("u32", 3)
    got = evaluate("cvt.pack.sat.s8.s32.b32 %d, %a, %b, %c;", a, b, c, out=np.uint32)
    high, low = (np.clip(v, -128, 127).astype(np.int8).view(np.uint8) for v in (a, b))
    want = (c << np.uint32(16)) | (high.astype(np.uint32) << np.uint32(8)) | low
    same_bits(got, want)


def test_integral_rounding_of_floats():
    x = np.array([0.5, 1.5, -0.5, -1.5, 2.7, -2.7, np.nan, np.inf, 1e30], np.float32)
    want = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
    for mode, function in want.items():
        got = evaluate(f"cvt.{mode}.f32.f32 %d, %a;", x, out=np.float32)
        assert np.array_equal(got, function(x), equal_nan=True)
        assert (np.signbit(got) == np.signbit(x))[:6].all()


def test_saturation_to_half():
    x = np.array([-1.0, 0.25, 3.0, np.nan], np.float32)
    got = evaluate("cvt.rn.sat.f16.f32 %d, %a;", x, out=np.uint16).view(np.float16)
    assert got.tolist() == [0, 0.25, 1, 0]
    got = evaluate("cvt.rn.ftz.f32.f64 %d, %a;", np.array([1e-40, -1e-40, 1.0]), out=np.float32)
    same_bits(got, np.array([0.0, -0.0, 1.0], np.float32))
