# pyright: basic
"""Norms and grouped products of torch tensors, each as a graph that is built once for its shapes.

Results are new torch tensors on the current stream of the inputs' device.  There are no gradients:
an input that asks for them is NOT_SUPPORTED where torch records them.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Sequence
from typing import Any

from ....errors import DnncError, Status, cudnnGraphNotSupportedError
from ... import enums
from ...datatypes import torch_to_cudnn_data_type
from ...graphs import pygraph
from ...wrapper import get_default_handle

_FLOAT = enums.data_type.FLOAT
_MOST_GRAPHS = 256


def rms_norm(input: Any, weight: Any, bias: Any = None, eps: float = 1e-5) -> Any:
    """input / rms(input) * weight + bias over the last dim.

    input: [..., N].  weight, bias: [N].
    """
    return _normed("rmsnorm", input, weight, bias, eps)


def layer_norm(
    input: Any,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> Any:
    """(input - mean) / deviation * weight + bias over the last dim.

    input: [..., N].  normalized_shape: (N,).  weight, bias: [N], ones and zeros by default.
    """
    width = input.shape[-1]
    if tuple(normalized_shape) != (width,):
        what = f"normalized_shape {tuple(normalized_shape)} of an input {tuple(input.shape)}"
        raise DnncError(Status.NOT_SUPPORTED, what, f"({width},)", "layer_norm")
    ones = input.new_ones(width) if weight is None else weight
    return _normed("layernorm", input, ones, input.new_zeros(width) if bias is None else bias, eps)


def _normed(method: str, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    width = x.shape[-1]
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and tuple(value.shape) != (width,):
            what = f"{name} {tuple(value.shape)} of an input {tuple(x.shape)}"
            raise DnncError(Status.BAD_PARAM_SHAPE_MISMATCH, what, f"({width},)", method)
    rows = math.prod(x.shape[:-1])
    kinds = tuple(
        None if value is None else torch_to_cudnn_data_type(value.dtype)
        for value in (x, weight, bias)
    )
    graph = _norm_graph(method, rows, width, kinds, float(eps))
    flat = x.contiguous()
    made = flat.new_empty(x.shape)
    arrays = {"x": flat, "weight": weight.contiguous(), "y": made}
    if bias is not None:
        arrays["bias"] = bias.contiguous()
    return _executed(graph, arrays, made)


@functools.lru_cache(_MOST_GRAPHS)
def _norm_graph(method: str, rows: int, width: int, kinds: tuple[Any, ...], eps: float) -> pygraph:
    graph = pygraph(method, kinds[0], _FLOAT, _FLOAT, get_default_handle())
    x = graph.tensor([rows, width, 1, 1], [width, 1, width, width], name="x")
    params = {
        port: graph.tensor([1, width, 1, 1], [width, 1, width, width], kind, name=name)
        for port, name, kind in (("scale", "weight", kinds[1]), ("bias", "bias", kinds[2]))
        if kind is not None
    }
    phase = enums.norm_forward_phase.INFERENCE
    epsilon = graph.tensor_scalar(eps)
    y = getattr(graph, method)(input=x, norm_forward_phase=phase, epsilon=epsilon, **params)[0]
    y.set_output(True).set_name("y").set_stride([width, 1, width, width])
    graph.build()
    return graph


def moe_grouped_matmul(
    token: Any,
    weight: Any,
    first_token_offset: Any,
    token_index: Any = None,
    token_ks: Any = None,
    mode: str = "none",
    top_k: int = 1,
) -> Any:
    """Products of each expert's rows with its weights.

    token: [1, M, K].  weight: [E, K, N].  first_token_offset: INT32, where each expert's rows
    begin.  token_index: INT32 [1, M', 1], for mode gather and scatter.  token_ks: for scatter.
    """
    arrays = {
        "token": token,
        "weight": weight,
        "first_token_offset": first_token_offset,
        "token_index": token_index,
        "token_ks": token_ks,
    }
    given = {name: value for name, value in arrays.items() if value is not None}
    forms = tuple(
        (name, tuple(v.shape), tuple(v.stride()), torch_to_cudnn_data_type(v.dtype))
        for name, v in given.items()
    )
    graph = _grouped_graph(forms, mode, top_k)
    y = graph.tensors["y"]
    made = token.new_empty(tuple(y.get_dim()))
    return _executed(graph, {**given, "y": made}, made)


@functools.lru_cache(_MOST_GRAPHS)
def _grouped_graph(forms: tuple[Any, ...], mode: str, top_k: int) -> pygraph:
    kind = forms[0][3]
    graph = pygraph("moe_grouped_matmul", kind, _FLOAT, _FLOAT, get_default_handle())
    ports = {name: graph.tensor(dim, stride, t, name=name) for name, dim, stride, t in forms}
    chosen = enums.member_of(enums.moe_grouped_matmul_mode, mode)
    y = graph.moe_grouped_matmul(**ports, mode=chosen, top_k=top_k)
    y.set_output(True).set_name("y")
    graph.build()
    return graph


def swiglu_mlp(x: Any, Wg: Any, Wu: Any, Wd: Any) -> Any:
    """Refused: a fused MLP whose kernels are of sm_100; build it as a graph of three matmuls."""
    status = Status.NOT_SUPPORTED_ARCH_MISMATCH
    what = "swiglu_mlp, whose kernels are of sm_100"
    raise cudnnGraphNotSupportedError(status, what, "a graph of matmul, swish and mul")


def _executed(graph: pygraph, arrays: dict[str, Any], made: Any) -> Any:
    """The result, after a launch on the current stream."""
    torch = importlib.import_module("torch")
    if torch.is_grad_enabled() and any(array.requires_grad for array in arrays.values()):
        what = "an input that requires a gradient"
        raise DnncError(Status.NOT_SUPPORTED, what, "torch.no_grad(), or detach()", "experimental")
    bytes_ = graph.get_workspace_size()
    space = torch.empty(bytes_, dtype=torch.uint8, device=made.device) if bytes_ else None
    handle = get_default_handle(torch.cuda.current_stream(made.device))
    graph.execute(arrays, space, handle)
    return made


__all__ = ["layer_norm", "moe_grouped_matmul", "rms_norm", "swiglu_mlp"]
