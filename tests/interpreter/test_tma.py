"""Bulk copies: boxes, swizzles, edges, transaction bytes, groups, and what must be waited for."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from dnnc.interpreter import InterpreterError

from .hopper import INIT, SEEDS, Array, Map, run, wait

LOAD = (
    "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%r1], [%map0, {{{at}}}], [bar];"
)
STORE = "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%map0, {{{at}}}], [%r1];"
EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [bar], {};"
# The words of shared memory from %r1 on, to %ptr1.
DUMP = """
shl.b32 %r3, %thread, 2;
setp.ge.u32 %p2, %r3, {nbytes};
@%p2 bra DUMPED;
NEXT:
add.u32 %r5, %r1, %r3;
ld.shared.b32 %r6, [%r5];
cvt.u64.u32 %rd3, %r3;
add.u64 %rd3, %rd3, %ptr1;
st.global.b32 [%rd3], %r6;
add.u32 %r3, %r3, 128;
setp.lt.u32 %p2, %r3, {nbytes};
@%p2 bra NEXT;
DUMPED:
"""
X = np.arange(1, 61, dtype=np.float32).reshape(5, 12)
TILE = Map(0, "f32", (10, 5), (48,), (8, 4))


def load(
    at: tuple[int, ...],
    nbytes: int,
    tensor: Map = TILE,
    x: Array = X,
    seed: int = 0,
    offset: int = 0,
    waiting: str = wait(),
    setup: str = INIT,
    issue: str = LOAD,
    expected: int | None = None,
) -> Array:
    """The bytes that a box leaves in shared memory."""
    copy = issue.format(rank=len(at), at=", ".join(map(str, at)))
    body = (
        f"mov.b32 %r1, s; add.u32 %r1, %r1, {offset};"
        + setup
        + "@%p0 bra ISSUED;"
        + EXPECT.format(nbytes if expected is None else expected)
        + copy
        + "ISSUED:"
        + waiting
        + DUMP.format(nbytes=nbytes)
    )
    return run(body, x, (nbytes // 4, np.float32), maps=(tensor,), seed=seed)[0]


def box(x: Array, first: tuple[int, int], shape: tuple[int, int]) -> Array:
    """A box [rows, columns] with zeros outside; first is (column, row)."""
    out = np.zeros(shape, x.dtype)
    for row in range(shape[0]):
        for column in range(shape[1]):
            at = first[1] + row, first[0] + column
            if 0 <= at[0] < x.shape[0] and 0 <= at[1] < x.shape[1]:
                out[row, column] = x[at]
    return out


@pytest.mark.parametrize("at", [(0, 0), (4, 1), (-4, -1), (8, 3), (20, 0), (0, -9)])
@pytest.mark.parametrize("seed", range(2))
def test_a_box_with_zeros_outside(at: tuple[int, int], seed: int):
    found = load(at, 128, seed=seed).reshape(4, 8)
    assert (found == box(X[:, :10], at, (4, 8))).all()


@pytest.mark.parametrize("column", [1, 2, -2, 7])
def test_a_box_begins_at_16_bytes_of_a_row(column: int):
    with pytest.raises(InterpreterError, match="no multiple of 16"):
        load((column, 0), 128)


@pytest.mark.parametrize(("swizzle", "span"), [("32B", 32), ("64B", 64), ("128B", 128)])
@pytest.mark.parametrize("offset", [0, 256])
def test_swizzles_are_of_the_address(swizzle: str, span: int, offset: int):
    """Chunk c of the byte at address a moves by XOR with the bits from 7 up."""
    words = span // 4
    x = np.arange(16 * words, dtype=np.float32).reshape(16, words)
    tensor = Map(0, "f32", (words, 16), (span,), (words, 16), swizzle)
    found = load((0, 0), 16 * span, tensor, x, offset=offset)
    linear = x.reshape(-1, 4)
    for chunk in range(linear.shape[0]):
        address = offset + 16 * chunk
        moved = address ^ ((address >> 7) % (span // 16)) << 4
        at = (moved - offset) // 4
        assert (found[at : at + 4] == linear[chunk]).all(), chunk


def test_three_dimensions():
    x = np.arange(2 * 3 * 8, dtype=np.float32).reshape(2, 3, 8)
    tensor = Map(0, "f32", (8, 3, 2), (32, 96), (4, 2, 2))
    assert (load((4, 2, 0), 64, tensor, x).reshape(2, 2, 4)[:, 0] == x[:, 2, 4:]).all()


def test_tf32_is_rounded_to_nearest():
    x = np.array([[1 + 2**-11 + 2**-20, 1 + 2**-12, 3.0, -1 - 2**-10]], np.float32)
    found = load((0, 0), 16, Map(0, "tf32", (4, 1), (16,), (4, 1)), x)
    assert found.tolist() == [1 + 2**-10, 1.0, 3.0, -1 - 2**-10]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_not_waited_for(seed: int):
    with pytest.raises(InterpreterError, match=r"poison|in flight"):
        load((0, 0), 128, waiting="", seed=seed)


TWO_WARPS = (
    INIT
    + """
    mov.b32 %r1, s;
    setp.ge.u32 %p4, %thread, 32;
    @%p4 bra SECOND;
    <FREE>
    @%p0 bra FIRST;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;
    """
    + LOAD.format(rank=2, at="0, 0")
    + "FIRST:"
    + wait()
    + """
    <MEET>
    bra END;
    SECOND:
    <READ>
    END:
    """
)
READ = "ld.shared.b32 %r2, [%r1]; st.global.b32 [%ptr1], %r2;"


def two_warps(free: str, meet: str, read: str, seed: int, setup: str = "") -> None:
    """The first warp loads and waits; the second reads."""
    body = TWO_WARPS.replace("<FREE>", free).replace("<MEET>", meet).replace("<READ>", read)
    run(setup + body, X, (1, np.float32), maps=(TILE,), block=64, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_another_warp_learns_of_the_data_by_a_barrier_after_the_wait(seed: int):
    two_warps("", "bar.arrive 1, 64;", "bar.sync 1, 64;" + READ, seed)
    two_warps("", "", wait() + READ, seed)
    with pytest.raises(InterpreterError, match=r"race|poison"):
        two_warps("", "", READ, seed)
    with pytest.raises(InterpreterError, match=r"race|poison"):
        two_warps("bar.arrive 1, 64;", "", "bar.sync 1, 64;" + READ, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_loading_over_what_others_still_read_is_a_race(seed: int):
    setup = """
    setp.ne.u32 %p5, %thread, 0;
    @%p5 bra WRITTEN;
    st.shared.b32 [s], 1;
    fence.proxy.async.shared::cta;
    WRITTEN:
    """
    arrive, sync, fence = "bar.arrive 1, 64;", "bar.sync 1, 64;", "fence.proxy.async.shared::cta;"
    two_warps(sync, "", READ + fence + arrive, seed, setup)
    two_warps(sync + fence, "", READ + arrive, seed, setup)
    for early in (
        READ + arrive,
        fence + READ + arrive,
        READ + "fence.proxy.async.global;" + arrive,
    ):
        with pytest.raises(
            InterpreterError, match=r"warp 1 read it with no fence.proxy.async since"
        ):
            two_warps(sync, "", early, seed, setup)
    with pytest.raises(InterpreterError, match=r"race|poison"):
        two_warps("", "", READ, seed, setup)
    with pytest.raises(InterpreterError, match=r"no fence.proxy.async since"):
        two_warps(
            sync, "", READ + arrive, seed, setup.replace("fence.proxy.async.shared::cta;", "")
        )
    with pytest.raises(InterpreterError, match=r"race|poison"):
        two_warps(sync, "", arrive + READ + fence, seed, setup)


def test_wrong_transaction_bytes():
    with pytest.raises(InterpreterError, match=r"deadlock: .* 64 bytes pending"):
        load((0, 0), 128, expected=192)
    with pytest.raises(InterpreterError, match=r"poison|deadlock|in flight"):
        load((0, 0), 128, expected=64)


def test_the_mbarrier_must_be_known_to_the_copy():
    with pytest.raises(InterpreterError, match=r"no fence.mbarrier_init"):
        load((0, 0), 128, setup=INIT.replace("fence.mbarrier_init.release.cluster;", ""))
    load(
        (0, 0), 128, setup=INIT.replace("fence.mbarrier_init.release.cluster", "fence.proxy.async")
    )


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            Map(0, "f32", (10, 9), (48,), (8, 4)),
            "stands for a copy of .* not inside 'allocation 0'",
        ),
        (Map(0, "f32", (10,), (), (8,)), "tiled of rank 1"),
    ],
)
def test_maps_that_do_not_fit(tensor: Map, message: str):
    with pytest.raises(InterpreterError, match=message):
        load((0, 4), 128, tensor)
    with pytest.raises(InterpreterError, match=r"no multiple of 128"):
        load((0, 0), 128, offset=64)
    with pytest.raises(InterpreterError, match=r"outside the .* bytes of shared memory"):
        load((0, 0), 128, offset=16384)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strides": (40,)}, "a stride of 40 bytes"),
        ({"strides": (1 << 40,)}, "below 2"),
        ({"dims": (0, 5)}, "dim 0 = 0"),
        ({"box": (300, 1)}, "box"),
        ({"box": (3, 4)}, "an inner box of 12 bytes"),
        ({"box": (16, 1), "swizzle": "32B"}, "at most the swizzle's 32"),
        ({"more": {"element_strides": (1, 9)}}, "element strides"),
        ({"swizzle": "96B"}, "swizzle 96B"),
    ],
)
def test_maps_that_the_driver_refuses(change: dict[str, object], message: str):
    fields: dict[str, object] = {"dims": (10, 5), "strides": (48,), "box": (8, 4), **change}
    with pytest.raises(InterpreterError, match=message):
        Map(0, "f32", **fields).encoded(1 << 20)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InterpreterError, match=r"address 0x8"):
        TILE.encoded(8)


def test_im2col_walks_the_bounding_box():
    """A 3x3 filter with padding 1: pixels from (-1, -1) on, w fastest, and taps by offsets."""
    n, h, w, c = 2, 3, 4, 4
    x = np.arange(1, 1 + n * h * w * c, dtype=np.float32).reshape(n, h, w, c)
    more = {"lower": (-1, -1), "upper": (-1, -1), "channels_per_pixel": 4, "pixels_per_column": 8}
    tensor = Map(0, "f32", (c, w, h, n), (16, 64, 192), (), mode="im2col", more=more)
    issue = (
        "mov.b16 %h1, 2; mov.b16 %h2, 1;"
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%r1], [%map0, {{0, 1, -1, 0}}], [bar], {{%h1, %h2}};"
    )
    found = load((0, 1, -1, 0), 8 * 16, tensor, x, issue=issue).reshape(8, 4)
    # Output pixels (p, q) from (0, 2) on; tap (1, 2) reads row p, column q + 1.
    pixels = [(0, p, q) for p in range(h) for q in range(w)][2:10]
    for k, (image, p, q) in enumerate(pixels):
        want = x[image, p, q + 1] if q + 1 < w else np.zeros(c)
        assert (found[k] == want).all(), k


def im2col_row(rank: int, offsets: tuple[int, ...], extent: int, upper: int = 0) -> Array:
    """One pixel of 4 channels from the place of `offsets` on, the filter's first tap on pixel 0.

    The first spatial axis has an extent; the others have one pixel.
    """
    x = np.arange(1, 1 + 4 * extent, dtype=np.float32).reshape(extent, 4)
    dims = (4, extent, *(1,) * (rank - 2))
    corners = {"lower": (0,) * (rank - 2), "upper": (upper, *(0,) * (rank - 3))}
    more = {**corners, "channels_per_pixel": 4, "pixels_per_column": 1}
    strides = (16, *(16 * extent,) * (rank - 2))
    tensor = Map(0, "f32", dims, strides, (), mode="im2col", more=more)
    moves = "".join(f"mov.b16 %h{axis}, {offset};" for axis, offset in enumerate(offsets))
    named = ", ".join(f"%h{axis}" for axis in range(len(offsets)))
    issue = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        f"[%r1], [%map0, {{{{{', '.join('0' * rank)}}}}}], [bar], {{{{{named}}}}};"
    )
    return load((0,) * rank, 16, tensor, x, issue=moves + issue)


@pytest.mark.parametrize(
    ("rank", "offset"), [(3, 40_000), (4, 200), (4, 255), (5, 20), (5, 31)], ids=str
)
def test_im2col_offsets_are_unsigned(rank: int, offset: int):
    """Where the highest of their bits is set, too: it is no sign."""
    found = im2col_row(rank, (offset, *(0,) * (rank - 3)), offset + 1)
    assert found.tolist() == [4.0 * offset + k for k in range(1, 5)]


@pytest.mark.parametrize(
    ("rank", "offsets", "message"),
    [
        (4, (256, 0), "im2col offset 0 is 256; 8 bits hold 0 to 255"),
        (4, (0, -1), "im2col offset 1 is 65535; 8 bits hold 0 to 255"),
        (5, (0, 0, 32), "im2col offset 2 is 32; 5 bits hold 0 to 31"),
        (4, (0,), "1 im2col offsets of rank 4"),
        (3, (0, 0), "2 im2col offsets of rank 3"),
    ],
)
def test_im2col_offsets_that_no_copy_has(rank: int, offsets: tuple[int, ...], message: str):
    with pytest.raises(InterpreterError, match=message):
        im2col_row(rank, offsets, 4)


@pytest.mark.parametrize(("extent", "upper"), [(1, 0), (4, -3)])
def test_an_im2col_bounding_box_holds_a_pixel(extent: int, upper: int):
    im2col_row(3, (0,), extent, upper)
    with pytest.raises(InterpreterError, match="a bounding box from 0 to -1; one that holds a"):
        im2col_row(3, (0,), extent, upper - 1)


# Stores -----------------------------------------------------------------------------------

FILL = """
mov.b32 %r1, s;
mad.lo.u32 %r2, %thread, 4, %r1;
cvt.rn.f32.u32 %r7, %thread;
st.shared.b32 [%r2], %r7;
{fence}
bar.sync 0;
setp.ne.u32 %p0, %thread, 0;
@%p0 bra STORED;
{store}
cp.async.bulk.commit_group;
{wait}
STORED:
{after}
"""
ALL = "cp.async.bulk.wait_group 0;"
OUT = Map(0, "f32", (8, 5), (48,), (8, 4))


def store(
    at: str = "0, 0",
    seed: int = 0,
    fence: str = "fence.proxy.async.shared::cta;",
    issue: str = STORE,
    waiting: str = ALL,
    after: str = "",
    y: Array | None = None,
) -> Array:
    body = FILL.format(fence=fence, store=issue.format(rank=2, at=at), wait=waiting, after=after)
    copy = "mad.wide.u32 %rd1, %thread, 4, %ptr0; mad.wide.u32 %rd2, %thread, 4, %ptr1;"
    copy += "".join(
        f"ld.global.b32 %r8, [%rd1+{128 * k}]; st.global.b32 [%rd2+{128 * k}], %r8;"
        for k in range(2)
    )
    start = np.zeros((5, 12), np.float32) if y is None else y
    body += "bar.sync 0; @%p0 bra Z; " + ALL + "Z: bar.sync 0;" if waiting else ""
    found = run(
        body + copy, np.pad(start.ravel(), (0, 4)), (64, np.float32), maps=(OUT,), seed=seed
    )
    return found[0][:60].reshape(5, 12)


@pytest.mark.parametrize("at", [(0, 0), (-4, -1), (4, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_a_store_is_clipped(at: tuple[int, int], seed: int):
    found = store(f"{at[0]}, {at[1]}", seed)
    want = np.zeros((5, 12), np.float32)
    tile = np.arange(32, dtype=np.float32).reshape(4, 8)
    for row in range(4):
        for column in range(8):
            x, y = at[0] + column, at[1] + row
            if 0 <= x < 8 and 0 <= y < 5:
                want[y, x] = tile[row, column]
    assert (found == want).all()


def im2col_store(monkeypatch: pytest.MonkeyPatch, upper: int) -> Array:
    """Pixels 0 and 2 of rows of three, from pixel 2 of the first row on."""
    more = {"lower": (0,), "upper": (upper,), "channels_per_pixel": 4, "pixels_per_column": 8}
    tensor = Map(0, "f32", (4, 2, 4), (32, 48), (), mode="im2col", more=more)
    monkeypatch.setitem(globals(), "OUT", tensor)
    issue = STORE.replace(".tile", ".im2col_no_offs").replace("{rank}", "3")
    return store("0, 1, 0", issue=issue).reshape(5, 3, 4)


def test_an_im2col_store_walks_the_bounding_box(monkeypatch: pytest.MonkeyPatch):
    found = im2col_store(monkeypatch, 0)
    tile = np.arange(32, dtype=np.float32).reshape(8, 4)
    want = np.zeros((5, 3, 4), np.float32)
    for number, (row, place) in enumerate([(k // 2, k % 2) for k in range(1, 8)]):
        want[row, 2 * place] = tile[number]  # the last pixel lies behind the last row
    assert (found == want).all()
    with pytest.raises(InterpreterError, match="tensor map is im2col of rank 3"):
        store("0, 1, 0", issue=STORE.replace("{rank}", "3"))


def test_an_im2col_store_by_a_box_that_leaves_the_image_is_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    """The hardware ends in an illegal instruction."""
    with pytest.raises(InterpreterError, match="places outside the image"):
        im2col_store(monkeypatch, 1)


def test_a_store_whose_rows_end_inside_16_bytes_is_refused(monkeypatch: pytest.MonkeyPatch):
    """The hardware would write beyond the row."""
    monkeypatch.setitem(globals(), "OUT", Map(0, "f32", (10, 5), (48,), (8, 4)))
    with pytest.raises(InterpreterError, match="rows of 40 bytes, not whole 16 bytes"):
        store()


def test_a_store_may_add():
    issue = STORE.replace("cp.async", "cp.reduce.async").replace(".tile", ".add.tile")
    found = store(issue=issue, y=np.full((5, 12), 100, np.float32))
    assert (found[:4, :8] == 100 + np.arange(32).reshape(4, 8)).all()
    assert (found[4] == 100).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_stores_need_fence_and_wait(seed: int):
    with pytest.raises(InterpreterError, match=r"no fence.proxy.async since"):
        store(fence="", seed=seed)
    with pytest.raises(InterpreterError, match=r"no fence.proxy.async since"):
        store(fence="fence.proxy.async.global;", seed=seed)
    with pytest.raises(InterpreterError, match=r"exits while a bulk store may still read"):
        store(waiting="", seed=seed)
    with pytest.raises(InterpreterError, match=r"while an asynchronous read of it is in flight"):
        store(
            waiting="cp.async.bulk.wait_group.read 1;", after="st.shared.b32 [%r2], 0;", seed=seed
        )
    store(waiting="cp.async.bulk.wait_group.read 0;", after="bar.sync 0; st.shared.b32 [%r2], 0;",
          seed=seed)  # fmt: skip


def test_poison_is_not_stored():
    with pytest.raises(InterpreterError, match=r"holds poison"):
        store(issue="add.u32 %r1, %r1, 128;" + STORE)


# Plain runs of bytes ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_plain_bytes_go_both_ways(seed: int):
    body = INIT + """
    mov.b32 %r1, s;
    @%p0 bra END;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%ptr0], 64, [bar];
    """ + wait() + """
    cp.async.bulk.global.shared::cta.bulk_group [%ptr1], [%r1], 48;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    END:
    """  # fmt: skip
    (y,) = run(body, X, (12, np.float32), seed=seed)
    assert (y == X.ravel()[:12]).all()
    with pytest.raises(InterpreterError, match=r"no multiple of 16"):
        run(body.replace("64, [bar]", "60, [bar]"), X, (12, np.float32))


@pytest.mark.parametrize("seed", range(3))
def test_plain_bytes_may_be_added(seed: int):
    body = INIT + """
    mov.b32 %r1, s;
    @%p0 bra END;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%ptr0], 64, [bar];
    """ + wait() + """
    cp.async.bulk.global.shared::cta.bulk_group [%ptr1], [%r1], 64;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%ptr1], [%r1], 32;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    END:
    """  # fmt: skip
    (y,) = run(body, X, (16, np.float32), seed=seed)
    want = X.ravel()[:16].copy()
    want[:8] *= 2
    assert (y == want).all()


def test_bf16_boxes():
    x = np.arange(64, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(8, 8)
    found = load((0, 2), 64, Map(0, "bf16", (8, 8), (16,), (8, 4)), x.view(np.uint16))
    assert (found.view(np.uint16).reshape(4, 8) == x.view(np.uint16)[2:6]).all()
