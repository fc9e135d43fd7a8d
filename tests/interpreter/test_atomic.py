"""Atomics: sequential in some order, on global and shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from dnnc.interpreter import InterpreterError

from .lanes import run


def atomic(name: str, operands: str, start: np.ndarray, space: str = "global", seed: int = 0):
    """atom by 64 threads on one word; returns the old values and what is left."""
    width = 8 * start.itemsize
    register = "%rd5" if width == 64 else "%r5"
    size = start.itemsize
    body = f"""
    cvt.rn.f32.u32 %f1, %thread;
    cvt.u64.u32 %rd6, %thread;
    {"mov.b64 %rd1, %ptr0;" if space == "global" else "mov.b64 %rd1, s;"}
    ld.global.b{width} {register}, [%ptr0];
    setp.eq.u32 %p1, %thread, 0;
    {f"@%p1 st.shared.b{width} [s], {register};" if space == "shared" else ""}
    bar.sync 0;
    atom.{space}.{name} {register}, [%rd1], {operands};
    mad.wide.u32 %rd2, %thread, {size}, %ptr1;
    st.global.b{width} [%rd2], {register};
    bar.sync 0;
    ld.{"relaxed.gpu." if space == "global" else ""}{space}.b{width} {register}, [%rd1];
    @%p1 st.global.b{width} [%ptr2], {register};
    """
    old, left = run(
        body,
        start,
        (64, start.dtype),
        (1, start.dtype),
        block=64,
        seed=seed,
        globals_=".shared .align 8 .b8 s[8];",
    )
    return old, left[0]


@pytest.mark.parametrize("space", ["global", "shared"])
def test_add_returns_every_partial_sum(space: str):
    old, left = atomic("add.u32", "1", np.array([100], np.uint32), space)
    assert sorted(old.tolist()) == list(range(100, 164))
    assert left == 164


def test_the_order_is_random():
    orders = {
        tuple(atomic("add.u32", "1", np.array([0], np.uint32), seed=seed)[0].tolist())
        for seed in range(4)
    }
    assert len(orders) == 4


@pytest.mark.parametrize(
    ("name", "operand", "start", "left"),
    [
        ("min.u32", "%thread", np.uint32(9), 0),
        ("max.s32", "%thread", np.int32(-5), 63),
        ("and.b32", "0xf0", np.uint32(0xFF), 0xF0),
        ("or.b32", "%thread", np.uint32(0), 63),
        ("xor.b32", "%thread", np.uint32(5), 5),
        ("inc.u32", "9", np.uint32(0), 64 % 10),
        ("dec.u32", "9", np.uint32(0), (-64) % 10),
        ("add.u64", "%rd6", np.uint64(2**40), 2**40 + 2016),
        ("add.f32", "%f1", np.float32(0.5), 2016.5),
        ("add.noftz.f16x2", "0x3C004000", np.uint32(0), 0x54005800),
        ("add.noftz.bf16x2", "0x3F804000", np.uint32(0), 0x42804300),
    ],
)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_operations(name: str, operand: str, start, left, space: str):
    assert atomic(name, operand, np.array([start]), space)[1] == left


def test_add_f64():
    old, left = atomic("add.f64", "0d3FE0000000000000", np.array([0.0]))
    assert sorted(old.tolist()) == [k / 2 for k in range(64)]
    assert left == 32.0


def test_global_float_addition_flushes_subnormals():
    start = np.array([1e-40], np.float32)
    body = "red.global.add.f32 [%ptr0], 0f00000000; ld.global.b32 %r1, [%ptr0];"
    (y,) = run(body + "st.global.b32 [%ptr1], %r1;", start, (1, np.float32), block=1)
    assert y[0] == 0


def test_exchange_and_compare():
    old, left = atomic("exch.b32", "%thread", np.array([777], np.uint32))
    assert sorted([*old.tolist(), int(left)]) == sorted([777, *range(64)])
    old, left = atomic("cas.b32", "0, 5", np.array([0], np.uint32))
    assert sorted(old.tolist()) == [0] + [5] * 63
    assert left == 5


def test_a_lock_built_from_cas():
    """Each thread takes the lock, adds to a plain counter, gives the lock back."""
    body = """
    setp.ne.u32 %p3, %thread, 0;
    @%p3 bra END;
    SPIN:
    atom.acquire.gpu.global.cas.b32 %r1, [%ptr0], 0, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra SPIN;
    ld.global.b32 %r2, [%ptr0+4];
    add.u32 %r2, %r2, 1;
    st.global.b32 [%ptr0+4], %r2;
    atom.release.gpu.global.exch.b32 %r3, [%ptr0], 0;
    setp.eq.u32 %p2, %r2, 8;
    @%p2 st.global.b32 [%ptr1], %r2;
    END:
    """
    for seed in range(10):
        (count,) = run(body, np.zeros(2, np.uint32), (1, np.uint32), grid=8, seed=seed)
        assert count[0] == 8


def test_vector_reductions():
    body = "red.global.add.v2.f32 [%ptr0], {0f3F800000, 0f40000000};"
    read = "ld.global.v2.b32 {%r1, %r2}, [%ptr0]; st.global.v2.b32 [%ptr1], {%r1, %r2};"
    (y,) = run(body + read, np.zeros(2, np.float32), (2, np.float32), block=32)
    assert y.tolist() == [32.0, 64.0]


def test_generic_atomics():
    body = """
    setp.eq.u32 %p1, %thread, 0;
    @%p1 st.shared.b32 [s], 10;
    bar.sync 0;
    mov.b64 %rd1, s;
    cvta.shared.u64 %rd1, %rd1;
    atom.add.u32 %r1, [%rd1], 1;
    atom.add.u32 %r1, [%ptr0], 2;
    bar.sync 0;
    ld.shared.b32 %r2, [s];
    @%p1 st.global.b32 [%ptr1], %r2;
    ld.global.b32 %r3, [%ptr0];
    @%p1 st.global.b32 [%ptr1+4], %r3;
    """
    (y,) = run(body, np.zeros(1, np.uint32), (2, np.uint32), block=64,
               globals_=".shared .align 4 .b8 s[4];")  # fmt: skip
    assert y.tolist() == [74, 128]


def test_a_counter_that_nobody_zeroed():
    with pytest.raises(InterpreterError, match=r"is updated before it was written"):
        run("red.global.add.u32 [%ptr0], 1;", (1, np.uint32))


def test_the_last_cta_adds_up():
    """Partial sums in a workspace, a counter, and the last CTA to arrive reduces."""
    body = """
    setp.ne.u32 %p3, %thread, 0;
    @%p3 bra END;
    mad.wide.u32 %rd1, %cta, 4, %ptr1;
    add.u32 %r1, %cta, 1;
    st.global.b32 [%rd1], %r1;
    membar.gl;
    atom.global.add.u32 %r2, [%ptr0], 1;
    setp.ne.u32 %p1, %r2, 15;
    @%p1 bra END;
    mov.b32 %r3, 0;
    mov.b32 %r4, 0;
    LOOP:
    mad.wide.u32 %rd2, %r3, 4, %ptr1;
    ld.global.b32 %r5, [%rd2];
    add.u32 %r4, %r4, %r5;
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p2, %r3, 16;
    @%p2 bra LOOP;
    st.global.b32 [%ptr2], %r4;
    END:
    """
    for seed in range(12):
        _, total = run(
            body, np.zeros(1, np.uint32), (16, np.uint32), (1, np.uint32), grid=16, seed=seed
        )
        assert total[0] == 136


@pytest.mark.parametrize("opcode", ["red.release.sys", "atom.relaxed.gpu"])
def test_lanes_of_a_warp_add_to_several_allocations(opcode: str):
    """Threads of even numbers add to one, odd ones to the other."""
    result = "" if opcode.startswith("red") else "%f3, "
    body = f"""
    and.b32 %r1, %thread, 1;
    setp.eq.u32 %p1, %r1, 0;
    selp.b64 %rd1, %ptr0, %ptr1, %p1;
    cvt.rn.f32.u32 %f1, %thread;
    {opcode}.global.add.f32 {result}[%rd1], %f1;
    bar.sync 0;
    ld.acquire.sys.global.f32 %f2, [%rd1];
    mad.wide.u32 %rd2, %thread, 4, %ptr2;
    st.global.f32 [%rd2], %f2;
    """
    (seen,) = run(
        body, np.zeros(1, np.float32), np.full(1, 0.5, np.float32), (64, np.float32), block=64
    )
    np.testing.assert_array_equal(seen.reshape(-1, 2), [[992, 1024.5]] * 32)
