"""Small graphs of attention, and for each of its constraints one that breaks it.

EXAMPLES, BROKEN: as in `examples`.  CASES: name -> function that builds a pygraph of `sdpa`;
FEW: those that are examples.
"""

import dnnc
from dnnc import dtypes

M = dnnc.Dim("M", min=1, max=512)
B = dnnc.Dim("B", min=1, max=64, multiple_of=2)


def new_graph(io=dtypes.f32):
    return dnnc.pygraph(
        "attention",
        io_data_type=io,
        intermediate_data_type=dtypes.f32,
        compute_data_type=dtypes.f32,
        target="sm_90",
    )


def finish(g, *outputs):
    for tensor in outputs:
        if tensor is not None:
            tensor.set_output()
    return g


def operands(g, batch=2, heads=4, kv_heads=2, rows=5, columns=7, depth=8, value_depth=16):
    """q, k, v."""
    return (
        g.tensor([batch, heads, rows, depth], name="q"),
        g.tensor([batch, kv_heads, columns, depth], name="k"),
        g.tensor([batch, kv_heads, columns, value_depth], name="v"),
    )


def lengths(g, batch=2):
    """The arguments of a padding mask."""
    q, kv = (g.tensor([batch, 1, 1, 1], data_type=dtypes.i32, name=n) for n in ("sq", "skv"))
    return {"use_padding_mask": True, "seq_len_q": q, "seq_len_kv": kv}


def attention(arguments=None, io=dtypes.f32, stats=True, **dims):
    """A graph of one sdpa; arguments: a function of the graph, or a dict of them."""

    def build():
        g = new_graph(io)
        given = arguments(g) if callable(arguments) else arguments or {}
        return finish(g, *g.sdpa(*operands(g, **dims), generate_stats=stats, **given, name="sdpa"))

    return build


def paged(both=True, pages=2, max_seq_len_kv=7, io=dtypes.f32):
    """Blocks of 4 keys."""

    def build():
        g = new_graph(io)
        q, k, v = g.tensor([2, 4, 3, 8]), g.tensor([6, 2, 4, 8]), g.tensor([6, 2, 4, 8])
        tables = [g.tensor([2, 1, pages, 1], data_type=dtypes.i32) for _ in "kv"]
        named = {
            "paged_attention_k_table": tables[0],
            "paged_attention_max_seq_len_kv": max_seq_len_kv,
            **lengths(g),
        }
        if both:
            named["paged_attention_v_table"] = tables[1]
        else:
            v = g.tensor([2, 2, 7, 8])
        return finish(g, *g.sdpa(q, k, v, generate_stats=True, **named))

    return build


def every_output(g):
    shape = {"data_type": dtypes.f32}
    return {
        "stats_use_log2": True,
        "score_max": g.tensor([2, 4, 5, 1], **shape, name="max"),
        "score_sum_exp": g.tensor([2, 4, 5, 1], **shape, name="sum"),
    }


def drawn(g, dims=(2, 4, 5, 7)):
    seed = g.tensor([1, 1, 1, 1], data_type=dtypes.i32, name="seed")
    offset = g.tensor([1, 1, 1, 1], data_type=dtypes.i64, name="offset")
    return {"dropout": (0.25, seed, offset), "rng_dump": g.tensor(list(dims), name="dump")}


CASES = {
    "full": attention(kv_heads=4),
    "causal": attention({"attn_scale": 0.25, "use_causal_mask": True}),
    "bottom_right": attention({"use_causal_mask_bottom_right": True}),
    "rows_without_keys": attention({"use_causal_mask_bottom_right": True}, rows=9, columns=4),
    "window": attention(
        {"diagonal_band_left_bound": 2, "diagonal_band_right_bound": 1, "attn_scale": -0.5}
    ),
    "window_from_the_end": attention(
        {"diagonal_alignment": "BOTTOM_RIGHT", "sliding_window_length": 3}
    ),
    "padding": attention(lengths),
    "padded_window": attention(
        lambda g: {
            "diagonal_alignment": dnnc.diagonal_alignment.BOTTOM_RIGHT,
            "diagonal_band_left_bound": 2,
            "diagonal_band_right_bound": 0,
            **lengths(g),
        }
    ),
    "bias": attention(lambda g: {"bias": g.tensor([1, 4, 5, 7]), "use_causal_mask": True}),
    "bias_of_batches": attention(lambda g: {"bias": g.tensor([2, 1, 1, 7])}),
    "tensor_scale": attention(lambda g: {"attn_scale": g.tensor([1, 1, 1, 1])}),
    "scale_at_execution": attention(
        lambda g: {"attn_scale": g.tensor_scalar(0.25, "RUNTIME_PARAM")}, kv_heads=1
    ),
    "alibi": attention({"use_alibi_mask": True, "diagonal_band_left_bound": 3}),
    "alibi_of_six": attention(
        {"use_alibi_mask": True, "use_causal_mask": True}, heads=6, kv_heads=3
    ),
    "sink": attention(
        lambda g: {"sink_token": g.tensor([1, 4, 1, 1]), "use_causal_mask_bottom_right": True},
        rows=6,
        columns=3,
    ),
    "outputs": attention(every_output),
    "dropout": attention(drawn),
    "dropout_by_mask": attention(
        lambda g: {"dropout": (g.tensor([2, 1, 5, 7]), g.tensor([1, 1, 1, 1]))}
    ),
    "one_row": attention(lengths, rows=1),
    "paged": paged(),
    "paged_keys": paged(both=False),
    "all_pages": paged(max_seq_len_kv=None),
    "block_mask": attention(
        lambda g: {"block_mask": g.tensor([1, 4, 2, 1], data_type=dtypes.ui8), **lengths(g)},
        rows=140,
        columns=260,
    ),
    "symbols": attention(
        {"use_causal_mask_bottom_right": True, "attn_scale": 0.5}, batch=B, rows=M, columns=M + 3
    ),
    "one_head": attention({"use_causal_mask": True}, stats=False, kv_heads=1, columns=M),
    "f16": attention({"attn_scale": 0.5, "use_causal_mask": True}, io=dtypes.f16),
    "f64": attention({"compute_data_type": "DOUBLE", "use_causal_mask": True}, io=dtypes.f64),
}


# ---- of fp8

SCALES = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")


def scales(g, dims=(1, 1, 1, 1)):
    """The arguments of descales and scales, by name."""
    return {name: g.tensor(list(dims), data_type=dtypes.f32, name=name) for name in SCALES}


def attention_fp8(
    arguments=None, io=dtypes.f8e4m3, out=None, stats=True, scale_dims=(1, 1, 1, 1),
    is_stated=False, **dims
):  # fmt: skip
    """A graph of one sdpa_fp8; all four results are outputs.  out: type of o.  is_stated: whether
    q, k, v say their type."""

    def build():
        g = new_graph(io)
        given = arguments(g) if callable(arguments) else arguments or {}
        tensors = operands(g, **{"depth": 16, **dims})
        if is_stated:
            tensors = [tensor.set_data_type(io) for tensor in tensors]
        results = g.sdpa_fp8(
            *tensors, **scales(g, scale_dims), generate_stats=stats, **given, name="sdpa"
        )
        if out is not None:
            results[0].set_data_type(out)
        return finish(g, *results)

    return build


FP8_CASES = {
    "full": attention_fp8(kv_heads=4),
    "causal": attention_fp8({"attn_scale": 0.25, "use_causal_mask": True}, out=dtypes.bf16),
    "padding": attention_fp8(lengths, out=dtypes.f16),
    "window": attention_fp8({"left_bound": 2, "right_bound": 1}, io=dtypes.f8e5m2),
    "sink": attention_fp8(
        lambda g: {
            "sink_token": g.tensor([1, 4, 1, 1], data_type=dtypes.f32),
            "bias": g.tensor([1, 4, 5, 7], data_type=dtypes.f32),
        },
        out=dtypes.f32,
        stats=False,
    ),
    "dropout": attention_fp8(
        lambda g: {"dropout": drawn(g)["dropout"], "compute_data_type": "FAST_FLOAT_FOR_FP8"},
        out=dtypes.f32,
    ),
    "symbols": attention_fp8(
        {"use_causal_mask_bottom_right": True}, batch=B, rows=M, columns=M + 3, out=dtypes.bf16
    ),
}


# ---- the cache alone


def cache(container=(6, 2, 4, 8), table=(3, 1, 2, 1), keys=7, io=dtypes.f32, length=dtypes.i32):
    def build():
        g = new_graph(io)
        batch = table[0]
        y = g.paged_cache_load(
            g.tensor(list(container)),
            g.tensor([batch, 1, 1, 1], data_type=length),
            g.tensor(list(table), data_type=dtypes.i32),
        )
        if keys is not None:
            y.set_dim([batch, container[1], keys, container[3]])
        return finish(g, y)

    return build


# ---- packed sequences

T = dnnc.Dim("T", min=1, max=4096)


def packed(
    by="offsets", arguments=None, io=dtypes.f32, side_by_side=False, stats=False, total=None
):
    """Three sequences of up to 5 queries and 7 keys, the heads of a row together.

    by: "offsets", "cumulative", or "padding", which is the same attention without packing.
    side_by_side: q, k and v of one row follow each other, and offsets count heads' elements.
    stats: whether they are packed too.  total: rows of q and o.
    """

    def build():
        g = new_graph(io)
        i32 = {"data_type": dtypes.i32}
        given = {"generate_stats": True, "max_total_seq_len_q": total, "name": "sdpa"}
        for side in ("q", "kv"):
            if by == "cumulative":
                given[f"cu_seq_len_{side}"] = g.tensor([4, 1, 1, 1], **i32, name=f"cu_{side}")
            else:
                given[f"seq_len_{side}"] = g.tensor([3, 1, 1, 1], **i32, name=f"len_{side}")
        given["use_padding_mask"] = by != "cumulative"

        def pack(tensor, name):
            tensor.set_name(name)
            if by == "offsets":
                offset = g.tensor([4, 1, 1, 1], **i32, name=f"offset_{name}")
                tensor.set_ragged_offset(offset)
                if side_by_side and name in ("q", "k", "v"):
                    tensor.set_ragged_offset_multiplier(8)

        operands = {"q": (4, 5, 8), "k": (2, 7, 8), "v": (2, 7, 8)}
        for name, (heads, rows, depth) in operands.items():
            row = 64 if side_by_side else heads * depth
            operands[name] = g.tensor([3, heads, rows, depth], [rows * row, depth, row, 1])
            pack(operands[name], name)
        extra = arguments(g) if callable(arguments) else arguments or {}
        o, statistics = g.sdpa(**operands, **given, **extra)
        pack(o, "o")
        statistics.set_name("stats")
        if stats:
            pack(statistics, "stats")
        finish(g, o, statistics).validate()
        return g

    return build


PACKED = {
    "offsets": {"arguments": {"use_causal_mask": True, "attn_scale": 0.5}},
    "cumulative": {"by": "cumulative", "arguments": {"use_causal_mask_bottom_right": True}},
    "side_by_side": {"side_by_side": True, "io": dtypes.f16},
    "statistics": {"stats": True, "arguments": {"diagonal_band_left_bound": 2}},
    "score_mod": {
        "arguments": {"score_mod": lambda g, scores: g.tanh(scores), "use_causal_mask": True}
    },
    "all_rows": {"total": T, "arguments": lambda g: {"bias": g.tensor([1, 4, 5, 7], name="bias")}},
}


# ---- packed sequences alone


def bounds(g, batch, kind=dtypes.i32):
    """Offsets and lengths."""
    return (g.tensor([n, 1, 1, 1], data_type=kind) for n in (batch + 1, batch))


def block_mask(mask=(2, 3, 1, 1), rows=128, columns=128, batch=2, io=dtypes.f32):
    """A builder of a masked softmax whose scores are [batch, 3, 9, 20]."""

    def build():
        g = new_graph(io)
        seen = g.block_mask_load(
            g.tensor(list(mask), data_type=dtypes.ui8), block_rows=rows, block_columns=columns
        ).set_dim([batch, 3, 9, 20])
        return finish(g, g.binary_select(g.tensor([batch, 3, 9, 20]), 0.0, seen))

    return build


def packed_load(
    packed=(1, 2, 9, 8), batch=3, rows=5, io=dtypes.f32, strides=None, kind=dtypes.i32, multiplier=1
):
    def build():
        g = new_graph(io)
        x = g.tensor(list(packed), strides)
        y = g.ragged_load(x, *bounds(g, batch, kind), ragged_offset_multiplier=multiplier)
        if rows is not None:
            y.set_dim([batch, packed[1], rows, packed[3]])
        return finish(g, y)

    return build


def packed_store(
    x=(3, 2, 5, 8), total=None, io=dtypes.f32, strides=None, kind=dtypes.i32, multiplier=1
):
    def build():
        g = new_graph(io)
        given = (g.tensor(list(x)), *bounds(g, x[0], kind))
        packed = g.ragged_store(*given, ragged_offset_multiplier=multiplier)
        if total is not None:
            packed.set_dim([1, x[1], total, x[3]])
        if strides is not None:
            packed.set_stride(strides)
        return finish(g, packed)

    return build


# One of each operand, result and attribute.
FEW = (
    "causal", "padded_window", "bias", "tensor_scale", "alibi_of_six", "sink", "outputs", "dropout",
    "dropout_by_mask", "paged", "block_mask", "symbols", "f16",
)  # fmt: skip

EXAMPLES = {
    "sdpa": [CASES[name] for name in FEW],
    "sdpa_fp8": list(FP8_CASES.values()),
    "paged_cache_load": [
        cache(),
        cache(keys=None, io=dtypes.f16),
        cache(io=dtypes.bf16, length=dtypes.i64),
    ],
    "block_mask_load": [block_mask(), block_mask((1, 1, 3, 2), 4, 2, batch=B, io=dtypes.f16)],
    "ragged_load": [
        packed_load(),
        packed_load((1, 2, M, 8), strides=[16 * M, 8, 16, 1], io=dtypes.f16),
        packed_load(rows=None, io=dtypes.bf16, kind=dtypes.i64),
        packed_load(strides=[1, 8, 48, 1], multiplier=16),
    ],
    "ragged_store": [
        packed_store(),
        packed_store((3, 2, M, 8), 2 * M + 1, io=dtypes.f16),
        packed_store(total=11, io=dtypes.bf16, kind=dtypes.i64),
        packed_store(strides=[1, 8, 48, 1], multiplier=32),
    ],
}


# ---- broken


def edited(build, tensor="", dims=None, dtype=None, absent=(), **attributes):
    """A valid graph whose last operation is changed behind the method's back."""

    def make():
        g = build()
        op = g.graph.ops[-1]
        if tensor and getattr(op, tensor) is None:
            setattr(op, tensor, g.tensor([1, 1, 1, 1]))
        if dims is not None:
            getattr(op, tensor).set_dim(dims).set_stride([1] * len(dims))
        if dtype is not None:
            getattr(op, tensor).set_data_type(dtype)
        for name in absent:
            setattr(op, name, None)
        for name, value in attributes.items():
            setattr(op, name, value)
        return g

    return make


def broken_mask(tensor, dims=None, dtype=None):
    """A builder of `block_mask` with a tensor changed of the operation that loads the mask."""

    def make():
        g = block_mask()()
        changed = getattr(g.graph.ops[0], tensor)
        if dims is not None:
            changed.set_dim(dims).set_stride([1] * len(dims))
        if dtype is not None:
            changed.set_data_type(dtype)
        return g

    return make


CASE = CASES["causal"]

BROKEN = {
    ("sdpa", "C1"): edited(CASE, "k", [2, 2, 7, 16]),
    ("sdpa", "C2"): attention(kv_heads=3),
    ("sdpa", "C3"): edited(CASE, "v", [2, 2, 8, 16]),
    ("sdpa", "C4"): edited(CASE, "stats", [2, 4, 5, 7]),
    ("sdpa", "C5"): attention(lambda g: {"attn_scale": g.tensor([1, 4, 1, 1])}),
    ("sdpa", "C6"): attention(lambda g: {"bias": g.tensor([1, 4, 7, 5])}),
    ("sdpa", "C7"): edited(CASES["padding"], absent=["seq_len_q"]),
    ("sdpa", "C8"): attention({"diagonal_band_left_bound": 0}),
    ("sdpa", "C9"): attention({"use_causal_mask_bottom_right": True}, rows=M, columns=64),
    ("sdpa", "C10"): attention({"use_alibi_mask": True}, heads=M, kv_heads=M),
    ("sdpa", "C11"): paged(pages=3),
    ("sdpa", "C12"): edited(CASES["dropout"], dropout_probability=1.0),
    ("sdpa", "C13"): attention(lambda g: {**drawn(g), "dropout": None}),
    ("sdpa", "C14"): attention(lambda g: {"sink_token": g.tensor([1, 2, 1, 1])}),
    ("sdpa", "C15"): edited(CASE, compute_type=dtypes.i32),
    ("sdpa_fp8", "C1"): attention_fp8(io=dtypes.f16),
    ("sdpa_fp8", "C15"): edited(attention_fp8(is_stated=True), compute_type=dtypes.i32),
    ("sdpa_fp8", "C17"): attention_fp8(scale_dims=(1, 4, 1, 1), is_stated=True),
    ("sdpa_fp8", "C18"): edited(attention_fp8(is_stated=True), "amax_o", [1, 4, 1, 1]),
    ("paged_cache_load", "C1"): cache((6, 2, 3, 8), keys=6),
    ("paged_cache_load", "C2"): edited(cache(), "y", [3, 4, 7, 8]),
    ("paged_cache_load", "C3"): cache(table=(3, 1, 4, 1)),
    ("paged_cache_load", "C4"): edited(cache(), "sequence", dtype=dtypes.f32),
    ("paged_cache_load", "C5"): edited(cache(), "y", dtype=dtypes.f16),
    ("sdpa", "C16"): edited(CASES["block_mask"], "block_mask", [1, 4, 1, 1]),
    ("block_mask_load", "C1"): broken_mask("mask", dtype=dtypes.i8),
    ("block_mask_load", "C2"): broken_mask("y", [2, 4, 9, 20]),
    ("block_mask_load", "C3"): block_mask((2, 3, 2, 1)),
    ("block_mask_load", "C4"): broken_mask("y", dtype=dtypes.f32),
    ("block_mask_load", "C5"): block_mask(rows=96),
    ("ragged_load", "C1"): edited(packed_load(), "packed", [2, 2, 9, 8]),
    ("ragged_load", "C2"): edited(packed_load(), "y", [3, 4, 5, 8]),
    ("ragged_load", "C3"): edited(packed_load(), "offset", [3, 1, 1, 1]),
    ("ragged_load", "C4"): edited(packed_load(), "sequence", dtype=dtypes.f32),
    ("ragged_load", "C5"): edited(packed_load(), "y", dtype=dtypes.f16),
    ("ragged_load", "C6"): edited(packed_load(), offset_multiplier=0),
    ("ragged_store", "C1"): edited(packed_store(), "x", [3, 5, 8]),
    ("ragged_store", "C2"): edited(packed_store(), "packed", [1, 4, 9, 8]),
    ("ragged_store", "C3"): edited(packed_store(), "offset", dtype=dtypes.f32),
    ("ragged_store", "C4"): edited(packed_store(), "sequence", [4, 1, 1, 1]),
    ("ragged_store", "C5"): edited(packed_store(), "packed", dtype=dtypes.f16),
    ("ragged_store", "C6"): edited(packed_store(), offset_multiplier=-1),
}
