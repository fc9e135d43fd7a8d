"""Keys or values that lie in blocks, in one piece."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import dtypes
from ...expr import Expr, ceildiv
from ..op import Op, operand, result
from ..tensor import Tensor, packed_strides, text

_ONE = Expr.of(1)


class PagedCacheLoad(Op):
    """Y[b, h, s, d] = container[table[b, 0, s // size, 0], h, s % size, d]; 0 past the length.

    Container [blocks, H, size, D], page table [B, 1, pages, 1], sequence [B, 1, 1, 1],
    Y [B, H, S, D].  Of each batch, keys below its length are loaded, from blocks that the table
    names; entries of the table for later pages are not used, and may be anything.  A block
    outside the container is undefined behaviour.
    Source: cuDNN graph API, PagedCacheLoad operation.

    Constraints:
    (C1) the container has rank 4, and its block size is a power of two.
    (C2) Y's dims are set: B and S are free, H and D the container's.
    (C3) the page table is INT32 [B, 1, S / size rounded up, 1].
    (C4) the sequence is INT32 or INT64 [B, 1, 1, 1].
    (C5) the container and Y have one data type.
    """

    op_name = "paged_cache_load"
    backend = "OPERATION_PAGED_CACHE_LOAD"
    role = "view"

    container: Tensor = operand("[blocks, H, size, D]", backend="CONTAINER_DESC")
    sequence: Tensor = operand("[B, 1, 1, 1], the keys of each batch", backend="SEQUENCE_DESC")
    page_table: Tensor = operand(
        "[B, 1, pages, 1], the block of each page", backend="PAGE_TABLE_DESC"
    )
    y: Tensor = result("[B, H, S, D]", backend="YDESC")

    @property
    def block_size(self) -> int:
        """Keys of a block; the operation is verified."""
        return self.container.shape[2].constant or 1

    def infer(self) -> None:
        if self.y.dtype is None:
            self.y.dtype = self.container.dtype
        if self.y.dims is None:
            self._verify_ranks()
            keys = self.page_table.shape[2] * self.container.shape[2]
            batch, heads, depth = self.page_table.shape[0], *self.container.shape[1::2]
            self.y.dims = (batch, heads, keys, depth)
        if self.y.strides is None:
            self.y.strides = packed_strides(self.y.dims)

    def _verify_ranks(self) -> None:
        for constraint, tensor in (("C1", self.container), ("C3", self.page_table)):
            if tensor.rank != 4:  # paged_cache_load_c1, paged_cache_load_c3
                raise self.shape_error(
                    constraint, f"{tensor.label} has dims {text(tensor.shape)}", "rank 4"
                )

    def verify(self) -> None:
        self._verify_ranks()
        size = self.container.shape[2].constant or 0
        if size < 1 or size & (size - 1):  # paged_cache_load_c1
            raise self.error("C1", f"blocks of {self.container.shape[2]} keys", "a power of two")
        heads, depth = self.container.shape[1::2]
        y = self.y.shape
        if len(y) != 4 or (y[1], y[3]) != (heads, depth):  # paged_cache_load_c2
            raise self.shape_error("C2", f"Y has dims {text(y)}", f"[B, {heads}, S, {depth}]")
        pages = (y[0], _ONE, ceildiv(y[2], size), _ONE)
        self.require_dims("C3", pages, self.page_table)  # paged_cache_load_c3
        self.require_type("C3", self.page_table, (dtypes.i32,))
        lengths = (y[0], _ONE, _ONE, _ONE)
        self.require_dims("C4", lengths, self.sequence)  # paged_cache_load_c4
        self.require_type("C4", self.sequence, (dtypes.i32, dtypes.i64))
        self.require_type("C5", self.y, [self.container.type])  # paged_cache_load_c5

    def reference(self, *operands: Any, **context: Any) -> Any:
        from .sdpa_reference import paged

        container, lengths, table = operands
        keys = self.y.shape[2].evaluate(context.get("sizes", {}))
        return paged(np.asarray(container), table, lengths, keys)

    def draw(self, tensor: Tensor, rng: Any, sizes: Mapping[str, int]) -> Any:
        """Lengths up to S, and blocks that are there."""
        dims = [extent.evaluate(sizes) for extent in tensor.shape]
        if tensor is self.sequence:
            return rng.integers(0, self.y.shape[2].evaluate(sizes) + 1, dims)
        if tensor is self.page_table:
            return rng.integers(0, self.container.shape[0].evaluate(sizes), dims)
        return None
