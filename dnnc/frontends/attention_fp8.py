# pyright: basic
"""`pygraph.sdpa_fp8`: attention of fp8, a scale for each tensor, under cudnn-frontend's names."""

from __future__ import annotations

from typing import Any

from ..dialect.ops import SdpaFp8
from ..dialect.tensor import Tensor
from ..expr import Size
from . import enums
from .argument_types import (
    AttentionImplementation,
    DataType,
    DiagonalAlignment,
    Dropout,
    Operand,
    ScoreModification,
)
from .attention import Call
from .graph_tensor import GraphTensor
from .methods import compute_type_of


def sdpa_fp8(
    self: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    descale_q: Tensor,
    descale_k: Tensor,
    descale_v: Tensor,
    descale_s: Tensor,
    scale_s: Tensor,
    scale_o: Tensor,
    is_inference: bool | None = None,
    attn_scale: Operand | None = None,
    bias: Tensor | None = None,
    use_alibi_mask: bool = False,
    use_padding_mask: bool = False,
    seq_len_q: Tensor | None = None,
    seq_len_kv: Tensor | None = None,
    use_causal_mask: bool = False,
    use_causal_mask_bottom_right: bool = False,
    sliding_window: int | None = None,
    diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
    left_bound: int | None = None,
    right_bound: int | None = None,
    dropout: Dropout | None = None,
    rng_dump: Tensor | None = None,
    paged_attention_k_table: Tensor | None = None,
    paged_attention_v_table: Tensor | None = None,
    paged_attention_max_seq_len_kv: int | None = None,
    compute_data_type: DataType | None = None,
    name: str = "",
    fn: ScoreModification | None = None,
    generate_stats: bool | None = None,
    score_max: Tensor | None = None,
    score_sum_exp: Tensor | None = None,
    sink_token: Tensor | None = None,
    *,
    max_total_seq_len_q: Size | None = None,
    max_total_seq_len_kv: Size | None = None,
    cu_seq_len_q: Tensor | None = None,
    cu_seq_len_kv: Tensor | None = None,
    stats_use_log2: bool = False,
    implementation: AttentionImplementation = enums.attention_implementation.AUTO,
) -> tuple[GraphTensor, GraphTensor | None, GraphTensor, GraphTensor]:
    """Attention of FP8_E4M3 or FP8_E5M2; gives [O, stats or None, amax_s, amax_o].

    What is not said here is as in `sdpa`: dims, masks, lengths, packed sequences, the score
    modification `fn`, and what is refused.  descale_q, descale_k, descale_v: what Q, K, V in memory
    are multiplied by; scale_s, descale_s: what the probabilities P are multiplied by before they
    become fp8, and after; scale_o: what O is multiplied by before it has its type.  All are tensors
    of one number, FLOAT [1, 1, 1, 1].  amax_s, amax_o: the largest P and |O| before their scales,
    FLOAT [1, 1, 1, 1], made where they are outputs.  compute_data_type, or the graph's, may be
    FAST_FLOAT_FOR_FP8: sums may stay in the tensor cores' accumulators.
    """
    call = Call(self, name, "sdpa_fp8")
    enums.member_of("implementation", implementation, enums.attention_implementation)
    made = call.attend(
        SdpaFp8,
        {
            "q": q, "k": k, "v": v, "attn_scale": attn_scale, "bias": bias,
            "sink_token": sink_token, "descale_q": descale_q, "descale_k": descale_k,
            "descale_v": descale_v, "descale_s": descale_s, "scale_s": scale_s, "scale_o": scale_o,
        },
        lengths=(use_padding_mask, (seq_len_q, seq_len_kv), (cu_seq_len_q, cu_seq_len_kv)),
        totals=(max_total_seq_len_q, max_total_seq_len_kv),
        has_stats=call.wants_stats(generate_stats, is_inference),
        diagonal=(use_causal_mask, use_causal_mask_bottom_right, diagonal_alignment, right_bound),
        window=left_bound if sliding_window is None else sliding_window,
        pages=(paged_attention_k_table, paged_attention_v_table, paged_attention_max_seq_len_kv),
        dropout=dropout,
        score_mod=fn,
        results={"rng_dump": rng_dump, "score_max": score_max, "score_sum_exp": score_sum_exp},
        use_alibi_mask=bool(use_alibi_mask),
        stats_use_log2=bool(stats_use_log2),
        compute_type=compute_type_of(self, compute_data_type, SdpaFp8),
    )  # fmt: skip
    return made[0], made[1], made[-2], made[-1]


def methods() -> dict[str, Any]:
    return {"sdpa_fp8": sdpa_fp8}
