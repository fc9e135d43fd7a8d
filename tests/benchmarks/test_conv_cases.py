"""Cases of convolutions, small and on the CPU: graphs and torch spellings give what is exact."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks import cases, torch_peers  # noqa: E402
from benchmarks.compilers import our_graph  # noqa: E402
from benchmarks.conv_cases import (  # noqa: E402
    EPILOGUES,
    conv,
    conv_of,
    depthwise_layers,
    layers,
)
from dnnc.dialect.fusion import partition  # noqa: E402
from dnnc.engines import heuristics  # noqa: E402
from dnnc.engines.conv_sm90 import CONV_SM90  # noqa: E402
from dnnc.target import of  # noqa: E402

from .test_cases import is_close  # noqa: E402
from .test_memory_cases import run_reference  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(cases, "DEVICE", "cpu")
    torch.manual_seed(0)


def small(dtype, epilogue, groups=1):
    return conv(dtype, epilogue, 2, 9, 8, 16, 32, 3, 3, 2, 1, groups)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("groups", [1, 4, 16])
def test_graph_and_torch_are_the_case(dtype, epilogue, groups):
    case = small(dtype, epilogue, groups)
    buffers = case.make()
    exact = case.exact(buffers)["y"]
    step = case.row_step
    assert exact.shape[-2] == -(-case.p["p"] // step) > 1
    run_reference(case, buffers)
    assert is_close(case, buffers["y"][..., ::step, :], exact)
    assert is_close(case, torch_peers.eager(case)(buffers)[..., ::step, :], exact)


def test_layers_but_the_first_run_on_tensor_cores():
    refused = []
    for case in layers():
        graph, _ = our_graph(case)
        graph.finalize()
        (fusion,) = partition(graph, [graph.live_ops])
        if CONV_SM90.supports(fusion, of("sm_90a")):
            refused.append(case)
    assert {(case.p["c"], case.p["r"]) for case in refused} == {(3, 7)}


def test_depthwise_layers_run_on_the_engine_for_them():
    chosen = set()
    for case in depthwise_layers():
        graph, _ = our_graph(case)
        config = heuristics.best_config(graph.finalize(), of("sm_90a"))
        chosen |= {choice.engine.name for choice in config.choices}
    assert chosen == {"conv_depthwise"}


def test_groups_are_in_the_id_and_in_what_is_counted():
    case = conv_of("conv/fp16/plain/32x28x28x192-192x5x5-s1p2-g192")
    assert case.id == "conv/fp16/plain/32x28x28x192-192x5x5-s1p2-g192"
    assert case.flops == 2 * 32 * 28 * 28 * 192 * 25
    assert case.bytes == 2 * (2 * 32 * 28 * 28 * 192 + 192 * 25)
    assert all(conv_of(case.id).p == case.p for case in (*layers(), *depthwise_layers()))


def test_what_is_counted():
    case = conv_of("conv/fp16/scale_bias_add_relu/256x56x56x64-256x1x1-s1p0")
    pixels = 256 * 56 * 56
    assert case.flops == 2 * pixels * 64 * 256
    assert case.bytes == 2 * (pixels * (64 + 2 * 256) + 64 * 256)
    assert case.unit == "GB/s"
    assert conv_of("conv/bf16/plain/256x14x14x256-256x3x3-s1p1").unit == "TFLOP/s"


@pytest.mark.parametrize(
    "id_",
    [
        "fp16/plain/8x8",
        "fp16/gelu/1x8x8x8-8x3x3-s1p1",
        "f/plain/1",
        "fp16/plain/1x8x8x8-8x3x3-s1p1-g3",
    ],
)
def test_other_ids_are_errors(id_):
    with pytest.raises(ValueError, match="conv"):
        conv_of(f"conv/{id_}")
