"""Which knobs an engine gets when they are asked for in part or not at all."""

from dnnc import dtypes
from dnnc import target as targets
from dnnc.engines import heuristics

from .test_matmul_sm80 import product

TARGET = targets.of("sm_90")


def long_and_narrow():
    """A product whose largest tiles are the worst choice."""
    return product(dtypes.f16, 16, 64, 4096)[0].graph.finalize()


def test_an_engine_asked_for_by_name_gets_its_best_knobs():
    graph = long_and_narrow()
    free = heuristics.best_config(graph, TARGET)
    named = heuristics.best_config(graph, TARGET, engine="matmul_sm80")
    assert named.choices[0].knobs == free.choices[0].knobs


def test_knobs_left_open_are_those_of_the_best_candidate_that_fits():
    graph = long_and_narrow()
    asked = {"TILE_M": 64, "TILE_N": 64}
    made = heuristics.best_config(graph, TARGET, engine="matmul_sm80", knobs=asked).choices[0]
    fitting = [
        config.choices[0]
        for config in heuristics.configs(graph, TARGET, ["A"])
        if asked.items() <= config.choices[0].knobs.items()
    ]
    assert made.knobs == fitting[0].knobs
