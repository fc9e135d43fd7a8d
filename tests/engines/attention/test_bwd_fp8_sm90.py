"""Engine sdpa_bwd_sm90 on operands of fp8: results, scales and amax against the reference."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.options import Options
from dnnc.rounding import widen
from tests.dialect.attention_examples import drawn, lengths
from tests.dialect.attention_gradient_examples import gradient_fp8
from tests.fp8_gradients import run
from tests.support import machine
from tests.support.checked import random_inputs

pytestmark = pytest.mark.sm90
F16, E5M2 = dtypes.f16, dtypes.f8e5m2
CASES = {
    "causal": gradient_fp8(
        {"attn_scale": 0.25, "use_causal_mask": True}, batch=1, heads=2, kv_heads=1, rows=70,
        columns=133, depth=72, value_depth=40, out=F16,
    ),
    # Two parts of dK and of dV, three blocks of queries; bytes stored 16 at a time.
    "whole": gradient_fp8(
        {"attn_scale": 0.25}, batch=1, heads=1, kv_heads=1, rows=130, columns=70, depth=128,
        value_depth=128,
    ),
    # Half a tile of keys is past the last one.
    "half": gradient_fp8(
        {"attn_scale": 0.25}, batch=1, heads=2, kv_heads=2, rows=16, columns=64, depth=24,
        value_depth=24, out=F16,
    ),
    "long": gradient_fp8({"attn_scale": 0.25}, rows=33, columns=66, depth=136, value_depth=40),
    "padding": gradient_fp8(
        lambda g: {**lengths(g), "use_deterministic_algorithm": True}, rows=33, columns=18, out=E5M2
    ),
    "dropout": gradient_fp8(
        lambda g: {**lengths(g), "attn_scale": 0.25, "dropout": drawn(g)["dropout"]}, rows=40,
        columns=68, depth=64, value_depth=64, out=F16,
    ),
}  # fmt: skip


def run_sm90(build, **more):
    return run(build, "sdpa_bwd_sm90", "sm_90a", 3, **more)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    run_sm90(CASES[name])


def in_steps(of_p, of_ds):
    """The gradient of attention in its steps, operands of E5M2.  of_p, of_ds: types of P and dS."""
    g = dnnc.pygraph("steps", io_data_type=E5M2, intermediate_data_type="f32")
    q, k, v, o, do = (g.tensor([1, 1, 40, 64], name=name) for name in ("q", "k", "v", "o", "do"))
    stats = g.tensor([1, 1, 40, 1], data_type="f32", name="stats")

    def transposed(x):
        return g.transpose(x, [0, 1, 3, 2]).set_data_type(x.get_data_type())

    p = g.exp(g.sub(g.mul(g.matmul(q, transposed(k)), 0.125), stats))
    p8 = g.identity(p).set_data_type(of_p)
    delta = g.reduction(g.mul(do, o), mode="ADD").set_dim([1, 1, 40, 1])
    ds = g.mul(g.mul(p, g.sub(g.matmul(do, transposed(v)), delta)), 0.125)
    ds8 = g.identity(ds).set_data_type(of_ds)
    made = g.matmul(ds8, k), g.matmul(transposed(ds8), q), g.matmul(transposed(p8), do)
    types = F16, E5M2, dtypes.f8e4m3
    for tensor, name, kind in zip(made, ("dq", "dk", "dv"), types, strict=True):
        tensor.set_output().set_data_type(kind).set_name(name)
    return g


@pytest.mark.in_turn
def test_weights_of_another_type_than_operands():
    """P and dS multiplied as what they are, results of fp8 without a scale; compared with the
    engine that widens operands."""
    graph = in_steps(dtypes.f8e4m3, dtypes.f8e4m3).graph.finalize()
    given, where = random_inputs(graph, {}), machine.current()
    (stats,) = (t.uid for t in graph.inputs if t.name == "stats")
    given[stats] = np.full_like(given[stats], 5.0)
    found = {}
    for engine in ("sdpa_bwd_sm90", "sdpa_bwd_sm80"):
        found[engine] = where.run(compile_graph(graph, "sm_90a", Options(engine=engine)), given)
    for tensor in graph.outputs:
        actual, exact = (widen(made[tensor.uid]) for made in found.values())
        assert np.linalg.norm(actual - exact) < 0.02 * np.linalg.norm(exact), tensor.name
