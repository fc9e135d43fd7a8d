"""Random attention of large scores to many keys: `draw(random, most, heads)`.

Logits of 1e2 to 1.6e4, equal but for a few, or growing along the keys or against them, gently or
steeply.  Queries, keys and every number that scores meet are such that f32 holds all sums, so that
nothing but a kernel's softmax rounds; values and what the result meets are positive, so that no
error is a sum's that nearly cancels.  Operands have 16 bits: those of 8 have too few to be nearly
equal, and Hopper's accumulators keep 14 of a sum of theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from tests.random_attention import Attention, Drawn

_QUERIES = (1, 2, 5, 16, 33)
_DEPTHS, _WIDTHS = (16, 64, 64, 128), (8, 16, 64, 64, 128)
_STEP = 2.0**-5  # queries, 1 to 2, and keys, 1 to 4, are multiples of it
_STEEPEST = 96  # steps of a key's elements
_LOGITS = (1e2, 1e4)
_SLOPE = 2.0**-9  # slopes are multiples of it


@dataclass
class LargeDrawn(Drawn):
    """maximum: the tensor that distances are from.  sums: statistics that are sums alone.
    keys: of a head."""

    maximum: Any = None
    sums: Any = ()
    keys: int = 0


def draw(random: Random, most: int, heads: int = 2, *, keeps: bool = False) -> LargeDrawn:
    """most: keys of a head, a fourth of which come at least.  heads, keeps: as of
    `random_attention.draw`."""
    return _LargeAttention(random, most, heads, keeps).drawn()


class _LargeAttention(Attention):
    def __init__(self, random: Random, most: int, heads: int, keeps: bool):
        super().__init__(random, most, heads, keeps)
        self.depth, self.width = random.choice(_DEPTHS), random.choice(_WIDTHS)
        self.queries = random.choice(_QUERIES)
        self.keys = round(math.exp(random.uniform(math.log(most / 4), math.log(most))))
        self.kind = random.choice(("equal", "equal", "gentle", "gentle", "steep"))
        self.is_falling = random.random() < 0.5
        self.logits = math.exp(random.uniform(*map(math.log, _LOGITS)))
        if self.kind == "steep":  # keys grow to four times what they are at first
            self.logits /= 4
        self.is_transposed = False
        self.sums: list[Any] = []

    def drawn(self) -> LargeDrawn:
        found = super().drawn()
        for name in ("q", "k", "v"):
            found.values.setdefault(name, self.numbers(name))
        return LargeDrawn(**vars(found), maximum=self.m, sums=self.sums, keys=self.keys)

    def tensor(
        self, dims: list[Any], name: str = "", dtype: Any = None, is_transposed: bool = False
    ) -> Any:
        self.is_transposed |= is_transposed
        made = super().tensor(dims, name, dtype, is_transposed)
        if not name:
            self.values[made.get_name()] = lambda rng, shape: rng.uniform(0.25, 2, shape)
        return made

    # ---- numbers

    def _size(self) -> float:
        """A power of two: the product of a query and a key is 1.5 times their depth, about."""
        return 2.0 ** round(math.log2(self.logits / (1.5 * self.depth)))

    def numbers(self, name: str) -> Any:
        return {"q": self._query_numbers, "k": self._key_numbers, "v": _values}[name]

    def _query_numbers(self, rng: Any, shape: tuple[int, ...]) -> Any:
        return 1 + _STEP * rng.integers(0, 32, shape)

    def _key_numbers(self, rng: Any, shape: tuple[int, ...]) -> Any:
        """1 and the steps that make a key's score greater by what is wanted, or nearly."""
        if self.is_transposed:
            shape = (*shape[:-2], shape[-1], shape[-2])
        depth = shape[-1]
        of_step = 1.5 * _STEP * self._size()
        wanted = self._growth(rng, shape[:-1], of_step * _STEEPEST * depth)
        steps = np.minimum(np.rint(wanted / of_step), _STEEPEST * depth)[..., None]
        elements = rng.permuted(np.broadcast_to(np.arange(depth), shape), axis=-1)
        found = 1 + _STEP * (steps // depth + (elements < steps % depth))
        return np.swapaxes(found, -1, -2) if self.is_transposed else found

    def _growth(self, rng: Any, shape: tuple[int, ...], steepest: float) -> Any:
        """Excess of keys' scores over the smallest."""
        place = _places(shape)
        if self.is_falling:
            place = 1 - place
        noise = rng.uniform(0, 3, shape)
        return {"equal": 0.0, "gentle": 20.0, "steep": steepest}[self.kind] * place + noise

    def biases(self, rng: Any, shape: tuple[int, ...]) -> Any:
        return rng.integers(-16, 17, shape) / 8

    def slopes(self, rng: Any, shape: tuple[int, ...]) -> Any:
        return _SLOPE * rng.integers(-4, 5, shape)

    def sinks(self, rng: Any, shape: tuple[int, ...]) -> Any:
        return np.rint(self.logits) + rng.integers(-32, 33, shape) / 8

    # ---- what else differs

    def _capped(self, s: Any) -> Any:
        return s  # nothing is large after it

    def _rounded(self, p: Any) -> Any:
        """p, to be rounded by the kernel alone: the graph would round weights that are divided."""
        return self.g.identity(p).set_data_type("f32")

    def _statistics(self) -> None:
        g, m, total = self.g, self.m, self.l
        kind = self.random.choice(("none", "log", "in powers of two", "both", "both"))
        self.rows = []
        if kind == "both":
            self.sums = [g.identity(total)]
            self.rows = [g.identity(m), *self.sums]
        elif kind != "none":
            logs = g.add(m, g.log(total))
            self.rows = [logs if kind == "log" else g.mul(logs, math.log2(math.e))]
        for tensor in self.rows:
            tensor.set_output().set_data_type("f32")


def _places(shape: tuple[int, ...]) -> Any:
    """[blocks, heads, rows] -> where rows are, of 0 to 1; blocks come one after the other."""
    blocks = np.reshape(np.arange(shape[0]), (-1, *[1] * (len(shape) - 1)))
    return np.broadcast_to(
        (blocks * shape[-1] + np.arange(shape[-1])) / (shape[0] * shape[-1]), shape
    )


def _values(rng: Any, shape: tuple[int, ...]) -> Any:
    """Growing along the keys, or against them, in each column as it will: what weights of one end
    lose beside those of the other shows, and roundings of columns even out."""
    place = _places(shape[:-1])[..., None]
    is_reversed = rng.random(shape[-1]) < 0.5
    powers = rng.uniform(0.5, 8, shape[-1])
    return 0.125 + 2 * np.where(is_reversed, 1 - place, place) ** powers
