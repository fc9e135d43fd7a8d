# pyright: basic
"""Packed sequences as linalg.

A load is a gather:

    %y = linalg.generic outs(%empty) {
      %is_inside = s < %length[b]
      %row = select(%is_inside, %offset[b] / stride of rows + s, 0)
      select(%is_inside, tensor.extract %packed[0, h, %row, d], 0) }

A store finds the sequence of each row, as a sum over all of them that only its own adds to, and
gathers from that:

    %owner = linalg.generic iterators = [..., "reduction"]   // b + 1; 0: none
    %packed = linalg.generic ins(%owner) outs(%empty) {
      %b = max(%owner, 1) - 1
      select(%owner != 0, tensor.extract %x[%b, h, select(%owner != 0, row - first[%b], 0), d], 0) }
"""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..codegen.attention.sources import FACTOR, LOAD
from ..codegen.scalars.scalar import constant, convert, element_type, index_constant
from ..dialect import structure
from ..dialect.ops.ragged import RaggedLoad, RaggedStore
from ..dialect.tensor import Tensor, packed_strides
from ..dtypes import DType
from ..expr import Expr
from ..mlir import arith, ir, linalg, tensor
from .linalg_anchor import call_anchor
from .linalg_lowering import Lowering

_I = arith.CmpIPredicate


def ragged_load(low: Any, op: RaggedLoad) -> None:
    """Puts the value of Y in `low`."""
    packed, offset, lengths = (low.value(source) for source in op.operands)
    rows = _Rows(low, op)

    def body() -> Any:
        batch, head, place, depth = (linalg.IndexOp(axis).result for axis in range(4))
        at = _as_i32(place)
        length = _narrowed(_of_sequence(lengths, batch))
        is_inside = arith.CmpIOp(_I.slt, at, length).result
        row = arith.AddIOp(rows.first(_of_sequence(offset, batch)), at).result
        row = arith.SelectOp(is_inside, row, _i32(0)).result
        value = tensor.ExtractOp(packed, [index_constant(0), head, _as_index(row), depth]).result
        return arith.SelectOp(is_inside, value, _nothing(op.y.type)).result

    made = low.generic(op.y, op.y.type, [], body)
    made.owner.attributes[LOAD] = ir.StringAttr.get("packed")
    made.owner.attributes[FACTOR] = structure.to_attribute(op.offset_multiplier)
    low.values[op.y] = made


def ragged_store(low: Lowering, op: RaggedStore) -> None:
    """Puts the packed value in `low`."""
    low.values[op.packed] = call_anchor(low, op, op.packed.type, _stored)


def _stored(low: Any, op: RaggedStore, sums: DType, x: Any, offset: Any, lengths: Any) -> Any:
    """The packed tensor."""
    rows = _Rows(low, op)
    owners = _owners(low, op, rows, offset, lengths)
    zero = ir.AffineExpr.get_constant(0)
    row_of = ir.AffineMap.get(4, 0, [zero, zero, ir.AffineExpr.get_dim(2), zero])

    def body(owner: Any) -> Any:
        head, row, depth = (linalg.IndexOp(axis).result for axis in (1, 2, 3))
        is_owned = arith.CmpIOp(_I.ne, owner, _i32(0)).result
        found = arith.SubIOp(owner, _i32(1)).result
        batch = _as_index(arith.SelectOp(is_owned, found, _i32(0)).result)
        place = arith.SubIOp(_as_i32(row), rows.first(_of_sequence(offset, batch))).result
        place = arith.SelectOp(is_owned, place, _i32(0)).result
        value = tensor.ExtractOp(x, [batch, head, _as_index(place), depth]).result
        return arith.SelectOp(is_owned, value, _nothing(op.packed.type)).result

    return low.generic(op.packed, sums, [(owners, row_of)], body)


def _owners(low: Any, op: RaggedStore, rows: _Rows, offset: Any, lengths: Any) -> Any:
    """[1, 1, T, 1]: one more than the number of the sequence that a row is of; 0 of no one's."""
    one = Expr.of(1)
    dims = (one, one, op.packed.shape[2], one)
    like = Tensor(dims=dims, strides=packed_strides(dims), dtype=dtypes.i32)
    *kept, batch = (ir.AffineExpr.get_dim(axis) for axis in range(5))
    zero = ir.AffineExpr.get_constant(0)
    of_sequence = ir.AffineMap.get(5, 0, [batch, zero, zero, zero])

    def body(length: Any, total: Any) -> Any:
        row, number = (linalg.IndexOp(axis).result for axis in (2, 4))
        # There is one offset more, so that the loop over lengths does not index them by itself.
        first = rows.first(_of_sequence(offset, number))
        place = arith.SubIOp(_as_i32(row), first).result
        is_after = arith.CmpIOp(_I.sge, place, _i32(0)).result
        is_before = arith.CmpIOp(_I.slt, place, _narrowed(length)).result
        is_own = arith.AndIOp(is_after, is_before).result
        found = arith.AddIOp(_as_i32(number), _i32(1)).result
        return arith.SelectOp(is_own, found, total).result

    return low.generic(
        like,
        dtypes.i32,
        [(lengths, of_sequence)],
        body,
        init=low.filled(like, dtypes.i32, 0),
        output_map=ir.AffineMap.get(5, 0, kept),
        iterators=["parallel"] * 4 + ["reduction"],
    )


class _Rows:
    """Where sequences begin, by the offsets of their first elements."""

    def __init__(self, low: Any, op: RaggedLoad | RaggedStore):
        stride, self.factor = op.row_stride, op.offset_multiplier
        common = math.gcd(stride.known_divisor(), self.factor)
        self.factor //= common
        self.fixed = None if stride.constant is None else stride.constant // common
        self.stride = None if self.fixed else structure.emit_size(stride, low.symbols)
        self.common = common

    def first(self, offset: Any) -> Any:
        """offset * multiplier / stride as an i32."""
        if self.fixed == 1 and self.factor == 1:
            return _narrowed(offset)
        if self.factor != 1 or self.fixed is None:  # the product may need more than 31 bits
            offset = _widened(offset)
        if self.factor != 1:
            offset = arith.MulIOp(offset, constant(self.factor, offset.type)).result
        return _narrowed(arith.DivUIOp(offset, self._divisor(offset.type)).result)

    def _divisor(self, type_: Any) -> Any:
        if self.fixed is not None:
            return constant(self.fixed, type_)
        stride = arith.IndexCastOp(type_, self.stride).result
        return arith.DivUIOp(stride, constant(self.common, type_)).result


def _of_sequence(values: Any, batch: Any) -> Any:
    zero = index_constant(0)
    return tensor.ExtractOp(values, [batch, zero, zero, zero]).result


def _nothing(dtype: DType) -> Any:
    """A zero, by way of FLOAT: there are no constants of fp8."""
    return convert(constant(0, element_type(dtypes.f32)), dtypes.f32, dtype)


def _i32(value: int) -> Any:
    return constant(value, element_type(dtypes.i32))


def _as_i32(index: Any) -> Any:
    return arith.IndexCastOp(element_type(dtypes.i32), index).result


def _as_index(value: Any) -> Any:
    return arith.IndexCastOp(ir.IndexType.get(), value).result


def _narrowed(value: Any) -> Any:
    narrow = element_type(dtypes.i32)
    return value if value.type == narrow else arith.TruncIOp(narrow, value).result


def _widened(value: Any) -> Any:
    wide = element_type(dtypes.i64)
    return value if value.type == wide else arith.ExtSIOp(wide, value).result
