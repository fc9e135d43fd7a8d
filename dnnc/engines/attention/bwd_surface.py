"""Clauses that engines of attention's gradient share, and small readings of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ... import dtypes
from ...codegen.attention.mask_conditions import MIRRORED, Both, Compare, Condition
from ...dialect.fusion import Fusion
from ...dialect.op import Op
from ...dialect.ops import Rng
from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...errors import Status
from ...expr import product
from ..engine import Marks, Reason
from .bwd_pattern import Gradient, gradient_of
from .operands import Operand

TYPES = (dtypes.f16, dtypes.bf16)
FP8 = (dtypes.f8e4m3, dtypes.f8e5m2)
_DRAWN_TYPES = (*TYPES, dtypes.f32)
_UNIT = 8  # elements of a head come in such runs, of 16 bytes


def gradient_marks(fusion: Fusion) -> Marks:
    """The names that kernels know a gradient's operations by."""
    found = gradient_of(fusion)
    parts: dict[str, Sequence[Op]] = {name: [op] for name, op in found.parts.items()}
    parts |= {"largest": found.largest, "stored": found.stored, "drawn": _drawn(found, fusion)}
    return Marks(parts=parts)


def _drawn(found: Gradient, fusion: Fusion) -> list[Rng]:
    """Operations that draw zeros and ones, a float for each score."""
    if found.scores is None:
        return []
    ops = [op for op in fusion.ops if isinstance(op, Rng) and op.distribution == "BERNOULLI"]
    return [op for op in ops if op.y.shape == found.score.shape and op.y.type in _DRAWN_TYPES]


def type_reasons(
    found: Gradient, made: Sequence[DType] = TYPES, *, takes_fp8: bool = False
) -> list[Reason]:
    """made: types that dQ, dK and dV may have.  takes_fp8: so may operands be of fp8, and then
    the results as well."""
    reasons = []
    is_fp8 = takes_fp8 and found.is_fp8
    if is_fp8:
        made = (*made, *FP8)
    q, k, v, do = (operand.tensor.type for operand in found.operands)
    if not is_fp8 and not (q == k and v == do and q in TYPES and v in TYPES):
        supported = "Q and K of f16 or of bf16, V and dO of f16 or of bf16"
        if takes_fp8:
            supported += "; or all of them, P and dS of fp8"
        what = f"Q {q}, K {k}, V {v}, dO {do}"
        reasons.append(Reason(Status.NOT_SUPPORTED_DATA_TYPE, "operand types", what, supported))
    for name, tensor in results(found):
        if tensor.type not in made:
            what, supported = f"{name} {tensor.type}", ", ".join(str(dtype) for dtype in made)
            reasons.append(Reason(Status.NOT_SUPPORTED_DATA_TYPE, "result types", what, supported))
    for op in found.products:
        if op.compute_type != dtypes.f32:
            what = f"{op.compute_type.cudnn} of {op.label}"
            supported = dtypes.f32.cudnn
            reasons.append(Reason(Status.NOT_SUPPORTED_DATA_TYPE, "compute type", what, supported))
    return reasons


def shape_reasons(found: Gradient, most: int) -> list[Reason]:
    """most: elements of a query, and of a value."""
    reasons = []
    for name, size in (("D", found.depth), ("Dv", found.width)):
        number = size.constant
        if number is None or number % _UNIT or not _UNIT <= number <= most:
            supported = f"a known multiple of {_UNIT}, up to {most}"
            what = f"{name} = {size}"
            reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, "head size", what, supported))
    for name, size in (("queries", found.queries), ("keys", found.keys)):
        if size.bounds()[0] < 1 or (found.keys.constant == 1 and name == "keys"):
            supported = "1 or more" if name == "queries" else "2 or more, or a symbol of 1 or more"
            reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, name, f"{size}", supported))
    own, of_values = found.results.dk.shape[1], found.results.dv.shape[1]
    if own != of_values:
        what = f"K of {own} heads, V of {of_values}"
        reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, "heads", what, "equal numbers"))
    rows = product(found.score.shape[:3])
    if rows.bounds()[1] >= 1 << 31:
        what, supported = f"{rows} queries of all heads", "fewer than 2^31"
        reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, "queries", what, supported))
    return reasons


def operands(found: Gradient) -> Iterator[tuple[str, Operand, tuple[int, int]]]:
    """(name, operand, (axis of a head's elements, axis of rows)) of Q, K, V, dO."""
    q, k, v, do = found.operands
    named = (("Q", q, False), ("K", k, True), ("V", v, True), ("dO", do, False))
    for name, operand, is_transposed in named:
        last, before = operand.tensor.rank - 1, operand.tensor.rank - 2
        axes = (last, before) if operand.is_transposed == is_transposed else (before, last)
        yield name, operand, axes


def results(found: Gradient) -> list[tuple[str, Tensor]]:
    return list(zip(("dQ", "dK", "dV"), found.results, strict=True))


def head_of(found: Gradient, most: int) -> tuple[int, int]:
    """Elements of a query and of a value."""
    return found.depth.constant or most, found.width.constant or most


def is_falling(condition: Condition) -> bool:
    """Whether earlier keys have more queries, of a condition on keys (rows) and queries (columns):
    a bound of queries from below that moves with the key, and none from above."""
    if isinstance(condition, Both):
        return any(map(is_falling, condition.parts)) and not any(
            _is_bound(part, from_below=False) for part in condition.parts
        )
    return _is_bound(condition, from_below=True)


def _is_bound(condition: Condition, *, from_below: bool) -> bool:
    if not isinstance(condition, Compare) or abs(condition.form.column) != 1:
        return False
    form, predicate = condition.form, condition.predicate
    if form.column < 0:
        predicate = MIRRORED[predicate]
    predicates = ("sgt", "sge") if from_below else ("slt", "sle")
    return predicate in predicates and form.row != 0
