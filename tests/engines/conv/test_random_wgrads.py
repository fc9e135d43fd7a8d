"""Random gradients of filters by each engine that multiplies them, with any of its candidates."""

from random import Random

import numpy as np
import pytest

from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.target import of
from tests.random_convs import poisoned
from tests.random_wgrads import ENGINES, draw
from tests.support import machine
from tests.support.checked import check, random_inputs

SEEDS, MORE_SEEDS = 3, 300


def run(name, seed):
    """Checks a graph that the engine takes, or nothing where it declines by clause."""
    random, target = Random(f"{name} {seed}"), ENGINES[name] or machine.current().target
    drawn, engine = draw(random, name), engine_named(name)
    graph = drawn.graph.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    if reasons := engine.supports(whole, of(target)):
        assert all(reason.clause and reason.supported for reason in reasons)
        return
    knobs = random.choice(engine.candidates(whole, of(target)))
    inputs = random_inputs(graph, drawn.sizes, seed)
    if random.random() < 0.3:
        inputs = poisoned(random, inputs)
    with np.errstate(all="ignore"):
        check(
            drawn.graph, drawn.sizes, engine=name, knobs=dict(knobs), target=target,
            inputs=inputs, seed=seed, slack=8.0,
            allowance=drawn.allowance + machine.current().cut,
        )  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", ENGINES)
def test_random_gradients(name, seed):
    run(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_many(name):
    for seed in range(SEEDS, MORE_SEEDS):
        run(name, seed)
