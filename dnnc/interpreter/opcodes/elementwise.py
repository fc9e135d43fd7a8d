"""How lane-by-lane instructions are put together from array functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..decode import Decoder, Run
from ..ptxtypes import Array, PtxType

if TYPE_CHECKING:
    from ..machine import Machine


def elementwise(
    d: Decoder, function: Callable[..., Array], of: PtxType, result: PtxType | None = None
) -> Run:
    """`op d, a, b, ...`: d = function(a, b, ...), all sources of type `of`."""
    write = d.write(d.operands[0], result or of)
    reads = [d.read(operand, of) for operand in d.operands[1:]]
    if len(reads) == 1:
        (a,) = reads
        return lambda m: write(m, function(a(m)))
    if len(reads) == 2:
        a, b = reads
        return lambda m: write(m, function(a(m), b(m)))
    d.expect(4)
    a, b, c = reads
    return lambda m: write(m, function(a(m), b(m), c(m)))


def by_ufunc(d: Decoder, ufunc: Any, of: PtxType) -> Run:
    """`op d, a, b` by a NumPy function that writes its result in place."""
    d.expect(3)
    slot = d.slot(d.operands[0])
    if slot.width != of.width:
        raise d.error(f"a register has {slot.width} bits, not {of.width}")
    a, b = d.read(d.operands[1], of), d.read(d.operands[2], of)
    d.writes.append(slot)
    d.codes.add(of.code)
    code, index = of.code, slot.number

    def run(m: Machine) -> None:
        out = m.views[code][index][m.lanes]
        mask = m.mask
        if mask is None:
            ufunc(a(m), b(m), out=out)
        else:
            ufunc(a(m), b(m), out=out, where=mask)

    return run
