"""Rotary embeddings, alone and ahead of attention, as operation graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..cases.rope import KIND, WITH_ATTENTION, ends

if TYPE_CHECKING:
    from .build import Graph


def _rope(made: Graph, p: Mapping[str, Any]) -> None:
    sizes = _sizes(p, p["h"], p["s"])
    y = _rotated(made, p, made.input("x", *sizes, "bf16"), "", p["s"])
    made.output("y", y, sizes[0], "bf16")


def _rope_attention(made: Graph, p: Mapping[str, Any]) -> None:
    shared = p["h"] // p["groups"]
    rows = {"q": p["q"], "k": p["s"], "v": p["s"]}
    given = {
        name: made.input(name, *_sizes(p, p["h"] if name == "q" else shared, count), "bf16")
        for name, count in rows.items()
    }
    for name in ends(p):
        given[name] = _rotated(made, p, given[name], name, rows[name])
        given[name].set_data_type(made.type("BFLOAT16"))
    o, stats = made.graph.sdpa(
        name="sdpa", generate_stats=True, attn_scale=p["d"] ** -0.5,
        use_causal_mask=p["q"] == p["s"], **given,
    )  # fmt: skip
    made.output("o", o, _sizes(p, p["h"], p["q"])[0], "bf16")
    made.output("stats", stats, [p["b"], p["h"], p["q"], 1], "fp32")


def _rotated(made: Graph, p: Mapping[str, Any], x: Any, name: str, rows: int) -> Any:
    """Rotates a tensor by the operation `rope`, or by its steps from tables."""
    g, d = made.graph, p["d"]
    if p["angles"] == "angles":
        return g.rope(x, made.input("angles" + name, [1, 1, rows, d], [rows * d, rows * d, d, 1],
                                    "fp32"))  # fmt: skip
    half = d // 2
    strides = [rows * half, rows * half, half, 1]
    cos, sin = (made.input(n + name, [1, 1, rows, half], strides, "bf16") for n in ("cos", "sin"))
    whole = slice(None)
    low, high = (g.slice(x, [whole] * 3 + [slice(at, at + half)]) for at in (0, half))
    rotated = [g.sub(g.mul(low, cos), g.mul(high, sin)), g.add(g.mul(high, cos), g.mul(low, sin))]
    return g.concatenate(rotated, axis=3)


def _sizes(p: Mapping[str, Any], heads: int, rows: int) -> tuple[list[int], list[int]]:
    """(dims, strides)"""
    d = p["d"]
    return [p["b"], heads, rows, d], [heads * rows * d, rows * d, d, 1]


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {
    KIND: _rope, WITH_ATTENTION: _rope_attention,
}  # fmt: skip
