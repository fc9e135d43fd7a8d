# pyright: basic
"""How far each element of a right output may be from float64's, in absolute values.

The error runs along the graph beside the reference, through the operations that composite ones
stand for.  It is what an operation makes of its operands' errors, and its own.  So where terms
cancel, the error is that of the terms.

- Sums of K terms t have errors of one direction, 2**-23 * (K - 1) / 4 of the largest partial sum,
  and of random ones, 2**-23 * sqrt((K - 1) * sum(t**2)).
- Pointwise operations are evaluated at the ends of their operands' intervals; `own_error` has their
  own errors.
- Rounding to a type of 16 bits or fewer, or to integers, moves an element only where its interval
  holds a tie: what remains is the distance between the rounded ends.

An infinite error says that nothing is known: a NaN on one side of a jump.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..dialect.graph import OperationGraph
from ..dialect.op import Op
from ..dialect.ops import ConvFprop, Matmul, MoeGroupedMatmul, Pointwise, Reduction
from ..dialect.own_error import FUNCTION, own_error
from ..dialect.reference import Step, single_steps
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..rounding import round_to, widen
from .terms import ROUNDING, fp8_steps, taken_as, terms_of_sums

Array = Any

_UNIT = {dtypes.f64: 2.0**-52}  # of sums; 2**-23 in any other type
_F32_MAX = 3.0e38
# Three products of tf32 make one of f32.
_THREE_TF32 = 2.0**-20


def running_errors(
    graph: OperationGraph, inputs: Mapping[int, Array], sizes: Mapping[str, int]
) -> dict[Tensor, Array]:
    """The error of each output's elements before they are rounded to its type."""
    is_coarse = all(t.type.bits <= 16 for t in graph.outputs)
    own = {graph.form_of(tensor) for tensor in graph.tensors}
    errors: dict[Tensor, Array] = {}
    unrounded: dict[Tensor, Array] = {}
    computed = set[Tensor]()
    for step in single_steps(graph, inputs, sizes=sizes):
        given = [
            errors.get(tensor, np.zeros(np.shape(value)))
            for tensor, value in zip(step.op.operands, step.operands, strict=True)
        ]
        with np.errstate(all="ignore"):
            made = _errors_of(step, given, taken_as(step.op, computed, own), is_coarse)
            for (tensor, exact, _), error in zip(step.results, made, strict=True):
                unrounded[tensor] = error
                errors[tensor] = _stored(exact, error, tensor.type)
        if step.op.role != "view" or not computed.isdisjoint(step.op.operands):
            computed.update(step.op.results)
    found: dict[Tensor, Array] = {}
    for tensor in graph.outputs:
        form = graph.form_of(tensor)
        if form in unrounded:
            found[tensor] = np.reshape(unrounded[form], np.shape(unrounded[form])[: tensor.rank])
    return found


def ends(exact: Array, error: Array, dtype: DType) -> tuple[Array, Array]:
    """The least and the greatest that a value may be in a type."""
    if dtype.kind == "b":
        unsure = error > 0
        return np.where(unsure, False, exact != 0), np.where(unsure, True, exact != 0)
    value = np.asarray(exact, float)
    sharp = widen(round_to(exact, dtype))
    low, high = (widen(round_to(value + way * error, dtype)) for way in (-1.0, 1.0))
    is_known = ~(error > 0)  # integers of more than 53 bits stay as they are
    return np.where(is_known, sharp, low), np.where(is_known, sharp, high)


def _stored(exact: Array, error: Array, dtype: DType) -> Array:
    """The error after a value was rounded to its tensor's type, as the reference's was."""
    if dtype in (dtypes.f32, dtypes.f64) or np.asarray(exact).dtype == bool:
        return error
    low, high = ends(exact, error, dtype)
    if dtype.kind == "b":
        return (low != high).astype(float)
    mid = widen(round_to(exact, dtype)).astype(float)
    return _distance(mid, low, high)


def _distance(mid: Array, *others: Array) -> Array:
    """The largest distance; infinite where one is NaN or infinite and another is not."""
    found = np.zeros(np.shape(mid))
    mid = np.asarray(mid, float)
    for other in others:
        other = np.asarray(other, float)
        same = (other == mid) | (np.isnan(other) & np.isnan(mid))
        off = np.where(same, 0.0, np.abs(other - mid))
        found = np.maximum(found, np.where(np.isfinite(off), off, np.inf))
    return found


def _errors_of(
    step: Step, given: Sequence[Array], dtype: DType | None, is_coarse: bool
) -> list[Array]:
    """The error of each result.  dtype: what a computed operand is rounded to before a product."""
    op, exact = step.op, [values for _, values, _ in step.results]
    if isinstance(op, (Matmul, ConvFprop, MoeGroupedMatmul)):
        return [_of_product(step, given, dtype)]
    if isinstance(op, Reduction) and op.axes:
        return _of_reduction(op, step, given)
    passed = [np.zeros(np.shape(values)) for values in exact]
    if any(error.any() for error in given):
        corners = (_tuple(_evaluated(step, point)) for point in _corners(op, step.operands, given))
        for corner in corners:
            passed = [
                np.maximum(error, _distance(mid, values))
                for error, mid, values in zip(passed, exact, corner, strict=True)
            ]
    if isinstance(op, Pointwise):
        return [passed[0] + _own(op, step, given, is_coarse)]
    if op.role == "view":
        return passed
    depth = max(1, terms_of_sums(op, step.sizes) // 4)
    return [
        error + np.where(np.isfinite(values), FUNCTION["f32"] * depth * np.abs(values), 0.0)
        if np.asarray(values).dtype.kind == "f"
        else error
        for error, values in zip(passed, exact, strict=True)
    ]


def _evaluated(step: Step, operands: Sequence[Array]) -> Any:
    return step.op.reference(*operands, sizes=step.sizes)


def _tuple(values: Any) -> tuple[Array, ...]:
    return values if isinstance(values, tuple) else (values,)


# ---- pointwise operations, and those that move elements


def _corners(op: Op, operands: Sequence[Array], given: Sequence[Array]) -> Iterator[list[Array]]:
    """Operands at the ends of their intervals; of comparisons for equality also where they meet."""
    choices: list[list[Array]] = []
    for place, (values, error) in enumerate(zip(operands, given, strict=True)):
        if not error.any():
            choices.append([values])
        elif values.dtype == bool:
            choices.append([values, values ^ (error > 0)])
        else:
            low, high = (_moved(values, way * error) for way in (-1, 1))
            choices.append([low, high])
            if isinstance(op, Pointwise) and op.mode in ("cmp_eq", "cmp_neq"):
                other, more = operands[1 - place], given[1 - place]
                near = np.clip(other, *(np.asarray(end, float) for end in (low, high)))
                meets = np.abs(near - other) <= more
                choices[-1].append(np.where(meets, other, values))
    for point in itertools.product(*choices):
        yield list(point)


def _moved(values: Array, error: Array) -> Array:
    if values.dtype.kind == "f":
        return values + np.where(np.isfinite(values), error, 0.0)
    limits = np.iinfo(values.dtype)
    return np.clip(values + error, limits.min // 2, limits.max // 2).astype(values.dtype)


def _own(op: Pointwise, step: Step, given: Sequence[Array], is_coarse: bool) -> Array:
    (_, exact, _), *_ = step.results
    if np.asarray(exact).dtype.kind != "f" or op.compute_type == dtypes.i32:
        return np.zeros(np.shape(exact))
    operands = [np.asarray(values, float) for values in step.operands]
    size = np.abs(exact)
    sharp = np.logical_and.reduce(np.broadcast_arrays(*(error == 0 for error in given)))
    error = own_error(op, operands, size, is_sharp=sharp, is_coarse=is_coarse)
    error = np.where(np.isfinite(size) & ~np.isnan(error), error, 0.0)
    if op.compute_type != dtypes.f64:
        error = np.where(np.isfinite(size) & (size > _F32_MAX), np.inf, error)
    return np.broadcast_to(error, size.shape)


# ---- sums


def _of_sum(depth: int, unit: float, partial: Array, squares: Array) -> Array:
    """The error of sums of `depth` terms.  partial: the largest of partial sums' magnitudes."""
    return unit * ((depth - 1) / 4 * partial + np.sqrt((depth - 1) * squares))


def _of_reduction(op: Reduction, step: Step, given: Sequence[Array]) -> list[Array]:
    (x,), (error,), (_, exact, _) = step.operands, given, step.results[0]
    zero = np.zeros(np.shape(exact))
    if op.compute_type == dtypes.i32 and not error.any():
        return [zero] * len(step.results)
    x = np.asarray(x, float)
    error = np.where(np.isfinite(x), error, 0.0)
    if op.mode in ("add", "avg", "norm1"):
        passed = np.sum(error, axis=op.axes, keepdims=True)
    else:
        far = np.sign(x) * error if op.mode not in ("min", "max") else error
        points = [_tuple(_evaluated(step, [x + way * far]))[0] for way in (-1.0, 1.0)]
        passed = _distance(np.asarray(exact, float), *points)
    depth = x.size // max(1, zero.size)
    if op.mode == "avg":
        passed = passed / max(1, depth)
    if op.mode in ("min", "max", "amax"):
        # An element that may be the extreme may be at another place.
        return [passed, *(np.where(passed > 0, np.inf, 0.0) for _ in step.results[1:])]
    return [passed + _own_of_reduction(op, x, np.abs(np.asarray(exact, float)), depth)]


def _own_of_reduction(op: Reduction, x: Array, size: Array, depth: int) -> Array:
    unit = _UNIT.get(op.compute_type, 2.0**-23)
    if op.mode in ("mul", "mul_no_zeros"):
        own = unit * depth * size
    else:
        terms = x * x if op.mode == "norm2" else np.abs(x) if op.mode == "norm1" else x
        axes = [axis for axis in range(x.ndim) if axis not in op.axes]
        rows = terms.transpose(*axes, *op.axes).reshape(*size.shape, depth)
        partial = np.max(np.abs(np.cumsum(rows, axis=-1)), axis=-1, initial=0.0)
        own = _of_sum(depth, unit, partial, np.sum(rows * rows, axis=-1))
        if op.mode == "norm2":
            own = np.where(size > 0, own / (2 * size), np.sqrt(own)) + unit * size
        elif op.mode == "avg":
            own = own / max(1, depth) + unit * size
    return np.where(np.isfinite(size) & np.isfinite(own), own, 0.0)


def _of_product(step: Step, given: Sequence[Array], dtype: DType | None) -> Array:
    op, (_, exact, _) = step.op, step.results[0]
    a, b, *others = (np.asarray(values) for values in step.operands)
    zero = np.zeros(np.shape(exact))
    error_a, error_b = given[:2]
    if op.attributes()["compute_type"] == dtypes.i32 and not (error_a.any() or error_b.any()):
        return zero
    a, b = (np.where(np.isfinite(part), part, 0.0) for part in (a.astype(float), b.astype(float)))

    def product(left: Array, right: Array) -> Array:
        return np.asarray(_evaluated(step, [left, right, *others]), float)

    passed = zero
    if error_a.any():
        passed = passed + product(error_a, np.abs(b) + error_b)
    if error_b.any():
        passed = passed + product(np.abs(a), error_b)
    if op.attributes()["compute_type"] == dtypes.i32:
        return passed
    depth, squares = terms_of_sums(op, step.sizes), product(a * a, b * b)
    half = product(*_first_half(op, a, b))
    partial = np.maximum(np.abs(exact), np.maximum(np.abs(half), np.abs(exact - half)))
    unit = _UNIT.get(op.attributes()["compute_type"], 2.0**-23)
    own = _of_sum(depth, unit, partial, squares)
    size = np.hypot(np.abs(exact), np.sqrt(squares))
    if all(tensor.type == dtypes.f32 for tensor in op.operands[:2]):
        own = own + _THREE_TF32 * np.sqrt(squares)
    own = own + 2.0**-10 * fp8_steps(op, step.sizes) * size
    if dtype is not None:
        own = own + ROUNDING[dtype.name] * size
    if op.attributes()["compute_type"] == dtypes.f16:
        own = own + 2.0**-11 * np.abs(exact)
    return passed + np.where(np.isfinite(exact) & np.isfinite(own), own, 0.0)


def _first_half(op: Op, a: Array, b: Array) -> tuple[Array, Array]:
    """Operands of the sums of the first half of the terms."""
    if isinstance(op, ConvFprop):
        first = b.copy()
        first[:, -(-b.shape[1] // 2) :] = 0.0
        return a, first
    first = a.copy()
    first[..., -(-a.shape[-1] // 2) :] = 0.0
    return first, b
