"""Expands attention of fp8, beside what `attention` says.

s = matmul(q, kt) * scale * descale_q * descale_k      ...      amax_s = amax(p)
p8 = fp8(p * scale_s)      a = matmul(p8, v) * descale_s * descale_v
amax_o = amax(a)      o = a * scale_o
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .attention import Attention
from .tensor import Tensor

if TYPE_CHECKING:
    from .ops.sdpa_fp8 import SdpaFp8

_ALL = (0, 1, 2, 3)


class Fp8Attention(Attention):
    """The operations of one attention of fp8."""

    op: SdpaFp8

    def scores(self) -> Tensor:
        found = super().scores()
        for descale in (self.op.descale_q, self.op.descale_k):
            found = self.steps.pointwise("mul", found, descale)
        return found

    def weigh(self, share: Tensor) -> None:
        op, steps = self.op, self.steps
        steps.reduction("amax", share, _ALL, to=op.amax_s)
        scaled = steps.pointwise("mul", share, op.scale_s, to=steps.virtual(op.q.dtype))
        found = self.product(scaled, self.values())
        for descale in (op.descale_s, op.descale_v):
            found = steps.pointwise("mul", found, descale)
        steps.reduction("amax", found, _ALL, to=op.amax_o)
        steps.pointwise("mul", found, op.scale_o, to=op.o)
