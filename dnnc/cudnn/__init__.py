"""cudnn-frontend's Python module over dnnc: `import dnnc.cudnn as cudnn`.

A program that builds graphs with cudnn-frontend 1.32 runs on dnnc with that import changed, or
unchanged after `dnnc.cudnn.install()`.  docs/cudnn.md says what differs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import cudnnGraphNotSupportedError
from . import datatypes, wrapper
from .building import graph, graph_cache, jit
from .enums import (
    attention_implementation,
    behavior_note,
    build_plan_policy,
    convolution_mode,
    cuda_graph_retention,
    data_type,
    diagonal_alignment,
    heur_mode,
    knob_type,
    moe_grouped_matmul_mode,
    norm_forward_phase,
    numerical_note,
    reduction_mode,
    reshape_mode,
    scalar_type,
    tensor_reordering,
)
from .graphs import pygraph
from .handles import (
    DeviceInfo,
    Handle,
    create_device_properties,
    create_handle,
    create_kernel_cache,
    destroy_handle,
    get_stream,
    set_stream,
)
from .install import install
from .operations import NodeType
from .planning import PlanConfig, knob
from .recording import GraphContext
from .tensors import Node, Tensor
from .wrapper import Graph

# The versions that it behaves as: of cudnn-frontend, and of cuDNN.
__version__ = "1.32.0"
_CUDNN = (9, 25, 0)

tensor = Tensor
handle = Handle


def backend_version() -> int:
    """The version of cuDNN whose graphs are taken: 92500 for 9.25.0."""
    major, minor, patch = _CUDNN
    return major * 10000 + minor * 100 + patch


def backend_version_string() -> str:
    """The version of cuDNN whose graphs are taken, as text."""
    return ".".join(map(str, _CUDNN))


def get_last_error_string() -> str:
    """Empty: errors carry their own text."""
    return ""


def sdpa_capabilities() -> frozenset[str]:
    """Empty: cudnn-frontend's native binder of attention is not there."""
    return frozenset()


__all__ = [
    "DeviceInfo",
    "Graph",
    "GraphContext",
    "Handle",
    "Node",
    "NodeType",
    "PlanConfig",
    "Tensor",
    "attention_implementation",
    "backend_version",
    "backend_version_string",
    "behavior_note",
    "build_plan_policy",
    "convolution_mode",
    "create_device_properties",
    "create_handle",
    "create_kernel_cache",
    "cuda_graph_retention",
    "cudnnGraphNotSupportedError",
    "data_type",
    "datatypes",
    "destroy_handle",
    "diagonal_alignment",
    "get_last_error_string",
    "get_stream",
    "graph",
    "graph_cache",
    "handle",
    "heur_mode",
    "install",
    "jit",
    "knob",
    "knob_type",
    "moe_grouped_matmul_mode",
    "norm_forward_phase",
    "numerical_note",
    "pygraph",
    "reduction_mode",
    "reshape_mode",
    "scalar_type",
    "sdpa_capabilities",
    "set_stream",
    "tensor",
    "tensor_reordering",
    "wrapper",
]


if not TYPE_CHECKING:  # a type checker takes each name from its import above

    def __getattr__(name: str) -> Any:
        """Loads the package `experimental` when it is first asked for."""
        if name == "experimental":
            return importlib.import_module(f"{__name__}.experimental")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
