"""Paged attention as an operation graph: `sdpa` with tables of pages, ours and cuDNN's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .build import Graph


def _paged(made: Graph, p: Mapping[str, Any]) -> None:
    b, h, d, page = p["b"], p["h"], p["d"], p["page"]
    shared, pages = h // p["groups"], p["s"] // page

    def packed(name: str, dims: list[int], dtype: str) -> Any:
        strides = [dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1]
        return made.input(name, dims, strides, dtype)

    q = packed("q", [b, h, 1, d], "bf16")
    k, v = (packed(name, [b * pages, shared, page, d], "bf16") for name in "kv")
    k_table, v_table = (packed(f"{name}_table", [b, 1, pages, 1], "int32") for name in "kv")
    queries, lengths = (packed(name, [b, 1, 1, 1], "int32") for name in ("queries", "lengths"))
    o, stats = made.graph.sdpa(
        name="sdpa", q=q, k=k, v=v, generate_stats=True, attn_scale=d**-0.5, use_padding_mask=True,
        seq_len_q=queries, seq_len_kv=lengths, paged_attention_k_table=k_table,
        paged_attention_v_table=v_table, paged_attention_max_seq_len_kv=p["s"],
    )  # fmt: skip
    made.output("o", o, [b, h, 1, d], "bf16")
    made.output("stats", stats, [b, h, 1, 1], "fp32")


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {"paged": _paged}
