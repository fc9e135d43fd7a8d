"""Runs execution plans on a CUDA device with nothing but `dnnc.runtime` and NumPy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dnnc import runtime
from dnnc.errors import DnncError
from dnnc.plan.plan import Plan
from dnnc.runtime import driver

Array = Any

_ROUND_SECONDS = 0.01
_ALL_ROUNDS_SECONDS = 0.2


def describe() -> str:
    """The device by name; a DnncError where there is none."""
    place = driver.device()
    major, minor = place.capability
    return f"{place.name} (sm_{major}{minor}, driver for CUDA {driver.driver_version()})"


def why_none() -> str:
    """Why there is no CUDA device, in the runtime's words; "" if there is one."""
    try:
        return "" if driver.device_count() else "the driver knows no device"
    except DnncError as error:
        return f"{error.status.name}: {error.what}"


class Buffers:
    """Device memory, freed at the end of a `with` block."""

    def __init__(self) -> None:
        self._addresses: list[int] = []

    def __enter__(self) -> Buffers:
        driver.make_current(driver.device())
        return self

    def __exit__(self, *_: object) -> None:
        for address in self._addresses:
            driver.free(address)

    def allocate(self, bytes_: int) -> int:
        self._addresses.append(driver.allocate(bytes_))
        return self._addresses[-1]

    def holding(self, array: Array) -> int:
        """The address of a copy of a contiguous array."""
        address = self.allocate(array.nbytes)
        driver.upload(address, array)
        return address


def run(
    executable: runtime.ExecutionPlan, inputs: Mapping[str, Array], *, is_timed: bool = False
) -> tuple[Array, float]:
    """Runs a plan of one 16-bit output; gives its bits, and the seconds a launch takes (or 0).

    inputs: name -> bits of the tensor's dims.
    """
    plan = executable.plan
    sizes = _sizes(plan, inputs)
    (output,) = (record for record in plan.tensors if record.role == "output")
    dims, strides = (_evaluated(plan, texts, sizes) for texts in (output.dims, output.strides))
    with Buffers() as buffers:
        pack = {
            record.name: buffers.holding(
                in_memory(inputs[record.name], _evaluated(plan, record.strides, sizes))
            )
            for record in plan.tensors
            if record.role == "input"
        }
        # All ones is a NaN: what no kernel writes is seen.
        stored = in_memory(np.full(dims, 0xFFFF, np.uint16), strides)
        pack[output.name] = buffers.holding(stored)
        needed = executable.workspace_size(sizes)
        workspace = buffers.allocate(needed) if needed else None
        bound = executable.bind(pack, workspace, sizes=sizes)
        bound()
        driver.synchronize()
        seconds = seconds_a_launch(bound) if is_timed else 0.0
        driver.download(stored, pack[output.name])
    return np.transpose(stored, np.argsort(_outermost_first(strides))), seconds


def seconds_a_launch(launch: Callable[[], None]) -> float:
    """The median over rounds of launches one after the other, waited for together."""

    def round_of(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            launch()
        driver.synchronize()
        return (time.perf_counter() - began) / count

    estimate = round_of(1)
    count = max(1, min(500, int(_ROUND_SECONDS / estimate)))
    rounds = max(1, min(21, int(_ALL_ROUNDS_SECONDS / (estimate * count))))
    return statistics.median(round_of(count) for _ in range(rounds))


def _sizes(plan: Plan, inputs: Mapping[str, Array]) -> dict[str, int]:
    """Values of the plan's symbols, from the inputs' dims."""
    return {
        text: extent
        for record in plan.tensors
        if record.name in inputs
        for text, extent in zip(record.dims, inputs[record.name].shape, strict=True)
        if text in plan.dims
    }


def _evaluated(plan: Plan, texts: Sequence[str], sizes: Mapping[str, int]) -> list[int]:
    return [plan.expression(text).evaluate(sizes) for text in texts]


def _outermost_first(strides: Sequence[int]) -> list[int]:
    return sorted(range(len(strides)), key=lambda axis: -strides[axis])


def in_memory(array: Array, strides: Sequence[int]) -> Array:
    """A contiguous array in the order that strides without gaps say."""
    return np.ascontiguousarray(np.transpose(array, _outermost_first(strides)))
