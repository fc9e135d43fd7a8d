"""A training step on a CUDA device, with its memory: one CUDA graph, losses, gradients, times."""

from __future__ import annotations

import statistics

import numpy as np

from demo.device import Buffers, seconds_a_launch
from dnnc.runtime import driver

from ..cuda_graph import Replay
from . import training_parameters as data
from .device import Array
from .training_calls import BUFFER_BYTES, DOUBLED, Places, TrainingCalls

RATE = 0.01
LOSS_SCALE = 1024.0  # of the first step

_TIMED_ROUNDS = 9


class TrainingDevice:
    """Training on the current device; its memory is freed at the end of a `with` block.

    Two CUDA graphs, each of a whole step, take turns: what one writes of master copies, velocities,
    running statistics and the loss scale, the other reads.
    """

    def __init__(
        self, calls: TrainingCalls, seed: int, rate: float = RATE, stream: int = 0
    ):  # fmt: skip
        self.work, self._seed, self._rate, self._stream = calls, seed, rate, stream
        self._buffers = Buffers()
        self._replays: list[Replay] = []
        self._turn = 0

    def __enter__(self) -> TrainingDevice:
        work, network = self.work, self.work.training.network
        hold = self._buffers.__enter__().holding
        images, labels = data.data(network, work.n, self._seed)
        given = {
            "image": images, "labels": labels, "losses": np.zeros(work.n, np.float32),
            "rate": np.float32([self._rate]),
        }  # fmt: skip
        self.places = Places(
            arena=self._buffers.allocate(work.arena.bytes),
            given={name: hold(array) for name, array in given.items()},
            buffers={
                name: [self._buffers.allocate(work.buffer_bytes(name))
                       for _ in range(2 if name in DOUBLED else 1)]
                for name in BUFFER_BYTES
            },
        )  # fmt: skip
        self.reset()
        self.calls = [work.calls(self.places, turn) for turn in (0, 1)]
        self._bound = [[call.bind(self._stream) for call in calls] for calls in self.calls]
        self._replays = [Replay(calls, self._stream) for calls in self.calls]
        return self

    def __exit__(self, *error: object) -> None:
        driver.synchronize()
        for replay in self._replays:
            replay.close()
        self._buffers.__exit__(*error)

    def reset(self) -> None:
        """The state before the first step."""
        network, layout = self.work.training.network, self.work.training.layout
        drawn = data.parameters(network, self._seed)
        master = data.flat(layout.parts, layout.parameters, drawn)
        contents = {"master": master, "half": master.astype(np.float16),
                    "velocity": np.zeros_like(master), "gradient": np.zeros_like(master),
                    "running": data.running(network),
                    "scaler": data.scaler(network, LOSS_SCALE)}  # fmt: skip
        for name, array in contents.items():
            for address in self.places.buffers[name]:
                driver.upload(address, array)
        self._turn = 0

    def step(self) -> None:
        """Launches a step's CUDA graph."""
        self._replays[self._turn]()
        self._turn ^= 1

    def launch(self) -> None:
        """Launches a step's plans one by one."""
        for bound in self._bound[self._turn]:
            bound()
        self._turn ^= 1

    def loss(self) -> float:
        """The last step's, once it has ended."""
        driver.synchronize()
        losses = np.empty(self.work.n, np.float32)
        driver.download(losses, self.places.given["losses"])
        return float(losses.sum(dtype=np.float64))

    def buffer(self, name: str, *, is_before: bool = False) -> Array:
        """A flat buffer; of two copies the one that the next step reads, or is_before the last one
        did."""
        driver.synchronize()
        dtype = np.float16 if name == "half" else np.float32
        made = np.empty(self.work.buffer_bytes(name) // BUFFER_BYTES[name], dtype)
        copies = self.places.buffers[name]
        driver.download(made, copies[(self._turn ^ is_before) % len(copies)])
        return made

    def gradients(self) -> dict[str, Array]:
        """The last step's, by parameter, without the loss scale."""
        layout = self.work.training.layout
        found = data.split(layout.parts, self.buffer("gradient"))
        (scale,) = data.split(layout.scaler, self.buffer("scaler", is_before=True))["loss_scale"]
        return {name: array / scale for name, array in found.items()}

    def seconds(self) -> tuple[float, float]:
        """(a step as one CUDA graph, its plans launched one by one)."""
        return seconds_a_launch(self.step), seconds_a_launch(self.launch)

    def step_seconds(self) -> dict[str, float]:
        """Seconds of each step, by name, in a graph with an event after each, which adds 1 us."""
        timed = Replay(self.calls[0], self._stream, is_timed=True)
        try:
            rounds: list[list[float]] = []
            for _ in range(_TIMED_ROUNDS):
                timed()
                driver.synchronize()
                rounds.append(timed.seconds())
        finally:
            timed.close()
        names = (call.layer.name for call in self.calls[0])
        medians = (statistics.median(seconds) for seconds in zip(*rounds, strict=True))
        return dict(zip(names, medians, strict=True))
