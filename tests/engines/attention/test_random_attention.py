"""Random attention through every engine of it, with knobs of its candidates and any legal ones."""

import concurrent.futures
from random import Random

import pytest

from tests.checked_attention import failures, run
from tests.gpu import random_attention
from tests.random_fp8_attention import draw

# Plain ones, packed sequences, caches in pages, sinks, masks that are drawn.
ANY = (0, 24, 36, 91, 117, 147)
HOPPER = (2, 36, 51, 65)
FP8 = (16, 90, 117)
SMALL_WEIGHTS = (294, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (277, 1036, 1071)))
# Of those that fail where a reference that stays multiplies what blocks before gave by nearly 1.
ANY_LARGE = (9, 15, 22)
HOPPER_LARGE = (1, 13)
LARGE_KEYS = 600
MORE_SEEDS = range(200, 350)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("seed", ANY)
def test_on_any_architecture(seed):
    run("sdpa_sm80", seed, 60, 2)


@pytest.mark.in_turn
@pytest.mark.sm90
@pytest.mark.rotating
@pytest.mark.parametrize("seed", HOPPER)
def test_on_hopper(seed):
    run("sdpa_fwd_sm90", seed, 100, 2, "sm_90a")


@pytest.mark.in_turn
@pytest.mark.sm90
@pytest.mark.rotating
@pytest.mark.parametrize("seed", FP8)
def test_of_fp8_on_hopper(seed):
    run("sdpa_fwd_sm90", seed, 100, 2, "sm_90a", is_fp8=True)


@pytest.mark.in_turn
@pytest.mark.sm90
@pytest.mark.rotating
@pytest.mark.parametrize("seed", FP8)
def test_of_fp8_on_any_architecture_that_has_it(seed):
    run("sdpa_sm80", seed, 60, 2, "sm_90a", is_fp8=True)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("seed", ANY_LARGE)
def test_large_scores_on_any_architecture(seed):
    run("sdpa_sm80", seed, LARGE_KEYS, 2, is_large=True)


@pytest.mark.in_turn
@pytest.mark.sm90
@pytest.mark.rotating
@pytest.mark.parametrize("seed", HOPPER_LARGE)
def test_large_scores_on_hopper(seed):
    run("sdpa_fwd_sm90", seed, LARGE_KEYS, 2, "sm_90a", is_large=True)


@pytest.mark.in_turn
@pytest.mark.sm90
@pytest.mark.parametrize("seed", SMALL_WEIGHTS)
def test_selections_that_leave_weights_below_the_range_of_fp8(seed):
    run("sdpa_sm80", seed, 260, 4, "sm_90a", is_fp8=True)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.sm90
@pytest.mark.parametrize("seed", [5397, 5710])
def test_fp8_under_masks_of_blocks(seed):
    """Warps that transpose values pass the blocks by that are not loaded."""
    graph = draw(Random(seed), 110, 2).graph.graph.finalize()
    assert any(op.op_name == "block_mask_load" for op in graph.live_ops)
    run("sdpa_fwd_sm90", seed, 110, 2, "sm_90a", is_fp8=True)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("seed", [821, 1993])
def test_rows_without_keys_whose_maximum_is_unguarded(seed):
    """Weights are stored, no numbers in such rows; so is the result, whatever was left out."""
    run("sdpa_sm80", seed, 260, 4)


@pytest.mark.in_turn
def test_no_draw_selects_weights_of_rows_past_the_lengths_without_a_guard():
    """O is divided by such a row's sum, NaN, where the reference has 0."""
    run("sdpa_sm80", 5241, 260, 4)


@pytest.mark.sm90
@pytest.mark.slow  # a small one: test_sdpa_block_mask.py
def test_a_mask_that_hides_where_a_bit_and_numbers_agree():
    """No block of keys is known to be hidden by it."""
    run("sdpa_fwd_sm90", 1496, 260, 4, "sm_90a")


@pytest.mark.in_turn
@pytest.mark.sm90
def test_rows_that_relu_leaves_nothing_of():
    run("sdpa_fwd_sm90", 808, 260, 4, "sm_90a")


@pytest.mark.slow
def test_many_on_any_architecture():
    assert not failures("sdpa_sm80", MORE_SEEDS, 260)


@pytest.mark.sm90
@pytest.mark.slow
def test_many_on_hopper():
    assert not failures("sdpa_fwd_sm90", MORE_SEEDS, 260, "sm_90a")


@pytest.mark.slow
def test_many_of_large_scores_on_any_architecture():
    assert not failures("sdpa_sm80", MORE_SEEDS, LARGE_KEYS, is_large=True)


@pytest.mark.sm90
@pytest.mark.slow
def test_many_of_large_scores_on_hopper():
    assert not failures("sdpa_fwd_sm90", MORE_SEEDS, LARGE_KEYS, "sm_90a", is_large=True)


@pytest.mark.sm90
@pytest.mark.slow
def test_many_of_fp8_on_hopper():
    assert not failures("sdpa_fwd_sm90", MORE_SEEDS, 260, "sm_90a", is_fp8=True)


# ---- by many processes


def by_processes(*arguments):
    """(exit status, what was said) of the command."""
    with concurrent.futures.ThreadPoolExecutor(1) as other:  # whose signals stay as they are
        own = ["--interpreted", "--processes", "1", "--most", "8", "--heads", "2", *arguments]
        return other.submit(random_attention.main, own).result()


@pytest.mark.in_turn
def test_seeds_that_are_right(capfd, tmp_path):
    log = tmp_path / "answers"
    own = ("--only", "any", "--log", str(log))
    assert by_processes(*own, "--seeds", "3") == 0
    assert "PASSED, 1 of 1 right" in capfd.readouterr().out
    assert by_processes(*own, "--seeds", "3", "4", "--within", "0") == 2
    said = capfd.readouterr().out
    assert "not run: 1; go on with --first 4 --count 1" in said
    assert "NOT ALL RUN, 1 of 1 right" in said


def test_a_seed_that_takes_too_long_is_a_failure(capfd):
    assert by_processes("--first", "7", "--count", "1", "--seconds", "0.01") == 1
    said = capfd.readouterr().out
    assert "FAILED seed 7 (fp8): no answer after" in said
    assert "FAILED, 0 of 1 right" in said
