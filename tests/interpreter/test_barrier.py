"""Barriers and shared-memory races: what is ordered passes, what is not fails in every seed."""

from __future__ import annotations

import numpy as np
import pytest

from dnnc.interpreter import InterpreterError

from .lanes import fails_within, run

SMEM = ".shared .align 16 .b8 s[1024];"
NEIGHBOUR = """
shl.b32 %r1, %thread, 2;
mov.b32 %r2, s;
add.u32 %r3, %r2, %r1;
st.shared.b32 [%r3], %thread;
{barrier}
xor.b32 %r4, %thread, 32;
shl.b32 %r4, %r4, 2;
add.u32 %r4, %r2, %r4;
ld.shared.b32 %r5, [%r4];
{again}
mad.wide.u32 %rd1, %thread, 4, %ptr0;
st.global.b32 [%rd1], %r5;
"""


def exchange(seed: int, barrier: str, again: str = "", block: int = 128) -> list[int]:
    body = NEIGHBOUR.format(barrier=barrier, again=again)
    (y,) = run(body, (block, np.uint32), block=block, seed=seed, globals_=SMEM)
    return y.tolist()


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "barrier.sync.aligned 3, 128;"])
@pytest.mark.parametrize("seed", range(5))
def test_a_barrier_orders(seed: int, barrier: str):
    assert exchange(seed, barrier) == [k ^ 32 for k in range(128)]


@pytest.mark.parametrize("seed", range(8))
def test_a_missing_barrier_is_a_race_in_every_seed(seed: int):
    with pytest.raises(InterpreterError, match=r"race: a (read|write) by warp \d"):
        exchange(seed, "")


@pytest.mark.parametrize("seed", range(8))
def test_writing_again_needs_another_barrier(seed: int):
    write = "st.shared.b32 [%r3], 0;"
    with pytest.raises(InterpreterError, match=r"race: a (read|write) by warp"):
        exchange(seed, "bar.sync 0;", write)
    exchange(seed, "bar.sync 0;", "bar.sync 1;" + write)


def test_a_fence_is_no_barrier():
    with pytest.raises(InterpreterError, match=r"race"):
        exchange(0, "membar.cta;")


@pytest.mark.parametrize("seed", range(8))
def test_a_barrier_of_two_warps_orders_those_alone(seed: int):
    """Warps 0 and 1 meet at barrier 1, warps 2 and 3 at barrier 2."""
    pairs = "shr.u32 %r6, %thread, 6; add.u32 %r6, %r6, 1; bar.sync %r6, 64;"
    assert exchange(seed, pairs) == [k ^ 32 for k in range(128)]
    crossed = pairs.replace(
        "shr.u32 %r6, %thread, 6;", "shr.u32 %r6, %thread, 5; and.b32 %r6, %r6, 1;"
    )
    with pytest.raises(InterpreterError, match=r"race"):
        exchange(seed, crossed)


@pytest.mark.parametrize("seed", range(8))
def test_arrive_and_sync(seed: int):
    """Warp 0 writes and goes on; warp 1 waits for it."""
    body = """
    mov.b32 %r2, s;
    shl.b32 %r1, %thread, 2;
    and.b32 %r1, %r1, 127;
    add.u32 %r3, %r2, %r1;
    setp.ge.u32 %p1, %thread, 32;
    @%p1 bra CONSUMER;
    st.shared.b32 [%r3], %thread;
    {arrive}
    {late}
    bra END;
    CONSUMER:
    bar.sync 5, 64;
    ld.shared.b32 %r5, [%r3];
    mad.wide.u32 %rd1, %thread, 4, %ptr0;
    st.global.b32 [%rd1+-128], %r5;
    END:
    """
    arrive = "bar.arrive 5, 64;"
    (y,) = run(body.format(arrive=arrive, late=""), (32, np.uint32), block=64, seed=seed,
               globals_=SMEM)  # fmt: skip
    assert y.tolist() == list(range(32))
    with pytest.raises(InterpreterError, match=r"race"):
        run(body.format(arrive=arrive, late="st.shared.b32 [%r3], 0;"), (32, np.uint32),
            block=64, seed=seed, globals_=SMEM)  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_a_ring_of_arrivals_used_many_times(seed: int):
    """Producer and consumer warps hand a buffer to and fro, eight times."""
    body = """
    mov.b32 %r2, s;
    and.b32 %r1, %thread, 31;
    shl.b32 %r1, %r1, 2;
    add.u32 %r3, %r2, %r1;
    mov.b32 %r4, 0;
    mov.b32 %r6, 0;
    setp.ge.u32 %p1, %thread, 32;
    @%p1 bra CONSUMER;
    PRODUCER:
    setp.eq.u32 %p2, %r4, 0;
    @!%p2 bar.sync 2, 64;
    mad.lo.u32 %r5, %r4, 100, %thread;
    st.shared.b32 [%r3], %r5;
    bar.arrive 1, 64;
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p3, %r4, 8;
    @%p3 bra PRODUCER;
    bra END;
    CONSUMER:
    bar.sync 1, 64;
    ld.shared.b32 %r5, [%r3];
    add.u32 %r6, %r6, %r5;
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p3, %r4, 8;
    @%p3 bar.arrive 2, 64;
    @%p3 bra CONSUMER;
    mad.wide.u32 %rd1, %r1, 1, %ptr0;
    st.global.b32 [%rd1], %r6;
    END:
    """
    (y,) = run(body, (32, np.uint32), block=64, seed=seed, globals_=SMEM)
    assert y.tolist() == [2800 + 8 * k for k in range(32)]


def test_atomics_do_not_race_with_each_other():
    body = """
    setp.eq.u32 %p1, %thread, 0;
    @%p1 st.shared.b32 [s], 0;
    bar.sync 0;
    red.shared.add.u32 [s], 1;
    {barrier}
    ld.shared.b32 %r1, [s];
    @%p1 st.global.b32 [%ptr0], %r1;
    """
    for seed in range(6):
        (y,) = run(body.format(barrier="bar.sync 0;"), (1, np.uint32), block=96, seed=seed,
                   globals_=SMEM)  # fmt: skip
        assert y[0] == 96
        with pytest.raises(InterpreterError, match=r"race: (a read|an atomic) by warp"):
            run(body.format(barrier=""), (1, np.uint32), block=96, seed=seed, globals_=SMEM)


def test_neighbouring_bytes_do_not_race():
    body = """
    mov.b32 %r1, s;
    add.u32 %r1, %r1, %thread;
    cvt.u16.u32 %h1, %thread;
    st.shared.b8 [%r1], %h1;
    bar.sync 0;
    ld.shared.b32 %r2, [s];
    """
    run(body, block=128, globals_=SMEM)


@pytest.mark.parametrize("seed", range(4))
def test_a_barrier_where_branches_meet(seed: int):
    """The first instruction behind the join needs the whole warp."""
    body = """
    and.b32 %r1, %thread, 31;
    setp.ne.u32 %p1, %r1, 0;
    shr.u32 %r2, %thread, 5;
    shl.b32 %r2, %r2, 2;
    mov.b32 %r3, s;
    add.u32 %r2, %r3, %r2;
    @%p1 bra JOIN;
    st.shared.b32 [%r2], %thread;
    JOIN:
    bar.sync 0;
    ld.shared.b32 %r4, [s+4];
    mad.wide.u32 %rd1, %thread, 4, %ptr0;
    st.global.b32 [%rd1], %r4;
    """
    (y,) = run(body, (96, np.uint32), block=96, seed=seed, globals_=SMEM)
    assert set(y.tolist()) == {32}


def test_exited_warps_are_not_waited_for():
    body = "setp.ge.u32 %p1, %thread, 32; @%p1 exit; bar.sync 0; st.global.b32 [%ptr0], 1;"
    for seed in range(4):
        (y,) = run(body, (1, np.uint32), block=96, seed=seed)
        assert y[0] == 1


def test_deadlock():
    body = "setp.lt.u32 %p1, %thread, 32; @%p1 bar.sync 1, 64; bar.sync 2, 96;"
    with pytest.raises(InterpreterError, match=r"deadlock: barrier 1 .* has warps \[0\] of 64"):
        run(body, block=64)


def test_misuse():
    with pytest.raises(InterpreterError, match=r"another thread count"):
        run("setp.lt.u32 %p1, %thread, 32; @%p1 bar.sync 1, 96; @!%p1 bar.sync 1, 64;", block=96)
    with pytest.raises(InterpreterError, match=r"whole warps"):
        run("bar.sync 1, 40;", block=64)
    with pytest.raises(InterpreterError, match=r"there are 16"):
        run("bar.sync 16;", block=64)
    with pytest.raises(InterpreterError, match=r"arrives at barrier 1 twice"):
        run("bar.arrive 1, 96; bar.arrive 1, 96;", block=64)


def test_a_warp_may_arrive_and_then_wait_at_the_same_barrier():
    """Both count, so one warp completes a barrier of 64 threads alone."""
    run("bar.arrive 1, 64; bar.sync 1, 64;", block=32)
    with pytest.raises(InterpreterError, match=r"deadlock"):
        run("bar.arrive 1, 96; bar.sync 1, 96;", block=32)


def test_a_barrier_in_divergent_code():
    body = "setp.lt.u32 %p1, %thread, 7; @!%p1 bra L; bar.sync 0; L:"
    with pytest.raises(InterpreterError, match=r"needs the whole warp"):
        run(body, block=64)


def test_seeds_give_different_schedules():
    """Who comes first at a lock-free counter differs from seed to seed."""
    body = """
    and.b32 %r9, %thread, 31;
    setp.ne.u32 %p1, %r9, 0;
    @%p1 bra END;
    atom.global.add.u32 %r1, [%ptr0], 1;
    shr.u32 %r2, %thread, 5;
    mad.wide.u32 %rd1, %r1, 4, %ptr1;
    st.global.b32 [%rd1], %r2;
    END:
    """
    orders = {
        tuple(run(body, np.zeros(1, np.uint32), (4, np.uint32), block=128, seed=seed)[0].tolist())
        for seed in range(10)
    }
    assert len(orders) > 5


def test_reading_a_global_value_too_early_shows_in_some_seed():
    """Global memory is not watched for races, so such a bug shows by its result."""
    body = """
    setp.ne.u32 %p1, %thread, 0;
    @%p1 bra READ;
    st.global.b32 [%ptr0], 1;
    READ:
    setp.lt.u32 %p2, %thread, 32;
    @%p2 bra END;
    ld.global.b32 %r1, [%ptr0];
    mad.wide.u32 %rd1, %thread, 4, %ptr1;
    st.global.b32 [%rd1+-128], %r1;
    END:
    """

    def attempt(seed: int) -> None:
        run(body, (1, np.uint32), (32, np.uint32), block=64, seed=seed)

    assert "poisoned value" in fails_within(20, attempt)


@pytest.mark.parametrize("seed", range(6))
def test_equal_writes_of_two_warps_race_too(seed: int):
    """Two warps race that execute the same store at the same time."""
    with pytest.raises(InterpreterError, match=r"race: a write by warp \d and a write by warp \d"):
        run("st.shared.b32 [s], 7;", block=96, seed=seed, globals_=SMEM)


@pytest.mark.parametrize("seed", range(4))
def test_atomics_race_with_plain_accesses(seed: int):
    body = """
    setp.lt.u32 %p1, %thread, 32;
    @%p1 {first}
    @!%p1 {second}
    """
    atomic, write = "red.shared.or.b32 [s], 0;", "st.shared.b32 [s], 0;"
    start = "setp.eq.u32 %p2, %thread, 0; @%p2 st.shared.b32 [s], 0; bar.sync 0;"
    for first, second in ((atomic, write), (write, atomic), (atomic, "ld.shared.b32 %r1, [s];")):
        with pytest.raises(InterpreterError, match=r"race"):
            run(start + body.format(first=first, second=second), block=64, seed=seed, globals_=SMEM)
    # Volatile accesses count as atomics.
    flag = "ld.volatile.shared.b32 %r1, [s];", "st.volatile.shared.b32 [s], 1;"
    run(start + body.format(first=flag[0], second=flag[1]), block=64, seed=seed, globals_=SMEM)


@pytest.mark.parametrize("seed", range(8))
def test_a_spinning_warp_lets_others_run(seed: int):
    body = """
    setp.lt.u32 %p1, %thread, 32;
    @!%p1 bra OTHER;
    SPIN:
    nanosleep.u32 20;
    ld.acquire.gpu.global.b32 %r1, [%ptr0];
    setp.eq.u32 %p2, %r1, 0;
    @%p2 bra SPIN;
    st.global.b32 [%ptr1], %r1;
    bra END;
    OTHER:
    st.release.gpu.global.b32 [%ptr0], 9;
    END:
    """
    (y,) = run(body, np.zeros(1, np.uint32), (1, np.uint32), block=64, seed=seed)
    assert y[0] == 9
    without = body.replace("nanosleep.u32 20;", "")
    (y,) = run(without, np.zeros(1, np.uint32), (1, np.uint32), block=64, seed=seed)
    assert y[0] == 9
