# pyright: basic
"""Engines, configs and heuristics as the descriptors show them.

All that the descriptors ask of `dnnc.engines` is asked here.  Engines have the indices that they
have everywhere; index 0 is the heuristics' own choice, which may be several engines, each for a
part of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..options import Options
from ..target import Target
from .enums import cudnnBackendBehaviorNote_t as BehaviorNote
from .enums import cudnnBackendKnobType_t as KnobType
from .enums import cudnnBackendNumericalNote_t as NumericalNote

# The engine that stands for whatever the heuristics choose.
CHOSEN = 0
_MODES_OF_CHOSEN = ("A", "FALLBACK")


@dataclass(frozen=True)
class Config:
    """An engine config of a graph on a target: what heuristics give or a user sets.

    index: of its engine.  config: a `dnnc.choosing.heuristics.EngineConfig`.
    """

    graph: OperationGraph
    target: Target
    index: int
    config: Any

    @property
    def knobs(self) -> dict[KnobType, int]:
        """The knobs of the engine; none where there are several."""
        if len(self.config.choices) != 1:
            return {}
        return {knob_type(name): value for name, value in self.config.knobs.items()}

    @property
    def numerical_notes(self) -> tuple[NumericalNote, ...]:
        """The notes that cuDNN has an enumerator for."""
        known = NumericalNote.__members__
        names = [f"CUDNN_NUMERICAL_NOTE_{note}" for note in self.config.notes]
        return tuple(known[name] for name in names if name in known)

    @property
    def behavior_notes(self) -> tuple[BehaviorNote, ...]:
        """How plans of it behave."""
        from ..choosing.info import behavior_notes

        names = behavior_notes(*(choice.engine for choice in self.config.choices))
        return tuple(BehaviorNote[f"CUDNN_BEHAVIOR_NOTE_{name}"] for name in names)


@dataclass(frozen=True)
class KnobRange:
    """A knob as knob info describes it: every value that it may take lies on this range."""

    type: KnobType
    minimum: int
    maximum: int
    stride: int


def knob_type(name: str) -> KnobType:
    """cuDNN's type of a knob, or dnnc's own."""
    for text in (f"CUDNN_KNOB_TYPE_{name}", f"DNNC_KNOB_TYPE_{name}"):
        if text in KnobType.__members__:
            return KnobType[text]
    raise DnncError(
        Status.INTERNAL_ERROR_UNEXPECTED_VALUE,
        f"knob {name} has no type",
        "DNNC_KNOB_TYPE_* of dnnc.backend.enums for knobs that cuDNN has not",
    )


def knob_name(kind: KnobType) -> str:
    return kind.name.split("KNOB_TYPE_")[1]


def engine_count() -> int:
    """Indices of engines are below it; not each of them is one."""
    from ..choosing import info

    return info.engine_count()


def default_inputs() -> Any:
    """Inputs of the choice of configs: the errata of the package and of the user's file."""
    from ..choosing.inputs import inputs_of
    from ..errata import text_of

    return inputs_of(Options(errata=text_of()))


def default_config(graph: OperationGraph, target: Target, index: int) -> Config:
    """The config of an engine without knobs set; NOT_SUPPORTED kinds where it declines."""
    from ..choosing import heuristics

    if index != CHOSEN:
        return config_with(graph, target, index, {})
    found = heuristics.best_config(graph, target, _MODES_OF_CHOSEN, inputs=default_inputs())
    return Config(graph, target, CHOSEN, found)


def config_with(
    graph: OperationGraph, target: Target, index: int, knobs: Mapping[KnobType, int]
) -> Config:
    """An engine's config with some knobs set, the others as fits them best.

    An engine that declines the graph, a knob that it has not and a value that the knob can't take
    are NOT_SUPPORTED kinds, with the reasons; so is any knob of index 0.
    """
    from ..choosing import heuristics

    if index == CHOSEN:
        what = "knobs of engine 0, the heuristics' choice"
        raise DnncError(Status.NOT_SUPPORTED, what, "knobs of an engine by its own index")
    engine, whole = _engine_of(graph, target, index)
    inputs = default_inputs()
    try:
        named = {knob_name(kind): value for kind, value in knobs.items()}
        choice = heuristics.with_knobs(engine, whole, named, target, inputs)
    except DnncError as error:
        if error.status.category is not Status.BAD_PARAM:
            raise
        raise DnncError(Status.NOT_SUPPORTED, error.what, error.supported, error.where) from error
    return Config(graph, target, index, heuristics.EngineConfig((choice,)))


def _engine_of(graph: OperationGraph, target: Target, index: int) -> tuple[Any, Any]:
    """(the engine, the graph as one fusion), which it takes."""
    from ..choosing.declined import reasons_against
    from ..dialect.fusion import partition
    from ..engines import all_engines

    every = sorted(all_engines(), key=lambda engine: engine.index)
    engine = next((engine for engine in every if engine.index == index), None)
    if engine is None:
        known = ", ".join(f"{e.index} ({e.name})" for e in every)
        what = f"engine {index}"
        raise DnncError(Status.NOT_SUPPORTED, what, f"0 (the heuristics' choice), {known}")
    (whole,) = partition(graph, [graph.live_ops])
    reasons = reasons_against(engine, whole, target)
    if reasons:
        raise DnncError(
            reasons[0].status,
            f"engine {index} ({engine.name}): {'; '.join(map(str, reasons))}",
            "a graph of its support surface",
        )
    return engine, whole


def knob_ranges(graph: OperationGraph, target: Target, index: int) -> Sequence[KnobRange]:
    """The knobs of an engine; none of the heuristics' choice."""
    if index == CHOSEN:
        return ()
    engine, whole = _engine_of(graph, target, index)
    return tuple(_range(knob.name, knob.values) for knob in engine.knobs(whole, target))


def _range(name: str, values: Sequence[int]) -> KnobRange:
    low, high = min(values), max(values)
    stride = math.gcd(*(value - low for value in values)) or 1
    return KnobRange(knob_type(name), low, high, stride)


def ranked(graph: OperationGraph, target: Target, mode: str) -> Sequence[Config]:
    """The configs of a heuristic mode, best first; none is a NOT_SUPPORTED kind with reasons."""
    from ..choosing import heuristics
    from ..choosing.nearest import no_config_error

    mode = mode if mode in heuristics.MODES else "A"  # INSTANT, where there is no such mode
    found = tuple(heuristics.configs(graph, target, (mode,), default_inputs()))
    if not found:
        raise no_config_error(graph, target, default_inputs())
    return tuple(
        Config(graph, target, c.choices[0].engine.index if len(c.choices) == 1 else CHOSEN, c)
        for c in found
    )


def others(graph: OperationGraph, target: Target, inputs: Any) -> Iterable[Any]:
    """The configs that stand for the heuristics' choice, best first, by other inputs."""
    from ..choosing import heuristics

    return heuristics.configs(graph, target, _MODES_OF_CHOSEN, inputs)
