"""Bounds of what is added to scores, as the linalg stage of an attention has them."""

import pytest

from dnnc import compiler
from dnnc.codegen.attention.region import AttentionRegion
from dnnc.codegen.region import Region
from dnnc.dialect import dnn, structure
from dnnc.options import Options
from dnnc.target import of
from tests import attention_graphs as graphs
from tests.attention_graphs import Pattern


def may_be_far(add):
    """add: function (pattern, scores) -> what is added to the scores."""
    pattern = Pattern(scores=lambda p, s: p.g.add(p.scaled(s), add(p, s)))
    with dnn.context():
        work = compiler.start(pattern.g.graph.finalize(), of("sm_90a"))
        compiler.advance(work, "linalg", Options(engine="sdpa_fwd_sm90"))
        (function,) = structure.fusion_functions(work.module)
        return AttentionRegion(Region.of(function)).score_steps.may_be_far


def slope(p, dims=(1, 2, 1, 1)):
    return p.g.tensor(list(dims), name="slope", data_type="FLOAT")


def distance(p, s):
    return p.integer("sub", p.column(s), p.row(s))


ORDINARY = {
    "a number of each head times a distance": lambda p, s: p.g.mul(slope(p), distance(p, s)),
    "a number of all heads": lambda p, s: p.g.mul(distance(p, s), slope(p, (1, 1, 1, 1))),
    "a computed number of each head": lambda p, s: p.g.mul(
        p.g.exp(p.g.mul(p.index(s, 1), 20.0)), distance(p, s)
    ),
    "a small multiple of a distance": lambda p, s: p.g.mul(p.g.min(distance(p, s), 3), 1e4),
    "tanh of what is in memory": lambda p, s: p.g.mul(p.g.tanh(slope(p)), 1000.0),
    "infinity": lambda p, s: p.g.binary_select(
        0.0, graphs.LOW, p.integer("cmp_le", p.column(s), p.row(s))
    ),
    "a test": lambda p, s: p.g.mul(p.flag(p.g.cmp_gt(slope(p), 1.0)), 7.0),
}
FAR = {
    "a number in memory": lambda p, s: slope(p),
    "its part below 0": lambda p, s: p.g.min(p.g.mul(slope(p), distance(p, s)), 0.0),
    "its magnitude": lambda p, s: p.g.abs(p.g.mul(slope(p), distance(p, s))),
    "a number of each row": lambda p, s: p.g.mul(slope(p, (1, 2, 64, 1)), distance(p, s)),
    "a place in memory": lambda p, s: p.g.mul(
        p.integer("sub", p.column(s), p.g.tensor([1, 1, 1, 1], name="at", data_type="INT32")), 0.5
    ),
    "a steep distance": lambda p, s: p.g.mul(distance(p, s), 1e9),
    "a large place": lambda p, s: p.g.mul(
        slope(p), p.integer("mul", p.column(s), p.integer("add", p.row(s), 2**20))
    ),
    "a quotient": lambda p, s: p.g.div(1.0, p.column(s)),
    "a logarithm": lambda p, s: p.g.log(p.column(s)),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_numbers(name):
    assert not may_be_far(ORDINARY[name])


@pytest.mark.parametrize("name", FAR)
def test_numbers_of_any_size(name):
    assert may_be_far(FAR[name])
