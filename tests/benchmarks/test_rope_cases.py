"""Cases of rotary embeddings and of parts of a product, small and on the CPU: graphs and torch
give what is exact."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.cases import kinds  # noqa: E402
from benchmarks.cases.parts import ORDERS, parts, parts_of  # noqa: E402
from benchmarks.cases.rope import ANGLES, rope, rope_attention, rope_of  # noqa: E402
from benchmarks.peers import torch_columns  # noqa: E402

from .test_cases import is_close  # noqa: E402
from .test_memory_cases import run_reference  # noqa: E402

pytestmark = pytest.mark.torch

CASES = [
    *(rope(angles, 2, 3, 10, 16) for angles in ANGLES),
    *(rope_attention(angles, 2, 4, 20, 16, 2, queries) for angles in ANGLES for queries in (0, 1)),
    *(parts(order, 2, 10, 32, 4, 2, 8) for order in ORDERS),
]


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(kinds, "DEVICE", "cpu")
    torch.manual_seed(0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_graph_and_torch_are_the_case(case, monkeypatch):
    buffers = case.make()
    exact = case.exact(buffers)
    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_flash_attention", flash_of_cpu)
    made = torch_columns.eager(case)(buffers)
    assert run_reference(case, buffers) == set(exact)
    made = made if isinstance(made, tuple) else (made,)
    for (name, wanted), tensor in zip(exact.items(), made, strict=True):
        assert is_close(case, tensor, wanted), name
        assert is_close(case, buffers[name], wanted), name


def flash_of_cpu(q, k, v, dropout, is_causal):
    """The call of the CPU's own kernel, for which each head has its own keys."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, is_causal)


@pytest.mark.parametrize(
    ("make", "id_"),
    [
        (rope_of, "rope/bf16/angles/2x3x10-d16/gqa4"),
        (rope_of, "rope/bf16/degrees/2x3x10-d16"),
        (rope_of, "rope_attention/f16/angles/2x4x20-d16"),
        (parts_of, "parts/fp16/columns/2x10x32-4x2-d8"),
        (parts_of, "parts/fp16/rows/2x10x32-4x3-d8"),
        (parts_of, "parts/fp16/rows/2x10x32-4-d8"),
    ],
)
def test_other_ids_are_errors(make, id_):
    with pytest.raises(ValueError, match=r"no (rope|parts) case"):
        make(id_)
