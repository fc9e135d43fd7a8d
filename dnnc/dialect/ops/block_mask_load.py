"""A mask of blocks of scores, one bit each, as one of scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import dtypes
from ...expr import Expr, ceildiv
from ..op import Op, attribute, operand, result
from ..tensor import Tensor, packed_strides, text

BITS = 8  # of an element of the mask
SDPA_BLOCK = 128  # rows, and columns, of the blocks of sdpa's mask
_ONE = Expr.of(1)


class BlockMaskLoad(Op):
    """Y[b, h, r, c] = bit (c // columns) % 8 of mask[b, h, r // rows, c // columns // 8].

    Mask [B or 1, H or 1, Sq / rows, Skv / columns / 8], rounded up; Y [B, H, Sq, Skv].  Bit 0 of a
    byte, its least significant one, is of the first of its eight blocks of columns.  Bits of blocks
    past Skv may be anything.
    Source: cuDNN graph API, the block mask of fused flash attention; the order of bits is that of
    the tests of cudnn-frontend.

    Constraints:
    (C1) the mask is UINT8 and has rank 4.
    (C2) Y's dims are set; its first two are the mask's where those are not 1.
    (C3) the mask's last two dims are the blocks of rows, and bytes of the blocks of columns.
    (C4) Y is BOOLEAN.
    (C5) block_rows and block_columns are powers of two.
    """

    op_name = "block_mask_load"
    backend = ""
    role = "view"

    mask: Tensor = operand("[B or 1, H or 1, Sq / rows, Skv / columns / 8]")
    y: Tensor = result("[B, H, Sq, Skv], whether a score is seen")
    block_rows: int = attribute("rows of a block", int, SDPA_BLOCK)
    block_columns: int = attribute("columns of a block", int, SDPA_BLOCK)

    def infer(self) -> None:
        if self.y.dtype is None:
            self.y.dtype = dtypes.i1
        if self.y.dims is None:
            raise self.error("C2", "the result's dims are not set", "dims, by set_dim")
        if self.y.strides is None:
            self.y.strides = packed_strides(self.y.dims)

    def verify(self) -> None:
        mask, y = self.mask.shape, self.y.shape
        self.require_type("C1", self.mask, [dtypes.ui8])  # block_mask_load_c1
        if len(mask) != 4:  # block_mask_load_c1
            raise self._mismatch("C1", f"the mask has dims {text(mask)}", "rank 4")
        fits = len(y) == 4 and all(m in (n, _ONE) for m, n in zip(mask[:2], y[:2], strict=True))
        if not fits:  # block_mask_load_c2
            what = f"Y has dims {text(y)} for a mask {text(mask)}"
            raise self._mismatch("C2", what, "[B, H, Sq, Skv]")
        for name in ("block_rows", "block_columns"):
            size: int = getattr(self, name)
            if size < 1 or size & (size - 1):  # block_mask_load_c5
                raise self.error("C5", f"{name}={size}", "a power of two")
        blocks = (ceildiv(y[2], self.block_rows), ceildiv(y[3], self.block_columns * BITS))
        if mask[2:] != blocks:  # block_mask_load_c3
            raise self._mismatch(
                "C3", f"the mask has dims {text(mask)}", f"[B, H, {blocks[0]}, {blocks[1]}]"
            )
        self.require_type("C4", self.y, [dtypes.i1])  # block_mask_load_c4

    def _mismatch(self, constraint: str, what: str, supported: str) -> Exception:
        return self.shape_error(constraint, what, supported)

    def reference(self, *operands: Any, **context: Any) -> Any:
        dims = [extent.evaluate(context.get("sizes", {})) for extent in self.y.shape]
        seen = seen_of(np.asarray(operands[0]), dims[2:], (self.block_rows, self.block_columns))
        return np.broadcast_to(seen, dims)

    def draw(self, tensor: Tensor, rng: Any, sizes: Mapping[str, int]) -> Any:
        """Any bits."""
        return rng.integers(0, 256, [extent.evaluate(sizes) for extent in tensor.shape])


def seen_of(mask: Any, dims: list[int], block: tuple[int, int]) -> Any:
    """Which of dims [rows, columns] a mask [.., blocks of rows, bytes] lets be seen."""
    places = np.arange(dims[0])[:, None] // block[0], np.arange(dims[1]) // block[1]
    found = mask.astype(np.int64)[..., places[0], places[1] // BITS]
    return found >> places[1] % BITS & 1 != 0
