"""A CUDA device, its memory and its time, with nothing but `dnnc.runtime` and NumPy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from dnnc.errors import DnncError
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
