"""Engines of convolutions accept what they propose: a proposed configuration is built
without another look at it, and one that is not legal would fail where a graph is compiled."""

from random import Random

import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.target import of
from tests.random_convs import SURFACES, draw

from .convs import around, convolved, image
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


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", SURFACES)
def test_of_drawn_convolutions(name):
    drawn = (draw(Random(seed), SURFACES[name], TARGET) for seed in range(DRAWN))
    assert sum(assert_candidates_are_legal(d.graph.graph.finalize(), name) for d in drawn) > 10


# X, outputs, taps, stride, padding; whether it is the gradient by the image; tile and cluster.  On
# an H200 they took 470 us, 6.0, 16.3, 177 and 395, what was chosen before 786, 7.0, 17.1, 248 and
# 441.
TIMED = {
    "few outputs": ([64, 3, 224, 224], 64, 3, 1, 1, True, (128, 8, 1, 1)),
    "no cluster past the end": ([16, 192, 17, 17], 320, 3, 2, 0, False, (64, 64, 1, 1)),
    "a phase with taps": ([32, 1024, 14, 14], 2048, 1, 2, 0, True, (128, 128, 1, 1)),
    "filters in one line": ([128, 24, 112, 112], 144, 1, 1, 0, True, (128, 32, 2, 1)),
    "a filter in two lines": ([256, 288, 35, 35], 384, 3, 2, 1, True, (256, 128, 1, 1)),
}


@pytest.mark.parametrize("name", TIMED)
def test_what_is_fast_is_chosen(name):
    x, outputs, taps, stride, padding, is_gradient, wanted = TIMED[name]
    g = new_graph()
    w, parameters = [outputs, x[1], taps, taps], around(padding, stride)
    if is_gradient:
        like = dnnc.pygraph("forward")
        y = like.conv_fprop(like.tensor(x), like.tensor(w), **parameters).get_dim()
        made = image(g, y)
        g.conv_dgrad(made, image(g, w), **parameters).set_dim(x).set_output()
    else:
        g.relu(convolved(g, x, w, **parameters)).set_output()
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    best = heuristics.choices(fusion, of(TARGET), [engine_named("conv_sm90")])[0].knobs
    names = ("TILE_M", "TILE_N", "TILE_CGA_M", "TILE_CGA_N")
    assert tuple(best[name] for name in names) == wanted
