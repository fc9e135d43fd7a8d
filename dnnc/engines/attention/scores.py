# pyright: basic
"""The walks of an attention's scores and of its weights, a block of keys after the other; outputs
that have an element for each score are stored on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...codegen import ops
from ...codegen.attention.online_softmax import HALVES, scaled
from ...codegen.memory.tiled_tensor import TiledTensor
from ...codegen.scalars.byte_math import f8_word
from ...codegen.scalars.math import tanh_together
from ...codegen.scalars.scalar import element_type
from ...codegen.state import each
from ...codegen.stretch import stretch
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk
from ...mlir import arith, llvm
from .walk import Forward, TileWalk

_CAPPED = 32  # scores of a thread whose tanh is computed at once: 64 spill a register


@dataclass
class ScoreWalk(TileWalk):
    """Scores and weights of one tile."""

    _tiles: dict[int, list[tuple[Sequence[Any], Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        s, parts = self.shared, self.shared.parts
        self.forwards: list[Forward] = []
        self.weight_forwards: list[Forward] = []
        scores = dict(self.leaves)
        if s.scale:
            scores[s.scale.value] = self._forward(s.scale.inner)
        plain = dict(scores)
        if parts.masks.steps:
            plain[parts.masks.steps[0].value] = self._forward(parts.masks.inner)
        symbols = s.region.symbols
        walk = self._without_factors() if s.of_bytes else self.walk
        chosen = parts.weights.selections(parts.masks)
        of_zeros = [pair for pair in chosen if parts.weights.keeps_zeros(pair[1])]
        self.weight_walks = {
            True: self._unselected(walk, of_zeros), False: self._unselected(walk, chosen)
        }  # fmt: skip
        self.score_walks = {
            True: Walk(s.kernel, scores, symbols, contracts=True),
            False: Walk(s.kernel, plain, symbols, contracts=True),
        }

        self.ends = self._ends()

    def _ends(self) -> list[Any] | None:
        """The key before which each row of the thread keeps all scores, and from which on none;
        None: masks are walked."""
        s = self.shared
        if not s.schedule.ends_rows(has_tail=s.has_tail):
            return None
        return [s.schedule.end_of(row) for row in self.rows]

    def _forward(self, value: Any) -> Forward:
        made = Forward(value)
        self.forwards.append(made)
        return made

    def _without_factors(self) -> Walk:
        """A walk of weights to which products by single numbers are nothing: the result is
        multiplied by these."""
        s = self.shared
        made = dict(self.leaves)
        for value, inner, _ in s.parts.weights.factors:
            made[value] = Forward(inner)
            self.weight_forwards.append(made[value])
        return Walk(s.kernel, made, s.region.symbols)

    def _unselected(self, walk: Walk, selections: Sequence[tuple[Any, Any]]) -> Walk:
        """The walk without some selections: where every score is kept, weights that a length hides
        need no look, and anywhere those that are 0 where it hides them."""
        if not selections:
            return walk
        made = dict(walk.leaves)
        for value, inner in selections:
            made[value] = forward = Forward(inner)
            self.weight_forwards.append(forward)
        return Walk(self.shared.kernel, made, self.shared.region.symbols)

    def _columns(self, block: Any, *, is_whole: bool) -> list[tuple[int, int, Index]]:
        """(column block of 8, element of the thread's two, coordinates) of the fragments of a
        row; is_whole: whether all of the block's keys are there."""
        s = self.shared
        first = block * s.tiling.keys + self.right
        found = []
        for j in range(s.tiling.keys // 8):
            for i in range(0, 2, s.pair):
                column = first + (8 * j + i)
                if s.has_tail and not is_whole:
                    column = ops.minimum(column, s.kernel.size(s.keys) - s.pair)
                found.append((j, i, Index(column, int(s.pair > 1), s.pair)))
        return found

    # ---- scores

    @stretch("mask")
    def scores(
        self, sums: Sequence[Any], block: Any, *, is_masked: bool, is_odd: bool | None = None
    ) -> list[Any]:
        """Accumulators of a block of keys as scores, over `SdpaRegion.factor`.

        is_masked: whether masks are looked at, and the tensor's end.  is_odd: whether the scale
        is, see `ScoreScale`; None: that is asked here.
        """
        s, ends = self.shared, self.ends
        has_masks = is_masked and bool(s.parts.masks.steps) and ends is None
        walk = self.score_walks[has_masks].branch()
        for forward in self.forwards:
            forward.walk = walk
        sums = list(sums) if self.factor is None else scaled(sums, [self.factor] * 2)
        found = s.scale.applied(sums, is_odd) if s.scale else list(sums)
        if not s.is_plain or has_masks:
            places = [
                (4 * j + 2 * half + i, self._at(half, column))
                for j, i, column in self._columns(block, is_whole=not is_masked)
                for half in HALVES
            ]
            self._know_caps(walk, found, places)
            for place, at in places:
                self.hands["sums"].current = ops.from_elements(found[place : place + s.pair])
                value = walk.value(s.parts.score, at, s.pair)
                found[place : place + s.pair] = ops.elements(value)
        if not is_masked:
            return found
        if ends is None and s.has_tail:
            ends = [s.kernel.size(s.keys)] * 2
        return found if ends is None else self._cut(found, block, ends)

    def _know_caps(
        self, walk: Walk, sums: Sequence[Any], places: Sequence[tuple[int, list[Any]]]
    ) -> None:
        """Computes the tanh of a block's scores, so many at once."""
        s, cap = self.shared, self.shared.parts.score_steps.cap
        if cap is None:
            return
        for first in range(0, len(places), _CAPPED // s.pair):
            part = places[first : first + _CAPPED // s.pair]
            given = []
            for place, at in part:
                self.hands["sums"].current = ops.from_elements(sums[place : place + s.pair])
                given.append(walk.value(cap.inner, at, s.pair))
            capped = tanh_together(given, is_capped=cap.is_coarse)
            for (_, at), value in zip(part, capped, strict=True):
                walk.know(cap.value, at, s.pair, value)

    def _cut(self, scores: Sequence[Any], block: Any, ends: Sequence[Any]) -> list[Any]:
        """-inf from a key of each row on."""
        first = block * self.shared.tiling.keys + self.right
        left, low = [end - first for end in ends], ops.f32(-math.inf)
        return [
            arith.SelectOp(8 * (i // 4) + i % 2 < left[i // 2 % 2], score, low).result
            for i, score in enumerate(scores)
        ]

    # ---- weights

    @stretch("mask")
    def weights(self, exponentials: Sequence[Any], block: Any, *, is_masked: bool) -> list[Any]:
        """Words of the second product's first operand (`wgmma.OperandLayout`); outputs that have
        an element for each score are stored on the way.  is_masked: whether masks are looked at."""
        s, walk = self.shared, self.weight_walks[is_masked].branch()
        for forward in self.weight_forwards:
            forward.walk = walk
        if is_masked and self.weight_walks[False] is not self.weight_walks[True]:
            # Else the compiler would keep each score's condition for its weight.
            block = ops.opaque(ops.value_of(block))
        operand = s.parts.calls[1].operands[0]
        dims = s.region.dims_of(operand)
        found: dict[tuple[int, int], list[Any]] = {}
        left = self._left(block) if s.kept else None
        for j, i, column in self._columns(block, is_whole=False):
            for half in HALVES:
                place = 4 * j + 2 * half + i
                self.hands["weight"].current = ops.from_elements(exponentials[place:][: s.pair])
                value = walk.value(operand, self._at(half, column, dims), s.pair)
                group = j // 2 if s.of_bytes else j
                found.setdefault((group, half), []).extend(ops.elements(value))
                self._keep(walk, half, column, 8 * j + i, left)
        make = self._word_of_bytes if s.of_bytes else self._word
        return [make(weights) for weights in found.values()]

    def _word_of_bytes(self, weights: Sequence[Any]) -> Any:
        """Four weights, of 16 columns: see `transposed_bytes`."""
        kind = self.shared.parts.weights.type.name
        if str(weights[0].type) != "f32":  # of 8 bits already, carried as integers
            return llvm.BitcastOp(ops.i32_type(), ops.from_elements(list(weights))).result
        return f8_word(weights, kind)

    def _word(self, pair: Sequence[Any]) -> Any:
        """Two weights as values are: rounded to their type, if they are wider."""
        vector = ops.from_elements(list(pair))
        tensor, _ = self.shared.parts.operand(1, 1)
        wanted = ops.vector_type(element_type(tensor.type), 2)
        if vector.type != wanted:
            vector = arith.TruncFOp(wanted, vector).result
        return llvm.BitcastOp(ops.i32_type(), vector).result

    # ---- outputs of the scores' dims

    def _left(self, block: Any) -> Any:
        """Keys from a thread's first one of a block on; None: all of any block are there."""
        s = self.shared
        if not s.has_tail:
            return None
        first = block * s.tiling.keys + self.right
        return s.kernel.size(s.keys) - first

    def _keep(self, walk: Walk, half: int, column: Index, place: int, left: Any) -> None:
        """Stores what outputs of the scores' dims have at the weight in hand; place: of its column,
        from the thread's first on."""
        s, at = self.shared, self._at(half, column)
        is_there = None if left is None else place < left
        for output in s.kept:
            value, target = s.targets[output]
            made = walk.value(value, at, s.pair)
            if isinstance(target, TiledTensor) and s.schedule.packed == 1:
                self._keep_tile(output, target, (at, made), is_there)
            else:
                target.store(at, made, ops.both(self.inside(half), is_there))

    def _keep_tile(
        self, output: int, target: TiledTensor, pair: tuple[Sequence[Any], Any], is_there: Any
    ) -> None:
        """Holds two neighbours, (where, what), until all 8 elements that the thread has of a tile
        of 16 x 16 are there, a block of columns after the other; stores those, which are all
        inside or all not."""
        held = self._tiles.setdefault(output, [])
        held.append(pair)
        if len(held) == 4:
            del self._tiles[output]
            parts = [held[place][1] for place in (0, 2, 1, 3)]
            target.store_tile(held[0][0], parts, ops.both(self.inside(0), is_there))

    def keep_unseen(self, first: Any, end: Any, shares: Sequence[Any] = ()) -> None:
        """Stores what outputs of the scores' dims have in blocks of keys that are not multiplied:
        all but first to end, and of those what a mask of blocks leaves out.  shares: what
        exponentials of each row are multiplied by, where outputs are made of weights."""
        s = self.shared
        if not s.kept:
            return
        zero = ops.f32(0.0)
        self.nothing = nothing_of(shares) or [zero, zero]
        count = ops.ceildiv(s.kernel.size(s.keys), s.tiling.keys)
        for low, high in ((0, first), (end, count)):
            each(low, high)(self._keep_block)
        if s.schedule.is_sparse:
            each(first, end)(self._keep_unseen_block)

    def _keep_unseen_block(self, block: Any) -> None:
        is_seen = self.shared.schedule.sees(self.tile, block)
        ops.if_else(is_seen, lambda: None, lambda: self._keep_block(block))

    def _keep_block(self, block: Any) -> None:
        """Keeps one block, whose weights are 0."""
        s, walk, left = self.shared, self.walk.branch(), self._left(block)
        for j, i, column in self._columns(block, is_whole=False):
            for half in HALVES:
                self.hands["weight"].current = ops.splat(self.nothing[half], s.pair)
                self._keep(walk, half, column, 8 * j + i, left)


def nothing_of(shares: Sequence[Any]) -> list[Any]:
    """Weights of 0 times what exponentials of each row are multiplied by: no numbers where that is
    none, of rows without scores, if the graph does not mind them."""
    return [arith.MulFOp(ops.f32(0.0), share).result for share in shares]
