"""Host time of one execution: what a caller's thread spends until the launch is queued."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

import dnnc
from dnnc import worker
from dnnc.options import Options

from . import host_table, new_sizes
from .cases.matmul import matmul
from .compilers import Compilers, our_graph
from .peers import contestants
from .peers import cudnn as cudnn_peers
from .peers.contestants import Bench
from .results import Results
from .watch import Watch

CALLS = 200
ROUNDS = 15


def microseconds(calls: Mapping[str, Callable[[], object]]) -> dict[str, dict[str, Any]]:
    """Rows: the median over rounds of the host's time a call.

    Each round has all of them, one after another, so that ratios are of one time; the queue is
    emptied before each.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    rows: dict[str, dict[str, Any]] = {}
    for round_ in range(ROUNDS + 1):
        for name, call in calls.items():
            if name in rows:
                continue
            try:
                found[name].append(_seconds(call))
            except Exception as error:  # whatever a peer raises
                rows[name] = {"error": str(error)[:200]}
        if round_ == 0:  # warms up
            found = {name: [] for name in calls}
    for name, seconds in found.items():
        rows.setdefault(name, {"host_us": round(1e6 * statistics.median(seconds or [0.0]), 2)})
    return {name: rows[name] for name in calls}


def _seconds(call: Callable[[], object]) -> float:
    """Seconds of the host for a call, without waiting for the device."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    seconds = (time.perf_counter() - began) / CALLS
    torch.cuda.synchronize()
    return seconds


def run_host(results: Results) -> None:
    """The ways to launch a matmul + bias + ReLU: of 64x64, beside torch and cuDNN; of new sizes."""
    case = matmul("bf16", "bias_relu", 1, 64, 64, 64)
    buffers = case.make()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        calls = {**_ours(case, buffers, stream), **_peers(case, buffers, stream)}
        rows = microseconds(calls)
        for name, row in {**rows, **host_table.ratios(rows)}.items():
            results.add(name, row)
        for way in ("a symbol", "override_shapes"):
            results.add(f"dnnc: first execute at a new size, through {way}", _first(way, stream))


def _ours(case: Any, buffers: Any, stream: Any) -> dict[str, Callable[[], object]]:
    graph, tensors = our_graph(case)
    plan = dnnc.load(worker.compile_graph(graph, contestants.target(), Options()))
    shaped = dict(buffers, w=buffers["w"].mT, bias=buffers["bias"][None, None])
    arrays = {tensor: shaped[name] for name, tensor in tensors.items()}
    addresses = {tensor: array.data_ptr() for tensor, array in arrays.items()}
    bound = plan.bind(addresses, stream=stream.cuda_stream)
    ((launch, arguments),) = bound.calls  # the same kernel, configuration and arguments
    entry, by_uid = plan.entry(), {tensor.uid: array for tensor, array in arrays.items()}
    inputs = [by_uid[tensor.uid] for tensor in plan.inputs]
    given = tuple(by_uid[tensor.uid].data_ptr() for tensor in entry.tensors)
    largest = max(array.numel() * array.element_size() for array in arrays.values())
    bytes_ = new_sizes.MOVES * new_sizes.MOVE_BYTES + largest
    room = [torch.zeros(bytes_, dtype=torch.uint8, device="cuda") for _ in given]
    first, later = (new_sizes.moving([each.data_ptr() for each in room]) for _ in range(2))
    uids = [tensor.uid for tensor in entry.tensors]
    return {
        host_table.BARE: lambda: launch(*arguments),
        host_table.BOUND: bound,
        host_table.TENSORS: lambda: plan.execute(arrays, stream=stream.cuda_stream),
        host_table.ADDRESSES: lambda: plan.execute(addresses, stream=stream.cuda_stream),
        host_table.CALL: lambda: plan(*inputs),
        host_table.ENTRY: lambda: entry(given, 0, stream.cuda_stream),
        host_table.NEW_ADDRESSES: lambda: entry(next(later), 0, stream.cuda_stream),
        host_table.FIRST_ADDRESSES: lambda: plan.execute(
            dict(zip(uids, next(first), strict=True)), stream=stream.cuda_stream
        ),
    }


def _peers(case: Any, buffers: Any, stream: Any) -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {
        "torch: matmul (out=)": lambda: torch.matmul(
            buffers["a"], buffers["w"].mT, out=buffers["c"]
        ),
        "torch: addmm with ReLU": lambda: torch._addmm_activation(
            buffers["bias"], buffers["a"][0], buffers["w"][0].mT, use_gelu=False
        ),
    }
    bench = Bench(stream, Compilers(1, contestants.target()), Watch())
    try:
        columns = cudnn_peers.columns(case, [buffers], bench)
    except Exception as error:  # without cuDNN the other rows stand
        print(f"cudnn: {error}")
        return found
    launch = columns["cudnn"][0]
    return {**found, host_table.CUDNN: lambda: launch(0)}


def _first(way: str, stream: Any) -> dict[str, float]:
    """Times at sizes that a plan has not had; each way has a plan of its own."""
    plan = new_sizes.SymbolicPlan(contestants.target(), stream.cuda_stream)
    workspace = torch.empty(max(1, plan.workspace_size()), dtype=torch.uint8, device="cuda")
    ways = {"a symbol": plan.through_symbol, "override_shapes": plan.through_overrides}
    # One row more than is counted: the first loads the code.
    counts = new_sizes.row_counts(new_sizes.COUNT + 1)
    return new_sizes.first_times(ways[way](workspace), _arrays(), torch.cuda.synchronize, counts)


def _arrays() -> Callable[[int], dict[str, Any]]:
    """x, w, b and y of so many rows, of buffers that hold the most."""
    n, k = new_sizes.N, new_sizes.K
    x, y = (torch.randn(new_sizes.MOST_ROWS * width, device="cuda").bfloat16() for width in (k, n))
    w = torch.randn(1, n, k, device="cuda").bfloat16().mT
    b = torch.randn(1, 1, n, device="cuda").bfloat16()

    def arrays(rows: int) -> dict[str, Any]:
        return {
            "x": x[: rows * k].view(1, rows, k), "w": w, "b": b,
            "y": y[: rows * n].view(1, rows, n),
        }  # fmt: skip

    return arrays
