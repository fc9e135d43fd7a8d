# pyright: basic
"""The kernel of engine sdpa_sm80 where the weights are an output, too.

    first pass       for each block of keys:  S = Q @ K', the rows' maxima and sums
    then             statistics, and what exponentials of a row are multiplied by
    second pass      for each block of keys:  S again, P = exponentials times that,
                     outputs made of P are stored, O += P @ V
    blocks that no mask lets a row see: outputs of P = 0

A weight is final only when its row's sum is, and a row of scores does not fit the registers: so
they are computed twice, and nothing but what the graph asks for goes through memory.  The second
pass finds the keys in L2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.attention.online_softmax import OnlineSoftmax, Rows, plus
from ...codegen.memory import smem
from ...mlir import arith, ir
from .kernel_sm80 import Queries, SdpaEmitter, WarpWalk
from .region import SdpaRegion
from .schedule import KeyBlocks
from .scores import nothing_of


class KeptEmitter(SdpaEmitter):
    """One kernel; no blocks share a tile's keys."""

    def emit(self) -> None:
        self.has_values = False  # in the first pass
        super().emit()

    def _attend(
        self, walks: SdpaRegion, softmax: OnlineSoftmax, walk: WarpWalk, queries: Queries,
        blocks: KeyBlocks,
    ) -> None:  # fmt: skip
        low, zero = _number(-math.inf), _number(0.0)
        first = partial(self._measure, softmax, walk, queries)
        rows = Rows.of(self._over_runs(walks, blocks, [low, low, zero, zero], first))
        smem.wait(0)
        ops.barrier()  # all have left the stages that are loaded next
        self.has_values = True
        self.ahead = self._begin(blocks)
        shares = walk.shares(softmax, rows)
        second = partial(self._weigh, softmax, walk, queries, rows, shares)
        result = self._over_runs(walks, blocks, [zero] * self.tiling.result_registers, second)
        smem.wait(0)
        walk.leave_loop()
        walk.store_others(plus(result, nothing_of(shares)))  # what was left out adds that
        walk.keep_unseen(blocks.first, blocks.end, shares)

    def _measure(
        self, softmax: OnlineSoftmax, walk: WarpWalk, queries: Queries, first: Any, last: Any,
        masked: tuple[bool, bool], i: Any, state: Sequence[Any],
    ) -> Sequence[Any]:  # fmt: skip
        """A block of the first pass."""
        block = last - i
        slot = self._turn(first, block, state)
        scores = walk.scores(self._scores(slot, queries), block, is_masked=masked[0])
        rows = Rows.of(state[self.stage_values :])
        step = softmax.next(scores, rows, is_masked=masked[1])
        return [*self._following(first, state), *step.rows.values]

    def _weigh(
        self, softmax: OnlineSoftmax, walk: WarpWalk, queries: Queries, rows: Rows,
        shares: Sequence[Any], first: Any, last: Any, masked: tuple[bool, bool], i: Any,
        state: Sequence[Any],
    ) -> Sequence[Any]:  # fmt: skip
        """A block of the second pass."""
        block = last - i
        slot = self._turn(first, block, state)
        scores = walk.scores(self._scores(slot, queries), block, is_masked=masked[0])
        weights = walk.weights(softmax.fixed(scores, rows, shares), block, is_masked=masked[0])
        result = self._add_result(slot, weights, state[self.stage_values :])
        return [*self._following(first, state), *result]


def _number(value: float) -> Any:
    return arith.ConstantOp(ops.f32_type(), ir.FloatAttr.get(ops.f32_type(), value)).result
