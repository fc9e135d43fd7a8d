"""dnnc: an ahead-of-time compiler for the operation graphs of cuDNN's Graph API.

Importing it loads nothing heavy: names below load what they need when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Public name -> the module that defines it.
_LAZY = {
    "Dim": "dnnc.expr",
    "OperationGraph": "dnnc.dialect.graph",
    "Handle": "dnnc.frontends.handle",
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
_PACKAGES = ("backend", "cudnn")

# Names that are shorter where they are defined.
_RENAMED = {"read_plan": "read", "write_plan": "write"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module = importlib.import_module(_LAZY[name])
        return getattr(module, _RENAMED.get(name, name))
    if name in _PACKAGES:
        return importlib.import_module(f"dnnc.{name}")
    raise AttributeError(f"module 'dnnc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY, *_PACKAGES])
