"""Splits a graph into fusions: how far each grows, and what is computed again instead of stored.

What one fusion makes and another reads is stored in between.  Pointwise work on tensors that are
in memory anyway costs less than that: each fusion that needs it does it again.

The time of a search grows with the operations, not with their square: an engine is asked of one
group at a time, of equal ones once, and a long row of operations joins a group in strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..dialect.fusion import Fusion, partition
from ..dialect.fusion_key import FusionKey, key_of
from ..dialect.graph import OperationGraph
from ..dialect.op import Op
from ..dialect.ops import ConvWgrad, Pointwise
from ..dialect.ops.views import View
from ..dialect.tensor import Tensor
from ..engines.engine import Engine
from ..engines.surface import bytes_of
from ..expr import Expr
from ..target import Target
from .attention_groups import attention_groups, depth_first, in_order
from .declined import MOST_OPS, size_reasons, takes
from .groups import GraphIndex, Groups, Overlapping, made_by, read_by

Takes = Callable[[Fusion], bool]  # whether an engine takes a fusion

_ONE_BY_ONE = 32  # operations of a group, from which on several join it at once
_MOST_RECOMPUTED = MOST_OPS // 2  # operations of a group that computes again what others store


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
    known: dict[tuple[str, FusionKey], bool] = {}

    def is_taken(engine: Engine, fusion: Fusion) -> bool:
        key = (engine.name, key_of(fusion))
        if key not in known:
            known[key] = takes(engine, fusion, target) and has_choice(engine, fusion)
        return known[key]

    def is_whole(group: Sequence[Op]) -> bool:
        fusion = index.alone(group)
        return any(not e.inlines_anchors and is_taken(e, fusion) for e in engines)

    def any_takes(fusion: Fusion) -> bool:
        # Counting is less work than a key of the fusion.
        return not size_reasons(fusion) and any(is_taken(engine, fusion) for engine in engines)

    index = GraphIndex(graph)
    units = in_order(graph, attention_groups(graph, is_whole))
    if len(index.ops) > MOST_OPS:
        units = depth_first(index, units)
    groups = _Growth(index, any_takes).of(units)
    if groups is None:
        return None
    changed = _recomputed(index, groups, any_takes)
    is_all_taken = all(map(any_takes, partition(graph, changed)))
    return _merged(index, changed if is_all_taken else groups, any_takes)


class _Growth:
    """groups: in order, disjoint, so far.  place: of the group of an operation."""

    def __init__(self, index: GraphIndex, takes: Takes):
        self.index, self.takes = index, takes
        self.groups: Groups = []
        self.group_of: dict[Op, list[Op]] = {}
        self._places: dict[int, int] = {}  # id of a group -> its place
        self._full: set[int] = set()  # ids of groups that had no room for an operation
        # Id of a group of pointwise work of equal dims -> those dims.
        self._dims: dict[int, tuple[Expr, ...]] = {}

    def of(self, units: Sequence[Sequence[Op]]) -> Groups | None:
        """None: there is a unit that no engine takes."""
        at = 0
        while at < len(units):
            count = self._placed(units, at)
            if not count:
                return None
            at += count
        return self.groups

    def _placed(self, units: Sequence[Sequence[Op]], at: int) -> int:
        """How many units, from one on, found a place in a group; 0: none takes the first."""
        unit = list(units[at])
        place = self._last_needed(unit)
        if len(unit) > 1:
            self._insert(place + 1, unit)
            return 1
        if place >= 0 and not self._is_full(place) and (count := self._joining(units, at, place)):
            return count
        if (beside := self._sibling(place, unit[0])) is not None:
            self._join(beside, unit)
            return 1
        newest = self._newest_alike(place, unit[0])
        if newest is not None and (count := self._joining(units, at, newest)):
            return count
        if not self.takes(self.index.alone(unit)):
            return 0
        # A row of operations goes on in the last group, which what needs it can join.
        is_new = self._is_large and (place < 0 or self._is_full(place))
        self._insert(len(self.groups) if is_new else place + 1, unit)
        return 1

    @property
    def _is_large(self) -> bool:
        return len(self.index.ops) > MOST_OPS

    def _last_needed(self, unit: Sequence[Op]) -> int:
        """The last group that a unit needs; -1: none."""
        groups = (self.group_of[op] for op in self.index.needed(unit) if op in self.group_of)
        return max((self._places[id(group)] for group in groups), default=-1)

    def _joining(self, units: Sequence[Sequence[Op]], at: int, place: int) -> int:
        """How many units from one on join a group; each of them needs none that comes later."""
        group = self.groups[place]
        stride = max(1, len(group) // 2) if len(group) >= _ONE_BY_ONE else 1
        row = self._row(units, at, place, min(stride, MOST_OPS - len(group)))
        while row:
            if self._is_taken_with(place, row):
                self._join(place, row)
                return len(row)
            row = row[: len(row) // 2]
        if size_reasons(self.index.alone([*group, *units[at]])):
            self._full.add(id(group))
        return 0

    def _is_full(self, place: int) -> bool:
        """Whether a group had no room for an operation.  Those that come later do not join it: what
        they need, and what needs them, would be in groups apart."""
        return id(self.groups[place]) in self._full

    def _row(self, units: Sequence[Sequence[Op]], at: int, place: int, most: int) -> list[Op]:
        """Single operations from a unit on, up to so many, that need nothing made after a group
        once those ahead of them have joined it."""
        row, own = list(units[at]) if most else [], set(units[at])
        for unit in units[at + 1 : at + most]:
            needed = self.index.needed(unit)
            others = [self._places[id(self.group_of[op])] for op in needed if op not in own]
            needs_own = len(others) < len(needed) or place in others or self._goes_on(place, unit)
            if len(unit) > 1 or not needs_own or max(others, default=-1) > place:
                break
            row += unit
            own.update(unit)
        return row

    def _is_taken_with(self, place: int, ops: Sequence[Op]) -> bool:
        group = self.groups[place]
        return len(group) + len(ops) <= MOST_OPS and self.takes(self.index.alone([*group, *ops]))

    def _join(self, place: int, ops: Sequence[Op]) -> None:
        group = self.groups[place]
        group += ops
        self.group_of |= dict.fromkeys(ops, group)
        if not all(self._is_alike(group, op) for op in ops):
            self._dims.pop(id(group), None)

    def _insert(self, place: int, unit: list[Op]) -> None:
        self.groups.insert(place, unit)
        self.group_of |= dict.fromkeys(unit, unit)
        self._dims[id(unit)] = unit[0].results[0].shape
        if not all(self._is_alike(unit, op) for op in unit):
            del self._dims[id(unit)]
        for later in range(place, len(self.groups)):
            self._places[id(self.groups[later])] = later

    def _sibling(self, place: int, op: Op) -> int | None:
        """Where pointwise work on what a group of one anchor gives can be done beside other such
        work of the same dims."""
        is_simple = place >= 0 and op.role == "pointwise"
        if not is_simple or [other.role for other in self.groups[place]] != ["anchor"]:
            return None
        for i in range(place + 1, len(self.groups)):
            if self._is_alike(self.groups[i], op) and self._is_taken_with(i, [op]):
                return i
        return None

    def _newest_alike(self, place: int, op: Op) -> int | None:
        """The last group, of a graph too large for one, where it has pointwise work of the dims of
        an operation: a row of operations goes on there that the group it needs has no room for."""
        last = len(self.groups) - 1
        is_full = place < 0 or self._is_full(place)
        return last if is_full and last > place and self._goes_on(last, [op]) else None

    def _goes_on(self, place: int, unit: Sequence[Op]) -> bool:
        """Whether an operation of a graph too large for one group may join one that it need not
        read: the last, of pointwise work of the same dims."""
        is_last = place == len(self.groups) - 1
        is_single = len(unit) == 1 and unit[0].role == "pointwise"
        return (
            self._is_large and is_last and is_single and self._is_alike(self.groups[place], unit[0])
        )

    def _is_alike(self, group: Sequence[Op], op: Op) -> bool:
        """Whether an operation, and all of a group, are pointwise work of equal dims."""
        dims = self._dims.get(id(group))
        return op.role == "pointwise" and all(result.shape == dims for result in op.results)


def _merged(index: GraphIndex, groups: Groups, takes: Takes) -> Groups:
    """The groups, those together that reduce the same tensor, and a filter's gradient with the sum
    of its dY: it is read once."""
    while (pair := _reduce_the_same(index, groups, takes)) is not None:
        first, second = pair
        own = {*groups[first], *groups[second]}
        groups = [group for i, group in enumerate(groups) if i != second]
        groups[first] = index.ordered(own)
    return groups


def _reduce_the_same(index: GraphIndex, groups: Groups, takes: Takes) -> tuple[int, int] | None:
    """The places of two groups, of sums or one of a filter's gradient, of which the second needs
    nothing made since the first, that an engine takes as one."""
    gradients = {i for i, group in enumerate(groups) if _is_of_gradient(group)}
    sums = [i for i, group in enumerate(groups) if i in gradients or _is_of_sums(group)]
    read = {i: [t for t in read_by(groups[i]) if not t.is_by_value] for i in sums}
    readers: dict[Tensor, list[int]] = {}
    for i in sums:
        for tensor in read[i]:
            readers.setdefault(tensor, []).append(i)
    makers: dict[Tensor, list[int]] = {}
    for i, group in enumerate(groups):
        for tensor in made_by(group):
            makers.setdefault(tensor, []).append(i)
    for first in sums:
        seconds = {i for t in read[first] for i in readers[t] if i > first}
        for second in sorted(seconds):
            if first in gradients and second in gradients:
                continue
            own = read_by(groups[second])
            if any(first <= i < second for t in own for i in makers.get(t, ())):
                continue
            shared = set(read[first]).intersection(read[second])
            if not _is_reduced(shared, groups[first if second in gradients else second]):
                continue
            joined = [group for i, group in enumerate(groups) if i != second]
            joined[first] = [*groups[first], *groups[second]]
            if takes(Overlapping(index, joined).fusion(first)):
                return first, second
    return None


def _is_of_sums(group: Sequence[Op]) -> bool:
    roles = {op.role for op in group}
    return "reduction" in roles and roles <= {"reduction", "pointwise", "view"}


def _is_of_gradient(group: Sequence[Op]) -> bool:
    """Whether the one heavy operation of a group is a filter's gradient."""
    heavy = [op for op in group if op.role in ("anchor", "reduction")]
    return len(heavy) == 1 and isinstance(heavy[0], ConvWgrad)


def _is_reduced(tensors: set[Tensor], group: Sequence[Op]) -> bool:
    """Whether one of the tensors has the dims of what a group reduces."""
    reduced = {op.operands[0].shape for op in group if op.role == "reduction"}
    return any(tensor.shape in reduced for tensor in tensors)


# ---- what is computed again


def _recomputed(index: GraphIndex, groups: Groups, takes: Takes) -> Groups:
    """The groups, each with the work of others that it had better do itself.

    What a group takes over may read what was stored for the group that had it: once more, then.
    """
    while (changed := _recomputed_once(index, groups, takes)) != groups:
        groups = changed
    return groups


def _recomputed_once(index: GraphIndex, groups: Groups, takes: Takes) -> Groups:
    current = Overlapping(index, groups)
    stored = {t for group in groups for t in made_by(group) if current.is_read(t)}
    for place in range(len(groups)):
        for tensor in read_by(current.groups[place]):
            if tensor not in stored or not tensor.is_virtual:
                continue
            if _is_tested(tensor, current.groups[place], index):
                continue
            chain = _chain(tensor, index, stored)
            if chain is None or not _is_cheaper(chain, tensor, current.groups[place]):
                continue
            if len({*current.groups[place], *chain}) > _MOST_RECOMPUTED:
                continue
            before = current.change(place, [*current.groups[place], *chain])
            if not takes(current.fusion(place)):
                current.change(place, before)
    return _needed(index.graph, current.groups)


def _is_tested(tensor: Tensor, group: Sequence[Op], index: GraphIndex) -> bool:
    """Whether a group looks where a tensor equals what another group made, maybe of this tensor:
    an index does so with its maximum.

    Computed again it may differ in its last bit: what is approximate depends on a fusion's outputs.
    """
    others = {t for t in read_by(group) if t in index.producers and t is not tensor}
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
        for fusion in (fusion.in_graph for fusion in partition(graph, groups)):
            own = {op for tensor in fusion.outputs for op in fusion.upstream(tensor)}
            kept.append([op for op in fusion.ops if op in own])
        kept = [group for group in kept if group]
        if kept == groups:
            return groups
        groups = kept


def _chain(tensor: Tensor, index: GraphIndex, stored: set[Tensor]) -> list[Op] | None:
    """The operations from what is in memory to a tensor; None if there are others than pointwise
    and view ones.  stored: what is in memory, maybe the tensor too."""
    found: dict[Op, None] = {}
    pending = [tensor]
    while pending:
        op = index.producers.get(pending.pop())
        if op is None or op in found:
            continue
        if op.role not in ("pointwise", "view"):
            return None
        found[op] = None
        pending += [t for t in op.operands if t.is_virtual and (t is tensor or t not in stored)]
    return list(found)


def _is_cheaper(chain: Sequence[Op], tensor: Tensor, group: Sequence[Op]) -> bool:
    """Whether reading what a chain reads takes no more than storing and reading its result."""
    if all(isinstance(op, View) for op in chain):
        return True  # each element of the result is read once, of a slice no others
    known = set(read_by(group))
    more = [t for t in read_by(chain) if t not in known and not t.is_constant]
    return bytes_of(more) <= 2 * bytes_of([tensor])
