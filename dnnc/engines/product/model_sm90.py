"""How long a product takes on Hopper's tensor cores: arithmetic for `predict`.

Every block works through the same number of tiles, one after the other:

    launch + fill + tiles * (steps * max(multiply, load, latency / stages) + epilogue + exchange)

or as long as memory takes (`memory_model`).  The numbers were fitted on some 5,000 configurations
of 170 shapes, most of them generated (`python -m benchmarks sweep`), on an H100 and an H200, each
with its own memory, and on what 330 listed products and convolutions took on an H100;
docs/performance/matmul.md, "Choice of a configuration", has what they choose, of shapes too that a
fit did not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, log2
from typing import NamedTuple

from ...codegen.hopper import wgmma
from ...codegen.hopper.cluster import residents
from ...target import Target
from ..engine import Prediction
from .memory_model import again_share, smooth_max, transfer_seconds
from .tile_sm90 import are_pairs
from .work import ProductWork

_LAUNCH_SECONDS = 0.65e-6
_FILL_SECONDS = 0.25e-6  # of a block: barriers, the first loads
_CLUSTER_FILL_SECONDS = 1.35e-6  # more, of blocks that start together
_TILE_SECONDS = 0.33e-6  # from a tile's last product to the first of the next
_RATE_SHARE = 0.93  # of the tensor cores' rate: the clock of a long product
_LATENCY_SECONDS = 1.5e-6  # from the start of a stage's loads to its release
# The same, less the loads and products that a stage of pixels waits for: 512 pixels in two stages
# took 1.7 us a step where their loads take 1.4 and products 0.6.
_REFILL_SECONDS = 1.2e-6
_SHORT_ROW = 16  # elements of a row of C in a tile, up to which a tile takes longer
_SHORT_ROWS_SECONDS = 0.3e-6
# Bytes a second that an SM's TMA brings while all of them load, of rows of 128
# bytes; narrower ones are taken to need as long, which is not measured.
_LOAD_RATE = 88e9
_PING_PONG_SECONDS = 1.1e-6  # from one warpgroup's products to the other's
# Of the bytes of pixels whose channels are several tiles, which ping-pong parts, and of gradients.
_PING_PONG_AGAIN = 1.05
_CLUSTER_PING_PONG_SECONDS = 1.6e-6  # the same, where blocks wait for each other's warpgroups
_IM2COL_RATE = 50e9  # of pixels, whose every tap reads them from L2 again
# Of the time of a row of pixels, what a filter's row adds.  Where rows begin inside lines, more by
# how many of the blocks ask for the same one at the same time: one that all of them load took 0.6
# to 1.5 of the time of as many pixels (48 to 96 channels, 80 to 200 outputs), one of nine tiles of
# outputs next to nothing.
_FILTER_SHARE = 0.17
_SPLIT_FILTER_SHARE = 1.0
# Of a step, for each row of a filter's tile that is none: 64 channels to 3 (3x3, 64 images of
# 224x224) took 470, 555 and 734 us in tiles of 128x8, 128x16 and 128x32 on an H200.
_PAST_ROW_SECONDS = 6e-9
# Of gradients by the image, whose filters are flipped, on 187 configurations of 22 layers: bytes a
# second of pixels and filters, of these each line that a row meets; of a filter's tile, that blocks
# which load it together divide; what is more of products of pixels with a halo for each further
# line; and from one warpgroup's products to the other's.
_GRADIENT_RATE = 95e9
_SHARED_FLIPPED = 0.7
_FLIPPED_HALO_SHARE = 0.37
_GRADIENT_PING_PONG_SECONDS = 0.2e-6
_CLUSTER_GRADIENT_PING_PONG_SECONDS = 0.5e-6
# Of a stage's time where two ping-pong: of 7 further layers the choices are 0.953 as fast as the
# best then, else 0.925.
_GRADIENT_PING_PONG_SHARE = 1.05
_FEW_CHANNELS_PING_PONG_SECONDS = 0.8e-6  # more, of a tile that has more columns than there are
_SHARED_FILTERS = 1.2  # of the time of products, where blocks of other pixels load them together
_HALO_FILL_SECONDS = 2.0e-6  # of a block: whole tiles of pixels, and at its end one of outputs
# Of a tap, however little it multiplies: nine were 2.3 us of tiles of 7 columns and 48 channels,
# which took 3.4 (16 rows) to 4.0 (28).
_HALO_STEP_SECONDS = 0.25e-6
_HALO_SHARE = 0.95  # of the time of products, where little is loaded beside them
_PHASE_SHARE = 1.1  # the same, where each phase of a stride has a tile of pixels for few taps
# Elements a second that a producer warpgroup brings through g1, and the same of integers; of the
# first one's, what a second one brings beside it.  Of weights of e4m3 and int8 and a scaled A, in
# tiles of 128x128 to 256x128.
_COMPUTE_RATE = 12e9
_INTEGER_COMPUTE_RATE = 10e9
_SECOND_PRODUCER = 0.5
_REWRITE_RATE = 16e9  # elements a second that warps compute in shared memory; not measured
_FRAGMENT_RATE = 150e9  # elements a second that consumers compute, as far as products wait
_INTEGER_FRAGMENT_RATE = 110e9  # the same of integers, which are permuted and subtracted
_LINE_BYTES = 128
SECTOR_BYTES = 32  # of a line, what memory moves at least
_SPLIT_LINE_SHARE = 0.6  # of the rate of loads, where rows begin inside a line
# Operands whose rows TMA can't take go through a warpgroup's registers: bytes a second of tiles of
# up to 64 rows, all of whose loads are under way together, and of taller ones; of a stage, more.
_TALL_ROWS = 64
_NARROW_RATE = 22e9
_TALL_NARROW_RATE = 6.2e9
_NARROW_SECONDS = 0.15e-6
_FEW_ROWS_SECONDS = 0.6e-6  # of tiles of 8 rows, which few threads load
# Of what is stored to rows that begin inside sectors, what memory moves more: boxes of 128 bytes
# begin and end there.  Where tiles meet, a sector is stored by each, and in between read again:
# 1112 and 1152 outputs, in tiles of 64 to 256, differ by so many bytes for each row of a tile.
_SPLIT_STORE_SHARE = 0.5
_SEAM_BYTES = 150
_CLUSTER_SEAM_SHARE = 0.5  # of it, inside a cluster, whose blocks store at about the same time
_EPILOGUE_RATE = 16e9  # elements a second of an SM
_HEAVY_EPILOGUE_RATE = 8.5e9
_DIRECT_RATE = 22e9  # of elements that are stored one or two at a time
_SPLIT_SECONDS = 0.5e-6  # of an exchange of sums, for each doubling of the blocks that share k
_SPLIT_RATE = 35e9  # bytes a second of it
# Of a group's weights, what each cluster's tiles beside the first read again: of 64 experts, those
# of 512 rows in tiles of 128 moved 2.0 times their weights' bytes, of 256 rows 1.2 times.
_GROUPS_AGAIN = 0.25
# Columns of an instruction -> what it takes, in columns of a wide one.
_NARROW_COLUMNS = {8: 72, 16: 72, 32: 48}
_NARROW_GRADIENT_COLUMNS = {8: 24, 16: 24, 32: 32}  # the same of gradients by the image
_LEAST_COLUMNS = 80
# Of the time of products of a wide instruction whose columns are no multiple of 64: of 20 generated
# products and 13 listed ones.
_UNEVEN_SHARE = 1.05
# Of the time of products, where blocks of a cluster have tiles past the end, of zeros that TMA
# makes: 1.18 to 1.29 of those of the same tiles in clusters without (523x2088x11392,
# 1149x2280x9280, 1505x1616x13952).
_PAST_END_SHARE = 1.2
# Of the time of products, where a cluster loads together the operand of which there is less: of
# some 1,150 timed products in clusters of two 0.94 to 1.07 of what those take that load the other
# one together, by sizes; 523x2088x11392 in tiles of 96x128 takes 59.5 us so, and 47.2 otherwise.
_LESS_SHARED = 1.03
# Of the time of products, where four instructions' rows read the same columns from shared memory:
# 389x3000x12288 in tiles of 80x256 takes 48.5 us on an H200, half of each with k in two parts.
_TALL_SHARE = 0.94
# Of a step, for each row of a tile past the end: 389x3072x12288 in tiles of 96x128 took 88 us on an
# H200, 480x3072x12288 61.
_PAST_SECONDS = 0.3e-9
_LEAST_BUSY = 0.9  # of the time of loads, where other SMs have no tile
_MORE_COLUMNS = 24  # that an instruction takes beside its own


class HopperBlock(NamedTuple):
    """A block's tile of a product, and its cluster.

    tile, cluster: along M and N.  stages, depth: of the ring, and elements of k of a stage.
    swaps: whether N lies along the instruction's rows.  splits: blocks that share k.
    producers: warpgroups that load and compute operands; 0: those that multiply compute them.
    is_ping_pong: two warpgroups have a tile each, alternately, and one's epilogue runs beside the
    other's products.
    """

    tile: tuple[int, int]
    cluster: tuple[int, int]
    stages: int
    depth: int
    swaps: bool = False
    splits: int = 1
    producers: int = 1
    is_ping_pong: bool = False


class OperandLoads(NamedTuple):
    """How A and B come.

    share: of TMA's rate.  narrow: of A and B, whether they go through registers element by element,
    in each block of a cluster.  computed: of A and B, the share of their rows that comes out of g1.
    has_integers: whether that is made of integers.
    """

    share: float = 1.0
    narrow: tuple[bool, bool] = (False, False)
    computed: tuple[float, float] = (0, 0)
    has_integers: bool = False


class PixelLoads(NamedTuple):
    """How the pixels of a convolution come.

    is_im2col: whether A's tiles come by im2col loads.  loads: of a stage's tiles of A and B, the
    share that is loaded: pixels with their halo stay for all taps of a filter.
    has_phases: tiles of pixels with their halo come by the phases of a stride.  rewrites: whether
    what is loaded of A is computed in shared memory.  filters: tiles of outputs beside each other,
    each of which has filters of its own.  multiplied: of the panels' k, what products take.
    taken: seconds in which threads take a stage's part of A into their registers, of tiles that
    come for all of k at once, so that stages are parts of one load; 0: products read it where it
    is.  chunk: rows of tiles of every phase of a gradient that come before any further rows, see
    `TileOrder`.  past: rows of a filter's tile that are none, of few outputs whose k lie together.
    lines: of memory that a row of a gradient's filter meets, about; 0: of no gradient.
    """

    is_im2col: bool = False
    loads: tuple[float, float] = (1.0, 1.0)
    has_phases: bool = False
    rewrites: bool = False
    filters: int = 1
    multiplied: float = 1.0
    taken: float = 0.0
    chunk: int = 0
    past: int = 0
    lines: float = 0.0


_NO_PIXELS = PixelLoads()


@dataclass(frozen=True)
class HopperTile:
    """How a product is tiled; what does not depend on its sizes is computed once.

    products: matmuls with one epilogue.  is_heavy: whether the epilogue has costly functions.
    is_direct: whether outputs are stored from registers.  mma_tflops: the tensor cores' rate for
    the operand type.
    """

    block: HopperBlock
    products: int
    operands: OperandLoads
    is_heavy: bool
    is_direct: bool
    mma_tflops: float
    target: Target
    pixels: PixelLoads = _NO_PIXELS

    @cached_property
    def _residents(self) -> int:
        """Clusters that run at the same time."""
        rows, columns = self.block.cluster
        return residents(self.target.sm_count, rows * columns * self.block.splits)

    @cached_property
    def _tall(self) -> int:
        """Rows of a cluster."""
        return self.block.tile[0] * self.block.cluster[0]

    @cached_property
    def _wide(self) -> int:
        """Columns of a cluster."""
        return self.block.tile[1] * self.block.cluster[1]

    @cached_property
    def _wait(self) -> float:
        return _LATENCY_SECONDS / (self.block.stages - 1)

    def predict(self, work: ProductWork) -> Prediction:
        """Seconds, and what they are bound by."""
        clusters = work.count * self._clusters(work)
        rounds = -(-clusters // self._residents)
        panels = -(-work.k // self.block.depth)
        steps = -(-panels // self.block.splits)  # stages of a block's tile
        if self.pixels.taken:
            steps = work.k / self.block.depth
        after = self._after_seconds + (_SHORT_ROWS_SECONDS if self._is_short(work) else 0.0)
        products = self._product_seconds(steps, clusters / self._residents)
        if self.block.cluster != (1, 1) and not work.groups:
            products *= self._cluster_share(work, rounds)
        busy = rounds * self._tile_seconds(work, steps, products, after)
        (height, width), (along, across) = self.block.tile, self.block.cluster
        if self._is_plain and not work.groups and (work.m % height or work.n % width):
            past_a, past_b = -work.m % height / across, -work.n % width / along
            busy += steps * _PAST_SECONDS * (past_a if past_a > past_b else past_b)
        if self.block.is_ping_pong:
            busy += after
        if work.phases:
            busy = self._phases_seconds(work, after)
        busy += self._fill_seconds
        moved_bytes = work.moved_bytes + self._split_bytes(work)
        transfer = transfer_seconds(moved_bytes, self.target)
        if self._is_plain:  # of pixels it is not fitted
            transfer *= again_share(work.m, work.n, work.k, self.block.tile)
        elif self.block.is_ping_pong and (work.n > self.block.tile[1] or self.pixels.lines):
            transfer *= _PING_PONG_AGAIN
        if work.groups:
            transfer += transfer_seconds(self._weights_again(work), self.target)
        seconds = smooth_max(busy, transfer + self._fill_seconds + after)
        bound = "memory" if transfer > busy else "tensor cores" if rounds > 1 else "latency"
        return Prediction(_LAUNCH_SECONDS + seconds, bound)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether both operands are matrices, none of them pixels."""
        return not self.pixels.is_im2col and self.pixels.loads[0] == 1.0

    def _clusters(self, work: ProductWork) -> int:
        """The tiles of clusters of one product."""
        across = -(-work.n // self._wide)
        if not work.groups:
            return -(-work.m // self._tall) * across
        in_pairs = are_pairs(self.block.cluster, swaps=self.block.swaps)
        tall = self.block.tile[0] if in_pairs else self._tall
        # A group has half a tile more than its rows fill, and one at least.
        down = max(-(-work.m // tall) + work.groups // 2, work.groups)
        return -(-down * across // 2) if in_pairs else down * across

    def _cluster_share(self, work: ProductWork, rounds: int) -> float:
        """The share of the time of products that they take in clusters: with whole tiles past the
        end of a product, or where blocks load the smaller operand together, and that alone."""
        (down, across), (rows, columns) = self.block.cluster, self.block.tile
        tall, wide = -(-work.m // rows), -(-work.n // columns)
        past = sum(1 / -(-n // of) for n, of in ((tall, down), (wide, across)) if n % of)
        # Of the tiles that a cluster takes one after the other, as many as the busiest one has.
        found = 1 + (_PAST_END_SHARE - 1) * min(1.0, ceil(past * rounds) / rounds)
        shares_less = (down == 1 and work.m < work.n) or (across == 1 and work.n < work.m)
        return found * _LESS_SHARED if shares_less and self._is_plain else found

    def _weights_again(self, work: ProductWork) -> float:
        """Bytes that memory moves more, where several clusters multiply a group's weights and are
        not at the same place of k."""
        element = wgmma.ROW_BYTES // self.block.depth
        weights = work.groups * work.n * work.k * element * self.products
        clusters = work.m / work.groups / self._tall
        return weights * min(1.0, _GROUPS_AGAIN * max(0.0, clusters - 0.5))

    def _split_bytes(self, work: ProductWork) -> float:
        """Bytes that memory moves more, for outputs whose rows begin inside sectors."""
        if not work.split:
            return 0.0
        boxes = _SPLIT_STORE_SHARE * sum(work.split) * work.n
        seams = max(0, -(-work.n // self.block.tile[1]) - 1) * _SEAM_BYTES * len(work.split)
        within = 1 - 1 / self.block.cluster[1]
        seams *= 1 - within * (1 - _CLUSTER_SEAM_SHARE)
        return work.count * work.m * (boxes + seams)

    def _is_short(self, work: ProductWork) -> bool:
        """Whether a tile has few elements of a row of C."""
        return min(work.n, self.block.tile[1]) <= _SHORT_ROW

    def _tile_seconds(
        self, work: ProductWork, steps: float, products: float, after: float
    ) -> float:
        """Seconds from a tile of so many stages to a block's next one."""
        if not self.block.is_ping_pong:
            return products + after
        is_alone = self.block.cluster == (1, 1)
        hand_over = _PING_PONG_SECONDS if is_alone else _CLUSTER_PING_PONG_SECONDS
        if self.pixels.lines:  # loads of a long tile go on meanwhile
            least = _GRADIENT_PING_PONG_SECONDS if is_alone else _CLUSTER_GRADIENT_PING_PONG_SECONDS
            hand_over = max(hand_over / steps, least)
            if work.n < self.block.tile[1]:
                hand_over += _FEW_CHANNELS_PING_PONG_SECONDS
        products += hand_over
        # A warpgroup has two tiles' time for its own products and epilogue.
        return max(products, (products + after) / 2)

    def _phases_seconds(self, work: ProductWork, after: float) -> float:
        """Seconds of the cluster that has most to do, of tiles with as many stages as their phase
        has."""
        across, down = -(-work.n // self._wide), -(-work.m // self._tall)
        each = [
            self._tile_seconds(work, steps, self._product_seconds(steps), after)
            for steps in work.phases
        ]
        each *= work.count // len(work.phases)
        found = seconds_of_chunks(each, down, across, self.pixels.chunk, self._residents)
        return found + (after if self.block.is_ping_pong else 0.0)

    def _product_seconds(self, steps: float, busy: float = 1.0) -> float:
        """Seconds of a tile's stages, of which as many as there are come together, and wait once.

        busy: of the SMs, the share that have a tile.

        Not so those of pixels: where the numbers of convolutions were fitted, each waited.
        """
        if self.pixels.is_im2col or self.pixels.loads[0] < 1.0:
            least = 0.0 if self.pixels.is_im2col else _HALO_STEP_SECONDS
            return steps * max(self._step_seconds, self._wait, least)
        later, step = max(0.0, steps - self.block.stages), self._step_seconds
        if busy < 1.0 and self._is_plain and step > self._multiply_seconds:
            tma, by_threads = self._load_seconds
            step = max(self._multiply_seconds, tma * max(busy, _LEAST_BUSY), by_threads)
        return steps * step + later * max(0.0, self._wait - step)

    @cached_property
    def _fill_seconds(self) -> float:
        if self.block.cluster != (1, 1) or self.block.splits > 1:
            return _FILL_SECONDS + _CLUSTER_FILL_SECONDS
        return _FILL_SECONDS + (_HALO_FILL_SECONDS if self.pixels.loads[0] < 1.0 else 0.0)

    @property
    def _sides(self) -> tuple[tuple[float, float, bool], ...]:
        """The sides of A and B: (rows of a stage's tile, the part of them that a block loads,
        narrow?)."""
        block = self.block
        rows, columns = (n * share for n, share in zip(block.tile, self.pixels.loads, strict=True))
        sides = ((rows, block.cluster[1]), (self.products * columns, block.cluster[0]))
        return tuple(
            (side, side if is_narrow else side / blocks, is_narrow)
            for (side, blocks), is_narrow in zip(sides, self.operands.narrow, strict=True)
        )

    @cached_property
    def _load_seconds(self) -> tuple[float, float]:
        """Seconds of a stage's loads by TMA, while all SMs load, and by threads."""
        rows = sum(loaded for _, loaded, is_narrow in self._sides if not is_narrow)
        seconds = sum(_narrow_seconds(rows) for rows, _, is_narrow in self._sides if is_narrow)
        if any(self.operands.narrow):
            seconds += _NARROW_SECONDS
        return rows * _LINE_BYTES / (_LOAD_RATE * self.operands.share), seconds

    @cached_property
    def _step_seconds(self) -> float:
        load = max(self._load_seconds)
        if self.pixels.rewrites:
            rows = self.block.tile[0] * self.pixels.loads[0]
            load = max(load, rows * self.block.depth / _REWRITE_RATE)
        return max(self._multiply_seconds, load)

    @cached_property
    def _multiply_seconds(self) -> float:
        """Seconds of a stage's products, and of what goes on beside them but TMA's loads."""
        block, loaded = self.block, self.pixels
        rows, columns = block.tile[::-1] if block.swaps else block.tile
        narrow = _NARROW_GRADIENT_COLUMNS if loaded.lines else _NARROW_COLUMNS
        worked = narrow.get(columns, max(columns, _LEAST_COLUMNS))
        rate = self.mma_tflops * 1e12 / self.target.sm_count * _RATE_SHARE
        worked += _MORE_COLUMNS
        multiply = 2 * rows * worked * block.depth * loaded.multiplied * self.products / rate
        if columns > 128 and columns % 64 and self._is_plain:
            multiply *= _UNEVEN_SHARE
        if self._is_plain and rows == 256:
            multiply *= _TALL_SHARE
        if loaded.loads[0] < 1.0:
            multiply *= _PHASE_SHARE if loaded.has_phases else _HALO_SHARE
            multiply *= 1 + _FLIPPED_HALO_SHARE * max(0.0, loaded.lines - 1)
        if loaded.is_im2col and block.cluster[0] > 1:
            multiply *= _SHARED_FILTERS
        computed = self._computed_seconds()
        if block.producers:  # they take slots from those that multiply
            multiply = smooth_max(multiply, computed)
        elif self._computed_rows:
            multiply += computed
        # Bound by either, pixels and products hold each other up.
        pixels = self._pixel_seconds()
        seconds = smooth_max(smooth_max(multiply, pixels), loaded.taken)
        if not loaded.is_im2col:
            return seconds
        # Few stages do not cover what follows each other until one is free again.
        seconds = max(seconds, (_REFILL_SECONDS + pixels + multiply) / block.stages)
        return seconds * (_GRADIENT_PING_PONG_SHARE if loaded.lines and block.is_ping_pong else 1)

    @property
    def _computed_rows(self) -> float:
        """Rows of the operands' tiles that come out of g1, together."""
        shares, (rows, columns) = self.operands.computed, self.block.tile
        return shares[0] * rows + shares[1] * columns

    def _computed_seconds(self) -> float:
        """Seconds of a stage's elements that come out of g1."""
        elements = self._computed_rows * self.block.depth
        if not self.block.producers:
            rate = _INTEGER_FRAGMENT_RATE if self.operands.has_integers else _FRAGMENT_RATE
            return elements / rate
        rate = _INTEGER_COMPUTE_RATE if self.operands.has_integers else _COMPUTE_RATE
        return elements / (rate * (1 + _SECOND_PRODUCER * (self.block.producers - 1)))

    def _pixel_seconds(self) -> float:
        """Seconds of a stage's loads by im2col, and of the filters beside them."""
        if not self.pixels.is_im2col:
            return 0.0
        blocks, share, rate = self.block.cluster[0], _FILTER_SHARE, _IM2COL_RATE
        if self.pixels.lines:
            share, rate = self.pixels.lines, _GRADIENT_RATE
            share *= 1 + (blocks - 1) * (1 - _SHARED_FLIPPED)
        elif self.operands.share < 1.0:
            share += _SPLIT_FILTER_SHARE / (self.pixels.filters * self.block.cluster[0])
        rows = self.block.tile[0] / self.block.cluster[1] + share * self.block.tile[1] / blocks
        past = self.pixels.past / blocks * _PAST_ROW_SECONDS
        return rows * _LINE_BYTES / (rate * self.operands.share) + past

    @cached_property
    def _after_seconds(self) -> float:
        """Seconds of what follows a tile's products."""
        elements = self.block.tile[0] * self.block.tile[1]
        rate = _HEAVY_EPILOGUE_RATE if self.is_heavy else _EPILOGUE_RATE
        seconds = _TILE_SECONDS + elements / rate
        if self.is_direct:
            seconds += elements / _DIRECT_RATE
        if self.block.splits > 1:
            seconds += _SPLIT_SECONDS * log2(self.block.splits) + elements * 4 / _SPLIT_RATE
        return seconds


def seconds_of_chunks(
    each: Sequence[float], down: int, across: int, chunk: int, clusters: int
) -> float:
    """Seconds of the cluster that has most to do, of tiles that clusters take in rounds, every
    second round backwards; each: of a tile of each phase.  down, across: tiles of a phase.
    chunk: see `PixelLoads`.

    Whole chunks have as many tiles of every phase for each cluster; the last one has not.
    """
    whole, rest = divmod(down, chunk)
    tiles = [seconds for seconds in each for _ in range(rest * across)]
    step = 2 * clusters
    longest = max(
        sum(tiles[number::step]) + sum(tiles[step - 1 - number :: step])
        for number in range(clusters)
    )
    return whole * chunk * across * sum(each) / clusters + longest


def _narrow_seconds(rows: float) -> float:
    """Seconds of a stage's tile of so many rows, element by element."""
    rate = _NARROW_RATE if rows <= _TALL_ROWS else _TALL_NARROW_RATE
    return rows * 128 / rate + (_FEW_ROWS_SECONDS if rows < 16 else 0.0)


# A few hundred tiles are judged for each graph, at several sizes where it has symbols.
hopper_tile = lru_cache(maxsize=4096)(HopperTile)


def load_share(pitch_bytes: int) -> float:
    """The share of TMA's rate that operands come at.

    pitch_bytes: a number known to divide the distance between their rows.
    """
    return 1.0 if pitch_bytes % _LINE_BYTES == 0 else _SPLIT_LINE_SHARE
