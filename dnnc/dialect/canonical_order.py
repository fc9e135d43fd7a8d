"""The canonical order of operations: the same however independent ones were added.

Operations of which no other needs a result are the ends of the graph; what an end needs, in the
order of its operands, comes before it.  So all that is left open is the order of the ends.  It
goes by what they stand for: an end's cone (the operations that it needs, without names), then by
what cones share.  Ends that nothing tells apart go by their uids.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any

from ..expr import Expr
from .op import Op
from .tensor import Tensor

# Sizes are told apart by their values where the symbols have these, apart from all usual sizes.
_FIRST_VALUE, _VALUE_STEP = 1_000_003, 7919


def canonical_order(ops: Sequence[Op]) -> list[Op]:
    """The operations of a graph whose types and sizes are known, each after those it needs."""
    producers = {tensor: op for op in ops for tensor in op.results}
    needed = {producers[t] for op in ops for t in op.operands if t in producers}
    ends = [op for op in ops if op not in needed]
    if len(ends) > 1:
        ends = _ordered_ends([_Cone(end, producers) for end in ends])
    done: dict[Op, None] = {}
    for end in ends:
        _append_needed(end, producers, done)
    return list(done)


def _append_needed(end: Op, producers: Mapping[Tensor, Op], done: dict[Op, None]) -> None:
    """Adds what an operation needs and is not done, then itself."""
    pending = [end]
    while pending:
        op = pending[-1]
        before = (producers[t] for t in op.operands if t in producers)
        missing = next((other for other in before if other not in done), None)
        if missing is not None:
            pending.append(missing)
        else:
            done.setdefault(pending.pop())


class _Cone:
    """An end and all that it needs.

    places: of its tensors and the names of its symbols, which cones may share, as they appear.
    form: equal for cones that differ in names and uids alone.
    """

    def __init__(self, end: Op, producers: Mapping[Tensor, Op]):
        self.end = end
        ops: dict[Op, None] = {}
        _append_needed(end, producers, ops)
        self.count = len(ops)
        self.places: dict[Hashable, int] = {}
        self.form = _digest([self._described(op) for op in ops])

    def _place(self, mark: Hashable) -> int:
        return self.places.setdefault(mark, len(self.places))

    def _described(self, op: Op) -> Any:
        """An operation, with what appears in it for the first time."""
        ends = [
            (field.name, tensor in self.places or self._facts(tensor), self._place(tensor))
            for kind in ("operand", "result")
            for field, tensor in op.tensors(kind)
        ]
        return op.op_name, sorted((k, str(v)) for k, v in op.attributes().items()), ends

    def _facts(self, tensor: Tensor) -> Any:
        return (
            tensor.type.name, tensor.is_virtual, tensor.is_by_value, tensor.value,
            tensor.alignment, tensor.reordering, tensor.ragged_offset is None,
            [self._size(size) for size in (*tensor.shape, *tensor.layout)],
            *([] if tensor.prior_of is None else ["prior"]),
        )  # fmt: skip

    def _size(self, size: Expr) -> Any:
        if size.constant is not None:
            return size.constant
        dims = sorted(size.dims(), key=lambda d: (d.min, d.max, d.multiple_of, d.name))
        places = [self._place(dim.name) for dim in dims]
        pairs = zip(dims, places, strict=True)
        values = {d.name: (_FIRST_VALUE + _VALUE_STEP * at) * d.multiple_of for d, at in pairs}
        bounds = [(dim.min, dim.max, dim.multiple_of) for dim in dims]
        return places, bounds, size.evaluate(values)


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _ordered_ends(cones: Sequence[_Cone]) -> list[Op]:
    """The ends, small cones first; of equal ones those first that share what came first."""
    sharers: dict[Hashable, list[int]] = defaultdict(list)
    for at, cone in enumerate(cones):
        for mark in cone.places:
            sharers[mark].append(at)
    shared = [
        {mark: place for mark, place in cone.places.items() if len(sharers[mark]) > 1}
        for cone in cones
    ]
    colors = _told_apart([cone.form for cone in cones], shared)
    numbers: dict[Hashable, int] = {}

    def entry(at: int) -> tuple[Any, ...]:
        cone, uids = cones[at], tuple(t.uid for t in cones[at].end.results)
        known = tuple(numbers.get(mark, inf) for mark in shared[at])
        return cone.count, colors[at], known, uids, at

    left = [entry(at) for at in range(len(cones))]
    heapify(left)
    found: dict[int, None] = {}
    while left:
        at = heappop(left)[-1]
        if at in found:
            continue
        found[at] = None
        new = [mark for mark in shared[at] if mark not in numbers]
        for mark in new:
            numbers[mark] = len(numbers)
        # What is numbered makes entries smaller: the old ones are passed over when they come.
        for other in {other for mark in new for other in sharers[mark]} - found.keys():
            heappush(left, entry(other))
    return [cones[at].end for at in found]


def _told_apart(colors: list[str], shared: Sequence[Mapping[Hashable, int]]) -> list[str]:
    """Colors of cones, refined by who shares their marks, until that tells no more apart."""
    while True:
        users: dict[Hashable, list[tuple[str, int]]] = defaultdict(list)
        for color, marks in zip(colors, shared, strict=True):
            for mark, place in marks.items():
                users[mark].append((color, place))
        said = {mark: _digest(sorted(pairs)) for mark, pairs in users.items()}
        finer = [
            _digest((color, [(place, said[mark]) for mark, place in marks.items()]))
            for color, marks in zip(colors, shared, strict=True)
        ]
        if len(set(finer)) == len(set(colors)):
            return colors
        colors = finer
