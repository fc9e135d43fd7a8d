"""What is compared: dnnc, cuDNN through its frontend, and torch.

Each takes (case, buffer sets, stream) and gives {column: (launch, information)}; launch(i) works
on buffer set i, and writes the outputs or returns them.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

import dnnc
from dnnc import worker
from dnnc.engines import heuristics
from dnnc.options import Options
from dnnc.runtime import driver
from dnnc.target import of

from . import graphs, timing
from .cases import AXES, EPILOGUES, Buffers, Case

Column = tuple[timing.Launch, dict[str, Any]]

TUNE_SECONDS = 4.0
TUNE_PLANS = 40


def target() -> str:
    major, minor = driver.device().capability
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


# ---- dnnc


def our_graph(case: Case) -> tuple[Any, dict[str, Any]]:
    """(OperationGraph, name -> tensor) of a case."""
    graph = dnnc.pygraph(case.kind, **graphs.options(dnnc))
    made = graphs.build(dnnc, graph, case)
    return graph.graph.finalize(), made.tensors


def our_launch(case: Case, sets: Sequence[Buffers], stream: Any, options: Options) -> Column:
    """A compiled case, bound to each buffer set."""
    graph, tensors = our_graph(case)
    began = time.perf_counter()
    compiled = worker.compile_graph(graph, target(), options)
    seconds = time.perf_counter() - began
    plan = dnnc.load(compiled)
    needed = plan.workspace_size()
    workspace = torch.empty(max(1, needed), dtype=torch.uint8, device="cuda")
    bound = [
        plan.bind(
            {tensor: buffers[name].data_ptr() for name, tensor in tensors.items()},
            workspace,
            stream=stream.cuda_stream,
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


def dnnc_columns(case: Case, sets: Sequence[Buffers], stream: Any) -> dict[str, Column]:
    return {"dnnc": our_launch(case, sets, stream, _options(case))}


def _options(case: Case) -> Options:
    """The default, but for the case that asks for what is never chosen silently."""
    if case.p.get("dtype") != "tf32":
        return Options()
    graph, _ = our_graph(case)
    config = next(
        config
        for config in heuristics.configs(graph, of(target()))
        if "DOWN_CONVERT_INPUTS" in config.notes
    )
    (choice,) = config.choices
    return Options(engine=choice.engine.name, knobs=tuple(choice.knobs.items()))


# ---- cuDNN


@functools.cache
def _cudnn(stream: int) -> tuple[Any, Any]:
    import cudnn

    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=stream)
    return cudnn, handle


def cudnn_columns(case: Case, sets: Sequence[Buffers], stream: Any) -> dict[str, Column]:
    """cudnn: the first plan of the heuristics that builds; cudnn_best: the fastest tried."""
    cudnn, handle = _cudnn(stream.cuda_stream)
    graph = cudnn.pygraph(handle=handle, **graphs.options(cudnn))
    made = graphs.build(cudnn, graph, case)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    packs = [{t.get_uid(): buffers[n] for n, t in made.tensors.items()} for buffers in sets]
    found: list[tuple[float, int, timing.Launch]] = []
    began = time.perf_counter()
    failed: list[str] = []
    for index in range(min(TUNE_PLANS, graph.get_execution_plan_count())):
        if found and time.perf_counter() - began > TUNE_SECONDS:
            break
        try:
            graph.build_plan_at_index(index)
            size = max(1, graph.get_workspace_size_plan_at_index(index))
            workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
            launch = functools.partial(_execute, graph, packs, workspace, index, handle)
            captured = timing.capture(launch, len(sets), stream)
        except Exception as error:  # cuDNN's exceptions have no base of their own
            failed.append(str(error)[:100])
            continue
        seconds = statistics.median(captured.seconds_a_call() for _ in range(3))
        found.append((seconds, index, launch))
    if not found:
        raise RuntimeError(failed[0] if failed else "no plan")
    tried = {"tried": len(found), "failed": len(failed)}

    def column(entry: tuple[float, int, timing.Launch]) -> Column:
        name = graph.get_plan_name_at_index(entry[1])
        return entry[2], {"plan": name, "index": entry[1], **tried}

    return {"cudnn": column(found[0]), "cudnn_best": column(min(found, key=lambda f: f[0]))}


def _execute(graph: Any, packs: Any, workspace: Any, index: int, handle: Any, i: int) -> None:
    graph.execute_plan_at_index(packs[i], workspace, index, handle)


# ---- torch


def _eager(case: Case) -> Callable[[Buffers], Any]:
    p = case.p
    if case.kind == "bias_gelu":
        return lambda s: functional.gelu(s["x"] + s["b"], approximate="tanh")
    if case.kind == "add":
        return lambda s: torch.add(s["x"], s["z"], out=s["y"])
    if case.kind == "squares":
        over = AXES[p["axes"]]
        return lambda s: (s["x"].float() ** 2).sum(over, keepdim=True)
    if p["dtype"] == "int8":
        return lambda s: torch._int_mm(s["a"][0], s["w"][0].mT)[None]
    if p["epilogue"] == "none":
        return lambda s: torch.matmul(s["a"], s["w"].mT, out=s["c"])
    act = EPILOGUES[p["epilogue"]]
    if p["batch"] > 1:
        return lambda s: act(torch.matmul(s["a"], s["w"].mT) + s["bias"])
    return lambda s: act(functional.linear(s["a"], s["w"][0], s["bias"]))


def torch_columns(case: Case, sets: Sequence[Buffers], stream: Any) -> dict[str, Column]:
    """torch: eager; torch_fused: cuBLASLt's epilogue; torch_compile: inductor's default mode."""
    torch.backends.cuda.matmul.allow_tf32 = case.p.get("dtype") == "tf32"
    eager = _eager(case)
    found: dict[str, Column] = {"torch": (lambda i: eager(sets[i]), {})}
    p = case.p
    is_fused = p.get("epilogue", "none") != "none"
    if case.kind == "matmul" and is_fused and p["batch"] == 1:
        use_gelu = p["epilogue"] == "bias_gelu"

        def fused(i: int) -> Any:
            s = sets[i]
            return torch._addmm_activation(s["bias"], s["a"][0], s["w"][0].mT, use_gelu=use_gelu)[
                None
            ]

        found["torch_fused"] = (fused, {})
    if is_fused or case.kind in ("bias_gelu", "squares"):
        torch._dynamo.reset()
        compiled = torch.compile(eager, dynamic=False)
        began = time.perf_counter()
        compiled(sets[0])
        seconds = time.perf_counter() - began
        found["torch_compile"] = (lambda i: compiled(sets[i]), {"compile_ms": round(1e3 * seconds)})
    return found


ALL = {"dnnc": dnnc_columns, "cudnn": cudnn_columns, "torch": torch_columns}
