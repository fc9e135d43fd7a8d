"""Expands attention: two matmuls, and between them pointwise operations and reductions.

    kt = transpose(k)                     s = matmul(q, kt) * scale + bias + alibi
    s = select(all conditions, s, -inf)   m = max(s, sink)      m0 = m, 0 where it is -inf
    e = exp(s - m0)                       l = sum(e) + exp(sink - m0)
    p = e * 1 / (l, 1 where it is 0)      o = matmul(p * dropout, v)

Every intermediate tensor has the compute type, but for conditions, indices and the last p, which
has V's type.  Masks are conditions on indices along rows and columns (gen_index).
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

from .. import dtypes
from .expansion import Steps
from .op import Op
from .ops.block_mask_load import SDPA_BLOCK, BlockMaskLoad
from .ops.matmul import Matmul
from .ops.paged_cache_load import PagedCacheLoad
from .ops.views import Transpose
from .tensor import Tensor, strides_like

if TYPE_CHECKING:
    from .ops.sdpa import Sdpa

_BATCH_AND_HEADS = (0, 1)
_ROW, _COLUMN = 2, 3


def steps_of(op: Sdpa) -> list[Op]:
    """The operations that stand for attention."""
    attention = op.attention(Tensor)
    attention.finish(attention.scores())
    return attention.steps.ops


class Attention:
    """The operations of one attention; its tensors are those of `op`.

    tensor_type: what new tensors are.
    """

    def __init__(self, op: Sdpa, tensor_type: type[Tensor] = Tensor):
        self.op = op
        arithmetic = op.compute_type if op.compute_type.has_storage else dtypes.f32
        self.steps = Steps(op.name, arithmetic, 4, tensor_type)
        self.integers = self.steps.computing_in(dtypes.i32)
        self.logic = self.steps.computing_in(dtypes.i1)
        self._indices: dict[tuple[Tensor, int], Tensor] = {}

    # ---- scores

    def scores(self) -> Tensor:
        """scale * Q K^T, [B, Hq, Sq, Skv]."""
        op = self.op
        k = self.loaded(op.k, op.page_table_k)
        return self._scaled(self.product(op.q, self._transposed(k)))

    def _scaled(self, scores: Tensor) -> Tensor:
        """Scores, or their gradient, times attn_scale."""
        scale = self.op.attn_scale
        if scale is None or (scale.is_constant and scale.value == 1):
            return scores
        return self.steps.pointwise("mul", scores, scale)

    def loaded(self, whole: Tensor, table: Tensor | None) -> Tensor:
        """K or V in one piece."""
        if table is None:
            return whole
        assert self.op.seq_len_kv is not None
        y = self.steps.virtual(whole.dtype)
        y.dims = (self.op.q.shape[0], whole.shape[1], self.op.columns, whole.shape[3])
        load = PagedCacheLoad(container=whole, sequence=self.op.seq_len_kv, page_table=table, y=y)
        self.steps.add(load)
        return y

    def _transposed(self, x: Tensor) -> Tensor:
        """A view of rows as columns: elements stay where they are."""
        order = (*_BATCH_AND_HEADS, _COLUMN, _ROW)
        strides = strides_like(x)
        y = self.steps.virtual(x.dtype)
        y.strides = tuple(strides[axis] for axis in order)
        self.steps.add(Transpose(x=x, y=y, permutation=order))
        return y

    def product(self, a: Tensor, b: Tensor, to: Tensor | None = None) -> Tensor:
        c = to or self.steps.virtual()
        self.steps.add(Matmul(a=a, b=b, c=c, compute_type=self.op.compute_type))
        return c

    # ---- what comes between the products

    def finish(self, scores: Tensor) -> None:
        """All that follows the scores, up to the results."""
        self.weigh(self._dropped(self._softmax(self._masked(self._biased(scores)))))

    def _biased(self, scores: Tensor) -> Tensor:
        """The scores, bias and ALiBi added."""
        op, steps = self.op, self.steps
        if op.bias is not None:
            scores = steps.pointwise("add", scores, op.bias)
        self._indexed = scores
        if op.use_alibi_mask:
            distance = self.integers.pointwise("sub", self._column, self._row)
            ramp = steps.pointwise("mul", self._alibi_slope(), distance)
            scores = steps.pointwise("add", scores, ramp)
        return scores

    def weigh(self, share: Tensor) -> None:
        """O, of the probabilities and V."""
        op = self.op
        self.product(self._in_type_of(op.v, share), self.values(), to=op.o)

    def values(self) -> Tensor:
        """V in one piece, zeros past the lengths: probabilities are 0 there, but 0 times what
        memory may hold need not be."""
        op = self.op
        v = self.loaded(op.v, op.page_table_v)
        return v if op.page_table_v is not None else self._zero_past(v, op.seq_len_kv)

    def _zero_past(self, x: Tensor, length: Tensor | None) -> Tensor:
        """Queries, keys or values, zeros from row `length` on; None: all rows are there."""
        if length is None:
            return x
        row = self.integers.pointwise("gen_index", x, axis=_ROW)
        is_there = self._is("lt", row, length)
        return self.steps.pointwise(
            "binary_select", x, 0.0, is_there, to=self.steps.virtual(x.dtype)
        )

    @property
    def _row(self) -> Tensor:
        return self._index(_ROW)

    @property
    def _column(self) -> Tensor:
        return self._index(_COLUMN)

    def _index(self, axis: int) -> Tensor:
        """Indices along an axis of `_indexed`, which has the scores' dims."""
        key = self._indexed, axis
        if key not in self._indices:
            self._indices[key] = self.integers.pointwise("gen_index", self._indexed, axis=axis)
        return self._indices[key]

    def _alibi_slope(self) -> Tensor:
        """2 ** (-8 / n * (h + 1)) of the n heads of the largest power of two; those after them
        begin anew at half a step, 2 ** (-8 / n * (h - n + 1 / 2))."""
        heads = self.op.heads.constant or 1
        n = 1 << (heads.bit_length() - 1)
        head = self.integers.pointwise("gen_index", self._indexed, axis=1)
        step = self.steps.pointwise("add", head, 1.0)
        if heads > n:
            later = self.steps.pointwise("add", head, 0.5 - n)
            step = self.steps.pointwise("binary_select", step, later, self._is("lt", head, n))
        return self.steps.pointwise("exp", self.steps.pointwise("mul", step, -8 / n * math.log(2)))

    def _is(self, comparison: str, a: Tensor, b: Tensor | int) -> Tensor:
        """A condition on integers."""
        to = self.steps.virtual(dtypes.i1)
        return self.integers.pointwise(f"cmp_{comparison}", a, b, to=to)

    def _moved(self, index: Tensor, by: Tensor | int) -> Tensor:
        """An index and a number of places."""
        return self.integers.pointwise("add", index, by) if by != 0 else index

    def _masked(self, scores: Tensor) -> Tensor:
        """The scores, minus infinity where a condition does not hold."""
        if self._seen is None:
            return scores
        return self.steps.pointwise("binary_select", scores, -math.inf, self._seen)

    @cached_property
    def _seen(self) -> Tensor | None:
        """Which scores no mask hides; None without masks."""
        conditions = self._conditions()
        if not conditions:
            return None
        whole = conditions[0]
        for condition in conditions[1:]:
            whole = self.logic.pointwise("logical_and", whole, condition)
        return whole

    def _conditions(self) -> list[Tensor]:
        op = self.op
        found: list[Tensor] = []
        found += self._inside
        if op.right_bound is not None:
            found.append(self._is("le", self._column, self._diagonal(op.right_bound)))
        if op.left_bound is not None:
            found.append(self._is("gt", self._column, self._diagonal(-op.left_bound)))
        if op.block_mask is not None:
            y = self.steps.virtual(dtypes.i1)
            y.dims = op.score_dims
            load = BlockMaskLoad(
                mask=op.block_mask, y=y, block_rows=SDPA_BLOCK, block_columns=SDPA_BLOCK
            )
            self.steps.add(load)
            found.append(y)
        return found

    @cached_property
    def _inside(self) -> list[Tensor]:
        """Conditions that columns and rows are below the lengths; none without lengths."""
        op = self.op
        if op.seq_len_q is None or op.seq_len_kv is None:
            return []
        return [
            self._is("lt", self._column, op.seq_len_kv), self._is("lt", self._row, op.seq_len_q)
        ]  # fmt: skip

    def _diagonal(self, by: int) -> Tensor:
        """The column of each row's diagonal, and so many places on."""
        op = self.op
        is_by_lengths = op.diagonal_alignment == "BOTTOM_RIGHT" and op.seq_len_kv is not None
        if not is_by_lengths:
            return self._moved(self._row, by + (op.diagonal_shift or 0))
        return self._moved(self._moved(self._row, self._length_shift), by)

    @cached_property
    def _length_shift(self) -> Tensor:
        assert self.op.seq_len_q is not None
        assert self.op.seq_len_kv is not None
        return self.integers.pointwise("sub", self.op.seq_len_kv, self.op.seq_len_q)

    def _softmax(self, scores: Tensor) -> Tensor:
        """The probabilities; statistics on the way."""
        op, steps = self.op, self.steps
        largest = steps.reduction("max", scores, [_COLUMN])
        if op.sink_token is not None:
            largest = steps.pointwise("max", largest, op.sink_token)
        steps.output(largest, op.score_max)
        is_empty = self._float_is("eq", largest, -math.inf)
        base = steps.pointwise("binary_select", 0.0, largest, is_empty)
        exponential = steps.pointwise("exp", steps.pointwise("sub", scores, base))
        total = steps.reduction("add", exponential, [_COLUMN])
        if op.sink_token is not None:
            sink = steps.pointwise("exp", steps.pointwise("sub", op.sink_token, base))
            total = steps.pointwise("add", total, sink)
        steps.output(total, op.score_sum_exp)
        self._statistics(largest, total)
        divisor = steps.pointwise("binary_select", 1.0, total, self._float_is("eq", total, 0.0))
        return steps.pointwise("mul", exponential, steps.pointwise("reciprocal", divisor))

    def _float_is(self, comparison: str, a: Tensor, b: float) -> Tensor:
        to = self.steps.virtual(dtypes.i1)
        return self.steps.pointwise(f"cmp_{comparison}", a, b, to=to)

    def _statistics(self, largest: Tensor, total: Tensor) -> None:
        op, steps = self.op, self.steps
        if op.stats is None:
            return
        logarithm = steps.pointwise("log", total)
        if not op.stats_use_log2:
            steps.pointwise("add", largest, logarithm, to=op.stats)
            return
        natural = steps.pointwise("add", largest, logarithm)
        steps.pointwise("mul", natural, math.log2(math.e), to=op.stats)

    def _dropped(self, share: Tensor) -> Tensor:
        """The probabilities after dropout; of their gradient, that before it."""
        op, steps = self.op, self.steps
        if op.dropout_mask is not None and op.dropout_scale is not None:
            kept = steps.pointwise("mul", share, op.dropout_mask)
            for condition in self._inside:  # probabilities of 0 times what memory may hold
                kept = steps.pointwise("binary_select", kept, 0.0, condition)
            return steps.pointwise("mul", kept, op.dropout_scale)
        if op.dropout_probability is None or self._drawn is None:
            return share
        kept = steps.pointwise("mul", share, self._drawn)
        return steps.pointwise("mul", kept, 1 / (1 - op.dropout_probability))

    @cached_property
    def _drawn(self) -> Tensor | None:
        """The mask that dropout draws; None where it draws none."""
        op = self.op
        if op.seed is None or op.offset is None:
            return None
        if op.dropout_probability == 0 and op.rng_dump is None:
            return None
        mask = op.rng_dump or self.steps.virtual()
        self.steps.add(op.drawn_mask(self._wide(op.seed), self._wide(op.offset), mask))
        return mask

    def _wide(self, number: Tensor) -> Tensor:
        """A seed or an offset as INT64, which operation rng takes."""
        if number.type == dtypes.i64:
            return number
        to = self.steps.virtual(dtypes.i64)
        return self.integers.pointwise("identity", number, to=to)

    def _in_type_of(self, v: Tensor, share: Tensor) -> Tensor:
        """The probabilities in V's type, as tensor cores take both."""
        if v.dtype == share.dtype:
            return share
        return self.steps.pointwise("identity", share, to=self.steps.virtual(v.dtype))
