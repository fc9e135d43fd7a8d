"""How elements of a fusion's tensors are made of those of others, operation by operation.

`Region.accesses` says the same of the operations that a fusion is lowered to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...codegen.region import Access, identity_access, leaves_of
from ...dialect.fusion import Fusion
from ...dialect.op import Op
from ...dialect.ops import Pointwise, Reduction, Rng
from ...dialect.ops.views import View, coordinates, steps_along
from ...dialect.tensor import Tensor
from ...expr import Expr

Reached = set[tuple[Tensor, Access]]


def accesses(
    fusion: Fusion,
    tensor: Tensor,
    at: Access,
    stop: Callable[[Tensor], bool] = lambda tensor: False,
    seen: Reached | None = None,
) -> list[tuple[Tensor, Access]]:
    """The leaves of a tensor, see `leaves_of`; stop: tensors that are leaves beside inputs."""

    def sources(tensor: Tensor, at: Access) -> list[tuple[Tensor, Access]] | None:
        op = fusion.producers.get(tensor)
        return None if op is None or stop(tensor) else _read_accesses(op, at)

    return leaves_of(tensor, at, sources, seen)


def reads(fusion: Fusion) -> list[tuple[Tensor, Access]]:
    """The inputs that elements of the outputs come from, and how each is addressed."""
    seen: Reached = set()
    return [
        found
        for output in fusion.outputs
        for found in accesses(fusion, output, identity_access(output.rank), seen=seen)
    ]


def takes_apart(fusion: Fusion, found: Iterable[tuple[Tensor, Access]]) -> bool:
    """Whether coordinates are worked out one by one, for an address or as numbers.

    found: accesses of its tensors.
    """
    return any(place[0] == "other" for _, access in found for place in access) or any(
        _takes_indices(op) for op in fusion.ops
    )


def _takes_indices(op: Op) -> bool:
    if isinstance(op, Pointwise):
        return op.mode == "gen_index"
    if isinstance(op, View):
        return _moves(op) is None
    return isinstance(op, Rng) or op.role not in ("pointwise", "reduction")


def _read_accesses(op: Op, at: Access) -> list[tuple[Tensor, Access]]:
    """The tensors that an operation reads for an element of its result, and how each is
    addressed."""
    result = op.results[0]
    operands = [tensor for tensor in op.read_operands if not tensor.is_constant]
    if isinstance(op, View):
        return [(tensor, _of_view(op, at)) for tensor in operands]
    if isinstance(op, Rng):
        return [(tensor, (("zero",),) * tensor.rank) for tensor in operands]
    if isinstance(op, Reduction):  # of as many axes, those that are reduced are 1
        return [(tensor, at) for tensor in operands]
    if op.role != "pointwise":
        return [(tensor, (("other",),) * tensor.rank) for tensor in operands]
    return [(tensor, _of_operand(tensor, result, at)) for tensor in operands]


def _of_operand(operand: Tensor, result: Tensor, at: Access) -> Access:
    if operand.rank != result.rank:
        return (("other",),) * operand.rank
    return tuple(
        ("zero",) if n.constant == 1 and result.shape[axis].constant != 1 else at[axis]
        for axis, n in enumerate(operand.shape)
    )


def _of_view(op: View, at: Access) -> Access:
    moves = _moves(op)
    if moves is None:
        return (("other",),) * op.x.rank
    found: list[tuple[object, ...]] = []
    for move in moves:
        if isinstance(move, int):
            found.append(("zero",) if move == 0 else ("other",))
        else:
            axis, step, offset = move
            found.append(at[axis] if (step, offset) == (1, 0) else ("other",))
    return tuple(found)


def _moves(op: View) -> Sequence[int | tuple[int, int, int]] | None:
    """The coordinate along each axis of a view's input: a number, or (axis of its result, step,
    offset); None: it is worked out otherwise."""
    coords = coordinates(op.y.shape)
    found = [steps_along(expr, coords) for expr in op.source(coords)]
    moves = [move for move in found if move is not None]
    is_cut = any(
        not isinstance(move, int)
        and move[1:] == (1, 0)
        and _extent(op.y, move[0]) != op.x.shape[axis]
        for axis, move in enumerate(found)
        if move is not None
    )
    return None if is_cut or len(moves) < len(found) else moves


def _extent(tensor: Tensor, axis: int) -> Expr:
    return tensor.shape[axis]
