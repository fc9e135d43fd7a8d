# pyright: basic
"""Largest and smallest elements of all rows, which the kernel of the rows finds on its way.

    each thread        what it has of each row
    a block            its threads' at the end, through shared memory
    all blocks         one atomic operation each, on the output itself, which is set before

Numbers are updated as integers.  Those without a sign bit are ordered as integers with a sign,
the others the other way round as integers without; all of the first are above all of the second.
What the output is set to lies on the far side of them all; NaN, with the sign that has it win,
on the near one.  So each order of the blocks gives the same.  An element may be seen twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ... import dtypes
from ...codegen import ops
from ...codegen.memory import atomic
from ...codegen.output import Output
from ...codegen.totals import reduce
from ...codegen.totals.reduce import Combine
from ...codegen.totals.row_totals import gathered
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk, inputs_of
from ...dialect.fusion import Fusion
from ...dialect.ops import Reduction
from ...errors import Status
from ...mlir import arith, llvm
from ...target import WARP_THREADS
from ..engine import Reason
from ..surface import pattern_reason
from .region import Extreme, Place, Rows
from .shared_layout import EXTREME_BYTES

_MAGNITUDE = 0x7FFFFFFF


@dataclass(frozen=True)
class _Order:
    """How an output is updated.

    start: its bits before.  plain, signed: the operations for numbers without and with a sign bit;
    signed "": there are none of these.  nan: the bits of a NaN that wins.
    """

    start: int
    plain: str
    signed: str
    nan: int


_ORDERS = {
    "amax": _Order(0, "max.u32", "", _MAGNITUDE),
    "max": _Order(0xFFFFFFFF, "max.s32", "min.u32", _MAGNITUDE),
    "min": _Order(_MAGNITUDE, "min.s32", "max.u32", 0xFFFFFFFF),
}
MODES = tuple(_ORDERS)


# ---- the support surface


def extreme_reasons(
    fusion: Fusion, extremes: Sequence[tuple[Reduction, Reduction]], columns: Sequence[Reduction]
) -> list[Reason]:
    """extremes: (reduction, the one whose elements it is of; the same where it has its own)."""
    for op, source in extremes:
        wanted = "outputs that nothing in the kernel reads, beside no sums of columns"
        if columns:
            return [pattern_reason(f"{op.label} beside {columns[0].label}", wanted)]
        if op.y not in fusion.outputs or any(op.y in other.operands for other in fusion.ops):
            return [pattern_reason(f"{op.label}, which others read", wanted)]
        types = {op.compute_type, op.y.type, source.compute_type}
        types |= set() if source is op else {op.x.type}
        if types != {dtypes.f32}:
            what = f"{op.label} of {', '.join(sorted(map(str, types)))}"
            return [Reason(Status.NOT_SUPPORTED_DATA_TYPE, "extremes of all rows", what, "f32")]
        if op.mode != "amax" and any(n.bounds()[0] < 1 for n in source.x.shape):
            what = f"{op.label} of rows of which there may be none"
            supported = "symbols whose min is at least 1"
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "extremes of all rows", what, supported)]
    return []


# ---- code


def sums_of_nothing(rows: Rows) -> list[Any]:
    """The values that a thread begins with: sums of columns, or extremes."""
    zeros = [v for op in rows.columns for v in [rows.zero(op)] * rows.tiling.held]
    return zeros + [reduce.identity(extreme.source, 1) for extreme in rows.extremes]


def of_fragment(rows: Rows, walk: Walk, at: Any, width: int) -> list[Any]:
    """The extremes of a fragment's elements."""
    return [
        reduce.lanes(walk.value(inputs_of(extreme.source)[0], at, width), combine)
        for extreme, combine in zip(rows.extremes, _combines(rows, walk), strict=True)
    ]


def combined(rows: Rows, walk: Walk, some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    each = zip(_combines(rows, walk), some, others, strict=True)
    return [combine(a, b) for combine, a, b in each]


def _combines(rows: Rows, walk: Walk) -> list[Combine]:
    return [reduce.combiner(walk, extreme.source) for extreme in rows.extremes]


def preset(rows: Rows, output: Output) -> None:
    """Sets the outputs before the kernel runs."""
    for extreme in rows.extremes:
        for value, tensor in rows.region.outputs:
            if value == extreme.result:
                output.preset(tensor, _ORDERS[extreme.mode].start)


def store(place: Place, found: Sequence[Any], barrier: Callable[[], None]) -> None:
    """Store what each thread that works on rows has found; `barrier` is these threads'."""
    rows, kernel = place.rows, place.kernel
    walk = Walk(kernel, {}, rows.region.symbols)
    combines, warps = _combines(rows, walk), rows.tiling.threads // WARP_THREADS
    thread = ops.thread_id()
    buffers = []
    for i, (value, combine) in enumerate(zip(found, combines, strict=True)):
        of_warp = reduce.across_lanes(value, WARP_THREADS, combine)
        buffer = kernel.shared(f"extreme{i}", warps * EXTREME_BYTES)
        with ops.if_(ops.compare("eq", ops.and_(thread, WARP_THREADS - 1), 0)):
            warp = ops.shr(thread, WARP_THREADS.bit_length() - 1)
            ops.store(ops.gep(buffer, warp, of_warp.type), of_warp, EXTREME_BYTES)
        buffers.append((buffer, of_warp.type))
    barrier()
    with ops.if_(ops.less(thread, WARP_THREADS)):
        totals = [
            gathered(buffer, 0, warps, type_, combine)
            for (buffer, type_), combine in zip(buffers, combines, strict=True)
        ]
        with ops.if_(ops.compare("eq", thread, 0)):
            for extreme, total in zip(rows.extremes, totals, strict=True):
                _update(place, extreme, total)


def _update(place: Place, extreme: Extreme, total: Any) -> None:
    order = _ORDERS[extreme.mode]
    bits = llvm.BitcastOp(ops.i32_type(), total).result
    ((_, target),) = [
        (value, target)
        for value, target in place.rows.region.targets(place.kernel)
        if value == extreme.result
    ]
    pointer = target.address([Index.of(0)] * target.tensor.rank)
    if not order.signed:
        atomic.update(pointer, ops.and_(bits, _MAGNITUDE), order.plain)
        return
    is_nan = arith.CmpFOp(arith.CmpFPredicate.UNO, total, total).result
    bits = ops.select(is_nan, ops.signed(order.nan), bits)
    ops.if_else(
        ops.less(bits, 0),
        lambda: atomic.update(pointer, bits, order.signed),
        lambda: atomic.update(pointer, bits, order.plain),
    )
