"""ResNet-50: every operation beside cuDNN, then whole passes beside each other.

Rows of operations are timed first: cuDNN's whole pass takes the plans that were the fastest there.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any

from examples.resnet50.network import AveragePool, MaxPool, Operation

from . import kernels, resnet50_training
from .cases import resnet50 as resnet50_cases
from .cases.case import Case
from .cases.kinds import add
from .cases.matmul import matmul
from .peers import resnet50 as resnet50_peers
from .peers.contestants import Bench, Contestant
from .results import Results

# What floors are read from: the fastest streaming kernel, the fastest product.
REFERENCES = (add(8192, 16384), matmul("fp16", "none", 1, 8192, 8192, 8192))


def run(given: Namespace, bench: Bench, made: Results) -> None:
    """The command `resnet50`."""
    if given.train:
        resnet50_training.run(given, bench, made)
        return
    columns = given.columns.split(",")
    peers = _contestants(given.compile_seconds, made)
    unknown = set(columns) - set(peers)
    if unknown:
        raise ValueError(f"columns {sorted(unknown)}; there are {list(peers)}")
    bench.tune_seconds = given.tune_seconds
    kernels.run_cases(REFERENCES, ["dnnc", "torch"], bench, made)
    bench.rounds = given.layer_rounds
    batches = given.batch or (32, 256)
    for n in batches if given.layer_rounds else ():
        run_layers(n, bench, made)
    bench.rounds = given.rounds
    for n in batches:
        run_forward(resnet50_cases.forward(n), columns, peers, bench, made)


def run_layers(n: int, bench: Bench, made: Results) -> None:
    """Times the operations that the results lack."""
    pools = [op for op in resnet50_cases.NETWORK.operations if _is_pool(op)]
    others = [op for op in resnet50_cases.NETWORK.operations if not _is_pool(op)]
    for group, columns in ((others, ["dnnc", "cudnn"]), (pools, ["dnnc", "torch"])):
        kernels.run_cases([resnet50_cases.layer(op, n) for op in group], columns, bench, made)


def _is_pool(op: Operation) -> bool:
    """Whether the operation is a pooling, for which cuDNN's frontend has no Python graph."""
    return isinstance(op, MaxPool | AveragePool)


def run_forward(
    case: Case, columns: Sequence[str], peers: dict[str, Contestant], bench: Bench, made: Results
) -> None:
    """Times the whole pass, again if a column is missing: ratios are of one time."""
    known = made.rows.get(case.id, {"columns": {}})["columns"]
    if set(columns) <= {column.removesuffix("_best") for column in known}:
        return
    makers = {name: partial(_columns, peers[name], case, bench) for name in columns}
    measured = kernels.measure_or_say(case, makers, bench)
    if measured is not None:
        made.add(case.id, kernels.row_of(case, measured))


def _columns(contestant: Contestant, case: Case, bench: Bench, sets: Any) -> Any:
    return contestant(case, sets, bench)


def _contestants(compile_seconds: float, made: Results) -> dict[str, Contestant]:
    inductor = partial(resnet50_peers.compiled_columns, seconds=compile_seconds)
    return {
        "dnnc": resnet50_peers.dnnc_columns,
        "cudnn": lambda case, sets, bench: resnet50_peers.cudnn_columns(
            case, sets, bench, best_plans(case, made)
        ),
        "torch": resnet50_peers.torch_columns,
        "torch_fused": resnet50_peers.torch_fused_columns,
        "torch_compile": inductor("torch_compile", "default"),
        # Its own CUDA graphs stay out: everyone is captured alike.
        "torch_compile_max": inductor("torch_compile_max", "max-autotune-no-cudagraphs"),
    }


def best_plans(case: Case, made: Results) -> dict[Operation, int | None]:
    """The index of cuDNN's fastest plan for each operation, as its row says."""
    found: dict[Operation, int | None] = {}
    for op in case.p["network"].operations:
        row = made.rows.get(resnet50_cases.layer_id(op, case.p["n"]), {"columns": {}})
        best = row["columns"].get("cudnn_best", {})
        found[op] = best["information"]["index"] if "seconds" in best else None
    if not any(index is not None for index in found.values()):
        raise RuntimeError("no operation has a plan of cuDNN's in the results: time them first")
    return found
