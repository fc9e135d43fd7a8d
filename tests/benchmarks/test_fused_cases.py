"""The fused cases, small and on the CPU: graphs and torch spellings give what is exact."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import dnnc  # noqa: E402
from benchmarks.cases import kinds, lists  # noqa: E402
from benchmarks.cases.fused import (  # noqa: E402
    KINDS,
    fused_of,
    grouped,
    rms_norm,
    rows_of_experts,
    softmax,
    swiglu,
)
from benchmarks.compilers import our_graph  # noqa: E402
from benchmarks.peers import torch_columns  # noqa: E402

from .test_cases import as_numpy, is_close  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = {
    "swiglu": swiglu(48, 80, 64),
    "softmax": softmax(48, 80, 64),
    "rms_norm": rms_norm(48, 80, 64),
    "grouped": grouped(5, 48, 80, 64),
}


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(kinds, "DEVICE", "cpu")
    torch.manual_seed(0)


@pytest.mark.parametrize("kind", KINDS)
def test_graph_is_the_case(kind):
    case = SMALL[kind]
    buffers = case.make()
    graph, tensors = our_graph(case)
    inputs = {}
    for name, tensor in tensors.items():
        if name != "y":
            # A weight is stored as [n, k]: the graph's strides say how it lies.
            dims, strides = ([int(size.constant) for size in sizes]
                             for sizes in (tensor.dims, tensor.strides))  # fmt: skip
            inputs[tensor.uid] = as_numpy(buffers[name].as_strided(dims, strides))
    (y,) = dnnc.reference(graph, inputs).values()
    assert is_close(case, torch.from_numpy(y.astype("float64")), case.exact(buffers)["y"])


@pytest.mark.parametrize("kind", KINDS)
def test_torch_is_the_case(kind):
    case = SMALL[kind]
    buffers = case.make()
    assert is_close(case, torch_columns.eager(case)(buffers), case.exact(buffers)["y"])
    assert torch_columns.fused(case) is None


def test_inductor_has_no_grouped_product():
    assert torch_columns.inductor(SMALL["grouped"], {}) is None


@pytest.mark.parametrize("case", [softmax(3000, 16, 1 << 12), swiglu(1100, 16, 1 << 13)],
                         ids=lambda case: case.id)  # fmt: skip
def test_exact_rows_are_from_everywhere(case):
    assert case.row_step > 1
    buffers = case.make()
    some = case.exact(buffers)["y"]
    whole = torch_columns.eager(case)({n: t.double() for n, t in buffers.items()})
    assert torch.allclose(whole[:: case.row_step], some)


def test_exact_rows_of_every_expert(monkeypatch):
    monkeypatch.setattr("benchmarks.cases.kinds.fused._GROUPED_ELEMENTS", 1 << 9)
    case = grouped(6, 100, 8, 16)
    assert case.row_step > 1
    buffers = case.make()
    whole = torch_columns.eager(case)(buffers)
    assert is_close(case, whole[:: case.row_step], case.exact(buffers)["y"])


@pytest.mark.parametrize(("experts", "rows"), [(8, 16384), (64, 256), (2, 5), (1, 7)])
def test_rows_of_experts(experts, rows):
    counts = rows_of_experts(experts, rows)
    assert counts == rows_of_experts(experts, rows)
    assert (len(counts), sum(counts)) == (experts, rows)
    assert min(counts) >= 0
    assert experts == 1 or counts[experts // 2] == 0
    assert experts < 8 or max(counts) > 2 * rows / experts


def test_offsets_are_what_both_sides_take():
    buffers = grouped(6, 100, 8, 16).make()
    first, ends, counts = buffers["first"], buffers["ends"], rows_of_experts(6, 100)
    assert (first.dtype, ends.dtype) == (torch.int32, torch.int32)
    assert list(first.shape) == [6, 1, 1]
    assert first.flatten().tolist() == [0, *ends.tolist()[:-1]]
    assert (ends - first.flatten()).tolist() == counts


def test_operations_and_bytes():
    def counted(case):
        return case.flops, case.bytes

    assert counted(swiglu(2, 3, 5)) == (4 * 2 * 3 * 5, 2 * (2 * 5 + 2 * 3 * 5 + 2 * 3))
    assert counted(softmax(2, 3, 5)) == (2 * 2 * 3 * 5, 2 * (2 * 5 + 3 * 5 + 2 * 3))
    assert counted(rms_norm(2, 3, 5)) == counted(softmax(2, 3, 5))
    # Of two experts one has no rows, and its weights are not read.
    assert counted(grouped(2, 7, 3, 5)) == (2 * 7 * 3 * 5, 2 * (7 * 5 + 3 * 5 + 7 * 3))


def test_units_are_those_of_what_binds():
    units = {case.id.partition("/bf16/")[2]: case.unit for case in lists.fused()}
    assert units["swiglu/4096x14336x4096"] == units["grouped/64x16384x4096x4096"] == "TFLOP/s"
    assert units["swiglu/16x14336x4096"] == units["grouped/64x256x4096x4096"] == "GB/s"


def test_every_grouped_case_has_a_plain_one_beside_it():
    listed = {case.id: case for case in lists.fused()}
    for case in listed.values():
        if case.kind == "grouped":
            _, *sizes = case.p.values()
            plain = listed[f"matmul/bf16/none/{'x'.join(map(str, sizes))}"]
            assert plain.flops == case.flops


def test_ids_of_other_sizes():
    assert lists.case_of("fused/bf16/grouped/3x96x40x48").p == {
        "e": 3,
        "t": 96,
        "n": 40,
        "k": 48,
    }
    with pytest.raises(ValueError, match="is spelled"):
        fused_of("fused/fp16/swiglu/8x8x8")
