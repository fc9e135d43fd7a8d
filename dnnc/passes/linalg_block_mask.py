# pyright: basic
"""A mask of blocks as linalg: each element looks up its bit.

%y = linalg.generic outs(%empty) {
  %byte = tensor.extract %mask[b, h, r / rows, c / (8 * columns)]
  %byte >> (c / columns) % 8 & 1 }
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..codegen.attention.mask_conditions import BLOCKS
from ..codegen.scalars.scalar import constant, element_type, index_constant
from ..dialect.ops.block_mask_load import BITS, BlockMaskLoad
from ..mlir import arith, ir, linalg, tensor


def block_mask_load(low: Any, op: BlockMaskLoad) -> None:
    """Puts the value of Y in `low`."""
    mask = low.value(op.mask)

    def body() -> Any:
        batch, head, row, column = (linalg.IndexOp(axis).result for axis in range(4))
        place = [
            index_constant(0) if extent.constant == 1 else index
            for extent, index in zip(op.mask.shape, (batch, head), strict=False)
        ]
        block = arith.DivUIOp(column, index_constant(op.block_columns)).result
        place += [
            arith.DivUIOp(row, index_constant(op.block_rows)).result,
            arith.DivUIOp(column, index_constant(op.block_columns * BITS)).result,
        ]
        word = element_type(dtypes.i32)
        byte = arith.ExtUIOp(word, tensor.ExtractOp(mask, place).result).result
        bit = arith.IndexCastOp(word, arith.RemUIOp(block, index_constant(BITS)).result).result
        found = arith.AndIOp(arith.ShRUIOp(byte, bit).result, constant(1, word)).result
        return arith.TruncIOp(element_type(dtypes.i1), found).result

    made = low.generic(op.y, op.y.type, [], body)
    sizes = [op.block_rows, op.block_columns]
    made.owner.attributes[BLOCKS] = ir.DenseI64ArrayAttr.get(sizes)
    low.values[op.y] = made
