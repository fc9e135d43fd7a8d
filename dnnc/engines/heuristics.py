"""Ranks the ways to run a graph: partitions into fusions, and an engine with knobs for each.

Mode A (and B, for now the same) looks at the graph as one fusion; FALLBACK splits it where no
engine takes it whole, and takes engines that are always right.  Everything here is arithmetic
on the graph, without a compiler or a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..dialect.fusion import Fusion, partition
from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..options import DEFAULT_MODES
from ..target import Target
from . import ENGINES, engine_named
from .engine import Engine, Prediction, Reason
from .splitting import grown_groups
from .surface import memory_seconds

MODES = ("A", "B", "FALLBACK")
_MUCH_FASTER = 0.8  # of the seconds of what is there already
_WORTH_A_LOOK = 10e-6  # seconds: launches differ by as much from call to call


@lru_cache(maxsize=4096)
def _name(engine: int, knobs: tuple[tuple[str, int], ...]) -> str:
    return "_".join([f"eng{engine}", *(f"{name}={value}" for name, value in sorted(knobs))])


@dataclass(frozen=True)
class Choice:
    """An engine and its knobs for one fusion."""

    fusion: Fusion
    engine: Engine
    knobs: Mapping[str, int]
    prediction: Prediction

    @property
    def notes(self) -> tuple[str, ...]:
        return self.engine.notes(self.fusion, self.knobs)


@dataclass(frozen=True)
class EngineConfig:
    """A way to run a graph: a choice for each fusion of a partition, in order.

    split_reason: why it is more than one fusion, "" if it is one.
    """

    choices: tuple[Choice, ...]
    split_reason: str = ""

    @property
    def seconds(self) -> float:
        return sum(choice.prediction.seconds for choice in self.choices)

    @cached_property
    def name(self) -> str:
        """eng3_TILE_M=128_TILE_N=128; parts of a split are joined by +."""
        return "+".join(_name(c.engine.index, tuple(c.knobs.items())) for c in self.choices)

    @property
    def notes(self) -> tuple[str, ...]:
        """The numerical notes of all choices."""
        return tuple(dict.fromkeys(note for choice in self.choices for note in choice.notes))

    @property
    def knobs(self) -> dict[str, int]:
        """All knobs, those of a split named fusion.knob."""
        if len(self.choices) == 1:
            return dict(self.choices[0].knobs)
        return {
            f"{i}.{name}": value
            for i, choice in enumerate(self.choices)
            for name, value in choice.knobs.items()
        }

    def partition_text(self, graph: OperationGraph) -> str:
        """The partition as the option of pass `fuse`: operations by place, fusions by |."""
        place = {op: i for i, op in enumerate(graph.live_ops)}
        groups = (" ".join(str(place[op]) for op in choice.fusion.ops) for choice in self.choices)
        return "|".join(groups)

    @property
    def choice_text(self) -> str:
        """The choices as the option of pass `select-engine`: engine:KNOB=value:..., by |."""
        return "|".join(
            ":".join([c.engine.name, *(f"{k}={v}" for k, v in sorted(c.knobs.items()))])
            for c in self.choices
        )


@dataclass(frozen=True)
class Refusal:
    """What an engine said of a fusion that it declines."""

    engine: Engine
    fusion: Fusion
    reasons: tuple[Reason, ...]


def refusals(fusion: Fusion, target: Target) -> list[Refusal]:
    """The reasons of every engine that declines the fusion."""
    found = [Refusal(e, fusion, e.supports(fusion, target)) for e in ENGINES]
    return [refusal for refusal in found if refusal.reasons]


def choices(fusion: Fusion, target: Target, engines: Sequence[Engine] = ENGINES) -> list[Choice]:
    """Every candidate of every engine that takes the fusion, fastest prediction first."""
    found: list[Choice] = []
    for engine in engines:
        if engine.supports(fusion, target):
            continue
        for knobs in engine.candidates(fusion, target):
            prediction = engine.predict(fusion, knobs, target)
            found.append(Choice(fusion, engine, dict(knobs), prediction))
    # What rounds operands to fewer bits than the graph says comes after all that does not, so
    # that it is never chosen silently.  Ties stay as listed.
    return sorted(found, key=lambda c: ("DOWN_CONVERT_INPUTS" in c.notes, c.prediction.seconds))


def configs(
    graph: OperationGraph, target: Target, modes: Sequence[str] = DEFAULT_MODES
) -> Iterator[EngineConfig]:
    """The engine configs of a finalized graph, in mode order, each once."""
    for mode in modes:
        if mode not in MODES:
            raise DnncError(Status.BAD_PARAM, f"heuristic mode {mode!r}", ", ".join(MODES))
    return _configs(graph, target, modes)


def _configs(graph: OperationGraph, target: Target, modes: Sequence[str]) -> Iterator[EngineConfig]:
    seen: set[str] = set()
    for mode in modes:
        for config in _configs_of_mode(graph, target, mode):
            if config.name not in seen:
                seen.add(config.name)
                yield config


def _configs_of_mode(graph: OperationGraph, target: Target, mode: str) -> Iterator[EngineConfig]:
    (whole,) = partition(graph, [graph.live_ops])
    found = choices(whole, target)
    if found and mode != "FALLBACK" and (faster := _faster_split(graph, target, found[0])):
        yield faster
    for choice in found:
        yield EngineConfig((choice,))
    if mode == "FALLBACK" and len(graph.live_ops) > 1:
        split = _best_split(graph, target)
        if split is not None:
            yield split


def _faster_split(graph: OperationGraph, target: Target, whole: Choice) -> EngineConfig | None:
    """The graph without the engine that takes it whole, where that is far from the memory's rate
    and several kernels are predicted to be faster."""
    if not _is_slow(whole, target):
        return None
    split = split_config(graph, target, _all_but(whole.engine))
    if split is None or split.seconds > _MUCH_FASTER * whole.prediction.seconds:
        return None
    return split


def _is_slow(choice: Choice, target: Target) -> bool:
    """Whether sums are far from the memory's rate."""
    fusion = choice.fusion
    if not fusion.with_role("reduction") or fusion.with_role("anchor"):
        return False
    floor = memory_seconds(fusion, target, blocks=1 << 20).seconds
    return choice.prediction.seconds >= 3 * floor + _WORTH_A_LOOK


def _all_but(engine: Engine) -> list[Engine]:
    return [other for other in ENGINES if other is not engine]


def _best_split(graph: OperationGraph, target: Target) -> EngineConfig | None:
    """The graph as fusions as large as they grow; without an engine that takes one of them, and
    far from the memory's rate, where that is predicted to be faster."""
    split = split_config(graph, target)
    if split is None:
        return None
    slow = dict.fromkeys(choice.engine for choice in split.choices if _is_slow(choice, target))
    for engine in slow:
        other = split_config(graph, target, _all_but(engine))
        if other is not None and other.seconds < _MUCH_FASTER * split.seconds:
            split = other
    return split


def split_config(
    graph: OperationGraph, target: Target, engines: Sequence[Engine] = ENGINES
) -> EngineConfig | None:
    """The graph as several fusions, each as large as an engine takes; None if one op has none."""
    groups = grown_groups(graph, target, engines)
    if groups is None or len(groups) == 1:
        return None
    found = [choices(fusion, target, engines) for fusion in partition(graph, groups)]
    if not all(found):
        return None
    return EngineConfig(tuple(ranked[0] for ranked in found), split_reason(graph, target))


def split_reason(graph: OperationGraph, target: Target) -> str:
    """Why a graph is not run as one fusion."""
    (whole,) = partition(graph, [graph.live_ops])
    declined = [f"{r.engine.name} ({r.reasons[0]})" for r in refusals(whole, target)]
    if len(declined) < len(ENGINES):
        return "asked for, or predicted to be faster than one fusion"
    return f"no engine takes the graph as one fusion: {'; '.join(declined)}"


def best_config(
    graph: OperationGraph,
    target: Target,
    modes: Sequence[str] = DEFAULT_MODES,
    *,
    engine: str | None = None,
    knobs: Mapping[str, int] | None = None,
) -> EngineConfig:
    """The first config, of an engine and with knobs where they are given.

    No config is a NOT_SUPPORTED error with the reasons of every engine.
    """
    if engine is not None or knobs:
        return _explicit_config(graph, target, modes, engine, knobs or {})
    found = next(configs(graph, target, modes), None)
    if found is None:
        raise no_config_error(graph, target)
    return found


def _explicit_config(
    graph: OperationGraph,
    target: Target,
    modes: Sequence[str],
    name: str | None,
    knobs: Mapping[str, int],
) -> EngineConfig:
    if name is None:
        ranked = configs(graph, target, modes)
        config = next((c for c in ranked if len(c.choices) == 1), None)
        config = config or best_config(graph, target, modes)
        if len(config.choices) != 1:
            raise DnncError(
                Status.BAD_PARAM,
                f"knobs {dict(knobs)} for a graph of {len(config.choices)} fusions",
                "knobs of a graph that is one fusion",
            )
        name = config.choices[0].engine.name
    chosen = engine_named(name)
    (whole,) = partition(graph, [graph.live_ops])
    reasons = chosen.supports(whole, target)
    if reasons:
        raise DnncError(
            reasons[0].status,
            f"engine {name}: {'; '.join(map(str, reasons))}",
            "a graph of its support surface",
            f"graph '{graph.name}'",
        )
    return EngineConfig((with_knobs(chosen, whole, knobs, target),))


def with_knobs(engine: Engine, fusion: Fusion, knobs: Mapping[str, int], target: Target) -> Choice:
    """An engine's best candidate with some knobs set; unknown or illegal ones are errors."""
    known = {knob.name: knob for knob in engine.knobs(fusion, target)}
    for name, value in knobs.items():
        if name not in known:
            raise DnncError(
                Status.BAD_PARAM,
                f"engine {engine.name} has no knob {name}",
                ", ".join(known) or "no knobs",
            )
        if value not in known[name].values:
            raise DnncError(
                Status.BAD_PARAM,
                f"knob {name}={value} of engine {engine.name}",
                ", ".join(map(str, sorted(known[name].values))),
            )
    merged = _completed(engine, fusion, knobs, target)
    illegal = engine.legal(merged, fusion, target)
    if illegal:
        raise DnncError(
            illegal[0].status,
            f"engine {engine.name}: {'; '.join(map(str, illegal))}",
            "other knobs",
        )
    return Choice(fusion, engine, merged, engine.predict(fusion, merged, target))


def verify_choice(engine: Engine, fusion: Fusion, knobs: Mapping[str, int], target: Target) -> None:
    """Raises unless the engine takes the fusion and the knobs are all of its own, and legal."""
    reasons = engine.supports(fusion, target)
    known = {knob.name: knob for knob in engine.knobs(fusion, target)} if not reasons else {}
    if not reasons:
        wrong = [f"{n}={v}" for n, v in knobs.items() if n not in known or v not in known[n].values]
        missing = [name for name in known if name not in knobs]
        if wrong or missing:
            what = ", ".join([*wrong, *(f"no {name}" for name in missing)])
            accepted = "; ".join(f"{k.name} of {k.values}" for k in known.values())
            raise DnncError(
                Status.BAD_PARAM, f"knobs of engine {engine.name}: {what}", accepted, "dnn.knobs"
            )
        reasons = engine.legal(knobs, fusion, target)
    if reasons:
        raise DnncError(
            reasons[0].status,
            f"engine {engine.name}: {'; '.join(map(str, reasons))}",
            "another engine, or other knobs",
            "dnn.engine",
        )


def _completed(
    engine: Engine, fusion: Fusion, knobs: Mapping[str, int], target: Target
) -> dict[str, int]:
    """The knobs that are asked for, the rest of the candidate that differs least from them.

    Candidates that differ as much stay ranked by prediction; legal results come first.  What
    rounds operands is completed from such candidates only if the knobs asked for say so.
    """
    if all(knob.name in knobs for knob in engine.knobs(fusion, target)):
        return dict(knobs)
    ranked = [choice.knobs for choice in choices(fusion, target, [engine])]
    if not ranked:
        raise DnncError(
            Status.NOT_SUPPORTED,
            f"engine {engine.name} has no configuration for this graph on {target}",
            "another engine",
            repr(fusion),
        )
    is_rounded = _rounds_operands(engine, fusion, {**ranked[0], **knobs})
    alike = [c for c in ranked if _rounds_operands(engine, fusion, c) == is_rounded]
    alike.sort(key=lambda c: sum(c.get(name) != value for name, value in knobs.items()))
    merged = [{**candidate, **knobs} for candidate in alike or ranked]
    return next((m for m in merged if not engine.legal(m, fusion, target)), merged[0])


def _rounds_operands(engine: Engine, fusion: Fusion, knobs: Mapping[str, int]) -> bool:
    return "DOWN_CONVERT_INPUTS" in engine.notes(fusion, knobs)


def no_config_error(graph: OperationGraph, target: Target) -> DnncError:
    """Why nothing runs the graph: each operation that no engine takes, with all reasons."""
    alone = partition(graph, [[op] for op in graph.live_ops])
    lines: list[str] = []
    status = Status.NOT_SUPPORTED_GRAPH_PATTERN
    for fusion in alone:
        if all(engine.supports(fusion, target) for engine in ENGINES):
            found = refusals(fusion, target)
            status = _status_of(found)
            said = "; ".join(f"{r.engine.name}: {r.reasons[0]}" for r in found)
            lines.append(f"{fusion.ops[0].label}: {said}")
    return DnncError(
        status,
        f"no engine for {target}: " + " | ".join(lines),
        "operations of the support table (dnnc engines GRAPH explains each)",
        f"graph '{graph.name}'",
    )


def _status_of(found: Sequence[Refusal]) -> Status:
    """The status of the engine that came closest: it has a reason other than its pattern."""
    for refusal in found:
        for reason in refusal.reasons:
            if reason.status != Status.NOT_SUPPORTED_GRAPH_PATTERN:
                return reason.status
    return Status.NOT_SUPPORTED_GRAPH_PATTERN
