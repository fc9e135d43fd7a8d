"""Sizes of symbols, from the dims and strides that a call gives in place of a graph's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..dialect.graph import OperationGraph
from ..dialect.tensor import Tensor
from ..errors import DnncError, Status
from ..expr import Expr
from ..given import checked

Rows = Sequence[Sequence[int]]

# How many sets of overrides are remembered.
_REMEMBERED = 256


class Overrides:
    """Overrides that a graph takes: other sizes for its symbols, and strides as they follow.

    Threads may share it.
    """

    def __init__(self, graph: OperationGraph):
        self.graph = graph
        self._tensors: dict[int, Tensor] = {}
        self._known: dict[object, dict[str, int]] = {}

    def sizes(
        self, uids: Sequence[int], shapes: Rows | None, strides: Rows | None
    ) -> Mapping[str, int]:
        """The sizes of symbols; overrides that a plan can't follow are SHAPE_MISMATCH errors."""
        try:
            key = (tuple(uids), _frozen(shapes), _frozen(strides))
            found = self._known.get(key)
        except TypeError:
            _verify_types(uids, shapes, strides)
            raise
        if found is None:
            _verify_types(uids, shapes, strides)
            found = self._sizes(uids, shapes, strides)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = found
        return found

    def _sizes(
        self, uids: Sequence[int], shapes: Rows | None, strides: Rows | None
    ) -> dict[str, int]:
        for name, given in (("override_shapes", shapes), ("override_strides", strides)):
            if given is not None and len(given) != len(uids):
                raise _error(f"{len(given)} {name}", f"{len(uids)}, one a uid")
        found: dict[str, int] = {}
        tensors = [self._tensor(uid) for uid in uids]
        for place, tensor in enumerate(tensors):
            for size, actual in _pairs(tensor, tensor.shape, shapes, place):
                _take(size, actual, found)
        for place, tensor in enumerate(tensors):
            for stride, actual in _pairs(tensor, tensor.layout, strides, place):
                _verify_stride(stride, actual, found)
        return found

    def _tensor(self, uid: int) -> Tensor:
        found = self._tensors.get(uid)
        if found is None:
            found = self._tensors[uid] = self.graph.tensor(uid)
        return found


@checked
def _verify_types(
    override_uids: Sequence[int],
    override_shapes: Sequence[Sequence[int]] | None,
    override_strides: Sequence[Sequence[int]] | None,
) -> None:
    """Leaves the checks to its annotations."""


def _frozen(rows: Rows | None) -> object:
    return None if rows is None else tuple(map(tuple, rows))


def _take(size: Expr, actual: int, found: dict[str, int]) -> None:
    """Learns a symbol's size, or sees that a size is what it was."""
    constant = size.constant
    if constant is None and found.setdefault(str(size), actual) == actual:
        return
    if constant != actual:
        raise _error(
            f"override of the size {size} by {actual}",
            "one value for each dnnc.Dim, fixed sizes as they are",
        )


def _verify_stride(stride: Expr, actual: int, found: Mapping[str, int]) -> None:
    constant = stride.constant
    if constant is None and all(dim.name in found for dim in stride.dims()):
        constant = stride.evaluate(found)
    if constant != actual:
        raise _error(
            f"override of the stride {stride} by {actual}", "strides as they follow from the sizes"
        )


def _pairs(
    tensor: Tensor, sizes: Sequence[Expr], given: Rows | None, place: int
) -> Iterable[tuple[Expr, int]]:
    if given is None:
        return ()
    if len(given[place]) != len(sizes):
        raise _error(f"{len(given[place])} values for {tensor.label}", f"{len(sizes)}")
    return zip(sizes, given[place], strict=True)


def _error(what: str, supported: str) -> DnncError:
    return DnncError(Status.BAD_PARAM_SHAPE_MISMATCH, what, supported, "override")
