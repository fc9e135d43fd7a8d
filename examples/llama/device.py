"""A phase on a CUDA device, with its memory: launches, copies into the cache, results, times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda

from demo.device import Buffers, seconds_a_launch
from dnnc.runtime import ExecutionPlan, driver

from .. import cuda_graph
from ..cuda_graph import Replay
from . import tensors
from .phases import CACHES, Append, Phase, Step
from .walk import Plans

Array = Any

_POISON = 0xFF  # every byte of what is to be written: a NaN of bf16
_BYTES = {"bf16": 2, "f32": 4, "i32": 4}
_TIMED_ROUNDS = 9


@dataclass(frozen=True)
class Call:
    """A step's plan with the pointers and the workspace that it is bound to."""

    plan: ExecutionPlan
    pack: Mapping[str, int]
    workspace: int | None

    def bind(self) -> Callable[[], None]:
        """The bound plan: calling it launches the step."""
        return self.plan.bind(self.pack, self.workspace)

    def populate(self, graph: Any, after: Sequence[Any]) -> Sequence[Any]:
        """Adds the step to a CUDA graph after some nodes; gives its last one."""
        nodes = self.plan.populate_cuda_graph(self.pack, self.workspace, graph, dependencies=after)
        return nodes[-1:]


@dataclass(frozen=True)
class Copies:
    """Copies of new keys or values into the cache, one a sequence.

    They are the driver's own: where a token goes depends on a table that the host keeps, and no
    output of a plan lies at places that the device looks up.  Addresses, sizes in bytes.
    """

    copies: Sequence[tuple[int, int]]  # source, target
    row: int
    rows: int
    pitch: int  # from row to row of the target

    def _parameters(self) -> list[Any]:
        found: list[Any] = []
        for source, target in self.copies:
            made = cuda.CUDA_MEMCPY3D()
            made.srcMemoryType = made.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
            made.srcDevice, made.dstDevice = source, target
            made.srcPitch, made.dstPitch = self.row, self.pitch
            made.srcHeight = made.dstHeight = self.rows
            made.WidthInBytes, made.Height, made.Depth = self.row, self.rows, 1
            found.append(made)
        return found

    def bind(self) -> Callable[[], None]:
        """A function that makes the copies, one after the other."""
        parameters = self._parameters()

        def copy() -> None:
            for made in parameters:
                cuda_graph.call("cuMemcpy3DAsync", made, driver.DEFAULT_STREAM)

        return copy

    def populate(self, graph: Any, after: Sequence[Any]) -> Sequence[Any]:
        """Adds the copies to a CUDA graph, side by side; gives their nodes."""
        context = driver.device().context
        waits = list(after)
        return [
            cuda_graph.call("cuGraphAddMemcpyNode", graph, waits, len(waits), made, context)
            for made in self._parameters()
        ]


@dataclass(frozen=True)
class Times:
    """Seconds of a pass.

    launched: step after step, by the host.  replayed: as one CUDA graph.  steps: by name, on the
    device's clock, in a graph with an event after each, which adds about a microsecond.
    """

    launched: float
    replayed: float
    steps: dict[str, float]


class Device:
    """A phase on the current device; its memory is freed at the end of a `with` block."""

    def __init__(self, phase: Phase, plans: Plans, seed: int):
        self.phase, self.plans = phase, plans
        self.given = tensors.given(phase, seed)
        self._buffers = Buffers()

    def __enter__(self) -> Device:
        self._buffers.__enter__()
        self.places = {name: self._buffers.holding(array) for name, array in self.given.items()}
        for name in self.phase.made:
            self.places[name] = self._buffers.allocate(self.bytes_of(name))
        plans = [self.plans[step.plan] for step in self.phase.steps if isinstance(step, Step)]
        # Steps run one after the other: one workspace serves them all.
        needed = max(plan.workspace_size({}) for plan in plans)
        self._workspace = self._buffers.allocate(needed) if needed else None
        self.calls = [self._call(step) for step in self.phase.steps]
        self.bound = [call.bind() for call in self.calls]
        return self

    def __exit__(self, *error: object) -> None:
        self._buffers.__exit__(*error)

    def bytes_of(self, value: str) -> int:
        found = self.phase.values[value]
        return int(np.prod(found.shape)) * _BYTES[found.dtype]

    def _call(self, step: Step | Append) -> Call | Copies:
        if isinstance(step, Append):
            return self._copies(step)
        pack = {
            name: self.places[place.value]
            + place.offset * _BYTES[self.phase.values[place.value].dtype]
            for name, place in {**step.inputs, **step.outputs}.items()
        }
        return Call(self.plans[step.plan], pack, self._workspace)

    def _copies(self, step: Append) -> Copies:
        m, bytes_ = self.phase.model, _BYTES["bf16"]
        source, target = self.places[step.source.value], self.places[step.cache]
        pairs = [
            (source + bytes_ * first, target + bytes_ * place)
            for first, place in tensors.copies(self.phase, step, self.given)
        ]
        row = bytes_ * m.head_size
        return Copies(pairs, row, m.kv_heads, row * self.phase.block)

    @property
    def used(self) -> float:
        """The share of the paged cache that sequences have filled."""
        longest = self.phase.batch * self.phase.keys
        return float(self.given["lengths"].sum() / longest) if self.phase.is_decode else 1.0

    def launch(self) -> None:
        """All steps, one after the other."""
        for bound in self.bound:
            bound()

    def reset(self) -> None:
        """Puts what is given where it was, and fills the rest with what no kernel writes."""
        for name in CACHES:
            if name in self.given:
                driver.upload(self.places[name], self.given[name])
        memset = driver.calls().memset
        for name in self.phase.made:
            address, bytes_ = self.places[name], self.bytes_of(name)
            (result,) = memset(address, _POISON, bytes_, driver.DEFAULT_STREAM)
            if int(result):
                raise driver.call_failed(memset, result)

    def output(self, launch: Callable[[], None]) -> Array:
        """y's bits, flat, that a launch of all steps makes; nothing else is there before."""
        self.reset()
        launch()
        driver.synchronize()
        found = np.empty(self.bytes_of("y") // _BYTES["bf16"], np.uint16)
        driver.download(found, self.places["y"])
        return found

    def replayed_output(self) -> Array:
        """The output of one CUDA graph of all steps."""
        replay = Replay(self.calls)
        try:
            return self.output(replay)
        finally:
            replay.close()

    def times(self) -> Times:
        """Times of passes one after the other, caches as the pass before left them."""
        replay, timed = Replay(self.calls), Replay(self.calls, is_timed=True)
        try:
            launched, replayed = seconds_a_launch(self.launch), seconds_a_launch(replay)
            rounds: list[list[float]] = []
            for _ in range(_TIMED_ROUNDS):
                timed()
                driver.synchronize()
                rounds.append(timed.seconds())
        finally:
            driver.synchronize()
            replay.close()
            timed.close()
        names = (step.name for step in self.phase.steps)
        steps = (statistics.median(seconds) for seconds in zip(*rounds, strict=True))
        return Times(launched, replayed, dict(zip(names, steps, strict=True)))
