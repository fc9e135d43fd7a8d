"""Matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ...rounding import round_to, to_int32_saturated, to_int32_wrapped, widen
from ..op import Op, attribute, operand, result
from ..tensor import Tensor, packed_strides, text


class Matmul(Op):
    """C = A @ B over the last two dims; the leading dims are batches and broadcast.

    A [..., M, K], B [..., K, N], C [..., M, N].  Products are summed in the compute type.
    FLOAT: the sums are f32.  FAST_FLOAT_FOR_FP8: they may stay in the tensor cores' accumulators,
    which keep fewer bits; the exact result is that of FLOAT.
    Source: cuDNN graph API, Matmul operation.

    Constraints:
    (C1) ranks are equal and at least 2.
    (C2) K of A equals K of B.
    (C3) each batch dim of A and B is C's or 1.
    (C4) C's dims are the batch dims, M, N.
    (C5) the compute type is FLOAT, HALF or DOUBLE, or INT32 where A and B are integers, or
         FAST_FLOAT_FOR_FP8 where each of them is of an fp8 type.
    """

    op_name = "matmul"
    backend = "OPERATION_MATMUL"
    role = "anchor"

    a: Tensor = operand("[..., M, K]", frontend="A", backend="ADESC")
    b: Tensor = operand("[..., K, N]", frontend="B", backend="BDESC")
    c: Tensor = result("[..., M, N]", backend="CDESC")
    compute_type: DType = attribute(
        "the type of the sums", DType, dtypes.f32, frontend="compute_data_type"
    )

    def infer(self) -> None:
        if self.c.dims is None:
            self._verify_ranks()
            batch = tuple(
                a if a.constant != 1 else b
                for a, b in zip(self.a.shape[:-2], self.b.shape[:-2], strict=True)
            )
            self.c.dims = (*batch, self.a.shape[-2], self.b.shape[-1])
        if self.c.strides is None:
            self.c.strides = packed_strides(self.c.shape)

    def _verify_ranks(self) -> None:
        if self.a.rank != self.b.rank or self.a.rank < 2:  # matmul_c1
            raise self.error(
                "C1",
                f"A {text(self.a.shape)}, B {text(self.b.shape)}",
                "equal ranks of at least 2",
                Status.BAD_PARAM_SHAPE_MISMATCH,
            )

    def verify(self) -> None:
        self.require_attribute_choices()
        self._verify_ranks()
        if self.a.shape[-1] != self.b.shape[-2]:  # matmul_c2
            raise self.error(
                "C2",
                f"K of A is {self.a.shape[-1]}, K of B is {self.b.shape[-2]}",
                "one K",
                Status.BAD_PARAM_SHAPE_MISMATCH,
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
        for tensor in (self.a, self.b):  # matmul_c3
            for axis, extent in enumerate(tensor.shape[:-2]):
                if self.c.rank == tensor.rank and extent not in (self.c.shape[axis], Expr.of(1)):
                    raise self.error(
                        "C3",
                        f"batch dim {axis} of {tensor.label} is {extent}",
                        f"{self.c.shape[axis]} or 1",
                        Status.BAD_PARAM_SHAPE_MISMATCH,
                    )
        batch = tuple(
            a if a.constant != 1 else b
            for a, b in zip(self.a.shape[:-2], self.b.shape[:-2], strict=True)
        )
        wanted = (*batch, self.a.shape[-2], self.b.shape[-1])
        if self.c.shape != wanted:  # matmul_c4
            raise self.error(
                "C4",
                f"C has dims {text(self.c.shape)}",
                text(wanted),
                Status.BAD_PARAM_SHAPE_MISMATCH,
            )

    def reference(self, *operands: Any, **context: Any) -> Any:
        a, b = operands
        if self.compute_type == dtypes.i32:
            # int64 sums wrap modulo 2**64, which wraps to the same residue modulo 2**32.
            return to_int32_wrapped(np.matmul(to_int32_saturated(a), to_int32_saturated(b)))
        c = np.matmul(a.astype(np.float64), b.astype(np.float64))
        return widen(round_to(c, dtypes.f16)) if self.compute_type == dtypes.f16 else c
