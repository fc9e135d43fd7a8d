"""Views at the borders of a fusion: they are strides of what it loads and stores.

    x [B*S, H*D] in memory --reshape--> --transpose--> [B, H, S, D] --> product
->  x [B, H, S, D] of strides [S*H*D, D, H*D, 1] ---------------------> product

    product [B*S, N] --reshape--> [B, S, N] --add r [B, S, N]--> y [B, S, N] in memory
->  product [B*S, N] --add r [B*S, N]--> y [B*S, N]

What is loaded or stored keeps its uid, hence its memory.  Views behind a product sink below the
pointwise work and the reductions that follow.  Of a matmul's result an output may be some columns,
or have axes that count through its rows or columns together: one slice and one reshape at the end
then say where it lies (`stored_parts`).  A view stays an operation where neither says what it does,
and in fusions without a product, whose engines walk through views.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from .. import dtypes
from ..expr import Expr
from .fusion import Fusion
from .op import Op
from .ops.conv import Convolution
from .ops.matmul import Matmul
from .ops.moe_grouped_matmul import MoeGroupedMatmul
from .ops.pointwise import Pointwise
from .ops.reduction import Reduction
from .ops.views import Reshape, Slice, Transpose, View
from .patterns import FusionPattern
from .stored_parts import stored_part
from .tensor import Tensor, packed_strides

_ONE = Expr.of(1)
_Dims = tuple[Expr, ...]
# A view, and the one of the graph that it is for: of narrower tensors, it may have dims of 1.
_Step = tuple[View, View]
_Chain = tuple[_Step, ...]
_Parts = tuple[tuple[Op, ...], tuple[Tensor, ...]]  # operations and outputs of a fusion


def _at_borders(fusion: Fusion) -> Fusion | None:
    """Views at the borders of a product's fusion are strides of what it loads and stores."""
    ops, outputs = fusion.ops, fusion.outputs
    if not any(map(_is_product, ops)) or not any(map(_is_view, ops)):
        return None
    is_attention = _is_attention(ops)
    loaded = _loaded(ops, outputs, is_attention)
    stored = _Sinking(loaded, outputs, is_attention).result()
    if stored is not None:
        return fusion.with_ops(*stored)
    return None if len(loaded) == len(ops) else fusion.with_ops(loaded)


def _is_product(op: Op) -> bool:
    return isinstance(op, Matmul | MoeGroupedMatmul | Convolution)


def _is_view(op: Op) -> bool:
    return type(op) in (Transpose, Slice, Reshape)


def _is_attention(ops: Sequence[Op]) -> bool:
    """Whether a product reads what is made of another one."""
    made = set[Tensor]()
    for op in ops:
        is_after = not made.isdisjoint(op.operands)
        if isinstance(op, Matmul) and is_after:
            return True
        if is_after or isinstance(op, Matmul):
            made.update(op.results)
    return False


def _keeps_matrices(op: View) -> bool:
    """Whether a view is one that engines of attention look for: it exchanges the last two axes,
    splits and joins others, or has rows of heads follow each other."""
    if isinstance(op, Transpose):
        rank = op.x.rank
        return op.permutation == (*range(rank - 2), rank - 1, rank - 2)
    if not isinstance(op, Reshape):
        return False
    return (op.x.shape[-2:] == op.y.shape[-2:] and op.counts_up) or op.joins_heads


# ---- what is loaded


def _loaded(ops: Sequence[Op], outputs: Sequence[Tensor], is_attention: bool) -> list[Op]:
    """The operations on what views of tensors in memory are, without these views."""
    made = {tensor for op in ops for tensor in op.results}
    seen: dict[Tensor, Tensor] = {}
    found: list[Op] = []
    for op in ops:
        is_kept = isinstance(op, View) and is_attention and _keeps_matrices(op)
        if isinstance(op, View) and _is_view(op) and not is_kept:
            source = seen.get(op.x) or (None if op.x in made else op.x)
            if source is not None and (view := _seen_through(op, source)) is not None:
                seen[op.y] = view
            # Where this view stays, so do those ahead of it.
            found.append(op)
        else:
            found.append(op.with_tensors(_of(seen, op)) if _of(seen, op) else op)
    needed = {t for op in found if not (_is_view(op) and op.results[0] in seen)
              for t in op.operands} | {*outputs}  # fmt: skip
    kept: list[Op] = []
    for op in reversed(found):
        if op.results[0] not in seen or op.results[0] in needed:
            kept.append(op)
            needed.update(op.operands)
    return kept[::-1]


def _of(others: Mapping[Tensor, Tensor], op: Op) -> dict[Tensor, Tensor]:
    return {tensor: others[tensor] for tensor in op.operands if tensor in others}


def _seen_through(op: View, x: Tensor) -> Tensor | None:
    """Memory as a view's result sees it; x: as its operand does."""
    if not _has_plain_memory(x) or x.type != op.y.type:
        return None
    strides, offset = _strides_behind(op, x.layout), x.offset
    if isinstance(op, Slice):
        steps = zip(x.layout, op.starts, strict=True)
        start = sum((stride * first for stride, first in steps), Expr.of(0)).constant
        if start is None or (start and x.type.kind == "b"):
            return None
        offset += start
    if strides is None:
        return None
    alignment = math.gcd(x.alignment, (offset - x.offset) * x.type.bits // 8)
    return replace(
        x, dims=op.y.shape, strides=strides, offset=offset, alignment=alignment, name=op.y.name
    )


def _has_plain_memory(tensor: Tensor) -> bool:
    return (
        not tensor.is_constant
        and tensor.prior_of is None
        and tensor.reordering == "NONE"
        and tensor.ragged_offset is None
    )


# ---- strides


def _strides_behind(op: View, strides: _Dims) -> _Dims | None:
    """Strides of a view's result over memory in which the operand has some; None: none are so."""
    if isinstance(op, Transpose):
        return tuple(strides[axis] for axis in op.permutation)
    if isinstance(op, Slice):
        return tuple(s * step for s, step in zip(strides, op.steps, strict=True))
    assert isinstance(op, Reshape), op.label
    return _across([(x, y) for x, y in op.runs()], op.x.shape, strides, op.y.shape)


def _ahead(op: View, dims: _Dims, strides: _Dims | None = None) -> tuple[_Dims, _Dims] | None:
    """Dims, and strides, ahead of a transpose or reshape of something that has some behind it: its
    result's dims, or 1 along an axis.  None: no dims or strides are so.  strides: None for packed
    ones of the dims that are found."""
    if isinstance(op, Transpose):
        place = sorted(range(op.x.rank), key=op.permutation.__getitem__)
        found = tuple(dims[axis] for axis in place)
        known = strides and tuple(strides[axis] for axis in place)
        return found, known or packed_strides(found)
    assert isinstance(op, Reshape), op.label
    found_dims, whole = [_ONE] * op.x.rank, list[tuple[list[int], list[int]]]()
    for x_run, y_run in op.runs():
        is_whole = all(dims[axis] == op.y.shape[axis] for axis in y_run)
        if not is_whole and any(dims[axis].constant != 1 for axis in y_run):
            return None
        if is_whole:
            whole.append((y_run, x_run))
            for axis in x_run:
                found_dims[axis] = op.x.shape[axis]
    found = tuple(found_dims)
    if strides is None:
        return found, packed_strides(found)
    known = _across(whole, dims, strides, found)
    return None if known is None else (found, known)


def _across(
    runs: Sequence[tuple[list[int], list[int]]], dims: _Dims, strides: _Dims, others: _Dims
) -> _Dims | None:
    """Strides along other axes of memory whose axes have some dims and strides; None: a run of
    axes has no one step.  runs: pairs of axes that hold the same elements, of both."""
    found: dict[int, Expr] = {}
    for own, other in runs:
        for outer, inner in pairwise(own):
            if strides[outer] != strides[inner] * dims[inner]:
                return None
        if not own or not other:
            return None
        step = strides[own[-1]]
        for axis in reversed(other):
            found[axis] = step
            step = step * others[axis]
    # Along an axis of 1: as if what lies inside it were packed.
    inside, made = _ONE, list[Expr]()
    for axis in reversed(range(len(others))):
        if axis in found:
            inside = others[axis] * found[axis]
        made.append(found.get(axis, inside))
    return tuple(made[::-1])


# ---- what is stored


class _CannotSink(Exception):
    """A view can't sink below an operation, or no strides store what it gives."""


class _Sinking:
    """Views behind products, moved below what follows until they reach the outputs."""

    def __init__(self, ops: Sequence[Op], outputs: Sequence[Tensor], is_attention: bool):
        self.given, self.outputs, self.is_attention = ops, outputs, is_attention
        self.made = {tensor for op in ops for tensor in op.results}
        self.ops: list[Op] = []
        # A tensor behind views -> the one ahead of them, and the views.
        self.sunk: dict[Tensor, tuple[Tensor, _Chain]] = {}
        self.stored: dict[Tensor, Tensor] = {}
        # A tensor that is stored in parts -> the one that the parts are of.
        self.parted: dict[Tensor, Tensor] = {}
        heavy = list(filter(_is_product, ops))
        self.has_parts = not is_attention and all(isinstance(op, Matmul) for op in heavy)

    def result(self) -> _Parts | None:
        """The operations and outputs; None: no view sinks, or one of those that do gets stuck."""
        heavy = set[Tensor]()
        try:
            for op in self.given:
                if _is_product(op) or not heavy.isdisjoint(op.operands):
                    heavy.update(op.results)
                    self._take(op)
                else:
                    self.ops.append(op)
            if not self.sunk:
                return None
            outputs = tuple(map(self._output, self.outputs))
        except _CannotSink:
            return None
        ops = (op.with_tensors(self.stored) for op in self.ops)
        return tuple(ops), outputs

    def _take(self, op: Op) -> None:
        if isinstance(op, View) and _is_view(op) and self._sinks(op):
            base, chain = self.sunk.get(op.x, (op.x, ()))
            self.sunk[op.y] = base, (*chain, (op, op))
        elif not any(tensor in self.sunk for tensor in op.operands):
            self.ops.append(op)
        elif isinstance(op, Reduction) and op.index is None:
            self._below(op, op.y)
        elif isinstance(op, Pointwise) and op.mode != "gen_index":
            self._below(op, op.y)
        else:
            raise _CannotSink

    def _sinks(self, op: View) -> bool:
        if not all(map(_has_plain_memory, (op.x, op.y))):
            return False
        if isinstance(op, Slice) and not self.has_parts:
            return False
        return op.x in self.sunk or not (self.is_attention and _keeps_matrices(op))

    def _below(self, op: Pointwise | Reduction, y: Tensor) -> None:
        """Adds an operation on what lies ahead of views, which go behind it."""
        chain = next(self.sunk[t][1] for t in op.operands if t in self.sunk)
        origins = [origin for _, origin in chain]
        if any(isinstance(origin, Slice) for origin in origins):
            raise _CannotSink
        others = {tensor: self._ahead_of(origins, tensor) for tensor in op.operands}
        dims, behind = y.shape, list[_Step]()
        for origin in reversed(origins):
            found = _ahead(origin, dims)
            if found is None:
                raise _CannotSink
            narrowed = origin if dims == origin.y.shape else _narrowed(origin, found[0], dims)
            behind.append((narrowed, origin))
            dims = found[0]
        base = _virtual(y, dims)
        self.ops.append(op.with_tensors({**others, y: base}))
        self.sunk[y] = base, tuple(behind[::-1])

    def _ahead_of(self, origins: Sequence[View], tensor: Tensor) -> Tensor:
        """An operand of an operation below views, for one above them."""
        if tensor in self.sunk:
            base, chain = self.sunk[tensor]
            if [_key(origin) for _, origin in chain] != list(map(_key, origins)):
                raise _CannotSink
            return base
        if tensor not in self.made:
            return _ahead_in_memory(origins, tensor)
        for origin in reversed(origins):
            found = _ahead(origin, tensor.shape)
            if found is None:
                raise _CannotSink
            y = _virtual(tensor, found[0])
            self.ops.append(_inverted(origin, tensor, y))
            tensor = y
        return tensor

    def _output(self, y: Tensor) -> Tensor:
        """The tensor that is stored in an output's memory."""
        if y not in self.sunk:
            return y
        base, chain = self.sunk[y]
        if not _has_plain_memory(y):
            raise _CannotSink
        found: tuple[_Dims, _Dims] | None = y.shape, y.layout
        for step, _ in reversed(chain):
            if found is not None:
                found = None if isinstance(step, Slice) else _ahead(step, *found)
        if found is None:
            return self._part(y, base, [step for step, _ in chain])
        if not self._is_stored_in_rows(*found):
            raise _CannotSink
        return self._whole(y, base, *found)

    def _whole(self, y: Tensor, base: Tensor, dims: _Dims, strides: _Dims) -> Tensor:
        """A tensor that is stored with some strides in an output's memory."""
        stored = replace(y, dims=dims, strides=strides)
        if base in self.stored or base in self.outputs or base in self.parted:
            self.ops.append(_copy(base, stored))
        else:
            self.stored[base] = stored
        return stored

    def _part(self, y: Tensor, base: Tensor, views: Sequence[View]) -> Tensor:
        """The tensor that is stored in the memory of an output that is a part of the product's
        columns, or along whose axes several count through one of the product's."""
        if not self.has_parts or y.is_virtual or y.type.kind == "b":
            raise _CannotSink
        part = stored_part(base.shape, views, y.layout)
        if part is None or not self._has_parts_in_rows(part.digits):
            raise _CannotSink
        flat = [digit for digits in part.digits for digit in digits]
        dims, strides = (tuple(each) for each in zip(*flat, strict=True))
        if dims == base.shape:
            return self._whole(y, base, dims, strides)
        if base not in self.parted:
            self.parted[base] = base
            if base in self.stored or base in self.outputs:
                self.parted[base] = _virtual(base, base.shape)
                self.ops.append(_copy(base, self.parted[base]))
        x, stored = self.parted[base], replace(y, dims=dims, strides=strides)
        if part.columns != x.shape[-1]:
            is_last = len(dims) == x.rank
            cut = stored if is_last else _virtual(y, (*x.shape[:-1], part.columns))
            ahead = x.rank - 1
            starts, stops = (*(0,) * ahead, part.start), (*(-1,) * ahead, part.end)
            self._append_view(Slice(x=x, y=cut, starts=starts, stops=stops, steps=(1,) * x.rank), y)
            x = cut
        if x is not stored:
            self._append_view(Reshape(x=x, y=stored, reshape_mode="LOGICAL"), y)
        return stored

    def _append_view(self, made: View, y: Tensor) -> None:
        made.name, made.made_at = y.name, y.made_at
        self.ops.append(made)

    def _has_parts_in_rows(self, digits: Sequence[Sequence[tuple[Expr, Expr]]]) -> bool:
        """Whether neighbours in memory, if there are any, are of one row or column."""
        places = [(axis, place) for axis, own in enumerate(digits) for place, (extent, stride)
                  in enumerate(own) if stride.constant == 1 and extent.constant != 1]  # fmt: skip
        inner = {(axis, len(digits[axis]) - 1) for axis in (len(digits) - 2, len(digits) - 1)}
        return set(places) <= inner

    def _is_stored_in_rows(self, dims: _Dims, strides: _Dims) -> bool:
        """Whether elements that lie side by side are of one row or column of a product, of one
        row of an attention's result, or of one image: a tile has some of them."""
        axes = range(len(dims))
        units = {a for a in axes if strides[a].constant == 1 and dims[a].constant != 1}
        rows = axes[-1:] if self.is_attention else axes[-2:]
        if any(isinstance(op, Convolution) for op in self.given):
            rows = axes[1:]
        return not units or not units.isdisjoint(rows)


def _key(op: View) -> Any:
    """Equal for views that do the same."""
    how = repr(op.runs()) if isinstance(op, Reshape) else getattr(op, "permutation", ())
    return type(op), op.x.shape, op.y.shape, how


def _virtual(like: Tensor, dims: _Dims) -> Tensor:
    return Tensor(
        name=like.name, dims=dims, strides=packed_strides(dims), dtype=like.dtype, is_virtual=True
    )


def _ahead_in_memory(origins: Sequence[View], tensor: Tensor) -> Tensor:
    """A tensor in memory, or a number, as an operation ahead of views reads it."""
    if tensor.elements().constant == 1:
        ones = (_ONE,) * origins[0].x.rank
        uid = None if tensor.is_constant else tensor.uid
        return replace(tensor, uid=uid, dims=ones, strides=ones)
    if not _has_plain_memory(tensor):
        raise _CannotSink
    dims, strides = tensor.shape, tensor.layout
    for origin in reversed(origins):
        found = _ahead(origin, dims, strides)
        if found is None:
            raise _CannotSink
        dims, strides = found
    return replace(tensor, dims=dims, strides=strides)


def _is_row_major(op: View) -> bool:
    """Whether a reshape keeps the order in which indices count up."""
    assert isinstance(op, Reshape), op.label
    x = [axis for run, _ in op.runs() for axis in run]
    y = [axis for _, run in op.runs() for axis in run]
    return x == sorted(x) and y == sorted(y)


def _narrowed(origin: View, x_dims: _Dims, y_dims: _Dims) -> View:
    """A view of tensors that have some axes of one element only."""
    x, y = _virtual(origin.x, x_dims), _virtual(origin.y, y_dims)
    return _between(origin, x, y, getattr(origin, "permutation", ()))


def _inverted(origin: View, x: Tensor, y: Tensor) -> View:
    """The view that undoes one, for another tensor."""
    order = getattr(origin, "permutation", ())
    return _between(origin, x, y, tuple(sorted(range(len(order)), key=order.__getitem__)))


def _between(origin: View, x: Tensor, y: Tensor, permutation: tuple[int, ...]) -> View:
    values: dict[str, Any] = {"x": x, "y": y, "name": origin.name}
    if isinstance(origin, Transpose):
        made: View = Transpose(permutation=permutation, **values)
    elif _is_row_major(origin):
        made = Reshape(reshape_mode="LOGICAL", **values)
    else:
        raise _CannotSink
    made.made_at = origin.made_at
    return made


def _copy(x: Tensor, y: Tensor) -> Pointwise:
    """The operation that stores a tensor a second time."""
    if not x.type.is_float and x.type.bits != 8:
        raise _CannotSink  # no float holds every number
    compute = dtypes.f64 if x.type == dtypes.f64 else dtypes.f32
    values: dict[str, Any] = {"mode": "identity", "x": x, "y": y, "compute_type": compute}
    return Pointwise(**values)


# Patterns of every fusion, which engines see without such views (`Fusion.of_graph`).
BORDER_VIEWS = (FusionPattern(_at_borders, "border-views"),)
