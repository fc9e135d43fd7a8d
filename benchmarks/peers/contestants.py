"""The contestants: dnnc, cuDNN through its frontend, and torch.

Each takes (case, buffer sets, bench) and gives {column: (launch, information)}; launch(i) works
on buffer set i, and writes the outputs or returns them.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import dnnc
from dnnc.choosing import heuristics
from dnnc.options import DEFAULTS, Options
from dnnc.plan.plan import Plan
from dnnc.runtime import driver
from dnnc.target import of

from .. import timing
from ..cases.case import Buffers, Case
from ..compilers import Compilers, our_graph
from ..watch import Watch
from . import attention as attention_peers
from . import cudnn as cudnn_peers
from . import torch_columns as torch_peers

Column = tuple[timing.Launch, dict[str, Any]]

OURS = "dnnc"
TUNE_SECONDS = 4.0


@dataclass
class Bench:
    """Settings and processes that contestants run with.

    tune_seconds: for the search of cuDNN's best plan, of cases that cudnn_plans lacks.
    modes: of `timing.MODES`; the first is judged, others stand beside.
    plans: column -> the folder of plan files that it runs.
    contestants: those that may be asked for, ALL by default.
    measures_energy: also joules, watts and the clock of each column.
    """

    stream: Any
    compilers: Compilers
    watch: Watch
    rounds: int = 7
    tune_seconds: float = TUNE_SECONDS
    cudnn_plans: cudnn_peers.Winners = field(default_factory=dict)
    modes: Sequence[str] = ("sustained",)
    plans: dict[str, Path] = field(default_factory=dict)
    contestants: Mapping[str, Contestant] = field(default_factory=lambda: ALL)
    measures_energy: bool = False


Contestant = Callable[[Case, Sequence[Buffers], Bench], dict[str, Column]]


def target() -> str:
    major, minor = driver.device().capability
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


# ---- dnnc


def our_launch(case: Case, sets: Sequence[Buffers], bench: Bench, options: Options) -> Column:
    """A compiled case, bound to each buffer set."""
    compiled, seconds = bench.compilers.ahead(case, options).result()
    launch, information = bound_launch(case, sets, bench, compiled)
    return launch, {**information, "compile_ms": round(1e3 * seconds, 1)}


def bound_launch(case: Case, sets: Sequence[Buffers], bench: Bench, compiled: Plan) -> Column:
    """A plan of a case, bound to each buffer set."""
    _, tensors = our_graph(case)
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
        "workspace": needed,
    }
    return lambda i: bound[i](), information


def dnnc_columns(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
    return {"dnnc": our_launch(case, sets, bench, our_options(case, bench.compilers.target))}


def columns_of_plans(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
    """A column for each folder of plans that has the case, such as those of an older compiler."""
    found: dict[str, Column] = {}
    for name, folder in bench.plans.items():
        if (path := plan_path(folder, case)).exists():
            found[name] = bound_launch(case, sets, bench, dnnc.read_plan(path))
    return found


def plan_path(folder: Path, case: Case) -> Path:
    """Where a case's plan lies in a folder."""
    return folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', case.id)}.dnnplan"


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


# ---- torch


def torch_columns(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
    """torch: eager; torch_fused: cuBLASLt's epilogue; torch_cudnn: attention's other backend."""
    if case.kind in attention_peers.KINDS:
        calls = attention_peers.backends(case)
        if case.kind in attention_peers.GRADIENTS:  # the forward pass comes with the first call
            for call in calls.values():
                call(sets[0])
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
    "cudnn": cudnn_peers.columns,
    "torch": torch_columns,
    "torch_compile": torch_compile_columns,
    "plans": columns_of_plans,
}


def adapted(paths: Sequence[Path]) -> dict[str, Contestant]:
    """The CONTESTANTS of Python files, by column: libraries that are timed beside ours as they are.

    A contestant of a case that its library lacks gives {}, or raises what its column then says.
    """
    found: dict[str, Contestant] = {}
    for path in paths:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ValueError(f"{path} is no Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        taken = (ALL | found).keys() & module.CONTESTANTS.keys()
        if taken:
            raise ValueError(f"{path}: columns {sorted(taken)} are there already")
        found |= module.CONTESTANTS
    return found
