"""Sequences that lie one after the other in one tensor: apart, and together again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import dtypes
from ...expr import Expr
from ..op import Op, attribute, operand, result
from ..tensor import Tensor, packed_strides, text

_ONE = Expr.of(1)
_INTEGERS = (dtypes.i32, dtypes.i64)
# Of a packed tensor, from outermost to innermost: the heads of a row side by side.
_ROWS_OUTERMOST = (0, 2, 1, 3)


class _Ragged(Op):
    """The base of both ways; a class of either names the fields."""

    packed: Tensor
    offset: Tensor
    sequence: Tensor
    offset_multiplier: int

    @property
    def padded(self) -> Tensor:
        """The tensor of one size a sequence, [B, H, S, D]."""
        raise NotImplementedError

    @property
    def row_stride(self) -> Expr:
        """Elements from a row of the packed tensor to the next."""
        return self.packed.layout[2]

    def _verify_rank(self, constraint: str, tensor: Tensor) -> None:
        if tensor.rank != 4:
            raise self.shape_error(
                constraint, f"{tensor.label} has dims {text(tensor.shape)}", "rank 4"
            )

    def _require_number(self, constraint: str) -> None:
        if self.offset_multiplier < 1:
            raise self.error(
                constraint, f"ragged_offset_multiplier={self.offset_multiplier}", "1 or more"
            )

    def _require_integers(self, constraint: str, tensor: Tensor, count: Expr) -> None:
        self.require_dims(constraint, (count, _ONE, _ONE, _ONE), tensor)
        self.require_type(constraint, tensor, _INTEGERS)

    # ---- reference

    def _places(self, offset: Any, lengths: Any, sizes: Mapping[str, int]) -> list[tuple[int, int]]:
        """(first row, rows) of each sequence, those that both tensors have."""
        stride = self.row_stride.evaluate(sizes)
        most, total = (t.shape[2].evaluate(sizes) for t in (self.padded, self.packed))
        firsts = np.asarray(offset).reshape(-1).astype(np.int64) * self.offset_multiplier // stride
        counts = np.asarray(lengths).reshape(-1).astype(np.int64)
        return [
            (int(first), max(0, int(min(count, most, total - first))))
            for first, count in zip(firsts, counts, strict=False)  # the last offset ends the last
        ]

    def draw(self, tensor: Tensor, rng: Any, sizes: Mapping[str, int]) -> Any:
        """Lengths at random, or offsets: each sequence has room for the same number of rows."""
        dims = [extent.evaluate(sizes) for extent in tensor.shape]
        batch, _, most, _ = (extent.evaluate(sizes) for extent in self.padded.shape)
        room = min(most, self.packed.shape[2].evaluate(sizes) // max(1, batch))
        if tensor is self.sequence:
            return rng.integers(0, room + 1, dims)
        if tensor is self.offset:
            firsts = np.arange(dims[0]) * room * self.row_stride.evaluate(sizes)
            return (firsts // self.offset_multiplier).reshape(dims)
        return None


class RaggedLoad(_Ragged):
    """Y[b, h, s, d] = packed[0, h, first[b] + s, d] for s below the sequence's length, else 0.

    Packed [1, H, T, D], whose T rows are those of all sequences, offset [B + 1, 1, 1, 1],
    sequence [B, 1, 1, 1], Y [B, H, S, D].  first[b] = offset[b] * offset_multiplier / the stride of
    packed's rows, as offsets count elements; the last offset, where the last sequence ends, is not
    used.  Of each sequence the rows below its length are read, and no others.  An offset within a
    row, and rows outside packed, are undefined behaviour.
    Source: the documentation of cudnn-frontend, ragged tensors (ragged_offset of a tensor); cuDNN
    has no such operation.

    Constraints:
    (C1) packed is [1, H, T, D].
    (C2) Y is [B, H, S, D]: S is free, H and D are packed's.
    (C3) the offset is INT32 or INT64 [B + 1, 1, 1, 1].
    (C4) the sequence is INT32 or INT64 [B, 1, 1, 1].
    (C5) packed and Y have one data type.
    (C6) offset_multiplier is at least 1.
    """

    op_name = "ragged_load"
    role = "view"

    packed: Tensor = operand("[1, H, T, D], the rows of each sequence together")
    offset: Tensor = operand("[B + 1, 1, 1, 1], the first element of each sequence")
    sequence: Tensor = operand("[B, 1, 1, 1], the rows of each sequence")
    y: Tensor = result("[B, H, S, D]")
    offset_multiplier: int = attribute(
        "what offsets are multiplied by", int, 1, frontend="ragged_offset_multiplier"
    )

    @property
    def padded(self) -> Tensor:
        return self.y

    def infer(self) -> None:
        if self.y.dtype is None:
            self.y.dtype = self.packed.dtype
        if self.y.dims is None:
            self._verify_rank("C1", self.packed)
            self._verify_rank("C4", self.sequence)
            self.y.dims = (self.sequence.shape[0], *self.packed.shape[1:])
        if self.y.strides is None:
            self.y.strides = packed_strides(self.y.dims)

    def verify(self) -> None:
        self.require_attribute_choices()
        self._verify_rank("C1", self.packed)  # ragged_load_c1
        self.require_dims("C1", (_ONE, *self.packed.shape[1:]), self.packed)  # ragged_load_c1
        self._verify_rank("C2", self.y)  # ragged_load_c2
        heads, _, depth = self.packed.shape[1:]
        batch, _, rows, _ = self.y.shape
        self.require_dims("C2", (batch, heads, rows, depth), self.y)  # ragged_load_c2
        self._require_integers("C3", self.offset, batch + 1)  # ragged_load_c3
        self._require_integers("C4", self.sequence, batch)  # ragged_load_c4
        self.require_type("C5", self.y, [self.packed.type])  # ragged_load_c5
        self._require_number("C6")  # ragged_load_c6

    def reference(self, *operands: Any, **context: Any) -> Any:
        packed, offset, lengths = operands
        sizes = context.get("sizes", {})
        y = np.zeros([n.evaluate(sizes) for n in self.y.shape], packed.dtype)
        for batch, (first, count) in enumerate(self._places(offset, lengths, sizes)):
            y[batch, :, :count] = packed[0, :, first : first + count]
        return y


class RaggedStore(_Ragged):
    """Packed[0, h, first[b] + s, d] = X[b, h, s, d] for s below the sequence's length.

    X [B, H, S, D], offset [B + 1, 1, 1, 1], sequence [B, 1, 1, 1], packed [1, H, T, D], whose T
    rows are those of all sequences.  first[b] = offset[b] * offset_multiplier / the stride of
    packed's rows, as offsets count elements; the last offset, where the last sequence ends, is not
    used.  Rows of no sequence are undefined: they may keep what was there, or be 0, which they are
    in the reference.  An offset within a row, rows outside packed, and rows of two sequences are
    undefined behaviour.
    Source: the documentation of cudnn-frontend, ragged tensors (ragged_offset of a tensor); cuDNN
    has no such operation.

    Constraints:
    (C1) X has rank 4.
    (C2) packed is [1, H, T, D]: T is free, H and D are X's.
    (C3) the offset is INT32 or INT64 [B + 1, 1, 1, 1].
    (C4) the sequence is INT32 or INT64 [B, 1, 1, 1].
    (C5) packed and X have one data type.
    (C6) offset_multiplier is at least 1.
    """

    op_name = "ragged_store"
    role = "anchor"

    x: Tensor = operand("[B, H, S, D]", frontend="input")
    offset: Tensor = operand("[B + 1, 1, 1, 1], the first element of each sequence")
    sequence: Tensor = operand("[B, 1, 1, 1], the rows of each sequence")
    packed: Tensor = result("[1, H, T, D], the rows of each sequence together; default T = B * S")
    offset_multiplier: int = attribute(
        "what offsets are multiplied by", int, 1, frontend="ragged_offset_multiplier"
    )

    @property
    def padded(self) -> Tensor:
        return self.x

    def infer(self) -> None:
        if self.packed.dtype is None:
            self.packed.dtype = self.x.dtype
        if self.packed.dims is None:
            self._verify_rank("C1", self.x)
            batch, heads, rows, depth = self.x.shape
            self.packed.dims = (_ONE, heads, batch * rows, depth)
        if self.packed.strides is None:
            self.packed.strides = self.inner_strides(self.packed)

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        order = _ROWS_OUTERMOST if tensor.rank == 4 else None
        return packed_strides(tensor.shape, order)

    def verify(self) -> None:
        self.require_attribute_choices()
        self._verify_rank("C1", self.x)  # ragged_store_c1
        self._verify_rank("C2", self.packed)  # ragged_store_c2
        batch, heads, _, depth = self.x.shape
        wanted = (_ONE, heads, self.packed.shape[2], depth)
        self.require_dims("C2", wanted, self.packed)  # ragged_store_c2
        self._require_integers("C3", self.offset, batch + 1)  # ragged_store_c3
        self._require_integers("C4", self.sequence, batch)  # ragged_store_c4
        self.require_type("C5", self.packed, [self.x.type])  # ragged_store_c5
        self._require_number("C6")  # ragged_store_c6

    def reference(self, *operands: Any, **context: Any) -> Any:
        x, offset, lengths = operands
        sizes = context.get("sizes", {})
        packed = np.zeros([n.evaluate(sizes) for n in self.packed.shape], x.dtype)
        for batch, (first, count) in enumerate(self._places(offset, lengths, sizes)):
            packed[0, :, first : first + count] = x[batch, :, :count]
        return packed

    def undefined(self, *operands: Any, **context: Any) -> Any:
        """Rows of no sequence."""
        _, offset, lengths = operands
        sizes = context.get("sizes", {})
        found = np.ones([n.evaluate(sizes) for n in self.packed.shape], bool)
        for first, count in self._places(offset, lengths, sizes):
            found[:, :, first : first + count] = False
        return found
