"""Attention whose operands are of 8 bits, with a scale for each tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ..op import arithmetic_type, operand, result
from ..tensor import Tensor
from .norm_base import fill_rows
from .sdpa import Sdpa

_SCALES = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
ONE_NUMBER = (Expr.of(1),) * 4


class SdpaFp8(Sdpa):
    """O = scale_o * descale_s * descale_v * (fp8(scale_s * P) V), P of `sdpa`, of fp8 operands.

    P = softmax(mask(descale_q * descale_k * attn_scale * Q K^T + bias)), after dropout.  Numbers in
    memory times their descale are what they stand for; a scale makes numbers in memory.  scale_s
    times P has Q's type on the way to the product with V, and descale_s takes the scale away.
    Shapes, masks, statistics and all else are as in `sdpa`: Q [B, Hq, Sq, D], K [B, Hk, Skv, D],
    V [B, Hv, Skv, Dv], O [B, Hq, Sq, Dv], of any float type.
    amax_s: the largest P, before scale_s.  amax_o: the largest |O|, before scale_o.
    P is rounded in kernels, with a scale of their own (docs/numerics.md); not in the reference.
    Source: cuDNN graph API, fused flash attention fprop, FP8; the documentation of cudnn-frontend's
    sdpa_fp8.

    Constraints, beside (C2) to (C14) and (C16) of `sdpa`:
    (C1) Q, K, V have rank 4, one B, and FP8_E4M3 or FP8_E5M2; D of Q is D of K; none is ragged.
    (C15) the compute type is FLOAT, DOUBLE, or FAST_FLOAT_FOR_FP8, which is the products'.
    (C17) descales and scales are one number of a float type each.
    (C18) amax_s and amax_o are [1, 1, 1, 1] and FLOAT.
    """

    op_name = "sdpa_fp8"
    scalars = (*Sdpa.scalars, *_SCALES)
    backend = ""

    descale_q: Tensor = operand("[1, 1, 1, 1], of Q")
    descale_k: Tensor = operand("[1, 1, 1, 1], of K")
    descale_v: Tensor = operand("[1, 1, 1, 1], of V")
    descale_s: Tensor = operand("[1, 1, 1, 1], of P")
    scale_s: Tensor = operand("[1, 1, 1, 1], of P")
    scale_o: Tensor = operand("[1, 1, 1, 1], of O")
    amax_s: Tensor = result("[1, 1, 1, 1], the largest P", frontend="Amax_S")
    amax_o: Tensor = result("[1, 1, 1, 1], the largest |O|", frontend="Amax_O")
    compute_type: DType = arithmetic_type()

    @property
    def operand_types(self) -> tuple[DType, ...]:
        return (dtypes.f8e4m3, dtypes.f8e5m2)

    def infer(self) -> None:
        super().infer()
        for tensor in (self.amax_s, self.amax_o):
            fill_rows(tensor, ONE_NUMBER, dtypes.f32)

    def verify(self) -> None:
        super().verify()
        for name in _SCALES:
            self.require_one_element("C17", name, getattr(self, name))  # sdpa_fp8_c17
            self._verify_float("C17", name, getattr(self, name))  # sdpa_fp8_c17
        for tensor in (self.amax_s, self.amax_o):
            self.require_dims("C18", ONE_NUMBER, tensor)  # sdpa_fp8_c18
            self.require_type("C18", tensor, (dtypes.f32,))  # sdpa_fp8_c18

    def require_float_arithmetic(self, constraint: str) -> None:
        accepted = (dtypes.f32, dtypes.f64, dtypes.fast_float_for_fp8)
        if self.compute_type not in accepted:  # sdpa_fp8_c15
            raise self.error(
                constraint,
                f"compute type {self.compute_type.cudnn}",
                ", ".join(row.cudnn for row in accepted),
                Status.NOT_SUPPORTED_DATA_TYPE,
            )

    def attention(self, tensor_type: type[Tensor]) -> Any:
        from ..attention_fp8 import Fp8Attention  # written with operations that are listed after

        return Fp8Attention(self, tensor_type)

    def computed(self, given: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        from .sdpa_reference import attention, number

        with np.errstate(all="ignore"):
            scale = number(given, "attn_scale") * _product(given, "descale_q", "descale_k")
            found = attention(self, {**given, "attn_scale": scale}, sizes)
            o = found["o"] * _product(given, "scale_s", "descale_s", "descale_v")
            return {
                **found,
                "o": o * number(given, "scale_o"),
                "amax_s": largest(found["share"]),
                "amax_o": largest(o),
            }


def _product(given: Mapping[str, Any], *names: str) -> Any:
    from .sdpa_reference import number

    return np.prod([number(given, name).reshape(()) for name in names])


def largest(values: Any) -> Any:
    """The largest magnitude, [1, 1, 1, 1]; 0 of nothing."""
    return np.max(np.abs(values), initial=0.0).reshape(1, 1, 1, 1)
