# pyright: basic
"""mbarriers: barriers in shared memory that count arrivals and bytes, phase after phase.

A barrier is in phase 0 when it is made; a phase ends when as many have arrived as it was made
for and all bytes that were announced have come.  `wait(barrier, parity)` returns once the phase
of that parity has ended: parity 0 waits for the first phase, parity 1, on a fresh barrier,
returns at once.  It tells the last phase from the one before only, so a waiter may never be two
phases away.  Source: PTX ISA, "Parallel Synchronization and Communication: mbarrier".
"""

from __future__ import annotations

from typing import Any

from ...mlir import arith, ir, llvm, nvvm
from .. import ops

BYTES = 8

_TICKS = 10_000_000  # nanoseconds that an attempt may sleep before it is repeated


def make(barrier: Any, arrivals: int) -> None:
    """Makes a barrier, by one thread; `make_visible` after the last."""
    nvvm.mbarrier_init(barrier, ops.const(arrivals))


def make_visible() -> None:
    """Shows made barriers to TMA and the cluster; a barrier of all follows."""
    nvvm.fence_mbarrier_init()


def expect(barrier: Any, bytes_: Any) -> None:
    """Arrives, and announces bytes that TMA will bring."""
    nvvm.mbarrier_arrive_expect_tx(barrier, ops.value_of(bytes_))


def arrive(barrier: Any) -> None:
    """Arrives at a barrier of this block."""
    nvvm.mbarrier_arrive(barrier)


def arrive_at(barrier: Any, rank: Any) -> None:
    """Arrives at the same barrier of another block of the cluster."""
    nvvm.mbarrier_arrive(remote(barrier, rank))


def publish_to(barrier: Any, rank: Any) -> None:
    """Arrives at a barrier of another block, which then sees what was written before.

    What other threads wrote too, if a barrier of theirs and this thread's lies between.
    """
    text = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [$0];"
    place = llvm.PtrToIntOp(ops.i64_type(), remote(barrier, rank)).result
    llvm.inline_asm(None, [place], text, "l", has_side_effects=True)


def send(value: Any, place: Any, barrier: Any, rank: Any) -> None:
    """Stores a number of 32 or 64 bits at this place in another block, or in this one by its rank.

    Its bytes then count at that block's barrier: whoever waits there sees the number.  Unlike a
    store that is published, it does not have the thread wait until all it has written before, to
    global memory too, has arrived.
    """
    bits = value.type.width
    word = ir.IntegerType.get_signless(bits)
    given = value if value.type == word else arith.BitcastOp(word, value).result
    places = [llvm.PtrToIntOp(ops.i64_type(), remote(p, rank)).result for p in (place, barrier)]
    text = f"st.async.shared::cluster.mbarrier::complete_tx::bytes.b{bits} [$0], $1, [$2];"
    kinds = "l,r,l" if bits == 32 else "l,l,l"
    llvm.inline_asm(None, [places[0], given, places[1]], text, kinds, has_side_effects=True)


def wait_for_cluster(barrier: Any, parity: Any) -> None:
    """`wait`, after which what blocks of the cluster have published is seen."""
    text = (
        "{ .reg .pred p; again: "
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [$0], $1; "
        "@p bra done; bra again; done: }"
    )
    place = llvm.PtrToIntOp(ops.i64_type(), barrier).result
    llvm.inline_asm(None, [place, ops.value_of(parity)], text, "l,r", has_side_effects=True)


def remote(pointer: Any, rank: Any) -> Any:
    """The place of this block's shared memory in a block of the cluster, !llvm.ptr<7>.

    Written out, because LLVM would compute the operation's address ahead of the condition that
    makes the rank valid.
    """
    there = llvm.inline_asm(
        ops.i64_type(),
        [llvm.PtrToIntOp(ops.i64_type(), pointer).result, ops.value_of(rank)],
        "mapa.shared::cluster.u64 $0, $1, $2;",
        "=l,l,r",
    )
    return llvm.IntToPtrOp(ir.Type.parse("!llvm.ptr<7>"), there).result


def wait(barrier: Any, parity: Any) -> None:
    """Returns once the phase of this parity has ended."""
    nvvm.mbarrier_try_wait_parity(barrier, ops.value_of(parity), ops.const(_TICKS))


def in_cluster(pointer: Any) -> Any:
    """A pointer to this block's shared memory as one into the cluster's."""
    return llvm.AddrSpaceCastOp(ir.Type.parse("!llvm.ptr<7>"), pointer).result
