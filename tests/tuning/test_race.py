"""Which candidates go on, how often each runs, and what is kept of them."""

import pytest

from dnnc.errors import DnncError, Status
from dnnc.tuning.race import Rules, race


def runs_of(*seconds):
    """Runs that take so long, and how often each was called."""
    counts = [0] * len(seconds)

    def make(place):
        def run(calls):
            counts[place] += 1
            return seconds[place]

        return run

    return [make(place) for place in range(len(seconds))], counts


def test_those_that_are_clearly_slower_stop_early():
    runs, counts = runs_of(1.0, 1.1, 1.3, 1.6)
    fastest, near, slower, slowest = race(runs, Rules(rounds=5))
    assert [len(t.rounds) for t in (fastest, near, slower, slowest)] == [5, 5, 2, 1]
    assert [t.is_stopped for t in (fastest, near, slower, slowest)] == [False, False, True, True]
    assert counts == [7, 7, 4, 3]  # two calls warm each up


def test_an_outlier_stops_nobody():
    """The fastest round counts, the median is what is kept."""
    times = iter([1.0, 1.0, 9.0, 1.0, 1.0])

    def noisy(calls):
        return next(times)

    (steady,), _ = runs_of(1.0)
    found = race([noisy, steady], Rules(rounds=3, give_up=1.1))
    assert not found[0].is_stopped
    assert found[0].rounds == [9.0, 1.0, 1.0]
    assert found[0].seconds == 1.0


def test_a_round_is_as_many_calls_as_take_its_time():
    seen = []

    def run(calls):
        seen.append(calls)
        return 1e-5

    race([run], Rules(rounds=1, round_seconds=1e-3, warm_calls=3))
    assert seen == [1, 3, 100]


def test_what_fails_is_out_and_says_why():
    failure = DnncError(Status.EXECUTION_FAILED, "no", "yes")

    def late(calls):
        raise failure

    (good,), _ = runs_of(1.0)
    kept, raised, never = race([good, late, failure], Rules(rounds=2))
    assert not kept.error
    assert "no" in raised.error
    assert not raised.rounds
    assert "no" in never.error


def test_a_failure_in_a_later_round_leaves_no_times():
    left = iter([1.0, 1.0, 1.0])

    def run(calls):
        try:
            return next(left)
        except StopIteration:
            raise DnncError(Status.EXECUTION_FAILED, "gone", "") from None

    (good,), _ = runs_of(1.0)
    failed, kept = race([run, good], Rules(rounds=3))
    assert "gone" in failed.error
    assert failed.rounds == []
    assert len(kept.rounds) == 3


def test_progress_is_reported():
    said = []
    runs, _ = runs_of(1.0, 2.0)
    race(runs, Rules(rounds=2), lambda done, count: said.append((done, count)))
    assert said == [(2, 4), (4, 4)]


@pytest.mark.parametrize("count", [0, 1])
def test_few_candidates(count):
    runs, _ = runs_of(*[1.0] * count)
    assert len(race(runs, Rules(rounds=1))) == count


@pytest.mark.parametrize("given", [float("nan"), 0.0, float("inf")])
def test_a_timer_that_tells_no_time_is_an_error(given):
    (good,), _ = runs_of(1.0)
    wrong, right = race([lambda calls: given, good], Rules(rounds=1))
    assert "the timer gave" in wrong.error
    assert not wrong.rounds
    assert right.rounds == [1.0]
