# pyright: basic
"""`pygraph.sdpa_fp8_backward`: the gradient of attention of fp8 under cudnn-frontend's names."""

from __future__ import annotations

from typing import Any

from ..dialect.ops import SdpaFp8Backward
from ..dialect.tensor import Tensor
from ..expr import Size
from . import enums
from .argument_types import DataType, DiagonalAlignment, Dropout, Operand
from .attention import Call
from .graph_tensor import GraphTensor
from .methods import compute_type_of


def sdpa_fp8_backward(
    self: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    dO: Tensor,
    stats: Tensor,
    descale_q: Tensor,
    descale_k: Tensor,
    descale_v: Tensor,
    descale_o: Tensor,
    descale_dO: Tensor,
    descale_s: Tensor,
    descale_dP: Tensor,
    scale_s: Tensor,
    scale_dQ: Tensor,
    scale_dK: Tensor,
    scale_dV: Tensor,
    scale_dP: Tensor,
    attn_scale: Operand | None = None,
    use_padding_mask: bool = False,
    seq_len_q: Tensor | None = None,
    seq_len_kv: Tensor | None = None,
    use_causal_mask: bool = False,
    use_causal_mask_bottom_right: bool = False,
    diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
    left_bound: int | None = None,
    right_bound: int | None = None,
    use_deterministic_algorithm: bool = False,
    dropout: Dropout | None = None,
    compute_data_type: DataType | None = None,
    name: str = "",
    sink_token: Tensor | None = None,
    dSink_token: Tensor | None = None,
    *,
    max_total_seq_len_q: Size | None = None,
    max_total_seq_len_kv: Size | None = None,
    stats_use_log2: bool = False,
    softmax_precision: DataType | None = None,
    attn_scale_prefolded: bool = False,
) -> tuple[
    GraphTensor, GraphTensor, GraphTensor, GraphTensor, GraphTensor, GraphTensor, GraphTensor
]:
    """The gradient of `sdpa_fp8`; gives (dQ, dK, dV, amax_dQ, amax_dK, amax_dV, amax_dP).

    What is not said here is as in `sdpa_backward` and `sdpa_fp8`.  descale_q to descale_dO: what
    q, k, v, o, dO in memory are multiplied by; scale_s and scale_dP, descale_s and descale_dP: what
    the probabilities and the gradient of the scores are multiplied by before they become fp8, of
    q's and of dO's type, and after; scale_dQ, scale_dK, scale_dV: what results are multiplied by
    before they have their types.  All are tensors of one number, FLOAT [1, 1, 1, 1].  amax_dQ,
    amax_dK, amax_dV, amax_dP: the largest magnitudes before these scales, FLOAT [1, 1, 1, 1], made
    where they are outputs; that of dP is of the gradient of the scores, times attn_scale.
    """
    call = Call(self, name, "sdpa_fp8_backward")
    call.refuse_what_is_not_there(
        softmax_precision=softmax_precision, attn_scale_prefolded=attn_scale_prefolded
    )
    band = call.band(
        (use_causal_mask, use_causal_mask_bottom_right, diagonal_alignment, right_bound),
        left_bound,
    )
    lengths = (use_padding_mask, (seq_len_q, seq_len_kv), (None, None))
    queries, keys = call.sides(lengths, (max_total_seq_len_q, max_total_seq_len_kv))
    tensors = {
        **call.gradient_operands((q, k, v, o, dO, stats), queries, keys),
        "attn_scale": attn_scale,
        "sink_token": sink_token,
        "descale_q": descale_q,
        "descale_k": descale_k,
        "descale_v": descale_v,
        "descale_o": descale_o,
        "descale_do": descale_dO,
        "descale_s": descale_s,
        "descale_dp": descale_dP,
        "scale_s": scale_s,
        "scale_dq": scale_dQ,
        "scale_dk": scale_dK,
        "scale_dv": scale_dV,
        "scale_dp": scale_dP,
    }
    values: dict[str, Any] = {
        **call.shared(tensors, queries, keys, dropout, band),
        "dsink_token": dSink_token,
        "stats_use_log2": bool(stats_use_log2),
        "use_deterministic_algorithm": bool(use_deterministic_algorithm),
        "compute_type": compute_type_of(self, compute_data_type, SdpaFp8Backward),
    }
    names = [field.name for field in SdpaFp8Backward.fields_of("result")]
    made = dict(zip(names, self._append(SdpaFp8Backward, values, call.label), strict=True))
    for result, side in (("dq", queries), ("dk", keys), ("dv", keys)):
        self._packing.may_be_stored(made[result], side)
    dq, dk, dv = (made[name] for name in ("dq", "dk", "dv"))
    return dq, dk, dv, made["amax_dq"], made["amax_dk"], made["amax_dv"], made["amax_dp"]


def methods() -> dict[str, Any]:
    return {"sdpa_fp8_backward": sdpa_fp8_backward}
