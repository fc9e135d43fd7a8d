"""Attention as operation graphs: single operations for us, the frontend's `sdpa` for cuDNN."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import dnnc

from ..cases.attention_blocks import has_blocks, mask_dims

if TYPE_CHECKING:
    from .build import Graph

_CUDNN_LOW = -1e9  # cuDNN's own graphs mask with it

# Of attention of e4m3: numbers in memory are what they stand for times a scale, over a descale.
# P is 1 at most, O as values are, where a row sees few.
SCALES = {
    **dict.fromkeys(("descale_q", "descale_k", "descale_v"), 1 / 64),
    "scale_s": 256.0, "descale_s": 1 / 256, "scale_o": 64.0,
}  # fmt: skip


def _attention(made: Graph, p: Mapping[str, Any]) -> None:
    dtype, b, h, s = p["dtype"], p["b"], p["h"], p["s"]
    shared = h // p["groups"]
    q, k, v = (
        made.input(name, *_sizes(p, heads, size, rows), dtype)
        for name, heads, size, rows in (
            ("q", h, p["d"], p["q"]), ("k", shared, p["d"], s), ("v", shared, p["dv"], s)
        )
    )  # fmt: skip
    of = _of_operations if made.library is dnnc else _of_sdpa
    if dtype == "e4m3":
        of = _of_fp8
    o, stats = of(made, p, q, k, v)
    dims, strides = _sizes(p, h, p["dv"], p["q"])
    made.output("o", o, dims, dtype)
    o.set_stride(strides)
    made.output("stats", stats, [b, h, p["q"], 1], "fp32")


def _sizes(p: Mapping[str, Any], heads: int, size: int, rows: int) -> tuple[list[int], list[int]]:
    """(dims, strides) of heads of so many elements."""
    dims = [p["b"], heads, rows, size]
    if p["layout"] == "bshd":
        return dims, [rows * heads * size, size, heads * size, 1]
    return dims, [rows * heads * size, rows * size, size, 1]


def _numbers(made: Graph, p: Mapping[str, Any]) -> tuple[Any, Any]:
    """(The number of each row's document, that of each column's)."""
    s = p["s"]
    own = made.input("own", [1, 1, s, 1], [s, s, 1, 1], "int32")
    return own, made.input("other", [1, 1, 1, s], [s, s, s, 1], "int32")


def _blocks(made: Graph, p: Mapping[str, Any]) -> Any:
    _, _, rows, bytes_ = dims = mask_dims(p)
    return made.input("mask", dims, [rows * bytes_, rows * bytes_, bytes_, 1], "uint8")


# Of its gradient: dO is read over a descale, results are written times a scale, as is dS.
GRADIENT_SCALES = {
    "descale_o": 1 / 64, "descale_dO": 1 / 64, "scale_dP": 4096.0, "descale_dP": 1 / 4096,
    **dict.fromkeys(("scale_dQ", "scale_dK", "scale_dV"), 64.0),
}  # fmt: skip


# ---- of fp8: ours and cuDNN's


def _of_fp8(made: Graph, p: Mapping[str, Any], q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    ones = [1, 1, 1, 1]
    scales = {name: made.input(name, ones, ones, "fp32") for name in SCALES}
    bounds = {"right_bound": 0} if p["causal"] else {}
    o, stats, *largest = made.graph.sdpa_fp8(
        name="sdpa", q=q, k=k, v=v, generate_stats=True, attn_scale=p["d"] ** -0.5, **scales,
        **bounds,
    )  # fmt: skip
    for name, tensor in zip(("amax_s", "amax_o"), largest, strict=True):
        made.output(name, tensor, ones, "fp32")
    return o, stats


# ---- ours


def _of_operations(made: Graph, p: Mapping[str, Any], q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Two products with a softmax between; rows that see nothing give zeros."""
    g, row = made.graph, [p["b"], p["h"], p["q"], 1]
    s = g.mul(g.matmul(q, g.transpose(k, permutation=[0, 1, 3, 2])), p["d"] ** -0.5)
    s = _scored(made, p, s)
    m = g.reduction(s, mode="max").set_dim(row)
    base = g.binary_select(0.0, m, _flag(g.cmp_eq(m, -math.inf)))
    e = g.exp(g.sub(s, base))
    total = g.reduction(e, mode="add").set_dim(row)
    share = g.reciprocal(g.binary_select(1.0, total, _flag(g.cmp_eq(total, 0.0))))
    weights = g.identity(g.mul(e, share)).set_data_type(v.get_data_type())
    return g.identity(g.matmul(weights, v)), g.add(m, g.log(total))


def _scored(made: Graph, p: Mapping[str, Any], s: Any) -> Any:
    g = made.graph
    row, column = (
        g.gen_index(s, axis=axis, compute_data_type="INT32").set_data_type("INT32")
        for axis in (2, 3)
    )
    if p["softcap"]:
        s = g.mul(g.tanh(g.mul(s, 1.0 / p["softcap"])), float(p["softcap"]))
    if p["alibi"]:
        slopes = made.input("slopes", [1, p["h"], 1, 1], [p["h"], 1, 1, 1], "fp32")
        distance = g.sub(column, row, compute_data_type="INT32").set_data_type("INT32")
        s = g.add(s, g.mul(slopes, distance))
    kept = []
    if p["documents"]:
        kept.append(g.cmp_eq(*_numbers(made, p), compute_data_type="INT32"))
    if p["window"]:
        first = g.sub(row, p["window"], compute_data_type="INT32").set_data_type("INT32")
        kept.append(g.cmp_gt(column, first, compute_data_type="INT32"))
    if p["causal"]:
        kept.append(g.cmp_le(column, row, compute_data_type="INT32"))
    if has_blocks(p):
        kept.append(g.block_mask_load(_blocks(made, p)).set_dim([p["b"], p["h"], p["s"], p["s"]]))
    for condition in kept:
        s = g.binary_select(s, -math.inf, _flag(condition))
    return s


def _flag(tensor: Any) -> Any:
    return tensor.set_data_type("BOOLEAN")


# ---- cuDNN's


def _of_sdpa(made: Graph, p: Mapping[str, Any], q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Soft-caps and documents are a `score_mod`, beside which it takes no other mask."""
    more: dict[str, Any] = {}
    if p["softcap"] or p["documents"]:
        more["score_mod"], _ = _score_mod(made, p)
    else:
        more["use_alibi_mask"] = bool(p["alibi"])
        if p["causal"]:
            more["diagonal_band_right_bound"] = 0
        if p["window"]:
            more["diagonal_band_left_bound"] = p["window"]
        if has_blocks(p):
            more["block_mask"] = _blocks(made, p)
    return made.graph.sdpa(
        name="sdpa", q=q, k=k, v=v, generate_stats=True, attn_scale=p["d"] ** -0.5, **more
    )


Modification = Callable[[Any, Any], Any]


def _score_mod(
    made: Graph, p: Mapping[str, Any], is_gradient: bool = False
) -> tuple[Modification, Modification]:
    """The function that modifies scores, and that of their gradient.  Their tensors are made first:
    they run during lowering."""
    kind = made.library.data_type
    low = made.number(_CUDNN_LOW, 4)
    cap = made.number(float(p["softcap"]), 4) if p["softcap"] else None
    zero = made.number(0.0, 4) if is_gradient and cap is None else None
    own, other = _numbers(made, p) if p["documents"] else (None, None)
    divided, kept = list[Any](), list[Any]()

    def modified(g: Any, s: Any) -> Any:
        if cap is not None:
            divided.append(g.div(a=s, b=cap))
            s = g.mul(a=g.tanh(input=divided[-1]), b=cap)
        row, column = g.gen_index(input=s, axis=2), g.gen_index(input=s, axis=3)
        for index in (row, column):
            index.set_data_type(kind.INT32)
        kept.clear()
        if own is not None:
            # Numbers of one axis have to be spread by way of the scores' dims.
            ones = g.cmp_le(input=column, comparison=column)
            ones.set_data_type(kind.INT32)
            spread = [g.mul(a=ones, b=numbers) for numbers in (own, other)]
            for numbers in spread:
                numbers.set_data_type(kind.INT32)
            kept.append(g.cmp_eq(input=spread[0], comparison=spread[1]))
        if p["causal"]:
            kept.append(g.cmp_ge(input=row, comparison=column))
        for condition in kept:
            condition.set_data_type(kind.BOOLEAN)
            s = g.binary_select(input0=s, input1=low, mask=condition)
        return s

    def gradient(g: Any, ds: Any) -> Any:
        if cap is not None:  # hidden scores have weights of 0, and so gradients of 0
            return g.tanh_backward(loss=ds, input=divided[-1])
        for condition in kept:
            ds = g.binary_select(input0=ds, input1=zero, mask=condition)
        return ds

    return modified, gradient


# ---- the gradient


def _attention_backward(made: Graph, p: Mapping[str, Any]) -> None:
    """The graph of `sdpa_backward`, ours and cuDNN's alike."""
    dtype, h, shared = p["dtype"], p["h"], p["h"] // p["groups"]
    heads = {
        "q": (h, p["d"]), "k": (shared, p["d"]), "v": (shared, p["dv"]), "o": (h, p["dv"]),
        "dO": (h, p["dv"]),
    }  # fmt: skip
    given = {
        name: made.input(name.lower(), *_sizes(p, *size, p["s"]), dtype)
        for name, size in heads.items()
    }
    rows = [p["b"], h, p["s"], 1]
    stats = made.input("stats", rows, [h * p["s"], p["s"], 1, 1], "fp32")
    more: dict[str, Any] = {"use_deterministic_algorithm": True} if p["repeats"] else {}
    is_modified = bool(p["softcap"] or p["documents"])
    if is_modified and made.library is not dnnc:
        more["score_mod"], more["score_mod_bprop"] = _score_mod(made, p, is_gradient=True)
    else:
        if p["causal"]:
            more["diagonal_band_right_bound"] = 0
        if p["window"]:
            more["diagonal_band_left_bound"] = p["window"]
        if is_modified:
            modified = {**p, "causal": 0, "window": 0}
            more["score_mod"] = lambda g, s: _scored(made, modified, s)
    results = made.graph.sdpa_backward(
        name="sdpa_backward", stats=stats, attn_scale=p["d"] ** -0.5, **given, **more
    )
    for name, tensor in zip(("q", "k", "v"), results, strict=True):
        dims, strides = _sizes(p, *heads[name], p["s"])
        made.output(f"d{name}", tensor, dims, dtype)
        tensor.set_stride(strides)


def _attention_fp8_backward(made: Graph, p: Mapping[str, Any]) -> None:
    """The graph of `sdpa_fp8_backward`, ours and cuDNN's alike, with all its results."""
    sizes, ones = _sizes(p, p["h"], p["d"], p["s"]), [1, 1, 1, 1]
    given = {name: made.input(name, *sizes, p["dtype"]) for name in ("q", "k", "v", "o")}
    given["dO"] = made.input("do", *sizes, "e5m2")
    rows = [p["b"], p["h"], p["s"], 1]
    given["stats"] = made.input("stats", rows, [p["h"] * p["s"], p["s"], 1, 1], "fp32")
    names = [name for name in (*SCALES, *GRADIENT_SCALES) if name != "scale_o"]
    scales = {name: made.input(name, ones, ones, "fp32") for name in names}
    bounds = {"use_causal_mask": True} if p["causal"] else {}
    results = made.graph.sdpa_fp8_backward(
        name="sdpa_fp8_backward", attn_scale=p["d"] ** -0.5, **given, **scales, **bounds
    )
    for name, tensor in zip(("dq", "dk", "dv"), results, strict=False):
        made.output(name, tensor, sizes[0], p["dtype"])
        tensor.set_stride(sizes[1])
    for name, tensor in zip(("dQ", "dK", "dV", "dP"), results[3:], strict=True):
        made.output(f"amax_{name}", tensor, ones, "fp32")


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {
    "attention": _attention, "attention_backward": _attention_backward,
    "attention_fp8_backward": _attention_fp8_backward,
}  # fmt: skip
