"""Attentions inside a larger graph: groups of operations that a split begins with.

A split grows from the first operation on.  An attention's first product would be a fusion without
the second one, since what it lacks until then no engine takes; so that attentions are found first,
and the rest of the graph grows around them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import product as product_of

from ..dialect.graph import OperationGraph
from ..dialect.op import Op
from ..dialect.ops import Concatenate, Matmul, Reduction, Reshape, Sdpa, Slice
from ..dialect.tensor import Tensor, is_in_tiles
from .groups import GraphIndex

_LIGHT = ("pointwise", "view")


def attention_groups(
    graph: OperationGraph, takes: Callable[[Sequence[Op]], bool]
) -> list[list[Op]]:
    """Groups that share no operation, each in the graph's order.

    takes: whether a group can be a fusion of its own.
    """
    found: list[list[Op]] = []
    placed: set[Op] = set()
    for candidates in _candidates(graph):
        for group in candidates:
            if placed.isdisjoint(group) and takes(group):
                found.append(group)
                placed.update(group)
                break
    return found


def _candidates(graph: OperationGraph) -> Iterator[Iterator[list[Op]]]:
    """Candidates: what stands for an operation of attention, then what may be one in single
    operations."""
    finder = _Finder(graph)
    for op, parts in graph.composites:
        if isinstance(op, Sdpa):
            yield finder.with_rotation(parts)
    for first, second in finder.pairs():
        yield finder.candidates(first, second)


class _Finder:
    def __init__(self, graph: OperationGraph):
        self.ops = graph.live_ops
        self.producers: dict[Tensor, Op] = {t: op for op in self.ops for t in op.results}
        self.readers: dict[Tensor, list[Op]] = {}
        for op in self.ops:
            for tensor in dict.fromkeys(op.operands):
                self.readers.setdefault(tensor, []).append(op)
        # Sets of operations as numbers with a bit for each.
        self.bit = {op: 1 << place for place, op in enumerate(self.ops)}
        self.upstream, self.downstream = dict[Op, int](), dict.fromkeys(self.ops, 0)
        for op in self.ops:
            self.upstream[op] = 0
            for other in self._needed(op):
                self.upstream[op] |= self.bit[other] | self.upstream[other]
        for op in reversed(self.ops):
            for other in self._needed(op):
                self.downstream[other] |= self.bit[op] | self.downstream[op]
        self.reductions = sum(self.bit[op] for op in self.ops if isinstance(op, Reduction))
        self.plain = sum(self.bit[op] for op in self.ops if op.role in (*_LIGHT, "reduction"))

    def _needed(self, op: Op) -> list[Op]:
        return [self.producers[t] for t in op.operands if t in self.producers]

    def pairs(self) -> Iterator[tuple[Op, Op]]:
        """Two products, with reductions and light work alone on the ways between them."""
        products = [op for op in self.ops if isinstance(op, Matmul)]
        for second in products:
            for first in products:
                between = self.upstream[second] & self.downstream[first]
                is_plain = not between & ~self.plain
                if is_plain and (between & self.reductions).bit_count() > 1:
                    yield first, second

    def _between(self, first: Op, second: Op) -> list[Op]:
        between = self.upstream[second] & self.downstream[first]
        return [op for op in self.ops if self.bit[op] & between]

    def candidates(self, first: Op, second: Op) -> Iterator[list[Op]]:
        """Candidates for the attention of two products, the largest first: with light work on
        what they multiply or without it, with that on masks or with such alone as nobody else
        reads, with work on totals or without, with views of the result or without."""
        core = {first, second, *self._between(first, second)}
        for of_products, of_masks, of_totals, of_result in product_of((True, False), repeat=4):
            group = set(core)
            for op in core:
                if op not in (first, second):
                    above = self._light_above(op, core)
                    group |= above if of_masks else self._own(above, core)
                elif of_products:
                    group |= self._light_above(op, core)
            if of_totals:
                group |= self._beside(group, second)
            if of_result:
                group |= self._views_of(second)
            if not of_products and (rotation := self._rotation(first, group)):
                yield [op for op in self.ops if op in group | rotation]
            yield [op for op in self.ops if op in group]

    def with_rotation(self, parts: Sequence[Op]) -> Iterator[list[Op]]:
        """Candidates: the operations that one of attention expands to, with the rotary embedding of
        its queries and without it."""
        group = {*parts}
        first = next(op for op in parts if isinstance(op, Matmul))
        if rotation := self._rotation(first, group):
            yield [op for op in self.ops if op in group | rotation]
        yield [*parts]

    def _rotation(self, first: Op, group: set[Op]) -> set[Op]:
        """Operations of columns that are concatenated to a product's first operand, and views ahead
        of these columns; those that nothing outside the group reads."""
        last, found = self.producers.get(first.operands[0]), set[Op]()
        while isinstance(last, Reshape):  # of heads in groups
            found.add(last)
            last = self.producers.get(last.x)
        if not isinstance(last, Concatenate) or last in group:
            return set()
        found.add(last)
        pending: list[tuple[Op, bool]] = [(last, False)]
        while pending:
            op, is_above = pending.pop()
            for other in self._needed(op):
                is_taken = other.role == "view" or (other.role == "pointwise" and not is_above)
                if is_taken and other not in found:
                    found.add(other)
                    pending.append((other, is_above or isinstance(other, Slice)))
        kept = self._own(found - group, group)
        return kept if last in kept else set()

    def _light_above(self, op: Op, core: set[Op]) -> set[Op]:
        """Operations in a row above one, up to heavy ones."""
        found: set[Op] = set()
        pending = self._needed(op)
        while pending:
            other = pending.pop()
            if other.role in _LIGHT and other not in core and other not in found:
                found.add(other)
                pending += self._needed(other)
        return found

    def _own(self, above: set[Op], core: set[Op]) -> set[Op]:
        """The operations above a group whose results nothing else reads or asks for."""
        kept = set(above)
        for op in sorted(above, key=self.bit.__getitem__, reverse=True):
            readers = {r for t in op.results for r in self.readers.get(t, ())}
            is_own = all(t.is_virtual for t in op.results) and readers <= core | kept
            if not is_own:
                kept.remove(op)
        return kept

    def _views_of(self, op: Op) -> set[Op]:
        """Views in a row of what an operation gives, which nothing else reads."""
        found: set[Op] = set()
        while True:
            readers = self.readers.get(op.results[0], [])
            if len(readers) != 1 or readers[0].role != "view" or not op.results[0].is_virtual:
                return found
            (op,) = readers
            found.add(op)

    def _beside(self, group: set[Op], second: Op) -> set[Op]:
        """Pointwise work on what a group has ahead of its second product, such as statistics, and
        what stores weights in the order F16x16."""
        found: set[Op] = set()
        for op in self.ops:
            needed = self._needed(op)
            inside = bool(needed) and all(other in group or other in found for other in needed)
            is_after = bool(self.bit[second] & self.upstream[op])
            is_light = op.role == "pointwise" or is_in_tiles(op.results[0])
            if op not in group and inside and is_light and not is_after:
                found.add(op)
        return found


def in_order(graph: OperationGraph, groups: Sequence[Sequence[Op]]) -> list[list[Op]]:
    """The graph's operations, those of a group together, each after what it needs.

    A group that others come between is taken apart.
    """
    index, members = GraphIndex(graph), [list(group) for group in groups]
    while True:
        place = {op for group in members for op in group}
        units = [*members, *([op] for op in index.ops if op not in place)]
        found = _sorted(index, units)
        if len(found) == len(units):
            return [units[i] for i in found]
        done = set(found)
        del members[next(i for i in range(len(members)) if i not in done)]


def _sorted(index: GraphIndex, units: Sequence[Sequence[Op]]) -> list[int]:
    """The places of units, each after those that it needs, else as their first operations come;
    without those that need each other in turn, and what comes after them."""
    needs = _needs(index, units)
    readers: list[list[int]] = [[] for _ in units]
    for i, others in enumerate(needs):
        for other in others:
            readers[other].append(i)
    waiting = [len(others) for others in needs]
    ready = [(index.rank[unit[0]], i) for i, unit in enumerate(units) if not waiting[i]]
    heapq.heapify(ready)
    found: list[int] = []
    while ready:
        _, first = heapq.heappop(ready)
        found.append(first)
        for i in readers[first]:
            waiting[i] -= 1
            if not waiting[i]:
                heapq.heappush(ready, (index.rank[units[i][0]], i))
    return found


def depth_first(index: GraphIndex, units: Sequence[list[Op]]) -> list[list[Op]]:
    """Units in order, each soon after what it needs, so that a stretch of them makes little that
    others read."""
    needs, found, seen = _needs(index, units), list[list[Op]](), set[int]()
    inner = set[int]().union(*needs)  # a walk that began at these would go through layers
    for last in (i for i in range(len(units)) if i not in inner):
        pending = [(last, False)]
        while pending:
            i, is_after_needs = pending.pop()
            if is_after_needs:
                found.append(units[i])
            elif i not in seen:
                seen.add(i)
                pending.append((i, True))
                pending += ((other, False) for other in sorted(needs[i], reverse=True))
    return found


def _needs(index: GraphIndex, units: Sequence[Sequence[Op]]) -> list[set[int]]:
    """The places of the units that each needs."""
    owner = {op: i for i, unit in enumerate(units) for op in unit}
    return [{owner[op] for op in index.needed(unit)} - {i} for i, unit in enumerate(units)]
