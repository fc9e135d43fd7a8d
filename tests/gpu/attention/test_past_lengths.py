"""Memory past the lengths of padded sequences changes nothing, on the device."""

import pytest

from tests.engines.attention.test_past_lengths import *  # noqa: F403
from tests.past_lengths import attention, inputs_of
from tests.support import machine
from tests.support.checked import check

NAN = float("nan")


# The end of a step of keys, after each number of rows that steps have.
LENGTHS = [*range(257, 257 + 192), 1, 0, 512]


@pytest.mark.parametrize("depth", [64, 128, 256])
@pytest.mark.parametrize("is_causal", [False, True])
def test_best_choices_at_every_tail_of_a_step(depth, is_causal):
    options = {"use_causal_mask": True} if is_causal else {}
    g = attention(
        batch=len(LENGTHS), heads=2, key_heads=1, queries=96, keys=512, depth=depth, **options
    )
    given = inputs_of(g, [96 - i % 7 for i in range(len(LENGTHS))], LENGTHS, NAN)
    check(g, target=machine.current().target, slack=4.0, allowance=1e-5, inputs=given)


@pytest.mark.sm90
def test_best_choices_of_fp8_at_every_tail_of_a_step():
    g = attention(batch=len(LENGTHS), heads=1, keys=512, depth=128, dtype="FP8_E4M3")
    given = inputs_of(g, [40] * len(LENGTHS), LENGTHS, NAN)
    check(g, target="sm_90a", slack=4.0, allowance=0.06, inputs=given)
