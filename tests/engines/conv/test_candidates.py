"""Engines of convolutions accept what they propose: a proposed configuration is built
without another look at it, and one that is not legal would fail where a graph is compiled."""

from random import Random

import pytest

from dnnc import dtypes
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.target import of
from tests.random_convs import SURFACES, draw

from .convs import around, convolved
from .test_sm90 import new_graph

DRAWN = 40
TARGET = "sm_90a"

# (images, rows, columns, channels, output channels, groups): networks of grouped convolutions.
GROUPED = [
    (256, 14, 14, 512, 512, 32),
    (256, 7, 7, 1024, 1024, 32),
    (32, 14, 14, 1024, 1024, 32),
    (64, 56, 56, 256, 512, 16),
    (100, 20, 30, 512, 256, 16),
    (48, 28, 28, 128, 512, 4),
]


def assert_candidates_are_legal(graph, name, *, must=False):
    engine, target = engine_named(name), of(TARGET)
    (fusion,) = partition(graph, [graph.live_ops])
    if engine.supports(fusion, target):
        assert not must
        return False
    candidates = engine.candidates(fusion, target)
    for knobs in candidates:
        assert not engine.legal(knobs, fusion, target), knobs
    return bool(candidates)


@pytest.mark.parametrize("shape", GROUPED, ids=str)
@pytest.mark.parametrize("name", ["conv_sm90", "conv_sm80"])
def test_of_groups(name, shape):
    n, h, w, c, k, groups = shape
    g = new_graph(dtypes.bf16)
    convolved(g, [n, c, h, w], [k, c // groups, 3, 3], **around(1)).set_output()
    assert assert_candidates_are_legal(g.graph.finalize(), name, must=True)


@pytest.mark.rotating
@pytest.mark.parametrize("name", SURFACES)
def test_of_drawn_convolutions(name):
    drawn = (draw(Random(seed), SURFACES[name], TARGET) for seed in range(DRAWN))
    assert sum(assert_candidates_are_legal(d.graph.graph.finalize(), name) for d in drawn) > 10
