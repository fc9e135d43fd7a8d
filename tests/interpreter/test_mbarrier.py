"""mbarrier: phases, counts, bytes, what a wait orders, and what is misuse."""

from __future__ import annotations

import numpy as np
import pytest

from dnnc.interpreter import InterpreterError

from .hopper import INIT, SEEDS, run, wait

MANY = INIT.replace("[bar], 1;", "[bar], {count};")
# Everybody writes, arrives, waits, and reads what the other warp wrote.
EXCHANGE = """
mov.b32 %r1, s;
mad.lo.u32 %r2, %thread, 4, %r1;
st.shared.b32 [%r2], %thread;
mbarrier.arrive.shared.b64 %rd1, [bar];
{wait}
xor.b32 %r3, %r2, 128;
ld.shared.b32 %r4, [%r3];
mad.wide.u32 %rd2, %thread, 4, %ptr0;
st.global.b32 [%rd2], %r4;
"""
STATE = "SPIN: mbarrier.test_wait.shared.b64 %p1, [bar], %rd1; @!%p1 bra SPIN;"


def exchange(waiting: str, seed: int = 0, setup: str = MANY.format(count=64)) -> list[int]:
    body = setup + EXCHANGE.format(wait=waiting)
    return run(body, (64, np.uint32), block=64, seed=seed)[0].tolist()


@pytest.mark.parametrize("waiting", [wait(), STATE])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_wait_orders(waiting: str, seed: int):
    assert exchange(waiting, seed) == [k ^ 32 for k in range(64)]


@pytest.mark.parametrize("seed", SEEDS)
def test_without_the_wait_it_is_a_race(seed: int):
    with pytest.raises(InterpreterError, match=r"race"):
        exchange("", seed)
    with pytest.raises(InterpreterError, match=r"race"):
        exchange(wait().replace("parity.", "parity.relaxed.cta."), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_initialisation_must_be_ordered_before_the_use(seed: int):
    with pytest.raises(InterpreterError, match=r"no initialised mbarrier|initialisation is not"):
        exchange(wait(), seed, MANY.format(count=64).replace("bar.sync 0;", "mov.b32 %r9, 0;"))


def test_counts():
    body = MANY.format(count=4) + "mbarrier.arrive.shared.b64 _, [bar], {first};"
    alone = "@%p0 bra END; mbarrier.arrive.shared.b64 _, [bar], 1; END:" + wait()
    run(body.replace("mbarrier.arrive.shared.b64 _", "@!%p0 mbarrier.arrive.shared.b64 _").format(
        first=3) + alone)  # fmt: skip
    with pytest.raises(InterpreterError, match=r"gets 5 arrivals, but 4 of 4 are pending"):
        run(body.format(first=5))


def test_an_arrival_too_few_is_a_deadlock_that_names_the_wait():
    with pytest.raises(InterpreterError, match=r"deadlock: warp \d .* phase 0, 1 of 65 arrivals"):
        exchange(wait(), 0, MANY.format(count=65))


ONE = "@%p0 bra END; {body} END:"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_parity_of_the_phase_before_the_current_one_alone(seed: int):
    """The first phase's parity, two phases later, looks as if it were still to come."""
    arrive = "mbarrier.arrive.shared.b64 _, [bar];"
    run(INIT + ONE.format(body=wait(1)), seed=seed)
    run(INIT + ONE.format(body=arrive + wait(0)), seed=seed)
    run(INIT + ONE.format(body=arrive + arrive + wait(1)), seed=seed)
    with pytest.raises(InterpreterError, match=r"deadlock: .* phase 2"):
        run(INIT + ONE.format(body=arrive + arrive + wait(0)), seed=seed)
    with pytest.raises(InterpreterError, match=r"deadlock: .* phase 1"):
        run(INIT + ONE.format(body=arrive + wait(1)), seed=seed)


def test_bytes_hold_a_phase_open():
    arrive = "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 32;"
    done = "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], {};"
    run(INIT + ONE.format(body=arrive + done.format(16) + done.format(16) + wait()))
    run(INIT + ONE.format(body=done.format(32) + arrive + wait()))
    with pytest.raises(InterpreterError, match=r"deadlock: .* 16 bytes pending"):
        run(INIT + ONE.format(body=arrive + done.format(16) + wait()))
    too_many = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1048575;"
    with pytest.raises(InterpreterError, match=r"transaction bytes"):
        run(INIT + ONE.format(body=too_many + too_many))


def test_a_try_wait_may_time_out():
    """A thread that asks before it arrives itself is told `false` and goes on."""
    body = """
    mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
    @%p1 trap;
    mbarrier.arrive.shared.b64 _, [bar];
    """
    for seed in SEEDS:
        run(INIT + ONE.format(body=body + wait()), seed=seed)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mbarrier.arrive.shared.b64 _, [bar+8];", "no initialised mbarrier"),
        ("mbarrier.init.shared.b64 [bar], 1;", "already holds an mbarrier"),
        ("mbarrier.init.shared.b64 [bar+8], 0;", "gets a count of 0"),
        ("mbarrier.init.shared.b64 [bar+4], 1;", "not a multiple of the access size"),
        ("st.shared.b32 [bar], 0;", "written over an mbarrier"),
        ("mbarrier.inval.shared.b64 [bar]; mbarrier.arrive.shared.b64 _, [bar];", "no initialised"),
        (wait(2), "parity 2"),
        ("ld.shared.b32 %r1, [bar]; st.global.b32 [%ptr0], %r1;", "poison"),
        ("mbarrier.test_wait.shared.b64 %p1, [bar], 0;", "asked for a state"),
    ],
)
def test_misuse(body: str, message: str):
    with pytest.raises(InterpreterError, match=message):
        run(INIT + ONE.format(body=body.replace("], 0;", "], %rd9;") if "test" in body else body)
            .replace("@%p0", "mov.b64 %rd9, 0; @%p0"), (4, np.uint32))  # fmt: skip


def test_drops_lower_the_count_of_the_phases_that_follow():
    body = "mbarrier.arrive_drop.shared.b64 _, [bar]; mbarrier.arrive.shared.b64 _, [bar];"
    again = "mbarrier.arrive.shared.b64 _, [bar];"
    setup = MANY.format(count=2)
    run(setup + ONE.format(body=body + wait(0) + again + wait(1)))
