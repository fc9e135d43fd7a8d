"""Runs of the encoder's steps: on a device, in the interpreter, by the graphs' reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dnnc
from dnnc.interpreter.plans import run_plan

from .checks import judge_step
from .forward import Forward, Plans
from .graphs import name_of
from .numerics import Verdict, bits_of, values_of
from .steps import VECTORS, Batch, Step, logical, rows_of

Array = Any


@dataclass(frozen=True)
class Run:
    """A step that was run.  seconds: of a launch, or that the interpreter took."""

    step: Step
    dtype: str
    where: str
    verdict: Verdict
    seconds: float

    @property
    def name(self) -> str:
        return name_of(self.step.graph, self.dtype)


def on_device(forward: Forward, where: str) -> Iterator[Run]:
    """Launches the steps one by one, judges each on what it was given, and times it."""
    dtype = forward.batch.dtype
    for step, inputs, y, seconds in forward.results():
        yield Run(step, dtype, where, judge_step(step.graph, y, inputs, dtype), seconds)


def interpreted(batch: Batch, plans: Plans, note: Callable[[Run], None]) -> Array:
    """The vectors' bits, by the plans' own PTX; a layer is of one of the plans' targets, in turn.

    note: gets each step, judged on what it was given.
    """

    def compute(step: Step, inputs: dict[str, Array]) -> Array:
        plan = plans[name_of(step.graph, batch.dtype)].plan
        where = plan.programs[step.layer % len(plan.programs)].target
        began = time.perf_counter()
        given = _numbers(logical(plan, inputs, batch.sizes), batch.dtype)
        (found,) = run_plan(plan, given, target=where).values()
        y = rows_of(plan, bits_of(found, batch.dtype), batch.sizes[step.rows], batch.sizes)
        seconds = time.perf_counter() - began
        verdict = judge_step(step.graph, y, inputs, batch.dtype)
        note(Run(step, batch.dtype, where, verdict, seconds))
        return y

    return batch.walk(compute)[VECTORS]


def by_reference(batch: Batch, plans: Plans) -> Array:
    """The vectors' bits, by the reference of the plans' graphs on NumPy."""

    def compute(step: Step, inputs: dict[str, Array]) -> Array:
        plan = plans[name_of(step.graph, batch.dtype)].plan
        given = _numbers(logical(plan, inputs, batch.sizes), batch.dtype)
        (y,) = dnnc.reference(plan, given, exact_outputs=True).values()
        return rows_of(plan, bits_of(y, batch.dtype), batch.sizes[step.rows], batch.sizes)

    return batch.walk(compute)[VECTORS]


def _numbers(inputs: Mapping[str, Array], dtype: str) -> dict[str, Array]:
    return {name: values_of(bits, dtype) for name, bits in inputs.items()}
