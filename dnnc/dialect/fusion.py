"""Fusion: operations of a graph that one engine turns into kernels together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from string import ascii_lowercase
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..errors import DnncError, Status
from ..expr import Dim, assumed
from .graph import OperationGraph
from .op import Op
from .patterns import AnyPattern, FusionPattern, in_steps, rewritten
from .tensor import Tensor, symbols_of


@dataclass(frozen=True, eq=False)
class Fusion:
    """A convex part of a finalized graph.

    index: its place in the partition, from 0.  ops: in topological order.
    outputs: tensors that it writes to memory: the graph's, and those that later fusions read.
    must_repeat: whether its results must have the same bits each time, as the graph asks.
    whole: the fusion with the graph's own operations; None: it has these.
    """

    index: int
    ops: tuple[Op, ...]
    outputs: tuple[Tensor, ...]
    must_repeat: bool = False
    whole: Fusion | None = None

    @staticmethod
    def of_graph(
        index: int, ops: Sequence[Op], outputs: Sequence[Tensor], must_repeat: bool = False
    ) -> Fusion:
        """The fusion of some operations of a graph, as engines see it: views at its borders are
        strides (`fusion_borders`)."""
        given = Fusion(index, tuple(ops), tuple(outputs), must_repeat)
        roles = {op.role for op in given.ops}
        if "view" not in roles or "anchor" not in roles:
            return given
        from .fusion_borders import BORDER_VIEWS  # written with operations, which need NumPy

        return rewritten_fusion(given, BORDER_VIEWS)

    def with_ops(self, ops: Iterable[Op], outputs: Iterable[Tensor] | None = None) -> Fusion:
        """The fusion of other operations that stand for these; `in_graph` stays.

        outputs: where they have other dims, strides or types; in the same order.
        """
        made = self.outputs if outputs is None else tuple(outputs)
        return Fusion(self.index, tuple(ops), made, self.must_repeat, self.in_graph)

    @property
    def in_graph(self) -> Fusion:
        """The fusion with the graph's own operations and tensors."""
        return self.whole or self

    @cached_property
    def producers(self) -> Mapping[Tensor, Op]:
        """Tensor -> the operation of the fusion that makes it."""
        return {tensor: op for op in self.ops for tensor in op.results}

    @cached_property
    def readers(self) -> Mapping[Tensor, Sequence[Op]]:
        """Tensor -> the operations of the fusion that have it as an operand, in order."""
        found: dict[Tensor, list[Op]] = {}
        for op in self.ops:
            for tensor in dict.fromkeys(op.operands):
                found.setdefault(tensor, []).append(op)
        return found

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """Tensors that it reads from memory or as scalars, constants not."""
        read = dict.fromkeys(t for op in self.ops for t in op.operands)
        return tuple(t for t in read if t not in self.producers and not t.is_constant)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor, each once."""
        return tuple(dict.fromkeys(t for op in self.ops for t in (*op.operands, *op.results)))

    @cached_property
    def remembered(self) -> dict[Any, Any]:
        """Values that functions marked `remembered` and `remembered_at_sizes` found of it."""
        return {}

    @property
    def symbols(self) -> dict[str, Dim]:
        return {name: dim for name, dim in sorted(symbols_of(self.tensors).items())}

    def with_role(self, role: str) -> tuple[Op, ...]:
        """The operations whose class has this role: anchor, pointwise, reduction, view."""
        return tuple([op for op in self.ops if op.role == role])

    @cached_property
    def anchor(self) -> Op | None:
        """The operation that the fusion grew around: the heavy one, else the first reduction."""
        heavy = self.with_role("anchor") or self.with_role("reduction")
        return heavy[0] if heavy else None

    @cached_property
    def roles(self) -> Mapping[Op, str]:
        """Operation -> its role in the fusion: g1a, g1b, ... (on the anchor's operands in order;
        g1 if it has one), anchor, g2 (all others)."""
        found = dict.fromkeys(self.ops, "g2")
        if self.anchor is None:
            return found
        operands = self.anchor.operands
        for position in reversed(range(len(operands))):
            role = f"g1{_letters(position)}" if len(operands) > 1 else "g1"
            for op in self.upstream(operands[position]):
                found[op] = role
        found[self.anchor] = "anchor"
        return found

    def upstream(self, tensor: Tensor) -> frozenset[Op]:
        """The operations of the fusion that `tensor` depends on, be it for its dims alone."""
        if tensor not in self._upstreams:
            self._upstreams[tensor] = self._found_upstream(tensor, lambda op: op.operands)
        return self._upstreams[tensor]

    def sources(self, tensor: Tensor) -> frozenset[Op]:
        """The operations of the fusion whose values those of `tensor` are made of."""
        if tensor not in self._sources:
            self._sources[tensor] = self._found_upstream(tensor, lambda op: op.read_operands)
        return self._sources[tensor]

    def read_inputs(self, tensor: Tensor) -> list[Tensor]:
        """The inputs whose elements those of a computed tensor are made of."""
        read = {t for op in self.sources(tensor) for t in op.read_operands}
        return [t for t in self.inputs if t in read]

    @cached_property
    def _upstreams(self) -> dict[Tensor, frozenset[Op]]:
        return {}

    @cached_property
    def _sources(self) -> dict[Tensor, frozenset[Op]]:
        return {}

    def _found_upstream(
        self, tensor: Tensor, operands_of: Callable[[Op], Sequence[Tensor]]
    ) -> frozenset[Op]:
        found: set[Op] = set()
        pending = [tensor]
        while pending:
            op = self.producers.get(pending.pop())
            if op is not None and op not in found:
                found.add(op)
                pending.extend(operands_of(op))
        return frozenset(found)

    def __repr__(self) -> str:
        return f"<fusion {self.index}: {', '.join(op.label for op in self.ops)}>"


def _letters(position: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    before, last = divmod(position, len(ascii_lowercase))
    return (_letters(before - 1) if before else "") + ascii_lowercase[last]


_P = ParamSpec("_P")
_T = TypeVar("_T")


def remembered(
    function: Callable[Concatenate[Fusion, _P], _T],
) -> Callable[Concatenate[Fusion, _P], _T]:
    """A function of a fusion, which does not change, and of hashable arguments.

    Each answer is found once, kept with the fusion, and not to be changed.
    """

    @wraps(function)
    def recall(fusion: Fusion, *args: _P.args, **named: _P.kwargs) -> _T:
        known, key = fusion.remembered, (function, args)
        if named:
            key = (*key, *named.items())
        if key not in known:
            known[key] = function(fusion, *args, **named)
        return known[key]

    return recall


def remembered_at_sizes(
    function: Callable[Concatenate[Fusion, _P], _T],
) -> Callable[Concatenate[Fusion, _P], _T]:
    """A function that remembers its results by what `expr.typical` takes symbols as, too."""

    @wraps(function)
    def recall(fusion: Fusion, *args: _P.args, **named: _P.kwargs) -> _T:
        known, key = fusion.remembered, (function, args, assumed())
        if named:
            key = (*key, *named.items())
        if key not in known:
            known[key] = function(fusion, *args, **named)
        return known[key]

    return recall


@remembered
def rewritten_fusion(fusion: Fusion, patterns: tuple[AnyPattern, ...]) -> Fusion:
    """The fusion that patterns give, one step after the other (`patterns.in_steps`); itself where
    none of them matches."""
    for step in in_steps(patterns):
        if isinstance(step[0], FusionPattern):
            for pattern in step:
                fusion = _replaced(fusion, pattern)
        else:
            fusion = _with_rewritten_ops(fusion, step)
    return fusion


@remembered
def _with_rewritten_ops(fusion: Fusion, patterns: Any) -> Fusion:
    ops = tuple(rewritten(fusion.ops, patterns))
    return fusion if ops == fusion.ops else fusion.with_ops(ops)


@remembered
def _replaced(fusion: Fusion, pattern: Any) -> Fusion:
    made = pattern.rewrite(fusion)
    if made is None:
        return fusion
    if not isinstance(made, Fusion):
        what = f"rewrite pattern {pattern.name} of {fusion} gives {made!r:.80}"
        raise DnncError(Status.BAD_PARAM, what, "a fusion, by Fusion.with_ops, or None")
    return made


def partition(graph: OperationGraph, groups: Iterable[Sequence[Op]]) -> tuple[Fusion, ...]:
    """The fusions of groups of operations, in an order in which each finds its inputs made.

    An operation may be in several groups; the first of them stores what others read.
    """
    fusions: list[Fusion] = []
    rank = {op: i for i, op in enumerate(graph.live_ops)}
    placed = [tuple(sorted({op for op in group if op in rank}, key=rank.__getitem__))
              for group in groups]  # fmt: skip
    made = [{tensor for op in ops for tensor in op.results} for ops in placed]
    # A group that makes a tensor does not read it from memory.
    read = {
        tensor
        for ops, own in zip(placed, made, strict=True)
        for op in ops
        for tensor in op.operands
        if tensor not in own
    }
    stored: set[Tensor] = set()
    for index, ops in enumerate(placed):
        results = (t for op in ops for t in op.results if t not in stored)
        outputs = tuple(t for t in results if not t.is_virtual or t in read)
        stored.update(outputs)
        fusions.append(Fusion.of_graph(index, ops, outputs, graph.must_repeat))
    return tuple(fusions)
