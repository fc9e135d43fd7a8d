"""Cases bound by memory, small and on the CPU: graphs and torch spellings give what is exact."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import dnnc  # noqa: E402
from benchmarks import cases, memory_cases, torch_peers  # noqa: E402
from benchmarks.compilers import our_graph  # noqa: E402
from benchmarks.memory_cases import KINDS, large_squares, memory_of  # noqa: E402
from benchmarks.memory_graphs import EPSILON, MOMENTUM  # noqa: E402

from .test_cases import as_numpy, is_close  # noqa: E402

pytestmark = pytest.mark.torch

OF_IMAGES = [kind for kind in KINDS if "batchnorm" in kind or "pool" in kind]


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(cases, "DEVICE", "cpu")
    torch.manual_seed(0)


def small(kind):
    return KINDS[kind](*((3, 9, 6, 16) if kind in OF_IMAGES else (24, 40)))


def run_reference(case, buffers):
    """Writes what the graph gives to the buffers, where its strides say."""
    graph, tensors = our_graph(case)
    names = {tensor.uid: name for name, tensor in tensors.items()}
    outputs = {tensor.uid for tensor in graph.outputs}
    placed = {}
    for name, tensor in tensors.items():
        dims, strides = ([int(size.constant) for size in sizes]
                         for sizes in (tensor.dims, tensor.strides))  # fmt: skip
        placed[tensor.uid] = buffers[name].as_strided(dims, strides)
    for uid in outputs:
        placed[uid].fill_(float("nan"))
    inputs = {uid: as_numpy(there) for uid, there in placed.items() if uid not in outputs}
    found = dnnc.reference(graph, inputs)
    assert found.keys() == outputs
    for uid, value in found.items():
        placed[uid].copy_(torch.from_numpy(value.astype("float64")))
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
    ((name, wanted),) = case.exact(buffers).items()
    returned = torch_peers.eager(case)(buffers)
    assert returned.shape == wanted.shape
    assert is_close(case, returned, wanted)
    # What torch writes is laid out as our output is.
    assert returned.stride() == buffers[name].stride()


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


@pytest.mark.parametrize("kind", OF_IMAGES)
def test_images_have_their_channels_last(kind):
    buffers = small(kind).make()
    images = [tensor for tensor in buffers.values() if tensor.dtype == torch.bfloat16]
    assert len(images) == 2
    assert all(image.is_contiguous(memory_format=torch.channels_last) for image in images)


@pytest.mark.parametrize("axes", cases.AXES)
def test_large_squares_are_squares(axes, monkeypatch):
    monkeypatch.setattr(memory_cases, "_PIECE", 200)
    case, plain = large_squares(24, 40, axes), cases.squares(24, 40, axes)
    assert (case.id, case.p, case.bytes) == (plain.id, plain.p, plain.bytes)
    buffers = case.make()
    torch.testing.assert_close(case.exact(buffers)["y"], plain.exact(buffers)["y"])


def test_bytes():
    assert KINDS["batchnorm"](2, 4, 6, 8).bytes == 2 * 2 * (2 * 4 * 6 * 8)
    assert KINDS["max_pool"](2, 4, 6, 8).bytes == 2 * 2 * 8 * (4 * 6 + 2 * 3)
    assert KINDS["average_pool_backward"](2, 5, 7, 8).bytes == 2 * 2 * 8 * (5 * 7 + 2 * 3)
    assert KINDS["chain"](4, 6).bytes == KINDS["strided"](4, 6).bytes == 2 * 3 * 4 * 6


def test_ids():
    for kind in KINDS:
        case = small(kind)
        assert memory_of(case.id).kind == kind
    with pytest.raises(ValueError, match="spelled"):
        memory_of("memory/bf16/chain/05x7")
