"""The gradient of attention as operations: five matmuls, pointwise operations and reductions.

    s = matmul(q, transpose(k)) * scale + bias + alibi
    p = select(all conditions, exp(s - stats), 0)       dv = matmul(transpose(p * dropout), do)
    dp = matmul(do, transpose(v)) * dropout             delta = sum(do * o)
    ds = select(all conditions, p * (dp - delta), 0)    dbias = sum(ds)
    dq = matmul(ds * scale, k)                          dk = matmul(transpose(ds * scale), q)

Statistics of minus infinity, of rows that see no key, count as 0: p is 0 there.  Masks are applied
to p and ds, not to s, so that what memory holds past the lengths, NaN too, reaches neither; q, k
and do are zeros there on their way into the products that add up rows or keys.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..expr import Expr
from .attention import Attention
from .ops.views import Reshape
from .tensor import Tensor, packed_strides

if TYPE_CHECKING:
    from .ops.sdpa_backward import SdpaBackward

_BATCH, _HEAD, _ROW, _DEPTH = range(4)


class AttentionGradient(Attention):
    """The operations of the gradient of one attention."""

    op: SdpaBackward

    def finish(self, scores: Tensor) -> None:
        """All that follows the scores, up to the results."""
        self.products(self.of_scores(scores))

    def of_scores(self, scores: Tensor) -> Tensor:
        """The gradient of the scores before bias and masks; dV, dbias, dsink_token on the way."""
        op, steps = self.op, self.steps
        stats = self._statistics_in_base_e()
        is_empty = self._float_is("eq", stats, -math.inf)
        base = steps.pointwise("binary_select", 0.0, stats, is_empty)
        biased = self._biased(scores)
        exponential = steps.pointwise("exp", steps.pointwise("sub", biased, base))
        self._indexed = exponential  # a kernel that masks has it, and makes the indices itself
        p = self._where_seen(exponential)
        do = self._zero_past(op.do, op.seq_len_q)
        self.weigh_rows(self._dropped(p), do)
        dp = self._dropped(self.of_weights(do))
        delta = self.row_sums(do)
        ds = self._where_seen(steps.pointwise("mul", p, steps.pointwise("sub", dp, delta)))
        if op.dbias is not None:
            self._sum_to(ds, op.dbias)
        if op.dsink_token is not None and op.sink_token is not None:
            sink = steps.pointwise("exp", steps.pointwise("sub", op.sink_token, base))
            lost = self._zero_past(steps.pointwise("mul", sink, delta), op.seq_len_q)
            self._sum_to(steps.pointwise("neg", lost), op.dsink_token)
        return ds

    def weigh_rows(self, weights: Tensor, do: Tensor) -> None:
        """dV, of the weights after dropout."""
        self._over_rows(self._in_type_of(do, weights), do, self.op.dv)

    def of_weights(self, do: Tensor) -> Tensor:
        """The gradient of the weights after dropout."""
        return self.product(do, self._transposed(self.op.v))

    def row_sums(self, do: Tensor) -> Tensor:
        """The sum of each row of dO * O."""
        steps = self.steps
        return steps.reduction("add", steps.pointwise("mul", do, self.op.o), [_DEPTH])

    def products(self, ds: Tensor, is_modified: bool = False) -> None:
        """dQ and dK, of the gradient of the scaled scores.

        is_modified: by operations that may have made NaN of what is past the lengths.
        """
        op = self.op
        ds = self._scaled(self._where_seen(ds) if is_modified else ds)
        for_dq = self._in_type_of(op.k, ds)
        for_dk = for_dq if op.q.dtype == op.k.dtype else self._in_type_of(op.q, ds)
        self.product(for_dq, self._zero_past(op.k, op.seq_len_kv), to=op.dq)
        self._over_rows(for_dk, self._zero_past(op.q, op.seq_len_q), op.dk)

    def _statistics_in_base_e(self) -> Tensor:
        if not self.op.stats_use_log2:
            return self.op.stats
        return self.steps.pointwise("mul", self.op.stats, math.log(2))

    def _where_seen(self, x: Tensor) -> Tensor:
        """Zeros in place of masked elements."""
        if self._seen is None:
            return x
        return self.steps.pointwise("binary_select", x, 0.0, self._seen)

    def _over_rows(
        self, weights: Tensor, rows: Tensor, to: Tensor, like: Tensor | None = None
    ) -> None:
        """transpose(weights) times rows, summed over the query heads that share a head of `to`, or
        of `like`, if the dims of `to` are not known yet.

        Their rows follow each other in one product.
        """
        heads = (like or to).shape[_HEAD]
        weights, rows = (self._by_heads(x, heads) for x in (weights, rows))
        self.product(self._transposed(weights), rows, to=to)

    def _by_heads(self, x: Tensor, heads: Expr) -> Tensor:
        """[B, Hq, Sq, n] as [B, heads, Hq / heads * Sq, n]."""
        batch, own, rows, width = x.shape
        if own == heads:
            return x
        shared = (own.constant or 1) // (heads.constant or 1)
        y = self.steps.virtual(x.dtype)
        y.dims = (batch, heads, rows * shared, width)
        y.strides = packed_strides(y.dims)
        self.steps.add(Reshape(x=x, y=y, reshape_mode="LOGICAL"))
        return y

    def _sum_to(self, x: Tensor, to: Tensor) -> None:
        """A sum over the axes along which the result has one element."""
        axes = [
            axis for axis, (n, own) in enumerate(zip(x.shape, to.shape, strict=True)) if n != own
        ]
        if axes:
            self.steps.reduction("add", x, axes, to=to)
        else:
            self.steps.output(x, to)
