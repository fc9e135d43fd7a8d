# pyright: basic
"""How long launches take on the device, by its own events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from . import driver

Call = Callable[[], None]


class Clock(Protocol):
    """Measures launches.  stream: the one that they have to be on."""

    @property
    def stream(self) -> int: ...

    def seconds(self, call: Call, calls: int) -> float:
        """Seconds of one of so many launches."""
        ...

    def close(self) -> None: ...


class DeviceClock:
    """The device's clock.

    With a warm L2, launches are captured in a CUDA graph, whose replay is timed: what
    the host takes for a launch does not count.  With cold_l2 each launch is timed alone, after
    twice the cache's bytes were written.
    """

    def __init__(self, place: driver.Device, *, cold_l2: bool = False):
        self._place = place
        api = driver._api()
        self._api = api
        driver.make_current(place)
        handle = driver._call("cuStreamCreate", api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.stream = int(handle)
        self._events = [driver._call("cuEventCreate", 0) for _ in range(2)]
        self._replays: dict[tuple[int, int], tuple[Any, Call]] = {}
        self._flushed = (0, 0)
        if cold_l2:
            kind = api.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
            device = driver._call("cuDeviceGet", place.ordinal)
            bytes_ = 2 * driver._call("cuDeviceGetAttribute", kind, device)
            self._flushed = (driver.allocate(bytes_), bytes_)

    def seconds(self, call: Call, calls: int) -> float:
        driver.make_current(self._place)
        if self._flushed[1]:
            return sum(self._alone(call) for _ in range(calls)) / calls
        replay = self._captured(call, calls)
        return self._between(lambda: driver._call("cuGraphLaunch", replay, self.stream)) / calls

    def _alone(self, call: Call) -> float:
        address, bytes_ = self._flushed
        # While it is written, the host gets ahead: the launch does not wait for it.
        driver._call("cuMemsetD8Async", address, 0, bytes_, self.stream)
        return self._between(call)

    def _between(self, launch: Call) -> float:
        start, end = self._events
        driver._call("cuEventRecord", start, self.stream)
        launch()
        driver._call("cuEventRecord", end, self.stream)
        driver.synchronize(self.stream)
        return driver._call("cuEventElapsedTime", start, end) / 1e3

    def _captured(self, call: Call, calls: int) -> Any:
        """The CUDA graph of so many launches; it is kept, and the call with it."""
        key = (id(call), calls)
        if key not in self._replays:
            call()  # what the driver loads at a kernel's first launch it can't load in a capture
            driver.synchronize(self.stream)
            mode = self._api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            driver._call("cuStreamBeginCapture", self.stream, mode)
            try:
                for _ in range(calls):
                    call()
            finally:
                graph = driver._call("cuStreamEndCapture", self.stream)
            try:
                self._replays[key] = (driver._call("cuGraphInstantiate", graph, 0), call)
            finally:
                driver._call("cuGraphDestroy", graph)
        return self._replays[key][0]

    def close(self) -> None:
        """Destroys what it made."""
        driver.make_current(self._place)
        driver.synchronize(self.stream)
        for replay, _ in self._replays.values():
            driver._call("cuGraphExecDestroy", replay)
        self._replays.clear()
        for event in self._events:
            driver._call("cuEventDestroy", event)
        driver._call("cuStreamDestroy", self.stream)
        if self._flushed[1]:
            driver.free(self._flushed[0])
