"""Which inputs a fusion reads for an operand of its anchor, and at which coordinates."""

from __future__ import annotations

from ...dialect.fusion import Fusion
from ...dialect.op import Op
from ...dialect.ops import Pointwise
from ...dialect.ops.views import View, coordinates
from ...dialect.tensor import Tensor

# Of a tensor's axes, the operand's axes whose coordinates they have; None: anything else.
_Access = tuple[int, ...] | None


def layout_model(fusion: Fusion, operand: Tensor) -> Tensor | None:
    """The tensor in memory whose layout decides how an operand is read."""
    return model_among(reads_of(fusion, operand))


def model_among(reads: dict[Tensor, set[bool]]) -> Tensor | None:
    """The first that is read at the operand's own coordinates, among `reads_of`."""
    return next((t for t, ways in reads.items() if True in ways and not t.is_by_value), None)


def reads_of(fusion: Fusion, operand: Tensor) -> dict[Tensor, set[bool]]:
    """Input -> whether it is read at the operand's own coordinates: always, never, or both.

    The inputs are in the order in which a walk from the operand meets them.
    """
    found: dict[Tensor, set[bool]] = {}
    whole: _Access = tuple(range(operand.rank))
    seen = set[tuple[Tensor, _Access]]()
    pending: list[tuple[Tensor, _Access]] = [(operand, whole)]
    while pending:
        tensor, access = reached = pending.pop()
        if reached in seen or tensor.is_constant:
            continue
        seen.add(reached)
        op = fusion.producers.get(tensor)
        if op is None:
            found.setdefault(tensor, set()).add(access == whole)
        else:
            pending += [(t, _through(op, t, access)) for t in reversed(op.read_operands)]
    return found


def _through(op: Op, operand: Tensor, at: _Access) -> _Access:
    """How an operation addresses an operand, where its result is addressed so."""
    result = op.results[0]
    if at is None:
        return None
    if isinstance(op, Pointwise):
        return at if operand.shape == result.shape else None
    if not isinstance(op, View):
        return None
    own = coordinates(result.shape)
    found: list[int] = []
    for axis, place in enumerate(op.source(own)):
        if place.constant is not None or place not in own:
            return None
        along = own.index(place)
        if result.shape[along] != operand.shape[axis]:
            return None
        found.append(at[along])
    return tuple(found)
