"""Attention of fp8: its reference against attention's, and against what it stands for."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.reference import reference

from .attention_examples import FP8_CASES, attention, attention_fp8
from .test_attention import SIZES, decomposed
from .test_ops import random_inputs

NUMBERS = {
    "descale_q": 0.5, "descale_k": 1.5, "descale_v": 3.0, "descale_s": 1 / 64, "scale_s": 96.0,
    "scale_o": 0.75,
}  # fmt: skip


def arrays(graph, numbers=NUMBERS):
    found = random_inputs(graph, SIZES)
    rng = np.random.default_rng(0)
    for tensor in graph.inputs:
        if tensor.name in numbers:
            found[tensor.uid] = np.full((1, 1, 1, 1), numbers[tensor.name], np.float32)
        elif tensor.name in ("q", "k", "v"):
            drawn = rng.normal(size=found[tensor.uid].shape)
            found[tensor.uid] = drawn.astype(tensor.type.numpy)
    return found


def named(graph, outputs):
    fields = ((field.name, tensor) for field, tensor in graph.ops[-1].tensors("result"))
    return {name: outputs[tensor.uid] for name, tensor in fields if tensor.uid in outputs}


def test_the_reference_is_that_of_attention_of_descaled_tensors():
    graph = attention_fp8({"attn_scale": 0.25, "use_causal_mask": True})().graph.finalize()
    given = arrays(graph)
    found = named(graph, reference(graph, given, exact_outputs=True))
    plain = attention({"attn_scale": 0.25, "use_causal_mask": True}, depth=16)().graph.finalize()
    wide = {
        name: np.asarray(given[graph.tensor(name).uid], np.float32) * NUMBERS[f"descale_{name}"]
        for name in "qkv"
    }
    wanted = named(plain, reference(plain, wide, exact_outputs=True))
    scale = NUMBERS["scale_s"] * NUMBERS["descale_s"]
    np.testing.assert_allclose(found["o"], wanted["o"] * scale * 0.75, 1e-6)
    np.testing.assert_allclose(found["stats"], wanted["stats"], 1e-6)
    np.testing.assert_allclose(found["amax_o"].item(), np.abs(wanted["o"] * scale).max(), 1e-6)
    assert found["amax_s"].item() == 1.0  # of the first row, which sees one key


@pytest.mark.parametrize("name", FP8_CASES)
def test_what_it_stands_for_gives_the_same(name):
    graph = FP8_CASES[name]().graph.finalize()
    inputs = arrays(graph)
    whole = reference(graph, inputs, sizes=SIZES, exact_outputs=True)
    parts = reference(decomposed(graph), inputs, sizes=SIZES, exact_outputs=True)
    for tensor in graph.outputs:
        wanted, found = whole[tensor.uid], parts[tensor.uid]
        if tensor in (graph.ops[-1].o, graph.ops[-1].amax_o):  # P is rounded to Q's type there
            close = np.abs(wanted).max() * (0.15 if name == "window" else 0.08)
            np.testing.assert_allclose(found, wanted, 0, close)
        else:
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_the_probabilities_have_the_type_of_q():
    titles = {}
    for op in attention_fp8()().graph.finalize().live_ops:
        if op.op_name == "matmul":
            titles[op.a.type] = op.compute_type
    assert titles == {dtypes.f8e4m3: dtypes.f32}


def test_fast_products_leave_other_work_in_float():
    graph = attention_fp8({"compute_data_type": "FAST_FLOAT_FOR_FP8"})().graph.finalize()
    found = {(op.op_name, op.compute_type) for op in graph.live_ops if hasattr(op, "compute_type")}
    of_products = {kind for name, kind in found if name == "matmul"}
    assert of_products == {dtypes.fast_float_for_fp8}
    assert dtypes.fast_float_for_fp8 not in {kind for name, kind in found if name != "matmul"}


def test_what_nobody_asks_for_is_not_computed():
    g = dnnc.pygraph(io_data_type="FP8_E4M3", compute_data_type="FLOAT", target="sm_90")
    q, k, v = (g.tensor([1, 1, 4, 16]) for _ in range(3))
    numbers = [g.tensor([1, 1, 1, 1], data_type="FLOAT") for _ in range(6)]
    o, stats, *_ = g.sdpa_fp8(q, k, v, *numbers, is_inference=True)
    o.set_output()
    assert stats is None
    assert "reduction:amax" not in [op.title for op in g.graph.finalize().live_ops]
