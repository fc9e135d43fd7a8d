# pyright: basic
"""The kernel of products with `mma.sync`, whatever is multiplied: main loop and epilogue.

    stage s of S:   | A tile | B tile |   swizzled, loaded S - 1 tiles ahead
    before:         start loading tiles 0 .. S - 2
    k tile:         wait for its stage; barrier; start loading tile k + S - 1; multiply tile k
    epilogue:       barrier; accumulators -> shared memory; barrier;
                    fragments of up to 16 bytes: walk of g2 -> outputs; partials of reductions

A block computes one tile [tile_m, tile_n]; tiles are numbered in groups of rows, so that blocks
that run together share operands in L2.  What goes through registers is loaded before a tile is
multiplied and stored after it.  What the operands are in the graph, and where the elements of the
product lie, is said by `Matrices`: of a matmul, the last two axes of its tensors; of a convolution,
pixels and channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ...codegen import ops
from ...codegen.ampere import mma
from ...codegen.ampere.async_ring import AsyncRing, Slots
from ...codegen.ampere.operand_tile import LoadPlan
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.smem import CHUNK_BYTES
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.state import each, loop
from ...codegen.stretch import stretch
from ...codegen.tiles.schedule import TileOrder
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.loops import Loops
from ...codegen.walk.region_walk import Walk
from ...dialect import structure
from ...dialect.attributes import data_type_of
from ...dialect.fusion import Fusion
from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...expr import Expr, ceildiv
from ...target import WARP_THREADS, Target
from .choice_sm80 import Sm80Choice
from .exit_sm80 import TileExits
from .exits import SpaceAxes, exit_reductions
from .knobs_sm80 import GROUP_ROWS, warps_of
from .multiplier_sm80 import Multiplier
from .shared_layout_sm80 import SharedLayout
from .tile_sm80 import ProductTiling

Batch = Mapping[int, Coordinate]
_BESIDE_ROWS = 64  # of the tallest tile of several products of which each has a good part


class Operand(Protocol):
    """A tile of an operand, see `OperandTile`, and how its elements get there."""

    is_async: bool
    shape: Any

    @property
    def is_paired(self) -> bool: ...

    def start(self, batch: Batch, first_row: Any) -> Any:
        """The place that the tiles along k, from a row of a matrix on, have in common."""
        ...

    def issue(self, place: Any, first_k: Any, slot: Any) -> None:
        """Starts to bring a tile, from k on, into shared memory at `slot`: after the next wait and
        barrier it is there."""
        ...

    def fetch(self, walk: Walk, place: Any, first_k: Any) -> list[Any]:
        """The fragments of a tile that this thread stores, in registers."""
        ...

    def put(self, values: Sequence[Any], slot: Any) -> None: ...

    def fragments(self, slot: Any, first: Any, count: int, step: Any) -> list[list[Any]]: ...


class MatrixSpace(Protocol):
    """Where the elements of the product lie in tensors of its dims."""

    def at(self, batch: Batch, row: Index, column: Index, width: int) -> list[Coordinate]:
        """The coordinates of a fragment of `width` elements along rows or columns."""
        ...

    def is_there(self, batch: Batch, row: Any) -> Any:
        """Whether a row before the end is of the product, i1; None: it is."""
        ...


@dataclass(frozen=True)
class Matrices:
    """The matrices that a kernel multiplies; see the file's docstring.

    call: of the anchor.  a, b: tiles of its operands.  sizes: rows, columns and k of a matrix.
    batch: loops over the matrices.  space: of what the epilogue reads and writes.  axes: for
    reductions at the exit; None: there are none.
    beside: products side by side in a tile, each of its own columns and its own part of A's rows.
    depth_of: k of a matrix of the batch, where it differs from one to the next.
    meets: whether eight columns from one of the tile's on have products with a tile along k of a
    number, i1, None: they have; the field's None: all have.
    """

    call: Any
    a: Operand
    b: Operand
    sizes: tuple[Expr, Expr, Expr]
    batch: Loops
    space: MatrixSpace
    axes: SpaceAxes | None = None
    beside: int = 1
    depth_of: Callable[[Batch], Any] | None = None
    meets: Callable[[Any, int], Any] | None = None


def anchor_call(region: Region) -> Any:
    """The call of the product of a region."""
    return next(op for op in region.operations if op.name == "func.call")


def operand_types(region: Region) -> tuple[DType, DType]:
    """The types of A and B."""
    a, b, *_ = (data_type_of(value) for value in anchor_call(region).operands)
    return a, b


def multiplier_of(region: Region, tile: ProductTiling, target: Target) -> Multiplier:
    """How the operands are multiplied."""
    compute = structure.compute_type_of(anchor_call(region))
    return Multiplier(operand_types(region), compute, tile.products, target)


def whole_outputs(fusion: Fusion, made: Tensor) -> list[Tensor]:
    """The outputs of the elements of a product that gives `made`: the others are of reductions at
    its exit."""
    return [t for t in fusion.outputs if t is made or t.shape == made.shape]


def fragment_width(outputs: Iterable[DType], extent: Expr) -> int:
    """Elements of the epilogue's fragments along an extent.  outputs: types of those of the
    product's elements."""
    smallest = min((max(8, type_.bits) for type_ in outputs), default=8)
    width = min(8, 128 // smallest)
    while extent.known_divisor() % width:
        width //= 2
    return width


def output_paths(fusion: Fusion, whole: Sequence[Tensor]) -> list[str]:
    """Path of each output: "direct", or "exit", of a reduction over several tiles."""
    return ["direct" if t in whole else "exit" for t in fusion.outputs]


def tile_plan(
    choice: Sm80Choice, a: LoadPlan, b: LoadPlan, along: str, width: int,
    outputs: Sequence[str] = ("direct",),
) -> ProductTiling:  # fmt: skip
    """The tiling.  a, b: plans of the operands.  along: the axis, m or n, that the epilogue's
    fragments lie along; width: their elements.  outputs: see `output_paths`."""
    return ProductTiling(
        (*choice.tile, choice.depth), warps_of(choice.tile), choice.stages, GROUP_ROWS, a, b,
        along, width, choice.products or 1, tuple(outputs),
    )  # fmt: skip


def emit_product(
    region: Region,
    tile: ProductTiling,
    output: Output,
    matrices_of: Callable[[Kernel, Region, Any], Matrices],
) -> None:
    """The kernel of a region, and its launch."""
    warps_m, warps_n = tile.warps
    kernel = output.kernel("", warps_m * warps_n * WARP_THREADS)
    output.needs_ptx(multiplier_of(region, tile, output.target).ptx_version)
    with kernel.body():
        emitter = _Emitter(kernel, region, tile, matrices_of(kernel, region, tile))
        kernel.min_blocks = emitter.blocks_together
        emitter.emit()
    output.launch(kernel, (emitter.order.tiles, 1, 1))
    if emitter.exits:
        emitter.exits.emit_second(output)


@dataclass(frozen=True)
class Mainloop:
    """The state that goes from k tile to k tile.  sums: the accumulators, m tile by n tile, four
    scalars each."""

    slots: Slots
    sums: Sequence[Any]


@dataclass
class _Emitter:
    """One kernel, top to bottom."""

    kernel: Kernel
    region: Region
    tile: ProductTiling
    matrices: Matrices

    def __post_init__(self) -> None:
        self.multiplier = multiplier_of(self.region, self.tile, self.kernel.target)
        self.tile_m, self.tile_n, self.tile_k = self.tile.sides
        self.warps_m, self.warps_n = self.tile.warps
        self.a, self.b = self.matrices.a, self.matrices.b
        self.m, self.n, self.k = self.matrices.sizes
        self.batch = self.matrices.batch
        self.leaves = self.region.leaves(self.kernel)
        self.walk = Walk(self.kernel, self.leaves, self.region.symbols)
        self.warp_m = self.tile_m // self.warps_m
        self.warp_n = self.tile_n // self.warps_n
        self.m_tiles, self.n_tiles = self.warp_m // mma.M, self.warp_n // mma.N
        outputs = zip(self.region.outputs, self.tile.outputs, strict=True)
        self.whole = [value for (value, _), path in outputs if path == "direct"]
        size = operand_types(self.region)[0].bits // 8
        self.layout = SharedLayout.of_tile(self.tile, size, self.matrices.beside)
        self.ring = AsyncRing(self.layout.stages, self.layout.stage_bytes)
        self.exits = self._exits()

    def _exits(self) -> TileExits | None:
        """The reductions that outputs of other dims come from; None: there are none."""
        operations = exit_reductions(self.region, self.tile.outputs)
        if not operations:
            return None
        assert self.matrices.axes, "reductions of a product that has no exits"
        return TileExits(
            self.kernel, self.region, operations, self.matrices.axes, (self.m, self.n),
            self.batch, (self.tile_m, self.tile_n),
        )  # fmt: skip

    @property
    def blocks_together(self) -> int:
        """How many blocks of an SM the registers are to be kept small enough for.

        Two of the middle tile: one's epilogue then runs beside the other's main loop.  Three of
        the tallest of products side by side, for whose two stages there is memory.
        """
        is_middle = (self.tile_m, self.tile_n) == (128, 128)
        # More addresses, of narrower copies, would not fit.
        is_copied = self.tile.a.access_bytes == self.tile.b.access_bytes == CHUNK_BYTES
        is_light = is_copied and self.multiplier.is_light(self.tile_k)
        if self.matrices.beside > 1:
            return 3 if self.tile_m == _BESIDE_ROWS and is_light else 0
        return 2 if is_middle and is_light else 0

    def emit(self) -> None:
        base = self.kernel.dynamic_shared(self.layout.bytes)
        batch, tile_row, tile_column = self._tile_of_block()
        self.first_m = tile_row * self.tile_m
        self.first_n = tile_column * self.tile_n
        warp = ops.thread_id() >> 5
        self.warp_row = warp % self.warps_m * self.warp_m
        self.warp_column = warp // self.warps_m * self.warp_n
        totals = self._main_loop(base, batch)
        self._epilogue(base, totals, batch)

    @property
    def order(self) -> TileOrder:
        rows, columns = ceildiv(self.m, self.tile_m), ceildiv(self.n, self.tile_n)
        return TileOrder(rows, columns, self.batch.fragments, self.tile.group_rows)

    def _tile_of_block(self) -> tuple[dict[int, Coordinate], Any, Any]:
        """(batch coordinates, row and column of the block's tile), rows in groups."""
        matrix, row, column = self.order.place(self.kernel, ops.block_id())
        batch = self.batch.coordinates(self.kernel, matrix) if self.batch.groups else {}
        return batch, row, column

    # ---- main loop

    def _main_loop(self, base: Any, batch: Batch) -> Sequence[Any]:
        """The accumulators of all k tiles."""
        places = (self.a.start(batch, self.first_m), self.b.start(batch, self.first_n))
        steps, ahead = self._steps(batch), self.ring.stages - 1
        zero = ops.zeros(self.multiplier.sums_type)
        for stage in range(ahead):
            with ops.if_(stage < steps):
                self._load(smem.byte_pointer(base, stage * self.ring.stage_bytes), stage, places)
            smem.commit()
        start = Mainloop(self.ring.first(), [zero] * (self.m_tiles * self.n_tiles * 4))

        @loop(0, steps, state=start)
        def end(i: Any, now: Mainloop) -> Mainloop:
            self.ring.wait()
            following = i + ahead
            is_more = following < steps
            filled = smem.byte_pointer(base, now.slots.filled)
            held = self._start_load(filled, following, steps - 1, is_more, places)
            smem.commit()
            sums = self._multiply_stage(smem.byte_pointer(base, now.slots.read), now.sums, i)
            self._finish_load(filled, held, is_more)
            return Mainloop(self.ring.next(now.slots), sums)

        smem.wait(0)
        return end.sums

    def _steps(self, batch: Batch) -> Any:
        """Tiles along k of the block's matrix."""
        if self.matrices.depth_of is None:
            return self.kernel.size(ceildiv(self.k, self.tile_k))
        depth = self.matrices.depth_of(batch)
        return (depth + (self.tile_k - 1)) // self.tile_k

    def _slots(self, slot: Any) -> tuple[Any, Any]:
        return slot, smem.byte_pointer(slot, self.layout.a_bytes)

    @stretch("load")
    def _load(self, slot: Any, tile: Any, places: Sequence[Any]) -> None:
        """Loads k tile number `tile` into a stage."""
        first_k = tile * self.tile_k
        slots = self._slots(slot)
        for operand, place, target in zip((self.a, self.b), places, slots, strict=True):
            if operand.is_async:
                operand.issue(place, first_k, target)
            else:
                operand.put(operand.fetch(self.walk, place, first_k), target)
                self.walk.forget()

    @stretch("load")
    def _start_load(
        self, slot: Any, tile: Any, last: Any, condition: Any, places: Sequence[Any]
    ) -> list[Any]:
        """Issues the loads of a k tile; what goes through registers comes back."""
        first_k = tile * self.tile_k
        held: list[Any] = []
        slots = self._slots(slot)
        for operand, place, target in zip((self.a, self.b), places, slots, strict=True):
            if operand.is_async:
                with ops.if_(condition):
                    operand.issue(place, first_k, target)
            else:
                # Past the last tile it is loaded again, inside the tensor, and not stored.
                again = ops.minimum(tile, last) * self.tile_k
                held.append(operand.fetch(self.walk, place, again))
                self.walk.forget()
        return held

    @stretch("load")
    def _finish_load(self, slot: Any, held: Sequence[Any], condition: Any) -> None:
        rest = iter(held)
        for operand, target in zip((self.a, self.b), self._slots(slot), strict=True):
            if not operand.is_async:
                with ops.if_(condition):
                    operand.put(next(rest), target)

    @stretch("mainloop")
    def _multiply_stage(self, slot: Any, sums: Sequence[Any], tile: Any) -> list[Any]:
        """The accumulators with the product of a stage's tiles, of a number along k."""
        if self.matrices.meets:
            return self._multiply_met(slot, sums, tile, self.matrices.meets)
        return self._multiply(slot, sums)

    def _multiply(self, slot: Any, sums: Sequence[Any]) -> list[Any]:
        """Adds the product of a stage's tiles to the accumulators."""
        sums = list(sums)
        a_slot, b_slot = self._slots(slot)
        for step in range(self.tile_k // self.multiplier.step_k):
            b = self.b.fragments(b_slot, self.warp_column, self.n_tiles, step)
            for first, count, a_step in self._shares(step):
                a = self.a.fragments(a_slot, self.warp_row, self.m_tiles, a_step)
                place = partial(self._place_of_sums, first)
                self.multiplier.add(a, b[first : first + count], sums, place)
        return sums

    def _place_of_sums(self, first: int, i: int, j: int) -> int:
        """Where the sums of an m tile and the j-th n tile from the first on begin."""
        return (i * self.n_tiles + first + j) * 4

    def _multiply_met(
        self, slot: Any, sums: Sequence[Any], tile: Any, meets: Callable[[Any, int], Any]
    ) -> list[Any]:
        """Adds the product of a stage's tiles where columns meet a tile along k."""
        assert self.warps_n == 1, "a warp has all columns"
        sums, steps = list(sums), range(self.tile_k // self.multiplier.step_k)
        a_slot, b_slot = self._slots(slot)
        a = [self.a.fragments(a_slot, self.warp_row, self.m_tiles, step) for step in steps]
        b = [self.b.fragments(b_slot, self.warp_column, self.n_tiles, step) for step in steps]

        def added(places: Sequence[int], j: int) -> list[Any]:
            found = [total for place in places for total in sums[place : place + 4]]
            for step in steps:
                self.multiplier.add(a[step], [b[step][j]], found, lambda i, _: 4 * i)
            return found

        for j in range(self.n_tiles):
            places = [(i * self.n_tiles + j) * 4 for i in range(self.m_tiles)]
            own = [total for place in places for total in sums[place : place + 4]]
            is_met = meets(tile, j * mma.N)
            if is_met is None:
                made = added(places, j)
            else:
                types = [total.type for total in own]
                made = ops.either(
                    is_met, types, lambda p=places, j=j: added(p, j), lambda own=own: own
                )
            for i, place in enumerate(places):
                sums[place : place + 4] = made[4 * i : 4 * i + 4]
        return sums

    def _shares(self, step: int) -> list[tuple[int, int, Any]]:
        """(the first of a warp's n tiles, how many, the step of A's tile) of each product."""
        if self.matrices.beside == 1:
            return [(0, self.n_tiles, step)]
        columns = self.tile_n // self.matrices.beside
        count = min(columns // mma.N, self.n_tiles)
        own = self.warp_column // columns
        steps = self.tile_k // self.multiplier.step_k
        return [
            (first, count, (own + i) * steps + step)
            for i, first in enumerate(range(0, self.n_tiles, count))
        ]

    # ---- epilogue

    @stretch("epilogue")
    def _epilogue(self, base: Any, totals: Sequence[Any], batch: Batch) -> None:
        """Accumulators to shared memory, then g2 on fragments of the outputs."""
        ops.barrier()  # every warp has read its last operands
        self._store_totals(base, totals)
        ops.barrier()
        along, width = self.tile.along, self.tile.vector_elems
        rows, columns = (
            (self.tile_m, self.tile_n // width)
            if along == "n"
            else (self.tile_m // width, self.tile_n)
        )
        fast = columns if along == "n" else rows

        def one(i: Any) -> None:
            piece = ops.thread_id() + i * self.kernel.threads
            slow, quick = piece // fast, piece % fast
            if along == "n":
                self._emit_fragment(base, batch, slow, quick * width, width, along)
            else:
                self._emit_fragment(base, batch, quick * width, slow, width, along)

        if self.whole:
            each(0, rows * columns // self.kernel.threads)(one)
        if self.exits:
            first = (self.first_m, self.first_n)
            self.exits.write(
                lambda *at: self._element(base, batch, *at), batch, first,
                lambda row: self.matrices.space.is_there(batch, self.first_m + row),
            )  # fmt: skip

    def _element(
        self, base: Any, batch: Batch, row: Any, column: Any
    ) -> tuple[Walk, Sequence[Coordinate]]:
        """The walk of g2 at an element of the tile, and where that is."""
        m, n = self.first_m + row, self.first_n + column
        at = self.matrices.space.at(batch, Index(m), Index(n), 1)
        totals = _Totals(self, base, row, column, True)
        leaves = {**self.leaves, self.matrices.call.results[0]: totals}
        return Walk(self.kernel, leaves, self.region.symbols), at

    def _store_totals(self, base: Any, totals: Sequence[Any]) -> None:
        lane = ops.thread_id() & (WARP_THREADS - 1)
        together = 2 if self.b.is_paired else 1  # n tiles whose columns lie between each other's
        for i in range(self.m_tiles):
            for j in range(0, self.n_tiles, together):
                for half in (0, 1):
                    row, column = mma.accumulator_place(lane, 2 * half)
                    if self.a.is_paired:
                        row = ((lane >> 2) << 1) + half
                    row = self.warp_row + i * mma.M + row
                    column = self.warp_column + j * mma.N + column * together
                    place = (i * self.n_tiles + j) * 4 + 2 * half
                    own = [totals[place + e + 4 * tile] for e in (0, 1) for tile in range(together)]
                    offset = row * self.layout.sums_stride + column * 4
                    ops.store(smem.byte_pointer(base, offset), ops.from_elements(own), 4 * len(own))

    def _emit_fragment(
        self,
        base: Any,
        batch: Batch,
        row: Any,
        column: Any,
        width: int,
        along: str,
    ) -> None:
        m, n = self.first_m + row, self.first_n + column
        m_size, n_size = self.kernel.size(self.m), self.kernel.size(self.n)
        is_inside = ops.both(m < m_size, n < n_size)
        is_inside = ops.both(is_inside, self.matrices.space.is_there(batch, m))
        m_step, n_step = (0, 1) if along == "n" else (1, 0)
        with ops.if_(is_inside):
            at = self.matrices.space.at(
                batch,
                Index(m, m_step if width > 1 else 0, width if m_step else 1),
                Index(n, n_step if width > 1 else 0, width if n_step else 1),
                width,
            )
            totals = _Totals(self, base, row, column, along == "n")
            leaves = {**self.leaves, self.matrices.call.results[0]: totals}
            walk = Walk(self.kernel, leaves, self.region.symbols)
            targets = [t for t in self.region.targets(self.kernel) if t[0] in self.whole]
            values = [walk.value(value, at, width) for value, _ in targets]
            for (_, target), value in zip(targets, values, strict=True):
                target.store(at, value)


@dataclass(frozen=True)
class _Totals:
    """The product's tile in shared memory, as a leaf of the walk of g2.

    row, column: of the fragment within the tile; g2 reads the product at no other place.
    is_along_row: whether its elements lie in one row.
    """

    emitter: _Emitter
    base: Any
    row: Any
    column: Any
    is_along_row: bool

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        e = self.emitter
        element = e.multiplier.sums_type
        stride = e.layout.sums_stride
        offset = self.row * stride + self.column * 4
        if width == 1 or self.is_along_row:
            pointer = smem.byte_pointer(self.base, offset)
            return ops.load(pointer, ops.vector_type(element, width), min(16, 4 * width))
        found = []
        for i in range(width):
            pointer = smem.byte_pointer(self.base, offset + i * stride)
            found.append(ops.load(pointer, element, 4))
        return ops.from_elements(found)
