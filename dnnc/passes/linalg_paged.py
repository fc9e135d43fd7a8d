# pyright: basic
"""A paged cache as linalg: each element looks up its block.

%y = linalg.generic outs(%empty) {
  %page = tensor.extract %table[b, 0, s / size, 0]
  %block = select(s < %length[b], %page, 0)   // what the table holds past the length is not used
  select(s < %length[b], tensor.extract %container[%block, h, s % size, d], 0) }
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..codegen.attention.sources import LOAD
from ..codegen.scalars.scalar import constant, convert, element_type, index_constant
from ..dialect.ops.paged_cache_load import PagedCacheLoad
from ..mlir import arith, ir, linalg, tensor

_I = arith.CmpIPredicate


def paged_cache_load(low: Any, op: PagedCacheLoad) -> None:
    """Puts the value of Y in `low`."""
    container, lengths, table = (low.value(source) for source in op.operands)

    def body() -> Any:
        batch, head, key, depth = (linalg.IndexOp(axis).result for axis in range(4))
        index, zero, size = ir.IndexType.get(), index_constant(0), index_constant(op.block_size)
        length = tensor.ExtractOp(lengths, [batch, zero, zero, zero]).result
        at = arith.IndexCastOp(length.type, key).result
        is_inside = arith.CmpIOp(_I.slt, at, length).result
        page = arith.DivUIOp(key, size).result
        found = tensor.ExtractOp(table, [batch, zero, page, zero]).result
        block = arith.SelectOp(is_inside, found, constant(0, found.type)).result
        place = [arith.IndexCastOp(index, block).result, head, arith.RemUIOp(key, size).result]
        value = tensor.ExtractOp(container, [*place, depth]).result
        # By way of FLOAT: there are no constants of fp8.
        nothing = convert(constant(0, element_type(dtypes.f32)), dtypes.f32, op.y.type)
        return arith.SelectOp(is_inside, value, nothing).result

    made = low.generic(op.y, op.y.type, [], body)
    made.owner.attributes[LOAD] = ir.StringAttr.get("paged")
    low.values[op.y] = made
