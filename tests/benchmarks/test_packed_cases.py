"""Cases of packed attention, small and on the CPU: the graph gives what is exact."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from benchmarks.cases import kinds  # noqa: E402
from benchmarks.cases.packed import (  # noqa: E402
    MEANS,
    TOTALS,
    drawn_lengths,
    lengths_of,
    listed,
    listed_lengths,
    packed,
    packed_of,
)
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


@pytest.mark.parametrize("sizes", [(200, 4, 16, 40), (50, 2, 8, 9)], ids=str)
def test_graph_is_the_case(sizes):
    """Some rows are not computed exactly, of the first; of the second, all are."""
    case = packed(*sizes)
    buffers = case.make()
    exact = case.exact(buffers)
    assert run_reference(case, buffers) == set(exact)
    for name, wanted in exact.items():
        found = buffers[name][..., :: case.row_step, :]
        assert found.shape == wanted.shape
        assert is_close(case, found, wanted), name


def test_exact_is_what_torch_computes_of_each_sequence():
    case = packed(90, 2, 8, 20)
    buffers = case.make()
    exact = case.exact(buffers)["o"]
    parts = (buffers[name].double().split(case.p["lengths"], 2) for name in "qkv")
    made = [functional.scaled_dot_product_attention(*qkv, is_causal=True)
            for qkv in zip(*parts, strict=True)]  # fmt: skip
    torch.testing.assert_close(torch.cat(made, 2), exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["uniform9-40", "lognormal9-40", "uniform20-20"])
def test_graph_is_the_full_case(name):
    case = packed_of(f"packed/bf16/full/90x2-d8/{name}")
    buffers = case.make()
    run_reference(case, buffers)
    parts = (buffers[name].double().split(case.p["lengths"], 2) for name in "qkv")
    made = [functional.scaled_dot_product_attention(*qkv) for qkv in zip(*parts, strict=True)]
    exact = case.exact(buffers)["o"]
    torch.testing.assert_close(torch.cat(made, 2), exact, rtol=1e-9, atol=1e-9)
    assert is_close(case, buffers["o"], exact)


@pytest.mark.parametrize("kind", ["uniform", "lognormal"])
def test_drawn_lengths_are_within_bounds(kind):
    *lengths, last = drawn_lengths(32768, kind, 128, 1024)
    assert sum(lengths) + last == 32768
    assert min(lengths) >= 128
    assert 512 < max(lengths) <= 1024
    assert last <= 1024


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("t", TOTALS)
def test_lengths_are_as_the_name_says(t, mean):
    lengths = lengths_of(t, mean)
    assert sum(lengths) == t
    assert len(lengths) == round(t / mean)
    assert min(lengths) > 0
    assert max(lengths) > 2 * mean


def test_dense_cases_have_as_many_rows_and_as_much_work():
    every = {case.id: case for case in listed()}
    found = [case for case in every.values() if case.kind == "packed"]
    assert len(found) == 12
    for case in found:
        twin = every[case.dense]
        assert 0.8 < twin.p["b"] * twin.p["s"] / case.p["t"] < 1.25
        assert 0.8 < twin.flops / case.flops < 1.25
        assert (twin.p["h"], twin.p["d"]) == (case.p["h"], case.p["d"])


def test_what_is_counted():
    case = packed_of("packed/bf16/causal/2x16-d128/mean2")
    assert case.p["lengths"] == [2]
    assert case.flops == 2 * (128 + 128) * 16 * 2 * 2 / 2
    assert case.bytes == 2 * 16 * (4 * 2 * 128 + 4)
    assert math.isclose(case.rate(1e-3), case.flops / 1e9)


def test_an_engine_takes_all_as_one():
    packed_ones = [case for case in listed_lengths() if case.kind == "packed"]
    for case in (*listed(), *packed_ones):
        graph, _ = our_graph(case)
        (_,) = partition(graph, [graph.live_ops])
        best = next(iter(configs(graph, of("sm_90a"))))
        assert [choice.engine.name for choice in best.choices] == ["sdpa_fwd_sm90"], case.id


def test_columns_of_torch():
    case = packed(90, 2, 8, 20)
    assert set(contestants.torch_columns(case, [{}], None)) == {"torch"}
    assert torch_columns.inductor(case, {}) is None


@pytest.mark.parametrize(
    "id_",
    [
        "causal/64x2-d8",
        "full/64x2-d8/mean9",
        "causal/64x2-d8/mean65",
        "causal/64x2-d8/mean0",
        "full/64x2-d8/uniform9",
        "full/64x2-d8/uniform9-8",
        "causal/64x2-d8/mean9-10",
    ],
)
def test_other_ids_are_errors(id_):
    with pytest.raises(ValueError, match="packed"):
        packed_of(f"packed/bf16/{id_}")
