"""Packed attention and its gradient as operation graphs: ragged tensors, ours and cuDNN's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import dnnc

if TYPE_CHECKING:
    from .build import Graph


def _packed(made: Graph, p: Mapping[str, Any]) -> None:
    q, k, v = (_operand(made, p, name) for name in "qkv")
    o, stats = made.graph.sdpa(
        name="sdpa", q=q, k=k, v=v, generate_stats=True, attn_scale=p["d"] ** -0.5,
        **_sequences(made, p), **(_total(p) if made.library is dnnc else {}),
    )  # fmt: skip
    _result(made, p, "o", o)
    made.output("stats", stats, [len(p["lengths"]), p["h"], max(p["lengths"]), 1], "fp32")
    _places_of_stats(made, p, stats)


def _packed_backward(made: Graph, p: Mapping[str, Any]) -> None:
    """cuDNN, too, is told of all rows: it makes room for sums of so many."""
    given = {name: _operand(made, p, name.lower()) for name in ("q", "k", "v", "o", "dO")}
    b, h, s = len(p["lengths"]), p["h"], max(p["lengths"])
    stats = made.input("stats", [b, h, s, 1], [s * h, 1, h, 1], "fp32")
    _places_of_stats(made, p, stats)
    results = made.graph.sdpa_backward(
        name="sdpa_backward", stats=stats, attn_scale=p["d"] ** -0.5, **given,
        **_sequences(made, p), **_total(p),
    )  # fmt: skip
    for name, tensor in zip(("dq", "dk", "dv"), results, strict=True):
        _result(made, p, name, tensor)


def _sizes(p: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """(dims, strides) as they are declared: [b, h, s, d], s the longest sequence."""
    b, h, s, d = len(p["lengths"]), p["h"], max(p["lengths"]), p["d"]
    return [b, h, s, d], [s * h * d, d, h * d, 1]


def _integers(made: Graph, name: str, count: int) -> Any:
    """An input, made once."""
    if name not in made.tensors:
        made.input(name, [count, 1, 1, 1], [1, 1, 1, 1], "int32")
    return made.tensors[name]


def _operand(made: Graph, p: Mapping[str, Any], name: str) -> Any:
    places = _integers(made, "o_places", len(p["lengths"]) + 1)
    tensor = made.input(name, *_sizes(p), "bf16")
    tensor.set_ragged_offset(places)
    return tensor


def _result(made: Graph, p: Mapping[str, Any], name: str, tensor: Any) -> None:
    dims, strides = _sizes(p)
    made.output(name, tensor, dims, "bf16")
    places = _integers(made, "o_places", len(p["lengths"]) + 1)
    tensor.set_stride(strides).set_ragged_offset(places)


def _places_of_stats(made: Graph, p: Mapping[str, Any], stats: Any) -> None:
    s, h = max(p["lengths"]), p["h"]
    places = _integers(made, "stats_places", len(p["lengths"]) + 1)
    stats.set_stride([s * h, 1, h, 1]).set_ragged_offset(places)


def _sequences(made: Graph, p: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of both directions."""
    lengths = _integers(made, "lengths", len(p["lengths"]))
    bound = {"diagonal_band_right_bound": 0} if p["causal"] else {}
    return {**bound, "use_padding_mask": True, "seq_len_q": lengths, "seq_len_kv": lengths}


def _total(p: Mapping[str, Any]) -> dict[str, int]:
    """How many rows memory has, of which it has b * s where nothing is said."""
    return {"max_total_seq_len_q": p["t"], "max_total_seq_len_kv": p["t"]}


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {
    "packed": _packed, "packed_backward": _packed_backward,
}  # fmt: skip
