"""Ranks the ways to run a graph: partitions into fusions, and an engine with knobs for each.

Mode A ranks the engines that take the graph as one fusion, and splits it into several where none
does; B does too, with more knobs (`mode_b`); FALLBACK ranks a split behind the engines that take it
whole; INSTANT gives one config, the first that is found.  What was timed for the graph (`record`)
comes before all of them, and what errata bar does not come at all.  Everything here is arithmetic
on the graph, without a compiler or a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache

from .. import log
from ..dialect import prior
from ..dialect.fusion import Fusion, partition
from ..dialect.graph import OperationGraph
from ..dialect.op import Op
from ..dialect.tensor import Tensor
from ..engines import all_engines, engine_named
from ..engines.engine import Engine
from ..engines.surface import memory_seconds
from ..errors import DnncError, Status
from ..options import DEFAULT_MODES, Options
from ..record import Entry, of_structure, typical_entry
from ..target import Target
from . import mode_b
from .choice import Choice, choices, choices_of_each, refusals
from .declined import reasons_against
from .explicit import parsed_choice, with_knobs
from .info import behavior_notes
from .inputs import Inputs, inputs_of
from .nearest import declined_text, every_reason, no_config_error, subject
from .splitting import grown_groups
from .splitting_by_axes import groups_by_axes

MODES = ("INSTANT", "A", "B", "FALLBACK")
_log = log.logger(__name__)

WORTH_A_LOOK = 10e-6  # seconds: launches differ by as much from call to call
_MUCH_FASTER = 0.8  # of the seconds of what is there already


@lru_cache(maxsize=4096)
def _name(engine: int, knobs: tuple[tuple[str, int], ...]) -> str:
    return "_".join([f"eng{engine}", *(f"{name}={value}" for name, value in sorted(knobs))])


@dataclass(frozen=True)
class EngineConfig:
    """A way to run a graph: a choice for each fusion of a partition, in order.

    split_reason: why it is more than one fusion, "" if it is one.
    measured: where it was timed, if it comes from a tuning record.
    """

    choices: tuple[Choice, ...]
    split_reason: str = ""
    measured: Entry | None = None

    @property
    def seconds(self) -> float:
        return sum(choice.prediction.seconds for choice in self.choices)

    @cached_property
    def name(self) -> str:
        """eng3_TILE_M=128_TILE_N=128; parts of a split are joined by +."""
        return "+".join(_name(c.engine.index, tuple(c.knobs.items())) for c in self.choices)

    @property
    def rounds_operands(self) -> bool:
        """Whether a choice gives operands fewer bits than the graph says."""
        return any(choice.rounds_operands for choice in self.choices)

    @property
    def notes(self) -> tuple[str, ...]:
        """The numerical notes of all choices."""
        return tuple(dict.fromkeys(note for choice in self.choices for note in choice.notes))

    @property
    def behavior_notes(self) -> tuple[str, ...]:
        """How plans of it behave (cuDNN's names)."""
        return behavior_notes(*(choice.engine for choice in self.choices))

    def fits_smem(self, most_bytes: int, target: Target) -> bool:
        """Whether blocks get by with so many bytes of shared memory, as far as knobs tell."""
        most = min(most_bytes, target.limits.smem_block_bytes)
        limited = replace(target, limits=replace(target.limits, smem_block_bytes=most))
        return not any(c.engine.legal(c.knobs, c.fusion, limited) for c in self.choices)

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
        groups = (
            " ".join(str(place[op]) for op in choice.fusion.in_graph.ops) for choice in self.choices
        )
        return "|".join(groups)

    @property
    def choice_text(self) -> str:
        """The choices as the option of pass `select-engine`: engine:KNOB=value:..., by |."""
        return "|".join(choice.text for choice in self.choices)

    def options(self, graph: OperationGraph, guards: tuple[tuple[str, str], ...] = ()) -> Options:
        """The config, or those that guards name beside it, as options of a compilation."""
        return Options(
            partition=self.partition_text(graph), choices=self.choice_text, guards=guards
        )


def parsed_partition(text: str, graph: OperationGraph) -> list[list[Op]]:
    """The groups of a partition's text; one that is no partition is an error."""
    ops = graph.live_ops
    places = {str(place): op for place, op in enumerate(ops)}
    try:
        groups = [[places[place] for place in group.split()] for group in text.split("|")]
    except KeyError as error:
        raise DnncError(
            Status.BAD_PARAM, f"partition {text!r}", f"places 0 to {len(ops) - 1}, as 0 1|2"
        ) from error
    flat = [op for group in groups for op in group]
    twice = {op for op in flat if flat.count(op) > 1}
    if set(flat) != set(ops) or not all(len(set(group)) == len(group) > 0 for group in groups):
        raise DnncError(Status.BAD_PARAM, f"partition {text!r}", "every operation in a fusion")
    if any(op.role not in ("pointwise", "view") for op in twice):
        supported = "operations other than pointwise and view ones in one fusion only"
        raise DnncError(Status.BAD_PARAM, f"partition {text!r}", supported)
    prior.verify_partition(graph, twice)
    made: set[Tensor] = set()
    produced = {tensor for op in ops for tensor in op.results}
    for group in groups:
        inside = {t for op in group for t in op.results}
        for op in group:
            if any(t in produced and t not in made and t not in inside for t in op.operands):
                raise DnncError(
                    Status.BAD_PARAM, f"partition {text!r}", "fusions after those they need"
                )
        made |= inside
    return groups


def configs(
    graph: OperationGraph,
    target: Target,
    modes: Sequence[str] = DEFAULT_MODES,
    inputs: Inputs | None = None,
) -> Iterator[EngineConfig]:
    """The engine configs of a finalized graph, each once: first one that was timed, if the tuning
    record has one, then in mode order."""
    for mode in modes:
        if mode not in MODES:
            raise DnncError(Status.BAD_PARAM, f"heuristic mode {mode!r}", ", ".join(MODES))
    return _configs(graph, target, modes, inputs or inputs_of())


def _configs(
    graph: OperationGraph, target: Target, modes: Sequence[str], inputs: Inputs
) -> Iterator[EngineConfig]:
    seen: set[str] = set()
    tuned = tuned_config(graph, target, inputs)
    if tuned is not None:
        seen.add(tuned.name)
        yield tuned
    split = cache(lambda: _best_split(graph, target, inputs))
    for mode in modes:
        for config in _configs_of_mode(graph, target, mode, inputs, split):
            if config.name not in seen:
                seen.add(config.name)
                yield config


def _configs_of_mode(
    graph: OperationGraph,
    target: Target,
    mode: str,
    inputs: Inputs,
    best_split: Callable[[], EngineConfig | None],
) -> Iterator[EngineConfig]:
    """The configs of one mode.  best_split: gives the split, which all modes share."""
    if mode == "INSTANT":
        yield from _instant(graph, target, inputs)
        return
    (whole,) = partition(graph, [graph.live_ops])
    found = choices(whole, target, inputs=inputs)
    if found and found[0].rounds_operands and len(graph.live_ops) > 1:
        if exact := _exact_split(graph, target, all_engines(), inputs):
            yield exact
    elif found and mode != "FALLBACK":
        if faster := _faster_split(graph, target, found[0], inputs):
            yield faster
    if mode == "B":
        found = mode_b.with_neighbours(found, target, inputs.errata)
    for choice in found:
        yield EngineConfig((choice,))
    if (mode == "FALLBACK" or not found) and len(graph.live_ops) > 1:
        split = best_split()
        if split is not None:
            yield split


def _instant(graph: OperationGraph, target: Target, inputs: Inputs) -> Iterator[EngineConfig]:
    """The best candidate of the first engine that takes the graph whole; a split if none does."""
    (whole,) = partition(graph, [graph.live_ops])
    for engine in all_engines():
        found = choices(whole, target, [engine], inputs)
        if found and not found[0].rounds_operands:
            yield EngineConfig((found[0],))
            return
    split = split_config(graph, target, inputs=inputs) if len(graph.live_ops) > 1 else None
    if split is not None:
        yield split


def tuned_config(
    graph: OperationGraph, target: Target, inputs: Inputs, entry: Entry | None = None
) -> EngineConfig | None:
    """The config of the tuning record, of one entry or of that for the most typical sizes.

    One that is not legal any more, or that errata bar, is None, and the log says why.
    """
    entry = entry or _entry(graph, target, inputs)
    if entry is None:
        return None
    try:
        groups = parsed_partition(of_structure(entry.partition, graph), graph)
        fusions, texts = partition(graph, groups), entry.choices.split("|")
        if len(fusions) != len(texts):
            raise DnncError(Status.BAD_PARAM, f"choices {entry.choices}", f"{len(fusions)}")
        made = tuple(
            parsed_choice(text, fusion, target, inputs)
            for fusion, text in zip(fusions, texts, strict=True)
        )
    except DnncError as error:
        _log.warning("graph '%s': its tuning entry is ignored: %s", graph.name, error)
        return None
    reason = split_reason(graph, target) if len(made) > 1 else ""
    where = (graph.name, 1e6 * entry.seconds, entry.device)
    _log.info("graph '%s': a config of the tuning record, %.1f us on %s", *where)
    return EngineConfig(made, reason, entry)


def _entry(graph: OperationGraph, target: Target, inputs: Inputs) -> Entry | None:
    if not inputs.record.entries:
        return None
    return typical_entry(graph, inputs.record.entries_for(graph, target, inputs.device))


def _faster_split(
    graph: OperationGraph, target: Target, whole: Choice, inputs: Inputs | None = None
) -> EngineConfig | None:
    """The graph as several kernels, where what takes it whole is far from the memory's rate and
    these are predicted to be faster: without the engine that takes it whole, or with views of a
    convolution's operands stored ahead of it."""
    if not _is_slow(whole, target):
        return None
    engines = _all_but(whole.engine)
    if whole.fusion.with_role("anchor"):  # others that take it whole are slower still
        engines = [engine for engine in engines if reasons_against(engine, whole.fusion, target)]
    found = [_best_split(graph, target, inputs, engines)]
    if _gathers_views(whole):
        found.append(_split_of_stored_views(graph, target, all_engines(), inputs))
    split = min(filter(None, found), key=lambda config: config.seconds, default=None)
    if split is None or split.seconds > _MUCH_FASTER * whole.prediction.seconds:
        return None
    return split


def _is_slow(choice: Choice, target: Target) -> bool:
    """Whether sums are far from the memory's rate, or products run element by element, or by an
    engine that is slow at them."""
    fusion = choice.fusion
    if fusion.with_role("anchor"):
        is_worth_it = choice.prediction.seconds >= WORTH_A_LOOK
        return is_worth_it and (
            choice.engine.inlines_anchors
            or _gathers_views(choice)
            or _may_be_faster_alone(choice, target)
        )
    if not fusion.with_role("reduction"):
        return False
    floor = memory_seconds(fusion, target, blocks=1 << 20).seconds
    return choice.prediction.seconds >= 3 * floor + WORTH_A_LOOK


def _gathers_views(choice: Choice) -> bool:
    """Whether elements of a convolution's operands come one by one, through views of tensors."""
    return choice.engine.gathers_views and _has_views_ahead(choice.fusion)


def _has_views_ahead(fusion: Fusion) -> bool:
    return any(
        op.role == "view"
        for anchor in fusion.with_role("anchor")
        for tensor in anchor.operands
        for op in fusion.upstream(tensor)
    )


def _split_of_stored_views(
    graph: OperationGraph, target: Target, engines: Sequence[Engine], inputs: Inputs | None
) -> EngineConfig | None:
    """A config as `split_config` grows it, with no view ahead of heavy work in one fusion."""

    def is_taken(engine: Engine, fusion: Fusion) -> bool:
        return not _has_views_ahead(fusion) and bool(choices(fusion, target, [engine], inputs))

    return _grown_config(graph, target, engines, inputs, is_taken)


def _may_be_faster_alone(choice: Choice, target: Target) -> bool:
    """Whether another engine may be much faster at the product alone: one for the target's own
    instructions, or one for few channels a group.  True of several products, untried."""
    anchors = choice.fusion.with_role("anchor")
    if not choice.engine.is_weighed_against_parts(choice.fusion, target):
        return False
    if len(anchors) != 1:
        return True
    found = choices(Fusion(0, anchors, anchors[0].results), target)
    return bool(found) and (
        found[0].engine is not choice.engine
        and found[0].prediction.seconds < _MUCH_FASTER * choice.prediction.seconds
    )


def _all_but(engine: Engine) -> list[Engine]:
    return [other for other in all_engines() if other is not engine]


def _best_split(
    graph: OperationGraph,
    target: Target,
    inputs: Inputs | None,
    engines: Sequence[Engine] | None = None,
) -> EngineConfig | None:
    """The graph as fusions as large as they grow; without an engine that takes one of them, and
    far from the memory's rate, where that is predicted to be faster."""
    engines = all_engines() if engines is None else engines
    split = split_config(graph, target, engines, inputs)
    if split is None:
        return None
    by_axes = _split_by_axes(graph, target, engines, inputs)
    if by_axes is not None and by_axes.seconds < split.seconds:
        return by_axes
    found = _splits_without_slow(graph, target, inputs, engines, split)
    if any(map(_gathers_views, _slow(split, target))):
        stored = _split_of_stored_views(graph, target, engines, inputs)
        found += [stored] if stored else []
    for other in found:
        if other.seconds < _MUCH_FASTER * split.seconds:
            split = other
    return split


def _splits_without_slow(
    graph: OperationGraph,
    target: Target,
    inputs: Inputs | None,
    engines: Sequence[Engine],
    split: EngineConfig,
    tries: int = 2,
) -> list[EngineConfig]:
    """Without an engine that is slow in a split, and, of what that gives, without one that is slow
    there, and so on, `tries` times: a fusion that one engine gives up another may take, as slow."""
    found: list[EngineConfig] = []
    for engine in dict.fromkeys(choice.engine for choice in _slow(split, target)):
        others = [other for other in engines if other is not engine]
        other = split_config(graph, target, others, inputs)
        if other is None:
            continue
        found.append(other)
        if tries > 1:
            found += _splits_without_slow(graph, target, inputs, others, other, tries - 1)
    return found


def _slow(split: EngineConfig, target: Target) -> list[Choice]:
    return [choice for choice in split.choices if _is_slow(choice, target)]


def _split_by_axes(
    graph: OperationGraph, target: Target, engines: Sequence[Engine], inputs: Inputs | None
) -> EngineConfig | None:
    """The reductions over the same axes as one fusion, where an engine takes each of those."""
    groups = groups_by_axes(graph)
    if groups is None:
        return None
    found = [choices(fusion, target, engines, inputs) for fusion in partition(graph, groups)]
    if not all(found):
        return None
    return EngineConfig(tuple(ranked[0] for ranked in found), split_reason(graph, target))


def split_config(
    graph: OperationGraph,
    target: Target,
    engines: Sequence[Engine] | None = None,
    inputs: Inputs | None = None,
) -> EngineConfig | None:
    """The graph as several fusions, each as large as an engine takes; None if one op has none.

    Fusions that round operands to fewer bits than the graph says are taken if nothing else is.
    """
    engines = all_engines() if engines is None else engines
    found = _grown_config(graph, target, engines, inputs)
    if found is None:
        (whole,) = partition(graph, [graph.live_ops])
        ranked = choices(whole, target, engines, inputs)
        rounds = bool(ranked) and ranked[0].rounds_operands
    else:
        rounds = found.rounds_operands
    return (_exact_split(graph, target, engines, inputs) or found) if rounds else found


def _exact_split(
    graph: OperationGraph, target: Target, engines: Sequence[Engine], inputs: Inputs | None
) -> EngineConfig | None:
    """The split in which nothing is rounded."""

    def is_exact(engine: Engine, fusion: Fusion) -> bool:
        return any(not c.rounds_operands for c in choices(fusion, target, [engine], inputs))

    found = _grown_config(graph, target, engines, inputs, is_exact)
    return None if found is None or found.rounds_operands else found


def _grown_config(
    graph: OperationGraph,
    target: Target,
    engines: Sequence[Engine],
    inputs: Inputs | None,
    *wanted: Callable[[Engine, Fusion], bool],
) -> EngineConfig | None:
    """wanted: of an engine and a fusion that its support surface has.

    A fusion that an engine takes may have no choice left: what is tried first does not look.
    """

    def has_choice(engine: Engine, fusion: Fusion) -> bool:
        return bool(choices(fusion, target, [engine], inputs))

    for asked in (wanted,) if wanted else ((), (has_choice,)):
        groups = grown_groups(graph, target, engines, *asked)
        if groups is None:
            return None
        found = choices_of_each(partition(graph, groups), target, engines, inputs)
        if all(found):
            made = tuple(ranked[0] for ranked in found)
            return EngineConfig(made, split_reason(graph, target)) if len(made) > 1 else None
        (whole,) = partition(graph, [graph.live_ops])
        if choices(whole, target, engines, inputs):
            return None
    return None


def split_reason(graph: OperationGraph, target: Target) -> str:
    """Why a graph is not run as one fusion: a sentence, and where no engine takes it, a line more
    for each clause that each engine declines, nearest engine first."""
    (whole,) = partition(graph, [graph.live_ops])
    declined = refusals(whole, target)
    if len(declined) < len(all_engines()):
        return (
            "asked for, predicted to be faster than one fusion, or one fusion spills registers or "
            "rounds operands to fewer bits"
        )
    said, reason = declined_text(declined)
    sentence = f"no engine takes the graph as one fusion: {said}; accepted: {reason.supported}"
    return "\n".join([sentence, *every_reason(declined)])


def best_config(
    graph: OperationGraph,
    target: Target,
    modes: Sequence[str] = DEFAULT_MODES,
    *,
    engine: str | None = None,
    knobs: Mapping[str, int] | None = None,
    inputs: Inputs | None = None,
) -> EngineConfig:
    """The first config, of an engine and with knobs where they are given.

    No config is a NOT_SUPPORTED error with the nearest engine's reason; its `details` have those
    of every engine.
    """
    if engine is not None or knobs:
        return _explicit_config(graph, target, modes, engine, knobs or {}, inputs)
    found = next(configs(graph, target, modes, inputs), None)
    if found is None:
        raise no_config_error(graph, target, inputs)
    return found


def _explicit_config(
    graph: OperationGraph,
    target: Target,
    modes: Sequence[str],
    name: str | None,
    knobs: Mapping[str, int],
    inputs: Inputs | None,
) -> EngineConfig:
    if name is None:
        ranked = configs(graph, target, modes, inputs)
        config = next((c for c in ranked if len(c.choices) == 1), None)
        config = config or best_config(graph, target, modes, inputs=inputs)
        if len(config.choices) != 1:
            raise DnncError(
                Status.BAD_PARAM,
                f"knobs {dict(knobs)} for a graph of {len(config.choices)} fusions",
                "knobs of a graph that is one fusion",
            )
        name = config.choices[0].engine.name
    chosen = engine_named(name)
    (whole,) = partition(graph, [graph.live_ops])
    reasons = reasons_against(chosen, whole, target)
    if reasons:
        raise DnncError(
            reasons[0].status,
            f"engine {name}: {'; '.join(map(str, reasons))}",
            "",
            f"graph '{graph.name}'",
            made_at=subject(reasons[0], whole).made_at,
        )
    return EngineConfig((with_knobs(chosen, whole, knobs, target, inputs),))
