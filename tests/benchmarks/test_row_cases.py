"""The cases of rows, small and on the CPU: graphs and torch spellings give what is exact."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dnnc  # noqa: E402
from benchmarks.cases import kinds  # noqa: E402
from benchmarks.cases.row import KINDS, rows_of  # noqa: E402
from benchmarks.compilers import our_graph  # noqa: E402
from benchmarks.peers import torch_columns  # noqa: E402

pytestmark = pytest.mark.torch

# Torch has these on the device only.
WITHOUT_CPU = ("layernorm_backward", "rmsnorm_backward")


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(kinds, "DEVICE", "cpu")
    torch.manual_seed(0)


def is_close(case, actual, wanted):
    error = (actual.double() - wanted).norm() / wanted.norm()
    return bool(error <= case.tolerance)


def as_numpy(tensor):
    return tensor.float().numpy().astype(np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_graph_is_the_case(kind):
    case = KINDS[kind](24, 40)
    buffers = case.make()
    graph, tensors = our_graph(case)
    made = {tensor.uid: name for name, tensor in tensors.items() if tensor in graph.outputs}
    inputs = {
        tensor.uid: as_numpy(buffers[name]).reshape([int(n.constant) for n in tensor.dims])
        for name, tensor in tensors.items()
        if tensor.uid not in made
    }
    found = dnnc.reference(graph, inputs)
    exact = case.exact(buffers)
    assert {made[uid] for uid in found} >= set(exact)
    for uid, value in found.items():
        if made[uid] in exact:
            value = torch.from_numpy(value.astype("float64")).reshape(exact[made[uid]].shape)
            assert is_close(case, value, exact[made[uid]]), made[uid]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in WITHOUT_CPU])
def test_torch_is_the_case(kind):
    case = KINDS[kind](24, 40)
    buffers = case.make()
    returned = torch_columns.eager(case)(buffers)
    returned = returned if isinstance(returned, tuple) else (returned,)
    for value, (name, wanted) in zip(returned, case.exact(buffers).items(), strict=True):
        assert is_close(case, value.reshape(wanted.shape), wanted), name


@pytest.mark.parametrize("kind", KINDS)
def test_exact_rows_are_from_everywhere(kind):
    case = KINDS[kind](1500, 1024)
    assert case.row_step > 1
    buffers = case.make()
    for name, wanted in case.exact(buffers).items():
        rows = buffers[name].shape[0]
        assert wanted.shape[0] in (rows, len(range(0, rows, case.row_step)))


def test_ids():
    for kind, make in KINDS.items():
        assert rows_of(make(5, 7).id).kind == kind
    with pytest.raises(ValueError, match="spelled"):
        rows_of("rows/bf16/rmsnorm/05x7")
