"""The encoder on a CUDA device: its values there, its steps as launches of a bundle's plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dnnc.runtime import ExecutionPlan, LoadedBundle, driver

from . import device
from .steps import VECTORS, Batch, Step, evaluated

Array = Any

# By name, as `graphs.name_of` makes them.
Plans = Mapping[str, ExecutionPlan] | LoadedBundle

_BITS = np.dtype(np.uint16)


class Forward:
    """A batch of bits on the current device; its memory is freed at the end of a `with` block."""

    def __init__(self, batch: Batch, plans: Plans):
        self.batch = batch
        self._plans = {
            graph: plans[f"{graph}_{batch.dtype}"]
            for graph in dict.fromkeys(step.graph for step in batch.steps)
        }
        self._buffers = device.Buffers()

    def __enter__(self) -> Forward:
        self._buffers.__enter__()
        hold = self._buffers.holding
        self._shapes = {name: array.shape for name, array in self.batch.values.items()}
        self._places = {name: hold(array) for name, array in self.batch.values.items()}
        for step in self.batch.steps:
            self._allocate(step)
        self._workspace = self._buffers.allocate(max(map(self._workspace_bytes, self._plans)) or 1)
        self.launches = [self._bound(step) for step in self.batch.steps]
        return self

    def __exit__(self, *error: object) -> None:
        self._buffers.__exit__(*error)

    def _sizes(self, graph: str) -> dict[str, int]:
        known = [symbol.name for symbol in self._plans[graph].plan.symbols]
        return {name: self.batch.sizes[name] for name in known}

    def _workspace_bytes(self, graph: str) -> int:
        return self._plans[graph].workspace_size(self._sizes(graph))

    def _allocate(self, step: Step) -> None:
        """A step's result: all ones is a NaN, so that what no kernel writes is seen."""
        plan, rows = self._plans[step.graph].plan, self.batch.sizes[step.rows]
        (output,) = (record for record in plan.tensors if record.role == "output")
        elements = int(np.prod(evaluated(plan, output.dims, self.batch.sizes)))
        self._shapes[step.y] = (rows, elements // rows)
        self._places[step.y] = self._buffers.holding(np.full(elements, 0xFFFF, _BITS))

    def _bound(self, step: Step) -> Any:
        """A step's plan with its addresses; calling it launches it.

        One after the other, so that one workspace serves them all.
        """
        pack = {name: self._buffers.holding(array) for name, array in step.parameters.items()}
        for name, read in step.reads.items():
            pack[name] = self._places[read.value] + read.column * _BITS.itemsize
        pack["y"] = self._places[step.y]
        return self._plans[step.graph].bind(pack, self._workspace, sizes=self._sizes(step.graph))

    def launch(self) -> None:
        """All steps, one after the other, without waiting."""
        for bound in self.launches:
            bound()

    def value(self, name: str) -> Array:
        """A step's output, rows of bits."""
        found = np.empty(self._shapes[name], _BITS)
        driver.download(found, self._places[name])
        return found

    def results(self) -> Iterator[tuple[Step, dict[str, Array], Array, float]]:
        """Each step once it was launched: its inputs, its result, the seconds a launch takes."""
        values = dict(self.batch.values)
        for step, bound in zip(self.batch.steps, self.launches, strict=True):
            bound()
            driver.synchronize()
            values[step.y] = self.value(step.y)
            yield step, step.inputs(values), values[step.y], device.seconds_a_launch(bound)

    def vectors(self) -> Array:
        """[sentences, hidden]: launches all steps and waits."""
        self.launch()
        driver.synchronize()
        return self.value(VECTORS)

    def seconds(self) -> float:
        """Seconds of all steps together, launched one by one by the host."""
        return device.seconds_a_launch(self.launch)
