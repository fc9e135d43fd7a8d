"""Integer arithmetic, logic and bit fields against Python's integers."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnc.interpreter import InterpreterError

from .exact import Array
from .lanes import evaluate, same_bits

COUNT = 600
SPECIAL = (0, 1, 2, 31, 32, 63, -1, -2)


def values(type_name: str, seed: int, count: int = COUNT) -> Array:
    """Numbers of an integer type: anything, small ones, and the ends of the range."""
    width = int(type_name[1:])
    dtype = np.dtype(f"{'i' if type_name[0] == 's' else 'u'}{width // 8}")
    rng = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    anything = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    small = rng.integers(0, 70, count).astype(dtype)
    ends = rng.choice(np.array([limits.min, limits.max], dtype), count)
    special = rng.choice(np.array(SPECIAL, np.int64), count).astype(dtype)
    return np.stack([anything, anything, small, ends, special])[
        rng.integers(0, 5, count), np.arange(count)
    ]


def wrap(value: int, dtype: np.dtype) -> int:
    width = 8 * dtype.itemsize
    value &= (1 << width) - 1
    return value - (1 << width) if dtype.kind == "i" and value >> (width - 1) else value


def expected(function: Callable[..., int], *inputs: Array, out: str) -> Array:
    dtype = np.dtype(f"{'i' if out[0] == 's' else 'u'}{int(out[1:]) // 8}")
    rows = zip(*(a.tolist() for a in inputs), strict=True)
    return np.array([wrap(int(function(*row)), dtype) for row in rows], dtype)


def check(body: str, function: Callable[..., int], *types: str, out: str, seed: int = 0) -> None:
    inputs = [values(name, seed + at) for at, name in enumerate(types)]
    want = expected(function, *inputs, out=out)
    same_bits(evaluate(body, *inputs, out=want.dtype), want)


TYPES = ["u16", "s16", "u32", "s32", "u64", "s64"]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(
    ("opcode", "function"),
    [
        ("add", operator.add),
        ("sub", operator.sub),
        ("mul.lo", operator.mul),
        ("min", min),
        ("max", max),
    ],
)
def test_arithmetic(opcode: str, function: Callable[..., int], name: str):
    check(f"{opcode}.{name} %d, %a, %b;", function, name, name, out=name)


@pytest.mark.parametrize("name", TYPES)
def test_high_products(name: str):
    width = int(name[1:])
    check(f"mul.hi.{name} %d, %a, %b;", lambda a, b: (a * b) >> width, name, name, out=name)
    check(
        f"mad.hi.{name} %d, %a, %b, %c;",
        lambda a, b, c: ((a * b) >> width) + c,
        name,
        name,
        name,
        out=name,
    )


@pytest.mark.parametrize("name", ["u16", "s16", "u32", "s32"])
def test_wide_products(name: str):
    wide = f"{name[0]}{2 * int(name[1:])}"
    check(f"mul.wide.{name} %d, %a, %b;", operator.mul, name, name, out=wide)
    check(f"mad.wide.{name} %d, %a, %b, %c;", lambda a, b, c: a * b + c, name, name, wide, out=wide)


def test_saturating():
    def clamp(value: int) -> int:
        return max(-(2**31), min(2**31 - 1, value))

    check("add.sat.s32 %d, %a, %b;", lambda a, b: clamp(a + b), "s32", "s32", out="s32")
    check("sub.sat.s32 %d, %a, %b;", lambda a, b: clamp(a - b), "s32", "s32", out="s32")


@pytest.mark.parametrize("name", TYPES)
def test_division_towards_zero(name: str):
    def quotient(a: int, b: int) -> int:
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    a, b = values(name, 1), values(name, 2)
    b[b == 0] = 3
    want = expected(quotient, a, b, out=name)
    same_bits(evaluate(f"div.{name} %d, %a, %b;", a, b, out=want.dtype), want)
    rest = expected(lambda x, y: x - quotient(x, y) * y, a, b, out=name)
    same_bits(evaluate(f"rem.{name} %d, %a, %b;", a, b, out=want.dtype), rest)


def test_division_by_zero_is_poison():
    a, b = np.array([5, 6], np.int32), np.array([1, 0], np.int32)
    with pytest.raises(InterpreterError, match=r"lane 1.*poison"):
        evaluate("div.s32 %d, %a, %b;", a, b, out=np.int32)


def test_sign():
    check("abs.s32 %d, %a;", abs, "s32", out="s32")
    check("neg.s64 %d, %a;", operator.neg, "s64", out="s64")
    check("sad.s32 %d, %a, %b, %c;", lambda a, b, c: c + abs(a - b), *["s32"] * 3, out="u32")


def test_carries():
    """A 128-bit sum and difference from 32-bit pieces, as LLVM makes them."""
    low_a, high_a = values("u64", 1), values("u64", 2)
    low_b, high_b = values("u64", 3), values("u64", 4)
    whole = [
        (a | b << 64, c | e << 64)
        for a, b, c, e in zip(*(v.tolist() for v in (low_a, high_a, low_b, high_b)), strict=True)
    ]
    for opcode, function in (("add", operator.add), ("sub", operator.sub)):
        body = f"{opcode}.cc.u64 %rd1, %a, %c; {opcode}c.u64 %rd2, %b, %e;"
        inputs = (low_a, high_a, low_b, high_b)
        got = [evaluate(f"{body} mov.b64 %d, %rd{k};", *inputs, out=np.uint64) for k in (1, 2)]
        want = [function(x, y) & (2**128 - 1) for x, y in whole]
        assert [int(h) << 64 | int(low) for low, h in zip(*got, strict=True)] == want


def test_products_with_carry():
    """A 64-bit product plus a number, from 32-bit pieces, as libdevice's reduction makes it."""
    body = "mad.lo.cc.u32 %r1, %a, %b, %c; madc.hi.u32 %r2, %a, %b, 0; mov.b64 %d, {%r1, %r2};"
    check(body, lambda a, b, c: a * b + c, "u32", "u32", "u32", out="u64")


@pytest.mark.parametrize("width", [16, 32, 64])
def test_logic(width: int):
    name = f"b{width}"
    unsigned = f"u{width}"
    check(f"and.{name} %d, %a, %b;", operator.and_, unsigned, unsigned, out=unsigned)
    check(f"or.{name} %d, %a, %b;", operator.or_, unsigned, unsigned, out=unsigned)
    check(f"xor.{name} %d, %a, %b;", operator.xor, unsigned, unsigned, out=unsigned)
    check(f"not.{name} %d, %a;", operator.invert, unsigned, out=unsigned)


@pytest.mark.parametrize("table", [0xE8, 0x96, 0xCA, 0x01])
def test_lop3(table: int):
    def function(a: int, b: int, c: int) -> int:
        return sum(
            (table >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1)) & 1) << k
            for k in range(32)
        )

    check(f"lop3.b32 %d, %a, %b, %c, {table};", function, "u32", "u32", "u32", out="u32")


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_clamp_their_amount(width: int):
    check(f"shl.b{width} %d, %a, %b;", lambda a, b: a << min(b, 99), f"u{width}", "u32",
          out=f"u{width}")  # fmt: skip
    for name in (f"u{width}", f"s{width}"):
        check(f"shr.{name} %d, %a, %b;", lambda a, b: a >> min(b, 99), name, "u32", out=name)


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shifts(mode: str):
    def amount(c: int) -> int:
        return c & 31 if mode == "wrap" else min(c, 32)

    check(
        f"shf.l.{mode}.b32 %d, %a, %b, %c;",
        lambda a, b, c: ((b << 32 | a) << amount(c)) >> 32,
        *["u32"] * 3,
        out="u32",
    )
    check(
        f"shf.r.{mode}.b32 %d, %a, %b, %c;",
        lambda a, b, c: (b << 32 | a) >> amount(c),
        *["u32"] * 3,
        out="u32",
    )


@pytest.mark.parametrize("name", ["u32", "s32", "u64", "s64"])
def test_bfe(name: str):
    width = int(name[1:])

    def function(a: int, b: int, c: int) -> int:
        # The pseudo code of the PTX ISA.
        pos, count = b & 0xFF, c & 0xFF
        if name[0] == "u" or count == 0:
            sign = 0
        else:
            sign = a >> min(pos + count - 1, width - 1) & 1
        out = -sign
        for k in range(min(count, width)):
            if pos + k >= width:
                break
            out = out & ~(1 << k) | (a >> (pos + k) & 1) << k
        return out

    check(f"bfe.{name} %d, %a, %b, %c;", function, name, "u32", "u32", out=name)


@pytest.mark.parametrize("width", [32, 64])
def test_bfi(width: int):
    def function(a: int, b: int, c: int, e: int) -> int:
        out = b
        for k in range(e & 0xFF):
            if (c & 0xFF) + k >= width:
                break
            out = out & ~(1 << (c & 0xFF) + k) | (a >> k & 1) << (c & 0xFF) + k
        return out

    name = f"u{width}"
    check(f"bfi.b{width} %d, %a, %b, %c, %e;", function,
          name, name, "u32", "u32", out=name)  # fmt: skip


def test_prmt():
    def function(a: int, b: int, c: int) -> int:
        whole = a | b << 32
        out = 0
        for k in range(4):
            nibble = c >> 4 * k & 0xF
            byte = whole >> 8 * (nibble & 7) & 0xFF
            out |= (0xFF if byte & 0x80 else 0) << 8 * k if nibble & 8 else byte << 8 * k
        return out

    check("prmt.b32 %d, %a, %b, %c;", function, "u32", "u32", "u32", out="u32")


@pytest.mark.parametrize("width", [32, 64])
def test_counts(width: int):
    name = f"u{width}"
    check(f"popc.b{width} %d, %a;", int.bit_count, name, out="u32")
    check(f"clz.b{width} %d, %a;", lambda a: width - a.bit_length(), name, out="u32")
    check(f"bfind.u{width} %d, %a;", lambda a: a.bit_length() - 1, name, out="u32")
    check(
        f"bfind.s{width} %d, %a;",
        lambda a: (a if a >= 0 else ~a).bit_length() - 1,
        f"s{width}",
        out="u32",
    )
    check(f"brev.b{width} %d, %a;", lambda a: int(f"{a:0{width}b}"[::-1], 2), name, out=name)


def test_masks_and_extensions():
    check(
        "bmsk.clamp.b32 %d, %a, %b;",
        lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32),
        "u32",
        "u32",
        out="u32",
    )

    def extend(a: int, b: int) -> int:
        count = min(b, 32)
        low = a & ((1 << count) - 1)
        return low - (1 << count) if count and low >> (count - 1) else low

    check("szext.clamp.s32 %d, %a, %b;", extend, "s32", "u32", out="s32")


def test_dot_products():
    a, b, c = values("u32", 1), values("u32", 2), values("s32", 3)
    signed = a[:, None].view(np.int8).astype(np.int64)
    unsigned = b[:, None].view(np.uint8).astype(np.int64)
    want = ((signed * unsigned).sum(1) + c).astype(np.int32)
    same_bits(evaluate("dp4a.s32.u32 %d, %a, %b, %c;", a, b, c, out=np.int32), want)
    pairs = a[:, None].view(np.int16).astype(np.int64)
    want = ((pairs * unsigned[:, 2:]).sum(1) + c).astype(np.int32)
    same_bits(evaluate("dp2a.hi.s32.u32 %d, %a, %b, %c;", a, b, c, out=np.int32), want)


def test_packed_16_bit_lanes():
    a, b = values("u32", 1), values("u32", 2)
    pairs = a[:, None].view(np.int16), b[:, None].view(np.int16)
    want = np.maximum(*pairs).view(np.uint32).reshape(-1)
    same_bits(evaluate("max.s16x2 %d, %a, %b;", a, b, out=np.uint32), want)
    want = (pairs[0] + pairs[1]).view(np.uint32).reshape(-1)
    same_bits(evaluate("add.u16x2 %d, %a, %b;", a, b, out=np.uint32), want)


INTEGER_COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("comparison", INTEGER_COMPARISONS)
def test_setp(comparison: str, name: str):
    body = f"setp.{comparison}.{name} %p1, %a, %b; selp.b32 %d, 1, 0, %p1;"
    check(body, INTEGER_COMPARISONS[comparison], name, name, out="u32")


@pytest.mark.parametrize(
    ("comparison", "function"),
    [("lo", operator.lt), ("ls", operator.le), ("hi", operator.gt), ("hs", operator.ge)],
)
def test_unsigned_names_of_comparisons(comparison: str, function: Callable[..., int]):
    body = f"setp.{comparison}.u32 %p1, %a, %b; selp.b32 %d, 1, 0, %p1;"
    check(body, function, "u32", "u32", out="u32")


FLOAT_COMPARISONS = {
    **INTEGER_COMPARISONS,
    "equ": operator.eq,
    "neu": operator.ne,
    "ltu": operator.lt,
    "leu": operator.le,
    "gtu": operator.gt,
    "geu": operator.ge,
}


@pytest.mark.parametrize("comparison", [*FLOAT_COMPARISONS, "num", "nan"])
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_float_comparisons(comparison: str, name: str):
    some = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan], f"f{int(name[1:]) // 8}")
    a, b = np.repeat(some, some.size), np.tile(some, some.size)

    def function(x: float, y: float) -> bool:
        unordered = x != x or y != y
        if comparison in ("num", "nan"):
            return unordered == (comparison == "nan")
        if unordered:
            return comparison.endswith("u")
        return FLOAT_COMPARISONS[comparison](x, y)

    want = expected(function, a, b, out="u32")
    body = f"setp.{comparison}.{name} %p1, %a, %b; selp.b32 %d, 1, 0, %p1;"
    same_bits(evaluate(body, a, b, out=np.uint32), want)
    body = f"set.{comparison}.u32.{name} %d, %a, %b;"
    same_bits(evaluate(body, a, b, out=np.uint32), want * np.uint32(0xFFFFFFFF))


@pytest.mark.parametrize("combine", ["and", "or", "xor"])
def test_setp_combines_with_a_predicate(combine: str):
    function = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[combine]
    body = (
        "setp.ne.u32 %p3, %c, 0;"
        f"setp.lt.{combine}.s32 %p1|%p2, %a, %b, !%p3;"
        "selp.b32 %d, 1, 0, %p1; selp.b32 %r1, 2, 0, %p2; or.b32 %d, %d, %r1;"
    )

    def want(a: int, b: int, c: int) -> int:
        return function(a < b, c == 0) | function(a >= b, c == 0) << 1

    inputs = values("s32", 1), values("s32", 2), values("u32", 3) & np.uint32(1)
    same_bits(evaluate(body, *inputs, out=np.uint32), expected(want, *inputs, out="u32"))


def test_selections():
    check(
        "slct.u32.s32 %d, %a, %b, %c;",
        lambda a, b, c: a if c >= 0 else b,
        "u32",
        "u32",
        "s32",
        out="u32",
    )


def test_predicate_logic():
    body = (
        "setp.lt.s32 %p1, %a, %b; setp.lt.s32 %p2, %b, %c; and.pred %p3, %p1, %p2;"
        "or.pred %p4, %p1, %p2; xor.pred %p5, %p3, %p4; not.pred %p6, %p5;"
        "selp.u32 %d, 1, 0, %p6;"
    )
    check(body, lambda a, b, c: int((a < b) == (b < c)), *["s32"] * 3, out="u32")


def test_moves_between_widths():
    a = values("u64", 5)
    body = (
        "mov.b64 {%r1, %r2}, %a; mov.b32 {%h1, %h2}, %r2; mov.b32 %r3, {%h2, %h1};"
        "mov.b64 %d, {%r3, %r1};"
    )
    low, high = a & np.uint64(0xFFFFFFFF), a >> np.uint64(32)
    swapped = (high >> np.uint64(16)) | ((high & np.uint64(0xFFFF)) << np.uint64(16))
    same_bits(evaluate(body, a, out=np.uint64), swapped | (low << np.uint64(32)))


def test_128_bit_registers():
    a, b = values("u64", 6), values("u64", 7)
    body = "mov.b128 %q1, {%a, %b}; mov.b128 %q2, %q1; mov.b128 {_, %d}, %q2;"
    got = evaluate(body, a, b, out=np.uint64, declarations=".reg .b128 %q<4>;")
    same_bits(got, b)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4))
def test_a_swap_through_xor(row: list[int]):
    a, b = np.array(row[:2], np.uint32), np.array(row[2:], np.uint32)
    body = "xor.b32 %a, %a, %b; xor.b32 %b, %a, %b; xor.b32 %a, %a, %b; sub.u32 %d, %a, %b;"
    same_bits(evaluate(body, a, b, out=np.uint32), b - a)


def test_rare_forms():
    def clamp(value: int) -> int:
        return max(-(2**31), min(2**31 - 1, value))

    three = ["s32"] * 3
    check("mad.hi.sat.s32 %d, %a, %b, %c;", lambda a, b, c: clamp(((a * b) >> 32) + c), *three,
          out="s32")  # fmt: skip
    check("max.relu.s32 %d, %a, %b;", lambda a, b: max(a, b, 0), "s32", "s32", out="s32")
    check("cnot.b32 %d, %a;", lambda a: int(a == 0), "u32", out="u32")
    check("bfind.shiftamt.u32 %d, %a;", lambda a: 32 - a.bit_length() if a else -1, "u32",
          out="u32")  # fmt: skip


def test_float_forms_of_integer_opcodes():
    a = np.array([1.5, -2.0, np.inf], np.float32)
    got = evaluate("mad.rn.f32 %d, %a, %a, 0f3F800000;", a, out=np.float32)
    assert got.tolist() == [3.25, 5.0, np.inf]
    body = "setp.eq.u32 %p1, %b, 1; set.lt.and.f32.f32 %d, %a, 0f3FC00001, %p1;"
    got = evaluate(body, a, np.array([1, 0, 1], np.uint32), out=np.float32)
    assert got.tolist() == [1.0, 0.0, 0.0]
