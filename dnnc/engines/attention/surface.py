"""The base of the engines of attention: what they ask of operands, and small readings of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ... import dtypes
from ...dialect.fusion import Fusion
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr, product
from ..engine import Reason
from ..surface import boolean_reason, pattern_reason
from .operands import Operand
from .pattern import Attention, attention_of, group_size

TYPES = (dtypes.f16, dtypes.bf16)
POWERS = 8  # of two: weights stay below 256, which f16 and e4m3 hold
MOST_ELEMENTS = 256  # of a query, and of a value
_LEAST_BYTES = 16  # of a row in memory


def types_of(found: Attention) -> tuple[DType, DType, DType]:
    """The types of Q, K and V."""
    q, k, v = (operand.tensor.type for operand in found.operands)
    return q, k, v


def is_fp8(found: Attention) -> bool:
    """Whether all operands are of 8 bits."""
    return all(dtype.is_fp8 for dtype in types_of(found))


def type_reasons(found: Attention, *, takes_fp8: bool = False) -> list[Reason]:
    reasons = []
    q, k, v = types_of(found)
    of_16_bits = q == k and q in TYPES and v in TYPES
    if not of_16_bits and not (takes_fp8 and is_fp8(found)):
        supported = "Q and K of f16 or of bf16, V of f16 or bf16"
        if takes_fp8:
            supported += "; or all of them of fp8"
        what = f"Q {q}, K {k}, V {v}"
        reasons.append(Reason(Status.NOT_SUPPORTED_DATA_TYPE, "operand types", what, supported))
    accepted = [dtypes.f32]
    if takes_fp8 and is_fp8(found):
        accepted.append(dtypes.fast_float_for_fp8)
    for op in (found.first, found.second):
        if op.compute_type not in accepted:
            reasons.append(
                Reason(
                    Status.NOT_SUPPORTED_DATA_TYPE,
                    "compute type",
                    f"{op.compute_type.cudnn} of {op.label}",
                    ", ".join(dtype.cudnn for dtype in accepted),
                )
            )
    return reasons


def mixed_reasons(found: Attention) -> list[Reason]:
    """Why weights of fp8 are declined, whose scale a kernel chooses."""
    if not found.mixed:
        return []
    what = "probabilities of fp8 that are multiplied by a tensor"
    return [pattern_reason(what, "products by single numbers, selections, masks that are drawn")]


def shape_reasons(found: Attention, most: int) -> list[Reason]:
    """most: elements of a query and of a value."""
    reasons = []
    unit = _LEAST_BYTES if is_fp8(found) else _LEAST_BYTES // 2
    for name, size in (("D", found.depth), ("Dv", found.width)):
        number = size.constant
        if number is None or number % unit or not unit <= number <= most:
            supported = f"a known multiple of {unit}, up to {most}"
            reasons.append(
                Reason(Status.NOT_SUPPORTED_SHAPE, "head size", f"{name} = {size}", supported)
            )
    tiles = product(found.batch) * found.queries
    if tiles.bounds()[1] >= 1 << 31:
        what, supported = f"{tiles} queries of all heads", "fewer than 2^31"
        reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, "queries", what, supported))
    return reasons


def surface_reasons(
    fusion: Fusion, layout_reasons: Callable[[Attention], list[Reason]], *, takes_fp8: bool = False,
    most: int = MOST_ELEMENTS,
) -> list[Reason]:  # fmt: skip
    """Why an attention is declined; layout_reasons: what the engine asks of operands in memory.
    most: elements of a query and of a value."""
    found = attention_of(fusion)
    reasons = type_reasons(found, takes_fp8=takes_fp8)
    reasons += shape_reasons(found, most) or layout_reasons(found)
    return reasons + [boolean_reason(t) for t in fusion.outputs if t.type.kind == "b"]


def operands(found: Attention) -> Sequence[tuple[str, Operand, tuple[int, int]]]:
    """(name, operand, (axis of a head's elements, axis of queries or keys)) of Q, K, V."""
    q, k, v = found.operands
    named = (("Q", q, False), ("K", k, True), ("V", v, False))
    return [
        (name, operand, _axes(operand, is_transposed)) for name, operand, is_transposed in named
    ]


def _axes(operand: Operand, is_transposed: bool) -> tuple[int, int]:
    rank = operand.tensor.rank
    return (rank - 1, rank - 2) if operand.is_transposed == is_transposed else (rank - 2, rank - 1)


def head_of(found: Attention) -> tuple[int, int]:
    """Elements of a query and of a value."""
    depth, width = found.depth.constant, found.width.constant
    return depth or MOST_ELEMENTS, width or MOST_ELEMENTS


def groups_of(batch: Sequence[Expr], own: Sequence[Expr]) -> list[int]:
    """How many heads share an entry of K or V along each axis of the scores; 0: all."""
    return [group_size(n, whole) or 0 for n, whole in zip(own, batch, strict=True)]


def packing_of(
    batch: Sequence[Expr], k: Sequence[Expr], v: Sequence[Expr]
) -> tuple[int, int] | None:
    """(axis of the scores, how many of its entries share keys and values) of the last axis where
    heads do; None: there is none, or it is not known how many."""
    for axis in reversed(range(len(batch))):
        groups = [group_size(own[axis], batch[axis]) for own in (k, v)]
        heads = groups[0] or batch[axis].constant
        if groups[0] == groups[1] and heads is not None and heads > 1:
            return axis, heads
    return None
