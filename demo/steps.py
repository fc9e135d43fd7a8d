"""The encoder as steps: graphs on values by name, arrays of rows as they lie in memory.

Nothing here but NumPy, so that carried plans need no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dnnc.plan.plan import Plan

from .numerics import bits_of

Array = Any

VECTORS = "vectors"  # the value that comes out: a row for each sentence


@dataclass(frozen=True)
class Read:
    """Where an input begins: a value, and the first of its columns that is read."""

    value: str
    column: int = 0


@dataclass(frozen=True)
class Step:
    """One graph, once.

    layer: -1 before the first, the model's number of layers after the last.  y: the value that it
    makes.  rows: the symbol that says how many rows y has.  reads: by input, what other steps make.
    parameters: by input, the model's own arrays as they lie in memory.
    """

    graph: str
    layer: int
    y: str
    rows: str
    reads: Mapping[str, Read]
    parameters: Mapping[str, Array]

    def inputs(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """All inputs by name: arrays of rows, which may begin at a later column."""
        found = {name: values[read.value][:, read.column :] for name, read in self.reads.items()}
        return found | dict(self.parameters)


@dataclass(frozen=True)
class Batch:
    """Some sentences and the steps that make vectors of them.

    dtype: "f16" or "bf16", of which all arrays hold bits, or "" where they hold numbers.
    values: those that are given before the first step.  sizes: of the graphs' symbols.
    """

    dtype: str
    steps: Sequence[Step]
    values: Mapping[str, Array]
    sizes: Mapping[str, int]

    @property
    def tokens(self) -> int:
        return self.sizes["tokens"]

    def rounded(self, dtype: str) -> Batch:
        """This batch with its parameters and values in 16 bits."""
        steps = [replace(step, parameters=_rounded(step.parameters, dtype)) for step in self.steps]
        return Batch(dtype, steps, _rounded(self.values, dtype), self.sizes)

    def walk(self, compute: Callable[[Step, dict[str, Array]], Array]) -> dict[str, Array]:
        """All values; compute: gives what a step makes of its inputs, rows as in memory."""
        values = dict(self.values)
        for step in self.steps:
            values[step.y] = compute(step, step.inputs(values))
        return values


def _rounded(arrays: Mapping[str, Array], dtype: str) -> dict[str, Array]:
    return {
        name: array if array.dtype.kind == "i" else bits_of(array, dtype)
        for name, array in arrays.items()
    }


# ---- rows in memory, and tensors of plans


def logical(plan: Plan, inputs: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Inputs with the dims of a plan's tensors: views of the same memory."""
    return {
        record.name: np.lib.stride_tricks.as_strided(
            inputs[record.name],
            evaluated(plan, record.dims, sizes),
            [extent * inputs[record.name].itemsize
             for extent in evaluated(plan, record.strides, sizes)],
            writeable=False,
        )
        for record in plan.tensors
        if record.role == "input" and not record.is_by_value
    }  # fmt: skip


def rows_of(plan: Plan, y: Array, rows: int, sizes: Mapping[str, int]) -> Array:
    """The output of a plan, with its tensor's dims, as rows in memory."""
    (output,) = (record for record in plan.tensors if record.role == "output")
    strides = evaluated(plan, output.strides, sizes)
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    return np.ascontiguousarray(np.transpose(y, order)).reshape(rows, -1)


def evaluated(plan: Plan, texts: Sequence[str], sizes: Mapping[str, int]) -> list[int]:
    return [plan.expression(text).evaluate(sizes) for text in texts]
