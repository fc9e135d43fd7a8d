# pyright: basic
"""Convolution and its gradients as linalg: one sum of products over the windows of a filter.

Forward, each element of Y sums over the filter's taps, and the channels of each:

    %y = linalg.generic {indexing_maps = [(n, k, p, q, r, s, c) -> (k, c, r, s), ...
                                          -> (n, k, p, q)],
            iterator_types = [parallel x 4, reduction x 3]} ins(%w) outs(%zero)
         { %h = p * stride - pre + r * dilation; ...;
           tensor.extract %x[n, c, clamp %h, clamp %w]; select of 0 outside; math.fma ... }

The gradients are the same sum with other loops, see `dialect.window_contraction`: the loops are the
indices of the result, then those that are summed over.  An operand all of whose axes are loops is
read by an indexing map; elements of the others are extracted, at places that follow from the loops.

Padding is zeros that are multiplied like any other element: an infinite tap on it gives NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import dtypes
from ..codegen.scalars.scalar import Scalars, accumulation_type, constant, convert, element_type
from ..dialect import structure
from ..dialect.ops.conv import Convolution
from ..dialect.tensor import Tensor, packed_strides
from ..dialect.window_contraction import AXES, SPATIAL
from ..dtypes import DType
from ..expr import Expr
from ..mlir import arith, ir, linalg, tensor
from .linalg_anchor import call_anchor, cast_from
from .linalg_index import SpatialSizes, all_of, clamped, divided, index_of, scaled, within
from .linalg_lowering import Lowering


def convolution(low: Lowering, op: Convolution) -> None:
    """Puts the value of the result in `low`."""
    sums = accumulation_type(op.compute_type)
    result = call_anchor(low, op, sums, _sums)
    low.values[op.results[0]] = cast_from(low, result, op.results[0], sums, op.compute_type)


def _sums(low: Lowering, op: Convolution, sums: DType, *operands: Any) -> Any:
    """The sums of the result in a type, of the values of the operands."""
    roles, made = op.contraction, op.results[0]
    values = dict(zip(roles.operands, operands, strict=True))
    loops = _Loops.of(op)
    moved, other = op.tensor(roles.moved), op.tensor(roles.other)
    mapped = loops.map_of(roles.other)
    if mapped is None:
        read = (_extents(low, op, loops), loops.summed_map)
    else:
        read = (values[roles.other], mapped)
    scalars, windows = Scalars(sums), _Windows(low, op)

    def body(element: Any, total: Any) -> Any:
        at = _Indices(op, loops)
        places, inside, is_read = windows.places(at)
        value = tensor.ExtractOp(values[roles.moved], [*at.channels(roles.moved), *places]).result
        value = convert(value, moved.type, sums)
        if inside is not None:
            value = arith.SelectOp(inside, value, scalars.const(0)).result
        if mapped is None:
            source = [*at.channels(roles.other), *at.loop(AXES[roles.other][2])]
            element = tensor.ExtractOp(values[roles.other], source).result
        added = scalars.fma(value, convert(element, other.type, sums), total)
        return added if is_read is None else arith.SelectOp(is_read, added, total).result

    return low.generic(
        made,
        sums,
        [read],
        body,
        init=low.filled(made, sums, 0),
        output_map=loops.map_of(roles.result),
        iterators=["parallel"] * made.rank + ["reduction"] * (loops.count - made.rank),
    )


@dataclass(frozen=True)
class _Loops:
    """The loops of a convolution: index -> its loops, several of a spatial one."""

    axes: dict[str, list[int]]
    count: int
    summed: list[int]

    @staticmethod
    def of(op: Convolution) -> _Loops:
        spatial, axes, count = op.image.rank - 2, dict[str, list[int]](), 0
        for name in (*AXES[op.contraction.result], *op.contraction.summed):
            size = spatial if name in SPATIAL else 1
            axes[name] = list(range(count, count + size))
            count += size
        summed = [loop for name in op.contraction.summed for loop in axes[name]]
        if op.groups == 1:
            for name in ("channel", "filter"):
                own = f"own_{name}"
                found = axes.get(name) or axes.get(own)
                if found:
                    axes[name] = axes[own] = found
        return _Loops(axes, count, summed)

    def map_of(self, role: str) -> Any:
        """The indexing map of a tensor; None: not all of its axes are loops."""
        if any(name not in self.axes for name in AXES[role]):
            return None
        loops = [loop for name in AXES[role] for loop in self.axes[name]]
        return self._map(loops)

    @property
    def summed_map(self) -> Any:
        return self._map(self.summed)

    def _map(self, loops: Sequence[int]) -> Any:
        return ir.AffineMap.get(self.count, 0, [ir.AffineExpr.get_dim(loop) for loop in loops])


def _extents(low: Lowering, op: Convolution, loops: _Loops) -> Any:
    """A tensor whose dims are the sizes of the summed loops; its elements are not used.

    Only sums over taps and the filters of a group need it.
    """
    dims = (*op.filter.shape[2:], Expr.of(op.k_group))
    assert len(dims) == len(loops.summed), f"{op.label} sums over {loops.summed}"
    like = Tensor(dims=dims, strides=packed_strides(dims), dtype=dtypes.i1)
    return low.generic(like, dtypes.i1, [], lambda: constant(0, element_type(dtypes.i1)))


class _Indices:
    """Values of the indices, inside a body."""

    def __init__(self, op: Convolution, loops: _Loops):
        self.op, self.loops = op, loops
        self.values = [linalg.IndexOp(loop).result for loop in range(loops.count)]

    def loop(self, name: str) -> list[Any]:
        """The values of an index that has loops."""
        return [self.values[loop] for loop in self.loops.axes[name]]

    def channels(self, role: str) -> list[Any]:
        """The values of a tensor's first two indices, that of channels from its group's if need
        be."""
        first, second, _ = AXES[role]
        return [self._single(first), self._single(second)]

    def _single(self, name: str) -> Any:
        if name in self.loops.axes:
            return self.loop(name)[0]
        c, k = self.op.c_group, self.op.k_group
        if name == "own_channel":  # of a channel of the image
            channel = self.loop("channel")[0]
            return arith.RemUIOp(channel, index_of(c)).result
        own, of, sizes = {
            "channel": ("own_channel", "filter", (k, c)),
            "filter": ("own_filter", "channel", (c, k)),
        }[name]
        group = divided(self.loop(of)[0], sizes[0])
        return arith.AddIOp(scaled(group, sizes[1]), self.loop(own)[0]).result


class _Windows:
    """Where taps lie, along each spatial axis; made outside the body."""

    def __init__(self, low: Lowering, op: Convolution):
        self.op = op
        self.sizes = SpatialSizes(low, op.tensor(op.contraction.moved))
        self.last_taps = [
            structure.emit_size(taps - 1, low.symbols)
            if taps.constant is None and self._is_flipped
            else None
            for taps in op.filter.shape[2:]
        ]

    @property
    def _is_flipped(self) -> bool:
        return self.op.convolution_mode == "CONVOLUTION"

    def places(self, at: _Indices) -> tuple[list[Any], Any, Any]:
        """(the places of the operand that moves, kept inside; whether they were inside; whether
        there are such places at all); None: always."""
        find = self._pixel if self.op.contraction.follows == "pixel" else self._output
        places, inside, is_read = [], [], []
        for axis in range(self.op.image.rank - 2):
            place, may_be_outside, is_whole = find(at, axis)
            if may_be_outside:
                inside.append(within(place, self.sizes.extents[axis]))
                place = clamped(place, self.sizes.lasts[axis])
            if is_whole is not None:
                is_read.append(is_whole)
            places.append(place)
        return places, all_of(inside), all_of(is_read)

    def _pixel(self, at: _Indices, axis: int) -> tuple[Any, bool, Any]:
        """The pixel of a tap and an output."""
        pre = self.op.pre_padding[axis]
        reach = self._reach(at, axis)
        start = scaled(at.loop("output")[axis], self.op.stride[axis], -pre)
        place = arith.AddIOp(start, reach).result
        return place, bool(pre or self.op.post_padding[axis]), None

    def _output(self, at: _Indices, axis: int) -> tuple[Any, bool, Any]:
        """The output whose window has a tap on a pixel, and whether there is one: the stride may
        leave the pixel between two."""
        stride, pre, pixel = self.op.stride[axis], self.op.pre_padding[axis], at.loop("pixel")[axis]
        distance = arith.SubIOp(scaled(pixel, 1, pre), self._reach(at, axis)).result
        taps = self.op.filter.shape[2 + axis]
        is_inside = taps.constant == 1 and stride == 1 and not (pre or self.op.post_padding[axis])
        if stride == 1:
            return distance, not is_inside, None
        # Distances before output 0 are negative, which no division here takes.
        lead = -(-(taps.bounds()[1] - 1) * self.op.dilation[axis] // stride)
        ahead = scaled(distance, 1, lead * stride)
        rest = arith.RemUIOp(ahead, index_of(stride)).result
        is_whole = arith.CmpIOp(arith.CmpIPredicate.eq, rest, index_of(0)).result
        return scaled(divided(ahead, stride), 1, -lead), True, is_whole

    def _reach(self, at: _Indices, axis: int) -> Any:
        """Pixels from the first one under the filter to that under the tap."""
        tap, dilation = at.loop("tap")[axis], self.op.dilation[axis]
        if not self._is_flipped:
            return scaled(tap, dilation)
        last = self.op.filter.shape[2 + axis].constant  # the last tap lies on the first pixel
        if last is None:
            return scaled(arith.SubIOp(self.last_taps[axis], tap).result, dilation)
        return scaled(tap, -dilation, (last - 1) * dilation)
