"""The parts of attention's gradient in a fusion, as `bwd_pattern` finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...dialect.op import Op
from ...dialect.ops import Matmul, Pointwise, Reduction, Reshape
from ...dialect.tensor import Tensor
from ...expr import Expr
from .operands import Operand

_HEAD = 1  # an axis of the scores


class GradientOperands(NamedTuple):
    """The operands of S = Q @ K' and dP = dO @ V'."""

    q: Operand
    k: Operand
    v: Operand
    do: Operand


class GradientResults(NamedTuple):
    """The gradients in memory."""

    dq: Tensor
    dk: Tensor
    dv: Tensor


@dataclass(frozen=True, eq=False)
class Gradient:
    """The parts of attention's gradient.

    scores, of_weights: the products S and dP.  scores: None where P is in memory.  core:
    P * (dP - delta).  delta: the reduction.  between: all
    operations but products.  parts: all that kernels know by name, see
    `codegen.attention.gradient_region`.  kept: outputs that have an element for each score.  sums:
    what adds up further outputs, of the scores' elements or of rows.  largest: outputs that are the
    largest magnitude of what scores have, or of a result.  stored: what makes tensors of the
    scores' dims of memory in the order F16x16.
    """

    scores: Matmul | None
    of_weights: Matmul
    operands: GradientOperands
    core: Pointwise
    delta: Reduction
    results: GradientResults
    between: tuple[Op, ...]
    parts: Mapping[str, Op]
    kept: tuple[Tensor, ...] = ()
    sums: tuple[Reduction, ...] = ()
    largest: tuple[Reduction, ...] = ()
    stored: tuple[Reshape, ...] = ()

    @property
    def is_fp8(self) -> bool:
        """Whether operands and weights are of fp8."""
        if self.scores is None:
            return False
        weights = [self.parts[name].results[0] for name in ("weights", "gradients")]
        return all(t.type.is_fp8 for t in (*(x.tensor for x in self.operands), *weights))

    @property
    def is_packed(self) -> bool:
        """Whether rows of an operand are looked up."""
        return any(x.load is not None for x in self.operands)

    @property
    def score(self) -> Tensor:
        """A tensor of the scores' dims, [B, Hq, Sq, Skv]."""
        return self.core.y

    @property
    def queries(self) -> Expr:
        return self.score.shape[-2]

    @property
    def keys(self) -> Expr:
        return self.score.shape[-1]

    @property
    def depth(self) -> Expr:
        """Elements of a query: D."""
        return self.results.dq.shape[-1]

    @property
    def width(self) -> Expr:
        """Elements of a value: Dv."""
        return self.of_weights.a.shape[-1]

    @property
    def group(self) -> int:
        """Query heads that share a head of keys and values, one of dK and dV: a K or V whose heads
        are all the same in memory has one."""
        own, whole = self.results.dk.shape[_HEAD], self.score.shape[_HEAD]
        return 1 if own == whole else (whole.constant or 1) // (own.constant or 1)

    @property
    def is_masked(self) -> bool:
        """Whether what is selected of scores or weights depends on their places."""
        return any(isinstance(op, Pointwise) and op.mode == "gen_index" for op in self.between)

    @property
    def products(self) -> tuple[Matmul, ...]:
        """The products whose results are not rounded."""
        return (self.of_weights,) if self.scores is None else (self.scores, self.of_weights)
