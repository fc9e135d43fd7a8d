"""Loops and branches whose state is a record."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from dnnc.codegen import ops
from dnnc.codegen.hopper.pipeline import Cursor
from dnnc.codegen.state import chosen, loop, repeat
from tests.codegen.kernels import WARP, results_of


@dataclass(frozen=True)
class Walk:
    here: Cursor
    before: Any
    sums: list[Any]
    spare: Any = None


def test_records_in_loops_and_branches():
    def emit(thread):
        @loop(0, thread, 2, state=Walk(Cursor(), -1, [thread, 0]))
        def counted(i, now):
            sums = [now.sums[0] + i, now.sums[1] + now.here.stage]
            return replace(now, here=now.here.next(3), before=now.here.stage, sums=sums)

        @repeat(lambda now: now[0] < thread, state=(1, (counted.sums[1], None)))
        def doubled(now):
            number, (rounds, nothing) = now
            return number * 2, (rounds + 1, nothing)

        number, (rounds, _) = doubled
        assert counted.spare is None
        one = chosen(number > 8, counted, lambda: replace(counted, before=7), lambda: counted)
        return [counted.sums[0], counted.here.stage, number, rounds, one.before]

    def alone(thread):
        rounds = -(-thread // 2)
        number, doublings = 1, 0
        while number < thread:
            number, doublings = 2 * number, doublings + 1
        before = 7 if number > 8 else (rounds - 1) % 3 if rounds else -1
        stages = sum(i % 3 for i in range(rounds)) + doublings
        return thread + rounds * (rounds - 1), rounds % 3, number, stages, before

    wanted = np.array([alone(thread) for thread in range(WARP)]).T
    np.testing.assert_array_equal(results_of(emit), wanted)


def test_errors_name_the_field():
    start = Walk(Cursor(), -1, [0])

    def check(thread, body, match):
        with pytest.raises(TypeError, match=match):
            loop(0, thread, state=start)(body)

    def emit(thread):
        def forgets(i, now):
            pass

        def widens(i, now):
            return replace(now, before=ops.to_i64(now.before))

        def grows(i, now):
            return replace(now, sums=[*now.sums, i])

        def names(i, now):
            return replace(now, spare="text")

        check(thread, forgets, r"loop forgets gives no Walk.here.stage, .*Walk.sums\[0\]")
        check(thread, widens, r"loop widens: Walk.before is i32, its body gives i64")
        check(thread, grows, r"loop grows .* gives \.sums\[1\]")
        check(thread, names, r"\.spare: a str can't be carried")
        raise StopIteration

    with pytest.raises(StopIteration):  # the loops that failed have no end
        results_of(emit)
