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
from .model import FeedForward, exact_feed_forward, gelu
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


def cases_of(blocks: Sequence[FeedForward], dtype: str) -> list[Case]:
    """Both graphs at every layer; the second takes what the first's reference gives."""
    found: list[Case] = []
    for block in blocks:
        name = name_of("ffn_in", dtype)
        inputs = graphs.inputs_in(block, dtype)
        exact = graphs.run_exactly(name, inputs)
        found.append(Case(name, block.layer, inputs, exact))
        name = name_of("ffn_out", dtype)
        inputs = graphs.inputs_out(block, bits_of(exact, dtype), dtype)
        found.append(Case(name, block.layer, inputs, graphs.run_exactly(name, inputs)))
    return found


def rounding_error(case: Case, block: FeedForward) -> float:
    """What the data type costs: the reference against the model, of which nothing is rounded."""
    if case.graph.startswith("ffn_in"):
        model = gelu(block.x @ block.w1 + block.b1)
    else:
        model = exact_feed_forward(block)
    stored = values_of(bits_of(case.exact, case.dtype), case.dtype)
    return judge(stored[0], model, 0.0).error


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
    """The plans as what `graphs.feed_forward` calls: on the device, without timing."""
    return lambda name, inputs: device.run(executables[name], inputs)[0]
