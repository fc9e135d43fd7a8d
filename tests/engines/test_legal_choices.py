"""Whatever knobs `legal` passes, `emit` builds, in the shared memory that was counted."""

import datetime
from collections import Counter

import pytest

from tests.legal_choices import DRAWS, EXACT, TARGETS, check_drawn

SEED = datetime.date.today().toordinal()


@pytest.mark.rotating
@pytest.mark.parametrize("family", DRAWS)
def test_legal_choices_are_built(family):
    check_drawn(family, SEED, (TARGETS[SEED % len(TARGETS)],))


@pytest.mark.slow
@pytest.mark.parametrize("family", DRAWS)
def test_legal_choices_are_built_of_many(family):
    found = sum((check_drawn(family, seed) for seed in range(40)), Counter[str]())
    assert sum(found.values()) > 400


@pytest.mark.slow
def test_every_engine_that_counts_to_the_byte_is_among_them():
    found = {engine for family in DRAWS for n in range(3) for engine in check_drawn(family, n)}
    assert found >= EXACT
