"""Cases of paged attention, small and on the CPU: the graph gives what is exact."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from benchmarks.cases import kinds  # noqa: E402
from benchmarks.cases.lists import SETS  # noqa: E402
from benchmarks.cases.paged import in_order, listed, paged, paged_of  # noqa: E402
from benchmarks.compilers import our_graph  # noqa: E402
from benchmarks.peers import (  # noqa: E402
    contestants,
    torch_columns,
)
from dnnc.choosing.heuristics import configs  # noqa: E402
from dnnc.dialect.fusion import partition  # noqa: E402
from dnnc.target import of  # noqa: E402

from .test_cases import is_close  # noqa: E402
from .test_memory_cases import run_reference  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(kinds, "DEVICE", "cpu")
    torch.manual_seed(0)


def test_graph_is_the_case():
    case = paged(3, 4, 48, 16, 2, 16)
    buffers = case.make()
    exact = case.exact(buffers)
    assert run_reference(case, buffers) == set(exact)
    for name, wanted in exact.items():
        assert buffers[name].shape == wanted.shape
        assert is_close(case, buffers[name], wanted), name


def test_exact_is_what_torch_computes_of_pages_in_order():
    case = paged(2, 4, 48, 16, 2, 8)
    buffers = case.make()
    k, v = (
        torch.stack([in_order(case.p, buffers, name, entry) for entry in range(2)]).double()
        for name in "kv"
    )
    made = functional.scaled_dot_product_attention(buffers["q"].double(), k, v, enable_gqa=True)
    torch.testing.assert_close(made, case.exact(buffers)["o"], rtol=1e-9, atol=1e-9)


def test_pages_are_in_no_order():
    tables = paged(1, 2, 512, 8, 1, 16).make()
    assert tables["k_table"].flatten().tolist() != list(range(32))
    assert not torch.equal(tables["k_table"], tables["v_table"])
    assert sorted(tables["k_table"].flatten().tolist()) == list(range(32))


def test_what_is_counted():
    case = paged_of("paged/bf16/full/16x32x8192-d128/gqa8/page64")
    assert case.bytes == 2 * 16 * (4 * 8192 * 2 * 128 + 2 * 32 * 128 + 2 * 32) + 2 * 4 * 16 * 128
    assert case.dense in {found.id for found in SETS["decode"]()}


def test_an_engine_takes_all_as_one():
    for case in listed()[-2:]:
        graph, _ = our_graph(case)
        (_,) = partition(graph, [graph.live_ops])
        best = next(iter(configs(graph, of("sm_90a"))))
        assert [choice.engine.name for choice in best.choices] == ["sdpa_sm80"], case.id


def test_columns_of_torch():
    case = paged(1, 2, 32, 8, 1, 16)
    assert contestants.torch_columns(case, [{}], None) == {}
    assert torch_columns.inductor(case, {}) is None


@pytest.mark.parametrize(
    "id_", ["64x2x8-d8/gqa1", "1x2x40-d8/gqa1/page16", "1x3x32-d8/gqa2/page16"]
)
def test_other_ids_are_errors(id_):
    with pytest.raises(ValueError, match="paged"):
        paged_of(f"paged/bf16/full/{id_}")
