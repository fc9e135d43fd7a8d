"""Random gradients of convolutions by engine fallback."""

from random import Random

import numpy as np
import pytest

from tests.random_conv_gradients import draw
from tests.random_convs import poisoned
from tests.support.checked import check, random_inputs

SEEDS, MORE_SEEDS = 3, 500


def run(op, seed):
    random = Random(seed)
    drawn = draw(random, op)
    graph = drawn.graph.graph.finalize()
    inputs = random_inputs(graph, drawn.sizes, seed)
    if random.random() < 0.3:
        inputs = poisoned(random, inputs)
    with np.errstate(all="ignore"):
        check(
            drawn.graph,
            drawn.sizes,
            engine="fallback",
            inputs=inputs,
            seed=seed,
            slack=8.0,
            allowance=drawn.allowance,
        )


@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("op", ["conv_dgrad", "conv_wgrad"])
def test_random_gradients(op, seed):
    run(op, seed)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["conv_dgrad", "conv_wgrad"])
def test_many(op):
    for seed in range(SEEDS, MORE_SEEDS):
        run(op, seed)
