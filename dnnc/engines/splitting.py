"""Splits a graph into fusions: how far each grows, and what is computed again instead of stored.

What one fusion makes and another reads is stored in between.  Pointwise work on tensors that are
in memory anyway costs less than that: each fusion that needs it does it again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from ..dialect.fusion import Fusion, partition
from ..dialect.graph import OperationGraph
from ..dialect.op import Op
from ..dialect.ops import Pointwise
from ..dialect.tensor import Tensor
from ..target import Target
from .attention_groups import attention_groups, in_order
from .declined import reasons_against
from .engine import Engine
from .surface import bytes_of

Groups = list[list[Op]]


Takes = Callable[[Fusion], bool]  # whether an engine takes a fusion


def grown_groups(
    graph: OperationGraph,
    target: Target,
    engines: Sequence[Engine],
    has_choice: Callable[[Engine, Fusion], bool] = lambda engine, fusion: True,
) -> Groups | None:
    """Groups in order: each operation joins the last group that it needs, if an engine agrees.
    Attentions are groups to begin with.

    has_choice: asked of an engine and a fusion that its support surface has.
    None: there is an operation that no engine takes.
    """

    def takes(fusion: Fusion) -> bool:
        return any(
            not reasons_against(engine, fusion, target) and has_choice(engine, fusion)
            for engine in engines
        )

    def is_whole(group: Sequence[Op]) -> bool:
        rest = [[op] for op in graph.live_ops if op not in group]
        fusion = partition(graph, [group, *rest])[0]
        return any(
            not engine.inlines_anchors
            and not reasons_against(engine, fusion, target)
            and has_choice(engine, fusion)
            for engine in engines
        )

    units = in_order(graph, attention_groups(graph, is_whole))
    groups: Groups = []
    producers = _producers(graph)
    for unit in units:
        needed = [
            i
            for i, group in enumerate(groups)
            if any(producers.get(tensor) in group for op in unit for tensor in op.operands)
        ]
        place = max(needed, default=-1)
        joined = [*groups[:place], [*groups[place], *unit], *groups[place + 1 :]] if groups else []
        alone = [*groups[: place + 1], unit, *groups[place + 1 :]]
        if len(unit) > 1:
            groups.insert(place + 1, unit)
        elif place >= 0 and _is_taken(graph, joined, place, takes):
            groups[place] += unit
        elif (beside := _sibling(graph, groups, place, unit[0], takes)) is not None:
            groups[beside] += unit
        elif _is_taken(graph, alone, place + 1, takes):
            groups.insert(place + 1, unit)
        else:
            return None
    changed = _recomputed(graph, groups, takes)
    is_taken = (_is_taken(graph, changed, i, takes) for i in range(len(changed)))
    return _merged(graph, changed if all(is_taken) else groups, takes)


def _sibling(graph: OperationGraph, groups: Groups, place: int, op: Op, takes: Takes) -> int | None:
    """Where pointwise work on what a group of one anchor gives can be done beside other such work
    of the same dims."""
    is_simple = place >= 0 and op.role == "pointwise"
    if not is_simple or [other.role for other in groups[place]] != ["anchor"]:
        return None
    for i in range(place + 1, len(groups)):
        shapes = {result.shape for other in groups[i] for result in other.results}
        is_alike = all(other.role == "pointwise" for other in groups[i])
        if is_alike and shapes == {op.results[0].shape}:
            joined = [*groups[:i], [*groups[i], op], *groups[i + 1 :]]
            if _is_taken(graph, joined, i, takes):
                return i
    return None


def _merged(graph: OperationGraph, groups: Groups, takes: Takes) -> Groups:
    """The groups, those together that reduce the same tensor: it is read once."""
    while (pair := _reduce_the_same(graph, groups, takes)) is not None:
        first, second = pair
        own = {*groups[first], *groups[second]}
        groups = [group for i, group in enumerate(groups) if i != second]
        groups[first] = [op for op in graph.live_ops if op in own]
    return groups


def _reduce_the_same(graph: OperationGraph, groups: Groups, takes: Takes) -> tuple[int, int] | None:
    """The places of two groups of sums, of which the second needs nothing made since the first,
    that an engine takes as one."""
    sums = [i for i, group in enumerate(groups) if _is_of_sums(group)]
    for first, second in itertools.combinations(sums, 2):
        since = {t for group in groups[first:second] for op in group for t in op.results}
        read = set(_read(groups[second]))
        shared = {t for t in read.intersection(_read(groups[first])) if not t.is_by_value}
        if not since.isdisjoint(read) or not _is_reduced(shared, groups[second]):
            continue
        joined = [group for i, group in enumerate(groups) if i != second]
        joined[first] = [*groups[first], *groups[second]]
        if _is_taken(graph, joined, first, takes):
            return first, second
    return None


def _is_of_sums(group: Sequence[Op]) -> bool:
    roles = {op.role for op in group}
    return "reduction" in roles and roles <= {"reduction", "pointwise", "view"}


def _is_reduced(tensors: set[Tensor], group: Sequence[Op]) -> bool:
    """Whether one of the tensors has the dims of what a group reduces."""
    reduced = {op.operands[0].shape for op in group if op.role == "reduction"}
    return any(tensor.shape in reduced for tensor in tensors)


def _producers(graph: OperationGraph) -> dict[Tensor, Op]:
    return {tensor: op for op in graph.live_ops for tensor in op.results}


def _is_taken(graph: OperationGraph, groups: Groups, place: int, takes: Takes) -> bool:
    """Whether an engine takes one of the groups, given what the rest of the graph reads."""
    placed = {op for group in groups for op in group}
    rest = [[op] for op in graph.live_ops if op not in placed]
    fusion = partition(graph, [*groups, *rest])[place]
    return takes(fusion)


def _recomputed(graph: OperationGraph, groups: Groups, takes: Takes) -> Groups:
    """The groups, each with the work of others that it had better do itself.

    What a group takes over may read what was stored for the group that had it: once more, then.
    """
    while (changed := _recomputed_once(graph, groups, takes)) != groups:
        groups = changed
    return groups


def _recomputed_once(graph: OperationGraph, groups: Groups, takes: Takes) -> Groups:
    producers = _producers(graph)
    stored = {t for group in groups for t in _passed_on(group, groups)}
    for place in range(len(groups)):
        for tensor in _read(groups[place]):
            if tensor not in stored or tensor not in producers or not tensor.is_virtual:
                continue
            if _is_tested(tensor, groups[place], producers):
                continue
            chain = _chain(tensor, producers, stored - {tensor})
            if chain is None or not _is_cheaper(chain, tensor, groups[place]):
                continue
            own = {*groups[place], *chain}
            changed = [*groups[:place], [op for op in graph.live_ops if op in own]]
            changed += groups[place + 1 :]
            if _is_taken(graph, changed, place, takes):
                groups = changed
    return _needed(graph, groups)


def _is_tested(tensor: Tensor, group: Sequence[Op], producers: Mapping[Tensor, Op]) -> bool:
    """Whether a group looks where a tensor equals what another group made, maybe of this tensor:
    an index does so with its maximum.

    Computed again it may differ in its last bit: what is approximate depends on a fusion's outputs.
    """
    others = {t for t in _read(group) if t in producers and t is not tensor}
    return any(
        isinstance(op, Pointwise)
        and op.mode in ("cmp_eq", "cmp_neq")
        and tensor in op.operands
        and not others.isdisjoint(op.operands)
        for op in group
    )


def _needed(graph: OperationGraph, groups: Groups) -> Groups:
    """The groups without what nobody reads any more."""
    while True:
        kept: Groups = []
        for fusion in partition(graph, groups):
            own = {op for tensor in fusion.outputs for op in fusion.upstream(tensor)}
            kept.append([op for op in fusion.ops if op in own])
        kept = [group for group in kept if group]
        if kept == groups:
            return groups
        groups = kept


def _read(group: Sequence[Op]) -> list[Tensor]:
    made = {tensor for op in group for tensor in op.results}
    return [t for t in dict.fromkeys(t for op in group for t in op.operands) if t not in made]


def _passed_on(group: Sequence[Op], groups: Groups) -> set[Tensor]:
    """What other groups read of a group's results."""
    made = {tensor for op in group for tensor in op.results}
    return made & {t for other in groups if other is not group for t in _read(other)}


def _chain(tensor: Tensor, producers: dict[Tensor, Op], stored: set[Tensor]) -> list[Op] | None:
    """The operations from what is in memory to a tensor; None if there are others than pointwise
    and view ones."""
    found: list[Op] = []
    pending = [tensor]
    while pending:
        op = producers.get(pending.pop())
        if op is None or op in found:
            continue
        if op.role not in ("pointwise", "view"):
            return None
        found.append(op)
        pending += [t for t in op.operands if t not in stored and t.is_virtual]
    return found


def _is_cheaper(chain: Sequence[Op], tensor: Tensor, group: Sequence[Op]) -> bool:
    """Whether reading what a chain reads takes no more than storing and reading its result."""
    known = set(_read(group))
    more = [t for t in _read(chain) if t not in known and not t.is_constant]
    return bytes_of(more) <= 2 * bytes_of([tensor])
