"""Rings of stages: the arithmetic of stages and phases, and that no two sides meet in a stage."""

import itertools
import random

import pytest

from dnnc.codegen.hopper.pipeline import Cursor


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 7])
def test_next_walks_through_the_uses(stages):
    cursor = Cursor()
    for use in range(5 * stages):
        assert (cursor.stage, cursor.phase) == (use % stages, use // stages % 2)
        assert cursor == Cursor.at(use, stages)
        cursor = cursor.next(stages)


class Barrier:
    """An mbarrier, by the definition: arrivals complete phases, a wait sees the last one."""

    def __init__(self, arrivals):
        self.arrivals, self.pending, self.phase = arrivals, arrivals, 0

    def arrive(self):
        self.pending -= 1
        if not self.pending:
            self.pending, self.phase = self.arrivals, self.phase + 1

    def passes(self, parity):
        return (self.phase - 1) % 2 == parity


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("consumers", [1, 2])
def test_a_stage_is_read_after_it_is_filled_and_filled_after_it_is_read(stages, consumers):
    """Random interleavings of the two sides' waits, as the pipeline makes them."""
    for seed in range(20):
        rng = random.Random(seed)
        full = [Barrier(1) for _ in range(stages)]
        empty = [Barrier(consumers) for _ in range(stages)]
        slots = [None] * stages
        uses = 6 * stages
        made, read = 0, [0] * consumers
        while min(read) < uses:
            side = rng.randrange(consumers + 1)
            if side == consumers:
                cursor = Cursor.at(made, stages)
                if made < uses and empty[cursor.stage].passes(cursor.phase ^ 1):
                    assert min(read) > made - stages - 1, "written before all have read it"
                    slots[cursor.stage] = made
                    full[cursor.stage].arrive()
                    made += 1
            elif read[side] < uses:
                cursor = Cursor.at(read[side], stages)
                if full[cursor.stage].passes(cursor.phase):
                    assert slots[cursor.stage] == read[side]
                    empty[cursor.stage].arrive()
                    read[side] += 1


def test_a_use_two_phases_ahead_would_pass_too_early():
    """Why a waiter may not be two phases away: the parity comes round again."""
    barrier = Barrier(1)
    barrier.arrive()
    uses = [Cursor.at(use, 1).phase for use in (0, 2)]
    assert [barrier.passes(phase) for phase in uses] == [True, True]
    assert list(itertools.islice((Cursor.at(i, 2).stage for i in range(4)), 4)) == [0, 1, 0, 1]
