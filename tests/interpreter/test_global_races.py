"""Races in global memory: what other CTAs, bulk stores and launches before this one wrote."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dnnc.interpreter import InterpreterError, Memory, launch, parse
from dnnc.interpreter.global_races import Watch

from .hopper import INIT, SEEDS, Array, kernel, run, wait

DATA = np.arange(64, dtype=np.uint32)
FLAG = np.zeros(1, np.uint32)
OUT = (64, np.uint32)

# CTA 0 writes a word a thread to %ptr0, and tells by a word at %ptr1; CTA 1 copies them to %ptr2.
PLACES = """
mul.wide.u32 %rd1, %thread, 4;
add.u64 %rd2, %ptr0, %rd1;
add.u64 %rd3, %ptr2, %rd1;
setp.ne.u32 %p1, %cta, 0;
setp.ne.u32 %p2, %thread, 0;
@%p1 bra READER;
"""
WRITE = "add.u32 %r1, %thread, 7; st.global.u32 [%rd2], %r1;"
MEET = "bar.sync 0;"
TELL = "@%p2 bra TOLD; red.release.gpu.global.add.u32 [%ptr1], 1; TOLD:"
HEAR = """
@%p2 bra HEARD;
AGAIN: ld.acquire.gpu.global.u32 %r2, [%ptr1];
setp.eq.u32 %p3, %r2, 0;
@%p3 bra AGAIN;
HEARD:
"""
READ = "ld.global.u32 %r3, [%rd2]; st.global.u32 [%rd3], %r3;"
BY_FENCE = {
    TELL: TELL.replace("red.release", "fence.acq_rel.gpu; red.relaxed"),
    HEAR: HEAR.replace("ld.acquire", "ld.relaxed").replace("HEARD:", "fence.acq_rel.gpu; HEARD:"),
}


def body(**changed: str) -> str:
    parts = {"write": WRITE, "met": MEET, "tell": TELL, "hear": HEAR, "meet": MEET, "read": READ}
    write, met, tell, hear, meet, read = (parts | changed).values()
    return f"{PLACES}{write}{met}{tell} bra END; READER: {hear}{meet}{read} END:"


def two_ctas(seed: int, watch: Watch | None, **changed: str) -> Array:
    found = run(
        *(body(**changed), DATA, FLAG, OUT), block=64, grid=2, seed=seed, watch=watch,
        allow_poison=True,
    )  # fmt: skip
    return found[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_another_cta_released_may_be_read(seed: int):
    assert np.array_equal(two_ctas(seed, Watch()), DATA + 7)
    tell, hear = BY_FENCE.values()
    for changed in ({"tell": tell}, {"hear": hear}, {"tell": tell, "hear": hear}):
        assert np.array_equal(two_ctas(seed, Watch(), **changed), DATA + 7)


UNORDERED = {
    "no release": {"tell": TELL.replace(".release", ".relaxed")},
    "no acquire": {"hear": HEAR.replace(".acquire", ".relaxed")},
    "narrow release": {"tell": TELL.replace("release.gpu", "release.cta")},
    "narrow fence": {"hear": BY_FENCE[HEAR].replace("acq_rel.gpu", "acq_rel.cta")},
    "early fence": {"hear": "fence.acq_rel.gpu;" + HEAR.replace(".acquire", ".relaxed")},
    "late writes": {"write": "", "tell": TELL + WRITE, "met": ""},
    "no barrier of readers": {"meet": ""},
    "no barrier of writers": {"met": ""},
}


@pytest.mark.parametrize("name", UNORDERED)
def test_each_step_from_writer_to_reader_is_needed(name: str):
    """Some schedule shows it; unwatched, the kernel runs."""
    found: list[str] = []
    for seed in range(10):
        try:
            two_ctas(seed, Watch(), **UNORDERED[name])
        except InterpreterError as error:
            found.append(str(error))
    assert found
    told = re.compile("race in global memory: a read, and warp [01] of CTA .0, 0, 0. wrote it")
    assert all(told.search(text) for text in found)
    two_ctas(0, None, **UNORDERED[name])


@pytest.mark.parametrize("seed", SEEDS)
def test_two_ctas_may_not_write_one_place(seed: int):
    with pytest.raises(InterpreterError, match=r"a write, and warp . of CTA .* no release and acq"):
        two_ctas(seed, Watch(), hear="", meet="", read=WRITE)
    word = "gpu.global.add.u32 [%rd2], 1;"
    for add in ("red.relaxed." + word, "st.relaxed." + word.replace(".add", "")):
        two_ctas(seed, Watch(), write=add, hear="", meet="", read=add)


def test_warps_of_a_cta_need_a_barrier():
    ahead = "xor.b32 %r4, %thread, 32; mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %ptr0, %rd4;"
    read = ahead + "ld.global.u32 %r3, [%rd4]; st.global.u32 [%rd3], %r3;"
    two_ctas(0, Watch(), met=MEET + read, hear="", meet="", read="")
    with pytest.raises(InterpreterError, match=r"of CTA .0, 0, 0. wrote it, with no barrier"):
        two_ctas(0, Watch(), met=read, hear="", meet="", read="")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_written_may_not_be_read_as_constant(seed: int):
    with pytest.raises(InterpreterError, match=r"nobody writes meanwhile \(.nc\)"):
        two_ctas(seed, Watch(), read=READ.replace("ld.global", "ld.global.nc"))


# ---- the asynchronous proxy

STORE = """
@%p2 bra TOLD;
mov.b32 %r5, s;
mov.u32 %r6, 7;
st.shared.v4.u32 [%r5], {%r6, %r6, %r6, %r6};
fence.proxy.async.shared::cta;
cp.async.bulk.global.shared::cta.bulk_group [%ptr0], [%r5], 16;
cp.async.bulk.commit_group;
"""
STORED = "cp.async.bulk.wait_group 0;"
READ_ONE = "@%p2 bra END; ld.global.u32 %r3, [%ptr0]; st.global.u32 [%rd3], %r3;"


@pytest.mark.parametrize("seed", SEEDS)
def test_bulk_stores_are_seen_once_they_are_waited_for(seed: int):
    tell = "red.release.gpu.global.add.u32 [%ptr1], 1; TOLD:"

    def told(waited: str) -> Array:
        return two_ctas(seed, Watch(), write="", met="", tell=STORE + waited + tell, read=READ_ONE)

    assert told(STORED)[0] == 7
    with pytest.raises(InterpreterError, match=r"a bulk store to it that it did not wait for"):
        told(STORED.replace("wait_group", "wait_group.read"))


LOAD = f"""
@%p2 bra LOADED;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
mov.b32 %r5, s;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%ptr0], 16, [bar];
LOADED: {wait()}
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("place", ["writers", "reader"])
def test_a_bulk_load_of_ordinary_writes_needs_a_proxy_fence(seed: int, place: str):
    def loaded(fence: str) -> Array:
        writers, reader = (fence, "") if place == "writers" else ("", fence)
        return two_ctas(seed, Watch(), met=writers + MEET, read=INIT + reader + LOAD)

    loaded("fence.proxy.async;")
    loaded("fence.proxy.async.global;")
    for fence in ("", "fence.proxy.async.shared::cta;"):
        with pytest.raises(
            InterpreterError, match=r"a bulk load, .* a fence.proxy.async goes with"
        ):
            loaded(fence)


# ---- launches


def two_launches(second: str, programmatic: bool = True, watched: bool = True) -> None:
    """A kernel that writes %ptr0, then one that copies it to %ptr1."""
    memory, watch = Memory(), Watch() if watched else None
    buffers = [memory.allocate(256) for _ in range(2)]
    places = "mul.wide.u32 %rd1, %thread, 4; add.u64 %rd2, %ptr0, %rd1; add.u64 %rd3, %ptr1, %rd1;"
    for body, early in ((WRITE, False), (second, programmatic)):
        launch(
            parse(kernel(places + body, 2, 0, 64, 64)), "k", grid=(1, 1, 1), block=(64, 1, 1),
            params=[address.to_bytes(8, "little") for address in buffers], memory=memory,
            watch=watch, programmatic=early,
        )  # fmt: skip


def test_a_programmatic_launch_waits_for_the_one_before():
    waits = "griddepcontrol.wait;"
    two_launches(waits + READ)
    by_one = f"setp.ge.u32 %p3, %thread, 32; @%p3 bra MEET; {waits} MEET:"
    two_launches(by_one + "bar.sync 0;" + READ)
    two_launches(READ, programmatic=False)
    two_launches(READ, watched=False)
    for early in (READ, READ + waits, READ.replace(".u32", ".u8"), WRITE + waits):
        with pytest.raises(InterpreterError, match=r"a launch before wrote it, .* griddepcontrol"):
            two_launches(early)
    with pytest.raises(InterpreterError, match=r"a launch before wrote it, .* griddepcontrol"):
        two_launches(by_one + READ)
    with pytest.raises(InterpreterError, match=r"nobody writes meanwhile"):
        two_launches(waits + READ.replace("ld.global", "ld.global.nc"))
