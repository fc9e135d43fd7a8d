"""Cases of attention's gradient, small and on the CPU: graphs give what is exact."""

from __future__ import annotations

import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dnnc  # noqa: E402
from benchmarks.cases import kinds  # noqa: E402
from benchmarks.cases.attention import attention  # noqa: E402
from benchmarks.cases.attention_backward import attention_backward  # noqa: E402
from benchmarks.cases.attention_fp8_backward import (  # noqa: E402
    attention_fp8_backward,
    attention_fp8_backward_of,
)
from benchmarks.cases.packed_backward import (  # noqa: E402
    listed,
    packed_backward,
    packed_backward_of,
)
from benchmarks.graphs import build  # noqa: E402
from benchmarks.peers import attention as attention_peers  # noqa: E402
from benchmarks.peers import contestants, cudnn, torch_columns  # noqa: E402

from .test_cases import is_close  # noqa: E402
from .test_memory_cases import as_numpy, run_reference  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = (1, 2, 40, 16)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(kinds, "DEVICE", "cpu")
    torch.manual_seed(0)


@pytest.mark.parametrize(
    "case",
    [
        attention_backward("bf16", "causal", *SMALL, groups=2, repeats=True),
        attention_fp8_backward("full", *SMALL),
        attention_fp8_backward("causal", *SMALL),
        packed_backward(90, 2, 8, 20),
    ],
    ids=lambda case: case.id,
)
def test_graph_is_the_case(case):
    buffers = case.make()
    exact = case.exact(buffers)
    run_reference(case, buffers)
    for name, wanted in exact.items():
        assert is_close(case, buffers[name], wanted), name


@pytest.mark.parametrize("scores", ["causal_softcap5", "causal_documents7"])
def test_modified_scores_of_cudnn(scores):
    """The graph that is made for cuDNN, which has no derivative of its own, by our frontend."""
    case = attention_backward("bf16", scores, *SMALL)
    buffers = case.make()
    graph = dnnc.pygraph(**build.options(dnnc))
    made = build.build(types.SimpleNamespace(data_type=dnnc.data_type), graph, case)
    results = {name: buffers[name] for name in ("dq", "dk", "dv")}
    numbers = {
        tensor: np.full([1] * rank, value, np.float32)
        for tensor, (value, rank, _) in made.numbers.items()
    }
    given = {
        tensor: as_numpy(buffers[name])
        for name, tensor in made.tensors.items()
        if name not in results
    }
    graph.validate()
    final = graph.graph.finalize()
    inputs = {tensor.get_uid(): array for tensor, array in (given | numbers).items()}
    found = dnnc.reference(final, inputs)
    for name, wanted in case.exact(buffers).items():
        array = found[made.tensors[name].get_uid()].astype("float64")
        assert is_close(case, torch.from_numpy(array), wanted), name


def test_packed_gradient_is_that_of_each_sequence():
    case = packed_backward(90, 2, 8, 20)
    buffers = case.make()
    inputs = [buffers[name].double().requires_grad_() for name in "qkv"]
    parts = zip(*(x.split(case.p["lengths"], 2) for x in inputs), strict=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    o = torch.cat([attend(*part, is_causal=True) for part in parts], 2)
    gradients = torch.autograd.grad(o, inputs, buffers["do"].double())
    for wanted, made in zip(gradients, case.exact(buffers).values(), strict=True):
        assert is_close(case, made, wanted)


def test_packed_gradients_stand_beside_dense_ones():
    every = {case.id: case for case in listed()}
    found = [case for case in every.values() if case.kind == "packed_backward"]
    assert len(found) == 8
    for case in found:
        assert 0.8 < every[case.dense].flops / case.flops < 1.25
        assert packed_backward_of(case.id).flops == case.flops


def test_peers_of_fp8():
    case = attention_fp8_backward("full", *SMALL)
    assert not contestants.torch_columns(case, [{}], None)
    assert torch_columns.inductor(case, {}) is None
    buffers = case.make()
    assert isinstance(cudnn._buffer(buffers["do"]), int)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_long_heads_in_torch(groups, monkeypatch):
    """Its heads do not share keys; the statistics may have more rows than queries."""
    case = attention("bf16", "full", 1, 4, 40, 264, 272, groups=groups, queries=3)
    assert set(attention_peers.backends(case)) == {"torch"}

    def run(q, k, v, bias, has_stats, dropout, is_causal):
        scores = q.double() @ k.double().mT * q.shape[-1] ** -0.5
        stats = torch.nn.functional.pad(torch.logsumexp(scores, -1), (0, 29))
        return torch.softmax(scores, -1) @ v.double(), stats, None, None

    monkeypatch.setattr(
        torch.ops.aten, "_scaled_dot_product_efficient_attention", run, raising=False
    )
    buffers = case.make()
    exact = case.exact(buffers)
    for (name, wanted), made in zip(
        exact.items(), attention_peers.efficient(case)(buffers), strict=True
    ):
        assert is_close(case, made, wanted), name


@pytest.mark.parametrize("rest", ["full/1x1x64", "full/1x2x64-d64/gqa2", "softcap5/1x1x64-d64"])
def test_other_ids_are_errors(rest):
    with pytest.raises(ValueError, match="attention"):
        attention_fp8_backward_of(f"attention_fp8_backward/{rest}")
