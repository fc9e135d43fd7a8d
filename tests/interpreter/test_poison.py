"""Poison: where it comes from, what it passes through, where it must not arrive."""

from __future__ import annotations

import numpy as np
import pytest

from dnnc.interpreter import InterpreterError

from .lanes import run

# %r1 is poison, %r2 a number; both come from memory, so nothing is known of them beforehand.
LOADS = "ld.global.b32 %r1, [%ptr0]; ld.global.b32 %r2, [%ptr1];"
STORE = "mad.wide.u32 %rd9, %thread, 4, %ptr2; st.global.b32 [%rd9], {};"


def attempt(body: str, stored: str = "%r3", x: int = 5, block: int = 1, **options):
    return run(
        LOADS + body + STORE.format(stored),
        (1, np.uint32),
        np.array([x], np.uint32),
        (block, np.uint32),
        block=block,
        allow_poison=True,
        **options,
    )[1]


@pytest.mark.parametrize(
    "body",
    [
        "mov.b32 %r3, %r1;",
        "add.s32 %r3, %r1, %r2;",
        "mul.lo.s32 %r3, %r2, %r1;",
        "mad.lo.s32 %r3, %r2, %r2, %r1;",
        "fma.rn.f32 %r3, %r2, %r2, %r1;",
        "sub.f32 %r3, %r1, %r1;",
        "max.f32 %r3, %r1, %r2;",
        "cvt.rn.f16x2.f32 %r3, %r2, %r1;",
        "ex2.approx.f32 %r3, %r1;",
        "setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, %r2, 7, %p1;",
        "selp.b32 %r3, %r1, %r2, 1;",
        "shl.b32 %r3, %r2, %r1;",
        "prmt.b32 %r3, %r2, %r1, 0x7210;",
        "bfi.b32 %r3, %r1, %r2, 8, 8;",
        "bfi.b32 %r3, %r2, %r1, 8, 24;",
        "bfi.b32 %r3, %r2, %r2, %r1, 8;",
        "mov.b32 {%h1, %h2}, %r1; mov.b32 %r3, {%h1, %h2};",
        "cvt.u64.u32 %rd1, %r1; cvt.u32.u64 %r3, %rd1;",
        "popc.b32 %r3, %r1;",
        "st.shared.b32 [s], %r1; ld.shared.b32 %r3, [s];",
        "st.local.b32 [depot], %r1; ld.local.b32 %r3, [depot];",
        "and.b32 %r3, %r1, 0x80;",
        "or.b32 %r3, %r1, 0xffffff00;",
        "xor.b32 %r3, %r1, %r1;",
        "add.cc.u32 %r4, %r1, 1; addc.u32 %r3, 0, 0;",
        "ld.shared.b32 %r3, [s];",
        "ld.local.b32 %r3, [depot];",
        "",  # %r3 was never set.
    ],
)
def test_poison_spreads(body: str):
    with pytest.raises(InterpreterError, match=r"gets a poisoned value"):
        attempt(
            body,
            globals_=".shared .b32 s;",
            declarations=".local .align 4 .b8 depot[4];",
        )


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("selp.b32 %r3, %r2, %r1, 1;", 5),
        ("setp.eq.s32 %p1, %r2, 5; selp.b32 %r3, %r2, %r1, %p1;", 5),
        ("and.b32 %r3, %r1, 0;", 0),
        ("or.b32 %r3, %r1, -1;", 0xFFFFFFFF),
        ("shl.b32 %r3, %r1, 32;", 0),
        ("prmt.b32 %r3, %r2, %r1, 0x3210;", 5),
        ("bfi.b32 %r3, %r2, %r1, 0, 32;", 5),
        ("bfi.b32 %r4, 0, %r1, 16, 16; bfi.b32 %r3, %r2, %r4, 0, 16;", 5),
        ("mov.b64 %rd1, {%r2, %r1}; mov.b64 {%r3, _}, %rd1;", 5),
        ("mov.b64 %rd1, {%r1, %r2}; shr.u64 %rd2, %rd1, 32; cvt.u32.u64 %r3, %rd2;", 5),
        ("cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2; mov.b32 %r4, {%h2, %h1};"
         "cvt.u32.u16 %r3, %h2;", 5),
        ("mov.b32 %r3, %r1; mov.b32 %r3, %r2;", 5),
        ("st.shared.b32 [s], %r1; st.shared.b32 [s], %r2; ld.shared.b32 %r3, [s];", 5),
        ("st.shared.v2.b32 [t], {%r1, %r2}; ld.shared.b32 %r3, [t+4];", 5),
        ("add.f16x2 %r4, %r1, %r1; mov.b32 %r3, %r2;", 5),
        ("setp.ne.s32 %p1, %r2, 5; mov.b32 %r3, %r2; @%p1 mov.b32 %r3, %r1;", 5),
    ],
)  # fmt: skip
def test_poison_that_does_not_count(body: str, want: int):
    y = attempt(body, globals_=".shared .b32 s;\n.shared .align 8 .b8 t[8];")
    assert y[0] == want


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("setp.eq.s32 %p1, %r1, 0; @%p1 bra L; L:", "the predicate of a branch"),
        ("setp.eq.s32 %p1, %r1, 0; @%p1 mov.b32 %r3, 0;", "the guard predicate"),
        ("cvt.u64.u32 %rd1, %r1; ld.global.b32 %r3, [%rd1];", "an address"),
        ("st.shared.b32 [%r1], 0;", "an address"),
        ("red.global.add.u32 [%ptr1], %r1;", "must be known"),
        ("bar.sync %r1;", "the operand of a barrier"),
        ("shfl.sync.idx.b32 %r3, %r2, %r1, 31, 1;", "a member mask or lane number"),
        ("cp.async.ca.shared.global [s], [%ptr1], 4, %r1;", "must be known"),
    ],
)
def test_where_poison_must_not_arrive(body: str, message: str):
    with pytest.raises(InterpreterError) as error:
        attempt(body, "%r2", globals_=".shared .b32 s;")
    assert f"poison reaches {message}" in str(error.value) or message in str(error.value)


def test_poison_goes_lane_by_lane():
    """Only odd lanes load what was never written; only their results suffer."""
    body = """
    and.b32 %r4, %thread, 1;
    setp.eq.u32 %p1, %r4, 1;
    mov.b32 %r3, %thread;
    @%p1 mov.b32 %r3, %r1;
    add.s32 %r3, %r3, 1;
    @%p1 mov.b32 %r3, 0;
    """
    y = attempt(body, block=64)
    assert y.tolist() == [0 if k & 1 else k + 1 for k in range(64)]
    with pytest.raises(InterpreterError, match=r"warp 0 lane 1:"):
        attempt(body.replace("@%p1 mov.b32 %r3, 0;", ""), block=64)


def test_shuffles_carry_poison_to_who_reads_it():
    body = """
    setp.eq.u32 %p1, %thread, 3;
    mov.b32 %r3, %thread;
    @%p1 mov.b32 %r3, %r1;
    shfl.sync.bfly.b32 %r3, %r3, 1, 31, -1;
    setp.eq.u32 %p2, %thread, 2;
    @%p2 mov.b32 %r3, 99;
    """
    y = attempt(body, block=32)
    assert y[:4].tolist() == [1, 0, 99, 2]
    with pytest.raises(InterpreterError, match=r"lane 2:"):
        attempt(body.replace("@%p2 mov.b32 %r3, 99;", ""), block=32)


def test_votes_on_poison():
    body = """
    setp.eq.u32 %p1, %thread, 3;
    mov.b32 %r3, %thread;
    @%p1 mov.b32 %r3, %r1;
    setp.lt.u32 %p2, %r3, 100;
    vote.sync.ballot.b32 %r3, %p2, {mask};
    """
    with pytest.raises(InterpreterError, match=r"lane 0:"):
        attempt(body.format(mask="-1"), block=32)


def test_registers_set_on_one_path_only():
    body = """
    setp.eq.s32 %p1, %r2, {value};
    @%p1 bra SET;
    bra JOIN;
    SET:
    mov.b32 %r3, 1;
    JOIN:
    """
    assert attempt(body.format(value=5))[0] == 1
    with pytest.raises(InterpreterError, match=r"poisoned value"):
        attempt(body.format(value=6))


def test_registers_set_under_a_guard_only():
    body = "setp.lt.u32 %p1, %thread, 8; @%p1 mov.b32 %r3, 1;"
    with pytest.raises(InterpreterError, match=r"lane 8: .*poisoned value"):
        attempt(body, block=32)
    attempt(body + "@!%p1 mov.b32 %r3, 2;", block=32)


def test_half_written_words():
    """Two of four bytes are known: those may be stored, the others not."""
    body = """
    cvt.u16.u32 %h1, %r2;
    st.shared.b16 [s], %h1;
    ld.shared.b32 %r3, [s];
    {mask}
    """
    masked = body.format(mask="and.b32 %r3, %r3, 0xffff;")
    assert attempt(masked, globals_=".shared .b32 s;")[0] == 5
    with pytest.raises(InterpreterError, match=r"poisoned value"):
        attempt(body.format(mask=""), globals_=".shared .b32 s;")


MATRICES = """
mad.lo.u32 %r5, %thread, 16, 0;
mov.b32 %r6, t;
add.u32 %r5, %r5, %r6;
mov.b32 %r7, %thread;
setp.eq.u32 %p1, %thread, 9;
@%p1 mov.b32 %r7, %r1;
"""


@pytest.mark.parametrize(
    ("body", "lane"),
    [
        # Lane 9 holds row 2, columns 2 and 3: stored to the second word of that row.
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {%r7};"
         "shl.b32 %r8, %thread, 2; add.u32 %r8, %r8, %r6; ld.shared.b32 %r3, [%r8];", 9),
        # Transposed: rows 2 and 3, column 2: lanes 9 and 13.
        ("movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r7;", 9),
    ],
)  # fmt: skip
def test_matrices_carry_poison(body: str, lane: int):
    with pytest.raises(InterpreterError, match=f"lane {lane}:"):
        attempt(MATRICES + body, block=32, globals_=".shared .align 16 .b8 t[512];")
    clean = MATRICES.replace("@%p1 mov", "@!%p1 mov").replace("%r7, %r1;", "%r7, %r2;")
    attempt(clean + body, block=32, globals_=".shared .align 16 .b8 t[512];")


def test_an_address_of_a_row_that_is_poison():
    body = MATRICES + "add.u32 %r5, %r5, %r7; sub.u32 %r5, %r5, %r7;"
    load = "ldmatrix.sync.aligned.m8n8.x{}.shared.b16 {{{}}}, [%r5];"
    globals_ = ".shared .align 16 .b8 t[512];"
    attempt(body + load.format(1, "%r9"), "%r2", block=32, globals_=globals_)
    with pytest.raises(InterpreterError, match=r"lane 9: .*poison reaches an address"):
        attempt(body + load.format(2, "%r9, %r10"), "%r2", block=32, globals_=globals_)


def test_moves_of_128_bits_carry_poison():
    body = """
    cvt.u64.u32 %rd1, %r1;
    cvt.u64.u32 %rd2, %r2;
    mov.b128 %q1, {%rd1, %rd2};
    mov.b128 {%rd3, %rd4}, %q1;
    """
    declarations = ".reg .b128 %q<2>;"
    high = body + "cvt.u32.u64 %r3, %rd4;"
    assert attempt(high, declarations=declarations)[0] == 5
    with pytest.raises(InterpreterError, match=r"poisoned value"):
        attempt(body + "cvt.u32.u64 %r3, %rd3;", declarations=declarations)
