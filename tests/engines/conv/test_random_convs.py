"""Random convolutions by every engine of them, with knobs of its candidates and any legal ones."""

from random import Random

import numpy as np
import pytest

from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.target import of
from tests.random_convs import SURFACES, draw, poisoned
from tests.support import machine
from tests.support.checked import check, random_inputs
from tests.support.knobs import drawn_knobs

SEEDS, MORE_SEEDS = 3, 150
_DRAWS = 40  # of which engines take more than half


def drawn_for(random, engine, target, **options):
    """(what was drawn, its fusion), of a graph that the engine takes."""
    for _ in range(_DRAWS):
        drawn = draw(random, SURFACES[engine.name], target, **options)
        graph = drawn.graph.graph.finalize()
        (fusion,) = partition(graph, [graph.live_ops])
        if not engine.supports(fusion, of(target)):
            return drawn, fusion
    raise AssertionError(f"{engine.name} takes none of {_DRAWS} graphs")


def run(engine_name, seed, *, is_gradient=False):
    """is_gradient: whether it always is an image's gradient."""
    random, engine = Random(seed), engine_named(engine_name)
    target = "sm_90a" if engine_name.endswith("sm90") else machine.current().target
    drawn, fusion = drawn_for(random, engine, target, is_gradient=is_gradient)
    graph = drawn.graph.graph.finalize()
    inputs = random_inputs(graph, drawn.sizes, seed)
    if drawn.can_be_infinite and random.random() < 0.3:
        inputs = poisoned(random, inputs)
    with np.errstate(all="ignore"):
        check(
            drawn.graph,
            drawn.sizes,
            engine=engine_name,
            knobs=drawn_knobs(random, engine, fusion, of(target)),
            target=target,
            inputs=inputs,
            seed=seed,
            slack=6.0,
            allowance=drawn.allowance + machine.current().cut,
        )


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("engine", ["conv_sm80", "conv_depthwise", "conv_grouped_sm80"])
def test_on_any_architecture(engine, seed):
    run(engine, seed)


@pytest.mark.in_turn
@pytest.mark.sm90
@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("engine", ["conv_sm90", "conv_product_sm90", "conv_stem_sm90"])
def test_on_hopper(engine, seed):
    run(engine, seed)


@pytest.mark.slow
@pytest.mark.parametrize("engine", SURFACES)
def test_many(engine):
    for seed in range(SEEDS, MORE_SEEDS):
        run(engine, seed)
