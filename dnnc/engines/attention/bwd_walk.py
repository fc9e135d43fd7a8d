# pyright: basic
"""The pointwise work between the products of attention's gradient, on a consumer warpgroup.

Products leave S' and dP', [keys, queries]: a thread has two keys, 8 apart, and pairs of queries
(`wgmma.AccumulatorLayout`).  In two parts, between which the second product ends:

    E = exp2(log2(e) * S - log2(e) * base)
    P = masks, dropout, ... of E     dS = masks, ... of P * (dP - delta)

Without scores P is made of tensors in memory, by the second part alone.

What rows have, -log2(e) * base and -delta, lies in shared memory.  Words of P' and dS' are where
the products that follow take them from registers (`wgmma.OperandLayout`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ... import dtypes
from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.attention.masks import Masks
from ...codegen.attention.scores import Cap
from ...codegen.hopper import wgmma
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.scalars.byte_math import F8, f16_word_of_fp8
from ...codegen.scalars.matching import body_of, pointwise
from ...codegen.scalars.math import tanh_together
from ...codegen.scalars.scalar import element_type
from ...codegen.stretch import stretch
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.region_walk import Leaf, Walk, inputs_of
from ...dtypes import DType
from ...mlir import arith, llvm
from ...mlir import math as mlir_math
from .bwd_drawn import DrawnMask
from .bwd_schedule import GradientSchedule, KeyTile
from .bwd_stored import StoredWeights
from .scale import number_value, times_log2e
from .schedule import QueryTile
from .walk import Forward, Hand

LOG2E = math.log2(math.e)
_HALVES = (0, 1)  # the upper and the lower of a thread's keys
_CAPPED = 32  # scores of a thread whose tanh is computed at once
_ALONG = 3  # the axis of scores whose neighbours lie side by side in memory


class _Walks:
    """A walk for each answer to whether masks are looked at."""

    def __init__(
        self, kernel: Kernel, parts: GradientRegion, leaves: dict[Any, Leaf],
        plain: Sequence[tuple[Any, Any]],
    ):  # fmt: skip
        self.forwards: list[Forward] = [f for f in leaves.values() if isinstance(f, Forward)]
        made = dict(leaves)
        for value, inner in plain:
            made[value] = forward = Forward(inner)
            self.forwards.append(forward)
        symbols = parts.region.symbols
        self.walks = {
            True: Walk(kernel, leaves, symbols, contracts=True),
            False: Walk(kernel, made, symbols, contracts=True),
        }

    def branch(self, *, is_masked: bool) -> Walk:
        walk = self.walks[is_masked].branch()
        for forward in self.forwards:
            forward.walk = walk
        return walk


@dataclass
class GradientWalk:
    """The walks of all blocks.  thread: of the warpgroup.  own: its number.  operands: the type of
    P, and that of dS, as the products take them.  makes: words of which of both are made.
    largest: SSA values of which the largest magnitudes are wanted; met: theirs so far.  kept: SSA
    values that have an element for each score, and where they are stored.  pair_axis: the axis of
    the scores along which a thread has pairs.
    """

    kernel: Kernel
    parts: GradientRegion
    schedule: GradientSchedule
    thread: Any
    own: Any
    operands: tuple[DType, DType]
    makes: tuple[bool, bool] = (True, True)
    largest: Sequence[Any] = ()
    met: Sequence[Any] = ()
    kept: Sequence[tuple[Any, GlobalTensor]] = ()

    pair_axis: ClassVar[int] = 2

    def __post_init__(self) -> None:
        parts = self.parts
        self.p, self.ds = _unrounded(parts.weights), _unrounded(parts.gradients)
        self.rounded = tuple(map(_fp8_of, (parts.weights, parts.gradients)))
        self.down, self.right = wgmma.AccumulatorLayout.origin(self.thread)
        names = ("sums", "carried", "exponential", "products", "core")
        self.hands = {name: Hand() for name in names}
        leaves: dict[Any, Any] = dict(parts.region.leaves(self.kernel))
        if parts.is_fp8:
            leaves |= self._numbers(leaves)
        self.factor, self.of_weights = 1.0, None
        if parts.score_masks is not None:
            self._take_scores(leaves, parts.score_masks)
        leaves |= {
            parts.call_p.results[0]: self.hands["products"],
            parts.core.results[0]: self.hands["core"],
        }
        for value, inner, _ in parts.gradient_scales:
            leaves[value] = Forward(inner)
        self.weight_walks = _Walks(self.kernel, parts, leaves, parts.selections)
        of_keys = self.pair_axis != _ALONG
        self.ahead: list[StoredWeights | DrawnMask] = [
            *StoredWeights.all_of(self.kernel, parts, self.schedule, of_keys=of_keys)
        ]
        if of_keys:
            self.ahead += DrawnMask.all_of(self.kernel, parts, self.schedule, self.own)

    @property
    def reads_scores(self) -> bool:
        """Whether blocks that nothing hides have elements in memory, or drawn ones."""
        return bool(self.ahead or self.kept or self.parts.reads_scores)

    @property
    def is_large(self) -> bool:
        """Whether it needs registers beside those of scores."""
        return self.reads_scores or self.parts.carried is not None or self.parts.cap is not None

    @property
    def carries_cap(self) -> bool:
        """Whether the tanh of scores is what the parts hand over."""
        carried, cap = self.parts.carried, self.parts.cap
        return carried is not None and cap is not None and carried == cap.value

    def _take_scores(self, leaves: dict[Any, Any], masked: Masks) -> None:
        """Makes the walks of scores, whose exponentials, and what else is carried, become leaves
        of the others."""
        parts = self.parts
        sums = {parts.call_s.results[0]: self.hands["sums"]}
        scores = {**leaves, **sums}
        if parts.carried is not None:
            self.carried_walk = Walk(self.kernel, scores, parts.region.symbols, contracts=True)
            scores = {**leaves, parts.carried: self.hands["carried"]}
            leaves[parts.carried] = self.hands["carried"]
        self.factor, self.of_weights = self._factors(leaves, masked)
        if parts.scaled is not None:
            scores[parts.scaled[0]] = Forward(parts.scaled[1])
        elif parts.is_fp8:
            value, _ = parts.multiple_of(parts.call_s.results[0], masked.inner)
            scores[value] = self.hands["sums"]
        hidden = [(masked.steps[0].value, masked.inner)] if masked.steps else []
        self.score_walks = _Walks(self.kernel, parts, scores, hidden)
        leaves[parts.exponential.results[0]] = self.hands["exponential"]

    def _numbers(self, leaves: dict[Any, Any]) -> dict[Any, Any]:
        """The tensors of one f32, loaded ahead of the loop, as leaves."""
        found: dict[Any, Any] = {}
        for value, tensor in self.parts.region.arguments.items():
            if tensor.type == dtypes.f32 and tensor.elements().constant == 1:
                at = [Index.of(0)] * tensor.rank
                found[value] = Hand(leaves[value].load(at, 1))
        return found

    def _factors(self, leaves: dict[Any, Any], masked: Masks) -> tuple[Any, Any]:
        """(factor of the walked value in the scores, factor of dP in dP - delta): numbers or f32
        values; None for the second: dP is walked."""
        parts = self.parts
        if not parts.is_fp8:
            return parts.scaled[2] if parts.scaled is not None else 1.0, None
        walk = Walk(self.kernel, leaves, parts.region.symbols)
        _, of_scores = parts.multiple_of(parts.call_s.results[0], masked.inner)
        factor = _product([number_value(number, walk) for number in of_scores])
        dp = inputs_of(parts.distance)[0]
        value, of_weights = parts.multiple_of(parts.call_p.results[0], dp)
        if value != dp:
            return factor, None
        numbers = [number_value(number, walk) for number in of_weights]
        if parts.gradient_scales:
            numbers.append(ops.f32(parts.gradient_scale))
        return factor, _product(numbers)

    # ---- coordinates

    def _at(
        self, head: QueryTile, tile: KeyTile, row: Any, j: int, half: int, *, is_cut: bool
    ) -> list[Coordinate]:
        """The coordinates of two queries of a key.  row: the first of the block."""
        key = self._own(tile, half, is_cut=is_cut)
        queries = self._pair(row, j, is_cut=self.schedule.has_row_tail)
        return [head.batch[0], head.batch[1], queries, key]

    def _own(self, tile: KeyTile, half: int, *, is_cut: bool) -> Index:
        """A key of the thread; is_cut: the last one in place of those past it."""
        key = self._key(tile) + 8 * half
        if is_cut:
            key = ops.minimum(key, self.kernel.size(self.schedule.keys) - 1)
        return Index.of(key)

    def _pair(self, row: Any, j: int, *, is_cut: bool) -> Index:
        """Two queries of a block; is_cut: the last ones in place of those past them."""
        s, query = self.schedule, row + (self.right + 8 * j)
        if not is_cut:
            return Index(query, 1, 2)
        last = self.kernel.size(s.queries) - 1
        if s.queries.known_divisor() % 2 == 0:
            return Index(ops.minimum(query, last - 1), 1, 2)
        return Index(lanes=tuple(ops.minimum(query + i, last) for i in range(2)))

    def _key(self, tile: KeyTile) -> Any:
        """The thread's first key."""
        return tile.key + self.own * wgmma.M + self.down

    def _rows(self, rows: Any, which: int, j: int) -> tuple[Any, Any]:
        """The numbers of two queries, for each of the thread's keys; rows: their address.
        which: 0: of base, 1: of delta."""
        bytes_ = which * self.schedule.tiling.queries * 4 + 8 * 4 * j
        place = smem.pointer_to(rows + bytes_)
        found = ops.load(place, ops.vector_type(ops.f32_type(), 2), 8)
        return found, found

    @property
    def _cuts(self) -> bool:
        """Whether there are products of keys past the last one."""
        return self.schedule.has_tail

    def _inside(self, tile: KeyTile, row: Any) -> Callable[[int, int], Any]:
        """Whether pairs have keys up to the last one, by their place."""
        left = self.kernel.size(self.schedule.keys) - self._key(tile)
        rows = [ops.less(8 * half, left) for half in _HALVES]
        return lambda j, half: rows[half]

    # ---- the first part

    @stretch("softmax")
    def exponentials(
        self, sums: Sequence[Any], tile: KeyTile, head: QueryTile, row: Any, rows: Any, *,
        is_masked: bool,
    ) -> list[Any]:  # fmt: skip
        """E, f32, of the first product's sums.

        Where gradients are made of scores, too, it is what both are made of, and the second part
        makes E: as many registers are in use between the parts.
        """
        carried, cap = self.parts.carried, self.parts.cap
        walk = self.score_walks.branch(is_masked=is_masked)
        if carried is not None:
            walk = self.carried_walk.branch()
        is_cut = is_masked and self._cuts
        pairs = [
            (j, half, self._at(head, tile, row, j, half, is_cut=is_cut))
            for j in range(len(sums) // 4)
            for half in _HALVES
        ]
        if cap is not None and (carried is None or self.carries_cap):
            self._cap(cap, walk, sums, pairs)
        found: list[Any] = []
        for j, half, at in pairs:
            self.hands["sums"].current = _pair_of(sums, j, half)
            if carried is not None:
                found += ops.elements(walk.value(carried, at, 2))
                continue
            base = self._rows(rows, 0, j)
            found += ops.elements(self._exponential(walk, at, base[half]))
        return found

    def _exponential(self, walk: Walk, at: Sequence[Coordinate], base: Any) -> Any:
        """E of a pair of scores."""
        factor = times_log2e(self.factor)
        factor = ops.splat(ops.f32(factor) if isinstance(factor, float) else factor, 2)
        power = mlir_math.FmaOp(walk.value(self.parts.score, at, 2), factor, base).result
        return ops.from_elements([_exp2(x) for x in ops.elements(power)])

    def _cap(
        self, cap: Cap, walk: Walk, sums: Sequence[Any],
        pairs: Sequence[tuple[int, int, list[Coordinate]]],
    ) -> None:  # fmt: skip
        """Computes the tanh of a block's scores, so many at once."""
        for first in range(0, len(pairs), _CAPPED // 2):
            part, given = pairs[first : first + _CAPPED // 2], list[Any]()
            for j, half, at in part:
                self.hands["sums"].current = _pair_of(sums, j, half)
                given.append(walk.value(cap.inner, at, 2))
            made = tanh_together(given, is_capped=cap.is_coarse, is_exact=cap.is_exact)
            for (_, _, at), value in zip(part, made, strict=True):
                walk.know(cap.value, at, 2, value)

    # ---- the second part

    @stretch("load")
    def fetch(self, tile: KeyTile, head: QueryTile, row: Any) -> list[list[Any]]:
        """Words of a block's stored weights and drawn masks, made ahead of its products."""
        return [found.load(tile, head, row, self.thread) for found in self.ahead]

    def know_fetched(
        self, walk: Walk, fetched: Sequence[Sequence[Any]], at: Sequence[Coordinate], j: int,
        half: int,
    ) -> None:  # fmt: skip
        """Gives a walk what was fetched of a pair of scores."""
        for found, words in zip(self.ahead, fetched, strict=True):
            walk.know(found.value, at, 2, found.pair(words, j, half))

    @stretch("score gradient")
    def words(
        self, exponentials: Sequence[Any], products: Sequence[Any], tile: KeyTile, head: QueryTile,
        row: Any, rows: Any, *, is_masked: bool, fetched: Sequence[Sequence[Any]] = (),
    ) -> tuple[list[Any], list[Any]]:  # fmt: skip
        """Words of P' and of dS', two queries each.  exponentials: by that method.  fetched: by
        `fetch`."""
        parts, walk = self.parts, self.weight_walks.branch(is_masked=is_masked)
        scores = self.score_walks.branch(is_masked=is_masked) if parts.carried is not None else None
        is_cut = is_masked and self._cuts
        inside = self._inside(tile, row) if is_cut else None
        weights, gradients = [], []
        for j in range(self._pairs(exponentials)):
            delta = self._rows(rows, 1, j)
            base = () if scores is None else self._rows(rows, 0, j)
            for half in _HALVES:
                place = 4 * j + 2 * half
                at = self._at(head, tile, row, j, half, is_cut=is_cut)
                if exponentials:
                    pair = ops.from_elements(list(exponentials[place : place + 2]))
                    if scores is not None:
                        self.hands["carried"].current = pair
                        pair = self._exponential(scores, at, base[half])
                    if inside is not None:
                        pair = arith.SelectOp(inside(j, half), pair, ops.zeros(pair.type)).result
                    self.hands["exponential"].current = pair
                if products:
                    self.hands["products"].current = ops.from_elements(list(products[place:][:2]))
                self.know_fetched(walk, fetched, at, j, half)
                if self.makes[0]:
                    weights.append(self._word(walk.value(self.p, self._of_weights(at), 2), 0))
                if self.makes[1]:
                    share = self._in_f32(walk.value(parts.share, at, 2))
                    self.hands["core"].current = self._core(walk, share, at, delta[half])
                    if self.carries_cap:
                        self._know_slope(walk, at, self.hands["carried"].current)
                    gradients.append(self._word(walk.value(self.ds, at, 2), 1))
                    self._keep(walk, at, tile, row, j, half)
        return weights, gradients

    def _know_slope(self, walk: Walk, at: Sequence[Coordinate], capped: Any) -> None:
        """The derivative of a cap is made of the tanh that the first part computed."""
        less = arith.NegFOp(capped).result
        slope = mlir_math.FmaOp(less, capped, ops.splat(ops.f32(1.0), 2)).result
        for value, factor in self.parts.slopes:
            made = arith.MulFOp(walk.value(factor, at, 2), slope).result
            walk.know(value, at, 2, made)

    def _pairs(self, exponentials: Sequence[Any]) -> int:
        """Pairs of others of a block that each of a thread's rows has."""
        return (
            len(exponentials) // 4 if self.parts.has_scores else self.schedule.tiling.queries // 8
        )

    def _of_weights(self, at: Sequence[Coordinate]) -> Sequence[Coordinate]:
        """The coordinates of P, of those of the scores."""
        return at if self.parts.has_scores else [*at[:2], at[3], at[2]]

    def _in_f32(self, pair: Any) -> Any:
        """P, which without scores may have fewer bits."""
        wide = ops.vector_type(ops.f32_type(), 2)
        return pair if pair.type == wide else arith.ExtFOp(wide, pair).result

    def _keep(
        self, walk: Walk, at: Sequence[Coordinate], tile: KeyTile, row: Any, j: int, half: int
    ) -> None:
        """Keeps what else a pair of scores has: the largest magnitudes, of which those past the
        last query or key are 0."""
        met: list[Any] = []
        for value, found in zip(self.largest, self.met, strict=True):
            for element in ops.elements(walk.value(value, at, 2)):
                size = mlir_math.AbsFOp(element).result
                found = arith.MaximumFOp(found, size).result
            met.append(found)
        self.met = met
        if self.kept:
            self._store(walk, at, tile, row, j, half)

    def _store(
        self, walk: Walk, at: Sequence[Coordinate], tile: KeyTile, row: Any, j: int, half: int
    ) -> None:
        """Stores what else a pair of scores has, if both are scores."""
        self._store_all(self.kept, walk, at, tile, row, j, half)

    def _store_all(
        self, kept: Sequence[tuple[Any, GlobalTensor]], walk: Walk, at: Sequence[Coordinate],
        tile: KeyTile, row: Any, j: int, half: int,
    ) -> None:  # fmt: skip
        s, key = self.schedule, self._key(tile) + 8 * half
        inside = key < self.kernel.size(s.keys) if s.has_tail else None
        query, size = row + (self.right + 8 * j), self.kernel.size(s.queries)
        is_whole = self.pair_axis == _ALONG and s.queries.known_divisor() % 2 == 0
        for value, target in kept:
            found = walk.value(value, at, 2)
            for i, part in enumerate([found] if is_whole else ops.elements(found)):
                place, there = query + i, list(at)
                is_there = place < size if s.has_row_tail else None
                if not is_whole:
                    there[self.pair_axis] = Index.of(place)
                target.store(there, part, ops.both(inside, is_there))

    def _core(self, walk: Walk, share: Any, at: Sequence[Coordinate], delta: Any) -> Any:
        """P * (dP - delta), times the factor of dS."""
        if self.of_weights is not None:
            product, times = self.hands["products"].current, ops.splat(self.of_weights, 2)
            distance = mlir_math.FmaOp(product, times, delta).result
            return arith.MulFOp(share, distance).result
        product = walk.value(inputs_of(self.parts.distance)[0], at, 2)
        scale = self.parts.gradient_scale
        if scale != 1.0:
            times = ops.splat(ops.f32(scale), 2)
            distance = mlir_math.FmaOp(product, times, delta).result
        else:
            distance = arith.AddFOp(product, delta).result
        return arith.MulFOp(share, distance).result

    def _word(self, pair: Any, which: int) -> Any:
        """Two elements as the tensor cores take them, of fp8 as f16, which holds them all.

        LLVM would turn a selection of f32 that is rounded into one of 16 bits, element by element.
        """
        kind = self.operands[which]
        if pair.type == ops.vector_type(element_type(kind), 2):
            return llvm.BitcastOp(ops.i32_type(), pair).result
        low, high = ops.elements(pair)
        if (narrow := self.rounded[which]) is not None:
            return f16_word_of_fp8(low, high, narrow)
        text = f"cvt.rn.{kind.name}x2.f32 $0, $1, $2;"
        return llvm.inline_asm(ops.i32_type(), [high, low], text, "=r,f,f")


def _pair_of(sums: Sequence[Any], j: int, half: int) -> Any:
    return ops.from_elements(list(sums[4 * j + 2 * half :][:2]))


def negated(parts: GradientRegion, delta: Any) -> Any:
    """-delta of a row times the factor of dS."""
    return arith.MulFOp(delta, ops.f32(-parts.gradient_scale)).result


def _product(numbers: Sequence[Any]) -> Any:
    found = ops.f32(1.0)
    for number in numbers:
        found = arith.MulFOp(found, number).result
    return found


def _unrounded(value: Any) -> Any:
    """The tensor that a mere conversion to fewer bits converts; another tensor itself."""
    operation = pointwise(value)
    is_rounding = operation is not None and [op.name for op in body_of(operation)] == [
        "arith.truncf"
    ]
    return inputs_of(operation)[0] if is_rounding else value


def _fp8_of(value: Any) -> str | None:
    """The type that a tensor of fp8 is rounded to; None: it is of another."""
    name = str(value.type.element_type)
    return name if name in F8 else None


def _exp2(value: Any) -> Any:
    return llvm.call_intrinsic(ops.f32_type(), "llvm.nvvm.ex2.approx.ftz.f", [value], [], [])
