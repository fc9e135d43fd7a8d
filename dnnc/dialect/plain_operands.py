"""Operands as engines take them: of their result's rank, each element at its own place in memory.

A graph may have operands of fewer dims than their result, tensors without dims, inputs of stride 0
and broadcast operations.  Engines see none of these:

    add(x [8, 64, 384], bias [384])                    ->  bias [1, 1, 384]
    mul(x [8, 64], scale [])                           ->  scale [1, 1]
    add(x [8, 64], b [8, 64] of strides [1, 0])        ->  b [8, 1]
    add(x [8, 64], broadcast(b [8, 1]))                ->  add(x, b)
    relu(b [8, 64] of strides [1, 0])                  ->  relu(identity(b [8, 1]))

The form of a tensor in memory has its uid, hence its buffer.  A tensor has one form in all
operations; where operations need it of several ranks, reshapes give the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from ..expr import Expr, product
from .op import Op
from .ops.matmul import Matmul
from .ops.pointwise import Pointwise
from .ops.views import Reshape, Transpose
from .tensor import Tensor, broadcast_dims, packed_strides, with_rank

_ONE = Expr.of(1)


@dataclass(frozen=True)
class Plain:
    """Operations as engines take them.

    ops: in order; some that nothing reads may be among them.  places: an operation that was given
    -> those in its place.  forms: a tensor that was given -> the one in its place.
    """

    ops: list[Op]
    places: Mapping[Op, Sequence[Op]]
    forms: Mapping[Tensor, Tensor]


def plain(ops: Sequence[Op]) -> Plain:
    """The plain operations that compute the same as some that are verified and in order."""
    if all(map(_is_plain, ops)):
        return Plain([*ops], {op: [op] for op in ops}, {})
    rewriting = _Rewriting(ops)
    for op in ops:
        rewriting.take(op)
    return Plain(rewriting.ops, rewriting.places, rewriting.forms)


def _is_plain(op: Op) -> bool:
    tensors = (*op.operands, *op.results)
    if any(t.rank == 0 or t.repeated_axes for t in tensors):
        return False
    if isinstance(op, Pointwise):
        is_broadcast = op.mode == "identity" and op.x.shape != op.y.shape
        return not is_broadcast and all(t.rank == op.y.rank for t in op.operands)
    return not isinstance(op, Matmul) or op.a.rank == op.b.rank


def _ranks(ops: Sequence[Op]) -> dict[Tensor, int]:
    """The ranks of forms: of inputs, and of virtual results of pointwise operations, the largest
    that an operation needs; of other results their own.  None is 0."""
    found: dict[Tensor, int] = {}
    wanted: dict[Tensor, int] = {}
    for op in reversed(ops):
        for tensor in op.results:
            own = max(1, tensor.rank)
            is_free = isinstance(op, Pointwise) and tensor.is_virtual
            found[tensor] = max(own, wanted.get(tensor, own)) if is_free else own
        for tensor in op.operands:
            rank = _rank_for(op, tensor, found)
            wanted[tensor] = max(rank, wanted.get(tensor, rank))
    return {**wanted, **found}


def _rank_for(op: Op, operand: Tensor, ranks: Mapping[Tensor, int]) -> int:
    """The rank that an operation takes an operand of."""
    if isinstance(op, Pointwise):
        return ranks[op.y]
    return op.c.rank if isinstance(op, Matmul) else max(1, operand.rank)


class _Rewriting:
    """ops: those made so far.  places, forms: see `Plain`."""

    def __init__(self, ops: Sequence[Op]):
        self.ops: list[Op] = []
        self.places: dict[Op, Sequence[Op]] = {}
        self.forms: dict[Tensor, Tensor] = {}
        self._ranks = _ranks(ops)
        # Tensor -> one of its rank that it repeats along axes where that has one element.
        self._repeated: dict[Tensor, Tensor] = {}
        self._made: dict[tuple[Tensor, Any], Tensor] = {}
        self._name = ""

    def take(self, op: Op) -> None:
        """Adds what stands for an operation."""
        self._name, before = op.name, len(self.ops)
        if isinstance(op, Pointwise):
            made = self._pointwise(op)
        elif isinstance(op, Matmul):
            made = self._matmul(op)
        else:
            others = {t: self._whole(t, max(1, t.rank)) for t in op.operands}
            made = op.with_tensors({**others, **{t: self._form(t) for t in op.results}})
            if isinstance(made, Transpose):
                self._transpose(made)
            elif isinstance(made, Reshape):
                self._reshape(made)
        self.ops.append(made)
        self.places[op] = self.ops[before:]
        for own in self.places[op]:
            own.made_at = op.made_at

    # ---- operations

    def _pointwise(self, op: Pointwise) -> Pointwise:
        y = self._form(op.y)
        made = copy(op)
        made.y = y
        if op.mode == "gen_index":
            made.axis = (op.axis or 0) + y.rank - op.y.rank
            made.x = self._whole(op.x, y.rank)
            return made
        given = {
            field.name: (self._whole(tensor, y.rank), self._least(tensor, y.rank))
            for field, tensor in op.tensors("operand")
        }
        used = {name: least for name, (_, least) in given.items()}
        if op.mode == "identity":
            if y.shape != used["x"].shape and y.type == used["x"].type:
                self._repeated[y] = used["x"]
        else:
            for name, (whole, _) in given.items():
                if broadcast_dims(tensor.shape for tensor in used.values()) != y.shape:
                    used[name] = whole
        for name, tensor in used.items():
            setattr(made, name, tensor)
        return made

    def _matmul(self, op: Matmul) -> Matmul:
        """Batches may repeat; rows and columns may not."""
        rank = op.c.rank
        made = copy(op)
        made.a, made.b = (self._of_batches(tensor, rank) for tensor in (op.a, op.b))
        for name, tensor in (("a", op.a), ("b", op.b)):
            if broadcast_dims((made.a.shape[:-2], made.b.shape[:-2])) != op.c.shape[:-2]:
                setattr(made, name, self._whole(tensor, rank))
        return made

    def _of_batches(self, tensor: Tensor, rank: int) -> Tensor:
        """An operand of a product with one matrix in place of equal ones."""
        whole, least = self._whole(tensor, rank), self._least(tensor, rank)
        dims = (*least.shape[:-2], *whole.shape[-2:])
        return least if dims == least.shape else self._identity(least, dims)

    def _transpose(self, op: Transpose) -> None:
        """Records that a transposed tensor repeats as the operand does."""
        least = self._repeated.get(op.x)
        if least is not None:
            order = op.permutation
            dims, strides = (
                tuple(sizes[axis] for axis in order) for sizes in (least.shape, least.layout)
            )
            other = op.with_tensors({op.x: least, op.y: self._virtual(least, dims, strides)})
            self.ops.append(other)
            self._repeated[op.y] = other.y

    def _reshape(self, op: Reshape) -> None:
        """Records the same of a tensor that axes of one element are added to or left out of."""
        least = self._repeated.get(op.x)
        if least is None or not op.counts_up:
            return
        before, after = (
            [axis for axis, n in enumerate(tensor.shape) if n != _ONE] for tensor in (op.x, op.y)
        )
        if [op.x.shape[axis] for axis in before] != [op.y.shape[axis] for axis in after]:
            return
        dims = [_ONE] * op.y.rank
        for place, axis in zip(after, before, strict=True):
            dims[place] = least.shape[axis]
        y = self._virtual(least, tuple(dims))
        values: dict[str, Any] = {"reshape_mode": "LOGICAL", "name": op.name}
        self.ops.append(Reshape(x=least, y=y, **values))
        self._repeated[op.y] = y

    # ---- operands

    def _form(self, tensor: Tensor) -> Tensor:
        """The tensor that stands for one: of its rank in this graph, without axes of stride 0."""
        if tensor not in self.forms:
            rank, repeated = self._ranks[tensor], tensor.repeated_axes
            self.forms[tensor] = tensor
            if rank != tensor.rank or repeated:
                dims = [_ONE if axis in repeated else n for axis, n in enumerate(tensor.shape)]
                strides = (*[product(dims)] * (rank - tensor.rank), *_strides(tensor))
                self.forms[tensor] = replace(tensor, dims=with_rank(dims, rank), strides=strides)
        return self.forms[tensor]

    def _whole(self, tensor: Tensor, rank: int) -> Tensor:
        """A tensor with each of its elements, of a rank."""
        whole = self._of_rank(self._form(tensor), rank)
        dims = self._dims(tensor, rank)
        return whole if whole.shape == dims else self._identity(whole, dims)

    def _least(self, tensor: Tensor, rank: int) -> Tensor:
        """One that a tensor repeats, of a rank, or the tensor itself."""
        form = self._form(tensor)
        return self._of_rank(self._repeated.get(form, form), rank)

    @staticmethod
    def _dims(tensor: Tensor, rank: int) -> tuple[Expr, ...]:
        """The dims of a tensor in another rank, which leaves out or adds leading ones of 1."""
        return with_rank(tensor.shape, rank) if rank >= tensor.rank else tensor.shape[-rank:]

    def _of_rank(self, form: Tensor, rank: int) -> Tensor:
        if form.rank == rank:
            return form
        key = (form, rank)
        if key not in self._made:
            dims = self._dims(form, rank)
            if form.is_constant:
                self._made[key] = replace(form, uid=None, dims=dims, strides=dims)
            else:
                self._made[key] = self._virtual(form, dims)
                values: dict[str, Any] = {"reshape_mode": "LOGICAL", "name": self._name}
                self.ops.append(Reshape(x=form, y=self._made[key], **values))
        return self._made[key]

    def _identity(self, x: Tensor, dims: tuple[Expr, ...]) -> Tensor:
        """A tensor of larger dims that repeats one."""
        key = (x, dims)
        if key not in self._made:
            y = self._made[key] = self._virtual(x, dims)
            self._repeated[y] = x
            values: dict[str, Any] = {"mode": "identity", "name": self._name}
            self.ops.append(Pointwise(x=x, y=y, **values))
        return self._made[key]

    @staticmethod
    def _virtual(
        like: Tensor, dims: tuple[Expr, ...], strides: tuple[Expr, ...] | None = None
    ) -> Tensor:
        return Tensor(
            dims=dims, strides=strides or packed_strides(dims), dtype=like.type, is_virtual=True
        )


def _strides(tensor: Tensor) -> tuple[Expr, ...]:
    """Strides of a form: along an axis that has one element now, as if what lies inside it were
    packed."""
    found = list(tensor.layout)
    inside = _ONE
    for axis in reversed(range(tensor.rank)):
        if axis in tensor.repeated_axes:
            found[axis] = inside
        elif tensor.shape[axis].constant != 1:
            inside = tensor.shape[axis] * found[axis]
    return tuple(found)
