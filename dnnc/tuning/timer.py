# pyright: basic
"""Timers of plans: the protocol, and the CUDA device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from .. import target as targets
from ..plan.plan import Plan
from ..runtime import ExecutionPlan, driver
from ..runtime.clock import Clock, DeviceClock
from . import values
from .race import Run


class Timer(Protocol):
    """Times plans of one graph at one set of sizes after the other.

    device, driver: what entries of a record are known by: a name, a version.  target: what
    graphs are compiled for by default.  l2: "warm" or "cold".
    """

    @property
    def device(self) -> str: ...

    @property
    def driver(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def l2(self) -> str: ...

    def load(self, plan: Plan, sizes: Mapping[str, int]) -> Run:
        """Makes a plan ready to run; what it gives launches so many times, and says how many
        seconds one took.  A plan that can't run is a DnncError."""
        ...

    def close(self) -> None:
        """Gives back what it holds."""
        ...


class DeviceTimer:
    """The CUDA device that is here (default: the current one).

    Plans of a graph share their buffers, which hold random values; outputs of one are not read.
    cold_l2: empty L2 before every launch; otherwise launches follow each other, and
    what fits the cache stays there.  clock: what measures (default: the device's events).
    """

    def __init__(
        self, ordinal: int | None = None, *, cold_l2: bool = False, clock: Clock | None = None
    ):
        self._place = driver.device(ordinal)
        driver.make_current(self._place)
        self._clock = clock or DeviceClock(self._place, cold_l2=cold_l2)
        self._cold = cold_l2
        self._buffers: _Buffers | None = None

    @property
    def device(self) -> str:
        return self._place.name

    @property
    def driver(self) -> str:
        return driver.driver_version()

    @property
    def target(self) -> str:
        return targets.of_capability(*self._place.capability).name

    @property
    def l2(self) -> str:
        return "cold" if self._cold else "warm"

    def load(self, plan: Plan, sizes: Mapping[str, int]) -> Run:
        driver.make_current(self._place)
        if self._buffers is None or not self._buffers.fit(plan, sizes):
            self._free()
            self._buffers = _Buffers(plan, sizes)
        executable = ExecutionPlan(plan)
        workspace = self._buffers.workspace(executable.workspace_size(sizes))
        bound = executable.bind(
            self._buffers.pack, workspace, stream=self._clock.stream, sizes=sizes,
            device=self._place.ordinal,
        )  # fmt: skip
        return lambda calls: self._clock.seconds(bound, calls)

    def _free(self) -> None:
        if self._buffers is not None:
            self._buffers.free()
            self._buffers = None

    def close(self) -> None:
        self._free()
        self._clock.close()

    def __enter__(self) -> DeviceTimer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class _Buffers:
    """Device memory for the tensors of a graph; workspaces that plans are bound to stay until the
    end."""

    def __init__(self, plan: Plan, sizes: Mapping[str, int]):
        self._key = (dict(plan.graph), dict(sizes))
        self._taken: list[int] = []
        self._workspace = (0, 0)
        self.pack: dict[int, Any] = {}
        try:
            for uid, value in values.of_plan(plan, sizes):
                self.pack[uid] = self._placed(value) if hasattr(value, "nbytes") else value
        except BaseException:
            self.free()
            raise

    def fit(self, plan: Plan, sizes: Mapping[str, int]) -> bool:
        """Whether they are those of a plan's graph at these sizes."""
        return self._key == (dict(plan.graph), dict(sizes))

    def _placed(self, data: Any) -> int:
        self._taken.append(driver.allocate(data.nbytes))
        if data.nbytes:
            driver.upload(self._taken[-1], data)
        return self._taken[-1]

    def workspace(self, bytes_: int) -> int | None:
        """The address of a workspace, which plans share as long as it is large enough."""
        if bytes_ > self._workspace[1]:
            self._taken.append(driver.allocate(bytes_))
            self._workspace = (self._taken[-1], bytes_)
        return self._workspace[0] if bytes_ else None

    def free(self) -> None:
        for address in self._taken:
            driver.free(address)
        self._taken.clear()
