"""Cases of gradients by the image, small and on the CPU: graphs and torch give what is exact."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.cases import kinds as cases  # noqa: E402
from benchmarks.cases import lists  # noqa: E402
from benchmarks.cases.conv_dgrad import EPILOGUES  # noqa: E402
from benchmarks.cases.generated import dgrads, few_channel_dgrads, network_dgrads, wgrads  # noqa: E402
from benchmarks.peers import torch_columns as torch_peers  # noqa: E402

from .test_cases import is_close  # noqa: E402
from .test_memory_cases import run_interpreted, run_reference  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(cases, "DEVICE", "cpu")
    torch.manual_seed(0)


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize(
    "shape", ["2x9x8x16-32x3x3-s2p1-g4", "2x9x8x16-32x3x3-s1p2-d2", "1x3x5x6x16-8x2x3x3-s1p1"]
)
def test_graph_torch_and_plan_are_the_case(shape, epilogue):
    case = lists.case_of(f"conv_dgrad/fp16/{epilogue}/{shape}")
    assert case.id == f"conv_dgrad/fp16/{epilogue}/{shape}"
    buffers = case.make()
    exact = case.exact(buffers)
    given = torch_peers.eager(case)(buffers)
    given = given if isinstance(given, tuple) else (given,)
    for made, (name, wanted) in zip(given, exact.items(), strict=True):
        assert is_close(case, made, wanted), name
    for run in (run_reference, run_interpreted):
        run(case, buffers)
        for name, wanted in exact.items():
            assert is_close(case, buffers[name], wanted), name
            buffers[name].fill_(torch.nan)


def test_lists_are_of_their_own_ids():
    found = [*lists.dgrad(), *lists.dgrad_more(), *lists.conv_patterns()[1:], *dgrads(1000)]
    found += few_channel_dgrads(1000)
    assert [lists.case_of(case.id).id for case in found] == [case.id for case in found]
    assert len({case.id for case in found}) == len(found) - 1  # the streaming kernel


def test_both_gradients_are_drawn_of_the_same_layers():
    drawn = network_dgrads(1001)
    assert len({case.id for case in drawn}) == 40
    assert [lists.case_of(case.id).id for case in drawn] == [case.id for case in drawn]
    assert {str(c.p["shape"]) for c in drawn} == {str(c.p["shape"]) for c in wgrads(1001)}
