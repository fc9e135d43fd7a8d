"""Describes an engine's view of a fusion: notes, knobs, layouts, reasons.

The CLI, pygraph and the descriptor API read engines through this one record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..dialect.fusion import Fusion
from ..dialect.tensor import Tensor
from ..engines import all_engines
from ..engines.engine import Engine, Knob, Reason
from ..errors import DnncError, Status
from ..target import Target
from .choice import Choice, choices
from .declined import reasons_without_choice
from .inputs import Inputs


@dataclass(frozen=True)
class KnobInfo:
    """A knob of an engine for a fusion.

    values: those that it may take, ascending; max, min and stride (their greatest common step, 0
    for one value) describe them as cuDNN does, which may take in more.
    default: of the best candidate by prediction.  doc: what it is.
    """

    name: str
    values: tuple[int, ...]
    default: int
    doc: str

    @property
    def min_value(self) -> int:
        return self.values[0]

    @property
    def max_value(self) -> int:
        return self.values[-1]

    @property
    def stride(self) -> int:
        return math.gcd(*(value - self.values[0] for value in self.values))


@dataclass(frozen=True)
class LayoutInfo:
    """The layouts that an engine loads and stores a tensor in at full width.

    uid: of the tensor.  types: cuDNN's names of layout types.
    """

    uid: int
    types: tuple[str, ...]


@dataclass(frozen=True)
class EngineInfo:
    """An engine and a fusion.

    name, index: the index is global and never changes.  reasons: why it declines the fusion, or
    has no configuration of it; without any it takes it, and then has what follows.
    numerical_notes: cuDNN's names, of the default knobs.  possible_notes: of any values of single
    knobs.  behavior_notes: cuDNN's names.  knobs: in the engine's order.
    layouts: of the fusion's tensors of rank 4 and 5.  support: lines on what it takes.
    """

    name: str
    index: int
    reasons: tuple[Reason, ...]
    numerical_notes: tuple[str, ...]
    possible_notes: tuple[str, ...]
    behavior_notes: tuple[str, ...]
    knobs: tuple[KnobInfo, ...]
    layouts: tuple[LayoutInfo, ...]
    support: tuple[str, ...]

    def knob(self, name: str) -> KnobInfo | None:
        return next((knob for knob in self.knobs if knob.name == name), None)


def engine_count() -> int:
    """One more than the largest index: engines are asked for by 0 to count - 1, not all of which
    have one."""
    return 1 + max(engine.index for engine in all_engines())


def engine_at(index: int) -> Engine:
    """The engine with a global index; NOT_SUPPORTED where there is none, BAD_PARAM past them."""
    found = next((engine for engine in all_engines() if engine.index == index), None)
    if found is None:
        is_within = 0 <= index < engine_count()
        status = Status.NOT_SUPPORTED if is_within else Status.BAD_PARAM
        known = ", ".join(f"{engine.index} ({engine.name})" for engine in all_engines())
        raise DnncError(status, f"no engine has index {index}", known, "engine")
    return found


def behavior_notes(*engines: Engine) -> tuple[str, ...]:
    """cuDNN's names of how plans behave that run these engines: what all of them do."""
    first, *others = engines
    return tuple(n for n in first.behavior_notes if all(n in e.behavior_notes for e in others))


def info(
    engine: Engine, fusion: Fusion, target: Target, inputs: Inputs | None = None
) -> EngineInfo:
    """An engine's view of a fusion on a target.

    inputs: errata (default: the package's), without whose barred configs the default is chosen.
    """
    reasons = reasons_without_choice(engine, fusion, target)
    found = [] if reasons else choices(fusion, target, [engine], inputs)
    default = found[0] if found else None
    return EngineInfo(
        name=engine.name,
        index=engine.index,
        reasons=reasons,
        numerical_notes=default.notes if default else (),
        possible_notes=_possible_notes(default, target) if default else (),
        behavior_notes=behavior_notes(engine),
        knobs=_knobs(default, target) if default else (),
        layouts=() if reasons else _layouts(engine, fusion),
        support=engine.support,
    )


def _knobs(default: Choice, target: Target) -> tuple[KnobInfo, ...]:
    known = default.engine.knobs(default.fusion, target)
    return tuple(
        KnobInfo(knob.name, tuple(sorted(knob.values)), default.knobs[knob.name], knob.doc)
        for knob in known
    )


def _possible_notes(default: Choice, target: Target) -> tuple[str, ...]:
    """The notes of the default, and of those that differ from it in one knob."""

    def notes(knob: Knob, value: int) -> tuple[str, ...]:
        return default.engine.notes(default.fusion, {**default.knobs, knob.name: value})

    known = default.engine.knobs(default.fusion, target)
    more = (note for knob in known for value in knob.values for note in notes(knob, value))
    return tuple(dict.fromkeys([*default.notes, *more]))


def _layouts(engine: Engine, fusion: Fusion) -> tuple[LayoutInfo, ...]:
    whole = fusion.in_graph
    tensors = (t for t in (*whole.inputs, *whole.outputs) if _is_image(t))
    tensors = dict.fromkeys(tensor.memory_uid for tensor in tensors)
    return tuple(LayoutInfo(uid, engine.image_layouts) for uid in tensors)


def _is_image(tensor: Tensor) -> bool:
    return tensor.rank in (4, 5) and not tensor.is_by_value
