"""dnnc: an ahead-of-time compiler for the operation graphs of cuDNN's Graph API.

Importing it loads nothing heavy: names below load what they need when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# For editors and type checkers; nothing of it is imported when a program runs.
if TYPE_CHECKING:
    from . import backend as backend
    from . import cudnn as cudnn
    from . import engines as engines
    from . import operations as operations
    from . import torch as torch
    from .api import compile as compile
    from .api import reference as reference
    from .dialect.graph import OperationGraph as OperationGraph
    from .emit import write_c as write_c
    from .errors import DnncError as DnncError
    from .errors import Status as Status
    from .errors import cudnnGraphNotSupportedError as cudnnGraphNotSupportedError
    from .expr import Dim as Dim
    from .frontends.device_properties import create_device_properties as create_device_properties
    from .frontends.enums import attention_implementation as attention_implementation
    from .frontends.enums import behavior_note as behavior_note
    from .frontends.enums import build_plan_policy as build_plan_policy
    from .frontends.enums import convolution_mode as convolution_mode
    from .frontends.enums import data_type as data_type
    from .frontends.enums import diagonal_alignment as diagonal_alignment
    from .frontends.enums import heur_mode as heur_mode
    from .frontends.enums import knob_type as knob_type
    from .frontends.enums import moe_grouped_matmul_mode as moe_grouped_matmul_mode
    from .frontends.enums import norm_forward_phase as norm_forward_phase
    from .frontends.enums import numerical_note as numerical_note
    from .frontends.enums import padding_mode as padding_mode
    from .frontends.enums import reduction_mode as reduction_mode
    from .frontends.enums import resample_mode as resample_mode
    from .frontends.enums import reshape_mode as reshape_mode
    from .frontends.enums import rng_distribution as rng_distribution
    from .frontends.enums import scalar_type as scalar_type
    from .frontends.enums import tensor_reordering as tensor_reordering
    from .frontends.graph_tensor import GraphTensor
    from .frontends.handle import Handle as Handle
    from .frontends.handle import create_handle as create_handle
    from .frontends.handle import destroy_handle as destroy_handle
    from .frontends.handle import get_stream as get_stream
    from .frontends.handle import set_stream as set_stream
    from .frontends.pygraph import pygraph as pygraph
    from .plan.format import read, write
    from .runtime import load as load
    from .runtime import load_bundle as load_bundle
    from .tuning import autotune as autotune

    Tensor = GraphTensor
    read_plan, write_plan = read, write

__version__ = "0.1.0"

# Public name -> the module that defines it.
_LAZY = {
    "Dim": "dnnc.expr",
    "OperationGraph": "dnnc.dialect.graph",
    "Handle": "dnnc.frontends.handle",
    "Tensor": "dnnc.frontends.graph_tensor",
    "autotune": "dnnc.tuning",
    "behavior_note": "dnnc.frontends.enums",
    "build_plan_policy": "dnnc.frontends.enums",
    "convolution_mode": "dnnc.frontends.enums",
    "create_device_properties": "dnnc.frontends.device_properties",
    "create_handle": "dnnc.frontends.handle",
    "data_type": "dnnc.frontends.enums",
    "destroy_handle": "dnnc.frontends.handle",
    "get_stream": "dnnc.frontends.handle",
    "heur_mode": "dnnc.frontends.enums",
    "knob_type": "dnnc.frontends.enums",
    "load": "dnnc.runtime",
    "load_bundle": "dnnc.runtime",
    "moe_grouped_matmul_mode": "dnnc.frontends.enums",
    "norm_forward_phase": "dnnc.frontends.enums",
    "numerical_note": "dnnc.frontends.enums",
    "padding_mode": "dnnc.frontends.enums",
    "pygraph": "dnnc.frontends.pygraph",
    "read_plan": "dnnc.plan.format",
    "reference": "dnnc.api",
    "reduction_mode": "dnnc.frontends.enums",
    "resample_mode": "dnnc.frontends.enums",
    "diagonal_alignment": "dnnc.frontends.enums",
    "attention_implementation": "dnnc.frontends.enums",
    "reshape_mode": "dnnc.frontends.enums",
    "rng_distribution": "dnnc.frontends.enums",
    "scalar_type": "dnnc.frontends.enums",
    "set_stream": "dnnc.frontends.handle",
    "tensor_reordering": "dnnc.frontends.enums",
    "write_c": "dnnc.emit",
    "write_plan": "dnnc.plan.format",
    "DnncError": "dnnc.errors",
    "Status": "dnnc.errors",
    "compile": "dnnc.api",
    "cudnnGraphNotSupportedError": "dnnc.errors",
}


# Packages that are imported when they are first used.
_PACKAGES = ("backend", "cudnn", "engines", "operations", "torch")

# Names that are others where they are defined.
_RENAMED = {"Tensor": "GraphTensor", "read_plan": "read", "write_plan": "write"}

if not TYPE_CHECKING:  # type checkers know no name but those above

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            module = importlib.import_module(_LAZY[name])
            return getattr(module, _RENAMED.get(name, name))
        if name in _PACKAGES:
            return importlib.import_module(f"dnnc.{name}")
        raise AttributeError(f"module 'dnnc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY, *_PACKAGES])
