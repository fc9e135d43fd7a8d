"""Attention written in single operations, for tests of what recognises it."""

from __future__ import annotations

import math

import numpy as np

import dnnc
from dnnc.dialect.tensor import packed_strides
from tests.support.checked import random_inputs

LOW = -math.inf


class Pattern:
    """The graph of an attention, part by part.

    scores, weights, after: functions (pattern, tensor) -> tensor of work on S, P and O.
    mixed: another type of V.
    """

    def __init__(
        self, *, batch=(1, 2), queries=64, keys=96, depth=64, width=None, dtype="BFLOAT16",
        key_batch=None, scores=None, weights=None, after=None, statistics="log_sum", share="mul",
        is_guarded=True, weight_type=None, out_type=None, transposed=True, strides=None, mixed=None,
        values=None,
    ):  # fmt: skip
        self.dims = (*batch, queries, keys)
        self.g = g = dnnc.pygraph(
            "attention", io_data_type=dtype, intermediate_data_type="FLOAT",
            compute_data_type="FLOAT",
        )  # fmt: skip
        width = width or depth
        key_batch = key_batch or batch
        strides = strides or {}
        self.q = g.tensor([*batch, queries, depth], strides.get("q"), name="q")
        if transposed:
            self.k = g.tensor([*key_batch, keys, depth], strides.get("k"), name="k")
            rank = len(self.dims)
            kt = g.transpose(self.k, permutation=[*range(rank - 2), rank - 1, rank - 2])
        else:
            kt = self.k = g.tensor([*key_batch, depth, keys], strides.get("k"), name="k")
        of_values = [*key_batch, keys, width]
        self.v = g.tensor(of_values, strides.get("v"), name="v", data_type=mixed or dtype)
        s = g.matmul(self.q, kt)
        s = scores(self, s) if scores else g.mul(s, depth**-0.5)
        self.m = self._rows(s, "max")
        base = self.m
        if is_guarded:
            is_low = self.flag(g.cmp_eq(self.m, LOW))
            base = g.binary_select(0.0, self.m, is_low)
        e = g.exp(g.sub(s, base))
        self.l = self._rows(e, "add")
        p = self._shared(e, share)
        p = weights(self, p) if weights else p
        p = g.identity(p).set_data_type(weight_type or dtype)
        o = g.matmul(p, values(self, self.v) if values else self.v)
        if share == "after":
            o = g.div(o, self.l)
        o = after(self, o) if after else g.identity(o)
        o.set_output().set_name("o").set_data_type(out_type or dtype)
        self._statistics(statistics)

    def _rows(self, x, mode):
        made = self.g.reduction(x, mode=mode)
        return made.set_dim([*self.dims[:-1], 1])

    def _shared(self, e, share):
        g = self.g
        if share == "after":
            return e
        is_zero = self.flag(g.cmp_eq(self.l, 0.0))
        total = g.binary_select(1.0, self.l, is_zero)
        return g.div(e, total) if share == "div" else g.mul(e, g.reciprocal(total))

    def _statistics(self, which):
        g = self.g
        if which == "log_sum":
            made = {"stats": g.add(self.m, g.log(self.l))}
        elif which == "both":
            made = {"m": g.identity(self.m), "l": g.identity(self.l)}
        else:
            made = {}
        for name, tensor in made.items():
            tensor.set_output().set_name(name).set_data_type("FLOAT")
            dims = (*self.dims[:-1], 1)
            tensor.set_dim(dims).set_stride(packed_strides(dims))

    # ---- pieces of score modifications

    def flag(self, tensor):
        return tensor.set_data_type("BOOLEAN")

    def index(self, s, axis):
        made = self.g.gen_index(s, axis=axis, compute_data_type="INT32")
        return made.set_data_type("INT32")

    def integer(self, name, a, b):
        made = getattr(self.g, name)(a, b, compute_data_type="INT32")
        is_test = name.startswith("cmp")
        return made.set_data_type("BOOLEAN" if is_test else "INT32")

    def row(self, s):
        return self.index(s, len(self.dims) - 2)

    def column(self, s):
        return self.index(s, len(self.dims) - 1)

    def both(self, a, b):
        return self.flag(self.g.logical_and(a, b, compute_data_type="BOOLEAN"))

    def either(self, a, b):
        return self.flag(self.g.logical_or(a, b, compute_data_type="BOOLEAN"))

    def masked(self, s, condition):
        return self.g.binary_select(s, LOW, condition)

    def scaled(self, s, scale=0.125):
        return self.g.mul(s, scale)


def causal(p, s, shift=0):
    """Column <= row + shift."""
    row = p.row(s)
    if shift:
        row = p.integer("add", row, shift)
    return p.masked(p.scaled(s), p.integer("cmp_le", p.column(s), row))


def padded(p, s):
    """Columns before a length of each batch entry."""
    lengths = p.g.tensor([p.dims[0], *[1] * (len(p.dims) - 1)], name="lengths", data_type="INT32")
    return p.masked(p.scaled(s), p.integer("cmp_lt", p.column(s), lengths))


def window(p, s, left=20, right=0):
    """row - left < column <= row + right."""
    row, column = p.row(s), p.column(s)
    low = p.integer("cmp_gt", column, p.integer("sub", row, left))
    high = p.integer("cmp_le", column, p.integer("add", row, right) if right else row)
    return p.masked(p.scaled(s), p.both(low, high))


def prefix(p, s, length=40):
    """Columns of a prefix, and those up to the row."""
    row, column = p.row(s), p.column(s)
    before = p.integer("cmp_lt", column, length)
    return p.masked(p.scaled(s), p.either(before, p.integer("cmp_le", column, row)))


def documents(p, s):
    """Rows and columns of one document: numbers are loaded."""
    batch, rows, columns = p.dims[0], p.dims[-2], p.dims[-1]
    ones = [1] * (len(p.dims) - 3)
    own = p.g.tensor([batch, *ones, rows, 1], name="own", data_type="INT32")
    other = p.g.tensor([batch, *ones, 1, columns], name="other", data_type="INT32")
    return p.masked(p.scaled(s), p.integer("cmp_eq", own, other))


def biased(p, s):
    """A bias of every element, and one of each head."""
    whole = p.g.tensor(list(p.dims), name="bias")
    head = p.g.tensor([1, p.dims[1], 1, p.dims[-1]], name="head")
    return p.g.add(p.g.add(p.scaled(s), whole), head)


def far(p, s):
    """The least number that there is, added to masked scores."""
    mask = p.g.tensor([1, 1, *p.dims[-2:]], name="mask", data_type="FLOAT")
    return p.g.add(p.scaled(s), mask)


def far_mask(rows, columns, low):
    """The mask of `far`: causal, with a row that sees nothing and a row that sees everything."""
    mask = np.where(np.arange(columns) > np.arange(rows)[:, None], low, 0)
    mask[3], mask[rows // 2] = low, 0
    return mask


def far_select(p, s, low=-1e30):
    """A large number in place of scores above the diagonal."""
    return p.g.binary_select(p.scaled(s), low, p.integer("cmp_le", p.column(s), p.row(s)))


def far_sum(p, s, low=-1e13):
    """A large number, or 0, added to scores: it is chosen ahead of the sum."""
    kept = p.integer("cmp_le", p.column(s), p.row(s))
    return p.g.add(p.scaled(s), p.g.binary_select(0.0, low, kept))


def capped(p, s):
    """5 * tanh(s / 5), under a causal mask."""
    s = p.g.mul(p.g.tanh(p.g.mul(s, 0.125 / 5.0)), 5.0)
    return p.masked(s, p.integer("cmp_le", p.column(s), p.row(s)))


def alibi(p, s):
    """Slopes of heads times the distance."""
    slopes = p.g.tensor([1, p.dims[1], 1, 1], name="slopes", data_type="FLOAT")
    distance = p.integer("sub", p.column(s), p.row(s))
    return p.g.add(p.scaled(s), p.g.mul(slopes, distance))


def by_tensor(p, s):
    """A scale of any sign, in memory."""
    return p.g.mul(s, p.g.tensor([1, 1, 1, 1], name="scale", data_type="FLOAT"))


def paged(
    *, batch=2, heads=4, key_heads=2, queries=40, pages=4, block=32, depth=64, dtype="HALF",
    spare=5, **options,
):  # fmt: skip
    """(graph, blocks of the caches) of `sdpa` over caches in pages, some of which nobody has."""
    g = dnnc.pygraph(
        "paged", io_data_type=dtype, intermediate_data_type="FLOAT", compute_data_type="FLOAT"
    )
    blocks = batch * pages + spare
    q = g.tensor([batch, heads, queries, depth], name="q")
    k, v = (g.tensor([blocks, key_heads, block, depth], name=name) for name in "kv")
    tables = [
        g.tensor([batch, 1, pages, 1], name=name, data_type="INT32")
        for name in ("k_table", "v_table")
    ]
    lengths = [
        g.tensor([batch, 1, 1, 1], name=name, data_type="INT32") for name in ("queries", "lengths")
    ]
    o, stats = g.sdpa(
        q, k, v, generate_stats=True, attn_scale=depth**-0.5, use_padding_mask=True,
        seq_len_q=lengths[0], seq_len_kv=lengths[1], paged_attention_k_table=tables[0],
        paged_attention_v_table=tables[1], paged_attention_max_seq_len_kv=pages * block, **options,
    )  # fmt: skip
    o.set_output(True).set_name("o")
    stats.set_output(True).set_name("stats").set_data_type("FLOAT")
    return g, blocks


def paged_inputs(g, blocks, lengths, block, queries=(40, 13)):
    """Inputs of `paged`.  Tables past the lengths are out of range; unused blocks hold NaN."""
    graph = g.graph.finalize()
    given = random_inputs(graph, {})
    rng, tables = np.random.default_rng(1), {}
    for tensor in graph.inputs:
        if tensor.name in ("k_table", "v_table"):
            # Of fewer blocks than pages, several pages are one block.
            table = np.resize(rng.permutation(blocks), given[tensor.uid].shape)
            for entry, length in enumerate(lengths):
                table[entry, 0, -(-length // block) :] = -12345
            given[tensor.uid] = tables[tensor.name[0]] = table
        elif tensor.name in ("queries", "lengths"):
            values = queries if tensor.name == "queries" else lengths
            given[tensor.uid] = np.reshape(values, (len(lengths), 1, 1, 1))
    for tensor in graph.inputs:
        if tensor.name in tables:
            used = _rows_in_use(tables[tensor.name], lengths, block, blocks)
            given[tensor.uid] = np.where(used, given[tensor.uid], np.nan)
            given[tensor.uid] = given[tensor.uid].astype(tensor.type.numpy)
    return given


def _numbers(g):
    """The descales and scales of `sdpa_fp8`."""
    names = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
    return {name: g.tensor([1, 1, 1, 1], name=name, data_type="FLOAT") for name in names}


def _rows_in_use(table, lengths, block, blocks):
    """[blocks, 1, rows, 1]: which rows of a cache hold keys of a sequence."""
    used = np.zeros((blocks, 1, block, 1), bool)
    for entry, length in enumerate(lengths):
        for key in range(length):
            used[table[entry, 0, key // block, 0], 0, key % block] = True
    return used


def packed_fp8(lengths, key_lengths, **options):
    """`packed`, of `sdpa_fp8`; the largest weight and result are outputs."""
    return packed(lengths, key_lengths, dtype="FP8_E4M3", **options)


def packed(
    lengths, key_lengths, *, spare=(20, 30), heads=4, key_heads=2, depth=64, dtype="HALF",
    cumulative=False, totals=None, **options,
):  # fmt: skip
    """(graph, name -> values) of `sdpa` over packed sequences of these lengths.

    spare: by how many rows the declared maxima are longer.  cumulative: with cumulative lengths in
    place of offsets.  totals: rows of all queries and of all keys, if they are symbols.
    """
    batch = len(lengths)
    g = dnnc.pygraph(
        "packed", io_data_type=dtype, intermediate_data_type="FLOAT", compute_data_type="FLOAT"
    )

    def numbers(name, count):
        return g.tensor([count, 1, 1, 1], name=name, data_type="INT32")

    def sequences(name, rows, own):
        row = own * depth
        return g.tensor([batch, own, rows, depth], [rows * row, depth, row, 1], name=name)

    rows, keys = max(lengths) + spare[0], max(key_lengths) + spare[1]
    q, k, v = (
        sequences("q", rows, heads), sequences("k", keys, key_heads),
        sequences("v", keys, key_heads),
    )  # fmt: skip
    ends, key_ends = [0], [0]
    for length, key_length in zip(lengths, key_lengths, strict=True):
        ends.append(ends[-1] + length)
        key_ends.append(key_ends[-1] + key_length)
    if cumulative:
        options["cu_seq_len_q"] = numbers("ends", batch + 1)
        options["cu_seq_len_kv"] = numbers("key_ends", batch + 1)
        values = {"ends": ends, "key_ends": key_ends}
    else:
        first, key_first = numbers("first", batch + 1), numbers("key_first", batch + 1)
        q.set_ragged_offset(first)
        k.set_ragged_offset(key_first)
        v.set_ragged_offset(key_first)
        options |= {
            "use_padding_mask": True, "seq_len_q": numbers("lengths", batch),
            "seq_len_kv": numbers("key_lengths", batch),
        }  # fmt: skip
        values = {
            "lengths": lengths, "key_lengths": key_lengths,
            "first": [end * heads * depth for end in ends],
            "key_first": [end * key_heads * depth for end in key_ends],
        }  # fmt: skip
    if dtype == "FP8_E4M3":
        o, stats, *largest = g.sdpa_fp8(
            q, k, v, generate_stats=True, attn_scale=depth**-0.5, **_numbers(g), **options
        )
        for tensor, name in zip(largest, ("amax_s", "amax_o"), strict=True):
            tensor.set_output(True).set_name(name)
        o.set_name("o")
    else:
        rows_of_all, keys_of_all = totals or (ends[-1], key_ends[-1])
        o, stats = g.sdpa(
            q, k, v, generate_stats=True, attn_scale=depth**-0.5, max_total_seq_len_q=rows_of_all,
            max_total_seq_len_kv=keys_of_all, **options,
        )  # fmt: skip
    row = heads * depth
    o.set_output(True).set_dim([batch, heads, rows, depth])
    o.set_stride([rows * row, depth, row, 1])
    if not cumulative:
        o.set_ragged_offset(first)
    stats.set_output(True).set_data_type("FLOAT")
    g.validate()
    return g, values


def seen_rows_past_packed(*, dtype="HALF"):
    """Packed queries, 18 of one sequence and none of the other, of which no mask hides the rest:
    of rows past the ends queries are zeros, which see keys.  Of fp8 with the largest weight and
    result as outputs.  Gives (graph, uid -> array)."""
    g = dnnc.pygraph(
        "seen", io_data_type=dtype, intermediate_data_type="FLOAT", compute_data_type="FLOAT"
    )
    rows, keys, depth = [2, 1, 20, 1], 9, 32
    offset = g.tensor([3, 1, 1, 1], data_type="INT32", name="offset")
    lengths = g.tensor([2, 1, 1, 1], data_type="INT32", name="lengths")
    memory = g.tensor([1, 1, 30, depth], name="q")
    q = g.ragged_load(memory, offset, lengths).set_dim([*rows[:3], depth])
    k, v = (g.tensor([2, 1, keys, depth], name=name) for name in "kv")
    s = g.mul(g.matmul(q, g.transpose(k, [0, 1, 3, 2])), 0.2)
    m = g.reduction(s, mode="max").set_dim(rows)
    e = g.exp(g.sub(s, m))
    l = g.reduction(e, mode="add").set_dim(rows)  # noqa: E741
    p = g.div(e, l)
    o = g.matmul(g.identity(p).set_data_type(dtype), v)
    largest = [g.reduction(x, mode="amax") for x in (p, o)] if dtype != "HALF" else []
    for tensor in largest:
        tensor.set_dim([1, 1, 1, 1]).set_output().set_data_type("FLOAT")
    o = g.identity(o).set_data_type("HALF")
    stored = g.ragged_store(o, offset, lengths).set_dim([1, 1, 30, depth])
    stored.set_output().set_name("o").set_data_type("HALF")
    g.add(m, g.log(l)).set_output().set_name("stats").set_data_type("FLOAT")
    graph = g.graph.finalize()
    given = random_inputs(graph, {})
    values = {"offset": [0, 18 * depth, 18 * depth], "lengths": [18, 0]}
    for tensor in graph.inputs:
        if tensor.name in values:
            given[tensor.uid] = np.reshape(values[tensor.name], given[tensor.uid].shape)
    return g, given
