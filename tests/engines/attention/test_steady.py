"""Attention to many keys whose scores are large and nearly equal: what earlier blocks gave stays.

Where a row's reference does not move, its sums are multiplied by 1 and by nothing near it, block
after block; where it does, by what their exponentials are relative to.
"""

import ml_dtypes
import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.reference import reference
from dnnc.options import Options
from tests.support import machine

KEYS = 4096
HOPPER = {"TILE_M": 128, "TILE_N": 128, "STAGES": 2, "SCHED_POLICY": 0}
AMPERE = {"TILE_M": 16, "TILE_N": 64, "STAGES": 4, "PACK_GQA": 0}
KERNELS = {
    "hopper, lazily": ("sdpa_fwd_sm90", "sm_90a", {**HOPPER, "KERNEL_CFG": 3}, 128),
    "hopper": ("sdpa_fwd_sm90", "sm_90a", {**HOPPER, "KERNEL_CFG": 0}, 64),
    "ampere": ("sdpa_sm80", "sm_80", {**AMPERE, "SPLIT_KV": 1}, 16),
    "ampere, in parts": ("sdpa_sm80", "sm_80", {**AMPERE, "SPLIT_KV": 4}, 16),
}
FORMATS = {dtypes.f16: (np.float16, 2.0**-11), dtypes.bf16: (ml_dtypes.bfloat16, 2.0**-8)}


def drawn(logits, width, type_, seed=0):
    """Q, K, V: scores near `logits`; V grows along the keys, which weights that fade would show."""
    rng = np.random.default_rng(seed + machine.current().seed)
    size = (logits / width**0.5) ** 0.5
    q = size * (1 + 0.02 * rng.standard_normal((1, 1, 8, width)))
    k = size * np.ones((1, 1, KEYS, width))
    k[..., ::2] *= 1 + 1e-3 * np.sin(np.arange(KEYS))[:, None]
    v = np.linspace(0, 2, KEYS)[:, None] * np.ones((1, 1, 1, width))
    return [value.astype(FORMATS[type_][0]) for value in (q, k, v)]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("logits", [1e3, pytest.param(1e4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("type_", FORMATS, ids=str)
@pytest.mark.parametrize(
    "kernel",
    [pytest.param(name, marks=pytest.mark.sm90 if "hopper" in name else ()) for name in KERNELS],
)
def test_large_scores_of_many_blocks(kernel, type_, logits):
    engine, target, knobs, width = KERNELS[kernel]
    g = dnnc.pygraph(io_data_type=type_, intermediate_data_type=dtypes.f32)
    q, k, v = (g.tensor([1, 1, rows, width]) for rows in (8, KEYS, KEYS))
    o, stats = g.sdpa(q, k, v, attn_scale=width**-0.5, generate_stats=True)
    o.set_output()
    stats.set_output().set_data_type(dtypes.f32)
    graph = g.graph.finalize()
    plan = compile_graph(graph, target, Options(engine=engine, knobs=tuple(knobs.items())))
    inputs = dict(zip((q.uid, k.uid, v.uid), drawn(logits, width, type_), strict=True))
    found = machine.current().run(plan, inputs, sizes={}, seed=0, partial=())
    exact = reference(graph, inputs, sizes={}, exact_outputs=True)
    assert error(found[o.uid], exact[o.uid]) < 1.25 * FORMATS[type_][1]
    # Of f16 a device's tensor cores cut the sums that scores are.
    units = 16 if machine.current().cut else 4
    assert error(found[stats.uid], exact[stats.uid]) < units * 2.0**-24


def error(found, exact):
    difference = np.asarray(found, np.float64) - np.asarray(exact, np.float64)
    return np.linalg.norm(difference) / np.linalg.norm(exact)
