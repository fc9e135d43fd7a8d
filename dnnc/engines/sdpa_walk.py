# pyright: basic
"""The pointwise work around an attention's products, on the registers of warps.

Scores are walked on what Q @ K' left in accumulators, weights on their exponentials, and what
comes after on the divided result.  A thread has two rows of a tile, 8 apart, in pairs of
neighbours, as accumulators of `mma.sync` and of `wgmma` alike leave them
(`wgmma.AccumulatorLayout`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..codegen import atomic, ops, wgmma
from ..codegen.attention_region import AttentionRegion, unrounded
from ..codegen.byte_math import f8_word
from ..codegen.index import Coordinate, Index
from ..codegen.kernel import Kernel
from ..codegen.loops import Loops, coordinates_of
from ..codegen.math import tanh_together
from ..codegen.online_softmax import HALVES, OnlineSoftmax, Rows, scaled
from ..codegen.reduce import shuffle_xor
from ..codegen.scalar import element_type
from ..codegen.tiled_tensor import TiledTensor
from ..codegen.turned_bytes import quads
from ..codegen.walk import Walk, inputs_of
from ..mlir import arith, ir, llvm
from ..target import WARP_THREADS
from .sdpa_entry import Entry, packed_entry
from .sdpa_scale import ScoreScale, number_value
from .sdpa_schedule import QueryTile, Schedule, Tiling

FACTOR = math.log2(math.e)
_CAPPED = 32  # scores of a thread whose tanh is computed at once: 64 spill a register


@dataclass
class _Hand:
    """What is in registers, as a leaf of a walk: the elements in hand.  type: what they are rounded
    to, None: nothing."""

    current: Any = None
    type: Any = None

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        value = ops.splat(self.current, width)
        if self.type is None:
            return value
        return arith.TruncFOp(ops.vector_type(self.type, width), value).result


@dataclass
class _Forward:
    """A tensor in place of another: masks that keep every score, a factor that is left out."""

    value: Any
    walk: Walk | None = None

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        assert self.walk is not None, "of the walk that is under way"
        return self.walk.value(self.value, at, width)


@dataclass(frozen=True)
class Piece:
    """Neighbours in a row of the result.  half: the thread's upper or lower row.  column: of the
    first.  values: scalars."""

    half: int
    column: Index
    values: Sequence[Any]


@dataclass
class SdpaRegion:
    """What the walks of all tiles have in common.

    thread: of those that have a tile's rows, 16 rows a warp.
    """

    kernel: Kernel
    parts: AttentionRegion
    tiling: Tiling
    schedule: Schedule
    thread: Any

    def __post_init__(self) -> None:
        parts = self.parts
        self.region = parts.region
        self.keys = parts.dims[-1]
        self.has_tail = self.keys.known_divisor() % self.tiling.keys != 0
        self.has_masks = bool(parts.masks) or self.has_tail
        self.pair = 2 if self.keys.known_divisor() % 2 == 0 else 1
        self.arguments = self.region.leaves(self.kernel)
        self.targets = self.region.targets(self.kernel)
        self.kept = [place for place, (value, _) in enumerate(self.targets) if parts.is_kept(value)]
        packed = [parts.packed(value) for value, _ in self.targets]
        self.packed = {place: found for place, found in enumerate(packed) if found is not None}
        self.of_bytes = parts.operand(1, 1)[0].type.bits == 8
        self.scale = self._scale()

    @property
    def weights_amax(self) -> list[int]:
        """The outputs that are the largest of all weights."""
        found = self.parts.largest
        return [place for place, inner in found.items() if not self.parts.is_of_result(inner)]

    @property
    def result_amax(self) -> list[int]:
        """The outputs that are the largest of all of the result."""
        return [place for place in self.parts.largest if place not in self.weights_amax]

    def made(self, place: int) -> Any:
        """What an output is, before its rows are packed."""
        return self.packed[place][0] if place in self.packed else self.targets[place][0]

    def _scale(self) -> ScoreScale | None:
        """The factor of scores that is left to the exponentials; of bytes numbers in memory too."""
        parts = self.parts
        if self.of_bytes and parts.scaling and self._is_product(parts.scaling[1]):
            return ScoreScale.of(
                *parts.scaling, Walk(self.kernel, self.arguments, self.region.symbols)
            )
        return ScoreScale(*parts.scaled) if parts.scaled else None

    @property
    def factor(self) -> Any:
        """Scores are this times what `scores` gives; a number, or an f32 value."""
        return self.scale.factor if self.scale else 1.0

    @property
    def is_plain(self) -> bool:
        """Whether a score that is not masked is what the product gives, times a number."""
        parts = self.parts
        inner = parts.masks[-1].score if parts.masks else parts.score
        return self._is_product(self.scale.inner if self.scale else inner)

    @property
    def is_finite(self) -> bool:
        """Whether a score that is not masked is finite where the product is."""
        return self.is_plain and (self.scale is None or self.scale.is_odd is None)

    def _is_product(self, value: Any) -> bool:
        while value != self.parts.first:
            owner = value.owner
            if isinstance(owner, ir.Block) or owner.name != "linalg.generic":
                return False
            body = list(owner.regions[0].blocks[0].operations)
            names = {v.operation.name for v in body}
            views = {"tensor.extract", "linalg.index", "linalg.yield", "arith.constant"}
            indices = {"arith.muli", "arith.addi", "arith.divui", "arith.remui"}
            if names - views - indices or len(inputs_of(owner)) > 1:
                return False
            taken = [v.operation.operands[0] for v in body if v.operation.name == "tensor.extract"]
            (value,) = inputs_of(owner) or taken
        return True

    def at(self, tile: QueryTile, row: Any) -> TileWalk:
        """row: the first of a tile that the threads have."""
        return TileWalk(self, tile, row)


@dataclass
class TileWalk:
    """The walks of one tile."""

    shared: SdpaRegion
    tile: QueryTile
    row: Any
    hands: Mapping[str, _Hand] = field(default_factory=dict)
    _entries: dict[int, Entry] = field(default_factory=dict)
    _tiles: dict[int, list[tuple[Sequence[Any], Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        s, parts = self.shared, self.shared.parts
        self.has_masks = s.has_masks
        self.hands = {name: _Hand() for name in ("sums", "weight", "result", "maximum", "total")}
        maximum, total = (op.results[0] for op in parts.reductions)
        made = parts.share.results[0] if parts.share is not None else parts.exponential
        self.hands["weight"].type = _narrower(made)
        leaves: dict[Any, Any] = dict(s.arguments)
        leaves |= {
            parts.first: self.hands["sums"], made: self.hands["weight"],
            parts.second: self.hands["result"], maximum: self.hands["maximum"],
            total: self.hands["total"],
        }  # fmt: skip
        self.forwards: list[_Forward] = []
        self.weight_forwards: list[_Forward] = []
        scores = dict(leaves)
        if s.scale:
            scores[s.scale.value] = self._forward(s.scale.inner)
        plain = dict(scores)
        if parts.masks:
            plain[parts.masks[0].value] = self._forward(parts.masks[-1].score)
        symbols = s.region.symbols
        self.walk = self.weight_walk = Walk(s.kernel, leaves, symbols)
        if s.of_bytes:
            self.weight_walk = self._without_factors(leaves)
        self.score_walks = {
            True: Walk(s.kernel, scores, symbols, contracts=True),
            False: Walk(s.kernel, plain, symbols, contracts=True),
        }
        self._place(s.thread)
        self.factor = self._factor()

    def _factor(self) -> Any:
        """What numbers that multiply queries or keys make of a score; None: there are none."""
        found = None
        parts = self.shared.parts
        for operation in parts.multiples:
            along = parts.multiple(operation)
            at = [Index.of(0)] * len(parts.region.dims_of(along))
            ones = [
                _one(value) if value == along else self.walk.value(value, at, 1)
                for value in inputs_of(operation)
            ]
            number = self.walk.body(operation, ones, at, 1, unrounded(operation))
            found = number if found is None else arith.MulFOp(found, number).result
        return found

    def _place(self, thread: Any) -> None:
        """Where a thread works."""
        self.thread = thread
        self.down, self.right = wgmma.AccumulatorLayout.origin(thread)
        schedule = self.shared.schedule
        # Past the end, the nearest of the tensor: what is computed there is not stored.
        self.rows = [schedule.row(self.tile, self._number(half)) for half in HALVES]

    def _forward(self, value: Any) -> _Forward:
        made = _Forward(value)
        self.forwards.append(made)
        return made

    def _without_factors(self, leaves: Mapping[Any, Any]) -> Walk:
        """A walk of weights to which products by single numbers are nothing: the result is
        multiplied by these."""
        s = self.shared
        made = dict(leaves)
        for value, inner, _ in s.parts.weight_factors:
            made[value] = _Forward(inner)
            self.weight_forwards.append(made[value])
        return Walk(s.kernel, made, s.region.symbols)

    # ---- coordinates

    def _number(self, half: int) -> Any:
        return ops.add(ops.add(self.row, self.down), 8 * half)

    def inside(self, half: int) -> Any:
        """Whether a row of the thread is one of the tensor's; None: always."""
        return self.shared.schedule.inside(self._number(half))

    def _at(self, half: int, column: Coordinate, dims: Sequence[Any] | None = None) -> list[Any]:
        """The coordinates of a row's element; dims: of a tensor with other axes of heads."""
        s, row = self.shared, self.rows[half]
        rank = len(dims) if dims is not None else s.parts.rank
        batch: Mapping[int, Coordinate] = row.batch
        if dims is not None and rank != s.parts.rank:
            loops = Loops(tuple(dims), tuple((axis,) for axis in range(rank - 2)))
            batch = loops.coordinates(s.kernel, row.head)
        return coordinates_of(rank, batch, {rank - 2: row.query, rank - 1: column})

    def _columns(self, block: Any, *, is_whole: bool) -> list[tuple[int, int, Index]]:
        """(column block of 8, element of the thread's two, coordinates) of the fragments of a
        row; is_whole: whether all of the block's keys are there."""
        s = self.shared
        first = ops.add(ops.mul(block, s.tiling.keys), self.right)
        found = []
        for j in range(s.tiling.keys // 8):
            for i in range(0, 2, s.pair):
                column = ops.add(first, 8 * j + i)
                if s.has_tail and not is_whole:
                    column = ops.minimum(column, ops.sub(s.kernel.size(s.keys), s.pair))
                found.append((j, i, Index(column, int(s.pair > 1), s.pair)))
        return found

    # ---- scores and weights

    def scores(self, sums: Sequence[Any], block: Any, *, is_masked: bool) -> list[Any]:
        """Accumulators of a block of keys as scores, over `SdpaRegion.factor`.

        is_masked: whether masks are looked at, and the tensor's end.
        """
        s, walk = self.shared, self.score_walks[is_masked].branch()
        for forward in self.forwards:
            forward.walk = walk
        sums = list(sums) if self.factor is None else scaled(sums, [self.factor] * 2)
        found = s.scale.applied(sums) if s.scale else list(sums)
        if not (s.is_plain and (not is_masked or not s.parts.masks)):
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
        return self._cut(found, block) if is_masked and s.has_tail else found

    def _know_caps(
        self, walk: Walk, sums: Sequence[Any], places: Sequence[tuple[int, list[Any]]]
    ) -> None:
        """Computes the tanh of a block's scores, so many at once."""
        s, cap = self.shared, self.shared.parts.cap
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

    def _cut(self, scores: Sequence[Any], block: Any) -> list[Any]:
        """-inf past the last key."""
        s = self.shared
        first = ops.add(ops.mul(block, s.tiling.keys), self.right)
        left = ops.sub(s.kernel.size(s.keys), first)
        low = _number(-math.inf)
        return [
            arith.SelectOp(ops.less(8 * (i // 4) + i % 2, left), score, low).result
            for i, score in enumerate(scores)
        ]

    def weights(self, exponentials: Sequence[Any], block: Any) -> list[Any]:
        """Words of the second product's first operand (`wgmma.OperandLayout`); outputs that have
        an element for each score are stored on the way."""
        s, walk = self.shared, self.weight_walk.branch()
        for forward in self.weight_forwards:
            forward.walk = walk
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
        """Four weights, of 16 columns: see `turned_bytes`."""
        kind = self.shared.parts.weight_type.name
        if str(weights[0].type) != "f32":  # of 8 bits already, carried as integers
            return llvm.BitcastOp(ops.i32_type(), ops.from_elements(list(weights))).result
        return f8_word(weights, kind)

    def _left(self, block: Any) -> Any:
        """Keys from a thread's first one of a block on; None: all of any block are there."""
        s = self.shared
        if not s.has_tail:
            return None
        first = ops.add(ops.mul(block, s.tiling.keys), self.right)
        return ops.sub(s.kernel.size(s.keys), first)

    def _keep(self, walk: Walk, half: int, column: Index, place: int, left: Any) -> None:
        """Stores what outputs of the scores' dims have at the weight in hand; place: of its column,
        from the thread's first on."""
        s, at = self.shared, self._at(half, column)
        is_there = None if left is None else ops.less(place, left)
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
        zero = _number(0.0)
        self.nothing = nothing_of(shares) or [zero, zero]
        count = ops.ceildiv(s.kernel.size(s.keys), s.tiling.keys)
        for low, high in ((0, first), (end, count)):
            ops.for_(low, high, 1, [], self._keep_one)
        if s.schedule.is_sparse:
            ops.for_(first, end, 1, [], self._keep_one_unseen)

    def _keep_one(self, block: Any, carried: Sequence[Any]) -> Sequence[Any]:
        self._keep_block(block)
        return carried

    def _keep_one_unseen(self, block: Any, carried: Sequence[Any]) -> Sequence[Any]:
        is_seen = self.shared.schedule.sees(self.tile, block)
        ops.if_else(is_seen, lambda: None, lambda: self._keep_block(block))
        return carried

    def _keep_block(self, block: Any) -> None:
        """Of one block, whose weights are 0."""
        s, walk, left = self.shared, self.walk.branch(), self._left(block)
        for j, i, column in self._columns(block, is_whole=False):
            for half in HALVES:
                self.hands["weight"].current = ops.splat(self.nothing[half], s.pair)
                self._keep(walk, half, column, 8 * j + i, left)

    def _word(self, pair: Sequence[Any]) -> Any:
        """Two weights as values are: rounded to their type, if they are wider."""
        vector = ops.from_elements(list(pair))
        tensor, _ = self.shared.parts.operand(1, 1)
        wanted = ops.vector_type(element_type(tensor.type), 2)
        if vector.type != wanted:
            vector = arith.TruncFOp(wanted, vector).result
        return llvm.BitcastOp(ops.i32_type(), vector).result

    # ---- the end of a tile

    def store(self, softmax: OnlineSoftmax, rows: Rows, result: Sequence[Any]) -> None:
        """Divides the result, walks what comes after, and stores it, and what rows have."""
        self.store_others(self.divided(softmax, rows, result))

    def store_others(self, result: Sequence[Any], staged: Collection[int] = ()) -> None:
        """Outputs of the divided result, but for those that are staged, from registers."""
        largest = self.shared.parts.largest
        self._store_largest(result)
        for place, (value, _) in enumerate(self.shared.targets):
            if self.shared.parts.is_of_result(value) and place not in (*staged, *largest):
                self.store_direct(place, result)

    def leave_loop(self) -> None:
        """Has a thread that the compiler knows nothing of: addresses of what is stored stay out
        of the loop over keys."""
        self._place(ops.opaque(self.thread))

    def divided(self, softmax: OnlineSoftmax, rows: Rows, result: Sequence[Any]) -> list[Any]:
        """The result over the sums of rows, whose statistics are stored."""
        self.leave_loop()
        return scaled(result, self.shares(softmax, rows))

    def shares(self, softmax: OnlineSoftmax, rows: Rows) -> list[Any]:
        """What exponentials of each row are multiplied by; its statistics are stored."""
        totals = softmax.finished(rows)
        scale = [self._share(softmax, rows, totals[half], half) for half in HALVES]
        return self._lowered(softmax, scale)

    def _share(
        self, softmax: OnlineSoftmax, rows: Rows, total: Any, half: int, is_first: Any = None
    ) -> Any:
        """What exponentials of a row are multiplied by; its statistics are stored, by the lane that
        is first."""
        scale = self._finish_row(softmax, rows, total, half)
        if self.shared.weights_amax:
            self._meet_weights(rows, scale, half)
        self._store_row(half, is_first)
        return scale

    def _lowered(self, softmax: OnlineSoftmax, scale: Sequence[Any]) -> list[Any]:
        """Of bytes, what weights were not multiplied by is in it, too."""
        if not self.shared.of_bytes:
            return list(scale)
        own = self._weight_factor(softmax.lift)
        return [arith.MulFOp(value, own).result for value in scale]

    def _weight_factor(self, lift: int) -> Any:
        """What weights were not multiplied by, over 2 ** lift, which they were."""
        found = _number(2.0**-lift)
        for _, _, number in self.shared.parts.weight_factors:
            if number is not None:
                found = arith.MulFOp(found, number_value(number, self.walk)).result
        return found

    def _finish_row(self, softmax: OnlineSoftmax, rows: Rows, total: Any, half: int) -> Any:
        """What the result of a row is multiplied by; maximum and sum are in hand after it."""
        s, parts = self.shared, self.shared.parts
        factor = _number(s.factor) if isinstance(s.factor, float) else s.factor
        maximum = arith.MulFOp(rows.reference[half], factor).result
        own = arith.MulFOp(softmax.relative_to(rows, half), factor).result
        at = self._at(half, Index.of(0))
        self._hold("maximum", parts.reductions[0], maximum, at)
        base = self.walk.value(parts.base, at, 1)
        distance = arith.MulFOp(arith.SubFOp(own, base).result, _number(FACTOR)).result
        moved = llvm.call_intrinsic(
            ops.f32_type(), "llvm.nvvm.ex2.approx.ftz.f", [distance], [], []
        )
        sum_ = self._if_keys(arith.MulFOp(total, moved).result)
        self._hold("total", parts.reductions[1], sum_, at)
        if parts.share is None:
            return self._if_keys(moved)
        operands = [
            _number(1.0) if self._is_exponential(value) else self.walk.value(value, at, 1)
            for value in inputs_of(parts.share)
        ]
        share = self.walk.body(parts.share, operands, at, 1, parts.shared)
        return self._if_keys(arith.MulFOp(moved, share).result)

    def _if_keys(self, value: Any) -> Any:
        """0 where there are no keys: a sum over nothing, whatever its terms would be over."""
        s = self.shared
        if not s.schedule.may_lack_keys:
            return value
        return arith.SelectOp(ops.less(0, s.kernel.size(s.keys)), value, _number(0.0)).result

    def _hold(self, name: str, reduction: Any, value: Any, at: Sequence[Coordinate]) -> None:
        """Takes what a row has in hand, and keeps it: the result is walked when the other row's is
        there."""
        self.hands[name].current = value
        self.walk.know(reduction.results[0], at, 1, value)

    def _is_exponential(self, value: Any) -> bool:
        return value == self.shared.parts.exponential

    def _store_row(self, half: int, is_first: Any = None) -> None:
        """Statistics of a row, by one of its lanes; is_first: whether it is this one."""
        s = self.shared
        at = self._at(half, Index.of(0))
        for place, (value, target) in enumerate(s.targets):
            if s.parts.is_of_rows(value) and place not in s.parts.largest:
                made = self.walk.value(s.made(place), at, 1)
                own = is_first
                if own is None:
                    own = ops.compare("eq", ops.and_(self.thread, 3), 0)
                where, inside = self.spot(place, half, Index.of(0))
                target.store(where, made, ops.both(own, inside))

    def store_direct(self, place: int, result: Sequence[Any]) -> None:
        """An output of the result, from registers."""
        s = self.shared
        for piece in self.pieces(result):
            made = self.made_of(s.made(place), piece)
            where, inside = self.spot(place, piece.half, piece.column)
            s.targets[place][1].store(where, made, inside)

    def spot(self, place: int, half: int, column: Coordinate) -> tuple[list[Any], Any]:
        """(coordinates in an output of a row's element, whether it is stored: None, always)."""
        s, row = self.shared, self.rows[half]
        if place not in s.packed:
            return self._at(half, column), self.inside(half)
        entry = self.entry_of(place)
        head = row.batch[1] if len(row.batch) > 1 else Index.of(0)
        at = [Index.of(0), head, Index(ops.add(entry.first, row.query.base)), column]
        is_there = ops.less(row.query.base, entry.length)
        return at[-s.targets[place][1].tensor.rank :], ops.both(self.inside(half), is_there)

    def entry_of(self, place: int) -> Entry:
        """The tile's sequence in a packed output."""
        s = self.shared
        if place not in self._entries:
            source, batch = s.packed[place][1], self.tile.batch[0].index().base
            axis = source.tensor.rank - 2
            self._entries[place] = packed_entry(s.kernel, s.parts, source, batch, axis)
        return self._entries[place]

    def pieces(self, result: Sequence[Any], first: int = 0, count: int = 0) -> Iterator[Piece]:
        """Neighbours in a row of the result that a thread has, made as they are asked for.

        first, count: 16 columns after 16 columns (default: all).
        """
        s = self.shared
        last = s.tiling.width // 8
        end = min(2 * (first + count), last) if count else last
        for j in range(2 * first, end, 2 if s.of_bytes else 1):
            for half in HALVES:
                if s.of_bytes:
                    column = Index(ops.add(ops.shl(self.right, 1), 8 * j), 1, 4)
                    yield Piece(half, column, quads(result[4 * j : 4 * j + 8])[half])
                else:
                    column = Index(ops.add(self.right, 8 * j), 1, 2)
                    place = 4 * j + 2 * half
                    yield Piece(half, column, result[place : place + 2])

    def made_of(self, value: Any, piece: Piece) -> Any:
        """An output's elements."""
        self.hands["result"].current = ops.from_elements(list(piece.values))
        return self.walk.value(value, self._at(piece.half, piece.column), len(piece.values))

    # ---- the largest of all

    def _store_largest(self, result: Sequence[Any]) -> None:
        s = self.shared
        for place in s.result_amax:
            parts = {half: list[Any]() for half in HALVES}
            for piece in self.pieces(result):
                made = self.made_of(s.parts.largest[place], piece)
                parts[piece.half] += ops.elements(made)
            for half, values in parts.items():
                self._meet(place, values, half)

    def _meet_weights(self, rows: Rows, scale: Any, half: int) -> None:
        """The largest weight of a row is its largest score's, whose exponential is `scale`."""
        low = _number(-math.inf)
        is_empty = arith.CmpFOp(arith.CmpFPredicate.OEQ, rows.reference[half], low).result
        # No number where the graph does not mind that a row has no scores.
        nothing = arith.MulFOp(_number(0.0), scale).result
        largest = arith.SelectOp(is_empty, nothing, scale).result
        for place in self.shared.weights_amax:
            self._meet(place, [largest], half)

    def _meet(self, place: int, values: Sequence[Any], half: int) -> None:
        """The output becomes the largest of itself and all lanes' values.

        Numbers without their sign are ordered as integers are, NaN above all.
        """
        found: Any = 0
        for value in values:
            bits = llvm.BitcastOp(ops.i32_type(), value).result
            found = ops.maximum(found, ops.and_(bits, 0x7FFFFFFF))
        inside = self.inside(half)
        if inside is not None:
            found = ops.select(inside, found, 0)
        distance = 1
        while distance < WARP_THREADS:
            found = ops.maximum(found, shuffle_xor(found, distance))
            distance *= 2
        _, target = self.shared.targets[place]
        pointer = target.address([Index.of(0)] * target.tensor.rank)
        with ops.if_(ops.compare("eq", ops.and_(self.thread, WARP_THREADS - 1), 0)):
            atomic.update(pointer, found, "max.u32")


def _narrower(value: Any) -> Any:
    """The type of a tensor's elements, if it is narrower than f32; None: it is not."""
    type_ = ir.RankedTensorType(value.type).element_type
    return None if isinstance(type_, ir.F32Type) else type_


def _one(tensor: Any) -> Any:
    """1 in the type of a tensor's elements."""
    type_ = ir.RankedTensorType(tensor.type).element_type
    return arith.ConstantOp(type_, ir.FloatAttr.get(type_, 1.0)).result


def nothing_of(shares: Sequence[Any]) -> list[Any]:
    """Weights of 0 times what exponentials of each row are multiplied by: no numbers where that is
    none, of rows without scores, if the graph does not mind them."""
    return [arith.MulFOp(_number(0.0), share).result for share in shares]


def _number(value: float) -> Any:
    return arith.ConstantOp(ops.f32_type(), ir.FloatAttr.get(ops.f32_type(), value)).result


def times_log2e(factor: Any) -> Any:
    """What scores are multiplied by to be exponents of 2."""
    if isinstance(factor, float):
        return factor * FACTOR
    return arith.MulFOp(factor, _number(FACTOR)).result
