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
from typing import Any

from ...codegen import ops
from ...codegen.attention.online_softmax import OnlineSoftmax, Rows, plus
from ...codegen.memory import smem
from .kernel_sm80 import KeyBlock, Queries, SdpaEmitter, WarpWalk
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
        low, zero = ops.f32(-math.inf), ops.f32(0.0)

        def measure(at: KeyBlock, rows: Rows) -> Rows:
            scores = walk.scores(self._scores(at.slot, queries), at.number, is_masked=at.is_masked)
            return softmax.next(scores, rows, is_masked=at.may_be_empty).rows

        def weigh(at: KeyBlock, result: list[Any]) -> list[Any]:
            scores = walk.scores(self._scores(at.slot, queries), at.number, is_masked=at.is_masked)
            weights = softmax.fixed(scores, rows, shares)
            weights = walk.weights(weights, at.number, is_masked=at.is_masked)
            return self._add_result(at.slot, weights, result)

        rows = self._each_block(walks, blocks, Rows([low, low], [zero, zero]), measure)
        smem.wait(0)
        ops.barrier()  # all have left the stages that are loaded next
        self.has_values = True
        self.ahead = self._begin(blocks)
        shares = walk.shares(softmax, rows)
        result = self._each_block(walks, blocks, [zero] * self.tiling.result_registers, weigh)
        smem.wait(0)
        walk.leave_loop()
        walk.store_others(plus(result, nothing_of(shares)))  # what was left out adds that
        walk.keep_unseen(blocks.first, blocks.end, shares)
