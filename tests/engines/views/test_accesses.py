"""How a fusion's inputs are read is what the region says that it is lowered to."""

import pytest

from dnnc import compiler
from dnnc.codegen.region import Region
from dnnc.dialect import dnn, structure
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.engines.views import accesses
from dnnc.options import Options
from dnnc.target import of
from tests import random_graphs

from ...golden_ptx import sources

TARGET = of("sm_80")
EXAMPLES = [
    name
    for name in ("transpose-0", "slice-0", "slice-1", "reshape-1", "reshape-2", "concatenate-0",
                 "resample-0", "resample_backward-2", "reduction-0", "rng-0", "matmul-7")
    if f"example {name}" in sources()
]  # fmt: skip


def is_same(graph):
    """How many engines take the graph; all of them read it as their region says."""
    graph = graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    count = 0
    for name in ("pointwise", "resample", "fallback"):
        engine = engine_named(name)
        if engine.supports(fusion, TARGET):
            continue
        prepared, count = engine.rewritten(fusion), count + 1
        with dnn.context():
            work = compiler.start(graph, TARGET)
            compiler.advance(work, "linalg", Options(engine=name))
            (function,) = structure.fusion_functions(work.module)
            region = Region.of(function)
            places = list(region.arguments)
            reads = [(v, at) for v, at in region.reads() if v in region.arguments]
            wanted = [(places.index(v), at) for v, at in reads]
            apart = region.takes_apart((region.arguments[v], at) for v, at in reads)
        found = accesses.reads(prepared)
        made = [(prepared.inputs.index(t), at) for t, at in found]
        if name == "fallback":  # of sums, it does not matter which coordinates are 0
            made, wanted = (
                [(i, [("other",) if p == ("zero",) else p for p in at]) for i, at in each]
                for each in (made, wanted)
            )
        assert sorted(map(str, made)) == sorted(map(str, wanted)), name
        assert accesses.takes_apart(prepared, found) == apart, name
    return count


@pytest.mark.parametrize("name", EXAMPLES)
def test_reads_of_operations(name):
    graph = sources()[f"example {name}"]()
    while hasattr(graph, "graph"):
        graph = graph.graph
    assert is_same(graph)


@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("surface", ["pointwise", "fallback"])
def test_reads_of_random_graphs(surface, seed):
    assert is_same(random_graphs.draw_inside(seed, surface).graph)
