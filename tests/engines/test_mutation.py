"""Every wait and barrier of a kernel matters: without it, some schedule of 20 goes wrong, and with
it that schedule is right."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.interpreter import parse, plans
from dnnc.interpreter.plans import run_plan
from dnnc.options import Options
from tests.attention_graphs import Pattern
from tests.dialect.attention_gradient_examples import gradient as gradient_of_attention
from tests.dialect.norm_examples import peer_reduction
from tests.support.checked import random_inputs

from .conv.convs import image
from .conv.test_pattern import new_graph as conv_graph
from .elementwise.test_pointwise import new_graph
from .elementwise.test_reduction import reduce
from .product.test_matmul_sm80 import new_graph as matmul_graph
from .removed_waits import (
    DRAINED,
    WAITS,
    removed,
    survivors,
)
from .rows.test_grid import batchnorm

# LLVM gives K = 0 a path of its own, on which nothing was copied.
_NO_TILES = "on the path of K = 0, where there is nothing to wait for"

# Kernel -> {(opcode, place from the end): why its absence can't be observed}.
UNOBSERVABLE = {
    "attention_gradient": {("cp.async.wait_group", -1): DRAINED},
    "attention": {("cp.async.wait_group", -1): DRAINED},
    "attention_of_wide_heads": {("cp.async.wait_group", -1): DRAINED},
    "matmul": {("cp.async.wait_group", -1): DRAINED},
    "matmul_through_registers": {
        ("cp.async.wait_group", -1): DRAINED,
        ("cp.async.commit_group", -1): _NO_TILES,
    },
    "convolution": {("cp.async.wait_group", -1): DRAINED},
    "convolution_of_elements": {
        ("cp.async.wait_group", -1): DRAINED,
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


def convolution():
    """Copies of X and of W."""
    g = conv_graph()
    g.conv_fprop(image(g, [1, 24, 5, 6]), image(g, [40, 24, 3, 3]), padding=[1, 1]).set_output()
    return g, {"TILE_M": 32, "TILE_N": 64, "TILEK": 32, "STAGES": 3}


def convolution_of_elements():
    """Three channels: X goes straight into shared memory, W comes by copies."""
    g = conv_graph()
    x, w = image(g, [1, 3, 6, 6]), image(g, [40, 3, 5, 4])
    g.conv_fprop(x, w, padding=[2, 2]).set_output()
    return g, {"TILE_M": 32, "TILE_N": 64, "TILEK": 32, "STAGES": 2}


def reduction_of_rows():
    g = new_graph(dtypes.f32)
    reduce(g, g.tensor([3, 2000]), "add", (1,)).set_output()
    return g, {"TILE_ROWS": 256, "SPLIT_K_SLC": 1}


def reduction_of_columns():
    g = new_graph(dtypes.f32)
    reduce(g, g.tensor([200, 64]), "add", (0,)).set_output()
    return g, {"TILE_ROWS": 8, "SPLIT_K_SLC": 1}


def depthwise():
    """A block of two warps' channels, whose filter comes to shared memory first."""
    g = matmul_graph(dtypes.f32)
    x = g.tensor([1, 64, 5, 6], [64 * 30, 1, 64 * 6, 64])
    g.conv_fprop(x, g.tensor([64, 1, 3, 3]), padding=[1, 1]).set_output()
    return g, {"LOAD_SIZE": 16, "TILE_ROWS": 1, "TILE_COLS": 1}


def attention():
    """Five blocks of keys, the last of them in part; the queries go to registers."""
    pattern = Pattern(batch=(1, 1), queries=32, keys=70, depth=24, width=16, statistics=None)
    return pattern.g, {"TILE_M": 32, "TILE_N": 16, "STAGES": 3, "PACK_GQA": 0, "SPLIT_KV": 1}


def attention_of_wide_heads():
    """Queries stay in shared memory."""
    pattern = Pattern(batch=(1, 1), queries=32, keys=40, depth=256, statistics=None)
    return pattern.g, {"TILE_M": 32, "TILE_N": 16, "STAGES": 2, "PACK_GQA": 0, "SPLIT_KV": 1}


def attention_gradient():
    """Tiles of keys: three blocks of queries of two heads that share them."""
    heads = {"batch": 1, "heads": 2, "kv_heads": 1, "depth": 24, "value_depth": 16}
    build = gradient_of_attention({"attn_scale": 0.3}, io=dtypes.f16, rows=40, columns=40, **heads)
    return build(), {"TILE_M": 32, "TILE_N": 16, "STAGES": 2}


CASES = {
    "attention": ("sdpa_sm80", attention),
    "attention_gradient": ("sdpa_bwd_sm80", attention_gradient),
    "attention_of_wide_heads": ("sdpa_sm80", attention_of_wide_heads),
    "matmul": ("matmul_sm80", matmul),
    "matmul_through_registers": ("matmul_sm80", matmul_through_registers),
    "convolution": ("conv_sm80", convolution),
    "convolution_of_elements": ("conv_sm80", convolution_of_elements),
    "reduction_of_rows": ("reduction", reduction_of_rows),
    "reduction_of_columns": ("reduction", reduction_of_columns),
    "depthwise": ("conv_depthwise", depthwise),
}


# The second has the loop of matmul_through_registers.
_LONG = ("attention_of_wide_heads", "convolution_of_elements")


@pytest.mark.rotating
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in _LONG else ()) for n in CASES]
)
def test_each_wait_is_needed(name):
    engine, build = CASES[name]
    suffix = "_dv_dk" if name == "attention_gradient" else ""
    found, alive = survivors(build, engine, "sm_80", lambda *of: removed(*of, WAITS), suffix)
    assert found
    assert alive == set(UNOBSERVABLE.get(name, {}))


# ---- blocks and devices that meet


@pytest.mark.in_turn
def test_each_wait_of_grid_is_needed(monkeypatch):
    """Two meetings of three blocks."""
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 3})

    def build():
        knobs = {"TILE_ROWS": 64, "ARRAY_SIZE_PER_THREAD": 1, "STAGES": 4}
        return batchnorm(2, 16, 4, 8, io="f32", running=False), knobs

    found, alive = survivors(build, "grid", "sm_90a", lambda *of: removed(*of, MEETING))
    assert {opcode for (opcode, _), _ in found} >= {"bar", "red"}
    assert not alive


@pytest.mark.in_turn
def test_each_wait_of_peers_is_needed():
    """The interpreter has one device: what others see of it, and it of them, can't be observed."""
    found, alive = survivors(
        lambda: (peer_reduction((1, 300, 1), 2, 1)(), {}), "peers", "sm_80",
        lambda *of: removed(*of, MEETING),
    )  # fmt: skip
    assert {opcode for (opcode, _), _ in found} == {"bar", "fence", "red", "ld.acquire"}
    assert alive == {("bar", -2), ("bar", -1), ("fence", -2), ("fence", -1)}


MEETING = ("bar", "fence", "red", "ld.acquire", "cp.async.wait_group", "cp.async.commit_group")


@pytest.mark.in_turn
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
