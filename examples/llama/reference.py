"""Expected results of the steps in float64, by NumPy or by torch, and bounds of their errors.

Tensors are the graphs' own, by their names; error = ||y - exact|| / ||exact|| (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .phases import Phase

Array = Any

UNIT = 2.0**-8  # bf16
_F32 = 2.0**-23


@dataclass(frozen=True)
class Verdict:
    """error: ||y - exact|| / ||exact||; bound: the largest that is allowed.

    element_error: the largest error of an element, as a share of its row's largest magnitude; at
    most eight times the bound is allowed.
    """

    error: float
    bound: float
    element_error: float

    @property
    def is_good(self) -> bool:
        return self.error <= self.bound and self.element_error <= 8 * self.bound


def judged(y: Array, exact: Array, bound: float, library: Any) -> Verdict:
    """Compares arrays of float64; a NaN is no good."""
    off = abs(y - exact)
    rows = library.amax(abs(exact), axis=-1, keepdims=True)
    error = (float((off**2).mean()) / float((exact**2).mean())) ** 0.5
    return Verdict(error, bound, float((off / (rows + 1e-300)).max()))


def bound_of(phase: Phase, graph: str) -> float:
    """The largest error of a step's outputs, given its inputs.

    A unit of bf16: what f32 sums lose beside it is less than the half of it that no rounding to
    nearest needs.  Attention rounds its weights too.  Angles are f32, off by what multiplying a
    position by a frequency loses.  What is only moved has to be equal.
    """
    if graph == "angles":
        return _F32 * max(4, phase.keys)
    if graph.startswith("blocks"):
        return 0.0
    return 2 * UNIT if graph == "attention" else UNIT


def layer_bound(phase: Phase) -> float:
    """The largest error of the layer's output: every step rounds, independently."""
    return UNIT * len(phase.steps) ** 0.5


class Exact:
    """The steps in float64.  library: numpy or torch, whose arrays come and go."""

    def __init__(self, phase: Phase, library: Any):
        self.phase, self.library = phase, library

    def outputs(self, graph: str, given: Mapping[str, Array]) -> dict[str, Array]:
        """A graph's outputs, by name."""
        match graph:
            case "angles":
                angle = given["positions"] * given["frequencies"]
                cos, sin = self.library.cos(angle), self.library.sin(angle)
                return {"cos": cos, "sin": sin, "minus_sin": -sin}
            case "norm":
                x = given["x"]
                square = (x * x).mean(-1)[..., None]
                y = x / (square + self.phase.model.epsilon) ** 0.5 * given["scale"]
            case "qkv":
                y = given["x"] @ given["w"]
            case "rotary":
                y = given["x"] * given["cos"] + given["other"] * given["sin"]
            case "out" | "down":
                y = given["x"] @ given["w"] + given["residual"]
            case "gate_up":
                gate = given["x"] @ given["w_gate"]
                y = gate / (1 + self.library.exp(-gate)) * (given["x"] @ given["w_up"])
            case "blocks_k" | "blocks_v":
                y = given["x"]
            case "attention":
                y = self._decode(given) if self.phase.is_decode else self._prefill(given)
            case _:
                raise AssertionError(graph)
        return {"y": y}

    def _prefill(self, given: Mapping[str, Array]) -> Array:
        q, k, v = (given[name] for name in "qkv")
        hidden = self.library.ones((q.shape[2], k.shape[2]), dtype=bool)
        hidden = self._like(self.library.triu(hidden, 1), q)
        heads = [
            self._attended(q[:, h], k[:, h // self._share], v[:, h // self._share], hidden)
            for h in range(q.shape[1])
        ]
        return self.library.stack(heads, 1)

    def _decode(self, given: Mapping[str, Array]) -> Array:
        q, found = given["q"], []
        for sequence in range(self.phase.batch):
            length = int(given["lengths"].reshape(-1)[sequence])
            pages = -(-length // self.phase.block)
            blocks = given["table"][sequence, 0, :pages, 0]
            # [pages, heads, block, D] as [heads, keys, D]
            k, v = (
                given[name][blocks].swapaxes(0, 1).reshape(
                    self.phase.model.kv_heads, -1, q.shape[-1])[:, :length]
                for name in "kv"
            )  # fmt: skip
            heads = [
                self._attended(q[sequence, h], k[h // self._share], v[h // self._share], None)
                for h in range(q.shape[1])
            ]
            found.append(self.library.stack(heads, 0))
        return self.library.stack(found, 0)

    @property
    def _share(self) -> int:
        """Heads of queries that read one of keys."""
        return self.phase.model.heads // self.phase.model.kv_heads

    def _attended(self, q: Array, k: Array, v: Array, hidden: Array) -> Array:
        """[.., queries, D]; hidden: what no query sees, None: nothing."""
        s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        if hidden is not None:
            s[..., hidden] = float("-inf")
        e = self.library.exp(s - self.library.amax(s, axis=-1, keepdims=True))
        return e @ v / e.sum(-1)[..., None]

    def _like(self, made: Array, other: Array) -> Array:
        """A new array where another one is: torch's may be on a device."""
        return made.to(other.device) if hasattr(made, "to") else made
