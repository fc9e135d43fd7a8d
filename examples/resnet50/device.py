"""The forward pass on a CUDA device, with its memory: launches, results, times."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from demo.device import Buffers, seconds_a_launch
from dnnc.runtime import driver

from ..cuda_graph import Replay
from . import tensors
from .forward import Forward, Places

Array = Any

# Every byte of what is to be written: a NaN.
_POISON = 0xFF
_TIMED_ROUNDS = 9


@dataclass(frozen=True)
class Times:
    """Seconds of a pass.

    launched: layer after layer, by the host.  replayed: as one CUDA graph.  layers: by name, on
    the device's clock, in a graph with an event after each, which adds about a microsecond.
    """

    launched: float
    replayed: float
    layers: dict[str, float]


class Device:
    """A forward pass on the current device; its memory is freed at the end of a `with` block."""

    def __init__(self, forward: Forward, seed: int):
        self.forward = forward
        self.parameters = tensors.parameters(forward.network, seed)
        self._image = tensors.images(forward.network, forward.n, seed)
        self._buffers = Buffers()

    def __enter__(self) -> Device:
        hold = self._buffers.__enter__().holding
        self.places = Places(
            image=hold(self._image),
            logits=self._buffers.allocate(self.forward.logits_bytes),
            arena=self._buffers.allocate(self.forward.arena.bytes),
            parameters={name: (hold(w), hold(bias)) for name, (w, bias) in self.parameters.items()},
        )
        self.calls = self.forward.calls(self.places)
        self.bound = [call.bind() for call in self.calls]
        return self

    def __exit__(self, *error: object) -> None:
        self._buffers.__exit__(*error)

    def launch(self) -> None:
        """All layers, one after the other."""
        for bound in self.bound:
            bound()

    def poison(self, address: int, bytes_: int) -> None:
        """Fills memory with what no kernel writes."""
        memset = driver.calls().memset
        (result,) = memset(address, _POISON, bytes_, driver.DEFAULT_STREAM)
        if int(result):
            raise driver.call_failed(memset, result)

    def poison_all(self) -> None:
        """Arena and logits."""
        self.poison(self.places.arena, self.forward.arena.bytes)
        self.poison(self.places.logits, self.forward.logits_bytes)

    def logits(self, launch: Callable[[], None]) -> Array:
        """[n, 1, 1, classes] that a launch of all layers writes; nothing else is there before."""
        self.poison_all()
        launch()
        driver.synchronize()
        found = np.empty((self.forward.n, 1, 1, self.forward.network.classes), np.float16)
        driver.download(found, self.places.logits)
        return found

    def replayed_logits(self) -> Array:
        """The logits that one CUDA graph of all layers writes."""
        replay = Replay(self.calls)
        try:
            return self.logits(replay)
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
        names = (call.layer.name for call in self.calls)
        layers = (statistics.median(seconds) for seconds in zip(*rounds, strict=True))
        return Times(launched, replayed, dict(zip(names, layers, strict=True)))
