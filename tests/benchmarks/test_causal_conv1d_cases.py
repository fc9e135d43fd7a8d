"""Cases of causal convolutions, small and on the CPU: graphs and torch give what is exact."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.cases import kinds  # noqa: E402
from benchmarks.cases.causal_conv1d import (  # noqa: E402
    ORDERS,
    causal_conv1d,
    causal_conv1d_backward,
    causal_conv1d_of,
)
from benchmarks.peers import torch_columns  # noqa: E402

from .test_cases import is_close  # noqa: E402
from .test_memory_cases import run_reference  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(kinds, "DEVICE", "cpu")
    torch.manual_seed(0)


CASES = [
    *(causal_conv1d("bf16", order, 2, 24, 10, states) for order in ORDERS for states in (0, 1)),
    *(causal_conv1d_backward("bf16", order, 2, 24, 10) for order in ORDERS),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_graph_and_torch_are_the_case(case):
    buffers = case.make()
    exact = case.exact(buffers)
    made = torch_columns.eager(case)(buffers)
    run_reference(case, buffers)
    made = made if isinstance(made, tuple) else (made,)
    for (name, wanted), tensor in zip(exact.items(), made, strict=True):
        assert is_close(case, tensor, wanted), name
        assert is_close(case, buffers[name], wanted), name


@pytest.mark.parametrize(
    "id_",
    [
        "causal_conv1d/bf16/last/8x2048",
        "causal_conv1d/i8/last/8x2048x4096",
        "causal_conv1d/bf16/second/8x2048x4096",
        "causal_conv1d_backward/bf16/last/8x2048x4096/states",
        "causal_conv1d_forward/bf16/last/8x2048x4096",
    ],
)
def test_other_ids_are_errors(id_):
    with pytest.raises(ValueError, match="causal_conv1d"):
        causal_conv1d_of(id_)
