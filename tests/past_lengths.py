"""Attention of padded sequences whose memory past the lengths holds anything."""

import numpy as np

import dnnc
from tests.attention_graphs import Pattern
from tests.fp8_attention import NUMBERS
from tests.support.checked import random_inputs


def attention(
    *, batch=2, heads=2, key_heads=0, queries=40, keys=100, depth=64, width=0, dtype="HALF",
    bias=False, dropout=False, gates=False, pages=0, **options,
):  # fmt: skip
    """A graph of one `sdpa`, or `sdpa_fp8`, with lengths.

    bias, dropout: with a tensor of the scores' dims.  gates: with a score_mod that multiplies by
    one of keys, and by one of queries.  pages: of K, of 16 keys, whose V lies in place.
    """
    g = dnnc.pygraph(
        "padded", io_data_type=dtype, intermediate_data_type="FLOAT", compute_data_type="FLOAT"
    )
    key_heads, is_fp8 = key_heads or heads, dtype.startswith("FP8")
    q = g.tensor([batch, heads, queries, depth], name="q")
    k = g.tensor([batch, key_heads, keys, depth], name="k")
    if pages:
        k = g.tensor([pages, key_heads, 16, depth], name="pages")
        table = g.tensor([batch, 1, -(-keys // 16), 1], data_type="INT32", name="table")
        options |= {"paged_attention_k_table": table, "paged_attention_max_seq_len_kv": keys}
    v = g.tensor([batch, key_heads, keys, width or depth], name="v")
    for side in ("q", "kv"):
        lengths = g.tensor([batch, 1, 1, 1], data_type="INT32", name=f"length_{side}")
        options[f"seq_len_{side}"] = lengths
    scores = [batch, heads, queries, keys]
    if bias:
        options["bias"] = g.tensor([batch, 1, *scores[2:]], data_type="FLOAT", name="bias")
    if dropout:
        mask = g.tensor([1, *scores[1:]], name="mask")
        options["dropout"] = mask, g.tensor([1] * 4, data_type="FLOAT", name="share")
    if gates:
        rows, columns = (
            g.tensor(dims, data_type="FLOAT", name=name)
            for dims, name in (([batch, 1, queries, 1], "rows"), ([1, heads, 1, keys], "columns"))
        )
        options["score_mod"] = lambda graph, s: graph.mul(graph.mul(s, rows), columns)
    if is_fp8:
        numbers = {n: g.tensor([1] * 4, data_type="FLOAT", name=n) for n in NUMBERS}
        o, stats, *largest = g.sdpa_fp8(
            q, k, v, **numbers, generate_stats=True, use_padding_mask=True, **options
        )
        for tensor, name in zip(largest, ("amax_s", "amax_o"), strict=True):
            tensor.set_output().set_name(name)
        o.set_data_type("BFLOAT16")
    else:
        o, stats = g.sdpa(
            q, k, v, generate_stats=True, attn_scale=depth**-0.5, use_padding_mask=True, **options
        )
    o.set_output().set_name("o")
    stats.set_output().set_name("stats").set_data_type("FLOAT")
    return g


def inputs_of(g, rows, columns, garbage=float("nan")):
    """Random ones.  rows, columns: the lengths, past which all tensors hold garbage."""
    graph = g.graph.finalize()
    found = random_inputs(graph, {})
    sides = {"q": (rows, None), "k": (columns, None), "v": (columns, None), "bias": (rows, columns),
             "mask": (rows, columns), "rows": (rows, None), "columns": (None, columns)}  # fmt: skip
    for tensor in graph.inputs:
        array = found[tensor.uid]
        if tensor.name in ("length_q", "length_kv", "lengths"):
            lengths = rows if tensor.name == "length_q" else columns
            found[tensor.uid] = np.reshape(lengths, array.shape)
        elif tensor.name in NUMBERS:
            array[:] = NUMBERS[tensor.name]
        elif tensor.name in sides:
            for axis, lengths in zip((2, 3), sides[tensor.name], strict=True):
                if lengths is not None:
                    _spoil(array, axis, lengths, garbage)
        elif tensor.name == "table":
            _spoil_pages(graph, found, tensor, columns, garbage)
    return found


def _spoil(array, axis, lengths, garbage):
    if array.shape[0] == 1:
        lengths = [max(lengths)]
    for entry, length in zip(array, lengths, strict=True):
        entry[(slice(None),) * (axis - 1) + (slice(length, None),)] = garbage


def _spoil_pages(graph, found, table, columns, garbage):
    """The tail of each sequence's last page, pages of nobody, and entries of the table past the
    length, which name no page at all."""
    (memory,) = (tensor for tensor in graph.inputs if tensor.name == "pages")
    pages = found[memory.uid]
    used, names = np.zeros((len(pages), 16), bool), np.full(found[table.uid].shape, 1 << 30)
    order = iter(np.random.default_rng(0).permutation(len(pages)))
    for entry, length in enumerate(columns):
        for place in range(0, length, 16):
            page = next(order)
            names[entry, 0, place // 16] = page
            used[page, : length - place] = True
    found[table.uid] = names
    pages[~np.broadcast_to(used[:, None, :, None], pages.shape)] = garbage


def in_single_operations(*, is_stored, **shape):
    """The graph of an attention in single operations: a mask of lengths, and values that are zeros
    past them.  is_stored: whether its weights are an output."""

    def scores(p, s):
        p.lengths = p.g.tensor([p.dims[0], 1, 1, 1], name="lengths", data_type="INT32")
        return p.masked(p.scaled(s), p.integer("cmp_lt", p.column(s), p.lengths))

    def values(p, v):
        is_there = p.integer("cmp_gt", p.lengths, p.index(v, 2))
        return p.g.binary_select(v, 0.0, is_there).set_data_type(v.get_data_type())

    def weights(p, w):
        if is_stored:
            w = p.g.identity(w).set_output().set_name("s").set_data_type("FLOAT")
        return w

    return Pattern(batch=(2, 1), scores=scores, values=values, weights=weights, **shape).g
