"""Shuffles, votes, reductions: the lanes of a warp."""

from __future__ import annotations

import numpy as np
import pytest

from dnnc.interpreter import InterpreterError

from .lanes import evaluate, run

LANE = np.arange(128, dtype=np.uint32)


def shuffle_reference(mode: str, b: int, c: int) -> list[tuple[int, bool]]:
    """Source lane and predicate of each lane: the pseudo code of the PTX ISA."""
    out: list[tuple[int, bool]] = []
    segment, clamp = c >> 8 & 31, c & 31
    for lane in range(32):
        low = lane & segment
        high = low | (clamp & ~segment)
        j = {
            "up": lane - (b & 31),
            "down": lane + (b & 31),
            "bfly": lane ^ (b & 31),
            "idx": low | (b & 31 & ~segment),
        }[mode]
        valid = j >= high if mode == "up" else j <= high
        out.append((j if valid else lane, valid))
    return out


@pytest.mark.parametrize("c", [31, 0, 0x1000 | 31, 0x1000, 0x1C00 | 31, 0x1C03])
@pytest.mark.parametrize("b", [0, 1, 5, 16])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shfl(mode: str, b: int, c: int):
    body = (
        f"shfl.sync.{mode}.b32 %r1|%p1, %a, {b}, {c}, -1;"
        "selp.u32 %r2, 1, 0, %p1; shl.b32 %r1, %r1, 1; or.b32 %d, %r1, %r2;"
    )
    got = evaluate(body, LANE, out=np.uint32)
    want = [
        (32 * warp + source) << 1 | valid
        for warp in range(4)
        for source, valid in shuffle_reference(mode, b, c)
    ]
    assert got.tolist() == want


def test_shfl_by_lane_reads_each_lanes_own_operand():
    body = "sub.u32 %r1, 31, %a; shfl.sync.idx.b32 %d, %a, %r1, 31, 0xffffffff;"
    got = evaluate(body, LANE, out=np.uint32).reshape(4, 32)
    assert (got == LANE.reshape(4, 32)[:, ::-1]).all()


HALF = "setp.lt.u32 %p1, %a, 16; mov.b32 %d, 0; @!%p1 bra L;"


def test_a_shuffle_among_some_lanes():
    body = f"{HALF} shfl.sync.bfly.b32 %d, %a, 1, 31, 0xffff; L:"
    got = evaluate(body, LANE[:32], out=np.uint32)
    assert got[:16].tolist() == [k ^ 1 for k in range(16)]


def test_a_lane_of_the_mask_that_is_elsewhere():
    with pytest.raises(InterpreterError, match=r"lane 16.*in the member mask, but it is elsewhere"):
        evaluate(f"{HALF} shfl.sync.bfly.b32 %d, %a, 1, 31, -1; L:", LANE[:32], out=np.uint32)
    with pytest.raises(InterpreterError, match=r"elsewhere"):
        evaluate(f"{HALF} bar.warp.sync -1; L:", LANE[:32], out=np.uint32)
    with pytest.raises(InterpreterError, match=r"elsewhere"):
        evaluate(f"{HALF} vote.sync.any.pred %p2, %p1, -1; L:", LANE[:32], out=np.uint32)


def test_a_lane_outside_its_own_mask():
    with pytest.raises(InterpreterError, match=r"lane 8.*not in its own member mask"):
        evaluate("shfl.sync.bfly.b32 %d, %a, 1, 31, 0xff;", LANE, out=np.uint32)


def test_what_a_lane_outside_the_mask_holds_is_poison():
    body = f"{HALF} shfl.sync.down.b32 %d, %a, 8, 31, 0xffff; L:"
    with pytest.raises(InterpreterError, match=r"lane 8.*poison"):
        evaluate(body, LANE[:32], out=np.uint32)


def test_votes():
    x = np.random.default_rng(0).integers(0, 5, 128).astype(np.uint32)
    x[:32], x[32:64] = 3, 0
    warps = x.reshape(4, 32) != 0
    ballot = evaluate("setp.ne.u32 %p1, %a, 0; vote.sync.ballot.b32 %d, %p1, -1;", x, out=np.uint32)
    want = (warps.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(1)
    assert ballot.reshape(4, 32).tolist() == [[int(w)] * 32 for w in want]
    functions = {
        "all": warps.all(1),
        "any": warps.any(1),
        "uni": warps.all(1) | ~warps.any(1),
    }
    for mode, expected in functions.items():
        body = (
            f"setp.ne.u32 %p1, %a, 0; vote.sync.{mode}.pred %p2, %p1, -1; selp.u32 %d, 1, 0, %p2;"
        )
        got = evaluate(body, x, out=np.uint32).reshape(4, 32)
        assert (got == expected[:, None]).all()
    body = "setp.ne.u32 %p1, %a, 0; vote.sync.all.pred %p2, !%p1, -1; selp.u32 %d, 1, 0, %p2;"
    assert evaluate(body, x, out=np.uint32).reshape(4, 32)[:, 0].tolist() == [0, 1, 0, 0]


def test_activemask_sees_divergence():
    got = evaluate(f"{HALF} activemask.b32 %d; L:", LANE[:32], out=np.uint32)
    assert set(got[:16].tolist()) == {0xFFFF}


def test_match():
    x = (LANE % 5).astype(np.uint32)
    x[32:64] = 9
    got = evaluate("match.any.sync.b32 %d, %a, -1;", x, out=np.uint32)
    for thread in range(128):
        warp = x[thread // 32 * 32 :][:32]
        assert got[thread] == sum(1 << k for k in range(32) if warp[k] == x[thread])
    body = "match.all.sync.b32 %r1|%p1, %a, -1; selp.u32 %d, %r1, 7, %p1;"
    got = evaluate(body, x, out=np.uint32).reshape(4, 32)
    assert [set(row.tolist()) for row in got] == [{7}, {0xFFFFFFFF}, {7}, {7}]


def test_redux():
    x = np.random.default_rng(1).integers(-(2**31), 2**31, 128).astype(np.int32)
    warps = x.reshape(4, 32)
    functions = {
        "add.s32": lambda w: w.sum(dtype=np.int32),
        "min.s32": np.min,
        "max.s32": np.max,
        "min.u32": lambda w: w.view(np.uint32).min().view(np.int32),
        "and.b32": np.bitwise_and.reduce,
        "or.b32": np.bitwise_or.reduce,
        "xor.b32": np.bitwise_xor.reduce,
    }
    for name, function in functions.items():
        got = evaluate(f"redux.sync.{name} %d, %a, -1;", x, out=np.int32).reshape(4, 32)
        assert got.tolist() == [[int(function(w))] * 32 for w in warps]
    y = np.array([3.0, -7.0, np.nan, 1.0] * 32, np.float32)
    got = evaluate("redux.sync.max.abs.f32 %d, %a, -1;", y, out=np.float32)
    assert set(got.tolist()) == {7.0}
    assert np.isnan(evaluate("redux.sync.min.NaN.f32 %d, %a, -1;", y, out=np.float32)).all()


def test_elect():
    body = "elect.sync %r1|%p1, 0xfffffff8; selp.u32 %d, 1, 0, %p1; mad.lo.u32 %d, %r1, 10, %d;"
    body = f"setp.lt.u32 %p2, %a, 3; mov.b32 %d, 5; @%p2 bra L; {body} L:"
    got = evaluate(body, LANE[:32], out=np.uint32)
    assert got.tolist() == [5, 5, 5, 31, *[30] * 28]


def test_warp_sum_by_butterflies():
    body = """
    mad.wide.u32 %rd1, %thread, 4, %ptr0;
    ld.global.b32 %f1, [%rd1];
    mov.b32 %r1, 16;
    LOOP:
    shfl.sync.bfly.b32 %f2, %f1, %r1, 31, -1;
    add.f32 %f1, %f1, %f2;
    shr.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra LOOP;
    mad.wide.u32 %rd2, %thread, 4, %ptr1;
    st.global.b32 [%rd2], %f1;
    """
    x = np.arange(64, dtype=np.float32)
    (y,) = run(body, x, (64, np.float32), block=64, seed=3)
    assert y.tolist() == [496.0] * 32 + [1520.0] * 32
