"""How much work choosing is: counts of calls, which no other load on the machine changes.

From a process's second graph on, matmul + bias + GELU is validated and its configs ranked in a few
milliseconds; what graphs that differ in sizes have in common is not found again.
"""

from __future__ import annotations

import cProfile
import pstats
from collections import Counter
from collections.abc import Callable

import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.choosing.variants import guarded_configs
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.engines.product import knobs_sm90
from dnnc.engines.product.matmul_sm80 import MatmulSm80Engine
from dnnc.engines.product.matmul_sm90 import MATMUL_SM90, MatmulSm90Engine
from dnnc.expr import assuming
from dnnc.target import of


def graph(m, n, k, target):
    g = dnnc.pygraph(target=target, io_data_type="bf16", intermediate_data_type="f32")
    x, w = g.tensor([1, m, k]), g.tensor([1, k, n], [n * k, 1, k])
    g.gelu(g.bias(g.matmul(x, w), g.tensor([1, 1, n]))).set_output()
    return g


def ranked(g):
    g.validate()
    g.build_operation_graph()
    g.create_execution_plans(["A"])
    g.check_support()


def calls(function: Callable[[], object]) -> int:
    """Calls of Python and built-in functions."""
    profile = cProfile.Profile()
    profile.runcall(function)
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


@pytest.mark.parametrize(("target", "most"), [("sm_90a", 22_000), ("sm_90", 13_100)])
def test_second_graph(target, most):
    ranked(graph(512, 1536, 768, target))
    assert calls(lambda: ranked(graph(1024, 4096, 2048, target))) < most


def test_copies_of_a_gradient_are_chosen_once():
    """The filters' gradient of images with channels first chooses them once, not by candidate."""
    g = dnnc.pygraph(target="sm_90a", io_data_type="f16", intermediate_data_type="f32")
    n, h, w = (dnnc.Dim(name, max=64) for name in "NHW")
    x, dy = g.tensor([n, 16, h, w]), g.tensor([n, 24, h, w])
    dw = g.conv_wgrad(image=x, loss=dy, padding=1, stride=1, dilation=1)
    dw.set_output().set_dim([24, 16, 3, 3])
    assert calls(lambda: ranked(g)) < 500_000


def test_copies_are_predicted_for_the_sizes_that_are_assumed():
    """Whatever sizes were asked about before."""

    def fusion():
        g = dnnc.pygraph(target="sm_90a", io_data_type="f16", intermediate_data_type="f32")
        n = dnnc.Dim("N", max=65536)
        x, dy = (g.tensor([n, 64, 28, 28]) for _ in range(2))
        g.conv_wgrad(image=x, loss=dy, padding=1, stride=1, dilation=1).set_output().set_dim(
            [64, 64, 3, 3]
        )
        return partition(g.graph.finalize(), [g.graph.live_ops])[0]

    engine, target = engine_named("conv_wgrad_sm90"), of("sm_90a")
    first = fusion()
    knobs = engine.candidates(first, target)[0]

    def seconds(fusion, n):
        with assuming({"N": n}):
            return engine.predict(fusion, knobs, target).seconds

    seconds(first, 4096)
    assert seconds(first, 8) == seconds(fusion(), 8)


@pytest.fixture
def counts(monkeypatch):
    """Calls by name, of what the two engines are asked."""
    found = Counter()

    def count(owner, name):
        original = getattr(owner, name)

        def counted(*args, **kwargs):
            found[f"{owner.__name__}.{name}"] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    for kind in (MatmulSm80Engine, MatmulSm90Engine):
        count(kind, "predict")
    count(knobs_sm90, "_apart_from_smem")
    knobs_sm90.legal_choices.cache_clear()
    return found


def test_each_candidate_is_predicted_once(counts):
    g = graph(256, 1024, 512, "sm_90a")
    ranked(g)
    engines = Counter(config.choices[0].engine.name for config in g._planned().configs)
    assert counts["MatmulSm90Engine.predict"] == engines["matmul_sm90"]
    assert counts["MatmulSm80Engine.predict"] == engines["matmul_sm80"]


def test_knobs_are_judged_once_for_all_sizes(counts):
    ranked(graph(512, 1536, 768, "sm_90a"))
    before = counts["dnnc.engines.product.knobs_sm90._apart_from_smem"]
    assert before
    ranked(graph(4096, 3072, 2048, "sm_90a"))
    assert counts["dnnc.engines.product.knobs_sm90._apart_from_smem"] == before
    ranked(graph(16, 3072, 2048, "sm_90a"))  # few rows: the transpose of C is looked at, too
    few = counts["dnnc.engines.product.knobs_sm90._apart_from_smem"]
    assert few > before
    ranked(graph(32, 4096, 4096, "sm_90a"))
    assert counts["dnnc.engines.product.knobs_sm90._apart_from_smem"] == few


def test_configs_for_ranges_of_a_symbol():
    """Some 1,400 predictions, at eight sizes.

    They are counted when they are made again: what the first time finds depends on the graphs that
    the process has seen before.
    """
    tokens = dnnc.Dim("tokens", max=65536)
    g = graph(tokens, 1536, 384, "sm_90a").graph.finalize()
    target = of("sm_90a")
    best = heuristics.best_config(g, target)
    guarded_configs(g, target, best)
    assert calls(lambda: guarded_configs(g, target, best)) < 129_000


def test_what_a_fusion_remembers_is_of_the_sizes_that_are_assumed():
    tokens = dnnc.Dim("tokens", max=65536)
    g = graph(tokens, 1536, 384, "sm_90a").graph.finalize()
    (fusion,) = partition(g, [g.live_ops])
    target = of("sm_90a")
    (knobs, *_) = MATMUL_SM90.candidates(fusion, target)
    seconds = []
    for size in (65536, 16, 65536):
        with assuming({"tokens": size}):
            seconds.append(MATMUL_SM90.predict(fusion, knobs, target).seconds)
    assert seconds[0] == seconds[2] > 2 * seconds[1]
