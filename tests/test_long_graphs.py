"""Graphs of hundreds of operations: no recursion over their depth, work that grows with their
number, and kernels that equal fusions share."""

import cProfile
import inspect
import json
import pstats
import sys
import time
from collections import Counter

import pytest

import dnnc
from dnnc import compiler
from dnnc.choosing import heuristics, splitting
from dnnc.choosing.declined import MOST_OPS, MOST_REDUCTIONS
from dnnc.dialect import dnn
from dnnc.dialect.fusion import Fusion, partition
from dnnc.dialect.fusion_key import key_of
from dnnc.dialect.json_form import from_json
from dnnc.engines.product.matmul_sm90 import MatmulSm90Engine
from dnnc.options import Options
from dnnc.target import of
from tests import long_graphs
from tests.support.checked import check

_FRAMES = 130  # that a compilation may have on the stack, whatever the graph's depth
_DEPTH = 150


def to_ptx(graph, target, options=Options(most_variants=1)):  # noqa: B008
    with dnn.context():
        return compiler.advance(compiler.start(graph, of(target)), "ptx", options).ptx


@pytest.fixture
def shallow():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + _FRAMES)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.rotating
@pytest.mark.parametrize("draw", long_graphs.DEEP)
def test_no_recursion_over_the_depth(draw, shallow):
    graph = draw(_DEPTH).graph.finalize()
    assert ".entry" in to_ptx(graph, "sm_90a")
    text = graph.canonical_text()
    assert from_json(json.loads(text)).finalize().canonical_text() == text


def calls(function):
    profile = cProfile.Profile()
    profile.runcall(function)
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


@pytest.mark.rotating
@pytest.mark.parametrize(
    "draw",
    [long_graphs.chain, long_graphs.ladder, long_graphs.tree, long_graphs.outputs,
     long_graphs.reduced],
)  # fmt: skip
def test_work_grows_with_the_operations(draw):
    """Four times the operations take four times the calls, not sixteen times."""
    to_ptx(draw(50).graph.finalize(), "sm_90")
    few, many = (calls(lambda n=n: to_ptx(draw(n).graph.finalize(), "sm_90")) for n in (50, 200))
    assert many < 5 * few


def test_searches_grow_with_the_layers(monkeypatch):
    """Engines are asked of equal fusions once, and few steps read the whole graph."""
    counts = Counter()
    original = splitting.partition
    monkeypatch.setattr(
        splitting, "partition", lambda *a: (counts.update(["partition"]), original(*a))[1]
    )
    taken = MatmulSm90Engine.supports

    def supports(self, fusion, target):
        counts["supports"] += 1
        return taken(self, fusion, target)

    monkeypatch.setattr(MatmulSm90Engine, "supports", supports)
    found = []
    for count in (2, 8):
        counts.clear()
        heuristics.best_config(long_graphs.layers(count).graph.finalize(), of("sm_90a"))
        found.append(dict(counts))
    assert found[1]["partition"] < 20
    assert found[1]["supports"] < 3 * found[0]["supports"]


def test_equal_layers_share_kernels(monkeypatch):
    emitted = Counter()
    original = MatmulSm90Engine.emit

    def emit(self, region, knobs, tile, output):
        emitted["products"] += 1
        original(self, region, knobs, tile, output)

    monkeypatch.setattr(MatmulSm90Engine, "emit", emit)
    graph = long_graphs.layers(4).graph.finalize()
    ptx = to_ptx(graph, "sm_90a")
    # The last product gives no second output: what a layer after it reads.
    assert emitted["products"] <= 3
    assert ptx.count(".entry") <= 6


def test_shared_kernels_have_tensors_of_their_own():
    """Each product of a chain reads its own weight, and what the one before made."""
    g = dnnc.pygraph("products", io_data_type="f16", intermediate_data_type="f16")
    value = g.tensor([1, 32, 32], name="x")
    weights = [g.tensor([1, 32, 32], name=f"w{i}") for i in range(3)]
    for w in weights:
        value = g.relu(g.matmul(value, w))
    value.set_output()
    (program,) = check(g, target="sm_80").programs
    launched = [step.launch.kernel for step in program.variants[0].steps]
    assert len(launched) == 3
    assert len(program.kernels) == 1


def test_fusions_are_equal_up_to_uids_and_names():
    def fusion(name, *, bias=1.0, reads_twice=False):
        g = dnnc.pygraph(name, io_data_type="f16", intermediate_data_type="f32")
        if name == "other":
            g.tensor([5], name="unused")
        x = g.tensor([4, 8], name=f"{name} x")
        other = x if reads_twice else g.tensor([4, 8])
        g.add(g.mul(x, other), bias).set_output()
        graph = g.graph.finalize()
        return partition(graph, [graph.live_ops])[0]

    assert key_of(fusion("one")) == key_of(fusion("other"))
    assert key_of(fusion("one")) != key_of(fusion("one", bias=-0.0))
    assert key_of(fusion("one", bias=0.0)) != key_of(fusion("one", bias=-0.0))
    assert key_of(fusion("one")) != key_of(fusion("one", reads_twice=True))
    whole = fusion("one")
    stored = Fusion(0, whole.ops, tuple(t for op in whole.ops for t in op.results))
    assert key_of(whole) != key_of(stored)


def test_fusions_are_no_larger_than_kernels_take():
    graph = long_graphs.chain(2 * MOST_OPS + 10).graph.finalize()
    config = heuristics.best_config(graph, of("sm_90"))
    assert [len(choice.fusion.ops) for choice in config.choices] == [MOST_OPS, MOST_OPS, 10]
    assert "operations" in config.split_reason


def test_a_tree_is_split_at_few_tensors():
    """Operations are grouped with those that they need, not with others as far from the end."""
    config = heuristics.best_config(long_graphs.tree(900).graph.finalize(), of("sm_90"))
    assert len(config.choices) == 4
    assert sum(len(choice.fusion.outputs) for choice in config.choices) < 30


def test_fusions_without_room_are_not_joined():
    """Work after the last reduction that a kernel takes is in another one with its own."""
    config = heuristics.best_config(long_graphs.reduced(200).graph.finalize(), of("sm_90"))
    counts = [len(choice.fusion.with_role("reduction")) for choice in config.choices]
    assert max(counts) == MOST_REDUCTIONS
    assert len(counts) < 8


@pytest.mark.registers
def test_many_outputs_do_not_spill():
    """A hundred values that wait in registers to be stored would be 400 registers."""
    plan = compiler.compile_graph(long_graphs.outputs(100).graph, "sm_90")
    (kernel,) = plan.programs[0].kernels
    assert kernel.spill_store_bytes == 0


def test_outputs_that_are_stored_one_by_one_are_right():
    g = dnnc.pygraph("stored", io_data_type="f16", intermediate_data_type="f32")
    value = g.tensor([3, 72])
    for i in range(60):
        value = g.add(value, 0.1 * i).set_output()
    check(g, target="sm_80")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "count", "most"),
    [
        (long_graphs.chain, 200, 2), (long_graphs.chain, 2000, 30), (long_graphs.ladder, 2000, 30),
        (long_graphs.tree, 2000, 15), (long_graphs.layers, 16, 6), (long_graphs.layers, 24, 9),
        (long_graphs.outputs, 200, 2), (long_graphs.outputs, 2000, 30),
        (long_graphs.reduced, 200, 2), (long_graphs.reduced, 2000, 30),
    ],
)  # fmt: skip
def test_processor_seconds(draw, count, most):
    compiler.compile_graph(draw(10 if count >= 200 else 1).graph.finalize(), "sm_90a")
    graph = draw(count).graph.finalize()
    began = time.process_time()
    compiler.compile_graph(graph, "sm_90a")
    assert time.process_time() - began < most
