"""Energy of each column beside its rate: joules a call, watts and the clock, by NVML."""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable, Mapping

import torch

from .timing import Captured, Timed

SECONDS = 0.7  # of each column's turn, after half of that
ROUNDS = 3
_CLOCKS = 8  # samples of the clock in a turn
_OF_SMS = 1  # NVML_CLOCK_SM


class Meter:
    """The counters of the device that torch uses."""

    def __init__(self, library: str = "libnvidia-ml.so.1"):
        self._nvml = ctypes.CDLL(library)
        self._check(self._nvml.nvmlInit_v2())
        name = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        self._device = ctypes.c_void_p()
        handle = ctypes.byref(self._device)
        self._check(self._nvml.nvmlDeviceGetHandleByUUID(name.encode(), handle))

    def joules(self) -> float:
        """The energy that the device has taken since its driver was loaded, in joules."""
        found = ctypes.c_ulonglong()
        count = self._nvml.nvmlDeviceGetTotalEnergyConsumption
        self._check(count(self._device, ctypes.byref(found)))
        return found.value / 1e3

    def megahertz(self) -> float:
        """The clock of its multiprocessors."""
        found = ctypes.c_uint()
        clock = self._nvml.nvmlDeviceGetClockInfo
        self._check(clock(self._device, _OF_SMS, ctypes.byref(found)))
        return float(found.value)

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise OSError(f"NVML: status {status}")


def measured(
    captured: Mapping[str, Timed], meter: Meter, say: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Column -> joules a call, watts, megahertz, seconds a call: medians of rounds, in turn.

    say: told each name before it runs.
    """
    graphs = {name: it for name, it in captured.items() if isinstance(it, Captured)}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in graphs}
    for number in range(ROUNDS):
        for name in graphs if number % 2 == 0 else reversed(graphs):
            say(name)
            found[name].append(_turn(graphs[name], meter))
    return {
        name: {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
        for name, turns in found.items()
    }


def _turn(captured: Captured, meter: Meter) -> dict[str, float]:
    count = max(3, math.ceil(SECONDS / captured.estimate()))
    for _ in range(count // 2):
        captured.graph.replay()
    torch.cuda.synchronize()
    before, began, clocks = meter.joules(), time.perf_counter(), list[float]()
    for number in range(count):
        captured.graph.replay()
        if number % max(1, count // _CLOCKS) == 0:
            clocks.append(meter.megahertz())
    torch.cuda.synchronize()
    seconds, joules = time.perf_counter() - began, meter.joules() - before
    calls = count * captured.calls
    return {
        "joules": joules / calls,
        "watts": joules / seconds,
        "megahertz": statistics.median(clocks),
        "seconds": seconds / calls,
    }
