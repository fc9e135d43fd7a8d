"""Groups of a graph's operations, as splits grow and change them: what each would be as a fusion.

`dialect.fusion.partition` reads the whole graph.  A search asks for one group at a time, in time
that grows with that group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..dialect.fusion import Fusion
from ..dialect.graph import OperationGraph
from ..dialect.op import Op
from ..dialect.tensor import Tensor

Groups = list[list[Op]]


class GraphIndex:
    """A graph's operations by place, and who makes and reads each tensor.

    rank: place of an operation.  producers: tensor -> its operation.  readers: tensor -> those that
    have it as an operand.
    """

    def __init__(self, graph: OperationGraph):
        self.graph = graph
        self.ops = graph.live_ops
        self.rank = {op: i for i, op in enumerate(self.ops)}
        self.producers: dict[Tensor, Op] = {}
        self.readers: dict[Tensor, list[Op]] = {}
        for op in self.ops:
            for tensor in op.results:
                self.producers[tensor] = op
            for tensor in dict.fromkeys(op.operands):
                self.readers.setdefault(tensor, []).append(op)

    def ordered(self, ops: Iterable[Op]) -> list[Op]:
        """Each once, as they come in the graph."""
        return sorted(set(ops), key=self.rank.__getitem__)

    def needed(self, ops: Iterable[Op]) -> list[Op]:
        """The operations whose results some read."""
        return [self.producers[t] for op in ops for t in op.operands if t in self.producers]

    def alone(self, group: Iterable[Op]) -> Fusion:
        """A group as a fusion, beside which nothing computes what it computes."""
        ops = self.ordered(group)
        own = set(ops)

        def is_stored(tensor: Tensor) -> bool:
            return not tensor.is_virtual or any(r not in own for r in self.readers.get(tensor, ()))

        outputs = tuple(t for op in ops for t in op.results if is_stored(t))
        return Fusion.of_graph(0, ops, outputs, self.graph.must_repeat)


class Overlapping:
    """Groups that may compute the same tensors; the first of those stores what others read."""

    def __init__(self, index: GraphIndex, groups: Groups):
        self.index, self.groups = index, [index.ordered(group) for group in groups]
        self._makers: dict[Tensor, set[int]] = {}
        self._reads = Counter[Tensor]()  # groups that read a tensor from memory
        for place in range(len(self.groups)):
            self._count(place, 1)

    def _count(self, place: int, by: int) -> None:
        for tensor in made_by(self.groups[place]):
            makers = self._makers.setdefault(tensor, set())
            makers.add(place) if by > 0 else makers.discard(place)
        for tensor in read_by(self.groups[place]):
            self._reads[tensor] += by

    def change(self, place: int, ops: Iterable[Op]) -> list[Op]:
        """Gives a group other operations; returns those that it had."""
        before = self.groups[place]
        self._count(place, -1)
        self.groups[place] = self.index.ordered(ops)
        self._count(place, 1)
        return before

    def is_read(self, tensor: Tensor) -> bool:
        """Whether a group reads a tensor from memory."""
        return self._reads[tensor] > 0

    def fusion(self, place: int) -> Fusion:
        ops = self.groups[place]
        results = (t for op in ops for t in op.results if min(self._makers[t]) == place)
        outputs = tuple(t for t in results if not t.is_virtual or self.is_read(t))
        return Fusion.of_graph(place, ops, outputs, self.index.graph.must_repeat)


def made_by(group: Sequence[Op]) -> list[Tensor]:
    return [tensor for op in group for tensor in op.results]


def read_by(group: Sequence[Op]) -> list[Tensor]:
    """The tensors that a group reads and does not make, each once."""
    made = set(made_by(group))
    return [t for t in dict.fromkeys(t for op in group for t in op.operands) if t not in made]
