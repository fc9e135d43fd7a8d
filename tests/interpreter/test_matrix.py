"""ldmatrix, stmatrix, movmatrix: layouts by the tables of the PTX ISA, poison, bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnc.interpreter import InterpreterError

from .lanes import run

SMEM = ".shared .align 16 .b8 s[1024];"
# Eight rows a matrix, one after the other; threads write them and then load them.
FILL = """
mov.b32 %r2, s;
mad.wide.u32 %rd1, %thread, 16, %ptr0;
ld.global.v4.b32 {%r3, %r4, %r5, %r6}, [%rd1];
mad.lo.u32 %r7, %thread, 16, %r2;
st.shared.v4.b32 [%r7], {%r3, %r4, %r5, %r6};
bar.warp.sync -1;
"""
LAYOUT = ["%r10", "%r11", "%r12", "%r13"]


def data() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 65536, (4, 8, 8)).astype(np.uint16)


def held(matrix: np.ndarray[Any, Any], lane: int, transposed: bool) -> list[int]:
    row, column = lane // 4, 2 * (lane % 4)
    if transposed:
        return [int(matrix[column, row]), int(matrix[column + 1, row])]
    return [int(matrix[row, column]), int(matrix[row, column + 1])]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count: int, transposed: bool):
    names = ", ".join(LAYOUT[:count])
    stores = "".join(
        f"st.global.b32 [%rd2+{4 * k}], {name};" for k, name in enumerate(LAYOUT[:count])
    )
    trans = ".trans" if transposed else ""
    body = f"""{FILL}
    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{names}}}, [%r7];
    mad.wide.u32 %rd2, %thread, {4 * count}, %ptr1;
    {stores}
    """
    x = data()
    (y,) = run(body, x, (64 * count, np.uint16), globals_=SMEM)
    for lane in range(32):
        for k in range(count):
            got = y.reshape(32, count, 2)[lane, k].tolist()
            assert got == held(x[k], lane, transposed)


def test_rows_anywhere():
    """Every lane's address counts on its own: rows in reverse order."""
    body = f"""{FILL}
    sub.u32 %r8, 31, %thread;
    mad.lo.u32 %r7, %r8, 16, %r2;
    cvt.u64.u32 %rd3, %r7;
    cvta.shared.u64 %rd3, %rd3;
    ldmatrix.sync.aligned.m8n8.x4.b16 {{%r10, %r11, %r12, %r13}}, [%rd3];
    mad.wide.u32 %rd2, %thread, 16, %ptr1;
    st.global.v4.b32 [%rd2], {{%r10, %r11, %r12, %r13}};
    """
    x = data()
    (y,) = run(body, x, (256, np.uint16), globals_=SMEM)
    flipped = x.reshape(32, 8)[::-1].reshape(4, 8, 8)
    assert [y.reshape(32, 4, 2)[9, k].tolist() for k in range(4)] == [
        held(flipped[k], 9, False) for k in range(4)
    ]


@pytest.mark.parametrize("transposed", [False, True])
def test_stmatrix_undoes_ldmatrix(transposed: bool):
    trans = ".trans" if transposed else ""
    body = f"""{FILL}
    ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r7];
    stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r7+512], {{%r11, %r10, %r13, %r12}};
    ld.shared.v4.b32 {{%r3, %r4, %r5, %r6}}, [%r7+512];
    mad.wide.u32 %rd2, %thread, 16, %ptr1;
    st.global.v4.b32 [%rd2], {{%r3, %r4, %r5, %r6}};
    """
    x = data()
    (y,) = run(body, x, (256, np.uint16), globals_=SMEM)
    assert (y.reshape(4, 8, 8) == x[[1, 0, 3, 2]]).all()


def test_movmatrix():
    body = f"""{FILL}
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r10}}, [%r7];
    movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r10;
    mad.wide.u32 %rd2, %thread, 4, %ptr1;
    st.global.b32 [%rd2], %r11;
    """
    x = data()
    (y,) = run(body, x, (64, np.uint16), globals_=SMEM)
    assert [y[2 * lane : 2 * lane + 2].tolist() for lane in range(32)] == [
        held(x[0], lane, True) for lane in range(32)
    ]


UNUSED_LANES = f"""{FILL}
setp.ge.u32 %p1, %thread, 8;
@%p1 mov.b32 %r7, 1;
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r10}}, [%r7];
"""


def test_addresses_of_lanes_that_give_none_do_not_count():
    run(UNUSED_LANES, data(), globals_=SMEM)
    with pytest.raises(InterpreterError, match=r"lane 7.*outside"):
        run(UNUSED_LANES.replace("%thread, 8", "%thread, 7"), data(), globals_=SMEM)


def test_unwritten_rows_are_poison_where_they_go():
    """Row 3 of the matrix was never written: lanes 12 to 15 hold poison, the others do not."""
    body = (
        FILL.replace("st.shared", "setp.ne.u32 %p1, %thread, 3; @%p1 st.shared")
        + """
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r7];
    mad.wide.u32 %rd2, %thread, 4, %ptr1;
    and.b32 %r20, %thread, 28;
    setp.ne.u32 %p2, %r20, 12;
    @%p2 st.global.b32 [%rd2], %r10;
    """
    )
    run(body, data(), (32, np.uint32), globals_=SMEM, allow_poison=True)
    with pytest.raises(InterpreterError, match=r"lane 12.*poison"):
        run(body.replace("@%p2 st", "st"), data(), (32, np.uint32), globals_=SMEM)


def test_misaligned_rows():
    with pytest.raises(InterpreterError, match=r"not a multiple of the access size, 16 bytes"):
        run(FILL + "add.u32 %r7, %r7, 4;"
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r7];",
            data(), globals_=SMEM)  # fmt: skip


def test_divergent_warps_are_refused():
    body = (
        FILL
        + """
    setp.lt.u32 %p1, %thread, 16;
    @!%p1 bra L;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r7];
    L:
    """
    )
    with pytest.raises(InterpreterError, match=r"needs all 32 lanes"):
        run(body, data(), globals_=SMEM)


def test_reading_another_warps_rows_without_a_barrier_is_a_race():
    body = (
        FILL
        + """
    {barrier}
    xor.b32 %r7, %r7, 512;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r7];
    """.replace("{{", "{").replace("}}", "}")
    )
    x = np.concatenate([data(), data()])
    for seed in range(5):
        run(body.replace("{barrier}", "bar.sync 0;"), x, block=64, seed=seed, globals_=SMEM)
        with pytest.raises(InterpreterError, match=r"race"):
            run(body.replace("{barrier}", ""), x, block=64, seed=seed, globals_=SMEM)
