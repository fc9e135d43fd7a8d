# pyright: basic
"""`pygraph.sdpa_backward`: the gradient of attention under cudnn-frontend's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..dialect.derivative import gradient_of
from ..dialect.ops import SdpaBackward
from ..dialect.tensor import Tensor
from ..expr import Size
from . import enums
from .argument_types import DataType, DiagonalAlignment, Dropout, Operand, ScoreModification
from .attention import Call
from .graph_tensor import GraphTensor
from .methods import compute_type_of


def sdpa_backward(
    self: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    dO: Tensor,
    stats: Tensor,
    attn_scale: Operand | None = None,
    bias: Tensor | None = None,
    dBias: Tensor | None = None,
    use_alibi_mask: bool = False,
    use_padding_mask: bool = False,
    seq_len_q: Tensor | None = None,
    seq_len_kv: Tensor | None = None,
    max_total_seq_len_q: Size | None = None,
    max_total_seq_len_kv: Size | None = None,
    use_causal_mask: bool = False,
    use_causal_mask_bottom_right: bool = False,
    sliding_window_length: int | None = None,
    diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
    diagonal_band_left_bound: int | None = None,
    diagonal_band_right_bound: int | None = None,
    dropout: Dropout | None = None,
    rng_dump: Tensor | None = None,
    use_deterministic_algorithm: bool = False,
    compute_data_type: DataType | None = None,
    name: str = "",
    score_mod: ScoreModification | None = None,
    score_mod_bprop: ScoreModification | None = None,
    sink_token: Tensor | None = None,
    dSink_token: Tensor | None = None,
    *,
    block_mask: Tensor | None = None,
    stats_use_log2: bool = False,
    softmax_precision: DataType | None = None,
    attn_scale_prefolded: bool = False,
) -> tuple[GraphTensor, GraphTensor, GraphTensor]:
    """The gradient of `sdpa`; gives (dQ, dK, dV).

    What is not said here is as in `sdpa`, and has to be what the forward pass was given.  o, stats:
    its results; dO: the gradient of o, [B, Hq, Sq, Dv].  dQ, dK, dV have the dims of q, k, v.
    dBias, dSink_token: tensors of the graph that are written, the gradients of bias and sink_token,
    with their dims.
    score_mod_bprop(graph, gradient): operations of the graph that make the gradient of the scaled
    scores of that of the scores that score_mod gives; without it, the derivative of score_mod's
    pointwise operations is taken.  What else score_mod reads gets no gradient.
    dropout: (probability, seed, offset), which draw the same mask again, or (mask, scale) and,
    where it is given, 1 / scale, which is not read.  use_deterministic_algorithm: results have the
    same bits each time; without it dQ may be added up in any order.
    Packed sequences: tensors with a ragged offset, q, o, dO, dQ (and stats, if they have one) on
    one side, k, v, dK, dV on the other.
    """
    call = Call(self, name, "sdpa_backward")
    call.refuse_what_is_not_there(
        softmax_precision=softmax_precision, attn_scale_prefolded=attn_scale_prefolded
    )
    if score_mod_bprop is not None and score_mod is None:
        raise call.error("score_mod_bprop without score_mod", "both, or score_mod alone")
    window = diagonal_band_left_bound if sliding_window_length is None else sliding_window_length
    band = call.band(
        (
            use_causal_mask,
            use_causal_mask_bottom_right,
            diagonal_alignment,
            diagonal_band_right_bound,
        ),
        window,
    )
    lengths = (use_padding_mask, (seq_len_q, seq_len_kv), (None, None))
    queries, keys = call.sides(
        lengths,
        (max_total_seq_len_q, max_total_seq_len_kv),
        is_modified=score_mod is not None,
    )
    tensors = {
        **call.gradient_operands((q, k, v, o, dO, stats), queries, keys),
        "attn_scale": attn_scale,
        "bias": bias,
        "sink_token": sink_token,
        "block_mask": block_mask,
    }
    values: dict[str, Any] = {
        **call.shared(tensors, queries, keys, dropout, band),
        "rng_dump": rng_dump,
        "dbias": dBias,
        "dsink_token": dSink_token,
        "use_alibi_mask": bool(use_alibi_mask),
        "stats_use_log2": bool(stats_use_log2),
        "use_deterministic_algorithm": bool(use_deterministic_algorithm),
        "compute_type": compute_type_of(self, compute_data_type, SdpaBackward),
    }
    if score_mod is None:
        made = dict(zip(_names(), self._append(SdpaBackward, values, call.label), strict=True))
    else:
        made = _decomposed(call, values, score_mod, score_mod_bprop)
        self.graph.repeats |= bool(use_deterministic_algorithm)
    for result, side in (("dq", queries), ("dk", keys), ("dv", keys)):
        self._packing.may_be_stored(made[result], side)
    return made["dq"], made["dk"], made["dv"]


def _names() -> list[str]:
    return [field.name for field in SdpaBackward.fields_of("result")]


def _decomposed(
    call: Call,
    values: dict[str, Any],
    score_mod: Callable[[Any, Any], Any],
    score_mod_bprop: Callable[[Any, Any], Any] | None,
) -> Mapping[str, Any]:
    """Adds what the gradient stands for, with the caller's operations among it; results by name."""
    call.require_function("score_mod", score_mod)
    if score_mod_bprop is not None:
        call.require_function("score_mod_bprop", score_mod_bprop)
    results, attention = call.begun(SdpaBackward, values)
    scores = attention.scores()
    call.add(attention)
    first = len(call.graph.graph.ops)
    changed = call.modified(attention, scores, score_mod)
    between = call.graph.graph.ops[first:]
    ds = attention.of_scores(changed)
    call.add(attention)
    if score_mod_bprop is not None:
        ds = call.modified(attention, ds, score_mod_bprop, "score_mod_bprop")
    else:
        ds = gradient_of(between, changed, scores, ds, attention.steps)
    attention.products(ds, is_modified=True)
    call.add(attention)
    return dict(zip(_names(), results, strict=True))


def methods() -> dict[str, Any]:
    """The methods of the gradient by name, older names too."""
    return {
        "sdpa_backward": sdpa_backward,
        "scaled_dot_product_flash_attention_backward": sdpa_backward,
    }
