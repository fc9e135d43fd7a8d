"""wgmma: products by hand-made shared memory images, and what must be fenced and waited for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dnnc.interpreter import InterpreterError

from .hopper import SEEDS, Array, run

BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
DTYPES: dict[str, Any] = {
    **{"f16": np.float16, "bf16": BF16, "tf32": np.float32, "s8": np.int8, "u8": np.uint8},
    **{"e4m3": E4M3, "e5m2": E5M2},
}
SPANS = {"none": 16, "128B": 128, "64B": 64, "32B": 32}
CODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
A_AT, B_AT, NBYTES = 0, 16384, 32768

# The image of shared memory comes from %ptr0, 16 bytes a thread and turn.
SETUP = """
shl.b32 %r1, %thread, 4;
mov.b32 %r2, s;
FILL:
add.u32 %r3, %r2, %r1;
cvt.u64.u32 %rd1, %r1;
add.u64 %rd1, %rd1, %ptr0;
ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd1];
st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};
add.u32 %r1, %r1, 2048;
setp.lt.u32 %p1, %r1, 32768;
@%p1 bra FILL;
fence.proxy.async.shared::cta;
bar.sync 0;
"""
COMMIT = "wgmma.commit_group.sync.aligned;"
FENCE = "wgmma.fence.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned 0;"


def registers(n: int) -> str:
    return "{" + ", ".join(f"%r{100 + at}" for at in range(n)) + "}"


def save(count: int) -> str:
    """Accumulators [count, 128 threads] to %ptr1."""
    start = "mad.wide.u32 %rd2, %thread, 4, %ptr1;"
    lines = (f"st.global.b32 [%rd2+{512 * at}], %r{100 + at};" for at in range(count))
    return start + "".join(lines)


def descriptor(at: int, lbo: int, sbo: int, swizzle: str) -> str:
    """A descriptor for byte `at` of s, which lies at address 1024."""
    bits = ((1024 + at) >> 4) | (lbo >> 4) << 16 | (sbo >> 4) << 32 | CODES[swizzle] << 62
    return str(bits)


def image(size: int = NBYTES) -> Array:
    return np.full(size, 0xEE, np.uint8)


def put_k_major(out: Array, at: int, x: Array, swizzle: str) -> tuple[int, int]:
    """x [rows, K] from byte `at` on; returns (lbo, sbo)."""
    span = SPANS[swizzle]
    rows, raw = x.shape[0], np.ascontiguousarray(x).view(np.uint8)
    chunks = raw.shape[1] // 16
    lbo, sbo = (rows * 16, 128) if swizzle == "none" else (16, 8 * span)
    for row in range(rows):
        for chunk in range(chunks):
            if swizzle == "none":
                to = at + chunk * lbo + row // 8 * sbo + row % 8 * 16
            else:
                address = 1024 + at + row * span + chunk * 16
                to = (address ^ ((address >> 7) % (span // 16)) << 4) - 1024
            out[to : to + 16] = raw[row, 16 * chunk : 16 * chunk + 16]
    return lbo, sbo


def put_mn_major(out: Array, at: int, x: Array, swizzle: str) -> tuple[int, int]:
    """x [rows, K] of 16 bits, with neighbouring rows next to each other; returns (lbo, sbo)."""
    span, (rows, k) = SPANS[swizzle], x.shape
    wide = span // 2
    blocks = -(-rows // wide)
    near, far = 8 * span, (k // 8) * 8 * span
    raw = np.ascontiguousarray(x.T).view(np.uint8)
    for step in range(k):
        for chunk in range(rows // 8):
            block, inside = divmod(chunk, span // 16)
            address = 1024 + at + block * far + step // 8 * near + step % 8 * span + inside * 16
            to = (address ^ ((address >> 7) % (span // 16)) << 4) - 1024
            out[to : to + 16] = raw[step, 16 * chunk : 16 * chunk + 16]
    assert blocks * far <= 16384
    return (near, far) if swizzle == "none" else (far, near)


def matrix(found: Array, n: int) -> Array:
    """Accumulators [n / 2, 128] as [64, n]: 4j + 2h + e is row g + 8h, column 8j + 2t + e."""
    out = np.zeros((64, n), found.dtype)
    for at in range(n // 2):
        for thread in range(128):
            warp, lane = divmod(thread, 32)
            row = 16 * warp + lane // 4 + 8 * (at // 2 % 2)
            out[row, 8 * (at // 4) + 2 * (lane % 4) + at % 2] = found[at, thread]
    return out


def operands(kind_a: str, kind_b: str, n: int, k: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    low = 0 if "u8" in (kind_a, kind_b) else -4
    a, b = (rng.integers(low, 5, (rows, k)) for rows in (64, n))
    return a.astype(DTYPES[kind_a]), b.astype(DTYPES[kind_b])


def product(
    body: str, out: Array, n: int, seed: int = 0, dtype: Any = np.float32, block: int = 128
) -> Array:
    (found,) = run(
        body + save(n // 2), out, (n // 2 * 128, dtype), block=block, seed=seed, smem=NBYTES
    )
    return matrix(found.reshape(n // 2, 128), n)


def mma(
    n: int, k: int, types: str, a: str, b: str, scale: int = 0, rest: str = ", 1, 1, 0, 0"
) -> str:
    """One instruction as LLVM writes it, the predicate set from a constant."""
    operands = f"{registers(n // 2)}, {a}, {b}, p{rest}"
    text = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{types} {operands};"
    return f"{{ .reg .pred p; setp.ne.b32 p, {scale}, 0; {text} }}"


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize(
    ("kind_a", "kind_b", "k"),
    [
        *(("f16", "f16", 16), ("bf16", "bf16", 16), ("tf32", "tf32", 8)),
        *(("e4m3", "e4m3", 32), ("e4m3", "e5m2", 32), ("s8", "s8", 32), ("u8", "s8", 32)),
    ],
)
def test_k_major(swizzle: str, kind_a: str, kind_b: str, k: int):
    n, out = 24, image()
    a, b = operands(kind_a, kind_b, n, k)
    of_a = descriptor(A_AT, *put_k_major(out, A_AT, a, swizzle), swizzle)
    of_b = descriptor(B_AT, *put_k_major(out, B_AT, b, swizzle), swizzle)
    integer = kind_a in ("s8", "u8")
    types = f"{'s32' if integer else 'f32'}.{kind_a}.{kind_b}"
    rest = "" if integer else ", 1, 1, 0, 0" if k == 16 else ", 1, 1"
    body = SETUP + FENCE + mma(n, k, types, of_a, of_b, rest=rest) + COMMIT + WAIT
    found = product(body, out, n, dtype=np.int32 if integer else np.float32)
    assert (found == a.astype(np.float64) @ b.astype(np.float64).T).all()


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("transposed", [(0, 1), (1, 0), (1, 1)])
def test_mn_major(swizzle: str, transposed: tuple[int, int]):
    n, out = 128, image()
    a, b = operands("bf16", "bf16", n, 16)
    put = (put_k_major, put_mn_major)
    of_a = descriptor(A_AT, *put[transposed[0]](out, A_AT, a, swizzle), swizzle)
    of_b = descriptor(B_AT, *put[transposed[1]](out, B_AT, b, swizzle), swizzle)
    rest = f", 1, 1, {transposed[0]}, {transposed[1]}"
    body = SETUP + FENCE + mma(n, 16, "f32.bf16.bf16", of_a, of_b, rest=rest) + COMMIT + WAIT
    assert (product(body, out, n) == a.astype(np.float64) @ b.astype(np.float64).T).all()


# Four steps of K in one atom of 128 bytes, advanced by 32 bytes each.
def steps(scales: tuple[int, ...] = (0, 1, 1, 1), n: int = 64) -> tuple[str, Array, Array]:
    out = image()
    a, b = operands("bf16", "bf16", n, 64)
    sizes_a, sizes_b = put_k_major(out, A_AT, a, "128B"), put_k_major(out, B_AT, b, "128B")
    text = "".join(
        mma(
            *(n, 16, "f32.bf16.bf16"),
            descriptor(A_AT + 32 * step, *sizes_a, "128B"),
            descriptor(B_AT + 32 * step, *sizes_b, "128B"),
            scale,
        )
        for step, scale in enumerate(scales)
    )
    return text, out, a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("seed", SEEDS)
def test_descriptors_advance_inside_an_atom(seed: int):
    text, out, want = steps()
    assert (product(SETUP + FENCE + text + COMMIT + WAIT, out, 64, seed) == want).all()


def test_two_warpgroups_at_once():
    """The second one stores the same numbers behind the first one's back: only it is read."""
    text, out, want = steps()
    body = SETUP.replace("2048;", "4096;") + FENCE + text + COMMIT + WAIT
    body += "setp.ge.u32 %p3, %thread, 128; @%p3 bra END;" + save(32) + "END:"
    (found,) = run(body, out, (32 * 128, np.float32), block=256, smem=NBYTES)
    assert (matrix(found.reshape(32, 128), 64) == want).all()


def test_signs_of_the_operands():
    n, out = 8, image()
    a, b = operands("f16", "f16", n, 16)
    of_a = descriptor(A_AT, *put_k_major(out, A_AT, a, "none"), "none")
    of_b = descriptor(B_AT, *put_k_major(out, B_AT, b, "none"), "none")
    text = mma(n, 16, "f32.f16.f16", of_a, of_b, rest=", -1, 1, 0, 0")
    found = product(SETUP + FENCE + text + COMMIT + WAIT, out, n)
    assert (found == -(a.astype(np.float64) @ b.astype(np.float64).T)).all()


def test_f16_accumulators_are_packed():
    n, out = 16, image()
    a, b = operands("f16", "f16", n, 16)
    of_a = descriptor(A_AT, *put_k_major(out, A_AT, a, "none"), "none")
    of_b = descriptor(B_AT, *put_k_major(out, B_AT, b, "none"), "none")
    text = (
        f"wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16 {registers(4)}, {of_a}, {of_b}, "
        "0, 1, 1, 0, 0;"
    )
    body = SETUP + FENCE + text + COMMIT + WAIT + save(4)
    (found,) = run(body, out, (4 * 128, np.uint32), block=128, smem=NBYTES)
    pairs = found.view(np.float16).reshape(4, 128, 2).transpose(0, 2, 1).reshape(8, 128)
    assert (matrix(pairs, n) == a.astype(np.float64) @ b.astype(np.float64).T).all()


FRAGMENT = """
and.b32 %r10, %thread, 31;
shr.u32 %r11, %thread, 5;
shl.b32 %r11, %r11, 4;
shr.u32 %r12, %r10, 2;
add.u32 %r11, %r11, %r12;
and.b32 %r12, %r10, 3;
shl.b32 %r11, %r11, 5;
mad.lo.u32 %r11, %r12, 4, %r11;
add.u32 %r11, %r2, %r11;
ld.shared.b32 %r20, [%r11];
ld.shared.b32 %r21, [%r11+256];
ld.shared.b32 %r22, [%r11+16];
ld.shared.b32 %r23, [%r11+272];
"""


def test_a_in_registers():
    """Register 2c + h of A: row 16 warp + g + 8h, columns 8c + 2t and the next."""
    n, out = 16, image()
    a, b = operands("bf16", "bf16", n, 16)
    out[: a.nbytes] = np.ascontiguousarray(a).view(np.uint8).ravel()
    of_b = descriptor(B_AT, *put_k_major(out, B_AT, b, "128B"), "128B")
    fragment = "{%r20, %r21, %r22, %r23}"
    text = mma(n, 16, "f32.bf16.bf16", fragment, of_b, rest=", 1, 1, 0")
    body = SETUP + FRAGMENT + FENCE + text + COMMIT
    want = a.astype(np.float64) @ b.astype(np.float64).T
    assert (product(body + WAIT, out, n) == want).all()
    with pytest.raises(InterpreterError, match=r"written since the last wgmma.fence"):
        product(SETUP + FENCE + FRAGMENT + text + COMMIT + WAIT, out, n)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_wait_and_fence_matters(seed: int):
    text, out, _ = steps()

    def attempt(body: str) -> None:
        product(body, out, 64, seed)

    cases = {
        SETUP + text + COMMIT + WAIT: "no wgmma.fence before it",
        SETUP + FENCE + text + COMMIT: "a wgmma that is in flight",
        SETUP + FENCE + text + WAIT: "a wgmma that is in flight",
        SETUP + FENCE + text + COMMIT + WAIT.replace("0;", "1;"): "a wgmma that is in flight",
        SETUP + FENCE + text + COMMIT + "mov.b32 %r100, 0;": "a wgmma that is in flight",
        SETUP.replace("fence.proxy.async.shared::cta;", "")
        + (FENCE + text + COMMIT + WAIT): "no fence.proxy.async since",
        SETUP.replace("bar.sync 0;", "") + FENCE + text + COMMIT + WAIT: "race|poison",
        SETUP + FENCE + text + COMMIT + "st.shared.b32 [%r2], 0;": "asynchronous read of it|race",
    }
    for body, message in cases.items():
        with pytest.raises(InterpreterError, match=message):
            attempt(body)


@pytest.mark.parametrize("seed", SEEDS)
def test_releasing_a_buffer_before_the_wait_is_a_race(seed: int):
    """The second warpgroup writes as soon as it is told that the first has read."""
    text, out, _ = steps()
    body = SETUP.replace("2048;", "4096;") + """
    setp.ge.u32 %p3, %thread, 128;
    @%p3 bra WRITER;
    """ + FENCE + text + COMMIT + "{one} {two}" + """
    bra END;
    WRITER: bar.sync 1, 256;
    setp.ne.u32 %p4, %thread, 128;
    @%p4 bra END;
    st.shared.b32 [%r2], 0;
    END:
    """  # fmt: skip
    arrive = "bar.arrive 1, 256;"

    def attempt(one: str, two: str) -> None:
        text = body.replace("{one}", one).replace("{two}", two)
        run(text, out, block=256, seed=seed, smem=NBYTES)

    attempt(WAIT, arrive)
    with pytest.raises(InterpreterError, match=r"race|asynchronous read of it"):
        attempt(arrive, WAIT)


def test_what_a_warpgroup_must_have_in_common():
    text, out, _ = steps((0,))
    _, found, rest = text.partition("wgmma.mma_async")
    differs = rest.replace(descriptor(A_AT, 16, 1024, "128B"), "%rd5")
    change = "mov.b64 %rd5, {}; setp.ge.u32 %p5, %thread, {}; @%p5 mov.b64 %rd5, {};"
    ours, other = descriptor(A_AT, 16, 1024, "128B"), descriptor(A_AT + 32, 16, 1024, "128B")
    for thread, message in ((32, "differs between the warps"), (5, "differ between threads")):
        body = SETUP + change.format(ours, thread, other) + FENCE + _ + found + differs
        with pytest.raises(InterpreterError, match=message):
            product(body + COMMIT + WAIT, out, 64)
    alone = "setp.ge.u32 %p5, %thread, 96; @%p5 bra END;"
    with pytest.raises(InterpreterError, match=r"deadlock: .* not all of its warpgroup"):
        run(SETUP + alone + FENCE + text + COMMIT + WAIT + "END:", out, block=128, smem=NBYTES)
    with pytest.raises(InterpreterError, match=r"needs a warpgroup"):
        run(SETUP + FENCE + text + COMMIT + WAIT, out, block=96, smem=NBYTES)


def test_accumulators_in_flight_keep_their_shape():
    text, out, _ = steps((0,))
    smaller, _, _ = steps((1,), n=32)
    with pytest.raises(InterpreterError, match=r"accumulator in flight in another shape"):
        product(SETUP + FENCE + text + smaller + COMMIT + WAIT, out, 64)


def test_poison_goes_to_its_column():
    """Row 0 of B lacks its first chunk: column 0 is poison, which is in threads 0, 4, 8, ..."""
    text, out, want = steps((0,))
    holes = SETUP.replace("FILL:", f"FILL: setp.eq.u32 %p2, %r1, {B_AT};").replace(
        "st.shared", "@!%p2 st.shared"
    )
    body = holes + FENCE + text + COMMIT + WAIT
    clean = "and.b32 %r30, %thread, 3; setp.eq.u32 %p9, %r30, 0; @%p9 mov.b32 %r100, 0;"
    clean += "@%p9 mov.b32 %r102, 0;"
    a, b = operands("bf16", "bf16", 64, 64)
    want = a[:, :16].astype(np.float64) @ b[:, :16].astype(np.float64).T
    found = product(body + clean, out, 64)
    assert (found[:, 0] == 0).all()
    assert (found[:, 1:] == want[:, 1:]).all()
    with pytest.raises(InterpreterError, match=r"poisoned value"):
        product(body, out, 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%r1}, 0, 0, 0, 1, 1, 0, 0;",
         "N = 12"),
        ("wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16 {%r1}, 0, 0, 0, 1, 1, 0, 0;", "exist"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16 {%r1}, 0, 0, 0, 1, 1, 0, 0;", "exist"),
        ("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%r1, %r2, %r3, %r4}, 0, 0, 0, 1, 1, "
         "0, 1;", "4 constants where 2"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1, %r2, %r3, %r4}, 0, 0, 0, 2, 1, "
         "0, 0;", "scales are 1 or -1"),
    ],
)  # fmt: skip
def test_forms_that_do_not_exist(text: str, message: str):
    with pytest.raises(InterpreterError, match=message):
        run(text, block=128)
