"""Expands the gradient of attention of fp8, beside what `attention_backward` says.

s = matmul(q, kt) * scale * descale_q * descale_k
p8 = fp8(p * scale_s)                dv = matmul(p8, do) * descale_s * descale_do
dp = matmul(do, vt) * descale_do * descale_v
delta = sum(do * o) * descale_do * descale_o
ds8 = fp8(ds * scale * scale_dp)     dq = matmul(ds8, k) * descale_dp * descale_k
                                     dk = matmul(ds8, q) * descale_dp * descale_q
amax_dp = amax(ds * scale)           amax_dq = amax(dq)     dq = dq * scale_dq     ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dtypes import DType
from .attention_backward import AttentionGradient
from .tensor import Tensor

if TYPE_CHECKING:
    from .ops.sdpa_fp8_backward import SdpaFp8Backward

_ALL = (0, 1, 2, 3)


class Fp8Gradient(AttentionGradient):
    """The operations of the gradient of one attention of fp8."""

    op: SdpaFp8Backward  # pyright: ignore[reportIncompatibleVariableOverride]

    def scores(self) -> Tensor:
        return self._times(super().scores(), self.op.descale_q, self.op.descale_k)

    def weigh_rows(self, weights: Tensor, do: Tensor) -> None:
        op = self.op
        made = self.steps.virtual()
        self._over_rows(self._as_fp8(weights, op.scale_s, op.q.type), do, made, op.dv)
        made = self._times(made, op.descale_s, op.descale_do)
        self._scaled_result(made, op.amax_dv, op.scale_dv, op.dv)

    def of_weights(self, do: Tensor) -> Tensor:
        return self._times(super().of_weights(do), self.op.descale_do, self.op.descale_v)

    def row_sums(self, do: Tensor) -> Tensor:
        return self._times(super().row_sums(do), self.op.descale_do, self.op.descale_o)

    def products(self, ds: Tensor, is_modified: bool = False) -> None:
        op, steps = self.op, self.steps
        ds = self._scaled(ds)
        steps.reduction("amax", ds, _ALL, to=op.amax_dp)
        ds = self._as_fp8(ds, op.scale_dp, op.do.type)
        dq = self.product(ds, self._zero_past(op.k, op.seq_len_kv))
        dq = self._times(dq, op.descale_dp, op.descale_k)
        self._scaled_result(dq, op.amax_dq, op.scale_dq, op.dq)
        dk = steps.virtual()
        self._over_rows(ds, self._zero_past(op.q, op.seq_len_q), dk, op.dk)
        dk = self._times(dk, op.descale_dp, op.descale_q)
        self._scaled_result(dk, op.amax_dk, op.scale_dk, op.dk)

    def _times(self, value: Tensor, *numbers: Tensor) -> Tensor:
        for number in numbers:
            value = self.steps.pointwise("mul", value, number)
        return value

    def _as_fp8(self, value: Tensor, scale: Tensor, kind: DType) -> Tensor:
        scaled = self.steps.pointwise("mul", value, scale)
        return self.steps.pointwise("identity", scaled, to=self.steps.virtual(kind))

    def _scaled_result(self, made: Tensor, amax: Tensor, scale: Tensor, to: Tensor) -> None:
        self.steps.reduction("amax", made, _ALL, to=amax)
        self.steps.pointwise("mul", made, scale, to=to)
