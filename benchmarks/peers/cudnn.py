"""cuDNN's columns: the first plan of its heuristics, and the fastest of all."""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .. import timing
from ..cases.case import Buffers, Case
from ..cases.kinds import torch_type
from ..graphs import build as graphs
from .cudnn_descriptors import DescriptorGraph

if TYPE_CHECKING:
    from .contestants import Bench, Column

# Case id -> {"first", "best": names of plans, that is engine and knobs}, as `cudnn-plans` found.
Winners = Mapping[str, Mapping[str, Any]]


@functools.cache
def handle_on(stream: int) -> tuple[Any, Any]:
    """(the frontend, its handle on a stream)."""
    import cudnn

    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=stream)
    return cudnn, handle


class CudnnGraph:
    """A case's graph with what modes A and FALLBACK of cuDNN's heuristics list, on buffer sets."""

    def __init__(self, case: Case, sets: Sequence[Buffers], stream: Any):
        cudnn, self._handle = handle_on(stream.cuda_stream)
        self._graph = cudnn.pygraph(handle=self._handle, **graphs.options(cudnn))
        made = graphs.build(cudnn, self._graph, case)
        self._graph.validate()
        self._graph.build_operation_graph()
        self._graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        numbers = {
            tensor.get_uid(): torch.full([1] * rank, value, dtype=torch_type(dtype))
            for tensor, (value, rank, dtype) in made.numbers.items()
        }
        self._packs = [
            {tensor.get_uid(): _buffer(buffers[name]) for name, tensor in made.tensors.items()}
            | numbers
            for buffers in sets
        ]

    def names(self) -> list[str]:
        """Engine and knobs of each plan, the heuristics' first choice first."""
        count = self._graph.get_execution_plan_count()
        return [self._graph.get_plan_name_at_index(index) for index in range(count)]

    def launch(self, index: int) -> timing.Launch:
        """Builds a plan; raises what cuDNN raises where it can't."""
        self._graph.build_plan_at_index(index)
        size = max(1, self._graph.get_workspace_size_plan_at_index(index))
        workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
        return functools.partial(self._execute, workspace, index)

    def _execute(self, workspace: Any, index: int, i: int) -> None:
        self._graph.execute_plan_at_index(self._packs[i], workspace, index, self._handle)


def _buffer(tensor: torch.Tensor) -> Any:
    """A tensor as the frontend takes it: of fp8 it knows addresses only."""
    is_fp8 = tensor.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
    return tensor.data_ptr() if is_fp8 else tensor


def columns(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
    """cudnn: the first plan of the heuristics that builds; cudnn_best: the fastest of all where
    `cudnn-plans` has looked for it, else of those that can be tried in `bench.tune_seconds`.

    A bf16 case that was not searched replays the plans of the case in f16, if cuDNN has them.
    """
    has_method = case.p.get("epilogue") != "norm"  # or the frontend lacks one of its operations
    kind = CudnnGraph if has_method else DescriptorGraph
    made = kind(case, sets, bench.stream)
    if known := bench.cudnn_plans.get(case.id):
        return _named(made, known)
    known = bench.cudnn_plans.get(in_f16(case.id))
    if known and {known.get("first"), known.get("best")} <= set(made.names()):
        return _named(made, {**known, "searched": "fp16"})
    return _tuned(made, len(sets), bench)


def in_f16(id_: str) -> str:
    """The id of a bf16 case's twin in f16, whose plans have the same engines and knobs."""
    return id_.replace("/bf16/", "/fp16/", 1)


def _named(made: CudnnGraph | DescriptorGraph, known: Mapping[str, Any]) -> dict[str, Column]:
    if "error" in known:
        raise RuntimeError(known["error"])
    names = made.names()
    launches: dict[str, timing.Launch] = {}

    def column(name: str) -> Column:
        index = names.index(name)
        if name not in launches:
            launches[name] = made.launch(index)
        tried = {key: known[key] for key in ("tried", "failed", "searched") if key in known}
        return launches[name], {"plan": name, "index": index, **tried}

    return {"cudnn": column(known["first"]), "cudnn_best": column(known["best"])}


def _tuned(made: CudnnGraph | DescriptorGraph, sets: int, bench: Bench) -> dict[str, Column]:
    names = made.names()
    found: list[tuple[float, int, timing.Launch]] = []
    failed: list[str] = []
    began = time.perf_counter()
    for index in range(len(names)):
        if found and time.perf_counter() - began > bench.tune_seconds:
            break
        try:
            launch = made.launch(index)
            captured = timing.capture(launch, sets, bench.stream)
        except Exception as error:  # cuDNN's exceptions have no base of their own
            failed.append(str(error)[:100])
            continue
        found.append((_quick_seconds(captured, found), index, launch))
    if not found:
        raise RuntimeError(failed[0] if failed else "no plan")
    tried = {"tried": len(found), "failed": len(failed)}

    def column(entry: tuple[float, int, timing.Launch]) -> Column:
        return entry[2], {"plan": names[entry[1]], "index": entry[1], **tried}

    return {"cudnn": column(found[0]), "cudnn_best": column(min(found, key=lambda f: f[0]))}


def _quick_seconds(captured: timing.Captured, found: Sequence[tuple[float, Any, Any]]) -> float:
    """The median of three timings; one of a plan that is far from the best so far."""
    first = captured.seconds_a_call("sustained")
    if found and first > 1.3 * min(seconds for seconds, _, _ in found):
        return first
    return statistics.median(
        (first, captured.seconds_a_call("sustained"), captured.seconds_a_call("sustained"))
    )


def read_winners(path: Path | None) -> Winners:
    """The fastest plans that `cudnn-plans` wrote; empty without a path."""
    return json.loads(path.read_text())["rows"] if path else {}
