"""Which knobs an engine gets when they are asked for in part or not at all."""

import pytest

import dnnc
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


@pytest.mark.parametrize(
    "knobs", [{}, {"STAGES": 3}, {"STAGES": 6}, {"TILE_M": 64}, {"TILE_N": 128}], ids=str
)
def test_products_of_f32_are_not_rounded_to_tf32_unless_that_is_asked_for(knobs):
    graph = product(dtypes.f32, 512, 512, 512)[0].graph.finalize()
    quiet = heuristics.best_config(graph, TARGET, engine="matmul_sm80", knobs=knobs)
    assert "DOWN_CONVERT_INPUTS" not in quiet.notes
    asked = heuristics.best_config(graph, TARGET, knobs={**knobs, "TF32": 1})
    assert "DOWN_CONVERT_INPUTS" in asked.notes
    assert knobs.items() <= asked.knobs.items()


@pytest.mark.parametrize("knobs", [{"TILEK": 32}, {"TILE_M": 256}], ids=str)
def test_knobs_that_three_products_lack_are_refused(knobs):
    graph = product(dtypes.f32, 512, 512, 512)[0].graph.finalize()
    with pytest.raises(dnnc.DnncError, match=r"TF32=1|x64, "):
        heuristics.best_config(graph, TARGET, engine="matmul_sm80", knobs=knobs)


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
