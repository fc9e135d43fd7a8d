"""Matrix product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ...rounding import round_to, to_int32_saturated, to_int32_wrapped, widen
from ..op import Op, arithmetic_type, operand, result
from ..tensor import MAX_RANK, Tensor, packed_strides, strides_like, text, with_rank
from .views import Reshape


class Matmul(Op):
    """C = A @ B over the last two dims; the leading dims are batches and broadcast.

    A [..., M, K], B [..., K, N], C [..., M, N].  An operand of fewer dims has batch dims of 1 ahead
    of its own.  Where a batch dim of A or B divides C's, as many
    matrices of C that follow each other share one of its own: matrix b of C takes b // (C / own),
    as the query heads of grouped attention share those of keys.  Engines see such a product as one
    of more batch dims, between reshapes.  Products are summed in the compute type.
    FLOAT: the sums are f32.  FAST_FLOAT_FOR_FP8: they may stay in the tensor cores' accumulators,
    which keep fewer bits; the exact result is that of FLOAT.
    Source: cuDNN graph API, Matmul operation.

    Constraints:
    (C1) ranks are at least 2.
    (C2) K of A equals K of B.
    (C3) each batch dim of A and B is C's, 1, or a fixed number that divides C's.
    (C4) C's dims are the larger of the batch dims, M, N.
    (C5) the compute type is FLOAT, HALF or DOUBLE, or INT32 where A and B are integers, or
         FAST_FLOAT_FOR_FP8 where each of them is of an fp8 type.
    (C6) the rank and the batch dims of which one divides the other are at most 8 together.
    """

    op_name = "matmul"
    backend = "OPERATION_MATMUL"
    role = "anchor"

    a: Tensor = operand("[..., M, K]", frontend="A", backend="ADESC")
    b: Tensor = operand("[..., K, N]", frontend="B", backend="BDESC")
    c: Tensor = result("[..., M, N]", backend="CDESC")
    compute_type: DType = arithmetic_type("the type of the sums")

    def infer(self) -> None:
        if self.c.dims is None:
            self._verify_ranks()
            self.c.dims = self._dims()
        if self.c.strides is None:
            self.c.strides = packed_strides(self.c.shape)

    def _dims(self) -> tuple[Expr, ...]:
        """C's dims."""
        batches = (_larger(a, b) for a, b in self._batch_pairs())
        return (*batches, self.a.shape[-2], self.b.shape[-1])

    def _batch_pairs(self) -> list[tuple[Expr, Expr]]:
        """The batch dims of A and B, which have one for each of C's."""
        rank = max(self.a.rank, self.b.rank)
        a, b = (with_rank(tensor.shape, rank)[:-2] for tensor in (self.a, self.b))
        return list(zip(a, b, strict=True))

    def _verify_ranks(self) -> None:
        if min(self.a.rank, self.b.rank) < 2:  # matmul_c1
            raise self.shape_error(
                "C1", f"A {text(self.a.shape)}, B {text(self.b.shape)}", "ranks of at least 2"
            )

    def verify(self) -> None:
        self.require_attribute_choices()
        self._verify_ranks()
        if self.a.shape[-1] != self.b.shape[-2]:  # matmul_c2
            raise self.shape_error(
                "C2", f"K of A is {self.a.shape[-1]}, K of B is {self.b.shape[-2]}", "one K"
            )
        self._verify_result_dims()
        accepted = [dtypes.f32, dtypes.f16, dtypes.f64]
        if self.a.type.is_integer and self.b.type.is_integer:
            accepted.append(dtypes.i32)
        if self.a.type.is_fp8 and self.b.type.is_fp8:
            accepted.append(dtypes.fast_float_for_fp8)
        if self.compute_type not in accepted:  # matmul_c5
            raise self.error(
                "C5",
                f"compute type {self.compute_type.cudnn} for {self.a.type} and {self.b.type}",
                ", ".join(row.cudnn for row in accepted),
                Status.NOT_SUPPORTED_DATA_TYPE,
            )

    def _verify_result_dims(self) -> None:
        wanted = self._dims()
        for tensor in (self.a, self.b):  # matmul_c3
            own = with_rank(tensor.shape, len(wanted))[:-2]
            for axis, (extent, whole) in enumerate(zip(own, wanted, strict=False)):
                if extent != whole and not _divides(extent, whole):
                    raise self.shape_error(
                        "C3",
                        f"batch dim {axis} of {tensor.label} is {extent}",
                        f"{whole}, or a fixed number that divides it",
                    )
        if self.c.shape != wanted:  # matmul_c4
            raise self.shape_error("C4", f"C has dims {text(self.c.shape)}", text(wanted))
        if self.c.rank + len(self.groups()) > MAX_RANK:  # matmul_c6
            raise self.error(
                "C6",
                f"rank {self.c.rank}, and {len(self.groups())} batch dims that divide others",
                f"{MAX_RANK} together",
                Status.NOT_SUPPORTED_SHAPE,
            )

    def groups(self) -> Mapping[int, int]:
        """Batch axis -> the smaller dim of A and B, where it divides the other and is not 1."""
        pairs = enumerate(self._batch_pairs())
        sizes = {axis: (a.constant or 0, b.constant or 0) for axis, (a, b) in pairs}
        return {axis: min(pair) for axis, pair in sizes.items() if 1 < min(pair) < max(pair)}

    def expand(self) -> Sequence[Op] | None:
        """Where a batch dim divides the other: both split into the smaller one and the rest."""
        groups = self.groups()
        if not groups:
            return None
        rank = self.c.rank
        a, b, c = (_split(tensor, rank, groups) for tensor in (self.a, self.b, self.c))
        first, second, last = (
            Reshape(x=x, y=y, reshape_mode="LOGICAL")
            for x, y in ((self.a, a), (self.b, b), (c, self.c))
        )
        whole = Matmul(a=a, b=b, c=c, compute_type=self.compute_type)
        for step in (first, second, whole, last):
            step.name = self.name
        return first, second, whole, last

    def reference(self, *operands: Any, **context: Any) -> Any:
        a, b = _shared(*operands)
        if self.compute_type == dtypes.i32:
            # int64 sums wrap modulo 2**64, which wraps to the same residue modulo 2**32.
            return to_int32_wrapped(np.matmul(to_int32_saturated(a), to_int32_saturated(b)))
        c = np.matmul(a.astype(np.float64), b.astype(np.float64))
        return widen(round_to(c, dtypes.f16)) if self.compute_type == dtypes.f16 else c


def _larger(a: Expr, b: Expr) -> Expr:
    """The larger of two batch dims; A's where both are not known and neither is 1."""
    if a.constant is not None and b.constant is not None:
        return a if a.constant >= b.constant else b
    return b if a.constant == 1 else a


def _divides(extent: Expr, whole: Expr) -> bool:
    """Whether a dim is 1, or a number that divides another one."""
    own, all_of_it = extent.constant, whole.constant
    return own == 1 or (bool(own) and all_of_it is not None and all_of_it % own == 0)


def _split(tensor: Tensor, rank: int, groups: Mapping[int, int]) -> Tensor:
    """A view of a tensor, of a rank, with each axis of groups as two: groups, and their members."""
    dims: list[Expr] = []
    strides: list[Expr] = []
    whole = zip(with_rank(tensor.shape, rank), with_rank(strides_like(tensor), rank), strict=True)
    for axis, (extent, stride) in enumerate(whole):
        if axis not in groups:
            dims.append(extent)
            strides.append(stride)
            continue
        count = min(groups[axis], extent.constant or 1)  # 1 where the tensor broadcasts
        inner = (extent.constant or 1) // count
        dims += [Expr.of(count), Expr.of(inner)]
        strides += [stride * inner, stride]
    return Tensor(dims=tuple(dims), strides=tuple(strides), dtype=tensor.dtype, is_virtual=True)


def _shared(a: Any, b: Any) -> tuple[Any, Any]:
    """Operands whose batch dims are equal or 1: each matrix as often as it is shared."""
    rank = max(a.ndim, b.ndim)
    a, b = (np.reshape(array, (1,) * (rank - array.ndim) + array.shape) for array in (a, b))
    for axis in range(rank - 2):
        small, large = sorted((a.shape[axis], b.shape[axis]))
        if 1 < small < large:
            a, b = (np.repeat(array, large // array.shape[axis], axis=axis) for array in (a, b))
    return a, b
