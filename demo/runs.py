"""The demo's cases, and their runs on a device or in the interpreter."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dnnc.errors import DnncError, Status
from dnnc.interpreter.plans import run_plan
from dnnc.runtime import ExecutionPlan

from . import device, graphs
from .cases import Case
from .graphs import name_of
from .model import EMBEDDINGS, FeedForward, Part, Softmax, exact, gelu
from .numerics import Verdict, bits_of, judge, values_of

Array = Any


@dataclass(frozen=True)
class Run:
    """A case that was run.

    where: the target whose code ran.  seconds: of a launch, or that the interpreter took.
    """

    case: Case
    where: str
    verdict: Verdict
    seconds: float


def shown_of(parts: Sequence[Part]) -> list[Part]:
    """One part of a kind a layer: the first sentence's softmax, and no embeddings."""
    in_layers = (part for part in parts if part.layer != EMBEDDINGS)
    return [part for part in in_layers if not isinstance(part, Softmax) or part.sentence == 0]


def cases_of(parts: Sequence[Part], dtype: str) -> list[Case]:
    """All graphs of some parts; a graph takes what the reference of the part's last one gives."""
    found: list[Case] = []
    for part in parts:
        before: Array = None
        for graph in graphs.graphs_of(part):
            name = name_of(graph, dtype)
            inputs = graphs.inputs_of(graph, part, before, dtype)
            y = graphs.run_exactly(name, inputs)
            found.append(Case(name, part.layer, inputs, y))
            before = bits_of(y, dtype)
    return found


def model_results(parts: Sequence[Part]) -> dict[tuple[str, int], Array]:
    """(graph, layer) -> what the model, of which nothing is rounded, has there."""
    found: dict[tuple[str, int], Array] = {}
    for part in parts:
        found[graphs.graphs_of(part)[-1], part.layer] = exact(part)
        if isinstance(part, FeedForward):
            found["ffn_in", part.layer] = gelu(part.x @ part.w1 + part.b1)
    return found


def rounding_error(case: Case, results: Mapping[tuple[str, int], Array]) -> float:
    """What the data type costs: the reference against `model_results`."""
    model = results[case.kind, case.layer]
    stored = values_of(bits_of(case.exact, case.dtype), case.dtype)
    return judge(stored.reshape(model.shape), model, 0.0).error


def on_device(executable: ExecutionPlan, case: Case, where: str) -> Run:
    """Runs a case on the CUDA device, and times it."""
    y, seconds = device.run(executable, case.inputs, is_timed=True)
    return Run(case, where, case.judge(y), seconds)


def in_interpreter(executable: ExecutionPlan, case: Case, first: int) -> Run | str:
    """Runs a case's PTX in the interpreter, or says why not.

    first: which of the plan's programs is tried first; the interpreter may lack what one uses.
    """
    programs = executable.plan.programs
    why = ""
    for i in range(len(programs)):
        where = programs[(first + i) % len(programs)].target
        began = time.perf_counter()
        try:
            (y,) = run_plan(executable.plan, case.values(), target=where).values()
        except DnncError as error:
            if error.status.category != Status.NOT_SUPPORTED:
                raise
            why = str(error)
            continue
        seconds = time.perf_counter() - began
        return Run(case, where, case.judge(bits_of(y, case.dtype)), seconds)
    return why


def runner_of(executables: Mapping[str, ExecutionPlan]) -> graphs.Runner:
    """The plans as what `graphs.computed_by` calls: on the device, without timing."""
    return lambda name, inputs: device.run(executables[name], inputs)[0]
