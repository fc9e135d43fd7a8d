# pyright: basic
"""Compares outputs with the float64 reference, for `dnnc run --check`.

Error = ||out - ref|| / ||ref|| (Frobenius), over the places where ref is finite.  Its bound is
twice the unit of the narrowest float type on the way, and 2**-23 * K/4 for a sum over K terms,
2**-10 * ceil(K/32) for one of fp8, four of these at most but in FAST_FLOAT_FOR_FP8; and what the
rounding of weights costs (`rounded_operands`), from the values at hand.
No element may be off by more than 8 bounds times its row's largest; NaN and infinities must be in
the same places.  Where terms cancel, the running error (`running_errors`) takes the place of the
bound, and 8 times an element's that of the row's.  Integers and booleans must be equal, but where
the running error decides how they are rounded.  What an operation leaves undefined is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dialect.graph import OperationGraph
from ..dialect.reference import Step, reference, single_steps, undefined_parts
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..rounding import round_to, widen
from .running_error import ends, running_errors
from .terms import ROUNDING, compute_type_of, fp8_steps, taken_as, terms_of_sums

Array = Any

UNIT = {
    "bf16": 2.0**-8,
    "f16": 2.0**-11,
    "f8E4M3FN": 2.0**-3,
    "f8E5M2": 2.0**-2,
    "f32": 2.0**-23,
    "f64": 2.0**-52,
}
_ROW_FACTOR = 8


@dataclass(frozen=True)
class Verdict:
    """How an output compares.

    error, bound: as above; of integers the share of elements that differ, and 0.
    worst: the largest element's error, in its row's largest value.  strange: elements whose NaN or
    infinity is not where the reference has it.
    """

    tensor: Tensor
    error: float
    bound: float
    worst: float
    strange: int

    @property
    def worst_bound(self) -> float:
        return _ROW_FACTOR * self.bound

    @property
    def is_good(self) -> bool:
        # `not >`: an error that is NaN is none that is small
        within = self.error <= self.bound and self.worst <= self.worst_bound
        return within and self.strange == 0


def compare(
    graph: OperationGraph,
    inputs: Mapping[int, Array],
    sizes: Mapping[str, int],
    outputs: Mapping[int, Array],
) -> list[Verdict]:
    """A verdict for each output."""
    exact = reference(graph, inputs, sizes=sizes, exact_outputs=True)
    stored = reference(graph, inputs, sizes=sizes)
    undefined = undefined_parts(graph, inputs, sizes=sizes)
    of_operands = rounded_operands(graph, inputs, sizes)
    running = running_errors(graph, inputs, sizes)
    found: list[Verdict] = []
    for tensor in graph.outputs:
        assert tensor.uid is not None
        actual = outputs[tensor.uid]
        if tensor.uid in undefined:
            actual = np.where(undefined[tensor.uid], stored[tensor.uid], actual)
        if tensor.type.is_float:
            bound = bound_of(graph, tensor, sizes) + of_operands.get(graph.form_of(tensor), 0.0)
            found.append(_of_floats(tensor, actual, exact[tensor.uid], running[tensor], bound))
        else:
            low, high = ends(exact[tensor.uid], running[tensor], tensor.type)
            wrong = (actual < low) | (actual > high)
            found.append(Verdict(tensor, float(np.mean(wrong)) if wrong.size else 0.0, 0.0, 0.0, 0))
    return found


def _of_floats(
    tensor: Tensor, stored: Array, exact: Array, running: Array, bound: float
) -> Verdict:
    actual, expected = widen(stored), widen(exact)
    rounded = widen(round_to(expected, tensor.type))
    expected = np.where(np.isinf(rounded), rounded, expected)  # what the type can't hold
    finite = np.isfinite(expected)
    same = np.where(
        finite, np.isfinite(actual), (actual == expected) | np.isnan(actual) & np.isnan(expected)
    )
    known = np.isfinite(running)
    finite, same, running = finite & known, same | ~known, np.where(known, running, 0.0)
    off = np.where(finite & same, actual - np.where(finite, expected, 0.0), 0.0)
    scale = running / bound
    size = max(float(np.linalg.norm(expected[finite])), float(np.linalg.norm(scale[finite])))
    error = float(np.linalg.norm(off)) / (size or 1.0)
    return Verdict(tensor, error, bound, _worst(off, expected, scale), int(np.sum(~same)))


def _worst(off: Array, expected: Array, scale: Array) -> float:
    """The largest error in its row's largest value, or in what errors of the element come from."""
    if expected.ndim == 0 or expected.size == 0:
        return 0.0
    finite = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    largest = np.maximum(np.max(finite, axis=-1, keepdims=True), scale)
    return float(np.max(np.abs(off) / np.maximum(largest, np.finfo(np.float32).tiny)))


# ---- bounds


def bound_of(graph: OperationGraph, tensor: Tensor, sizes: Mapping[str, int]) -> float:
    """The bound of an output's error."""
    types: list[DType] = [tensor.type]
    types += [t.type for t in graph.tensors if t.is_virtual and t.type.is_float]
    types += [kind for op in graph.ops if (kind := compute_type_of(op)) and kind.name in UNIT]
    depth = sum(terms_of_sums(op, sizes) for op in graph.live_ops)
    steps = sum(fp8_steps(op, sizes) for op in graph.live_ops)
    units = 2 * max(UNIT[kind.name] for kind in types)
    return units + 2.0**-23 * depth / 4 + 2.0**-10 * steps


def rounded_operands(
    graph: OperationGraph, inputs: Mapping[int, Array], sizes: Mapping[str, int]
) -> dict[Tensor, float]:
    """The error that an output may have because tensor cores take a computed operand in the other
    one's type, of 16 or 8 bits, as weights of attention in V's; for tensors that it adds something
    to.

    Rounding errors are as random as the terms' signs, or alike where the terms are alike: of
    A @ B, A rounded by r at most, r * hypot(1, ||sqrt(A**2 @ B**2)|| / ||A @ B||).
    """
    own = {graph.form_of(tensor) for tensor in graph.tensors}
    found: dict[Tensor, float] = {}
    computed = set[Tensor]()
    for step in single_steps(graph, inputs, sizes=sizes):
        more = max((found.get(tensor, 0.0) for tensor in step.op.operands), default=0.0)
        if (dtype := taken_as(step.op, computed, own)) is not None:
            more += ROUNDING[dtype.name] * float(np.hypot(1.0, _spread(step)))
        if step.op.role != "view" or not computed.isdisjoint(step.op.operands):
            computed.update(step.op.results)
        if more:
            found |= dict.fromkeys(step.op.results, more)
    return found


def _spread(step: Step) -> float:
    """||sqrt(A**2 @ B**2)|| / ||A @ B|| of a product, 0 where it is 0."""
    a, b, *others = step.operands
    with np.errstate(all="ignore"):
        squares = np.asarray(step.op.reference(a * a, b * b, *others, sizes=step.sizes))
        (_, product, _), *_ = step.results
        finite = np.isfinite(product) & np.isfinite(squares)
        size = float(np.linalg.norm(product[finite]))
        return float(np.sqrt(np.sum(squares[finite]))) / size if size else 0.0
