"""A training step on the host: by the graphs' reference, or by plans' PTX in the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

import dnnc
from dnnc.interpreter.plans import run_plan
from dnnc.plan.plan import Plan

from . import training_parameters as data
from .network import Network
from .training_calls import DOUBLED
from .training_checks import error
from .training_device import LOSS_SCALE, RATE
from .training_graphs import Operation, graph_of
from .training_steps import Step, Training, Value

Array = Any
Form = tuple[tuple[int, ...], tuple[int, ...]]  # dims, strides

# Multiplications of a step: the interpreter does a few millions a second.
MOST_PRODUCTS = 5e7

# Of a gradient of a network as small as `tiny`, whose norms divide by deviations of few elements.
MOST_GRADIENT_ERROR = 0.15

# Runs an operation on arrays of the tensors' dims; outputs by name.
Evaluate = Callable[[Operation, Mapping[str, Array]], Mapping[str, Array]]


def by_reference(n: int, *, is_exact: bool = False) -> Evaluate:
    """The graphs' reference on NumPy.  is_exact: of graphs whose numbers are all f64."""

    def evaluate(op: Operation, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        graph = graph_of(op, n, is_exact=is_exact)
        found = dnnc.reference(graph, inputs)
        return {tensor.name: found[tensor.uid] for tensor in graph.graph.outputs}

    return evaluate


def by_interpreter(plans: Mapping[Operation, Plan], target: str | None = None) -> Evaluate:
    """The PTX of plans.  target: one of theirs, the first by default."""

    def evaluate(op: Operation, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        plan = plans[op]
        found = run_plan(plan, inputs, target=target)
        return {t.name: found[t.uid] for t in plan.tensors if t.role == "output"}

    return evaluate


class HostTraining:
    """Training, step by step, in NumPy's arrays.

    is_exact: numbers are f64, not f16 and f32.
    """

    def __init__(
        self, training: Training, n: int, seed: int, evaluate: Evaluate, *,
        is_exact: bool = False, rate: float = RATE,
    ):  # fmt: skip
        self.training, self.n, self.evaluate = training, n, evaluate
        layout, network = training.layout, training.network
        half, self.single = (np.float64, np.float64) if is_exact else (np.float16, np.float32)
        images, labels = data.data(network, n, seed)
        drawn = data.parameters(network, seed)
        master = data.flat(layout.parts, layout.parameters, drawn).astype(self.single)
        self.buffers = {
            "master": master, "half": master.astype(half), "velocity": np.zeros_like(master),
            "gradient": np.zeros_like(master), "running": data.running(network).astype(self.single),
            "scaler": data.scaler(network, LOSS_SCALE).astype(self.single),
        }  # fmt: skip
        self.read = self.buffers  # by the last step
        self.given: dict[str, Array] = {"rate": np.full(1, rate, self.single)}
        self.given |= {"image": images.astype(half).ravel(), "labels": labels}
        self.values: dict[str, Array] = {}
        self.forms = {op: _forms(op, n) for op in training.operations}

    def run(self, steps: Sequence[Step] | None = None) -> float:
        """Runs steps, all by default; gives the loss."""
        written = {name: self.buffers[name].copy() for name in DOUBLED}
        for step in self.training.steps if steps is None else steps:
            self.run_step(step, written)
        self.read, self.buffers = self.buffers, self.buffers | written
        return float(self.given["losses"].sum(dtype=np.float64))

    def run_step(self, step: Step, written: Mapping[str, Array] | None = None) -> None:
        """Runs one step.  written: copies of buffers, for what is to be read by the next step."""
        written = written or {name: self.buffers[name].copy() for name in DOUBLED}
        found = self.evaluate(step.op, self.inputs(step))
        for name, array in found.items():
            value, form = step.values[name], self.forms[step.op][name]
            if value.place in ("arena", "given"):
                values = self.values if value.place == "arena" else self.given
                made = values[value.name] = np.empty(array.size, array.dtype)
            else:
                place = value.place.removeprefix("next_")
                buffer = self.buffers[place] if place == value.place else written[place]
                made = buffer[self._part(place, value)]
            _viewed(made, form)[...] = array

    def inputs(self, step: Step) -> dict[str, Array]:
        """The operands of a step, by tensor, arrays of the tensors' dims."""
        names = [tensor.name for tensor in graph_of(step.op, self.n).graph.inputs]
        return {name: _viewed(self._memory(step.values[name]), self.forms[step.op][name])
                for name in names}  # fmt: skip

    def _memory(self, value: Value) -> Array:
        if value.place == "arena":
            return self.values[value.name]
        if value.place == "given":
            return self.given[value.name]
        return self.buffers[value.place][self._part(value.place, value)]

    def _part(self, place: str, value: Value) -> slice:
        if not value.name:
            return slice(None)
        return self.training.layout.of_buffer(place)[value.name].slice

    def gradients(self) -> dict[str, Array]:
        """The last step's, by parameter, without the loss scale."""
        layout = self.training.layout
        found = data.split(layout.parts, self.buffers["gradient"])
        (scale,) = data.split(layout.scaler, self.read["scaler"])["loss_scale"]
        return {name: array / scale for name, array in found.items()}


def _forms(op: Operation, n: int) -> dict[str, Form]:
    """Dims and strides of an operation's tensors."""
    graph = graph_of(op, n).graph
    return {
        tensor.name: (
            tuple(extent.constant for extent in tensor.shape),
            tuple(stride.constant for stride in tensor.strides),
        )
        for tensor in (*graph.inputs, *graph.outputs)
    }


def _viewed(memory: Array, form: Form) -> Array:
    """Packed memory as an array of some dims and strides."""
    dims, strides = form
    return as_strided(memory, dims, [stride * memory.itemsize for stride in strides])


def refusal(network: Network, n: int) -> str:
    """Why a step is not interpreted; "" where it may be."""
    products = 3 * network.flops(n) / 2  # forward, and two gradients of each layer
    if products <= MOST_PRODUCTS:
        return ""
    return f"{products:.2g} multiplications are too many for the interpreter"


def interpreted_gradients(
    training: Training, n: int, seed: int, plans: Mapping[Operation, Plan]
) -> tuple[float, dict[str, float]]:
    """(loss, errors of the gradients) of a step of plans' PTX, beside the same in float64."""
    work = HostTraining(training, n, seed, by_interpreter(plans))
    exact = HostTraining(training, n, seed, by_reference(n, is_exact=True), is_exact=True)
    loss = work.run()
    exact.run()
    found = work.gradients()
    return loss, {name: error(found[name], array) for name, array in exact.gradients().items()}
