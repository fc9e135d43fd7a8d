"""A training step of ResNet-50 beside torch's: channels last, f16 autocast, fused SGD.

Every contestant trains the same network on the same images from the same parameters.  dnnc's step
is one CUDA graph; torch's is launched by the host, as a user's loop does.
"""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

import dnnc
from examples.resnet50.network import NETWORKS, Network
from examples.resnet50.torch_training import TorchTraining
from examples.resnet50.training_building import compile_all
from examples.resnet50.training_calls import TrainingCalls
from examples.resnet50.training_device import LOSS_SCALE, RATE, TrainingDevice
from examples.resnet50.training_steps import Training

from . import kernels, timing
from .peers.contestants import Bench
from .results import Results

BATCHES = (64, 256)
SEED = 0

_RUN_SECONDS = 120.0
_STEPS_A_ROUND = 5
_WARM_STEPS = 5  # cudnn.benchmark tries algorithms in the first

Column = tuple[Callable[[], Any], dict[str, Any]]


def row_id(n: int, size: int) -> str:
    return f"resnet50/fp16/train/{n}x{size}x{size}x3"


def run(given: Namespace, bench: Bench, made: Results) -> None:
    """The command `resnet50 --train`."""
    bench.rounds = given.rounds
    network = NETWORKS["resnet50"]
    columns = [name for name in given.columns.split(",") if name in _MAKERS]
    for n in given.batch or BATCHES:
        known = made.rows.get(row_id(n, network.size), {"columns": {}})["columns"]
        if not set(columns) <= set(known):
            _run(network, n, columns, given, bench, made)


def _run(
    network: Network, n: int, columns: list[str], given: Namespace, bench: Bench, made: Results
) -> None:
    """Times a batch: all columns in turn, since ratios are of one time."""
    case = row_id(n, network.size)
    found: dict[str, dict[str, Any]] = {}
    timed: dict[str, timing.Timed] = {}
    with ExitStack() as alive:
        for name in columns:
            why = bench.watch.failures.get((case, name))
            try:
                if why is not None:
                    raise RuntimeError(why)
                bench.watch.at(case, name, _RUN_SECONDS + given.compile_seconds)
                step, information = _MAKERS[name](network, n, given, bench, alive)
                for _ in range(_WARM_STEPS):
                    step()
                torch.cuda.synchronize()
                found[name] = {"information": information}
                timed[name] = timing.Launched(lambda _, step=step: step(), _STEPS_A_ROUND)
            except Exception as error:
                found[name] = {"error": kernels.said(error)}
        rounds = timing.interleaved(
            timed, bench.rounds, lambda name: bench.watch.at(case, name, _RUN_SECONDS)
        )
    flops = 3 * network.flops(n)  # forward, and two gradients of each product
    for name, seconds in rounds.items():
        median = statistics.median(seconds)
        found[name] |= {"seconds": seconds, "rate": flops / median / 1e12}
    row = {"unit": "TFLOP/s", "flops": flops, "bytes": 0.0, "tolerance": 0.0, "columns": found}
    made.add(case, row)


def _dnnc(network: Network, n: int, given: Namespace, bench: Bench, alive: ExitStack) -> Column:
    training, began = Training(network), time.perf_counter()

    def say(name: str) -> None:
        bench.watch.at(row_id(n, network.size), "dnnc", _RUN_SECONDS)

    made = compile_all(training, [n], bench.compilers.target, given.jobs, say)
    seconds = time.perf_counter() - began
    work = TrainingCalls(training, n, {op: dnnc.load(plan) for op, _, plan in made})
    stream = bench.stream.cuda_stream
    device = alive.enter_context(TrainingDevice(work, SEED, RATE, stream))
    information = {"arena": work.arena.bytes, "steps": len(training.steps),
                   "compile_ms": round(1e3 * seconds)}  # fmt: skip
    return device.step, information


def _torch(mode: str) -> Callable[..., Column]:
    def column(
        network: Network, n: int, given: Namespace, bench: Bench, alive: ExitStack
    ) -> Column:  # fmt: skip
        torch.backends.cudnn.benchmark = True
        torch._dynamo.reset()
        run = TorchTraining(network, n, SEED, RATE, LOSS_SCALE, is_half=True, mode=mode)
        began = time.perf_counter()
        run.step()
        torch.cuda.synchronize()
        return run.step, {"first_step_ms": round(1e3 * (time.perf_counter() - began))}

    return column


_MAKERS: dict[str, Callable[..., Column]] = {
    "dnnc": _dnnc,
    "torch": _torch(""),
    "torch_compile": _torch("default"),
    "torch_compile_max": _torch("max-autotune"),
}
