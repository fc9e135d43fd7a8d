"""Which engine configs a plan holds for the sizes that its symbols may have.

A config that is best at one size may take twice as long as another elsewhere.  So a plan for
symbols holds a few, each with a guard on one symbol:

    tokens <= 48 -> TILE_M=16 SWAP_AB=1;  tokens <= 1500 -> TILE_M=64;  else TILE_M=128

The predictions of the engines say which: the symbol is the one whose range matters most, and
configs are added while they bring enough over the whole of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..dialect.graph import OperationGraph
from ..expr import Dim, assuming, typical_dim
from ..record import Entry, symbol_names
from ..target import Target
from .choice import Choice, choices
from .heuristics import EngineConfig, tuned_config
from .inputs import Inputs, inputs_of

MOST = 3
_STEP = 4  # from a size that is looked at to the next
_SMALLEST = 16
_WORTH = 1.04  # what another config has to bring, in geometric mean over the range

# The choices of a config, by their texts.
_Texts = tuple[str, ...]


@dataclass(frozen=True)
class GuardedConfig:
    """A config for the sizes that a guard takes, of those that no earlier guard takes."""

    guard: str
    config: EngineConfig


def guarded_configs(
    graph: OperationGraph,
    target: Target,
    config: EngineConfig,
    *,
    most: int = MOST,
    is_allowed: Callable[[EngineConfig], bool] = lambda config: True,
    inputs: Inputs | None = None,
) -> list[GuardedConfig]:
    """A config, and others of the same fusions where they are predicted to be faster.

    The last guard is "1".  Others have no numerical notes that the config has not, and errata do
    not bar them.  Configs that were timed stay best at the sizes at which they were.
    """
    inputs = inputs or inputs_of()
    if most < 2:
        return [GuardedConfig("1", config)]
    timed = _timed(graph, target, config, inputs) if config.measured else []
    best: tuple[float, list[GuardedConfig]] = (
        -math.inf if timed else _WORTH,
        [GuardedConfig("1", config)],
    )
    for dim, pins in timed or [(dim, None) for dim in graph.symbols.values()]:
        ladder = _Ladder(dim, config, target, inputs, pins)
        gain, kept = ladder.chosen(most, is_allowed)
        if gain > best[0]:
            best = gain, ladder.guarded(kept)
    return best[1]


def _points(dim: Dim) -> list[int]:
    """Sizes over the range of a symbol, ascending."""
    found, size = set[int](), _SMALLEST
    while size < dim.max:
        found.add(size)
        size *= _STEP
    every = []
    for size in sorted({dim.min, dim.max, *found}):
        with assuming({dim.name: size}):
            every.append(typical_dim(dim))
    return list(dict.fromkeys(every))


def _timed(
    graph: OperationGraph, target: Target, config: EngineConfig, inputs: Inputs
) -> list[tuple[Dim, dict[int, EngineConfig]]]:
    """The symbols of which a tuning record has most sizes, and the config of each size.

    The fusions are those of `config`.  Of entries that have the same size of the symbol, the one
    counts that has most of the other symbols' sizes in common with `config`.
    """
    assert config.measured is not None
    names, own = symbol_names(graph), config.measured.sizes
    taken: list[tuple[Entry, EngineConfig]] = []
    for entry in inputs.record.entries_for(graph, target, inputs.device):
        made = tuned_config(graph, target, inputs, entry)
        if made and made.partition_text(graph) == config.partition_text(graph):
            taken.append((entry, made))
    every: list[tuple[Dim, dict[int, EngineConfig]]] = []
    for dim in graph.symbols.values():
        name = names[dim.name]
        nearest = sorted(taken, key=lambda pair: _others(pair[0].sizes, own, name), reverse=True)
        found = {entry.sizes[name]: made for entry, made in nearest}  # the last one stays
        if found:
            every.append((dim, found))
    most = max((len(found) for _, found in every), default=0)
    return [(dim, found) for dim, found in every if len(found) == most]


def _others(sizes: Mapping[str, int], own: Mapping[str, int], name: str) -> int:
    """How many symbols but the named one have other sizes."""
    return sum(sizes[other] != size for other, size in own.items() if other != name)


class _Ladder:
    """The configs of a graph at sizes of one symbol.

    pins: size -> the config that was fastest there when it was timed: it is best there, and it is
    taken to be as much faster than predicted elsewhere.
    """

    def __init__(
        self,
        dim: Dim,
        config: EngineConfig,
        target: Target,
        inputs: Inputs,
        pins: Mapping[int, EngineConfig] | None = None,
    ):
        self.dim, self.base, self.target, self.inputs = dim, config, target, inputs
        self.pins = {size: _texts(made) for size, made in (pins or {}).items()}
        self.points = sorted({*_points(dim), *self.pins})
        every = [config, *(pins or {}).values()]
        self.options = [
            self._options([made.choices[i] for made in every]) for i in range(len(config.choices))
        ]
        self.configs = self._configs() | {_texts(made): made for made in every}
        self.scales: dict[_Texts, float] = {}
        for size, texts in self.pins.items():
            self.scales[texts] = min(self.scales.get(texts, 1.0), self._scale(size, texts))
        self.seconds = {
            texts: [self._total(texts, at) for at in range(len(self.points))]
            for texts in self.configs
        }
        for size, texts in self.pins.items():
            at = self.points.index(size)
            self.seconds[texts][at] = 0.99 * min(row[at] for row in self.seconds.values())

    def _scale(self, size: int, texts: _Texts) -> float:
        """How much faster than predicted a config has to be to be the best at a size."""
        at = self.points.index(size)
        return min(self._total(other, at) for other in self.configs) / self._total(texts, at)

    def _options(self, bases: Sequence[Choice]) -> Mapping[str, tuple[Choice, list[float]]]:
        """Text -> (choice, seconds at each point) of a fusion's candidates.

        bases: the given config's choice, then others that have to be among them.
        """
        base = bases[0]
        fusion, found = base.fusion, {choice.text: choice for choice in bases}
        for size in {self.points[0], self.points[-1]}:
            with assuming({self.dim.name: size}):
                found |= {
                    choice.text: choice
                    for choice in choices(fusion, self.target, inputs=self.inputs)
                    if set(choice.notes) <= set(base.notes)
                }
        seconds: dict[str, list[float]] = {text: [] for text in found}
        for size in self.points:
            with assuming({self.dim.name: size}):
                for text, choice in found.items():
                    seconds[text].append(_seconds(choice, self.target))
        return {text: (choice, seconds[text]) for text, choice in found.items()}

    def _configs(self) -> dict[_Texts, EngineConfig]:
        """The given one, and the best at each point."""
        found = {_texts(self.base): self.base}
        for at in range(len(self.points)):
            texts = tuple(
                min(options, key=lambda text: options[text][1][at]) for options in self.options
            )
            chosen = (options[text][0] for options, text in zip(self.options, texts, strict=True))
            found.setdefault(texts, replace(self.base, choices=tuple(chosen)))
        return found

    def _total(self, texts: _Texts, at: int) -> float:
        pairs = zip(self.options, texts, strict=True)
        return self.scales.get(texts, 1.0) * sum(options[text][1][at] for options, text in pairs)

    def chosen(
        self, most: int, is_allowed: Callable[[EngineConfig], bool]
    ) -> tuple[float, list[_Texts]]:
        """(gain over the given config alone, configs), one more while that is worth it."""
        base = _texts(self.base)
        kept = list(dict.fromkeys([base, *self.pins.values()]))
        others = [t for t, config in self.configs.items() if t not in kept and is_allowed(config)]
        while len(kept) < most and others:
            following = max(others, key=lambda texts: self._gain(kept, texts))
            if self._gain(kept, following) < _WORTH:
                break
            others.remove(following)
            kept.append(following)
        gains = (self.seconds[base][i] / self._least(kept, i) for i in range(len(self.points)))
        return math.prod(gains) ** (1 / len(self.points)), kept

    def _least(self, kept: Sequence[_Texts], at: int) -> float:
        return min(self.seconds[texts][at] for texts in kept)

    def _gain(self, kept: Sequence[_Texts], another: _Texts) -> float:
        count = len(self.points)
        ratios = (self._least(kept, i) / self._least([*kept, another], i) for i in range(count))
        return math.prod(ratios) ** (1 / count)

    def guarded(self, kept: Sequence[_Texts]) -> list[GuardedConfig]:
        """Each of the configs where it is the best of them, in ascending order of the sizes."""
        best = [min(kept, key=lambda texts: self.seconds[texts][i])
                for i in range(len(self.points))]  # fmt: skip
        found: list[GuardedConfig] = []
        for i, (here, following) in enumerate(itertools.pairwise(best)):
            if here != following:
                bound = self._boundary(self.points[i], self.points[i + 1], here, following)
                guard = f"{self.dim.name} <= {bound}"
                found.append(GuardedConfig(guard, self.configs[here]))
        return [*found, GuardedConfig("1", self.configs[best[-1]])]

    def _boundary(self, low: int, high: int, lower: _Texts, upper: _Texts) -> int:
        """The last size at which `lower` is the better one, within 3%."""
        while high - low > max(1, self.dim.multiple_of, low // 32):
            middle = (low + high) // 2
            with assuming({self.dim.name: middle}):
                seconds = [
                    self.scales.get(texts, 1.0)
                    * sum(_seconds(choice, self.target) for choice in self.configs[texts].choices)
                    for texts in (lower, upper)
                ]
            low, high = (middle, high) if seconds[0] <= seconds[1] else (low, middle)
        return low


def _texts(config: EngineConfig) -> _Texts:
    return tuple(choice.text for choice in config.choices)


def _seconds(choice: Choice, target: Target) -> float:
    return choice.engine.predict(choice.fusion, choice.knobs, target).seconds
