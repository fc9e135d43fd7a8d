"""Every wait of sdpa_fwd_sm90 matters."""

import pytest

from dnnc.interpreter import plans
from tests.attention_graphs import Pattern

from .removed_waits import (
    HOPPER_WAITS,
    MORE_REGISTERS,
    ONE_WARP,
    SPIN,
    removed,
    survivors,
)

# ---- attention: one block works through all tiles, of two blocks of keys each


def tiles_of_attention(*, batch, queries, keys=66, knobs=None, **options):
    g = Pattern(batch=(batch,), queries=queries, keys=keys, **{"depth": 8, **options}).g
    return lambda: (g, ATTENTION | (knobs or {}))


ATTENTION = {"TILE_M": 128, "TILE_N": 64, "STAGES": 2, "KERNEL_CFG": 3, "SCHED_POLICY": 1}
TWO_TILES = tiles_of_attention(batch=1, queries=130, keys=100)
TRANSPOSED = tiles_of_attention(
    batch=1, queries=130, keys=200, depth=16, dtype="FP8_E4M3", weight_type="FLOAT",
    knobs={"KERNEL_CFG": 2},
)  # fmt: skip
ATTENTION_CASES = {
    "six tiles": tiles_of_attention(batch=6, queries=66),
    "one stage of queries": tiles_of_attention(
        batch=3, queries=66, depth=256, width=8, knobs={"SCHED_POLICY": 0, "KERNEL_CFG": 1}
    ),
}  # fmt: skip

_LAST_ARRIVAL = "nobody waits for the arrival that ping-pong leaves over when a CTA ends"
_OTHER_FENCE = "the other product's fence, right beside it, orders the same registers"
_TAKEN_BEFORE = "a tile's number is there before its queries are, for which the reader waited"
_NOT_AHEAD = "the producer is two tiles of queries ahead at most, and the ring has four slots"
_PING_PONG_BETWEEN = "ping-pong's barrier of all the warpgroup's warps lies between"
_NOT_AROUND = "two tiles go round no ring of two or more"
_OF_EVERY_ATTENTION = {
    ("bar", -1): _LAST_ARRIVAL,
    ("setmaxnreg", -2): MORE_REGISTERS,
    ("wgmma.fence", -3): _OTHER_FENCE,
    ("wgmma.fence", -2): _OTHER_FENCE,
}
_OF_TILES_BY_NUMBER = {
    ("bar", -12): ONE_WARP,
    ("mbarrier.try_wait", -14): _TAKEN_BEFORE,
    ("mbarrier.try_wait", -6): _NOT_AHEAD,
}
# Where a tile's last product stands beside the first one of the next.
_OF_OVERLAPPING_TILES = {
    ("bar", -9): _PING_PONG_BETWEEN,
    ("wgmma.fence", -6): _OTHER_FENCE,
    ("wgmma.fence", -5): _OTHER_FENCE,
}
ATTENTION_UNOBSERVABLE = {
    "six tiles": _OF_EVERY_ATTENTION | _OF_TILES_BY_NUMBER | _OF_OVERLAPPING_TILES,
    "one stage of queries": _OF_EVERY_ATTENTION,
}
NOT_IN_TWO_TILES = {
    **ATTENTION_UNOBSERVABLE["six tiles"],
    ("cp.async.bulk.commit_group", -2): _NOT_AROUND,
    ("cp.async.bulk.wait_group", -2): _NOT_AROUND,
    ("mbarrier.arrive", -15): _NOT_AROUND,
    ("mbarrier.arrive", -14): _NOT_AROUND,
    ("mbarrier.arrive", -12): _NOT_AROUND,
    ("mbarrier.arrive", -8): _NOT_AROUND,
    ("mbarrier.try_wait", -5): _NOT_AROUND,
    ("mbarrier.try_wait", -4): _NOT_AROUND,
}


@pytest.mark.in_turn
def test_waits_of_attention_are_needed(monkeypatch):
    """All but those that two tiles can't show: looking for what shows nothing takes long."""
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 1})

    def observable(module, kernel):
        every = removed(module, kernel, HOPPER_WAITS)
        return [found for found in every if found[0] not in NOT_IN_TWO_TILES]

    found, alive = survivors(TWO_TILES, "sdpa_fwd_sm90", "sm_90a", observable)
    assert len(found) > 35
    assert not alive


@pytest.mark.in_turn
def test_waits_of_transposed_values_are_needed(monkeypatch):
    """In attention of fp8 four blocks of values go round two rings of two stages, by way of three
    warps, which wait for both, show what they wrote, and arrive at both."""
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 1})

    def around_the_transposition(module, kernel):
        function = module.function(kernel)
        first, last = function.indices("ldmatrix")[0], function.indices("stmatrix")[-1]
        for found in removed(module, kernel, (SPIN, "mbarrier.arrive", "fence")):
            opcode, place = found[0]
            if first - 45 < function.indices(opcode)[place] < last + 6:
                yield found

    found, alive = survivors(TRANSPOSED, "sdpa_fwd_sm90", "sm_90a", around_the_transposition)
    opcodes = [opcode for (opcode, _), _ in found]
    assert sorted(opcodes) == ["fence", *["mbarrier.arrive"] * 2, *[SPIN] * 2]
    assert not alive


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTION_CASES)
def test_each_wait_of_attention_is_needed(name, monkeypatch):
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 1})
    found, alive = survivors(
        ATTENTION_CASES[name], "sdpa_fwd_sm90", "sm_90a", lambda *of: removed(*of, HOPPER_WAITS)
    )
    assert len(found) > 40
    assert alive == set(ATTENTION_UNOBSERVABLE[name])
