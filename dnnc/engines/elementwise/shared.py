# pyright: basic
"""Costly functions of broadcast tensors: fragments along the axis of the broadcast share them.

`rope` rotates rows of all heads by the same angles, whose cosines and sines take more instructions
than all other work.  A thread that has the fragments of some heads computes them once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...dialect.fusion import Fusion
from ...dialect.ops import Pointwise
from ...dialect.pointwise_modes import TRIGONOMETRIC
from ...dialect.tensor import Tensor, stride_order
from ...expr import Expr, typical

# Instructions of such a function: 64 of cosine and sine of one angle in what the assembler makes of
# them.
_INSTRUCTIONS = 32
# How many of them a second run, as a share of the f32 rate: a branch for large arguments is in
# every one.
_INSTRUCTION_SHARE = 0.25

Dims = tuple[Expr, ...]


def shared_places(output: Tensor, costly: Sequence[Dims], most: int) -> tuple[int, int] | None:
    """(axis, places) that a thread had better have fragments at, up to `most`, so that costly
    results are the same there; None: there is no such axis.

    costly: dims of the results of costly functions.
    """
    order = stride_order(output.shape, output.layout)
    wide = [axis for axis in order if output.shape[axis].constant != 1]
    found = [
        (math.gcd(most, output.shape[axis].known_divisor()), axis)
        for axis in wide[:-1]  # fragments lie along the last
        if all(_is_broadcast(dims, output, axis) for dims in costly)
    ]
    places, axis = max(found, default=(1, 0))
    return (axis, places) if costly and places > 1 else None


def costly_of_fusion(fusion: Fusion) -> list[Dims]:
    return [
        op.results[0].shape
        for op in fusion.ops
        if isinstance(op, Pointwise) and op.mode in TRIGONOMETRIC
    ]


def shared_seconds(fusion: Fusion, most: int, f32_tflops: float) -> float:
    """Seconds of costly functions that elements of the first output share, where a thread has so
    many fragments; 0: they are as many as the elements, whatever a thread has."""
    output, costly = fusion.outputs[0], costly_of_fusion(fusion)
    if shared_places(output, costly, 1 << 10) is None:
        return 0.0
    found = shared_places(output, costly, most)
    each = len(costly) * _INSTRUCTIONS / (found[1] if found else 1)
    return typical(output.elements()) * each / (f32_tflops * 1e12 * _INSTRUCTION_SHARE)


def _is_broadcast(dims: Dims, output: Tensor, axis: int) -> bool:
    return len(dims) == output.rank and dims[axis].constant == 1
