"""Small graphs of attention's gradient, and for each of its constraints one that breaks it.

EXAMPLES, BROKEN: as in `examples`.  CASES: name -> function that builds a pygraph of
`sdpa_backward`; FORWARD: name -> one of the `sdpa` whose gradient that is.
"""

from dnnc import dtypes

from .attention_examples import B, M, drawn, edited, finish, lengths, new_graph, operands

OWN = ("dBias", "dSink_token", "rng_dump")  # arguments that the forward pass has not


def arguments_of(g, arguments):
    return arguments(g) if callable(arguments) else dict(arguments or {})


def in_order(tensor, order):
    """Sets packed strides of a tensor; order: its axes, the outermost first."""
    dims, strides, step = tensor.get_dim(), [0] * len(order), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= dims[axis]
    tensor.set_stride(strides)


EXPANDED = "one head, of a stride of 0"


def gradient(arguments=None, io=dtypes.f32, layouts=None, **dims):
    """A graph of one sdpa_backward; arguments: a function of the graph, or a dict of them.
    layouts: orders of the axes of q, k, v, o, do, dq, dk and dv, by these names; of `EXPANDED` all
    heads are one in memory."""

    def build():
        g = new_graph(io)
        q, k, v = operands(g, **dims)
        batch, heads, rows, _ = q.get_dim()
        o, do = (g.tensor([batch, heads, rows, v.get_dim()[3]], name=n) for n in ("o", "do"))
        stats = g.tensor([batch, heads, rows, 1], data_type=dtypes.f32, name="stats")
        given = arguments_of(g, arguments)
        made = g.sdpa_backward(q, k, v, o, do, stats, **given, name="back")
        named = dict(zip(("q", "k", "v", "o", "do"), (q, k, v, o, do), strict=True))
        named |= {
            f"d{x}": result.set_dim(named[x].get_dim())
            for x, result in zip("qkv", made, strict=True)
        }
        for name, order in (layouts or {}).items():
            if order == EXPANDED:
                _, _, rows, depth = named[name].get_dim()
                named[name].set_stride([rows * depth, 0, depth, 1])
            else:
                in_order(named[name], order)
        return finish(g, *made, *(given.get(name) for name in OWN))

    return build


def forward(arguments=None, layouts=None, **dims):
    """A builder of the forward call with the same arguments, in f32, all packed."""

    def build():
        g = new_graph()
        given = arguments_of(g, arguments)
        known = {name: value for name, value in given.items() if name not in OWN}
        known.pop("use_deterministic_algorithm", None)
        known.pop("score_mod_bprop", None)
        return finish(g, *g.sdpa(*operands(g, **dims), generate_stats=True, **known, name="sdpa"))

    return build


def with_bias(*dims):
    def arguments(g):
        given = {"bias": g.tensor(list(dims), name="bias"), "dBias": g.tensor(list(dims))}
        return {**given, "use_causal_mask": True, "attn_scale": 0.5}

    return arguments


def with_sink(g):
    return {
        "sink_token": g.tensor([1, 4, 1, 1], name="sink"),
        "dSink_token": g.tensor([1, 4, 1, 1], data_type=dtypes.f32),
        **lengths(g),
    }


def soft_cap(g, scores):
    return g.mul(g.tanh(g.mul(scores, 0.5)), 2.0)


CALLS = {
    "full": ({"attn_scale": 0.25, "use_deterministic_algorithm": True}, {"kv_heads": 4}),
    "grouped": ({"attn_scale": 0.5}, {}),
    "one_key_head": ({}, {"kv_heads": 1, "depth": 16, "value_depth": 8}),
    "causal": ({"use_causal_mask": True}, {"kv_heads": 4}),
    "rows_without_keys": ({"use_causal_mask_bottom_right": True}, {"rows": 9, "columns": 4}),
    "window": (
        {"diagonal_band_left_bound": 2, "diagonal_band_right_bound": 1, "attn_scale": -0.5},
        {"kv_heads": 4},
    ),
    "padding": (lengths, {}),
    "padded_window": (
        lambda g: {
            "diagonal_alignment": "BOTTOM_RIGHT",
            "diagonal_band_left_bound": 3,
            "diagonal_band_right_bound": 0,
            **lengths(g),
        },
        {},
    ),
    "alibi": ({"use_alibi_mask": True, "use_causal_mask": True}, {"heads": 6, "kv_heads": 3}),
    "bias": (with_bias(1, 4, 5, 7), {"kv_heads": 4}),
    "bias_of_keys": (with_bias(2, 1, 1, 7), {}),
    "whole_bias": (with_bias(2, 4, 5, 7), {}),
    "tensor_scale": (lambda g: {"attn_scale": g.tensor([1, 1, 1, 1], name="scale")}, {}),
    "scale_at_execution": (
        lambda g: {"attn_scale": g.tensor_scalar(0.25, "RUNTIME_PARAM")}, {},
    ),
    "sink": (with_sink, {}),
    "dropout": (drawn, {}),
    "dropout_by_mask": (
        lambda g: {
            "dropout": (
                g.tensor([2, 1, 5, 7], name="mask"),
                *(g.tensor([1, 1, 1, 1], name=n) for n in ("kept", "kept_inverse")),
            ),
            **lengths(g),
        },
        {},
    ),
    "block_mask": (
        lambda g: {"block_mask": g.tensor([1, 4, 2, 1], data_type=dtypes.ui8, name="blocks")},
        {"rows": 130, "columns": 260, "depth": 2, "value_depth": 2},
    ),
    "log2": ({"stats_use_log2": True, "use_causal_mask": True}, {}),
}  # fmt: skip

CASES = {name: gradient(arguments, **dims) for name, (arguments, dims) in CALLS.items()}
FORWARD = {name: forward(arguments, **dims) for name, (arguments, dims) in CALLS.items()}

SYMBOLS = gradient(
    {"use_causal_mask_bottom_right": True, "attn_scale": 0.5}, batch=B, rows=M, columns=M + 3
)
HALF = gradient({"attn_scale": 0.5, "use_causal_mask": True}, io=dtypes.f16)


def many_options(g):
    """Nearly every operand, result and attribute at once: few graphs have to be compiled."""
    return {
        **lengths(g), **drawn(g), **with_bias(2, 1, 1, 7)(g),
        "attn_scale": g.tensor([1, 1, 1, 1], name="scale"),
        "sink_token": g.tensor([1, 4, 1, 1], name="sink"),
        "dSink_token": g.tensor([1, 4, 1, 1], data_type=dtypes.f32),
        "use_alibi_mask": True, "diagonal_band_left_bound": 3,
        "diagonal_alignment": "BOTTOM_RIGHT", "use_causal_mask": False,
        "diagonal_band_right_bound": 0, "stats_use_log2": True,
        "use_deterministic_algorithm": True,
    }  # fmt: skip


def scaled_padding(g):
    """Arguments that a descriptor can express: a scale and lengths."""
    return {"attn_scale": g.tensor([1, 1, 1, 1], name="scale"), **lengths(g)}


def masked_dropout(g):
    blocks = g.tensor([2, 1, 1, 1], data_type=dtypes.ui8, name="blocks")
    kept, scale = g.tensor([2, 1, 5, 7], name="mask"), g.tensor([1, 1, 1, 1], name="kept")
    return {"block_mask": blocks, "dropout": (kept, scale)}


CALLS["many_options"] = (many_options, {})
CASES["many_options"] = gradient(many_options)
FORWARD["many_options"] = forward(many_options)

# ---- of fp8

FP8_SCALES = (
    *(f"descale_{name}" for name in ("q", "k", "v", "o", "dO", "s", "dP")),
    *(f"scale_{name}" for name in ("s", "dQ", "dK", "dV", "dP")),
)


def gradient_fp8(
    arguments=None, io=dtypes.f8e4m3, of_do=dtypes.f8e5m2, out=None, scale_dims=(1, 1, 1, 1),
    largest=True, **dims
):  # fmt: skip
    """A graph of one sdpa_fp8_backward, whose tensors say their types.

    of_do: type of dO.  out: of dQ, dK and dV.  largest: whether the four amax are outputs.
    """

    def build():
        g = new_graph(io)
        q, k, v = (t.set_data_type(io) for t in operands(g, **{"depth": 16, **dims}))
        batch, heads, rows, _ = q.get_dim()
        of_o = [batch, heads, rows, v.get_dim()[3]]
        o, do = (
            g.tensor(of_o, data_type=kind, name=name) for name, kind in (("o", io), ("do", of_do))
        )
        stats = g.tensor([batch, heads, rows, 1], data_type=dtypes.f32, name="stats")
        scales = {
            name: g.tensor(list(scale_dims), data_type=dtypes.f32, name=name) for name in FP8_SCALES
        }
        given = arguments_of(g, arguments)
        made = g.sdpa_fp8_backward(q, k, v, o, do, stats, **scales, **given, name="back")
        if out is not None:
            for tensor in made[:3]:
                tensor.set_data_type(out)
        return finish(g, *(made if largest else made[:3]), given.get("dSink_token"))

    return build


def many_fp8_options(g):
    return {
        "attn_scale": 0.25, **lengths(g), "use_deterministic_algorithm": True,
        "dropout": drawn(g)["dropout"], "diagonal_alignment": "BOTTOM_RIGHT", "left_bound": 3,
        "right_bound": 0, "sink_token": g.tensor([1, 4, 1, 1], data_type=dtypes.f32, name="sink"),
        "dSink_token": g.tensor([1, 4, 1, 1], data_type=dtypes.f32),
    }  # fmt: skip


FP8_CASES = {
    "full": gradient_fp8(out=dtypes.f32),
    "causal": gradient_fp8(
        {"attn_scale": 0.25, "use_causal_mask": True}, kv_heads=4, of_do=dtypes.f8e4m3,
    ),
    "many_options": gradient_fp8(many_fp8_options, out=dtypes.f32),
}  # fmt: skip

EXAMPLES = {
    "sdpa_backward": [
        CASES["many_options"], gradient(masked_dropout, kv_heads=4), SYMBOLS, HALF,
        gradient(scaled_padding),
    ],
    "sdpa_fp8_backward": list(FP8_CASES.values()),
}  # fmt: skip

BROKEN = {
    ("sdpa_backward", "C4"): edited(CASES["full"], "do", [2, 4, 5, 8]),
    ("sdpa_backward", "C17"): edited(CASES["full"], "dk", [2, 4, 7, 16]),
    ("sdpa_backward", "C18"): edited(CASES["bias"], absent=["bias"]),
    ("sdpa_backward", "C19"): edited(CASES["sink"], "dsink_token", [1, 2, 1, 1]),
    ("sdpa_fp8_backward", "C1"): gradient_fp8(io=dtypes.f16),
    ("sdpa_fp8_backward", "C4"): edited(FP8_CASES["full"], "do", [2, 4, 5, 32]),
    ("sdpa_fp8_backward", "C20"): gradient_fp8(scale_dims=(1, 4, 1, 1)),
    ("sdpa_fp8_backward", "C21"): edited(FP8_CASES["full"], "amax_dp", [1, 4, 1, 1]),
}
