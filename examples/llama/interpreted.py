"""A phase in the interpreter of PTX, for models as small as `small`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dnnc.interpreter.plans import run_plan
from dnnc.plan.plan import Plan

from . import tensors, walk
from .phases import Append, Phase, Step
from .reference import Exact, Verdict, bound_of, judged, layer_bound
from .walk import Plans, graph_of

Array = Any

# The interpreter does a few millions a second.
MOST_PRODUCTS = 1e8
_TYPES = {"bf16": np.uint16, "f32": np.float32, "i32": np.int32}


def refusal(phase: Phase) -> str:
    """Why it is not interpreted; "" where it may be."""
    products = sum(step.flops for step in walk.steps_of(phase)) / 2
    if products <= MOST_PRODUCTS:
        return ""
    return f"{products:.2g} multiplications are too many for the interpreter"


class Interpreted:
    """A pass, step by step.  values: flat arrays as they lie in memory."""

    def __init__(self, phase: Phase, plans: Plans, seed: int, target: str | None = None):
        """target: which of the plans' programs is run; None for the first."""
        self.phase, self.plans, self.target = phase, plans, target
        self.values = tensors.given(phase, seed)
        self._given = {name: tensors.numbers_of(array) for name, array in self.values.items()}
        for name in phase.made:
            value = phase.values[name]
            elements = int(np.prod(value.shape))
            self.values[name] = np.full(elements, -1).astype(_TYPES[value.dtype])  # NaNs in bf16

    def verdicts(self) -> Iterator[tuple[Step, Verdict]]:
        """Runs each step on what those before it made, and judges it."""
        for step in self.phase.steps:
            if isinstance(step, Append):
                walk.append(self.phase, step, self.values)
            else:
                yield step, self._verdict(step)

    def _verdict(self, step: Step) -> Verdict:
        plan, graph = self.plans[step.plan].plan, graph_of(step)
        given = walk.views(plan, step.inputs, self.values)
        numbers = {name: tensors.numbers_of(array) for name, array in given.items()}
        found = self._run(plan, step, numbers)
        exact = Exact(self.phase, np).outputs(graph, numbers)
        bound = bound_of(self.phase, graph)
        verdicts = [judged(tensors.numbers_of(y), exact[n], bound, np) for n, y in found.items()]
        return max(verdicts, key=lambda v: v.error)

    def _run(self, plan: Plan, step: Step, numbers: dict[str, Array]) -> dict[str, Array]:
        """A step's outputs by name, where they lie."""
        names = {record.uid: record.name for record in plan.tensors}
        outputs = walk.views(plan, step.outputs, self.values)
        for uid, y in run_plan(plan, numbers, target=self.target).items():
            outputs[names[uid]][...] = np.ascontiguousarray(y).view(outputs[names[uid]].dtype)
        return outputs

    def layer_verdict(self) -> Verdict:
        """Judges the layer's output, once all steps were run."""
        exact = walk.exact_values(self.phase, self.plans, self._given, np)
        shape = self.phase.values["y"].shape
        y, wanted = (values["y"].reshape(shape) for values in (self.values, exact))
        return judged(tensors.numbers_of(y), wanted, layer_bound(self.phase), np)
