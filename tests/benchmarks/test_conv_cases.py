"""Cases of convolutions, small and on the CPU: graphs and torch spellings give what is exact."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from benchmarks import (  # noqa: E402
    kernels,
    timing,
)
from benchmarks.cases import (  # noqa: E402
    conv_layers,
)
from benchmarks.cases import (  # noqa: E402
    kinds as cases,
)
from benchmarks.cases.conv import conv, conv_of  # noqa: E402
from benchmarks.cases.conv_shape import ConvShape  # noqa: E402
from benchmarks.cases.lists import case_of  # noqa: E402
from benchmarks.compilers import our_graph  # noqa: E402
from benchmarks.peers import (  # noqa: E402
    contestants,
)
from benchmarks.peers import (  # noqa: E402
    torch_columns as torch_peers,
)
from benchmarks.watch import Watch  # noqa: E402
from dnnc.choosing import heuristics  # noqa: E402
from dnnc.target import of  # noqa: E402

from .test_cases import is_close  # noqa: E402
from .test_memory_cases import run_interpreted, run_reference  # noqa: E402

pytestmark = pytest.mark.torch

SHAPES = {
    "images": "2x9x8x16-32x3x3-s2p1",
    "groups": "2x9x8x16-32x3x3-s2p1-g4",
    "depthwise": "2x9x8x16-32x3x3-s2p1-g16",
    "dilated": "2x9x8x16-32x3x3-s1p2-d2",
    "volumes": "2x3x7x6x16-32x2x3x3-s1p1",
    "strided volumes": "1x5x9x6x16-32x3x3x3-s2p1-d2-g2",
    "channels first": "2x9x8x16-32x3x3-s2p1/nchw",
}
FLOATS = ("plain", "scale_bias_relu", "scale_bias_add_relu")
COARSE = (
    ("int8", "plain"), ("int8", "scale_bias_relu"), ("e4m3", "descale"), ("e4m3_fast", "descale"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(cases, "DEVICE", "cpu")
    torch.manual_seed(0)


def small(dtype, epilogue, shape="images"):
    return conv_of(f"conv/{dtype}/{epilogue}/{SHAPES[shape]}")


def is_exact(case, buffers):
    step, exact = case.row_step, case.exact(buffers)["y"]
    assert exact.shape[-2] == -(-buffers["y"].shape[-2] // step) > 1
    return is_close(case, buffers["y"][..., ::step, :], exact)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("epilogue", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_graph_and_torch_are_the_case(dtype, epilogue, shape):
    case = small(dtype, epilogue, shape)
    buffers = case.make()
    run_reference(case, buffers)
    assert is_exact(case, buffers)
    y = torch_peers.eager(case)(buffers)
    assert y.shape == buffers["y"].shape
    buffers["y"].copy_(y)
    assert is_exact(case, buffers)


@pytest.mark.parametrize("shape", ["images", "volumes"])
@pytest.mark.parametrize(("dtype", "epilogue"), COARSE)
@pytest.mark.parametrize("run", [run_reference, run_interpreted])
def test_graphs_of_8_bits_are_the_case(dtype, epilogue, shape, run):
    case = small(dtype, epilogue, shape)
    buffers = case.make()
    run(case, buffers)
    assert is_exact(case, buffers)


@pytest.mark.parametrize("shape", SHAPES)
def test_plans_are_the_case(shape):
    case = small("fp16", "scale_bias_relu", shape)
    buffers = case.make()
    run_interpreted(case, buffers)
    assert is_exact(case, buffers)


@pytest.mark.parametrize("outputs", ["y", "genstats"])
@pytest.mark.parametrize("run", [run_reference, run_interpreted])
def test_what_begins_with_a_batch_norm_is_the_case(outputs, run):
    case = case_of(f"conv_before/fp16/{outputs}/{SHAPES['images']}")
    assert case.id == f"conv_before/fp16/{outputs}/{SHAPES['images']}"
    buffers = case.make()
    exact = case.exact(buffers)
    given = torch_peers.eager(case)(buffers)
    run(case, buffers)
    for place, (name, wanted) in enumerate(exact.items()):
        eager = given[place] if isinstance(given, tuple) else given
        for made in (buffers[name], eager):
            rows = made if made.shape == wanted.shape else made[..., :: case.row_step, :]
            assert is_close(case, rows, wanted), name


@pytest.mark.parametrize(
    ("operation", "shape"),
    [*(("plain", shape) for shape in SHAPES.values()), ("sum", SHAPES["images"]),
     ("scaled", SHAPES["images"])],
)  # fmt: skip
def test_filters_gradients_are_the_case(operation, shape):
    case = case_of(f"conv_wgrad/fp16/{operation}/{shape}")
    assert case.id == f"conv_wgrad/fp16/{operation}/{shape}"
    buffers = case.make()
    run_reference(case, buffers)
    given = torch_peers.eager(case)(buffers)
    for place, (name, wanted) in enumerate(case.exact(buffers).items()):
        eager = given[place] if isinstance(given, tuple) else given
        for made in (buffers[name], eager):
            assert is_close(case, made, wanted), name


@pytest.mark.parametrize("shape", ["images", "volumes"])
@pytest.mark.parametrize("run", [run_reference, run_interpreted])
def test_filters_gradients_of_int8_are_exact(shape, run):
    case = case_of(f"conv_wgrad/int8/plain/{SHAPES[shape]}")
    buffers = case.make()
    run(case, buffers)
    assert torch.equal(buffers["df"].double(), case.exact(buffers)["df"])


def test_i8_is_neither_cut_nor_coarse():
    """Few elements are at the ends of i8, and a step of it is little of what they are."""
    case = conv_of("conv/int8/scale_bias_relu/4x16x16x32-64x3x3-s1p1")
    y = case.exact(case.make())["y"]
    assert (y == 127).double().mean() < 0.01
    assert y[y > 0].mean() > 15


@pytest.mark.parametrize("dtype", ["int8", "e4m3"])
def test_torch_says_what_it_has_no_convolutions_of(dtype):
    with pytest.raises(ValueError, match="torch has no convolutions of"):
        torch_peers.eager(small(dtype, "scale_bias_relu"))


def test_a_column_that_a_peer_cannot_run_says_so(monkeypatch):
    case = small("int8", "scale_bias_relu")
    bench = SimpleNamespace(watch=Watch(), stream=None, rounds=1, modes=("sustained",))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(timing, "sets_needed", lambda *_: 1)
    monkeypatch.setattr(timing, "capture", lambda launch, *_: timing.Launched(launch, 1))
    monkeypatch.setattr(timing, "interleaved", lambda names, *_: {name: [1.0] for name in names})

    def ours(sets):
        def launch(i):
            run_reference(case, sets[i])

        return {"dnnc": (launch, {})}

    def theirs(sets):
        return contestants.torch_columns(case, sets, bench)

    columns = kernels.measure(case, {"torch": theirs, "dnnc": ours}, bench)
    assert columns["torch"] == {"error": "ValueError: torch has no convolutions of int8"}
    assert columns["dnnc"]["relative_error"] == 0.0
    assert columns["dnnc"]["rate"] > 0


def engines_of(listed):
    chosen = {}
    for case in listed:
        graph, _ = our_graph(case)
        config = heuristics.best_config(graph.finalize(), of("sm_90a"))
        chosen.setdefault(tuple(choice.engine.name for choice in config.choices), []).append(case)
    return chosen


def distinct(listed):
    """One case for each shape of one image."""
    return {str(case.p["shape"]).partition("x")[2]: case for case in listed}.values()


def test_layers_run_on_tensor_cores():
    chosen = engines_of(distinct(conv_layers.layers()))
    assert {engine for (engine,) in chosen} == {"conv_sm90", "conv_stem_sm90"}
    assert {case.p["shape"].c for case in chosen[("conv_stem_sm90",)]} == {3}


def test_depthwise_layers_run_on_the_engine_for_them():
    assert set(engines_of(conv_layers.depthwise_layers())) == {("conv_depthwise",)}


def test_no_other_layer_is_left_to_the_fallback():
    chosen = engines_of(distinct(conv_layers.more_layers()))
    assert {name for names in chosen for name in names} <= {
        "conv_sm90", "conv_sm80", "conv_stem_sm90", "conv_depthwise", "conv_product_sm90",
        "conv_grouped_sm80",
    }  # fmt: skip


def test_groups_are_in_the_id_and_in_what_is_counted():
    case = conv_of("conv/fp16/plain/32x28x28x192-192x5x5-s1p2-g192")
    assert case.id == "conv/fp16/plain/32x28x28x192-192x5x5-s1p2-g192"
    assert case.flops == 2 * 32 * 28 * 28 * 192 * 25
    assert case.bytes == 2 * (2 * 32 * 28 * 28 * 192 + 192 * 25)


def test_what_is_counted():
    case = conv_of("conv/fp16/scale_bias_add_relu/256x56x56x64-256x1x1-s1p0")
    pixels = 256 * 56 * 56
    assert case.flops == 2 * pixels * 64 * 256
    assert case.bytes == 2 * (pixels * (64 + 2 * 256) + 64 * 256)
    assert case.unit == "GB/s"
    assert conv_of("conv/bf16/plain/256x14x14x256-256x3x3-s1p1").unit == "TFLOP/s"


def test_what_is_counted_of_volumes_and_of_8_bits():
    volume = conv_of("conv/fp16/plain/2x4x6x6x16-32x3x3x3-s1p1")
    assert volume.flops == 2 * (2 * 4 * 6 * 6 * 32) * 27 * 16
    assert volume.bytes == 2 * (2 * 4 * 6 * 6 * (16 + 32) + 32 * 27 * 16)
    pixels, weights = 4 * 6 * 6, 32 * 16
    for dtype, epilogue, bytes_ in (
        ("int8", "plain", 4), ("int8", "scale_bias_relu", 1), ("e4m3", "descale", 2),
    ):  # fmt: skip
        case = conv_of(f"conv/{dtype}/{epilogue}/4x6x6x16-32x1x1-s1p0")
        assert case.bytes == pixels * (16 + 32 * bytes_) + weights


def test_layouts():
    last, first = (ConvShape(2, (5, 4), 8, 16, (3, 3), layout=name) for name in ("nhwc", "nchw"))
    assert last.x == ([2, 8, 5, 4], [160, 1, 32, 8])
    assert first.x == ([2, 8, 5, 4], [160, 20, 4, 1])
    assert first.f == ([16, 8, 3, 3], [72, 9, 3, 1])
    assert last.y == ([2, 16, 3, 2], [96, 1, 32, 16])


@pytest.mark.parametrize(
    "id_",
    [
        "fp16/plain/8x8",
        "fp16/gelu/1x8x8x8-8x3x3-s1p1",
        "fp32/plain/1x8x8x8-8x3x3-s1p1",
        "f/plain/1",
        "fp16/plain",
        "fp16/plain/1x8x8x8-8x3x3-s1p1-g3",
        "fp16/plain/1x8x8x8-8x3x3-s1p1-g1",
        "fp16/plain/1x8x8x8-8x3x3x3-s1p1",
        "fp16/plain/1x2x8x8-8x3x3-s1p0",
        "fp16/plain/1x8x8x8-8x3x3-s1p1/nhwc",
        "fp16/plain/1x8x8x8-8x3x3-s1p1/chwn",
    ],
)
def test_other_ids_are_errors(id_):
    with pytest.raises(ValueError, match="conv"):
        conv_of(f"conv/{id_}")


def test_i8_and_fp8_take_other_epilogues_too():
    assert conv("e4m3", "plain", ConvShape(1, (4, 4), 16, 16, (1, 1))).p["y_type"] == "bf16"
