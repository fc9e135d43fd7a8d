"""Cases of attention's gradient, small and on the CPU: graphs give what is exact."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.cases import kinds  # noqa: E402
from benchmarks.cases.attention import attention  # noqa: E402
from benchmarks.cases.attention_backward import attention_backward  # noqa: E402
from benchmarks.cases.attention_fp8_backward import (  # noqa: E402
    attention_fp8_backward,
    attention_fp8_backward_of,
)
from benchmarks.peers import attention as attention_peers  # noqa: E402
from benchmarks.peers import contestants, cudnn, torch_columns  # noqa: E402

from .test_cases import is_close  # noqa: E402
from .test_memory_cases import run_reference  # noqa: E402

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
    ],
    ids=lambda case: case.id,
)
def test_graph_is_the_case(case):
    buffers = case.make()
    exact = case.exact(buffers)
    run_reference(case, buffers)
    for name, wanted in exact.items():
        assert is_close(case, buffers[name], wanted), name


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
