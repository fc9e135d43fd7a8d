"""mma.sync of every shape and type: fragments built by the tables of the PTX ISA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dnnc.interpreter import InterpreterError

from .lanes import run

Place = Callable[[int, int, int], tuple[int, int]]  # group, thread in group, element -> row, column
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Shape:
    """Where element i of a thread's fragment lies ("Matrix Fragments for mma.m16n8k*")."""

    k: int
    a: Place
    b: Place
    a_elements: int
    b_elements: int


SHAPES = {
    "k8.16bit": Shape(
        8,
        lambda g, t, i: (g if i < 2 else g + 8, 2 * t + (i & 1)),
        lambda g, t, i: (2 * t + i, g),
        4,
        2,
    ),
    "k16.16bit": Shape(
        16,
        lambda g, t, i: (
            g if i < 2 or 4 <= i < 6 else g + 8,
            2 * t + (i & 1) + (0 if i < 4 else 8),
        ),
        lambda g, t, i: (2 * t + (i & 1) + (0 if i < 2 else 8), g),
        8,
        4,
    ),
    "k4.32bit": Shape(4, lambda g, t, i: (g if i == 0 else g + 8, t), lambda g, t, i: (t, g), 2, 1),
    "k8.32bit": Shape(
        8,
        lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
        lambda g, t, i: (t if i == 0 else t + 4, g),
        4,
        2,
    ),
    "k16.8bit": Shape(
        16,
        lambda g, t, i: (g if i < 4 else g + 8, 4 * t + (i & 3)),
        lambda g, t, i: (4 * t + i, g),
        8,
        4,
    ),
    "k32.8bit": Shape(
        32,
        lambda g, t, i: (
            g if i < 4 or 8 <= i < 12 else g + 8,
            4 * t + (i & 3) + (0 if i < 8 else 16),
        ),
        lambda g, t, i: (4 * t + (i & 3) + (0 if i < 4 else 16), g),
        16,
        8,
    ),
}


def place_c(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8, 2 * t + (i & 1))


def fragment(matrix: Array, place: Place, count: int) -> Array:
    """[32, registers] of 32 bits that hold each lane's elements of the matrix."""
    out = np.zeros((32, count), matrix.dtype)
    for lane in range(32):
        for i in range(count):
            out[lane, i] = matrix[place(lane // 4, lane % 4, i)]
    return out.view(np.uint32)


def matrix_of(registers: Array, dtype: Any) -> Array:
    """The 16x8 matrix whose fragments these are."""
    items = registers.view(dtype)
    out = np.zeros((16, 8), items.dtype)
    for lane in range(32):
        for i in range(4):
            out[place_c(lane // 4, lane % 4, i)] = items[lane, i]
    return out


def multiply(opcode: str, shape: Shape, a: Array, b: Array, c: Array, seed: int = 0) -> Array:
    """D of the instruction, from matrices in their storage types."""
    parts = [
        fragment(a, shape.a, shape.a_elements),
        fragment(b, shape.b, shape.b_elements),
        fragment(c, place_c, 4),
    ]
    names = [[f"%r{10 * at + 10 + k}" for k in range(p.shape[1])] for at, p in enumerate(parts)]
    loads, offset = [], 0
    for registers in names:
        for register in registers:
            loads.append(f"ld.global.b32 {register}, [%rd1+{4 * offset}];")
            offset += 1
    targets = [f"%r{50 + k}" for k in range(len(names[2]))]
    stores = [f"st.global.b32 [%rd2+{4 * k}], {register};" for k, register in enumerate(targets)]
    lists = ["{" + ", ".join(registers) + "}" for registers in (targets, *names)]
    body = f"""
    mad.lo.u32 %r1, %cta, 64, %thread;
    mad.wide.u32 %rd1, %r1, {4 * offset}, %ptr0;
    mad.wide.u32 %rd2, %r1, {4 * len(targets)}, %ptr1;
    {" ".join(loads)}
    {opcode} {", ".join(lists)};
    {" ".join(stores)}
    """
    # Four warps of two CTAs hold the same matrices.
    data = np.tile(np.concatenate(parts, axis=1), (4, 1))
    (out,) = run(body, data, (128 * len(targets), np.uint32), block=64, grid=2, seed=seed)
    warps = out.reshape(4, 32, len(targets))
    assert (warps == warps[0]).all()
    return matrix_of(warps[0], c.dtype)


def random_floats(rng: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    return rng.normal(size=shape).astype(dtype)


BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
FLOATS = [
    ("m16n8k8.row.col.f32.f16.f16.f32", "k8.16bit", np.float16, np.float16, np.float32),
    ("m16n8k16.row.col.f32.f16.f16.f32", "k16.16bit", np.float16, np.float16, np.float32),
    ("m16n8k8.row.col.f16.f16.f16.f16", "k8.16bit", np.float16, np.float16, np.float16),
    ("m16n8k16.row.col.f16.f16.f16.f16", "k16.16bit", np.float16, np.float16, np.float16),
    ("m16n8k8.row.col.f32.bf16.bf16.f32", "k8.16bit", BF16, BF16, np.float32),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", "k16.16bit", BF16, BF16, np.float32),
    ("m16n8k4.row.col.f32.tf32.tf32.f32", "k4.32bit", np.float32, np.float32, np.float32),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", "k8.32bit", np.float32, np.float32, np.float32),
    ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "k32.8bit", E4M3, E4M3, np.float32),
    ("m16n8k32.row.col.f32.e4m3.e5m2.f32", "k32.8bit", E4M3, E5M2, np.float32),
    ("m16n8k32.row.col.f32.e5m2.e5m2.f32", "k32.8bit", E5M2, E5M2, np.float32),
    ("m16n8k16.row.col.f32.e4m3.e4m3.f32", "k16.8bit", E4M3, E4M3, np.float32),
]


@pytest.mark.parametrize(("name", "layout", "a_type", "b_type", "c_type"), FLOATS)
def test_floats(name: str, layout: str, a_type: Any, b_type: Any, c_type: Any):
    shape = SHAPES[layout]
    rng = np.random.default_rng(0)
    a = random_floats(rng, (16, shape.k), a_type)
    b = random_floats(rng, (shape.k, 8), b_type)
    c = random_floats(rng, (16, 8), c_type)
    got = multiply(f"mma.sync.aligned.{name}", shape, a, b, c)
    if "tf32" in name:
        # The low 13 bits of the operands do not count.
        a, b = ((m.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for m in (a, b))
    exact = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    assert np.array_equal(got, exact.astype(c_type))


INTEGERS = [
    (f"m16n8k{k}.row.col{sat}.s32.{a}.{b}.s32", f"k{k}.8bit", a, b, bool(sat))
    for k in (16, 32)
    for a in ("s8", "u8")
    for b in ("s8", "u8")
    for sat in ("", ".satfinite")
]


@pytest.mark.parametrize(("name", "layout", "a_name", "b_name", "saturates"), INTEGERS)
def test_integers(name: str, layout: str, a_name: str, b_name: str, saturates: bool):
    shape = SHAPES[layout]
    rng = np.random.default_rng(1)
    types = {"s8": np.int8, "u8": np.uint8}
    a, b = (
        rng.integers(np.iinfo(t).min, np.iinfo(t).max, size, dtype=t, endpoint=True)
        for t, size in ((types[a_name], (16, shape.k)), (types[b_name], (shape.k, 8)))
    )
    c = rng.integers(-(2**31), 2**31, (16, 8)).astype(np.int32)
    c[0], c[1] = 2**31 - 1, -(2**31)
    got = multiply(f"mma.sync.aligned.{name}", shape, a, b, c)
    exact = a.astype(np.int64) @ b.astype(np.int64) + c
    want = np.clip(exact, -(2**31), 2**31 - 1) if saturates else exact
    assert np.array_equal(got, want.astype(np.int32))


def test_infinities_and_nan():
    shape = SHAPES["k16.16bit"]
    a, b = np.zeros((16, 16), np.float16), np.ones((16, 8), np.float16)
    a[0, 0], a[1, 3], a[2, 4], a[2, 5] = np.inf, np.nan, np.inf, -np.inf
    got = multiply(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        shape,
        a,
        b,
        np.zeros((16, 8), np.float32),
    )
    assert (got[0] == np.inf).all()
    assert (got[1:3].view(np.uint32) == 0x7FFFFFFF).all()
    assert (got[3:] == 0).all()


MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d}, {a}, {b}, {c};"
REGISTERS = {
    "d": "{%f1, %f2, %f3, %f4}",
    "a": "{%r1, %r2, %r3, %r4}",
    "b": "{%r5, %r6}",
    "c": "{%f5, %f6, %f7, %f8}",
}


def zeros(*names: str) -> str:
    return " ".join(f"mov.b32 {name}, 0;" for name in names)


def test_poison_follows_rows_and_columns():
    """Poison in A spoils a row, in B a column, in C one element: the rest may be stored."""
    clean = zeros(*(f"%r{k}" for k in range(1, 7)), *(f"%f{k}" for k in range(5, 9)))
    store = "mad.wide.u32 %rd1, %thread, 4, %ptr0; st.global.b32 [%rd1], {};"
    lone = "setp.eq.u32 %p1, %thread, {lane}; @%p1 ld.global.b32 {register}, [%ptr1];"

    def attempt(register: str, lane: int, stored: str) -> None:
        body = clean + lone.format(lane=lane, register=register) + MMA.format(**REGISTERS)
        run(body + store.format(stored), (32, np.uint32), (1, np.uint32), allow_poison=True)

    # Lane 5 is group 1, thread 1: its %r1 is row 1 of A, so %f1 and %f2 of lanes 4 to 7 suffer.
    attempt("%r1", 5, "%f3")
    with pytest.raises(InterpreterError, match=r"lane 4: .*poison"):
        attempt("%r1", 5, "%f2")
    # Its %r5 is column 1 of B: element 1 of the lanes with thread 0 in each group.
    attempt("%r5", 5, "%f1")
    with pytest.raises(InterpreterError, match=r"lane 0: .*poison"):
        attempt("%r5", 5, "%f4")
    with pytest.raises(InterpreterError, match=r"lane 5: .*poison"):
        attempt("%f7", 5, "%f3")
    attempt("%f7", 5, "%f4")


def test_the_whole_warp_is_needed():
    clean = zeros(*(f"%r{k}" for k in range(1, 7)), *(f"%f{k}" for k in range(5, 9)))
    body = clean + "setp.lt.u32 %p1, %thread, 20; @!%p1 bra L;" + MMA.format(**REGISTERS) + "L:"
    with pytest.raises(InterpreterError, match=r"lane 20: .*needs all 32 lanes"):
        run(body)
    with pytest.raises(InterpreterError, match=r"needs all 32 lanes"):
        run(clean + MMA.format(**REGISTERS), block=20)
