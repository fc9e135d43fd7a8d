"""Parts of a product's result as products of parts: nothing of the whole result's size is stored.

    y = a @ w + b [M, 3N];  q, k, v = y[:, 0:N], y[:, N:2N], y[:, 2N:3N]
->  q = a @ w[:, 0:N] + b[:, 0:N];  k = ...;  v = ...

Only where the parts lie apart, are outputs or views of them are, and nothing else reads the result:
one that other operations read is stored once, and they read their parts where they lie.  And only
where one product can't store the parts (`stored_parts`): it reads a once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..expr import Expr
from .op import Op
from .ops.matmul import Matmul
from .ops.pointwise import Pointwise
from .ops.views import Reshape, Slice, Transpose
from .stored_parts import PART_ELEMENTS
from .tensor import Tensor, packed_strides

_Readers = Mapping[Tensor, Sequence[Op]]


def with_sliced_products(ops: Sequence[Op]) -> list[Op]:
    """The operations, in order, with a product for each part of a result that is read in parts."""
    if not any(type(op) is Slice for op in ops):
        return [*ops]
    made = {tensor for op in ops for tensor in op.results}
    readers: dict[Tensor, list[Op]] = {}
    for op in ops:
        for tensor in dict.fromkeys(op.operands):
            readers.setdefault(tensor, []).append(op)
    placed: dict[Op, Sequence[Op]] = {}  # an operation -> those in its place
    for op in ops:
        if not isinstance(op, Matmul) or op.b in made or op.b is op.a:
            continue
        chain = _chain(op, readers, made)
        parts = _parts(chain[-1].results[0], readers)
        if parts:
            placed |= dict.fromkeys(chain, ()) | {part: _of_part(chain, part) for part in parts}
    return [new for op in ops for new in placed.get(op, (op,))]


def _chain(op: Op, readers: _Readers, made: set[Tensor]) -> list[Op]:
    """A product and the pointwise operations in a row behind it, whose other operands are given."""
    chain = [op]
    while True:
        y = chain[-1].results[0]
        behind = readers.get(y, ())
        if not y.is_virtual or len(behind) != 1:
            return chain
        (next_op,) = behind
        is_plain = isinstance(next_op, Pointwise) and next_op.mode != "gen_index"
        if not is_plain or next_op.results[0].shape != y.shape:
            return chain
        if any(t is not y and t in made for t in next_op.operands):
            return chain
        chain.append(next_op)


def _parts(y: Tensor, readers: _Readers) -> list[Slice]:
    """The slices that read a result in parts along its last axis; none where something else does,
    or where two of them overlap."""
    found = [op for op in readers.get(y, ()) if isinstance(op, Slice)]
    if not y.is_virtual or len(found) < 2 or len(found) < len(readers[y]):
        return []
    end = 0
    for part in sorted(found, key=lambda part: part.starts[-1]):
        is_whole = all(
            (part.starts[axis], part.y.shape[axis]) == (0, y.shape[axis])
            for axis in range(y.rank - 1)
        )
        if not is_whole or part.steps[-1] != 1 or part.starts[-1] < end:
            return []
        if not _is_stored(part.y, readers):
            return []
        end = part.starts[-1] + (part.y.shape[-1].constant or 0)
    return [] if _begin_together(y, found) else found


def _begin_together(y: Tensor, parts: Sequence[Slice]) -> bool:
    """Whether each part begins and ends where what kernels store together does."""
    ends = {part.starts[-1] + (part.y.shape[-1].constant or 0) for part in parts}
    borders = {part.starts[-1] for part in parts} | (ends - {y.shape[-1].constant})
    return y.type.kind != "b" and not any(border % PART_ELEMENTS for border in borders)


def _is_stored(tensor: Tensor, readers: _Readers) -> bool:
    """Whether a tensor is an output, or views of it alone are."""
    behind = readers.get(tensor, ())
    if not tensor.is_virtual:
        return not behind
    return bool(behind) and all(
        isinstance(op, Transpose | Reshape) and _is_stored(op.y, readers) for op in behind
    )


def _of_part(chain: Sequence[Op], part: Slice) -> list[Op]:
    """The operations of a chain that give a part of its result."""
    found: list[Op] = []
    others: dict[Tensor, Tensor] = {}

    def cut(tensor: Tensor) -> None:
        if tensor not in others and tensor.shape[-1] == part.x.shape[-1]:
            others[tensor] = _virtual(tensor, part.y.shape[-1])
            ahead = tensor.rank - 1
            made = Slice(
                x=tensor, y=others[tensor], steps=(1,) * tensor.rank,
                starts=(0,) * ahead + part.starts[-1:], stops=(-1,) * ahead + part.stops[-1:],
            )  # fmt: skip
            made.name, made.made_at = part.name, part.made_at
            found.append(made)

    for op in chain:
        for tensor in (op.b,) if isinstance(op, Matmul) else op.operands:
            cut(tensor)
        is_last = op is chain[-1]
        (y,) = op.results
        others[y] = part.y if is_last else _virtual(y, part.y.shape[-1])
        kept = {t: others[t] for t in (*op.operands, y) if t in others}
        if isinstance(op, Matmul):
            kept.pop(op.a, None)
        found.append(op.with_tensors(kept))
    return found


def _virtual(like: Tensor, columns: Expr) -> Tensor:
    dims = (*like.shape[:-1], columns)
    return Tensor(
        name=like.name, dims=dims, strides=packed_strides(dims), dtype=like.dtype, is_virtual=True
    )
