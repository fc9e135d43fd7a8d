"""The fused cases' graphs, without torch: what they compute, and who takes them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import dnnc
from benchmarks.graphs import build as graphs
from benchmarks.graphs.fused import BUILDERS, EPSILON
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.target import of

SMALL = {
    "swiglu": {"m": 6, "n": 24, "k": 16},
    "softmax": {"m": 6, "n": 24, "k": 16},
    "rms_norm": {"m": 6, "n": 24, "k": 16},
    "grouped": {"e": 4, "t": 9, "n": 24, "k": 16},
}
LARGE = {
    "swiglu": {"m": 4096, "n": 14336, "k": 4096},
    "softmax": {"m": 65536, "n": 192, "k": 1024},
    "rms_norm": {"m": 65536, "n": 192, "k": 1024},
    "grouped": {"e": 64, "t": 16384, "n": 4096, "k": 4096},
}
FIRST = [0, 4, 4, 7]


def built(kind, p):
    """(OperationGraph, name -> tensor)."""
    graph = dnnc.pygraph(kind, **graphs.options(dnnc))
    made = graphs.build(dnnc, graph, SimpleNamespace(kind=kind, p=p))
    return graph.graph.finalize(), made.tensors


def drawn(tensors):
    """Small inputs by name, rounded to bf16."""
    rng = np.random.default_rng(7)
    found = {}
    for name, tensor in tensors.items():
        shape = [size.constant for size in tensor.dims]
        if name == "first":
            found[name] = np.array(FIRST, np.int32).reshape(shape)
        elif name != "y":
            found[name] = rng.uniform(-1, 1, shape).astype(dtypes.bf16.numpy)
    return found


def expected(kind, s):
    """y by NumPy, of inputs in float64."""
    if kind == "swiglu":
        gate = s["a"] @ s["g"]
        return gate / (1 + np.exp(-gate)) * (s["a"] @ s["u"])
    if kind == "grouped":
        ends = [*FIRST[1:], s["token"].shape[1]]
        rows = [s["token"][0, a:b] @ w for a, b, w in zip(FIRST, ends, s["weight"], strict=True)]
        return np.concatenate(rows)[None]
    c = s["a"] @ s["w"]
    if kind == "softmax":
        e = np.exp(c)
        return e / e.sum(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + EPSILON) * s["gamma"]


@pytest.mark.parametrize("kind", BUILDERS)
def test_graph_is_the_formula(kind):
    graph, tensors = built(kind, SMALL[kind])
    inputs = drawn(tensors)
    (y,) = dnnc.reference(graph, {tensors[n].uid: array for n, array in inputs.items()}).values()
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    exact = expected(kind, wide)
    assert y.shape == exact.shape
    error = np.linalg.norm(y.astype(np.float64) - exact) / np.linalg.norm(exact)
    assert error < 2.0**-8


@pytest.mark.parametrize("kind", BUILDERS)
def test_weights_are_stored_as_n_by_k(kind):
    _, tensors = built(kind, SMALL[kind])
    for name in tensors.keys() & {"g", "u", "w", "weight"}:
        assert [stride.constant for stride in tensors[name].strides] == [24 * 16, 1, 16]


@pytest.mark.parametrize("kind", BUILDERS)
def test_the_hopper_engine_takes_the_whole(kind):
    graph, _ = built(kind, LARGE[kind])
    (whole,) = partition(graph, [graph.live_ops])
    assert not engine_named("matmul_sm90").supports(whole, of("sm_90a"))
    (choice,) = heuristics.best_config(graph, of("sm_90a")).choices
    assert choice.engine.name == "matmul_sm90"
