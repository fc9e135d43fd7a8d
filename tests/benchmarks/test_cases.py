"""The benchmarks' cases, small and on the CPU: graphs and torch spellings give what is exact."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dnnc  # noqa: E402
from benchmarks import (  # noqa: E402
    DRAWN_NAMES,
    SET_NAMES,
    on_device,
)
from benchmarks.__main__ import parser  # noqa: E402
from benchmarks.cases import (  # noqa: E402
    generated,
)
from benchmarks.cases import (  # noqa: E402
    kinds as cases,
)
from benchmarks.cases import (  # noqa: E402
    lists as case_lists,
)
from benchmarks.cases.matmul import LAYOUTS, matmul, matmul_of  # noqa: E402
from benchmarks.compilers import Compilers, our_graph  # noqa: E402
from benchmarks.peers import (  # noqa: E402
    torch_columns as torch_peers,
)
from dnnc.options import Options  # noqa: E402

pytestmark = pytest.mark.torch

OPERATIONS = sorted({tuple(case.id.split("/")[1:3]) for case in case_lists.hopper()
                     if case.kind == "matmul"})  # fmt: skip


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(cases, "DEVICE", "cpu")
    torch.manual_seed(0)


def small(dtype, operation, layout="kk", batch=1):
    return matmul(dtype, operation, batch, 48, 80, 64, layout)


def is_close(case, actual, exact):
    actual = actual.double().reshape(exact.shape)
    return float((actual - exact).norm() / exact.norm()) <= case.tolerance


def as_numpy(tensor):
    """A tensor's values in a type that both have."""
    wide = tensor if tensor.dtype in (torch.int8, torch.int32, torch.uint8) else tensor.float()
    return wide.numpy()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "operation"), OPERATIONS)
def test_graph_is_the_case(dtype, operation, layout):
    case = small(dtype, operation, layout, batch=2)
    buffers = case.make()
    graph, tensors = our_graph(case)
    shaped = {**buffers, "w": buffers["w"].mT}
    inputs = {
        tensor: as_numpy(shaped[name]).reshape([int(d.constant) for d in tensor.dims])
        for name, tensor in tensors.items()
        if name != "c"
    }
    for name, tensor in tensors.items():
        strides = [stride.constant for stride in tensor.strides]
        if name in ("a", "w", "c", "r"):
            assert list(shaped[name].stride()) == strides
    (c,) = dnnc.reference(graph, {t.uid: array for t, array in inputs.items()}).values()
    assert is_close(case, torch.from_numpy(np.asarray(c, np.float64)), case.exact(buffers)["c"])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "operation"), OPERATIONS)
def test_torch_is_the_case(dtype, operation, layout):
    if dtype in ("int8", "e4m3", "e4m3_fast") and layout != "kk":
        pytest.skip("torch has the default layout only")
    case = small(dtype, operation, layout)
    buffers = case.make()
    exact = case.exact(buffers)["c"]
    assert is_close(case, torch_peers.eager(case)(buffers), exact)
    fused = torch_peers.fused(case)
    if fused is not None:
        assert is_close(case, fused(buffers), exact)


def test_row_step_takes_rows_from_everywhere():
    case = matmul("bf16", "none", 1, 1000, 16, 1 << 13)
    assert case.row_step % 2 == 1
    buffers = case.make()
    exact = case.exact(buffers)["c"]
    full = buffers["a"].double() @ buffers["w"].double().mT
    assert torch.equal(full[..., :: case.row_step, :], exact)
    assert exact.shape[-2] * case.row_step >= 1000


def test_names_of_sets_are_known_without_torch():
    assert tuple(case_lists.SETS) == SET_NAMES


@pytest.mark.parametrize("name", case_lists.SETS)
def test_ids_are_unique_and_parse(name):
    listed = case_lists.SETS[name]()
    assert len({case.id for case in listed}) == len(listed)
    for case in listed:
        again = case_lists.case_of(case.id)
        assert (again.id, again.p, again.unit) == (case.id, case.p, case.unit)


def test_generated_cases_are_those_of_their_seed():
    for draw in (generated.matmuls, *generated.DRAWN.values()):
        drawn = [case.id for case in draw(1000)]
        assert len(drawn) >= 20
        assert drawn == [case.id for case in draw(1000)]
        assert drawn != [case.id for case in draw(1001)]
    drawn = generated.memory_bound(1000, 200)
    assert len({case.kind for case in drawn}) > 15
    assert all(case_lists.case_of(case.id).p == case.p for case in drawn)


def test_generated_convolutions_are_of_all_kinds():
    drawn = generated.convs(1000, 200)
    shapes = [case.p["shape"] for case in drawn]
    assert {shape.taps for shape in shapes} == {(n, n) for n in (1, 3, 5, 7)}
    assert {shape.stride for shape in shapes} == {1, 2}
    assert {case.p["epilogue"] for case in drawn} == {"plain", "scale_bias_relu"}
    odd = [shape for shape in shapes if shape.c % 8 or shape.k % 8]
    assert 0.1 < len(odd) / len(shapes) < 0.3
    assert sum(shape.image[0] != shape.image[1] for shape in shapes) > 20
    assert all(case_lists.case_of(case.id).p == case.p for case in drawn)


def test_sets_are_listed_or_drawn():
    assert tuple(generated.DRAWN) == DRAWN_NAMES

    def chosen(*words):
        return [case.id for case in on_device.chosen(parser().parse_args(["kernels", *words]))]

    assert chosen() == [case.id for case in case_lists.all_cases()]
    assert chosen("--set", "conv-more", "--match=-d2$")
    convs = [case.id for case in generated.convs(1001)]
    assert chosen("--set", "conv-unlisted", "--seed", "1001") == convs
    assert chosen("--seed", "3") == [case.id for case in generated.memory_bound(3)]
    with pytest.raises(ValueError, match="--seed"):
        chosen("--set", "conv-unlisted")
    with pytest.raises(ValueError, match="no --seed"):
        chosen("--set", "conv", "--seed", "1")


@pytest.mark.parametrize("id_", ["bf16/nope/8x8x8", "bf16/none/8x8x8/tn", "bf16/none/1x8x8x8"])
def test_other_ids_are_errors(id_):
    with pytest.raises(ValueError, match="matmul"):
        matmul_of(f"matmul/{id_}")


def test_decoding_is_bound_by_memory():
    assert matmul_of("matmul/bf16/none/16x4096x14336").unit == "GB/s"
    assert matmul_of("matmul/bf16/none/256x8192x8192").unit == "TFLOP/s"


def test_compilers_compile_once_and_keep_errors():
    compilers = Compilers(2, "sm_90a")
    try:
        case = small("bf16", "bias_relu", "kn")
        plan = compilers.ahead(case)
        assert compilers.ahead(case) is plan
        refused = compilers.ahead(case, Options(engine="no such engine"))
        assert plan.result()[0].programs[0].kernels
        with pytest.raises(dnnc.DnncError, match="no such engine"):
            refused.result()
    finally:
        compilers.close()
