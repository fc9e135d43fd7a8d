# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Calls of graphs with torch tensors: a plan for each kind of call, or the reference on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import torch

from ..api import compile as compile_graph
from ..api import reference
from ..errors import DnncError, Status
from ..frontends.pygraph import pygraph
from ..runtime import load
from ..target import of_capability

# How many kinds of calls are kept.
_KEPT = 512

# Bytes that addresses of tensors have to be multiples of.
_ALIGNMENT = 16

# torch's data type -> the graph's.
DATA_TYPES = {
    torch.float16: "HALF",
    torch.bfloat16: "BFLOAT16",
    torch.float32: "FLOAT",
    torch.float64: "DOUBLE",
    torch.int64: "INT64",
}


class Like(NamedTuple):
    """A tensor's kind.  strides: in elements."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(tensor: torch.Tensor) -> Like:
        return Like(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


class Kind(NamedTuple):
    """The kind of calls that one graph serves.

    build: (graph, tensors by name, results by name, options) adds the operations and gives the
    results, in order.  inputs, results: by name.  arithmetic: the graph's compute type.
    """

    name: str
    build: Callable[..., Any]
    inputs: tuple[tuple[str, Like], ...]
    results: tuple[tuple[str, Like], ...]
    options: Hashable
    arithmetic: str

    def graph(self) -> pygraph:
        """A new graph, whose tensors have the names of this kind."""
        graph = pygraph(
            self.name,
            intermediate_data_type=self.arithmetic,
            compute_data_type=self.arithmetic,
        )
        tensors = {
            name: graph.tensor(like.dims, like.strides, DATA_TYPES[like.dtype], name=name)
            for name, like in self.inputs
        }
        made = self.build(graph, tensors, dict(self.results), self.options)
        for tensor, (name, like) in zip(made, self.results, strict=True):
            tensor.set_output().set_name(name).set_data_type(DATA_TYPES[like.dtype])
            tensor.set_dim(like.dims).set_stride(like.strides)
        return graph


def called(kind: Kind, tensors: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The results of a call, new tensors on the device of its inputs.

    A graph that no engine takes is a cudnnGraphNotSupportedError.  On a GPU nothing waits.
    """
    (device,) = {tensor.device for tensor in tensors.values()}
    if device.type == "cpu":
        return _on_cpu(kind, tensors)
    plan = _plan(kind, torch.cuda.get_device_capability(device))
    with torch.cuda.device(device):
        made = plan(**{name: _aligned(tensor) for name, tensor in tensors.items()})
    if isinstance(made, torch.Tensor):
        return [made]
    found = {record.name: array for record, array in zip(plan.outputs, made, strict=True)}
    return [found[name] for name, _ in kind.results]


def require_one_device(where: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuses tensors that are on several devices, or on one that dnnc does not know."""
    found = {name: tensor.device for name, tensor in tensors.items()}
    kinds = set(found.values())
    if len(kinds) > 1 or any(device.type not in ("cpu", "cuda") for device in kinds):
        what = ", ".join(f"{name} on {device}" for name, device in found.items())
        raise DnncError(Status.BAD_PARAM, what, "all on one CUDA device, or all on the CPU", where)


@functools.lru_cache(_KEPT)
def _plan(kind: Kind, capability: tuple[int, int]) -> Any:
    """The plan for devices of a compute capability, compiled or from the cache."""
    return load(compile_graph(kind.graph(), of_capability(*capability).name))


@functools.lru_cache(_KEPT)
def _graph(kind: Kind) -> pygraph:
    return kind.graph()


def _on_cpu(kind: Kind, tensors: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The results by the reference; they are rounded once, to their types."""
    graph = _graph(kind)
    arrays = {name: _array(tensor) for name, tensor in tensors.items()}
    found = reference(graph, arrays, exact_outputs=True)
    made = []
    for name, like in kind.results:
        result = torch.empty_strided(like.dims, like.strides, dtype=like.dtype)
        made.append(result.copy_(torch.from_numpy(found.get(name).reshape(like.dims))))
    return made


def _array(tensor: torch.Tensor) -> Any:
    """The tensor as NumPy takes it, which has no bfloat16."""
    wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return wide.numpy()


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy where its address is no multiple of 16 bytes."""
    if tensor.data_ptr() % _ALIGNMENT == 0:
        return tensor
    copy = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return copy.copy_(tensor)
