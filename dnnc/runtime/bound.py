# pyright: basic
"""BoundPlan: the launches of a plan with every argument laid out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..plan.arguments import Environment, pack
from . import driver
from .args import Parameters
from .sized import Sized, SizedLaunch


class BoundPlan:
    """Launches of a plan with every argument laid out.

    Calling it launches and does nothing else; the same object may be called from a stream that
    a CUDA graph is captured from.
    """

    def __init__(
        self,
        sized: Sized,
        place: driver.Device,
        stream: int,
        addresses: Mapping[int, int],
        numbers: Mapping[int, float | int],
        workspace: int,
        peers: Mapping[int, Mapping[int, int]] | None = None,
        keep: Any = None,
    ):
        """addresses, numbers: by uid.  workspace: its address.  keep: buffers to keep alive."""
        env = Environment(int, addresses, numbers, workspace, driver.tensor_map, peers)
        self._device = place
        self._keep = keep
        self._launch, self._memset, self._success = driver.launcher()
        self._steps: list[Any] = []
        for step in sized.steps:
            if isinstance(step, SizedLaunch):
                self._steps.append(_launch(step, env))
            else:
                base = workspace if step.uid < 0 else addresses[step.uid]
                self._steps.append(("memset", base + step.offset, step.value, step.bytes))
        self.stream = stream
        self.set_stream(stream)

    def __call__(self) -> None:
        driver.make_current(self._device)
        for step in self._steps:
            if step[0] == "launch":
                _, config, function, parameters = step
                (result,) = self._launch(config, function, parameters.address, 0)
            else:
                _, address, value, count = step
                (result,) = self._memset(address, value, count, self.stream)
            if result != self._success:
                raise driver.launch_failed(step[0], result)

    def set_stream(self, stream: int) -> None:
        """Makes later calls launch on another stream."""
        self.stream = stream
        for step in self._steps:
            if step[0] == "launch":
                step[1].hStream = stream


def _launch(step: SizedLaunch, env: Environment) -> tuple[Any, ...]:
    launch = step.launch
    config = driver.launch_config(
        step.grid, launch.block, step.smem, launch.cluster, launch.cooperative, launch.programmatic
    )
    arguments = [arg if isinstance(arg, bytes) else pack(arg, env) for arg in step.args]
    return ("launch", config, step.function, Parameters(arguments))
