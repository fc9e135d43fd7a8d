"""Torch's columns of a case: eager, cuBLASLt's fused epilogues, and inductor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from ..cases import causal_conv1d as causal_conv1d_cases
from ..cases import conv as conv_cases
from ..cases import conv_before as conv_before_cases
from ..cases import conv_dgrad as conv_dgrad_cases
from ..cases import conv_wgrad as conv_wgrad_cases
from ..cases import kinds
from ..cases import part_norm as part_norm_cases
from ..cases import parts as parts_cases
from ..cases import resnet50 as resnet50_cases
from ..cases import rope as rope_cases
from ..cases.case import Buffers, Case
from ..cases.kinds import torch_type
from ..cases.matmul import EPILOGUES
from ..graphs import image_norm as image_norm_graphs
from ..graphs import memory as memory_graphs
from ..graphs import vector as vector_graphs
from ..graphs.fused import EPSILON
from ..graphs.row import SCALE
from . import attention as attention_peers

Call = Callable[[Buffers], Any]


def eager(case: Case) -> Call:
    """A case on one buffer set, as a torch user writes it."""
    p = case.p
    torch.backends.cuda.matmul.allow_tf32 = p.get("dtype") == "tf32"
    if case.kind in _FUSED:
        return _FUSED[case.kind]
    if case.kind in _ROWS:
        return _ROWS[case.kind]
    if case.kind in _MEMORY:
        return _MEMORY[case.kind]
    if case.kind in part_norm_cases.KINDS:
        return lambda s: part_norm_cases.in_torch(case.kind, s)
    if case.kind == "conv":
        return _eager_conv(p)
    if case.kind == "conv_before":
        torch.backends.cudnn.benchmark = True
        return lambda s: conv_before_cases.in_torch(p, s)
    if case.kind == "conv_dgrad":
        torch.backends.cudnn.benchmark = True
        return lambda s: conv_dgrad_cases.in_torch(p, s)
    if case.kind == "conv_wgrad":
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = p["dtype"] != "fp32"
        return lambda s: conv_wgrad_cases.in_torch(p, s)
    if case.kind in (causal_conv1d_cases.KIND, causal_conv1d_cases.BACKWARD):
        return lambda s: causal_conv1d_cases.in_torch(case.kind, s)
    if case.kind == parts_cases.KIND:
        return lambda s: parts_cases.in_torch(p, s)
    if case.kind in (rope_cases.KIND, rope_cases.WITH_ATTENTION):
        return lambda s: rope_cases.in_torch(p, s)
    if case.kind == "resnet50_layer":
        torch.backends.cudnn.benchmark = True
        return lambda s: resnet50_cases.in_torch(p["op"], s)
    if case.kind == "bias_gelu":
        return lambda s: functional.gelu(s["x"] + s["b"], approximate="tanh")
    if case.kind == "add":
        return lambda s: torch.add(s["x"], s["z"], out=s["y"])
    if case.kind == "squares":
        return lambda s: (s["x"].float() ** 2).sum(p["axes"], keepdim=True)
    return _eager_matmul(p)


_FUSED: dict[str, Call] = {
    "swiglu": lambda s: (
        functional.silu(functional.linear(s["a"], s["g"])) * functional.linear(s["a"], s["u"])
    ),
    "softmax": lambda s: torch.softmax(functional.linear(s["a"], s["w"]), -1),
    "rms_norm": lambda s: functional.rms_norm(
        functional.linear(s["a"], s["w"]), s["gamma"].shape, s["gamma"], EPSILON
    ),
    "grouped": lambda s: torch._grouped_mm(s["token"], s["weight"].mT, offs=s["ends"]),
}


def _add_rmsnorm_fp8(s: Buffers) -> Any:
    z = s["x"] + s["r"]
    y = functional.rms_norm(z, s["w"].shape, s["w"], EPSILON).float() * SCALE
    return z, y.clamp(-448, 448).to(torch.float8_e4m3fn)


_ROWS: dict[str, Call] = {
    "layernorm": lambda s: torch.native_layer_norm(s["x"], s["w"].shape, s["w"], s["b"], EPSILON)[
        0
    ],
    "rmsnorm": lambda s: functional.rms_norm(s["x"], s["w"].shape, s["w"], EPSILON),
    "softmax_of_rows": lambda s: torch.softmax(s["x"], -1),
    "softmax_backward": lambda s: torch.ops.aten._softmax_backward_data(
        s["dy"], s["y"], -1, torch.bfloat16
    ),
    "layernorm_backward": lambda s: torch.ops.aten.native_layer_norm_backward(
        s["dy"], s["x"], s["w"].shape, s["mean"], s["rstd"], s["w"], s["w"], [True, True, True]
    ),
    "rmsnorm_backward": lambda s: torch.ops.aten._fused_rms_norm_backward(
        s["dy"], s["x"], s["w"].shape, s["rstd"], s["w"], [True, True]
    ),
    "add_rmsnorm_fp8": _add_rmsnorm_fp8,
}


def _batchnorm(s: Buffers) -> Any:
    """Torch's running statistics are updated in place: here those that go in."""
    names = ("old_mean", "old_var", "scale", "bias")
    return functional.batch_norm(
        s["x"],
        *(s[name].flatten() for name in names),
        training=True,
        momentum=image_norm_graphs.MOMENTUM,
        eps=image_norm_graphs.EPSILON,
    )


def _bn_add_relu(s: Buffers) -> Any:
    y = torch.relu(_batchnorm(s) + s["z"])
    return y, y > 0


def _batchnorm_backward(s: Buffers, dy: Any) -> Any:
    scale, mean, rstd = (s[name].flatten() for name in ("scale", "mean", "rstd"))
    return torch.ops.aten.native_batch_norm_backward(
        dy, s["x"], scale, None, None, mean, rstd, True, image_norm_graphs.EPSILON, [True] * 3
    )


def _drelu_fork_dbn(s: Buffers) -> Any:
    dz = s["dy"] * s["bools"]
    return dz, *_batchnorm_backward(s, dz)


def _max_pool_backward(s: Buffers) -> Any:
    window, stride, padding = ([size] * 2 for size in memory_graphs.MAX_POOL)
    return torch.ops.aten.max_pool2d_with_indices_backward(
        s["dy"], s["dx"], window, stride, padding, [1, 1], False, s["places"]
    )


def _average_pool_backward(s: Buffers) -> Any:
    window, stride, padding = ([n, n] for n in memory_graphs.AVERAGE_POOL)
    # Of the input, dims and layout are read; the output is a buffer of both.
    return torch.ops.aten.avg_pool2d_backward(
        s["dy"], s["dx"], window, stride, padding, False, True, None
    )


_MEMORY: dict[str, Call] = {
    "batchnorm": _batchnorm,
    "batchnorm_nchw": _batchnorm,
    "batchnorm_nchw_backward": lambda s: _batchnorm_backward(s, s["dy"]),
    "batchnorm_relu": lambda s: torch.relu(_batchnorm(s)),
    "bn_add_relu": _bn_add_relu,
    "batchnorm_backward": lambda s: _batchnorm_backward(s, s["dy"]),
    "drelu_fork_dbn": _drelu_fork_dbn,
    "max_pool": lambda s: functional.max_pool2d(s["x"], *memory_graphs.MAX_POOL),
    "max_pool_backward": _max_pool_backward,
    "average_pool": lambda s: functional.avg_pool2d(s["x"], *memory_graphs.AVERAGE_POOL),
    "average_pool_backward": _average_pool_backward,
    "silu_mul": lambda s: functional.silu(s["g"]) * s["u"],
    "chain": lambda s: torch.relu((s["x"] * s["s"] + s["b"]) * s["r"] + s["z"]) * s["t"],
    # Without a buffer for it, the sum would be laid out as its first operand is.
    "transposed": lambda s: torch.add(s["x"].mT, s["z"], out=s["y"]),
    "strided": lambda s: torch.add(s["x"][::2], s["z"], out=s["y"]),
    **{kind: lambda s: s["y"].copy_(s["x"]) for kind in vector_graphs.COPIES},
}


def _eager_conv(p: Mapping[str, Any]) -> Call:
    """cuDNN's fastest algorithm of those that torch tries, then the epilogue."""
    if p["x_type"] not in ("bf16", "fp16"):
        raise ValueError(f"torch has no convolutions of {p['x_type']}")
    torch.backends.cudnn.benchmark = True
    act = conv_cases.EPILOGUES[p["epilogue"]]
    return lambda s: act(conv_cases.direct(p, s["x"], s["f"]), s)


def _eager_matmul(p: Mapping[str, Any]) -> Call:
    epilogue, act = p["epilogue"], EPILOGUES[p["epilogue"]]
    c_type = torch_type(p["c_type"])
    if p["a_type"] == "e4m3":
        return _scaled(p, c_type)
    if p["a_type"] == "int8":
        return lambda s: act(torch._int_mm(s["a"][0], s["w"][0].mT), s).to(c_type)
    if p["prologue"] == "scale_a":
        return lambda s: torch.matmul(s["a"] * s["scale"], s["w"].mT, out=s["c"])
    if p["prologue"]:
        return lambda s: torch.matmul(s["a"], _weights(s).mT, out=s["c"])
    if p["batch"] > 1:
        if epilogue == "none":
            return lambda s: torch.matmul(s["a"], s["w"].mT, out=s["c"])
        return lambda s: act(torch.matmul(s["a"], s["w"].mT), s)
    if epilogue == "none":
        return lambda s: torch.mm(s["a"][0], s["w"][0].mT, out=s["c"][0])
    if epilogue.startswith("bias"):
        return lambda s: _BIASED[epilogue](functional.linear(s["a"], s["w"][0], s["bias"]))
    return lambda s: act(torch.mm(s["a"][0], s["w"][0].mT), s)


def _weights(s: Buffers) -> Any:
    """w [batch, n, k] dequantised; of fp8, torch has no products."""
    w = s["w"] if s["w"].dtype == torch.int8 else s["w"].to(s["scale"].dtype)
    return w * s["scale"][:, None]


_BIASED: dict[str, Callable[[Any], Any]] = {
    "bias_relu": torch.relu,
    "bias_gelu": lambda c: functional.gelu(c, approximate="tanh"),
    "bias_gelu_erf": functional.gelu,
}


def _scaled(p: Mapping[str, Any], c_type: torch.dtype) -> Call:
    """fp8: the scale of the product is A's."""
    if p["epilogue"] != "descale":
        raise ValueError(f"no spelling of {p['epilogue']} after an fp8 matmul")
    is_fast = p["dtype"] == "e4m3_fast"
    one = torch.ones(1, device=kinds.DEVICE)

    def call(s: Buffers) -> Any:
        return torch._scaled_mm(
            s["a"][0], s["w"][0].mT, s["scale"], one, out_dtype=c_type, use_fast_accum=is_fast
        )

    return call


def fused(case: Case) -> Call | None:
    """The case as one call with cuBLASLt's epilogue; None if it has none."""
    p = case.p
    is_biased = case.kind == "matmul" and p["epilogue"] in ("bias_relu", "bias_gelu")
    if not is_biased or p["batch"] > 1 or p["a_type"] not in ("bf16", "fp16"):
        return None
    use_gelu = p["epilogue"] == "bias_gelu"
    return lambda s: torch._addmm_activation(s["bias"], s["a"][0], s["w"][0].mT, use_gelu=use_gelu)


def inductor(case: Case, buffers: Buffers) -> tuple[Call, float] | None:
    """(The eager form through torch.compile in its default mode, seconds of the first call).

    None where it would only call what eager calls.
    """
    p = case.p
    is_plain = case.kind == "matmul" and p["epilogue"] == "none" and not p["prologue"]
    is_plain |= case.kind in ("conv", "conv_dgrad") and p["epilogue"] == "plain"
    is_plain |= case.kind == "attention" and not attention_peers.is_modified(case)  # fp8 too
    without = (
        "add", "attention_backward", "attention_fp8_backward", "grouped", "packed",
        "packed_backward", "paged", "conv_wgrad",
    )  # fmt: skip
    if is_plain or case.kind in without:
        return None
    torch._dynamo.reset()
    is_flex = case.kind == "attention"
    made = attention_peers.flex(case, buffers) if is_flex else eager(case)
    compiled = torch.compile(made, dynamic=False)
    began = time.perf_counter()
    compiled(buffers)
    return compiled, time.perf_counter() - began
