"""Steps on values: tensors of plans as views of flat arrays, and a walk in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dnnc.plan.plan import Plan
from dnnc.runtime import ExecutionPlan, LoadedBundle

from . import tensors
from .phases import Append, Phase, Place, Step
from .reference import Exact

Array = Any

Plans = Mapping[str, ExecutionPlan] | LoadedBundle


def graph_of(step: Step) -> str:
    """The kind of a step's graph: its plan's name without sizes."""
    return step.plan.partition("@")[0]


def shapes(plan: Plan, names: Mapping[str, Place]) -> dict[str, tuple[list[int], list[int]]]:
    """Dims and strides, in elements, of some of a plan's tensors."""
    records = {record.name: record for record in plan.tensors}

    def evaluated(texts: tuple[str, ...]) -> list[int]:
        return [plan.expression(text).evaluate({}) for text in texts]

    return {
        name: (evaluated(records[name].dims), evaluated(records[name].strides)) for name in names
    }


def viewed(flat: Array, place: Place, dims: list[int], strides: list[int]) -> Array:
    """A tensor in a flat array of NumPy's or torch's."""
    if hasattr(flat, "as_strided"):
        return flat.as_strided(dims, strides, place.offset)
    part, bytes_ = flat[place.offset :], flat.itemsize
    return np.lib.stride_tricks.as_strided(part, dims, [s * bytes_ for s in strides])


def append(phase: Phase, step: Append, values: Mapping[str, Array]) -> None:
    """Copies new keys or values of each sequence to their places, in arrays of NumPy's or torch's.

    What the host does in the interpreter, and the reference in float64.
    """
    heads, size = phase.model.kv_heads, phase.model.head_size
    for source, target in tensors.copies(phase, step, values):
        new = viewed(values[step.source.value], Place("", source), [heads, size], [size, 1])
        lies = [phase.block * size, 1]
        viewed(values[step.cache], Place("", target), [heads, size], lies)[:] = new


def exact_values(
    phase: Phase, plans: Plans, given: Mapping[str, Array], library: Any
) -> dict[str, Array]:
    """All values of a phase in float64, of which nothing is rounded: flat arrays.

    given: flat, of float64 and integers; caches are written to.
    """
    exact, values = Exact(phase, library), dict(given)
    for step in phase.steps:
        if isinstance(step, Append):
            append(phase, step, values)
            continue
        plan = plans[step.plan].plan
        found = exact.outputs(graph_of(step), views(plan, step.inputs, values))
        lie = shapes(plan, step.outputs)
        for name, place in step.outputs.items():
            if place.value not in values:
                values[place.value] = _empty(phase, place.value, found[name], library)
            viewed(values[place.value], place, *lie[name])[:] = found[name]
    return values


def _empty(phase: Phase, value: str, like: Array, library: Any) -> Array:
    elements = int(np.prod(phase.values[value].shape))
    if hasattr(like, "device") and library is not np:
        return library.empty(elements, dtype=like.dtype, device=like.device)
    return np.empty(elements)


def views(plan: Plan, places: Mapping[str, Place], values: Mapping[str, Array]) -> dict[str, Array]:
    """Some of a plan's tensors in flat arrays."""
    lie = shapes(plan, places)
    return {name: viewed(values[place.value], place, *lie[name]) for name, place in places.items()}


def steps_of(phase: Phase) -> Iterator[Step]:
    """The steps that are plans."""
    return (step for step in phase.steps if isinstance(step, Step))
