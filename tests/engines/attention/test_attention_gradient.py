"""The gradient of attention as the kernels of several engines, in the interpreter: heads of other
sizes than one engine takes."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.target import of
from tests.attention_gradients import inputs_of, operands_of, past_the_lengths
from tests.dialect.attention_examples import finish, lengths, new_graph, operands
from tests.dialect.attention_gradient_examples import CALLS, forward, gradient, soft_cap
from tests.support import machine
from tests.support.checked import check

# P and dS are rounded to 16 bits before the products, which the reference leaves out.
ALLOWANCE = {dtypes.f16: 2e-3, dtypes.bf16: 1.6e-2}

# No row sees one key alone, whose dS is 0: nothing is left to measure an error by.
BAND = ({"diagonal_band_right_bound": 5, "attn_scale": 0.2}, {})
LARGER = {"rows": 40, "columns": 40, "depth": 60, "value_depth": 60, "heads": 2, "kv_heads": 2}
UNEVEN = {"rows": 20, "columns": 33, "depth": 20, "value_depth": 36}


def of_the_forward_pass(arguments, io, known=None, **dims):
    """(graph, operation, operands by name): o and stats are those of the same attention."""
    graph = gradient(arguments, io=io, **dims)()
    op = graph.graph.finalize().ops[-1]
    other = forward(arguments, **dims)().graph.finalize().ops[-1]
    given = operands_of(op, other, machine.current().seed, **(known or {}))
    return graph, op, given


def stored(graph, inputs):
    """Inputs in the types of memory."""
    return {t.uid: np.asarray(inputs[t.uid]).astype(t.type.numpy) for t in graph.graph.inputs}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("name", "io", "target", "dims"),
    [
        ("band", dtypes.bf16, "sm_90a", LARGER),
        ("window", dtypes.f16, "sm_80", {**UNEVEN, "kv_heads": 2}),
        ("many_options", dtypes.bf16, "sm_90a", {"depth": 4}),
        ("one_key_head", dtypes.f16, "sm_90a", {"depth": 12}),
    ],
)
def test_options(name, io, target, dims):
    arguments, own = {**CALLS, "band": BAND}[name]
    graph, op, given = of_the_forward_pass(arguments, io, **{**own, **dims})
    inputs = stored(graph, inputs_of(op, given))
    check(graph, inputs=inputs, target=target, slack=8.0, allowance=ALLOWANCE[io])


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("target", "dims"),
    [("sm_90a", UNEVEN), ("sm_80", {**UNEVEN, "depth": 24, "value_depth": 40})],
    ids=["kernels", "sdpa_bwd_sm80"],
)
def test_memory_past_the_lengths_may_hold_nan(target, dims):
    known = {
        "seq_len_q": np.reshape([0, 17], (2, 1, 1, 1)),
        "seq_len_kv": np.reshape([9, 30], (2, 1, 1, 1)),
    }
    graph, op, given = of_the_forward_pass(lengths, dtypes.f16, known, **dims)
    plan = compile_graph(graph.graph, target)
    found = []
    for value in (0.0, np.nan):
        inputs = stored(graph, inputs_of(op, past_the_lengths(given, value)))
        found.append(machine.current().run(plan, inputs))
    for uid, wanted in found[0].items():
        assert np.isfinite(wanted).all()
        np.testing.assert_array_equal(found[1][uid], wanted)
    dq, dk, dv = (found[1][tensor.uid] for tensor in (op.dq, op.dk, op.dv))
    assert not dq[1, :, 17:].any()
    assert dq[1, :, :17].any()
    assert not any(x[0].any() or x[1, :, 30:].any() for x in (dk, dv))


@pytest.mark.in_turn
def test_a_score_mod():
    g = new_graph(dtypes.f16)
    q, k, v = operands(g)
    o, do = (g.tensor([2, 4, 5, 16], name=name) for name in ("o", "do"))
    stats = g.tensor([2, 4, 5, 1], data_type=dtypes.f32, name="stats")
    made = g.sdpa_backward(
        q, k, v, o, do, stats, attn_scale=0.5, use_causal_mask=True, score_mod=soft_cap
    )
    rng = np.random.default_rng(machine.current().seed)
    graph = finish(g, *made).graph.finalize()
    inputs = {t.uid: rng.normal(size=[n.constant for n in t.shape]) for t in graph.inputs}
    inputs[stats.get_uid()] += 3.0
    check(g, inputs=stored(g, inputs), target="sm_90a", slack=8.0, allowance=2e-3)


@pytest.mark.in_turn
@pytest.mark.parametrize(("rows", "columns"), [(0, 4), (3, 0)])
def test_no_rows_or_no_keys(rows, columns):
    m, n = dnnc.Dim("m", 0, 64), dnnc.Dim("n", 0, 64)
    build = gradient({"use_causal_mask": True, "attn_scale": 0.5}, rows=m, columns=n, kv_heads=4)
    check(build(), {"m": rows, "n": columns})


@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["causal", "grouped", "padding", "alibi"])
def test_large_products_run_on_tensor_cores(name, target):
    arguments, own = CALLS[name]
    sizes = {"rows": 1024, "columns": 1024, "depth": 264, "value_depth": 128}
    graph = gradient(arguments, io=dtypes.bf16, **{**own, **sizes})().graph.finalize()
    choices = heuristics.best_config(graph, of(target)).choices
    for choice in choices:
        titles = [op.title for op in choice.fusion.ops]
        assert choice.engine.name.startswith("matmul_") == ("matmul" in titles)
        # A kernel makes the indices that it compares.
        assert not any(t.type == dtypes.i32 for t in choice.fusion.outputs)
    assert len(choices) <= 9


@pytest.mark.in_turn
def test_two_outputs_and_an_operand_in_one_epilogue():
    """P and dS of the product Q K, beside dP - delta: their shared memory is counted."""
    g = new_graph(dtypes.f16)
    q, k = (g.tensor([4, 16, 512, 128]) for _ in range(2))
    distance = g.tensor([4, 16, 512, 512], data_type=dtypes.f32)
    stats = g.tensor([4, 16, 512, 1], data_type=dtypes.f32)
    p = g.exp(g.sub(g.matmul(q, g.transpose(k, [0, 1, 3, 2])), stats))
    plan = compile_graph(finish(g, g.identity(p), g.mul(p, distance)).graph, "sm_90a")
    (program,) = plan.programs
    assert [fusion.engine for fusion in program.fusions] == ["matmul_sm90"]
