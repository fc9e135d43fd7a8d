"""The benchmark of ResNet-50 on the CPU, with a small network: cases, contestants, the command."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import dnnc  # noqa: E402
from benchmarks import (  # noqa: E402
    resnet50,
    resnet50_table,
    timing,
)
from benchmarks.cases import (  # noqa: E402
    kinds as cases,
)
from benchmarks.cases import (  # noqa: E402
    resnet50 as resnet50_cases,
)
from benchmarks.cases.case import Case  # noqa: E402
from benchmarks.compilers import our_graph  # noqa: E402
from benchmarks.peers import (  # noqa: E402
    contestants,
)
from benchmarks.peers import (  # noqa: E402
    cudnn as cudnn_peers,
)
from benchmarks.peers import (  # noqa: E402
    resnet50 as resnet50_peers,
)
from benchmarks.peers import (  # noqa: E402
    torch_columns as torch_peers,
)
from benchmarks.results import Results  # noqa: E402
from benchmarks.watch import Watch  # noqa: E402
from examples.resnet50.network import NETWORKS, Conv  # noqa: E402
from tests.runtime.fake_driver import FakeDriver  # noqa: E402

from .test_cases import is_close  # noqa: E402
from .test_memory_cases import run_reference  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = NETWORKS["small"]


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(cases, "DEVICE", "cpu")
    monkeypatch.setattr(resnet50_cases, "NETWORK", SMALL)
    torch.manual_seed(0)


KINDS = {type(op).__name__ + str(op.has_residual): op for op in SMALL.operations}


@pytest.mark.parametrize("kind", KINDS)
def test_graph_and_torch_are_the_case(kind):
    case = resnet50_cases.layer(KINDS[kind], 2)
    buffers = case.make()
    exact = case.exact(buffers)["y"]
    run_reference(case, buffers)
    assert is_close(case, buffers["y"], exact)
    assert is_close(case, torch_peers.eager(case)(buffers), exact)


def test_strides_of_buffers_are_those_of_graphs():
    for op in SMALL.operations:
        case = resnet50_cases.layer(op, 2)
        buffers = case.make()
        for name, tensor in our_graph(case)[1].items():
            if name in ("x", "y", "residual"):
                assert list(buffers[name].stride()) == [s.constant for s in tensor.strides]


class Graph(dnnc.pygraph):
    """Stands in for cuDNN's: the reference runs where a plan would."""

    def __init__(self, *, handle, **options):
        super().__init__("stand-in", **options)

    def create_execution_plans(self, modes):
        pass

    def build_plan_at_index(self, index):
        assert index == 3

    def get_plan_name_at_index(self, index):
        return f"eng{index}"

    def get_workspace_size_plan_at_index(self, index):
        return 0

    def execute_plan_at_index(self, pack, workspace, index, handle):
        placed = {uid: self._placed(uid, array) for uid, array in pack.items()}
        inputs = {t.uid: placed[t.uid].float().numpy() for t in self.graph.inputs}
        for uid, value in dnnc.reference(self, inputs).items():
            placed[uid].copy_(torch.as_tensor(value))

    def _placed(self, uid, array):
        tensor = self.graph.tensor(uid)
        dims, strides = (
            [int(n.constant) for n in sizes] for sizes in (tensor.dims, tensor.strides)
        )
        return array.as_strided(dims, strides)


LIBRARY = SimpleNamespace(
    pygraph=Graph, data_type=dnnc.data_type, heur_mode=dnnc.heur_mode,
    resample_mode=None, reduction_mode=dnnc.reduction_mode,
)  # fmt: skip


def relu_of(x, w, bias, stride, padding, dilation, groups):
    return torch.nn.functional.conv2d(x, w, bias, stride, padding).relu()


def add_relu_of(x, w, z, alpha, bias, stride, padding, dilation, groups):
    return (torch.nn.functional.conv2d(x, w, bias, stride, padding) + alpha * z).relu()


@pytest.fixture
def peers(monkeypatch):
    """Stand-ins for what needs a GPU; a bench."""
    monkeypatch.setattr(torch, "cudnn_convolution_relu", relu_of)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", add_relu_of)
    monkeypatch.setattr(cudnn_peers, "handle_on", lambda stream: (LIBRARY, "handle"))
    stream = SimpleNamespace(cuda_stream=0)
    return contestants.Bench(stream, SimpleNamespace(target="sm_90a"), Watch(), rounds=2)


def columns_of(case, sets, bench):
    convolutions = {op: 3 for op in SMALL.operations if isinstance(op, Conv)}
    # One that no plan takes.
    convolutions[SMALL.layers[-4].op] = None
    yield from resnet50_peers.torch_columns(case, sets, bench).items()
    yield from resnet50_peers.torch_fused_columns(case, sets, bench).items()
    yield from resnet50_peers.cudnn_columns(case, sets, bench, convolutions).items()


def test_everyone_computes_the_same_network(peers):
    case = resnet50_cases.forward(2, SMALL)
    sets = [case.make() for _ in range(2)]
    seen = []
    for name, (launch, information) in columns_of(case, sets, peers):
        seen.append(name)
        for i in (1, 0):
            sets[i]["y"].fill_(float("nan"))
            exact = case.exact(sets[i])["y"]
            returned = launch(i)
            y = sets[i]["y"] if returned is None else returned
            assert is_close(case, y, exact), name
        if name == "cudnn_best":
            by_torch = information["by_torch"]
    assert seen == ["torch", "torch_eager", "torch_fused", "cudnn_best"]
    last = SMALL.layers[-4].op.id
    assert [id_.partition("-")[0] for id_ in by_torch] == [
        "maxpool3x3",
        "conv",
        "average",
        "linear",
    ]
    assert last in by_torch


def test_our_launches(peers, monkeypatch):
    """All layers, on each buffer set, by the runtime and a stand-in for the driver."""
    from benchmarks.compilers import Compilers

    small = NETWORKS["small"]
    fake = FakeDriver(capability=(8, 0), argument_bytes={})
    fake.install(monkeypatch)
    peers.compilers = Compilers(1, "sm_80")
    case = resnet50_cases.forward(2, small)
    try:
        sets = [case.make() for _ in range(2)]
        (launch, information) = resnet50_peers.dnnc_columns(case, sets, peers)["dnnc"]
    finally:
        peers.compilers.close()
    launch(0)
    launch(1)
    assert information["launches"] == len(small.layers)
    assert len(fake.launches) == 2 * len(small.layers)
    assert information["engines"][small.layers[0].op.id] == ["conv_sm80"]


def test_the_command(peers, monkeypatch, tmp_path, capsys):
    """From timing to tables; what is there is not timed again."""

    def by_torch(case, sets, bench):
        launch = torch_peers.eager(case)
        return {"dnnc": (lambda i: launch(sets[i]), {})}

    def by_cudnn(case, sets, bench):
        launch = torch_peers.eager(case)
        best = {"plan": "eng3", "index": 3}
        return {"cudnn_best": (lambda i: launch(sets[i]), best)}

    def one_by_one(launch, sets, stream):
        return timing.Launched(launch, sets)

    def seconds(work):
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    monkeypatch.setitem(contestants.ALL, "dnnc", by_torch)
    monkeypatch.setitem(contestants.ALL, "cudnn", by_cudnn)
    monkeypatch.setattr(
        resnet50_peers, "dnnc_columns",
        lambda *given: {"dnnc": resnet50_peers.torch_columns(*given)["torch"]},
    )  # fmt: skip
    monkeypatch.setattr("benchmarks.kernels._compile", lambda cases, bench: None)
    monkeypatch.setattr(resnet50, "REFERENCES", (
        cases.add(8, 64), resnet50.matmul("fp16", "none", 1, 8, 8, 8)))  # fmt: skip
    monkeypatch.setattr(timing, "sets_needed", lambda bytes_, is_memory_bound: 2)
    monkeypatch.setattr(timing, "capture", one_by_one)
    monkeypatch.setattr(timing, "_seconds", seconds)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    meta = {"device": "CPU", "multiprocessors": 2, "driver": "", "cuda": "", "torch": "",
            "dnnc": "", "date": ""}  # fmt: skip
    made = Results(tmp_path / "r.json", "resnet50", meta)
    given = Namespace(train=False, columns="dnnc,cudnn,torch,torch_fused", batch=[2], rounds=2,
                      layer_rounds=1, tune_seconds=1.0, compile_seconds=1.0)  # fmt: skip
    resnet50.run(given, peers, made)
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    whole = rows["resnet50/fp16/forward/2x40x40x3"]["columns"]
    assert set(whole) == {"dnnc", "cudnn_best", "torch", "torch_eager", "torch_fused"}
    assert all("rate" in entry for entry in whole.values()), whole
    assert len(whole["dnnc"]["seconds"]) == 2
    assert len(rows) == 2 + len(SMALL.operations) + 1
    timed = []
    monkeypatch.setattr(made, "add", lambda name, row: timed.append(name))
    resnet50.run(given, peers, made)
    assert timed == []
    given.columns = "dnnc,torch_compile_max"
    monkeypatch.setattr(resnet50_peers, "compiled_columns", lambda *_, **__: by_torch)
    resnet50.run(given, peers, made)
    assert timed == ["resnet50/fp16/forward/2x40x40x3"]
    text = resnet50_table.markdown(made.data, SMALL)
    assert f"| all layers | {len(SMALL.layers)} |" in text
    assert "torch's fused convolutions" in text


def test_plans_of_cudnn_come_from_the_rows(tmp_path):
    made = Results(tmp_path / "r.json", "resnet50", {})
    case = resnet50_cases.forward(2, SMALL)
    with pytest.raises(RuntimeError, match="time them first"):
        resnet50.best_plans(case, made)
    first, second, *_ = SMALL.operations
    best = {"seconds": [1.0], "rate": 1.0, "information": {"index": 5}}
    made.rows[resnet50_cases.layer_id(first, 2)] = {"columns": {"cudnn_best": best}}
    failed = {"cudnn": {"error": "no plan"}}
    made.rows[resnet50_cases.layer_id(second, 2)] = {"columns": failed}
    found = resnet50.best_plans(case, made)
    assert found[first] == 5
    assert found[second] is None
    assert set(found) == set(SMALL.operations)


def test_unknown_columns_are_errors(peers, tmp_path):
    given = Namespace(train=False, columns="dnnc,jax", compile_seconds=1.0, batch=[2])
    with pytest.raises(ValueError, match=r"\['jax'\]"):
        resnet50.run(given, peers, Results(tmp_path / "r.json", "resnet50", {}))


def test_ids_name_their_case():
    case = resnet50_cases.layer(SMALL.layers[0].op, 32)
    assert isinstance(case, Case)
    assert case.id == "resnet50/fp16/conv/32:conv-40x40x3-8x7x7-s2-relu"
    assert resnet50_cases.forward(32).id == "resnet50/fp16/forward/32x40x40x3"
