"""What is compared: dnnc, cuDNN through its frontend, and torch.

Each takes (case, buffer sets, bench) and gives {column: (launch, information)}; launch(i) works
on buffer set i, and writes the outputs or returns them.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import dnnc
from dnnc.engines import heuristics
from dnnc.options import DEFAULTS, Options
from dnnc.runtime import driver
from dnnc.target import of

from . import attention_peers, graphs, timing, torch_peers
from .case import Buffers, Case
from .cases import TORCH_TYPES
from .compilers import Compilers, our_graph
from .watch import Watch

Column = tuple[timing.Launch, dict[str, Any]]

OURS = "dnnc"
TUNE_SECONDS = 4.0
TUNE_PLANS = 40


@dataclass
class Bench:
    """What contestants run with.  tune_seconds: for the search of cuDNN's best plan."""

    stream: Any
    compilers: Compilers
    watch: Watch
    rounds: int = 7
    tune_seconds: float = TUNE_SECONDS


Contestant = Callable[[Case, Sequence[Buffers], Bench], dict[str, Column]]


def target() -> str:
    major, minor = driver.device().capability
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


# ---- dnnc


def our_launch(case: Case, sets: Sequence[Buffers], bench: Bench, options: Options) -> Column:
    """A compiled case, bound to each buffer set."""
    _, tensors = our_graph(case)
    compiled, seconds = bench.compilers.ahead(case, options).result()
    plan = dnnc.load(compiled)
    needed = plan.workspace_size()
    workspace = torch.empty(max(1, needed), dtype=torch.uint8, device="cuda")
    bound = [
        plan.bind(
            {tensor: buffers[name].data_ptr() for name, tensor in tensors.items()},
            workspace,
            stream=bench.stream.cuda_stream,
        )
        for buffers in sets
    ]
    program = compiled.programs[0]
    information = {
        "engines": [fusion.engine for fusion in program.fusions],
        "knobs": [dict(fusion.knobs) for fusion in program.fusions],
        "registers": [kernel.registers for kernel in program.kernels],
        "compile_ms": round(1e3 * seconds, 1),
        "workspace": needed,
    }
    return lambda i: bound[i](), information


def dnnc_columns(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
    return {"dnnc": our_launch(case, sets, bench, our_options(case, bench.compilers.target))}


def our_options(case: Case, target: str) -> Options:
    """The default, but for the case that asks for what is never chosen silently."""
    if case.p.get("dtype") != "tf32":
        return DEFAULTS
    graph, _ = our_graph(case)
    for config in heuristics.configs(graph, of(target)):
        if "DOWN_CONVERT_INPUTS" in config.notes:
            (choice,) = config.choices
            return Options(engine=choice.engine.name, knobs=tuple(choice.knobs.items()))
    raise ValueError("no engine config rounds operands to tf32")


# ---- cuDNN


@functools.cache
def cudnn_handle(stream: int) -> tuple[Any, Any]:
    """(the frontend, its handle on a stream)."""
    import cudnn

    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=stream)
    return cudnn, handle


def cudnn_columns(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
    """cudnn: the first plan of the heuristics that builds; cudnn_best: the fastest tried."""
    cudnn, handle = cudnn_handle(bench.stream.cuda_stream)
    graph = cudnn.pygraph(handle=handle, **graphs.options(cudnn))
    made = graphs.build(cudnn, graph, case)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    numbers = {
        tensor.get_uid(): torch.full([1] * rank, value, dtype=TORCH_TYPES[dtype])
        for tensor, (value, rank, dtype) in made.numbers.items()
    }
    packs = [
        {tensor.get_uid(): _buffer(buffers[name]) for name, tensor in made.tensors.items()}
        | numbers
        for buffers in sets
    ]
    found: list[tuple[float, int, timing.Launch]] = []
    began = time.perf_counter()
    failed: list[str] = []
    for index in range(min(TUNE_PLANS, graph.get_execution_plan_count())):
        if found and time.perf_counter() - began > bench.tune_seconds:
            break
        try:
            graph.build_plan_at_index(index)
            size = max(1, graph.get_workspace_size_plan_at_index(index))
            workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
            launch = functools.partial(_execute, graph, packs, workspace, index, handle)
            captured = timing.capture(launch, len(sets), bench.stream)
        except Exception as error:  # cuDNN's exceptions have no base of their own
            failed.append(str(error)[:100])
            continue
        found.append((_quick_seconds(captured, found), index, launch))
    if not found:
        raise RuntimeError(failed[0] if failed else "no plan")
    tried = {"tried": len(found), "failed": len(failed)}

    def column(entry: tuple[float, int, timing.Launch]) -> Column:
        name = graph.get_plan_name_at_index(entry[1])
        return entry[2], {"plan": name, "index": entry[1], **tried}

    return {"cudnn": column(found[0]), "cudnn_best": column(min(found, key=lambda f: f[0]))}


def _quick_seconds(captured: timing.Captured, found: Sequence[tuple[float, Any, Any]]) -> float:
    """The median of three timings; one of a plan that is far from the best so far."""
    first = captured.seconds_a_call()
    if found and first > 1.3 * min(seconds for seconds, _, _ in found):
        return first
    return statistics.median((first, captured.seconds_a_call(), captured.seconds_a_call()))


def _buffer(tensor: torch.Tensor) -> Any:
    """A tensor as the frontend takes it: of fp8 it knows addresses only."""
    return tensor.data_ptr() if tensor.dtype == torch.float8_e4m3fn else tensor


def _execute(graph: Any, packs: Any, workspace: Any, index: int, handle: Any, i: int) -> None:
    graph.execute_plan_at_index(packs[i], workspace, index, handle)


# ---- torch


def torch_columns(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
    """torch: eager; torch_fused: cuBLASLt's epilogue; torch_cudnn: attention's other backend."""
    if case.kind in ("attention", "packed", "paged"):
        calls = attention_peers.backends(case)
        return {name: (_on_sets(call, sets), {}) for name, call in calls.items()}
    eager, fused = torch_peers.eager(case), torch_peers.fused(case)
    found: dict[str, Column] = {"torch": (lambda i: eager(sets[i]), {})}
    if fused is not None:
        found["torch_fused"] = (lambda i: fused(sets[i]), {})
    return found


def _on_sets(call: torch_peers.Call, sets: Sequence[Buffers]) -> timing.Launch:
    return lambda i: call(sets[i])


def torch_compile_columns(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
    """torch_compile: inductor's default mode; of attention, flex_attention through it."""
    made = torch_peers.inductor(case, sets[0])
    if made is None:
        return {}
    compiled, seconds = made
    return {"torch_compile": (lambda i: compiled(sets[i]), {"compile_ms": round(1e3 * seconds)})}


ALL: dict[str, Contestant] = {
    "dnnc": dnnc_columns,
    "cudnn": cudnn_columns,
    "torch": torch_columns,
    "torch_compile": torch_compile_columns,
}
