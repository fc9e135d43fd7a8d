"""Compares what a device makes with float64: by torch, where it is there, or else by NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from dnnc.runtime import driver

from . import tensors, walk
from .device import Device
from .phases import Append, Step
from .reference import Exact, Verdict, bound_of, judged, layer_bound

Array = Any

_TYPES = {"bf16": np.uint16, "f32": np.float32, "i32": np.int32}


class Memory(Protocol):
    """Values of a device as flat arrays of a library.

    library: numpy or torch.
    """

    library: Any
    what: str

    def numbers(self, device: Device, value: str) -> Array:
        """A value as it is now: a copy, float64 or integers."""
        ...


class Copied:
    """Copies on the host; what is given does not have to come back."""

    library: Any = np
    what = "NumPy in float64"

    def numbers(self, device: Device, value: str) -> Array:
        found = device.phase.values[value]
        array = np.empty(int(np.prod(found.shape)), _TYPES[found.dtype])
        driver.download(array, device.places[value])
        return tensors.numbers_of(array)


class Viewed:
    """Torch's tensors, on the device."""

    what = "torch in float64"

    def __init__(self, torch: Any):
        self.library: Any = torch

    def numbers(self, device: Device, value: str) -> Array:
        found = device.phase.values[value]
        typestr = {"bf16": "<i2", "f32": "<f4", "i32": "<i4"}[found.dtype]
        seen = self.library.as_tensor(
            _Described(device.places[value], int(np.prod(found.shape)), typestr), device="cuda"
        )
        if found.dtype == "i32":
            return seen.long()
        seen = seen.view(self.library.bfloat16) if found.dtype == "bf16" else seen
        return seen.double()


class _Described:
    """Device memory as CUDA arrays are described."""

    def __init__(self, address: int, elements: int, typestr: str):
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (elements,), "typestr": typestr, "version": 3,
        }  # fmt: skip


def memory() -> Memory:
    """Torch's, if it is installed and has the device."""
    try:
        import torch
    except ImportError:
        return Copied()
    return Viewed(torch) if torch.cuda.is_available() else Copied()


def verdicts(device: Device, seen: Memory) -> Iterator[tuple[Step, Verdict]]:
    """Each step, launched alone on what those before it made, in memory that held NaNs."""
    device.reset()
    for step, bound in zip(device.phase.steps, device.bound, strict=True):
        bound()
        driver.synchronize()
        if not isinstance(step, Append):
            yield step, _verdict(device, seen, step)


def _verdict(device: Device, seen: Memory, step: Step) -> Verdict:
    plan, graph = device.plans[step.plan].plan, walk.graph_of(step)
    places = {**step.inputs, **step.outputs}
    values = {value: seen.numbers(device, value) for value in {p.value for p in places.values()}}
    given = walk.views(plan, step.inputs, values)
    exact = Exact(device.phase, seen.library).outputs(graph, given)
    bound = bound_of(device.phase, graph)
    found = walk.views(plan, step.outputs, values)
    verdicts = [judged(y, exact[name], bound, seen.library) for name, y in found.items()]
    return max(verdicts, key=lambda v: v.error)


def layer_verdict(device: Device, seen: Memory, y: Array) -> Verdict:
    """Judges the layer's output, bits of the host, beside a layer that rounds nothing."""
    given = {name: seen.numbers(device, name) for name in device.phase.given}
    exact = walk.exact_values(device.phase, device.plans, given, seen.library)["y"]
    wanted = exact.cpu().numpy() if hasattr(exact, "cpu") else exact
    shape = device.phase.values["y"].shape
    y, wanted = tensors.numbers_of(y).reshape(shape), wanted.reshape(shape)
    return judged(y, wanted, layer_bound(device.phase), np)
