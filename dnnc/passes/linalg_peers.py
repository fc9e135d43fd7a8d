# pyright: basic
"""Reductions over devices as linalg: each element combines what the devices left in this one's
tensor of the peers, its own apart.

    %c = linalg.generic {dnn.peers = {rank = 0, mode = "gradients", result = "c"}}
             ins(%a, %b, %peer0, %peer1 : maps d -> d, d -> d, d -> 0, d -> 0) outs(%empty)
         { (%own_a, %own_b, ...): tensor.extract %peer0[1, channel, ...]; arith.addf ... }

All peers are operands, though only this device's own is read: the kernel writes to them.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..codegen.scalars.scalar import Scalars, convert, index_constant
from ..dialect import structure
from ..dialect.ops.peer_reduction import PeerReduction
from ..mlir import arith, ir, linalg, tensor

PEERS = "dnn.peers"


def peer_reduction(low: Any, op: PeerReduction) -> None:
    """Puts the values of c and d in `low`."""
    rank = op.a.rank
    zero = ir.AffineExpr.get_constant(0)
    nowhere = ir.AffineMap.get(rank, 0, [zero] * rank)
    operands = [(low.value(t), ir.AffineMap.get_identity(rank)) for t in (op.a, op.b)]
    operands += [(low.value(t), nowhere) for t in op.peers]
    for name, result in (("c", op.c), ("d", op.d)):
        combine = _Combination(low, op)

        def body(a: Any, b: Any, *_: Any, name: str = name, combine: Any = combine) -> Any:
            return combine.value(name, a, b)

        made = low.generic(result, dtypes.f32, operands, body)
        data = {"rank": op.peer_rank, "mode": op.mode, "result": name}
        made.owner.attributes[PEERS] = structure.to_attribute(data)
        low.values[result] = made


class _Combination:
    """The bodies; index values of sizes are made outside of them."""

    def __init__(self, low: Any, op: PeerReduction):
        self.op, self.own = op, low.value(op.peers[op.peer_rank])
        self.scalars = Scalars(dtypes.f32)
        self.starts = [structure.emit_size(op.a.shape[1] * i, low.symbols) for i in range(2)]
        self.numbers = [index_constant(r) for r in range(len(op.peers))]

    def value(self, name: str, a: Any, b: Any) -> Any:
        if self.op.mode == "gradients":
            return self._sum(self._rows(0, a)) if name == "c" else self._mean(self._rows(1, b))
        rows = self._rows(0, a)
        mean = self._mean(rows)
        if name == "c":
            return mean
        apart = [self.scalars.sub(row, mean) for row in rows]
        variances = self._rows(1, b)
        # One rounding, said explicitly: an assembler that fuses or does not would give other bits.
        terms = [self.scalars.fma(x, x, v) for x, v in zip(apart, variances, strict=True)]
        return self._average(terms)

    def _rows(self, place: int, own: Any) -> list[Any]:
        """The rows that each device has, in their order; place: 0 of a, 1 of b."""
        channel = arith.AddIOp(linalg.IndexOp(1).result, self.starts[place]).result
        rest = [self.numbers[0]] * (self.op.a.rank - 2)
        return [
            own
            if r == self.op.peer_rank
            else tensor.ExtractOp(self.own, [self.numbers[r], channel, *rest]).result
            for r in range(len(self.op.peers))
        ]

    def _sum(self, values: list[Any]) -> Any:
        total = values[0]
        for value in values[1:]:
            total = self.scalars.add(total, value)
        return total

    def _average(self, values: list[Any]) -> Any:
        return self.scalars.div(self._sum(values), self.scalars.const(len(values)))

    def _mean(self, values: list[Any]) -> Any:
        """The average of means: in f64, so that of equal ones it is that number."""
        wide = Scalars(dtypes.f64)
        total = convert(values[0], dtypes.f32, dtypes.f64)
        for value in values[1:]:
            total = wide.add(total, convert(value, dtypes.f32, dtypes.f64))
        found = wide.mul(total, wide.const(1.0 / len(values)))
        return convert(found, dtypes.f64, dtypes.f32)
