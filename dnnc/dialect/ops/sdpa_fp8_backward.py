"""The gradient of attention whose operands are of 8 bits, with a scale for each tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...rounding import round_to, widen
from ..op import operand, result
from ..tensor import Tensor
from .norm_base import fill_rows
from .sdpa_backward import SdpaBackward
from .sdpa_fp8 import ONE_NUMBER, largest

_DESCALED = ("q", "k", "v", "o", "do")
_SCALES = (
    *(f"descale_{name}" for name in (*_DESCALED, "s", "dp")),
    *(f"scale_{name}" for name in ("s", "dq", "dk", "dv", "dp")),
)
_LARGEST = ("dq", "dk", "dv", "dp")


class SdpaFp8Backward(SdpaBackward):
    """dQ, dK and dV of `sdpa_fp8`, from dO, and from O and the statistics of the forward pass.

    Numbers in memory times their descale are what they stand for; a scale makes numbers in memory.
    With P, M, delta and dS of `sdpa_backward`, made of what Q, K, V, O and dO stand for:
        dV = descale_s * fp8(scale_s * P * M)^T dO
        dQ = descale_dp * fp8(scale_dp * attn_scale * dS) K
        dK = descale_dp * fp8(scale_dp * attn_scale * dS)^T Q
    each times its own scale, scale_dv, scale_dq or scale_dk, in memory.  P is rounded to Q's type,
    and dS to dO's, to nearest even, saturating; so it is in the reference.
    Shapes, masks, lengths, dropout, sinks and use_deterministic_algorithm are as in
    `sdpa_backward`; there is no bias, ALiBi or block mask.
    amax_dq, amax_dk, amax_dv: the largest |dQ|, |dK|, |dV| before their scales.  amax_dp: the
    largest |attn_scale * dS|, before scale_dp.
    Source: cuDNN graph API, fused flash attention bprop, FP8; the documentation of
    cudnn-frontend's sdpa_fp8_backward.

    Constraints, beside (C2), (C3), (C5), (C7) to (C9), (C12), (C14), (C15), (C17) and (C19) of
    `sdpa_backward`:
    (C1) Q, K, V have rank 4, one B, and FP8_E4M3 or FP8_E5M2; D of Q is D of K; none is ragged.
    (C4) O and dO are [B, Hq, Sq, Dv], of types that Q may have; stats is [B, Hq, Sq, 1], of HALF,
         BFLOAT16 or FLOAT.
    (C20) descales and scales are one number of a float type each.
    (C21) amax_dq, amax_dk, amax_dv and amax_dp are [1, 1, 1, 1] and FLOAT.
    """

    op_name = "sdpa_fp8_backward"
    scalars = (*SdpaBackward.scalars, *_SCALES)
    backend = ""

    bias = None
    dbias = None
    block_mask = None
    rng_dump = None
    use_alibi_mask = None  # pyright: ignore[reportAssignmentType]
    descale_q: Tensor = operand("[1, 1, 1, 1], of Q")
    descale_k: Tensor = operand("[1, 1, 1, 1], of K")
    descale_v: Tensor = operand("[1, 1, 1, 1], of V")
    descale_o: Tensor = operand("[1, 1, 1, 1], of O")
    descale_do: Tensor = operand("[1, 1, 1, 1], of dO", frontend="descale_dO")
    descale_s: Tensor = operand("[1, 1, 1, 1], of P")
    descale_dp: Tensor = operand("[1, 1, 1, 1], of dS", frontend="descale_dP")
    scale_s: Tensor = operand("[1, 1, 1, 1], of P")
    scale_dq: Tensor = operand("[1, 1, 1, 1], of dQ", frontend="scale_dQ")
    scale_dk: Tensor = operand("[1, 1, 1, 1], of dK", frontend="scale_dK")
    scale_dv: Tensor = operand("[1, 1, 1, 1], of dV", frontend="scale_dV")
    scale_dp: Tensor = operand("[1, 1, 1, 1], of dS", frontend="scale_dP")
    amax_dq: Tensor = result("[1, 1, 1, 1], the largest |dQ|", frontend="amax_dQ")
    amax_dk: Tensor = result("[1, 1, 1, 1], the largest |dK|", frontend="amax_dK")
    amax_dv: Tensor = result("[1, 1, 1, 1], the largest |dV|", frontend="amax_dV")
    amax_dp: Tensor = result("[1, 1, 1, 1], the largest |dS|", frontend="amax_dP")

    @property
    def operand_types(self) -> tuple[DType, ...]:
        return (dtypes.f8e4m3, dtypes.f8e5m2)

    @property
    def _amax(self) -> tuple[Tensor, ...]:
        return (self.amax_dq, self.amax_dk, self.amax_dv, self.amax_dp)

    def infer(self) -> None:
        super().infer()
        for tensor in self._amax:
            fill_rows(tensor, ONE_NUMBER, dtypes.f32)

    def verify(self) -> None:
        super().verify()
        for name in _SCALES:
            self.require_one_element("C20", name, getattr(self, name))  # sdpa_fp8_backward_c20
            self._verify_float("C20", name, getattr(self, name))  # sdpa_fp8_backward_c20
        for tensor in self._amax:
            self.require_dims("C21", ONE_NUMBER, tensor)  # sdpa_fp8_backward_c21
            self.require_type("C21", tensor, (dtypes.f32,))  # sdpa_fp8_backward_c21

    # ---- what it stands for

    def attention(self, tensor_type: type[Tensor]) -> Any:
        from ..attention_fp8_backward import Fp8Gradient  # operations that are listed after

        return Fp8Gradient(self, tensor_type)

    # ---- reference

    def computed(self, given: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        from .sdpa_reference import gradients, number

        def times(name: str) -> Any:
            return number(given, name).reshape(())

        kinds = {"p": ("s", self.q.type), "ds": ("dp", self.do.type)}
        met: dict[str, Any] = {}

        def taken(name: str, values: Any) -> Any:
            met[name] = values
            scale, kind = kinds[name]
            rounded = widen(round_to(values * times(f"scale_{scale}"), kind))
            return rounded * times(f"descale_{scale}")

        with np.errstate(all="ignore"):
            whole = {name: widen(given[name]) * times(f"descale_{name}") for name in _DESCALED}
            found = gradients(self, {**given, **whole}, sizes, taken)
            found["dp"] = met["ds"]
            found |= {f"amax_{name}": largest(found[name]) for name in _LARGEST}
            found |= {name: found[name] * times(f"scale_{name}") for name in ("dq", "dk", "dv")}
            return found
