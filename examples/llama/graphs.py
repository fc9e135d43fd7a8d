"""The graphs of a decoder layer.  All tensors are bf16 but where a graph says otherwise.

Sums and what lies between are f32.  Weights lie as Linear layers store them, [out, in] in memory.
"""

from __future__ import annotations

from typing import Any

import dnnc

_FLOAT, _INT32 = dnnc.data_type.FLOAT, dnnc.data_type.INT32


def _graph(name: str) -> dnnc.pygraph:
    return dnnc.pygraph(
        name,
        io_data_type=dnnc.data_type.BFLOAT16,
        intermediate_data_type=_FLOAT,
        compute_data_type=_FLOAT,
    )


def angles(name: str, tokens: int, half: int) -> dnnc.pygraph:
    """positions [1, tokens, 1] INT32, frequencies [1, 1, half] -> cos, sin, minus_sin.

    Outputs [1, tokens, half]; all but positions are FLOAT.  All layers of a network share what it
    makes.
    """
    graph = _graph(name)
    positions = graph.tensor([1, tokens, 1], data_type=_INT32, name="positions")
    frequencies = graph.tensor([1, 1, half], data_type=_FLOAT, name="frequencies")
    angle = graph.mul(positions, frequencies)
    sin = graph.sin(angle)
    made = {"cos": graph.cos(angle), "sin": sin, "minus_sin": graph.neg(sin)}
    for what, tensor in made.items():
        tensor.set_output().set_name(what).set_data_type(_FLOAT)
    return graph


def norm(name: str, tokens: int, hidden: int, epsilon: float) -> dnnc.pygraph:
    """x [1, tokens, hidden], scale [1, 1, hidden] -> y = x / rms(x) * scale."""
    graph = _graph(name)
    x = graph.tensor([1, tokens, hidden], name="x")
    scale = graph.tensor([1, 1, hidden], name="scale")
    phase = dnnc.norm_forward_phase.INFERENCE
    y, _ = graph.rmsnorm(phase, x, scale, None, graph.tensor_scalar(epsilon))
    y.set_output().set_name("y")
    return graph


def rotary(name: str, tokens: int, heads: tuple[int, int], head_size: int) -> dnnc.pygraph:
    """One half of the rotary embedding: y = x cos + other sin.

    x, other, y [Hq + Hk, tokens, head_size / 2]: halves of each head of queries and keys; cos, sin
    [1, tokens, head_size / 2], FLOAT.  The lower half has -sin for sin.  heads: (Hq, Hk); x and
    other are columns of rows with all heads of queries, keys and values, y of rows without values.
    """
    graph = _graph(name)
    half, rotated = head_size // 2, sum(heads)
    dims, row = [rotated, tokens, half], (rotated + heads[1]) * head_size
    x, other = (graph.tensor(dims, [head_size, row, 1], name=name) for name in ("x", "other"))
    cos, sin = (
        graph.tensor([1, tokens, half], data_type=_FLOAT, name=name) for name in ("cos", "sin")
    )
    y = graph.add(graph.mul(x, cos), graph.mul(other, sin))
    y.set_output().set_name("y").set_dim(dims).set_stride([head_size, rotated * head_size, 1])
    return graph


def linear(
    name: str, tokens: int, columns: int, depth: int, *, has_residual: bool = False
) -> dnnc.pygraph:
    """x [1, tokens, depth], w [1, depth, columns] -> y = x @ w, + residual if it has one."""
    graph = _graph(name)
    x = graph.tensor([1, tokens, depth], name="x")
    w = graph.tensor([1, depth, columns], [columns * depth, 1, depth], name="w")
    y = graph.matmul(x, w)
    if has_residual:
        y = graph.add(y, graph.tensor([1, tokens, columns], name="residual"))
    y.set_output().set_name("y")
    return graph


def gated(name: str, tokens: int, columns: int, depth: int) -> dnnc.pygraph:
    """x [1, tokens, depth], w_gate, w_up [1, depth, columns] -> silu(x @ w_gate) * (x @ w_up)."""
    graph = _graph(name)
    x = graph.tensor([1, tokens, depth], name="x")
    lies = [1, depth, columns], [columns * depth, 1, depth]
    gate, up = (graph.matmul(x, graph.tensor(*lies, name=n)) for n in ("w_gate", "w_up"))
    graph.mul(graph.swish(gate), up).set_output().set_name("y")
    return graph


def causal(
    name: str, batch: int, queries: int, heads: tuple[int, int], head_size: int
) -> dnnc.pygraph:
    """q [B, Hq, S, D], k, v [B, Hk, S, D] -> y [B, Hq, S, D]; a token sees those up to its own.

    heads: (Hq, Hk).  q and k are columns of what `rotary` gives, v of rows with all heads of
    queries, keys and values; y's heads lie beside each other.
    """
    graph = _graph(name)
    of_q, of_k = heads
    columns = (of_q + of_k) * head_size
    q = _columns(graph, "q", batch, of_q, queries, head_size, columns)
    k = _columns(graph, "k", batch, of_k, queries, head_size, columns)
    v = _columns(graph, "v", batch, of_k, queries, head_size, columns + of_k * head_size)
    y, _ = graph.sdpa(
        q, k, v, attn_scale=head_size**-0.5, use_causal_mask=True, generate_stats=False
    )
    return _with_heads(graph, y, batch, of_q, queries, head_size)


def paged(
    name: str, batch: int, keys: int, block: int, heads: tuple[int, int], head_size: int
) -> dnnc.pygraph:
    """q [B, Hq, 1, D], k, v [blocks, Hk, block, D] -> y [B, Hq, 1, D]: one new token a sequence.

    table [B, 1, keys / block, 1] INT32: the block of each page of a sequence, for keys and for
    values.  lengths [B, 1, 1, 1] INT32: keys of each, at most `keys`; ones, of the same kind: the
    queries of each.  heads: (Hq, Hk).  q is columns of what `rotary` gives.
    """
    graph = _graph(name)
    of_q, of_k = heads
    pages = keys // block
    q = _columns(graph, "q", batch, of_q, 1, head_size, (of_q + of_k) * head_size)
    k, v = (graph.tensor([batch * pages, of_k, block, head_size], name=n) for n in "kv")
    table = graph.tensor([batch, 1, pages, 1], data_type=_INT32, name="table")
    lengths, ones = (
        graph.tensor([batch, 1, 1, 1], data_type=_INT32, name=n) for n in ("lengths", "ones")
    )
    y, _ = graph.sdpa(
        q, k, v, attn_scale=head_size**-0.5, generate_stats=False,
        use_padding_mask=True, seq_len_q=ones, seq_len_kv=lengths,
        paged_attention_k_table=table, paged_attention_v_table=table,
        paged_attention_max_seq_len_kv=keys,
    )  # fmt: skip
    return _with_heads(graph, y, batch, of_q, 1, head_size)


def _columns(
    graph: dnnc.pygraph, name: str, batch: int, heads: int, tokens: int, head_size: int, row: int
) -> Any:
    """Some heads of rows that lie `row` elements apart: [batch, heads, tokens, head_size]."""
    dims = [batch, heads, tokens, head_size]
    return graph.tensor(dims, [tokens * row, head_size, row, 1], name=name)


def _with_heads(
    graph: dnnc.pygraph, y: Any, batch: int, heads: int, tokens: int, head_size: int
) -> dnnc.pygraph:
    """Makes y the output, a token's heads beside each other."""
    row = heads * head_size
    y.set_output().set_name("y").set_dim([batch, heads, tokens, head_size])
    y.set_stride([tokens * row, head_size, row, 1])
    return graph


def to_blocks(
    name: str, pages: int, block: int, heads: int, head_size: int, row: int
) -> dnnc.pygraph:
    """x [pages, heads, block, head_size] -> y of the same dims: keys or values as blocks.

    x's tokens are rows that lie `row` elements apart; a block of y has each head's tokens
    together, and y's blocks follow each other.
    """
    graph = _graph(name)
    dims = [pages, heads, block, head_size]
    x = graph.tensor(dims, [block * row, head_size, row, 1], name="x")
    y = graph.identity(x).set_output().set_name("y").set_dim(dims)
    y.set_stride([heads * block * head_size, block * head_size, head_size, 1])
    return graph
