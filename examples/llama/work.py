"""Operations and bytes of a step."""

from __future__ import annotations

from dnnc import dtypes
from dnnc.plan.plan import Plan
from dnnc.target import Target

from . import walk
from .phases import CACHES, Place, Step


def work_of(plan: Plan, step: Step, used: float = 1.0) -> tuple[float, float]:
    """(operations, bytes): each element of inputs and outputs once.

    used: the share of a paged cache that sequences have filled, by which decode's attention has
    less to do.
    """
    types = {record.name: dtypes.of(record.dtype) for record in plan.tensors}
    bytes_ = 0.0
    for name, (dims, _) in walk.shapes(plan, {**step.inputs, **step.outputs}).items():
        elements = 1
        for extent in dims:
            elements *= extent
        is_cache = step.inputs.get(name, Place("")).value in CACHES
        bytes_ += elements * types[name].bits / 8 * (used if is_cache else 1.0)
    reads_cache = any(place.value in CACHES for place in step.inputs.values())
    return step.flops * (used if reads_cache else 1.0), bytes_


def floor_seconds(flops: float, bytes_: float, target: Target) -> float:
    """The longer of both at a part's nominal rates."""
    return max(flops / (target.mma_tflops["bf16"] * 1e12), bytes_ / (target.dram_gbs * 1e9))
