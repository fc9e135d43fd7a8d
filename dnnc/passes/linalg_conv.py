# pyright: basic
"""Convolution as linalg: each element of Y sums over the filter's taps, and the channels of each.

    %y = linalg.generic {indexing_maps = [(n, k, p, q, r, s, c) -> (k, c, r, s), ...
                                          -> (n, k, p, q)],
            iterator_types = [parallel x 4, reduction x 3]} ins(%w) outs(%zero)
         { %h = p * stride - pre + r * dilation; ...;
           tensor.extract %x[n, c, clamp %h, clamp %w]; select of 0 outside; math.fma ... }

Padding is zeros that are multiplied like any other element: an infinite tap on it gives NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..codegen.scalar import Scalars, accumulation_type, convert
from ..dialect.ops import ConvFprop
from ..dtypes import DType
from ..mlir import arith, ir, linalg, tensor
from .linalg_anchor import call_anchor, cast_from
from .linalg_index import SpatialSizes, all_of, clamped, divided, scaled, within
from .linalg_lowering import Lowering


def conv_fprop(low: Lowering, op: ConvFprop) -> None:
    """Puts the value of Y in `low`."""
    sums = accumulation_type(op.compute_type)
    result = call_anchor(low, op, sums, _sums)
    low.values[op.y] = cast_from(low, result, op.y, sums, op.compute_type)


def _sums(low: Lowering, op: ConvFprop, sums: DType, x: Any, w: Any) -> Any:
    """The sums of Y in a type, of the values of X and W."""
    rank, spatial = op.y.rank, op.y.rank - 2
    loops = rank + spatial + 1
    dims = [ir.AffineExpr.get_dim(axis) for axis in range(loops)]
    taps, channel = dims[rank:-1], dims[-1]
    scalars, sizes = Scalars(sums), SpatialSizes(low, op.x)

    def body(weight: Any, total: Any) -> Any:
        at = [linalg.IndexOp(axis).result for axis in range(loops)]
        places, inside = _places(op, at[2:rank], at[rank:-1], sizes)
        source = [at[0], _channel(op, at[1], at[-1]), *places]
        value = convert(tensor.ExtractOp(x, source).result, op.x.type, sums)
        if inside is not None:
            value = arith.SelectOp(inside, value, scalars.const(0)).result
        return scalars.fma(value, convert(weight, op.w.type, sums), total)

    return low.generic(
        op.y,
        sums,
        [(w, ir.AffineMap.get(loops, 0, [dims[1], channel, *taps]))],
        body,
        init=low.filled(op.y, sums, 0),
        output_map=ir.AffineMap.get(loops, 0, dims[:rank]),
        iterators=["parallel"] * rank + ["reduction"] * (spatial + 1),
    )


def _places(
    op: ConvFprop, at: Sequence[Any], taps: Sequence[Any], sizes: SpatialSizes
) -> tuple[list[Any], Any]:
    """(the pixel of X under a tap along each axis, kept inside; whether it was, None: always)."""
    places, inside = [], []
    for axis, (output, tap) in enumerate(zip(at, taps, strict=True)):
        dilation, pre = op.dilation[axis], op.pre_padding[axis]
        if op.convolution_mode == "CONVOLUTION":  # the last tap lies on the first pixel
            last = op.w.shape[2 + axis].constant
            assert last is not None, "a filter has fixed sizes"
            reach = scaled(tap, -dilation, (last - 1) * dilation)
        else:
            reach = scaled(tap, dilation)
        start = scaled(output, op.stride[axis], -pre)
        place = arith.AddIOp(start, reach).result
        if pre or op.post_padding[axis]:
            inside.append(within(place, sizes.extents[axis]))
            place = clamped(place, sizes.lasts[axis])
        places.append(place)
    return places, all_of(inside)


def _channel(op: ConvFprop, output: Any, channel: Any) -> Any:
    """The channel of X: its number in the group of an output channel, and those before it."""
    if op.groups == 1:
        return channel
    k, c_group = (extent.constant for extent in op.w.shape[:2])
    assert k is not None, "groups have fixed sizes"
    assert c_group is not None, "groups have fixed sizes"
    group = divided(output, k // op.groups)
    return arith.AddIOp(scaled(group, c_group), channel).result
