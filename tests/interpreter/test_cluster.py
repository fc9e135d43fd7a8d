"""Clusters: each other's shared memory, barriers, multicast; and the register pool."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dnnc.interpreter import InterpreterError

from .hopper import INIT, SEEDS, Map, run, wait
from .lanes import fails_within

MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
PEER = """
mov.u32 %r10, %cluster_ctarank;
xor.b32 %r11, %r10, 1;
mov.b32 %r1, s;
mad.lo.u32 %r2, %thread, 4, %r1;
mapa.shared::cluster.u32 %r3, %r2, %r11;
"""
OUT = "mad.lo.u32 %r20, %cta, {block}, %thread; mad.wide.u32 %rd9, %r20, 4, %ptr0;"
SAVE = OUT.format(block=32) + "st.global.b32 [%rd9], %r4;"


def pairs(body: str, seed: int, grid: int = 4) -> list[int]:
    (y,) = run(PEER + body + SAVE, (32 * grid, np.uint32), grid=grid, cluster=2, seed=seed)
    return y.tolist()


VALUE = "mad.lo.u32 %r5, %cta, 100, %thread;"
SWAPPED = [100 * (cta ^ 1) + thread for cta in range(4) for thread in range(32)]


@pytest.mark.parametrize("seed", SEEDS)
def test_reading_and_writing_the_peer(seed: int):
    read = VALUE + "st.shared.b32 [%r2], %r5;" + MEET + "ld.shared::cluster.b32 %r4, [%r3];" + MEET
    assert pairs(read, seed) == SWAPPED
    write = VALUE + MEET + "st.shared::cluster.b32 [%r3], %r5;" + MEET + "ld.shared.b32 %r4, [%r2];"
    assert pairs(write, seed) == SWAPPED


def test_generic_addresses_of_the_peer():
    body = VALUE + """
    st.shared.b32 [%r2], %r5;
    cvt.u64.u32 %rd1, %r2;
    cvta.shared.u64 %rd1, %rd1;
    mapa.u64 %rd2, %rd1, %r11;
    """ + MEET + "ld.b32 %r4, [%rd2];" + MEET  # fmt: skip
    assert pairs(body, 0) == SWAPPED


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cluster_must_meet(seed: int):
    write = VALUE + "st.shared.b32 [%r2], %r5;"
    read = "ld.shared::cluster.b32 %r4, [%r3];"
    with pytest.raises(InterpreterError, match=r"race|poison|has exited"):
        pairs(write + read + MEET, seed)
    with pytest.raises(InterpreterError, match=r"race|poison|has exited"):
        pairs(write + "bar.sync 0;" + read + MEET, seed)
    relaxed = MEET.replace("arrive", "arrive.relaxed")
    with pytest.raises(InterpreterError, match=r"race"):
        pairs(write + relaxed + read + MEET, seed)


def test_the_peer_must_not_have_exited():
    write = VALUE + "st.shared.b32 [%r2], %r5;" + MEET
    body = PEER + write + """
    setp.eq.u32 %p1, %r10, 0;
    @%p1 bra END;
    ld.shared::cluster.b32 %r4, [%r3];
    END:
    """  # fmt: skip
    found = fails_within(20, lambda seed: run(body, grid=2, cluster=2, seed=seed))
    assert "a CTA that has exited" in found


def test_special_registers():
    body = """
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r2, %clusterid.x;
    mov.u32 %r3, %nclusterid.x;
    mov.u32 %r5, %cluster_nctaid.x;
    mov.u32 %r6, %cluster_ctaid.x;
    mad.lo.u32 %r4, %r2, 10, %r1;
    mad.lo.u32 %r4, %r3, 100, %r4;
    mad.lo.u32 %r4, %r5, 1000, %r4;
    mad.lo.u32 %r4, %r6, 10000, %r4;
    """
    (y,) = run(body + SAVE, (192, np.uint32), grid=6, cluster=3)
    assert y[::32].tolist() == [3200 + 10 * (c // 3) + (c % 3) * 10001 for c in range(6)]


def test_misuse():
    with pytest.raises(InterpreterError, match=r"the cluster has 2 CTAs"):
        run("mov.b32 %r1, s; mapa.shared::cluster.u32 %r3, %r1, 2;", grid=2, cluster=2)
    with pytest.raises(InterpreterError, match=r"arrives twice"):
        run("barrier.cluster.arrive; barrier.cluster.arrive;", grid=2, cluster=2)
    with pytest.raises(InterpreterError, match=r"has not arrived"):
        run("barrier.cluster.wait;", grid=2, cluster=2)
    with pytest.raises(InterpreterError, match=r"outside the .* bytes of shared memory"):
        run(PEER + "ld.shared.b32 %r4, [%r3];", grid=2, cluster=2)


def test_a_deadlock_of_the_cluster():
    body = INIT + "setp.eq.u32 %p1, %cta, 0; @%p1 bra A; bra B; A: " + wait() + "B:" + MEET
    with pytest.raises(InterpreterError, match=r"deadlock: .*(mbarrier|cluster's barrier)"):
        run(body, grid=2, cluster=2)


# mbarriers and copies between CTAs --------------------------------------------------------

REMOTE = (
    INIT.replace("[bar], 1;", "[bar], 2;")
    + MEET
    + PEER
    + VALUE
    + "st.shared::cluster.b32 [%r3], %r5;"
    + """
    mov.b32 %r12, bar;
    setp.ge.u32 %p3, %thread, 2;
    @%p3 bra ARRIVED;
    mapa.shared::cluster.u32 %r13, %r12, %thread;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];
    ARRIVED:
    """
)


@pytest.mark.parametrize("seed", SEEDS)
def test_remote_arrivals_order(seed: int):
    read = "ld.shared.b32 %r4, [%r2];" + MEET + SAVE
    (y,) = run(REMOTE + wait() + read, (128, np.uint32), grid=4, cluster=2, seed=seed)
    assert y.tolist() == SWAPPED
    with pytest.raises(InterpreterError, match=r"race|poison"):
        run(REMOTE + read, (128, np.uint32), grid=4, cluster=2, seed=seed)


# Each thread sends the peer a number; thread 0 announces the bytes of all.
SENT = (
    INIT
    + MEET
    + PEER
    + VALUE
    + """
    mov.b32 %r12, bar;
    mapa.shared::cluster.u32 %r13, %r12, %r11;
    setp.ne.u32 %p3, %thread, 0;
    @%p3 bra ANNOUNCED;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], {bytes};
    ANNOUNCED:
    st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r3], %r5, [{barrier}];
    """
)


@pytest.mark.parametrize("seed", SEEDS)
def test_asynchronous_stores_count_where_they_go(seed: int):
    read = "ld.shared.b32 %r4, [%r2];" + MEET + SAVE
    sent = SENT.format(bytes=128, barrier="%r13")
    (y,) = run(sent + wait() + read, (128, np.uint32), grid=4, cluster=2, seed=seed)
    assert y.tolist() == SWAPPED


def test_asynchronous_stores_have_to_be_waited_for():
    sent = SENT.format(bytes=128, barrier="%r13")
    cases = {
        sent + "ld.shared.b32 %r4, [%r2];" + MEET + SAVE: "race|poison",
        sent + "st.shared.b32 [%r2], %r5;" + wait() + MEET: "race|in flight",
        sent: "in flight|has exited",
        SENT.format(bytes=256, barrier="%r13") + wait(): "deadlock",
        SENT.format(bytes=128, barrier="%r12"): "another CTA",
    }
    out = (128, np.uint32)
    for body, said in cases.items():
        found = fails_within(20, lambda s, b=body: run(b, out, grid=4, cluster=2, seed=s))
        assert re.search(said, found), (said, found)


@pytest.mark.parametrize("seed", SEEDS)
def test_asynchronous_stores_tell_of_what_their_thread_did(seed: int):
    """Who has waited may write what the peer read before it sent something."""
    before = VALUE + "st.shared.b32 [%r2], %r5;" + MEET + "ld.shared::cluster.b32 %r4, [%r3];"
    start, send = SENT.format(bytes=128, barrier="%r13").split("mov.b32 %r12, bar;")
    body = start + before + "add.u32 %r3, %r3, 128; mov.b32 %r12, bar;" + send
    write = "st.shared.b32 [%r2], 0;" + MEET + SAVE
    (y,) = run(body + wait() + write, (128, np.uint32), grid=4, cluster=2, seed=seed)
    assert y.tolist() == SWAPPED
    with pytest.raises(InterpreterError, match=r"race"):
        run(body + write, (128, np.uint32), grid=4, cluster=2, seed=seed)


X = np.arange(64, dtype=np.uint32).reshape(4, 16)
TILE = Map(0, "i32", (16, 4), (64,), (16, 2))
# Each CTA loads half of the box for both.
MULTICAST = """
mov.u32 %r10, %cluster_ctarank;
mov.b32 %r1, s;
@%p0 bra ISSUED;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
mad.lo.u32 %r2, %r10, 128, %r1;
shl.b32 %r3, %r10, 1;
mov.b16 %h1, {mask};
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster\
 [%r2], [%map0, {{0, %r3}}], [bar], %h1;
ISSUED:
"""
READ = """
mad.lo.u32 %r2, %thread, 8, %r1;
ld.shared.v2.b32 {%r4, %r5}, [%r2];
mad.lo.u32 %r20, %cta, 32, %thread;
mad.wide.u32 %rd9, %r20, 8, %ptr1;
st.global.v2.b32 [%rd9], {%r4, %r5};
"""


def multicast(body: str, seed: int) -> np.ndarray:
    (y,) = run(body, X, (128, np.uint32), maps=(TILE,), grid=2, cluster=2, seed=seed)
    return y.reshape(2, 64)


@pytest.mark.parametrize("seed", SEEDS)
def test_multicast(seed: int):
    body = INIT + MEET + MULTICAST.format(mask=3) + wait() + READ + MEET
    assert (multicast(body, seed) == X.ravel()).all()
    with pytest.raises(InterpreterError, match=r"deadlock: .* 256 bytes pending"):
        multicast(INIT + MEET + MULTICAST.format(mask=1) + wait() + READ + MEET, seed)
    with pytest.raises(InterpreterError, match=r"the cluster has 2"):
        multicast(INIT + MEET + MULTICAST.format(mask=7) + wait() + READ + MEET, seed)
    with pytest.raises(InterpreterError, match=r"no initialised mbarrier|initialisation is not"):
        multicast(INIT + MULTICAST.format(mask=3) + wait() + READ + MEET, seed)


def test_a_relaxed_arrival_tells_of_fenced_initialisations():
    relaxed = MEET.replace("arrive", "arrive.relaxed")
    body = INIT + relaxed + MULTICAST.format(mask=3) + wait() + READ + MEET
    assert (multicast(body, 0) == X.ravel()).all()


# Registers --------------------------------------------------------------------------------


def change(producer: str, consumer: str, block: int = 384) -> None:
    """Warpgroup 0 executes one setmaxnreg, the others another one."""
    body = f"""
    setp.ge.u32 %p1, %thread, 128;
    @%p1 bra CONSUMER;
    {producer}
    bra END;
    CONSUMER: {consumer}
    END:
    """
    run(body, block=block)


def test_registers_are_shared_out():
    less, more = "setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg.inc.sync.aligned.u32 232;"
    change(less, more)
    with pytest.raises(InterpreterError, match=r"ask for 80896 registers; they started with"):
        change("", more)
    with pytest.raises(InterpreterError, match=r"has 168 registers already"):
        change(less.replace("dec", "inc"), more)
    with pytest.raises(InterpreterError, match=r"multiples of 8 from 24 to 256"):
        change(less.replace("40", "20"), more)
