"""Cases bound by memory, small and on the CPU: graphs and torch spellings give what is exact."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dnnc  # noqa: E402
from benchmarks.cases import (  # noqa: E402
    image_norm as image_norm_cases,
)
from benchmarks.cases import (  # noqa: E402
    kinds as cases,
)
from benchmarks.cases import (  # noqa: E402
    memory as memory_cases,
)
from benchmarks.cases import (  # noqa: E402
    part_norm as part_norm_cases,
)
from benchmarks.cases import (  # noqa: E402
    vector as vector_cases,
)
from benchmarks.cases.image_norm import unpacked  # noqa: E402
from benchmarks.cases.memory import KINDS, large_squares, memory_of  # noqa: E402
from benchmarks.compilers import our_graph  # noqa: E402
from benchmarks.graphs.image_norm import EPSILON, MOMENTUM  # noqa: E402
from benchmarks.peers import (  # noqa: E402
    torch_columns as torch_peers,
)
from dnnc.compiler import compile_graph  # noqa: E402
from dnnc.interpreter.plans import run_plan  # noqa: E402

from .test_cases import as_numpy, is_close  # noqa: E402

pytestmark = pytest.mark.torch

NORMS = list(image_norm_cases.KINDS)
OF_IMAGES = NORMS + [kind for kind in KINDS if "pool" in kind or "instance" in kind]
# Of images, among the buffers.
WITH_MORE = {
    "bn_add_relu": 3,
    "batchnorm_backward": 3,
    "drelu_fork_dbn": 4,
    "instancenorm_nhwc_backward": 3,
}
CHANNELS_LAST = [k for k in OF_IMAGES if "nchw" not in k and ("nhwc" in k or "instance" not in k)]


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(cases, "DEVICE", "cpu")
    torch.manual_seed(0)


def small(kind):
    if kind in vector_cases.KINDS:
        return KINDS[kind](2, 6, 10, 64)
    if kind in OF_IMAGES:
        return KINDS[kind](3, 9, 6, 16)
    return KINDS[kind](*((3, 10, 40) if "adalayernorm" in kind else (24, 40)))


def run_reference(case, buffers):
    """Writes what the graph gives to the buffers, where its strides say."""
    return run_graph(case, buffers, dnnc.reference)


def run_interpreted(case, buffers):
    """The plan for sm_90a is right, in the interpreter."""
    return run_graph(case, buffers, lambda g, inputs: run_plan(compile_graph(g, "sm_90a"), inputs))


def run_graph(case, buffers, run):
    """run: of a graph and its inputs, uid -> array.  Gives the names of the outputs."""
    graph, tensors = our_graph(case)
    names = {tensor.uid: name for name, tensor in tensors.items()}
    outputs = {tensor.uid for tensor in graph.outputs}
    placed = {}
    for name, tensor in tensors.items():
        dims, strides = ([int(size.constant) for size in sizes]
                         for sizes in (tensor.dims, tensor.strides))  # fmt: skip
        if tensor.type.kind == "b":
            assert strides == list(buffers["x"].stride())
            placed[tensor.uid] = unpacked(buffers[name], buffers["x"])
        else:
            placed[tensor.uid] = buffers[name].as_strided(dims, strides)
    for uid in outputs:
        if placed[uid].is_floating_point():
            placed[uid].fill_(float("nan"))
    inputs = {uid: as_numpy(there) for uid, there in placed.items() if uid not in outputs}
    found = run(graph, inputs)
    assert found.keys() == outputs
    for uid, value in found.items():
        placed[uid].copy_(torch.from_numpy(value.astype("float64")))
        if placed[uid].dtype == torch.bool:
            in_order = placed[uid].permute(0, 2, 3, 1).flatten().numpy()
            buffers[names[uid]].copy_(torch.from_numpy(np.packbits(in_order, bitorder="little")))
    return {names[uid] for uid in outputs}


@pytest.mark.parametrize("kind", KINDS)
def test_graph_is_the_case(kind):
    case = small(kind)
    buffers = case.make()
    exact = case.exact(buffers)
    assert run_reference(case, buffers) >= set(exact)
    for name, wanted in exact.items():
        assert buffers[name].shape == wanted.shape
        assert is_close(case, buffers[name], wanted), name


@pytest.mark.parametrize("kind", KINDS)
def test_torch_is_the_case(kind):
    case = small(kind)
    buffers = case.make()
    exact = case.exact(buffers)
    if kind == "adalayernorm_backward":  # whose statistics of f32 a CPU takes beside x of f32 only
        buffers = {name: tensor.float() for name, tensor in buffers.items()}
    returned = torch_peers.eager(case)(buffers)
    given = returned if isinstance(returned, tuple) else (returned,)
    for (name, wanted), actual in zip(exact.items(), given, strict=kind != "bn_add_relu"):
        assert is_close(case, actual, wanted), name
        if name not in ("dscale", "dbias"):  # which torch has as [c]
            assert actual.shape == wanted.shape
            # What torch writes is laid out as our output is.
            assert actual.stride() == buffers[name].stride()


@pytest.mark.parametrize("kind", ["batchnorm", "batchnorm_relu"])
def test_statistics_of_batchnorm(kind):
    case = small(kind)
    buffers = case.make()
    x = buffers["x"].double().transpose(0, 1).flatten(1)
    mean, biased, unbiased = x.mean(1), x.var(1, correction=0), x.var(1)
    old_mean, old_var = (buffers[name].double().flatten() for name in ("old_mean", "old_var"))
    wanted = {
        "mean": mean,
        "rstd": (biased + EPSILON) ** -0.5,
        "next_mean": (1 - MOMENTUM) * old_mean + MOMENTUM * mean,
        "next_var": (1 - MOMENTUM) * old_var + MOMENTUM * unbiased,
    }
    assert run_reference(case, buffers) == {"y", *wanted}
    for name, value in wanted.items():
        torch.testing.assert_close(buffers[name].double().flatten(), value, rtol=1e-5, atol=1e-5)
    torch_peers.eager(case)(buffers)  # which updates the old ones in place
    for name in ("mean", "var"):
        updated, value = buffers[f"old_{name}"].double().flatten(), wanted[f"next_{name}"]
        torch.testing.assert_close(updated, value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [*NORMS, *part_norm_cases.KINDS])
def test_plan_of_a_norm_is_the_case(kind):
    case = small(kind)
    buffers = case.make()
    exact = case.exact(buffers)
    run_interpreted(case, buffers)
    for name, wanted in exact.items():
        assert is_close(case, buffers[name], wanted), name


@pytest.mark.parametrize("run", [run_reference, run_interpreted])
def test_mask_says_where_y_is_above_zero(run):
    case = small("bn_add_relu")
    buffers = case.make()
    run(case, buffers)
    mask = unpacked(buffers["mask"], buffers["y"])
    assert 0.2 < mask.double().mean() < 0.8
    assert torch.equal(mask, buffers["y"] > 0)
    y, bools = torch_peers.eager(case)(buffers)
    assert torch.equal(bools, y > 0)
    assert (bools != mask).double().mean() < 0.01


def test_masks_are_unpacked_from_the_lowest_bit():
    x = torch.empty(1, 1, 3, 4).permute(0, 3, 1, 2)  # so many bits are one byte and a half
    bools = unpacked(torch.tensor([0b00000110, 0b11111000], dtype=torch.uint8), x)
    assert bools.shape == x.shape
    found = bools.permute(0, 2, 3, 1).int()
    assert found.tolist() == [[[[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]]]


@pytest.mark.parametrize("kind", ["batchnorm_backward", "drelu_fork_dbn"])
def test_gradients_are_those_of_autograd(kind):
    case = small(kind)
    buffers = case.make()
    x, scale = (buffers[name].double().requires_grad_() for name in ("x", "scale"))
    bias = torch.zeros_like(scale, requires_grad=True)
    y = torch.nn.functional.batch_norm(
        x, None, None, scale.flatten(), bias.flatten(), training=True, eps=EPSILON
    )
    exact = case.exact(buffers)
    y.backward(exact.get("dz", buffers["dy"].double()))
    for name, leaf in (("dx", x), ("dscale", scale), ("dbias", bias)):
        torch.testing.assert_close(exact[name], leaf.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["batchnorm_backward", "drelu_fork_dbn"])
def test_means_show_in_dx(kind):
    """dx without either of the means that it has would not pass."""
    case = small(kind)
    buffers = case.make()
    exact = case.exact(buffers)
    count = exact["dx"].numel() / exact["dx"].shape[1]
    slope = buffers["scale"].double() * buffers["rstd"].double() / count
    normal = (buffers["x"].double() - buffers["mean"]) * buffers["rstd"]
    for left_out in (slope * exact["dbias"], slope * exact["dscale"] * normal):
        assert not is_close(case, exact["dx"] + left_out, exact["dx"])


@pytest.mark.parametrize("kind", [kind for kind in OF_IMAGES if "nchw" in kind])
def test_images_have_their_channels_first(kind):
    images = [t for t in small(kind).make().values() if t.dtype == torch.bfloat16]
    assert len(images) == (3 if "backward" in kind else 2)
    assert all(tensor.is_contiguous() for tensor in images)


@pytest.mark.parametrize("kind", CHANNELS_LAST)
def test_images_have_their_channels_last(kind):
    buffers = small(kind).make()
    images = [tensor for tensor in buffers.values() if tensor.dtype == torch.bfloat16]
    assert len(images) == WITH_MORE.get(kind, 2)
    assert all(image.is_contiguous(memory_format=torch.channels_last) for image in images)


@pytest.mark.parametrize("axes", cases.AXES)
def test_large_squares_are_squares(axes, monkeypatch):
    monkeypatch.setattr(memory_cases, "_PIECE", 200)
    case, plain = large_squares(24, 40, axes), cases.squares(24, 40, axes)
    assert (case.id, case.p, case.bytes) == (plain.id, plain.p, plain.bytes)
    buffers = case.make()
    torch.testing.assert_close(case.exact(buffers)["y"], plain.exact(buffers)["y"])


@pytest.mark.parametrize("kind", vector_cases.KINDS)
def test_plan_of_a_copy_is_the_case(kind):
    case = small(kind)
    buffers = case.make()
    run_interpreted(case, buffers)
    assert torch.equal(buffers["y"], buffers["x"])


def test_bytes():
    assert KINDS["nchw_to_nchw4"](2, 4, 6, 32).bytes == 2 * (2 * 4 * 6 * 32)
    assert KINDS["batchnorm"](2, 4, 6, 8).bytes == 2 * 2 * (2 * 4 * 6 * 8)
    assert KINDS["bn_add_relu"](2, 4, 6, 8).bytes == (2 * 3 + 1 / 8) * (2 * 4 * 6 * 8)
    assert KINDS["batchnorm_backward"](2, 4, 6, 8).bytes == 2 * 3 * (2 * 4 * 6 * 8)
    assert KINDS["drelu_fork_dbn"](2, 4, 6, 8).bytes == (2 * 4 + 1 / 8) * (2 * 4 * 6 * 8)
    assert KINDS["max_pool"](2, 4, 6, 8).bytes == 2 * 2 * 8 * (4 * 6 + 2 * 3)
    assert KINDS["average_pool_backward"](2, 5, 7, 8).bytes == 2 * 2 * 8 * (5 * 7 + 2 * 3)
    assert KINDS["chain"](4, 6).bytes == KINDS["strided"](4, 6).bytes == 2 * 3 * 4 * 6


def test_ids():
    for kind in KINDS:
        case = small(kind)
        assert memory_of(case.id).kind == kind
    with pytest.raises(ValueError, match="spelled"):
        memory_of("memory/bf16/chain/05x7")
