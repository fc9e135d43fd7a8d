"""Every wait and barrier of a kernel matters: without it, some schedule of 20 goes wrong."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.reference import reference
from dnnc.interpreter import InterpreterError, parse
from dnnc.interpreter.plans import run_plan
from dnnc.options import Options
from tests.support.checked import random_inputs
from tests.support.compare import assert_close

from .test_matmul_sm80 import new_graph as matmul_graph
from .test_pointwise import new_graph
from .test_reduction import reduce

SEEDS = 20
WAITS = ("bar.sync", "cp.async.wait_group", "cp.async.commit_group")

# The last wait drains groups that are empty by then.  It stands so that no later change of the
# loop can leave a copy under way when the epilogue writes over the stages.
_DRAINED = "every group has been waited for when the loop ends"
# LLVM gives K = 0 a path of its own, on which nothing was copied.
_NO_TILES = "on the path of K = 0, where there is nothing to wait for"

# Kernel -> {(opcode, place from the end): why its absence can't be observed}.
UNOBSERVABLE = {
    "matmul": {("cp.async.wait_group", -1): _DRAINED},
    "matmul_through_registers": {
        ("cp.async.wait_group", -1): _DRAINED,
        ("cp.async.commit_group", -1): _NO_TILES,
    },
}


def matmul():
    g = matmul_graph(dtypes.f16)
    x, w, bias = g.tensor([1, 40, 200]), g.tensor([1, 200, 72]), g.tensor([1, 1, 72])
    g.bias(g.matmul(x, w), bias).set_output()
    return g, {"TILE_M": 32, "TILE_N": 64, "TILEK": 32, "STAGES": 3}


def matmul_through_registers():
    g = matmul_graph(dtypes.f16)
    x, w, scale = g.tensor([1, 40, 200]), g.tensor([1, 200, 72]), g.tensor([1, 1, 200])
    g.matmul(g.mul(x, scale).set_data_type(dtypes.f16), w).set_output()
    return g, {"TILE_M": 32, "TILE_N": 64, "TILEK": 32, "STAGES": 2}


def reduction_of_rows():
    g = new_graph(dtypes.f32)
    reduce(g, g.tensor([3, 2000]), "add", (1,)).set_output()
    return g, {"TILE_ROWS": 256, "SPLIT_K_SLC": 1}


def reduction_of_columns():
    g = new_graph(dtypes.f32)
    reduce(g, g.tensor([200, 64]), "add", (0,)).set_output()
    return g, {"TILE_ROWS": 8, "SPLIT_K_SLC": 1}


CASES = {
    "matmul": ("matmul_sm80", matmul),
    "matmul_through_registers": ("matmul_sm80", matmul_through_registers),
    "reduction_of_rows": ("reduction", reduction_of_rows),
    "reduction_of_columns": ("reduction", reduction_of_columns),
}


def goes_wrong(plan, module, inputs, expected, dtype):
    """Whether a schedule of the changed kernel fails or gives another result."""
    for seed in range(SEEDS):
        try:
            actual = run_plan(plan, inputs, seed=seed, module=module)
            for uid, wanted in expected.items():
                assert_close(actual[uid], wanted, dtype, slack=16.0)
        except (InterpreterError, AssertionError):
            return True
    return False


@pytest.mark.parametrize("name", CASES)
def test_each_wait_is_needed(name):
    engine, build = CASES[name]
    g, knobs = build()
    graph = g.graph.finalize()
    options = Options(engine=engine, knobs=tuple(knobs.items()))
    plan = compile_graph(graph, "sm_80", options)
    inputs = random_inputs(graph, {}, low=0.25)
    expected = reference(graph, inputs, exact_outputs=True)
    dtype = graph.outputs[0].type
    module = parse(plan.blobs[1].decode())
    kernel = plan.programs[0].kernels[0].name
    assert not goes_wrong(plan, module, inputs, expected, dtype)
    survivors = []
    found = 0
    for opcode in WAITS:
        places = module.function(kernel).indices(opcode)
        found += len(places)
        for number, place in enumerate(places):
            changed = module.without(kernel, place)
            if not goes_wrong(plan, changed, inputs, expected, dtype):
                survivors.append((opcode, number - len(places)))
    assert found
    assert set(survivors) == set(UNOBSERVABLE.get(name, {}))


def test_the_unchanged_kernel_is_what_the_plan_runs():
    g, knobs = matmul()
    graph = g.graph.finalize()
    options = Options(engine="matmul_sm80", knobs=tuple(knobs.items()))
    plan = compile_graph(graph, "sm_80", options)
    inputs = random_inputs(graph, {})
    results = [
        run_plan(plan, inputs, module=module) for module in (None, parse(plan.blobs[1].decode()))
    ]
    for uid, array in results[0].items():
        np.testing.assert_array_equal(array, results[1][uid])
