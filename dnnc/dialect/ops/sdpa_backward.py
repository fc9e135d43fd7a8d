"""The gradient of scaled dot-product attention, as one operation that stands for many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import dtypes
from ...expr import Expr
from ..op import attribute, operand, result
from ..tensor import Tensor, packed_strides, stride_order, with_rank
from .norm_base import fill_rows
from .sdpa import Sdpa


class SdpaBackward(Sdpa):
    """dQ, dK and dV of `sdpa`, from dO, and from O and the statistics of the forward pass.

    Q [B, Hq, Sq, D], K [B, Hk, Skv, D], V [B, Hv, Skv, Dv], O and dO [B, Hq, Sq, Dv], stats
    [B, Hq, Sq, 1], dQ, dK, dV as Q, K, V, any strides.  With S the masked scores of `sdpa`, the
    scale, bias and ALiBi in them, and M what dropout multiplies probabilities by (1 without it):
        P = exp(S - stats)        delta = sum over Dv of dO * O
        dV = (P * M)^T dO         dS = P * ((dO V^T) * M - delta)
        dQ = scale * dS K         dK = scale * dS^T Q
    dbias is dS, summed over the axes along which the bias has one element; dsink_token is
    -exp(sink_token - stats) * delta, summed over batches and rows.  dK and dV are sums over the
    query heads that share a head.
    Masks, lengths and dropout are those of `sdpa`, and so is the mask that a seed and an offset
    draw.  Rows and keys past the lengths, and rows that see no key (stats of minus infinity), get
    and give zeros; no result is NaN because of masks, whatever the operands hold past the lengths.
    P and dS are rounded to the types of dO, K and Q before the products, but not in the reference.
    use_deterministic_algorithm: the results have the same bits each time.  Without it kernels may
    add up dQ in any order.
    Source: cuDNN graph API, fused flash attention bprop; the documentation of cudnn-frontend's
    sdpa_backward.

    Constraints, beside (C1) to (C3), (C5) to (C10) and (C12) to (C16) of `sdpa`:
    (C4) O and dO are [B, Hq, Sq, Dv], of Q's types; so is stats, [B, Hq, Sq, 1].
    (C17) dQ, dK, dV have the dims of Q, K, V, and float types.
    (C18) dbias has bias's dims, in rank 4, and a bias is given; it has a float type.
    (C19) dsink_token is [1, Hq, 1, 1], and a sink_token is given; it has a float type.
    """

    op_name = "sdpa_backward"
    backend = "OPERATION_SDPA_BWD"

    o: Tensor = operand("[B, Hq, Sq, Dv], of the forward pass", backend="ODESC")
    stats: Tensor = operand(  # pyright: ignore[reportIncompatibleVariableOverride]
        "[B, Hq, Sq, 1], the log of the sum of exponentials, of the forward pass",
        backend="STATSDESC",
    )
    page_table_k = None
    page_table_v = None
    max_seq_len_kv = None
    score_max = None
    score_sum_exp = None
    block_mask: Tensor | None = operand(
        "[B or 1, Hq or 1, Sq / 128, Skv / 128 / 8], the bits of blocks that are seen",
        optional=True,
    )
    do: Tensor = operand("[B, Hq, Sq, Dv], the gradient of O", frontend="dO", backend="DODDESC")
    dq: Tensor = result("[B, Hq, Sq, D]", frontend="dQ", backend="DQDESC")
    dk: Tensor = result("[B, Hk, Skv, D]", frontend="dK", backend="DKDESC")
    dv: Tensor = result("[B, Hv, Skv, Dv]", frontend="dV", backend="DVDESC")
    dbias: Tensor | None = result(
        "[1 or B, 1 or Hq, 1 or Sq, 1 or Skv]", frontend="dBias", optional=True
    )
    dsink_token: Tensor | None = result("[1, Hq, 1, 1]", frontend="dSink_token", optional=True)
    use_deterministic_algorithm: bool = attribute(
        "whether results have the same bits each time", bool, False
    )

    def infer(self) -> None:
        self._verify_ranks()
        for tensor, model in self._pairs():
            fill_rows(tensor, model.shape)
        if self.bias is not None:
            fill_rows(self.dbias, with_rank(self.bias.shape, 4))
        if self.sink_token is not None:
            fill_rows(self.dsink_token, self.sink_token.shape, dtypes.f32)
        fill_rows(self.rng_dump, self.score_dims, dtypes.f32)

    @property
    def must_repeat(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.use_deterministic_algorithm

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        for made, model in self._pairs():
            if tensor is made:
                return packed_strides(tensor.shape, stride_order(model.shape, model.layout))
        return packed_strides(tensor.shape)

    def _pairs(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Gradients, each with what it is the gradient of."""
        return (self.dq, self.q), (self.dk, self.k), (self.dv, self.v)

    @property
    def padded(self) -> tuple[Tensor, ...]:
        return (self.q, self.k, self.v, self.o, self.do, self.stats, self.dq, self.dk, self.dv)

    def _verify_results(self) -> None:
        self.require_dims("C4", (*self.q.shape[:3], self.v.shape[3]), self.o, self.do)
        self.require_dims("C4", self.row_dims, self.stats)  # sdpa_backward_c4
        for tensor in (self.o, self.do):  # sdpa_backward_c4
            self.require_type("C4", tensor, self.operand_types)
        self.require_type("C4", self.stats, self.statistics_types)  # sdpa_backward_c4
        for tensor, model in self._pairs():
            self.require_dims("C17", model.shape, tensor)  # sdpa_backward_c17
            self._verify_made("C17", "a gradient", tensor)  # sdpa_backward_c17
        self._verify_own("C18", "dbias", self.dbias, "bias", self.bias)  # sdpa_backward_c18
        self._verify_own(  # sdpa_backward_c19
            "C19", "dsink_token", self.dsink_token, "sink_token", self.sink_token
        )

    def _verify_own(
        self, constraint: str, name: str, made: Tensor | None, of: str, given: Tensor | None
    ) -> None:
        """The gradient of an optional operand, which has to be there, with its dims."""
        if made is None:
            return
        if given is None:
            raise self.error(constraint, f"{name} without {of}", f"{of}, or no {name}")
        self.require_dims(constraint, with_rank(given.shape, 4), made)
        self._verify_made(constraint, name, made)

    def _verify_made(self, constraint: str, name: str, made: Tensor) -> None:
        """A result has a float type; one beside a score_mod may get its type later."""
        if made.dtype is not None:
            self._verify_float(constraint, name, made)

    # ---- what it stands for

    def attention(self, tensor_type: type[Tensor]) -> Any:
        from ..attention_backward import AttentionGradient  # operations that are listed after

        return AttentionGradient(self, tensor_type)

    # ---- reference

    def computed(self, given: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        from .sdpa_reference import gradients

        return gradients(self, given, sizes)

    def draw(self, tensor: Tensor, rng: Any, sizes: Mapping[str, int]) -> Any:
        """Statistics as random scores have them, beside what the forward pass draws."""
        if tensor is self.stats:
            dims = [extent.evaluate(sizes) for extent in tensor.shape]
            return rng.uniform(6.0, 8.0, dims).astype(np.float32)
        return super().draw(tensor, rng, sizes)
