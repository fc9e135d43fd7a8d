"""The tests of engine sdpa_bwd_sm90, on the device, and random cases of larger sizes."""

import os

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.codegen.hopper import mbarrier
from dnnc.codegen.hopper.pipeline import Pipeline
from dnnc.compiler import compile_graph
from dnnc.target import WARP_THREADS
from tests.checked_gradient import EVERY_DEPTH, SM90, run_seed
from tests.dialect.attention_gradient_examples import gradient
from tests.engines.attention.test_bwd_lists import *  # noqa: F403
from tests.engines.attention.test_bwd_options import (  # noqa: F401
    test_drawn_masks,
    test_heads_whose_elements_are_apart,
    test_soft_cap_and_dropout,
)
from tests.engines.attention.test_bwd_sm90 import *  # noqa: F403
from tests.engines.attention.test_bwd_sm90 import CAUSAL, REPEATED, heads_of
from tests.support import machine

pytestmark = pytest.mark.sm90


@pytest.fixture(autouse=True)
def _every_lane_releases_its_stage(monkeypatch):
    """Where racecheck looks on.  A warp's first lane gives a stage back for all, after a barrier of
    both warpgroups; racecheck orders what a lane has read by its own arrivals alone."""
    if os.environ.get("DNNC_TEST_TOOL") != "racecheck":
        return
    make = Pipeline.make

    def release(ring, cursor, lane, blocks=1):
        assert blocks == 1
        mbarrier.arrive(ring.empty_barrier(cursor))

    monkeypatch.setattr(Pipeline, "release", release)
    monkeypatch.setattr(
        Pipeline, "make", lambda ring, makers, warps: make(ring, makers, warps * WARP_THREADS)
    )


@pytest.mark.parametrize("seed", range(100, 130))
def test_random_cases_of_larger_sizes(seed):
    run_seed(seed, 700, 6, SM90, EVERY_DEPTH)


@pytest.mark.parametrize("depth", [64, 128, 256])
@pytest.mark.parametrize("options", [REPEATED, {**CAUSAL, **REPEATED}], ids=["full", "causal"])
def test_fifty_runs_have_the_same_bits(options, depth):
    dims = heads_of(depth, heads=16, kv_heads=4, batch=2)
    graph = gradient(options, io=dtypes.bf16, rows=1100, columns=1100, **dims)().graph.finalize()
    plan = compile_graph(graph, "sm_90a")
    assert plan.programs[0].fusions[0].engine == "sdpa_bwd_sm90"
    random = np.random.default_rng(machine.current().seed)
    inputs = {
        t.uid: random.standard_normal([n.constant for n in t.shape]).astype(t.type.numpy)
        for t in graph.inputs
    }
    runs = [machine.current().run(plan, inputs) for _ in range(50)]
    for uid, first in runs[0].items():
        assert all(np.array_equal(run[uid].view(np.uint8), first.view(np.uint8)) for run in runs)
