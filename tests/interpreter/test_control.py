"""Branches, divergence and reconvergence, exits, calls; what makes a launch fail as a whole."""

from __future__ import annotations

import numpy as np
import pytest

from dnnc.interpreter import InterpreterError, Memory, launch, parse

from .lanes import HEADER, module_text, run

OUT = "mad.wide.u32 %rd1, %thread, 4, %ptr0; st.global.b32 [%rd1], %r1;"
# A shuffle that needs the whole warp shows that the lanes have met again.
MEET = "shfl.sync.idx.b32 %r9, %r1, 0, 31, -1;"


@pytest.mark.parametrize("seed", range(6))
def test_nested_branches_meet_again(seed: int):
    body = f"""
    mov.b32 %r1, 0;
    setp.lt.u32 %p1, %thread, 20;
    @!%p1 bra ELSE;
    add.u32 %r1, %r1, 1;
    and.b32 %r2, %thread, 1;
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra INNER;
    add.u32 %r1, %r1, 10;
    bra.uni JOIN;
    INNER:
    add.u32 %r1, %r1, 100;
    JOIN:
    add.u32 %r1, %r1, 1000;
    bra.uni END;
    ELSE:
    add.u32 %r1, %r1, 7;
    END:
    {MEET}
    {OUT}
    """
    (y,) = run(body, (64, np.uint32), block=64, seed=seed)
    want = [(1001 + (10 if k & 1 else 100)) if k < 20 else 7 for k in range(64)]
    assert y.tolist() == want


@pytest.mark.parametrize("seed", range(6))
def test_a_loop_whose_exit_is_written_before_its_body(seed: int):
    """Lanes that leave early wait for the others, wherever the code lies."""
    body = f"""
    mov.b32 %r1, 0;
    bra.uni LOOP;
    EXIT:
    {MEET}
    {OUT}
    ret;
    NEXT:
    setp.gt.u32 %p1, %r1, %thread;
    @%p1 bra EXIT;
    LOOP:
    add.u32 %r1, %r1, 1;
    bra.uni NEXT;
    """
    (y,) = run(body, (64, np.uint32), block=64, seed=seed)
    assert y.tolist() == [k + 1 for k in range(64)]


@pytest.mark.parametrize("seed", range(6))
def test_loops_with_a_trip_count_for_each_lane(seed: int):
    """Collatz steps: a loop with a branch inside."""
    body = f"""
    add.u32 %r2, %thread, 1;
    mov.b32 %r1, 0;
    LOOP:
    setp.eq.u32 %p1, %r2, 1;
    @%p1 bra DONE;
    and.b32 %r3, %r2, 1;
    setp.eq.u32 %p2, %r3, 0;
    @%p2 bra EVEN;
    mad.lo.u32 %r2, %r2, 3, 1;
    bra NEXT;
    EVEN:
    shr.u32 %r2, %r2, 1;
    NEXT:
    add.u32 %r1, %r1, 1;
    bra LOOP;
    DONE:
    {MEET}
    {OUT}
    """
    (y,) = run(body, (96, np.uint32), block=96, seed=seed)

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    assert y.tolist() == [steps(k + 1) for k in range(96)]


def test_early_exit_and_partial_warps():
    body = f"""
    setp.ge.u32 %p1, %thread, 40;
    @%p1 ret;
    setp.ge.u32 %p1, %thread, 35;
    @%p1 exit;
    add.u32 %r1, %thread, 5;
    {OUT}
    """
    (y,) = run(body, (35, np.uint32), block=45)
    assert y.tolist() == [k + 5 for k in range(35)]


def test_guards():
    body = f"""
    setp.lt.u32 %p1, %thread, 3;
    mov.b32 %r1, 1;
    @%p1 mov.b32 %r1, 2;
    @!%p1 add.u32 %r1, %r1, %thread;
    mov.b64 %rd2, 0;
    setp.eq.u32 %p2, %thread, 99;
    @%p2 ld.global.b32 %r1, [%rd2];
    {OUT}
    """
    (y,) = run(body, (32, np.uint32))
    assert y.tolist() == [2 if k < 3 else 1 + k for k in range(32)]


def test_an_instruction_that_writes_its_own_guard():
    body = f"""
    setp.lt.u32 %p1, %thread, 16;
    @%p1 setp.lt.u32 %p1, %thread, 8;
    selp.u32 %r1, 1, 0, %p1;
    {OUT}
    """
    (y,) = run(body, (32, np.uint32))
    assert y.tolist() == [int(k < 8) for k in range(32)]


def test_a_guard_that_is_the_first_of_two_results():
    body = f"""
    setp.lt.u32 %p1, %thread, 16;
    setp.lt.u32 %p2, %thread, 0;
    @%p1 setp.lt.u32 %p1|%p2, %thread, 8;
    selp.u32 %r1, 1, 0, %p1;
    selp.u32 %r2, 2, 0, %p2;
    or.b32 %r1, %r1, %r2;
    {OUT}
    """
    (y,) = run(body, (32, np.uint32))
    assert y.tolist() == [1] * 8 + [2] * 8 + [0] * 16


def test_indexed_branch():
    body = f"""
    and.b32 %r2, %thread, 3;
    T: .branchtargets A, B, C, B;
    brx.idx %r2, T;
    A:
    mov.b32 %r1, 10;
    bra END;
    B:
    mov.b32 %r1, 20;
    bra END;
    C:
    mov.b32 %r1, 30;
    END:
    {MEET}
    {OUT}
    """
    (y,) = run(body, (32, np.uint32))
    assert y.tolist() == [[10, 20, 30, 20][k % 4] for k in range(32)]
    with pytest.raises(InterpreterError, match=r"index 4 of 4 labels"):
        run(body.replace("and.b32 %r2, %thread, 3", "mov.b32 %r2, %thread"), (32, np.uint32))


CALLEES = """
.func (.param .b32 r) square_or_zero(.param .b32 x, .param .align 8 .b8 pair[8])
{
.reg .b32 %r<4>;
.reg .pred %p<2>;
.local .align 4 .b8 depot[8];
ld.param.b32 %r1, [x];
st.local.b32 [depot], %r1;
setp.gt.u32 %p1, %r1, 10;
@%p1 bra ZERO;
ld.local.b32 %r2, [depot];
mul.lo.u32 %r2, %r2, %r1;
ld.param.b32 %r3, [pair+4];
add.u32 %r2, %r2, %r3;
st.param.b32 [r], %r2;
ret;
ZERO:
mov.b32 %r2, 0;
st.param.b32 [r], %r2;
ret;
}
.func twice(.param .b32 x);
"""


def test_calls_are_inlined():
    call = """
    {{
    .param .b32 a;
    .param .align 8 .b8 b[8];
    .param .b32 c;
    st.param.b32 [a], {argument};
    st.param.v2.b32 [b], {{0, 5}};
    {guard}call.uni (c), square_or_zero, (a, b);
    ld.param.b32 %r1, [c];
    }}
    """
    twice = call.format(argument="%thread", guard="") + call.format(argument="%r1", guard="")
    (y,) = run(twice + MEET + OUT, (32, np.uint32), globals_=CALLEES)

    def f(x: int) -> int:
        return 0 if x > 10 else x * x + 5

    assert y.tolist() == [f(f(k)) for k in range(32)]


def test_a_guarded_call_skips_the_function():
    body = """
    mov.b32 %r1, 3;
    setp.lt.u32 %p1, %thread, 4;
    { .param .b32 a; .param .align 8 .b8 b[8]; .param .b32 c;
    st.param.b32 [c], 9;
    st.param.b32 [a], 2; st.param.v2.b32 [b], {0, 0};
    @%p1 call (c), square_or_zero, (a, b);
    ld.param.b32 %r1, [c]; }
    """
    (y,) = run(body + MEET + OUT, (32, np.uint32), globals_=CALLEES)
    assert y.tolist() == [4 if k < 4 else 9 for k in range(32)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{ .param .b32 a; call twice, (a); }", "'twice' has no body"),
        ("call.uni (%r1), %rd1, (%r2);", "only direct calls"),
        ("tcgen05.wait::ld.sync.aligned;", "unknown opcode"),
        ("add.s32.magic %r1, %r1, 1;", "unknown modifier .magic"),
        ("ld.global.L3::far.b32 %r1, [%rd1];", "unknown modifier .L3::far"),
        ("add.s32 %r1, %rd1, 1;", "%rd1 has 64 bits, not 32"),
        ("add.s32 %r1, %zz, 1;", "register %zz is not declared"),
        ("mov.u32 %r1, %clock_of_the_sun;", "not declared"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%rd1}, {%rd1}, {%rd1}, {%rd1};",
         "known"),
        ("fence.proxy.alias;", "only the asynchronous proxy"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_name(body: str, message: str):
    with pytest.raises(InterpreterError) as error:
        run(body, globals_=CALLEES)
    assert message in str(error.value)
    assert body.split(";")[0].split("}")[0].split("{")[0].strip()[:12] in str(error.value)


def test_recursion_is_refused():
    text = ".func f() { call f, (); ret; }"
    with pytest.raises(InterpreterError, match=r"recursive call of 'f'"):
        run("call f, ();", globals_=text)


def test_trap():
    body = "setp.eq.u32 %p1, %thread, 21; @%p1 trap;"
    with pytest.raises(InterpreterError, match=r"lane 21: `@%p1 trap`: the kernel trapped"):
        run(body)


@pytest.mark.parametrize("seed", range(4))
def test_step_limit(seed: int):
    with pytest.raises(InterpreterError, match=r"more than 5000 steps.*bra LOOP"):
        run("LOOP: bra LOOP;", seed=seed, step_limit=5000)


def test_special_registers():
    names = ["tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ctaid.x", "ctaid.y", "ctaid.z",
             "nctaid.x", "nctaid.z", "laneid", "warpid", "lanemask_lt"]  # fmt: skip
    stores = "\n".join(
        f"mov.u32 %r1, %{name}; st.global.b32 [%rd2+{4 * at}], %r1;"
        for at, name in enumerate(names)
    )
    text = module_text(
        f"""
        mov.u32 %r2, %tid.x; mov.u32 %r3, %tid.y; mov.u32 %r4, %tid.z;
        mad.lo.u32 %r5, %r4, 2, %r3; mad.lo.u32 %r5, %r5, 20, %r2;
        mov.u32 %r6, %ctaid.x; mov.u32 %r7, %ctaid.y; mov.u32 %r8, %ctaid.z;
        mad.lo.u32 %r9, %r8, 3, %r7; mad.lo.u32 %r9, %r9, 2, %r6;
        mad.lo.u32 %r5, %r9, 120, %r5;
        mad.wide.u32 %rd2, %r5, {4 * len(names)}, %ptr0;
        {stores}
        """,
        1,
    )
    memory = Memory()
    count = 6 * 2 * 120
    out = memory.allocate(4 * count * len(names))
    launch(parse(text), "k", grid=(2, 3, 2), block=(20, 2, 3),
           params=[out.to_bytes(8, "little")], memory=memory)  # fmt: skip
    got = memory.download(out, 4 * count * len(names)).view(np.uint32).reshape(12, 120, -1)
    for cta in (0, 7, 11):
        for thread in (0, 45, 119):
            want = [thread % 20, thread // 20 % 2, thread // 40, 20, 2, cta % 2, cta // 2 % 3,
                    cta // 6, 2, 2, thread % 32, thread // 32,
                    (1 << thread % 32) - 1]  # fmt: skip
            assert got[cta, thread].tolist() == want


def test_ctas_come_in_random_order():
    text = module_text(
        """
        atom.global.add.u32 %r1, [%ptr0], 1;
        mad.wide.u32 %rd1, %r1, 4, %ptr1;
        st.global.b32 [%rd1], %cta;
        """,
        2,
    )
    orders: set[tuple[int, ...]] = set()
    for seed in range(5):
        memory = Memory()
        counter, out = memory.allocate(4), memory.allocate(32)
        memory.upload(counter, bytes(4))
        launch(parse(text), "k", grid=(8, 1, 1), block=(1, 1, 1), memory=memory, seed=seed,
               params=[counter.to_bytes(8, "little"), out.to_bytes(8, "little")],
               resident_ctas=1)  # fmt: skip
        orders.add(tuple(memory.download(out, 32).view(np.uint32).tolist()))
    assert len(orders) == 5
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(8))}


def test_device_functions_cannot_be_launched():
    module = parse(HEADER + ".func f() { ret; }")
    with pytest.raises(InterpreterError, match=r"'f' is a device function"):
        launch(module, "f", grid=(1, 1, 1), block=(1, 1, 1), params=[], memory=Memory())
