"""Pointwise work across reshapes, over axes that are fine enough for all tensors.

A reshape that merges or splits axes leaves tensors that no loop goes through together: with
C = 32 * a + b, x of [N, C/32, 32, H, W] is read at [n, c // 32, c % 32, h, w].  Where lengths are
fixed, axes are cut wherever one of the tensors has them cut:

    x [N, C/32, 32, H, W]  --reshape-->  y [N, C, H, W]
->  x [N, C/32, 32, H, W]  --reshape-->  y [N, C/32, 32, H, W], of strides to match

so that each axis of a tensor follows one of another, as in a transpose.  Rows of a few bytes that
are moved as they are become single elements: [.., 4] of i8 is [..] of i32.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ... import dtypes
from ...dialect.fusion import Fusion
from ...dialect.op import Op
from ...dialect.ops import Pointwise, Reshape, Transpose
from ...dialect.ops.views import View, coordinates
from ...dialect.patterns import FusionPattern
from ...dialect.tensor import MAX_RANK, Tensor
from ...expr import Expr, product

_Axis = tuple[Tensor, int]
# Axis -> the lengths that it is cut into rows of: 32 where [C] becomes [C/32, 32].
_Cuts = Mapping[_Axis, set[int]]

_WIDE = {32: dtypes.i32, 64: dtypes.i64}  # what stands for a row of so many bits
_MOST_RESHAPES = 8  # in a row, through each of which coordinates get longer


# ---- axes


@dataclass(frozen=True)
class _Tie:
    """An axis that is gone through together with one or more others, outermost first."""

    one: _Axis
    many: tuple[_Axis, ...]

    @property
    def inner(self) -> list[int | None]:
        """How many elements lie inside a step along each of the many; None: no fixed number."""
        extents = [tensor.shape[axis] for tensor, axis in self.many]
        return [product(extents[place + 1 :]).constant for place in range(len(extents))]


class _Uncut(Exception):
    """Axes that can't be cut alike."""


def _with_finer_axes(fusion: Fusion) -> Fusion | None:
    """Pointwise work across reshapes and transposes is over axes that all of its tensors have."""
    if not any(isinstance(op, Reshape) for op in fusion.ops):
        return None
    try:
        cuts = _spread([tie for op in fusion.ops for tie in _ties(op)])
        cut = {axis for axis, lengths in cuts.items() if lengths}
        others = {t: _finer(t, cuts) for t in fusion.tensors if any(t is own for own, _ in cut)}
        ops = tuple(_finer_op(op, others, cuts) for op in fusion.ops)
    except _Uncut:
        return None
    outputs = [others.get(tensor, tensor) for tensor in fusion.outputs]
    return fusion.with_ops(ops, outputs) if others else None


def _ties(op: Op) -> list[_Tie]:
    """Which axes of an operation's tensors go together."""
    if isinstance(op, Pointwise) and op.mode != "gen_index":
        return [
            _Tie((op.y, axis), ((tensor, axis),))
            for tensor in op.operands
            for axis in range(op.y.rank)
        ]
    if isinstance(op, Transpose):
        pairs = enumerate(op.permutation)
        return [_Tie((op.y, axis), ((op.x, own),)) for axis, own in pairs]
    if isinstance(op, Reshape):
        return [_tie_of_runs(op, *run) for run in op.runs()]
    raise _Uncut


def _tie_of_runs(op: Reshape, x_axes: Sequence[int], y_axes: Sequence[int]) -> _Tie:
    x, y = [(op.x, axis) for axis in x_axes], [(op.y, axis) for axis in y_axes]
    if len(x) == 1:
        return _Tie(x[0], tuple(y))
    if len(y) == 1:
        return _Tie(y[0], tuple(x))
    raise _Uncut


def _spread(ties: Sequence[_Tie]) -> _Cuts:
    """The cuts of all axes, those of one where it goes together with another."""
    cuts: dict[_Axis, set[int]] = defaultdict(set)
    while True:
        before = sum(map(len, cuts.values()))
        for tie in ties:
            _cut_alike(tie, cuts)
        if sum(map(len, cuts.values())) == before:
            return cuts


def _cut_alike(tie: _Tie, cuts: dict[_Axis, set[int]]) -> None:
    inner = tie.inner
    for axis, length in zip(tie.many, inner, strict=True):
        if length is None:
            raise _Uncut
        cuts[tie.one] |= {length * own for own in (1, *cuts[axis]) if length * own > 1}
    places = list(zip(tie.many, inner, strict=True))
    for cut in cuts[tie.one]:
        # The first axis a step along which is no longer than the row.
        axis, length = next((a, n) for a, n in places if n is not None and n <= cut)
        if cut % length:
            raise _Uncut
        if cut > length:
            cuts[axis].add(cut // length)


def _lengths(axis: _Axis, cuts: _Cuts) -> list[int]:
    """Lengths of the rows that an axis is cut into, longest first; each is whole rows of the
    next."""
    tensor, place = axis
    found = sorted(cuts.get(axis, ()), reverse=True)
    extent = tensor.shape[place]
    sizes = [extent.known_divisor() if extent.constant != 1 else 0, *found]
    if any(outer % inner for outer, inner in pairwise(sizes)):
        raise _Uncut
    return found


def _finer(tensor: Tensor, cuts: _Cuts) -> Tensor:
    dims: list[Expr] = []
    strides: list[Expr] = []
    for axis, (extent, stride) in enumerate(zip(tensor.shape, tensor.layout, strict=True)):
        lengths = [*_lengths((tensor, axis), cuts), 1]
        is_one = extent.constant == 1
        dims.append(extent if is_one else extent // lengths[0])
        for outer, inner in pairwise(lengths):
            dims.append(Expr.of(1 if is_one else outer // inner))
        strides += [stride * length for length in lengths]
    if len(dims) > MAX_RANK:
        raise _Uncut
    return replace(tensor, dims=tuple(dims), strides=tuple(strides))


def _finer_op(op: Op, others: Mapping[Tensor, Tensor], cuts: _Cuts) -> Op:
    made = op.with_tensors(others)
    if isinstance(op, Transpose) and isinstance(made, Transpose):
        counts = [1 + len(_lengths((op.x, axis), cuts)) for axis in range(op.x.rank)]
        firsts = [sum(counts[:axis]) for axis in range(op.x.rank)]
        made.permutation = tuple(
            firsts[axis] + part for axis in op.permutation for part in range(counts[axis])
        )
    return made


# ---- elements


def _with_wide_elements(fusion: Fusion) -> Fusion | None:
    """Elements are moved by whole rows of a few bytes that both tensors have."""
    if not all(map(_moves, fusion.ops)) or len(fusion.inputs) != 1 or len(fusion.outputs) != 1:
        return None
    if sum(isinstance(op, Reshape) for op in fusion.ops) > _MOST_RESHAPES:
        return None
    (x,), (y,) = fusion.inputs, fusion.outputs
    strides = _strides_along(fusion, x, y)
    if strides is None or x.is_by_value:
        return None
    source = replace(x, dims=y.dims, strides=strides)
    row = _short_row(source, y)
    if row is None:
        return None
    wide = [_of_rows(tensor, row) for tensor in (source, y)]
    moved = Reshape(x=wide[0], y=wide[1], reshape_mode="LOGICAL")
    return fusion.with_ops([moved], [wide[1]])


def _moves(op: Op) -> bool:
    if isinstance(op, Pointwise):
        is_whole = op.mode == "identity" and op.x.shape == op.y.shape
        return is_whole and op.x.type == op.y.type
    return isinstance(op, Reshape | Transpose)


def _strides_along(fusion: Fusion, x: Tensor, y: Tensor) -> tuple[Expr, ...] | None:
    """Strides of x along y's axes; None: they are no fixed ones."""
    at = coordinates(y.shape)
    place, tensor = at, y
    while tensor is not x:
        op = fusion.producers[tensor]
        place = op.source(place) if isinstance(op, View) else place
        (tensor,) = op.operands
    strides = [Expr.of(1)] * y.rank
    for own, coordinate in enumerate(place):
        if coordinate.constant == 0:
            continue
        if coordinate not in at or x.shape[own] != y.shape[at.index(coordinate)]:
            return None
        strides[at.index(coordinate)] = x.layout[own]
    return tuple(strides)


def _short_row(x: Tensor, y: Tensor) -> int | None:
    """The axis of rows, in both tensors, that a few bytes make; None: there is none, or elements
    beyond a row lie next to it in both."""
    axes = [axis for axis, extent in enumerate(y.shape) if extent.constant != 1]
    units = [axis for axis in axes if x.layout[axis].constant == y.layout[axis].constant == 1]
    if len(units) != 1:
        return None
    (row,) = units
    extent = y.shape[row].constant or 0
    if extent * y.type.bits not in _WIDE or y.type.kind == "b":
        return None
    for tensor in (x, y):
        steps = [tensor.layout[axis].known_divisor() for axis in axes if axis != row]
        bytes_ = extent * tensor.type.bits // 8
        if any(step % extent for step in steps) or tensor.alignment % bytes_:
            return None
    goes_on = any(x.layout[axis].constant == y.layout[axis].constant == extent for axis in axes)
    return None if goes_on else row


def _of_rows(tensor: Tensor, row: int) -> Tensor:
    """A tensor whose elements are the rows along an axis of a fixed length."""
    extent = tensor.shape[row]
    dims = (*tensor.shape[:row], Expr.of(1), *tensor.shape[row + 1 :])
    strides = [
        Expr.of(1) if n.constant == 1 else stride // extent
        for n, stride in zip(dims, tensor.layout, strict=True)
    ]
    dtype = _WIDE[(extent.constant or 0) * tensor.type.bits]
    offset = tensor.offset // (extent.constant or 1)
    return replace(tensor, dims=dims, strides=tuple(strides), dtype=dtype, offset=offset)


# What engines that go through views look at: a reshape is then a transpose.
REFINED = (
    FusionPattern(_with_finer_axes, "finer-axes"),
    FusionPattern(_with_wide_elements, "wide-elements"),
)
