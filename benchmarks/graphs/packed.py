"""Packed attention as an operation graph: `sdpa` of ragged tensors, ours and cuDNN's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import dnnc

if TYPE_CHECKING:
    from .build import Graph


def _packed(made: Graph, p: Mapping[str, Any]) -> None:
    """Tensors are declared [b, h, s, size], s the longest sequence."""
    b, h, s, d = len(p["lengths"]), p["h"], max(p["lengths"]), p["d"]

    def integers(name: str, count: int) -> Any:
        return made.input(name, [count, 1, 1, 1], [1, 1, 1, 1], "int32")

    places, lengths = integers("o_places", b + 1), integers("lengths", b)
    dims, strides = [b, h, s, d], [s * h * d, d, h * d, 1]
    q, k, v = (made.input(name, dims, strides, "bf16") for name in "qkv")
    for tensor in (q, k, v):
        tensor.set_ragged_offset(places)
    total: dict[str, int] = {}
    if made.library is dnnc:  # how many rows memory has, of which it has b * s else
        total = {"max_total_seq_len_q": p["t"], "max_total_seq_len_kv": p["t"]}
    o, stats = made.graph.sdpa(
        name="sdpa", q=q, k=k, v=v, generate_stats=True, attn_scale=d**-0.5,
        diagonal_band_right_bound=0, use_padding_mask=True, seq_len_q=lengths, seq_len_kv=lengths,
        **total,
    )  # fmt: skip
    made.output("o", o, dims, "bf16")
    o.set_stride(strides).set_ragged_offset(places)
    made.output("stats", stats, [b, h, s, 1], "fp32")
    stats.set_stride([s * h, 1, h, 1]).set_ragged_offset(integers("stats_places", b + 1))


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {"packed": _packed}
