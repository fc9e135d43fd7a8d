"""cp.async: in flight until the issuer waits, zero fill, groups."""

from __future__ import annotations

import numpy as np
import pytest

from dnnc.interpreter import InterpreterError

from .lanes import fails_within, run

SMEM = ".shared .align 16 .b8 s[8192];"
X = np.arange(512, dtype=np.uint32)
ADDRESSES = """
shl.b32 %r1, %thread, 4;
mov.b32 %r2, s;
add.u32 %r3, %r2, %r1;
mad.wide.u32 %rd1, %thread, 16, %ptr0;
mad.wide.u32 %rd2, %thread, 16, %ptr1;
"""
STORE = """
ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3];
st.global.v4.b32 [%rd2], {%r4, %r5, %r6, %r7};
"""
COPY = "cp.async.cg.shared.global.L2::128B [%r3], [%rd1], 16;"
WAIT = "cp.async.commit_group; cp.async.wait_group 0;"


def copy(body: str, seed: int = 0, block: int = 32, x: np.ndarray = X) -> np.ndarray:
    (y,) = run(ADDRESSES + body + STORE, x, (4 * block, np.uint32), block=block, seed=seed,
               globals_=SMEM)  # fmt: skip
    return y


@pytest.mark.parametrize("wait", [WAIT, "cp.async.wait_all;"])
def test_a_copy_arrives(wait: str):
    assert (copy(COPY + wait) == X[:128]).all()


@pytest.mark.parametrize(
    "wait",
    ["", "cp.async.commit_group;", "cp.async.wait_group 0;",
     "cp.async.commit_group; cp.async.wait_group 1;"],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(4))
def test_what_was_not_waited_for_is_poison(wait: str, seed: int):
    with pytest.raises(InterpreterError, match=r"gets a poisoned value"):
        copy(COPY + wait, seed)


def test_groups_complete_in_order():
    body = """
    cp.async.ca.shared.global [%r3], [%rd1], 4;
    cp.async.ca.shared.global [%r3+4], [%rd1+4], 4;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r3+8], [%rd1+8], 8;
    cp.async.commit_group;
    cp.async.wait_group {pending};
    ld.shared.v2.b32 {{%r4, %r5}}, [%r3+{at}];
    st.global.v2.b32 [%rd2], {{%r4, %r5}};
    """

    def attempt(pending: int, at: int) -> np.ndarray:
        text = ADDRESSES + body.format(pending=pending, at=at)
        return run(text, X, (128, np.uint32), globals_=SMEM, allow_poison=True)[0]

    assert (attempt(1, 0).reshape(32, 4)[:, :2] == X[:128].reshape(32, 4)[:, :2]).all()
    assert (attempt(0, 8).reshape(32, 4)[:, :2] == X[:128].reshape(32, 4)[:, 2:]).all()
    with pytest.raises(InterpreterError, match=r"poison"):
        attempt(1, 8)


def test_source_sizes_fill_with_zeros_and_read_no_further():
    body = """
    and.b32 %r8, %thread, 3;
    shl.b32 %r8, %r8, 2;
    setp.eq.u32 %p1, %thread, 31;
    add.s64 %rd3, %rd1, 8;
    selp.b32 %r8, 4, %r8, %p1;
    cp.async.cg.shared.global [%r3], [%rd1], 16, %r8;
    """
    short = X[: 31 * 4 + 1].copy()
    y = copy(body + WAIT, x=short).reshape(32, 4)
    want = np.zeros((32, 4), np.uint32)
    for lane in range(32):
        words = 1 if lane == 31 else lane % 4
        want[lane, :words] = X[4 * lane : 4 * lane + words]
    assert (y == want).all()


def test_a_predicate_that_ignores_the_source():
    body = """
    setp.ge.u32 %p1, %thread, 5;
    selp.b64 %rd1, 0, %rd1, %p1;
    cp.async.cg.shared.global [%r3], [%rd1], 16, %p1;
    """
    y = copy(body + WAIT).reshape(32, 4)
    assert (y[:5].reshape(-1) == X[:20]).all()
    assert (y[5:] == 0).all()


def test_writing_over_bytes_in_flight():
    with pytest.raises(InterpreterError, match=r"while an asynchronous copy to it is in flight"):
        copy(COPY + "st.shared.b32 [%r3+8], 0;" + WAIT)
    with pytest.raises(InterpreterError, match=r"while an asynchronous copy to it is in flight"):
        copy(COPY + COPY + WAIT)
    with pytest.raises(InterpreterError, match=r"target of two lanes"):
        copy("mov.b32 %r3, s;" + COPY + WAIT)


def test_bounds_and_alignment():
    with pytest.raises(InterpreterError, match=r"outside 'allocation 0'"):
        copy("add.s64 %rd1, %rd1, 1552;" + COPY + WAIT)
    with pytest.raises(InterpreterError, match=r"outside the 8192 bytes of shared memory"):
        copy("add.u32 %r3, %r3, 8192;" + COPY + WAIT)
    with pytest.raises(InterpreterError, match=r"not a multiple of the copy's size, 16 bytes"):
        copy("add.s64 %rd1, %rd1, 8;" + COPY + WAIT)
    with pytest.raises(InterpreterError, match=r"not a multiple of the access size, 16 bytes"):
        copy("add.u32 %r3, %r3, 8;" + COPY + WAIT)
    with pytest.raises(InterpreterError, match=r"a copy of 8 bytes"):
        copy("cp.async.cg.shared.global [%r3], [%rd1], 8;" + WAIT)


def test_the_source_is_read_at_the_issue_or_at_the_wait():
    body = COPY + "st.global.b32 [%rd1], 7;" + WAIT
    seen = {int(copy(body, seed)[4]) for seed in range(12)}
    assert seen == {4, 7}


def test_copies_of_poison_are_poison():
    with pytest.raises(InterpreterError, match=r"poisoned value"):
        run(ADDRESSES + COPY + WAIT + STORE, (128, np.uint32), (128, np.uint32), globals_=SMEM)


OTHERS = """
{copy}
{wait}
{barrier}
xor.b32 %r3, %r3, 512;
"""


@pytest.mark.parametrize("seed", range(6))
def test_another_warp_needs_wait_then_barrier(seed: int):
    """The barrier must come after the wait: before it, it orders nothing."""

    def attempt(wait: str, barrier: str) -> np.ndarray:
        body = OTHERS.format(copy=COPY, wait=wait, barrier=barrier)
        return copy(body, seed, block=64)

    want = X[:256].reshape(2, 128)[::-1].reshape(-1)
    assert (attempt(WAIT, "bar.sync 0;") == want).all()
    with pytest.raises(InterpreterError, match=r"race|poison"):
        attempt(WAIT, "")
    with pytest.raises(InterpreterError, match=r"race|poison"):
        attempt("cp.async.commit_group;", "bar.sync 0;")
    with pytest.raises(InterpreterError, match=r"race|poison"):
        attempt("cp.async.commit_group;", "bar.sync 0; cp.async.wait_group 0;")


def test_overwriting_what_another_warp_reads_is_a_race():
    body = COPY + WAIT + "bar.sync 0; xor.b32 %r8, %r3, 512; ld.shared.b32 %r9, [%r8];"
    again = COPY + WAIT
    assert copy(body + "bar.sync 0;" + again, block=64).size
    for seed in range(6):
        with pytest.raises(InterpreterError, match=r"race"):
            copy(body + again, seed, block=64)


def test_many_groups_in_a_loop():
    """More copies under way than the first ring holds, waited for three groups behind."""
    body = """
    mov.b32 %r10, 0;
    mov.b32 %r11, 0;
    LOOP:
    and.b32 %r12, %r10, 15;
    mad.lo.u32 %r13, %r12, 512, %r3;
    mad.wide.u32 %rd3, %r10, 4, %ptr0;
    cp.async.ca.shared.global [%r13], [%rd3], 4;
    cp.async.ca.shared.global [%r13+4], [%rd3+4], 4;
    cp.async.ca.shared.global [%r13+8], [%rd3+8], 8;
    cp.async.commit_group;
    cp.async.wait_group 10;
    add.u32 %r10, %r10, 2;
    setp.lt.u32 %p1, %r10, {turns};
    @%p1 bra LOOP;
    cp.async.wait_all;
    """
    text = body.format(turns=16)
    y = copy(text).reshape(32, 4)
    assert (y == X[:4]).all()
    # From the ninth turn on the buffers are used again: their last copies are still under way.
    assert "in flight" in fails_within(1, lambda seed: copy(body.format(turns=18), seed))


def test_copies_of_divergent_lanes():
    body = """
    setp.lt.u32 %p1, %thread, 9;
    @%p1 cp.async.cg.shared.global [%r3], [%rd1], 16;
    cp.async.commit_group;
    @!%p1 cp.async.cg.shared.global [%r3], [%rd1], 16;
    cp.async.commit_group;
    @%p1 cp.async.wait_group 1;
    @!%p1 cp.async.wait_group 0;
    """
    for seed in range(4):
        assert (copy(body, seed) == X[:128]).all()
