"""Graphs as users of cudnn-frontend write them, from its documented API, with what they give.

A sample's `build` takes the module that it is to use, `cudnn` or `dnnc.cudnn`, and gives a graph,
not planned yet, and its tensors by name.  `buffers` makes torch tensors for them, and `expected`
computes outputs in torch.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

EACH = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}


def _torch() -> Any:
    return importlib.import_module("torch")


@dataclass(frozen=True)
class Sample:
    """A graph and its numbers.

    build(module, **options of pygraph) gives (graph, tensors by name).  buffers() gives torch
    tensors by name, outputs too.  expected(buffers) gives outputs by name.  rtol, atol: how near
    they have to be.
    """

    build: Callable[..., tuple[Any, dict[str, Any]]]
    buffers: Callable[[], dict[str, Any]]
    expected: Callable[[dict[str, Any]], dict[str, Any]]
    rtol: float = 1e-2
    atol: float = 1e-2


def new(m: Any, io: str = "HALF", **options: Any) -> Any:
    return m.pygraph(
        io_data_type=m.data_type[io],
        intermediate_data_type=m.data_type.FLOAT,
        compute_data_type=m.data_type.FLOAT,
        **options,
    )


def random(*shape: int, dtype: str = "float16", scale: float = 1.0) -> Any:
    torch = _torch()
    made = torch.randn(*shape, device="cuda", dtype=torch.float32) * scale
    return made.to(getattr(torch, dtype))


def empty(*shape: int, dtype: str = "float16") -> Any:
    return _torch().full(shape, math.nan, device="cuda").to(getattr(_torch(), dtype))


def channels_last(tensor: Any) -> Any:
    return tensor.contiguous(memory_format=_torch().channels_last)


def tensor(graph: Any, shape: list[int], stride: list[int] | None = None, **options: Any) -> Any:
    return graph.tensor(dim=shape, stride=stride or row_major(shape), **options)


def row_major(shape: list[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def nhwc(shape: list[int]) -> list[int]:
    _, c, h, w = shape
    return [c * h * w, 1, c * w, c]


# ---- products


def _mlp(m: Any, **options: Any) -> Any:
    g = new(m, "BFLOAT16", **options)
    x, w = tensor(g, [4, 64, 128], name="x"), tensor(g, [1, 128, 256], name="w")
    b = tensor(g, [1, 1, 256], name="b")
    product = g.matmul(A=x, B=w, compute_data_type=m.data_type.FLOAT, name="product")
    y = g.relu(g.bias(input=product, bias=b, name="bias"), name="act")
    y.set_output(True).set_data_type(m.data_type.BFLOAT16)
    return g, {"x": x, "w": w, "b": b, "y": y}


def _mlp_buffers() -> dict[str, Any]:
    kind = {"dtype": "bfloat16"}
    return {
        "x": random(4, 64, 128, **kind), "w": random(1, 128, 256, scale=0.1, **kind),
        "b": random(1, 1, 256, **kind), "y": empty(4, 64, 256, **kind),
    }  # fmt: skip


def _mlp_expected(t: dict[str, Any]) -> dict[str, Any]:
    return {"y": (t["x"].float() @ t["w"].float() + t["b"].float()).relu()}


def _mixed(m: Any, **options: Any) -> Any:
    """INT8 weights, made BFLOAT16 in the graph."""
    g = new(m, "BFLOAT16", **options)
    x = tensor(g, [1, 64, 128])
    w = tensor(g, [1, 128, 64], data_type=m.data_type.INT8)
    wide = g.identity(input=w, compute_data_type=m.data_type.FLOAT)
    wide.set_data_type(m.data_type.BFLOAT16)
    y = g.matmul(A=x, B=wide).set_output(True).set_data_type(m.data_type.BFLOAT16)
    return g, {"x": x, "w": w, "y": y}


def _mixed_buffers() -> dict[str, Any]:
    torch = _torch()
    w = torch.randint(-8, 8, (1, 128, 64), device="cuda", dtype=torch.int8)
    return {
        "x": random(1, 64, 128, dtype="bfloat16"), "w": w, "y": empty(1, 64, 64, dtype="bfloat16"),
    }  # fmt: skip


def _mixed_expected(t: dict[str, Any]) -> dict[str, Any]:
    return {"y": t["x"].float() @ t["w"].float()}


def _fp8(m: Any, **options: Any) -> Any:
    """Products of FP8_E4M3 with descales, their amax, and the result as FP8_E4M3."""
    kinds = m.data_type
    g = new(m, "FP8_E4M3", **options)
    x, w = tensor(g, [1, 64, 128]), tensor(g, [1, 128, 64], [128 * 64, 1, 128])
    one = {"shape": [1, 1, 1], "data_type": kinds.FLOAT}
    scales = {name: tensor(g, **one) for name in ("descale_x", "descale_w", "scale_y")}
    product = g.matmul(A=x, B=w)
    plain = g.mul(a=g.mul(a=product, b=scales["descale_x"]), b=scales["descale_w"])
    amax = g.reduction(input=plain, mode=m.reduction_mode.AMAX)
    amax.set_dim([1, 1, 1]).set_stride([1, 1, 1]).set_output(True).set_data_type(kinds.FLOAT)
    y = g.mul(a=plain, b=scales["scale_y"])
    y.set_output(True).set_data_type(kinds.FP8_E4M3)
    return g, {"x": x, "w": w, **scales, "amax": amax, "y": y}


def _fp8_buffers() -> dict[str, Any]:
    torch = _torch()
    kind = {"dtype": "float8_e4m3fn"}
    scales = {"descale_x": 0.5, "descale_w": 0.25, "scale_y": 0.1}
    return {
        "x": random(1, 64, 128, **kind),
        "w": random(1, 64, 128, **kind).transpose(1, 2),
        **{name: torch.full((1, 1, 1), value, device="cuda") for name, value in scales.items()},
        "amax": empty(1, 1, 1, dtype="float32"),
        "y": torch.zeros(1, 64, 64, device="cuda").to(torch.float8_e4m3fn),
    }


def _fp8_expected(t: dict[str, Any]) -> dict[str, Any]:
    plain = t["x"].float() @ t["w"].float() * t["descale_x"] * t["descale_w"]
    return {"amax": plain.abs().max().reshape(1, 1, 1), "y": plain * t["scale_y"]}


# ---- convolutions


def _conv(m: Any, **options: Any) -> Any:
    g = new(m, **options)
    shape, filters, wide = [4, 32, 14, 14], [64, 32, 3, 3], [4, 64, 14, 14]
    x, w = tensor(g, shape, nhwc(shape)), tensor(g, filters, nhwc(filters))
    channels = {name: tensor(g, [1, 64, 1, 1], nhwc([1, 64, 1, 1])) for name in ("scale", "bias")}
    z = tensor(g, wide, nhwc(wide))
    y = g.conv_fprop(image=x, weight=w, **EACH, name="conv")
    y = g.add(a=g.bias(g.scale(y, channels["scale"]), channels["bias"]), b=z)
    y = g.relu(y).set_output(True)
    return g, {"x": x, "w": w, **channels, "z": z, "y": y}


def _conv_buffers() -> dict[str, Any]:
    return {
        "x": channels_last(random(4, 32, 14, 14)),
        "w": channels_last(random(64, 32, 3, 3, scale=0.1)),
        "scale": random(1, 64, 1, 1), "bias": random(1, 64, 1, 1),
        "z": channels_last(random(4, 64, 14, 14)), "y": channels_last(empty(4, 64, 14, 14)),
    }  # fmt: skip


def _conv_expected(t: dict[str, Any]) -> dict[str, Any]:
    conv2d = _torch().nn.functional.conv2d
    y = conv2d(t["x"].float(), t["w"].float(), padding=1)
    return {"y": (y * t["scale"].float() + t["bias"].float() + t["z"].float()).relu()}


def _genstats(m: Any, **options: Any) -> Any:
    """Sums of channels of a convolution, beside it."""
    g = new(m, **options)
    shape, filters = [4, 32, 8, 8], [32, 32, 1, 1]
    x, w = tensor(g, shape, nhwc(shape)), tensor(g, filters, nhwc(filters))
    none = {"padding": [0, 0], "stride": [1, 1], "dilation": [1, 1]}
    y = g.conv_fprop(image=x, weight=w, **none).set_output(True)
    sums, squares = g.genstats(input=y)
    for made in (sums, squares):
        made.set_output(True).set_data_type(m.data_type.FLOAT)
    return g, {"x": x, "w": w, "y": y, "sums": sums, "squares": squares}


def _genstats_buffers() -> dict[str, Any]:
    return {
        "x": channels_last(random(4, 32, 8, 8)),
        "w": channels_last(random(32, 32, 1, 1, scale=0.2)),
        "y": channels_last(empty(4, 32, 8, 8)),
        "sums": empty(1, 32, 1, 1, dtype="float32"), "squares": empty(1, 32, 1, 1, dtype="float32"),
    }  # fmt: skip


def _genstats_expected(t: dict[str, Any]) -> dict[str, Any]:
    y = _torch().nn.functional.conv2d(t["x"].float(), t["w"].float())
    axes = {"dim": (0, 2, 3), "keepdim": True}
    return {"y": y, "sums": y.sum(**axes), "squares": (y * y).sum(**axes)}


# ---- norms

_ROWS, _WIDTH = 96, 256


def _norm(method: str, m: Any, **options: Any) -> Any:
    kinds = m.data_type
    g = new(m, **options)
    shape = [_ROWS, _WIDTH, 1, 1]
    x = tensor(g, shape, nhwc(shape))
    names = ("scale", "bias") if method == "layernorm" else ("scale",)
    row = [1, _WIDTH, 1, 1]
    params = {n: tensor(g, row, nhwc(row), data_type=kinds.FLOAT) for n in names}
    epsilon = g.tensor(
        dim=[1] * 4, stride=[1] * 4, is_pass_by_value=True, data_type=kinds.FLOAT, name="epsilon"
    )
    training = m.norm_forward_phase.TRAINING
    made = getattr(g, method)(
        input=x, norm_forward_phase=training, epsilon=epsilon, name=method, **params
    )
    stats = dict(zip(("y", "mean", "inv") if len(made) == 3 else ("y", "inv"), made, strict=True))
    for name, result in stats.items():
        result.set_output(True).set_data_type(kinds.HALF if name == "y" else kinds.FLOAT)
    return g, {"x": x, **params, "epsilon": epsilon, **stats}


def _norm_buffers(method: str) -> dict[str, Any]:
    torch = _torch()
    shape, one = (_ROWS, _WIDTH, 1, 1), (_ROWS, 1, 1, 1)
    found = {
        "x": channels_last(random(*shape)),
        "scale": random(1, _WIDTH, 1, 1, dtype="float32"),
        "epsilon": torch.full((1, 1, 1, 1), 1e-3),
        "y": channels_last(empty(*shape)), "inv": empty(*one, dtype="float32"),
    }  # fmt: skip
    if method == "layernorm":
        found |= {
            "bias": random(1, _WIDTH, 1, 1, dtype="float32"), "mean": empty(*one, dtype="float32"),
        }  # fmt: skip
    return found


def _norm_expected(method: str, t: dict[str, Any]) -> dict[str, Any]:
    x = t["x"].float()
    axes = {"dim": (1, 2, 3), "keepdim": True}
    mean = x.mean(**axes) if method == "layernorm" else 0.0
    inv = ((x - mean).square().mean(**axes) + 1e-3).rsqrt()
    y = (x - mean) * inv * t["scale"] + t.get("bias", 0.0)
    return {"y": y, "inv": inv, **({"mean": mean} if method == "layernorm" else {})}


def _batchnorm(m: Any, **options: Any) -> Any:
    """Training, ReLU behind it; running statistics are updated where they are."""
    kinds = m.data_type
    g = new(m, **options)
    shape, one = [8, 32, 8, 8], [1, 32, 1, 1]
    x = tensor(g, shape, nhwc(shape))
    names = ("scale", "bias", "running_mean", "running_var")
    t = {n: tensor(g, one, nhwc(one), data_type=kinds.FLOAT) for n in names}
    scalars = {
        n: g.tensor(dim=[1] * 4, stride=[1] * 4, is_pass_by_value=True, data_type=kinds.FLOAT)
        for n in ("epsilon", "momentum")
    }
    made = g.batchnorm(
        input=x, scale=t["scale"], bias=t["bias"], in_running_mean=t["running_mean"],
        in_running_var=t["running_var"], **scalars, name="bn",
    )  # fmt: skip
    y = g.relu(made[0]).set_output(True)
    results = dict(zip(("mean", "inv", "next_mean", "next_var"), made[1:], strict=True))
    for result in results.values():
        result.set_output(True).set_data_type(kinds.FLOAT)
    return g, {"x": x, **t, **scalars, "y": y, **results}


def _batchnorm_buffers() -> dict[str, Any]:
    torch = _torch()
    one = {"dtype": "float32"}
    found = {
        "x": channels_last(random(8, 32, 8, 8)),
        "scale": random(1, 32, 1, 1, **one), "bias": random(1, 32, 1, 1, **one),
        "running_mean": random(1, 32, 1, 1, **one), "running_var": random(1, 32, 1, 1, **one).abs(),
        "epsilon": torch.full((1, 1, 1, 1), 1e-3), "momentum": torch.full((1, 1, 1, 1), 0.1),
        "y": channels_last(empty(8, 32, 8, 8)),
        "mean": empty(1, 32, 1, 1, **one), "inv": empty(1, 32, 1, 1, **one),
    }  # fmt: skip
    return {**found, "next_mean": found["running_mean"], "next_var": found["running_var"]}


def _batchnorm_expected(t: dict[str, Any]) -> dict[str, Any]:
    x = t["x"].float()
    axes = {"dim": (0, 2, 3), "keepdim": True}
    mean, var = x.mean(**axes), x.var(unbiased=False, **axes)
    inv = (var + 1e-3).rsqrt()
    count = x.numel() / x.shape[1]
    return {
        "y": ((x - mean) * inv * t["scale"] + t["bias"]).relu(),
        "mean": mean, "inv": inv,
        "next_mean": 0.9 * t["running_mean"] + 0.1 * mean,
        "next_var": 0.9 * t["running_var"] + 0.1 * var * count / (count - 1),
    }  # fmt: skip


# ---- attention

_B, _HQ, _HK, _S, _D = 2, 4, 2, 128, 64


def _bshd(heads: int) -> list[int]:
    return [_S * heads * _D, _D, heads * _D, 1]


def _attention(m: Any, **options: Any) -> Any:
    """Causal attention of grouped heads, with statistics."""
    g = new(m, **options)
    q = tensor(g, [_B, _HQ, _S, _D], _bshd(_HQ))
    k, v = (tensor(g, [_B, _HK, _S, _D], _bshd(_HK)) for _ in "kv")
    o, stats = g.sdpa(
        q=q, k=k, v=v, attn_scale=_D**-0.5, is_inference=False, use_causal_mask=True, name="sdpa"
    )
    o.set_output(True).set_dim([_B, _HQ, _S, _D]).set_stride(_bshd(_HQ))
    stats.set_output(True).set_data_type(m.data_type.FLOAT)
    return g, {"q": q, "k": k, "v": v, "o": o, "stats": stats}


def _heads(heads: int) -> Any:
    return random(_B, _S, heads, _D).transpose(1, 2)


def _attention_buffers() -> dict[str, Any]:
    return {
        "q": _heads(_HQ), "k": _heads(_HK), "v": _heads(_HK),
        "o": empty(_B, _S, _HQ, _D).transpose(1, 2),
        "stats": empty(_B, _HQ, _S, 1, dtype="float32"),
    }  # fmt: skip


def _attended(q: Any, k: Any, v: Any, is_causal: bool) -> tuple[Any, Any]:
    """O and the logarithms of the sums of one batch of [B, H, S, D]."""
    torch = _torch()
    k, v = (t.float().repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q.float() @ k.transpose(2, 3) * _D**-0.5
    if is_causal:
        above = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(above, -math.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)


def _attention_expected(t: dict[str, Any]) -> dict[str, Any]:
    o, stats = _attended(t["q"], t["k"], t["v"], True)
    return {"o": o, "stats": stats}


def _packed(m: Any, **options: Any) -> Any:
    """Sequences one behind the other, in buffers of as many rows as there are."""
    g = new(m, **options)
    q, k, v = (tensor(g, [_B, _HQ, _S, _D], _bshd(_HQ)) for _ in "qkv")
    whole = m.data_type.INT32
    lengths = {n: tensor(g, [_B, 1, 1, 1], data_type=whole) for n in ("seq_q", "seq_kv")}
    begins = tensor(g, [_B + 1, 1, 1, 1], data_type=whole)
    for operand in (q, k, v):
        operand.set_ragged_offset(begins)
    o, _ = g.sdpa(
        q=q, k=k, v=v, attn_scale=_D**-0.5, is_inference=True, use_padding_mask=True,
        seq_len_q=lengths["seq_q"], seq_len_kv=lengths["seq_kv"],
    )  # fmt: skip
    o.set_output(True).set_dim([_B, _HQ, _S, _D]).set_stride(_bshd(_HQ)).set_ragged_offset(begins)
    return g, {"q": q, "k": k, "v": v, **lengths, "begins": begins, "o": o}


_LENGTHS = (37, 70)


def _packed_buffers() -> dict[str, Any]:
    torch = _torch()
    rows = {name: random(sum(_LENGTHS), _HQ, _D) for name in "qkv"}
    lengths = torch.tensor(_LENGTHS, device="cuda", dtype=torch.int32).reshape(_B, 1, 1, 1)
    begins = torch.tensor([0, _LENGTHS[0], sum(_LENGTHS)], device="cuda", dtype=torch.int32)
    return {
        **rows, "seq_q": lengths, "seq_kv": lengths,
        "begins": (begins * _HQ * _D).reshape(_B + 1, 1, 1, 1), "o": empty(sum(_LENGTHS), _HQ, _D),
    }  # fmt: skip


def _packed_expected(t: dict[str, Any]) -> dict[str, Any]:
    torch = _torch()
    parts, begin = [], 0
    for length in _LENGTHS:
        own = [t[n][begin : begin + length].transpose(0, 1)[None] for n in "qkv"]
        parts.append(_attended(*own, False)[0][0].transpose(0, 1))
        begin += length
    return {"o": torch.cat(parts)}


SAMPLES = {
    "matmul, bias and ReLU": Sample(_mlp, _mlp_buffers, _mlp_expected, 2e-2, 2e-2),
    "matmul of mixed types": Sample(_mixed, _mixed_buffers, _mixed_expected, 2e-2, 1e-1),
    "matmul of fp8 with amax": Sample(_fp8, _fp8_buffers, _fp8_expected, 1.3e-1, 2e-2),
    "convolution with an epilogue": Sample(_conv, _conv_buffers, _conv_expected, 1e-2, 2e-2),
    "convolution and its sums": Sample(_genstats, _genstats_buffers, _genstats_expected, 2e-2, 0.5),
    **{
        method: Sample(
            lambda m, method=method, **options: _norm(method, m, **options),
            lambda method=method: _norm_buffers(method),
            lambda t, method=method: _norm_expected(method, t),
        )
        for method in ("layernorm", "rmsnorm")
    },
    "batch norm in place": Sample(_batchnorm, _batchnorm_buffers, _batchnorm_expected),
    "causal attention": Sample(_attention, _attention_buffers, _attention_expected),
    "packed attention": Sample(_packed, _packed_buffers, _packed_expected),
}
