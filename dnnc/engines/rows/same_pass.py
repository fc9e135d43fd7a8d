"""Finds reductions that kernels compute in the pass of another one, by formulas of their own.

    squared distances   sum((x - avg(x))^2), with avg(x)     (`codegen.totals.moments`)
    exponentials        sum(exp(x - max(x))), with max(x)    (`codegen.totals.exponentials`)

Kernels do not compute what those formulas stand for operation by operation, so that
`Marks.fixed` has these operations: `fixed_of`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ... import dtypes
from ...dialect.approximation import approximation
from ...dialect.averages import is_summed_in_double, total_type
from ...dialect.fusion import Fusion, remembered
from ...dialect.op import Op
from ...dialect.ops import Pointwise, Reduction
from ...dialect.tensor import Tensor
from ..views.reduced import reductions_of

_DIGITS = {dtypes.f16: 11, dtypes.bf16: 8}
F32_DIGITS = 24


@remembered
def squared_distances(fusion: Fusion) -> Mapping[Reduction, Reduction]:
    """Sum of (x - avg(x))^2 -> the average, which is summed in f64."""
    found = {op: _average_behind(fusion, op) for op in reductions_of(fusion)}
    return {op: of for op, of in found.items() if of is not None}


@remembered
def sums_of_exponentials(fusion: Fusion) -> Mapping[Reduction, Reduction]:
    """Sum of exp(x - max(x)) -> the maximum, where the exponential may be approximate: the sum is
    rounded differently."""
    return {
        op: of
        for op, of in sums_of_any_exponentials(fusion).items()
        if approximation(fusion.producers[op.x], fusion, ()) != "exact"
    }


@remembered
def sums_of_any_exponentials(fusion: Fusion) -> Mapping[Reduction, Reduction]:
    """Sum of exp(x - max(x)) -> the maximum, also of exponentials that have to be exact, whose sum
    takes a pass of its own."""
    found = {op: _maximum_behind(fusion, op) for op in reductions_of(fusion)}
    return {op: of for op, of in found.items() if of is not None}


@remembered
def fixed_of(fusion: Fusion) -> frozenset[Op]:
    """Operations that kernels know: those between the reductions of a pass, and averages that they
    make without the operation's own formula."""
    found = set[Op]()
    for op in reductions_of(fusion):
        if is_summed_in_double(fusion, op):
            found.add(op)
            if _factors(fusion, op.x) is not None:
                found.add(fusion.producers[source_of(fusion, op.x)])
    for op, of in (*squared_distances(fusion).items(), *sums_of_exponentials(fusion).items()):
        found.update((op, of), fusion.upstream(op.x) - fusion.upstream(of.x))
    return frozenset(found)


def source_of(fusion: Fusion, tensor: Tensor) -> Tensor:
    """Where a tensor comes from, if all that happens to it is exact conversions."""
    while (op := _pointwise(fusion, tensor, "identity")) and op.x.shape == tensor.shape:
        is_exact = op.x.type == tensor.type or (op.x.type in _DIGITS and tensor.type == dtypes.f32)
        if not is_exact:
            break
        tensor = op.x
    return tensor


def digits_of(fusion: Fusion, tensor: Tensor) -> int:
    """Significant binary digits of elements, of f32's 24; see `matching.digits_of`, which asks the
    region."""
    tensor = source_of(fusion, tensor)
    if digits := _DIGITS.get(tensor.type):
        return digits
    factors = _factors(fusion, tensor)
    return sum(_DIGITS[t.type] for t in factors) if factors else F32_DIGITS


def _factors(fusion: Fusion, tensor: Tensor) -> tuple[Tensor, Tensor] | None:
    """The factors of a product of two elements of 16 bits; None: it is none."""
    op = _pointwise(fusion, source_of(fusion, tensor), "mul")
    if op is None or op.b is None or op.y.type != dtypes.f32:
        return None
    factors = (op.x, op.b)
    is_short = all(t.type in _DIGITS and not t.is_constant for t in factors)
    return factors if is_short else None


def _average_behind(fusion: Fusion, op: Reduction) -> Reduction | None:
    """The average of x, where an operation sums (x - avg(x))^2."""
    centred = _squared(fusion, op) if _is_sum(fusion, op) else None
    if centred is None:
        return None
    x, mean = _difference(fusion, centred)
    average = None if mean is None else fusion.producers.get(source_of(fusion, mean))
    if x is None or not isinstance(average, Reduction) or average.y.type != dtypes.f32:
        return None
    is_found = is_summed_in_double(fusion, average) and average.axes == op.axes
    return average if is_found and _is_same(fusion, average.x, x) else None


def _squared(fusion: Fusion, op: Reduction) -> Tensor | None:
    """The tensor whose squares a sum is of, in f32."""
    if op.mode == "norm2":
        return op.x if op.x.type == dtypes.f32 else None
    square = _pointwise(fusion, op.x, "mul") if op.mode in ("add", "avg") else None
    if square is None or square.x is not square.b or square.x.shape != op.x.shape:
        return None
    is_f32 = {square.compute_type, square.x.type, square.y.type} == {dtypes.f32}
    return square.x if is_f32 else None


def _difference(fusion: Fusion, tensor: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """(x, y), where a tensor is x - y in f32, x of its dims; else (None, None)."""
    op = _pointwise(fusion, tensor, "sub")
    if op is None or op.b is None or op.x.is_constant or op.b.is_constant:
        return None, None
    kinds = {op.x.type, op.b.type, dtypes.f32} <= {*_DIGITS, dtypes.f32}
    is_f32 = {op.compute_type, op.y.type} == {dtypes.f32} and kinds
    return (op.x, op.b) if is_f32 and op.x.shape == op.y.shape else (None, None)


def _maximum_behind(fusion: Fusion, op: Reduction) -> Reduction | None:
    """The maximum of x, where an operation sums exp(x - max(x))."""
    exponential = _pointwise(fusion, op.x, "exp")
    if not _is_sum(fusion, op) or op.mode not in ("add", "avg") or exponential is None:
        return None
    types = {exponential.compute_type, exponential.x.type, exponential.y.type}
    if types != {dtypes.f32} or exponential.x.shape != exponential.y.shape:
        return None
    x, most = _difference(fusion, exponential.x)
    maximum = None if most is None else fusion.producers.get(source_of(fusion, most))
    if x is None or not isinstance(maximum, Reduction) or maximum.axes != op.axes:
        return None
    is_f32 = {maximum.compute_type, maximum.y.type} == {dtypes.f32}
    is_found = maximum.mode == "max" and is_f32 and maximum.index is None
    return maximum if is_found and _is_same(fusion, maximum.x, x) else None


def _is_sum(fusion: Fusion, op: Reduction) -> bool:
    """Whether a reduction adds up elements of f32, in f32."""
    return {op.compute_type, total_type(fusion, op)} == {dtypes.f32} and op.row.combine == "add"


def _is_same(fusion: Fusion, a: Tensor, b: Tensor) -> bool:
    return source_of(fusion, a) is source_of(fusion, b)


def _pointwise(fusion: Fusion, tensor: Tensor, mode: str) -> Pointwise | None:
    op = fusion.producers.get(tensor)
    return op if isinstance(op, Pointwise) and op.mode == mode else None
