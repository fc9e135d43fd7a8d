"""Kernels of engines without a fence or a wait between CTAs, proxies or launches.

Each is refused by what is unordered, even where its results are right."""

import pytest

from dnnc.compiler import compile_graph
from dnnc.interpreter import InterpreterError, parse
from dnnc.interpreter.plans import run_plan
from dnnc.options import Options
from tests.support import multiprocessors
from tests.support.checked import random_inputs

from .conv.convs import around
from .conv.test_wgrad_sm90 import SMALL, gradient
from .conv.test_wgrad_sm90 import new_graph as wgrad_graph
from .removed_waits import removed
from .rows.test_grid import batchnorm
from .test_mutation_hopper import (
    ping_pong_with_a_residual,
    tiles_with_a_residual,
    weights_in_the_registers_of_consumers,
)
from .test_mutation_rows import rows_of_a_ring, rows_of_rings, rows_of_rings_of_warps


def built(build, engine, target="sm_90a"):
    """(the plan, its PTX, inputs)."""
    g, knobs = build()
    graph = g.graph.finalize()
    plan = compile_graph(graph, target, Options(engine=engine, knobs=tuple(knobs.items())))
    return plan, plan.blobs[1].decode(), random_inputs(graph, {}, low=0.25)


def said(plan, inputs, module, seeds=4):
    """Failures on some schedules; empty where nothing is wrong."""
    found = []
    for seed in range(seeds):
        try:
            run_plan(plan, inputs, seed=seed, module=module, watch_global=True)
        except InterpreterError as error:
            found.append(str(error))
    return " ".join(found)


READ_BY_LOADS = {
    "own rings": (rows_of_rings_of_warps, "rows"),
    "shared rings": (rows_of_rings, "rows"),
    "ring of a block": (rows_of_a_ring, "rows"),
    "residual": (tiles_with_a_residual, "matmul_sm90"),
    "residual in stages": (ping_pong_with_a_residual, "matmul_sm90"),
    "weights": (weights_in_the_registers_of_consumers, "matmul_sm90"),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", READ_BY_LOADS)
def test_reads_end_before_a_copy_writes_there(name, monkeypatch):
    """Without that fence each kernel is refused, by whichever copy comes first."""
    multiprocessors.few(monkeypatch, 2 if name.startswith(("own", "shared", "ring")) else 1)
    plan, text, inputs = built(*READ_BY_LOADS[name])
    module, kernel = parse(text), plan.programs[0].kernels[0].name
    assert not said(plan, inputs, module, 2)
    texts = [said(plan, inputs, m) for _, m in removed(module, kernel, ("fence.proxy",))]
    assert any("read it with no fence.proxy.async since" in text for text in texts)


def test_blocks_that_meet_release_and_acquire(monkeypatch):
    multiprocessors.few(monkeypatch, 4)
    plan, text, inputs = built(lambda: (batchnorm(4, 16, 8, 8), {}), "grid")
    assert not said(plan, inputs, parse(text), 2)
    for order in ("ld.acquire", "red.release"):
        weaker = f"{order.partition('.')[0]}.relaxed"
        assert order in text
        told = said(plan, inputs, parse(text.replace(order, weaker)))
        assert "wrote it, with no release and acquire between them" in told


def split_k():
    g = wgrad_graph()
    gradient(g, [2, 64, 9, 9], [64, 64, 1, 1], **around(0)).set_output()
    return g, {**SMALL, "SPLIT_K_BUF": 2}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("build", "engine"), [(rows_of_rings, "rows"), (split_k, "conv_wgrad_sm90")]
)
def test_kernels_of_partial_sums_wait_for_the_launch_before(build, engine, monkeypatch):
    multiprocessors.few(monkeypatch, 2)
    plan, text, inputs = built(build, engine)
    module = parse(text)
    waiting = [k.name for k in plan.programs[0].kernels
               if module.function(k.name).indices("griddepcontrol.wait")]  # fmt: skip
    (kernel,) = waiting
    ((_, changed),) = removed(module, kernel, ("griddepcontrol.wait",))
    assert not said(plan, inputs, module, 2)
    assert "a launch before wrote it, which may still run" in said(plan, inputs, changed)
