"""The demo's graphs by name."""

from __future__ import annotations

from collections.abc import Callable

import dnnc

from . import attention, attention_out, embeddings, ffn_in, ffn_out, pool, qkv

# In the order in which the encoder has them; those between the first and the last in each layer.
BUILDERS: dict[str, Callable[[str], dnnc.pygraph]] = {
    "embeddings": embeddings.build,
    "qkv": qkv.build,
    "attention": attention.build,
    "attention_out": attention_out.build,
    "ffn_in": ffn_in.build,
    "ffn_out": ffn_out.build,
    "pool": pool.build,
}
DTYPES = ("f16", "bf16")


def name_of(graph: str, dtype: str) -> str:
    """The graph's and the plan's name."""
    return f"{graph}_{dtype}"


def build(name: str) -> dnnc.pygraph:
    """The graph of a name that `name_of` gave."""
    graph, _, dtype = name.rpartition("_")
    return BUILDERS[graph](dtype)
