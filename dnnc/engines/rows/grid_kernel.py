# pyright: basic
"""The kernel of engine grid; see the engine for the whole.

    for each level of reductions:
        for the slice's fragments: load (keep the first ones on the chip), combine
        merge the block's rows; write the block's part; meet all blocks of the group; merge parts
    for the slice's fragments, the last first: compute what comes after, store

A block has a group of kept fragments, `columns` side by side, and a slice of the reduced elements:
every so many `rows` of them.
What was read last is read again first, since L2 is told to keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.memory.l2 import SecondCache
from ...codegen.memory.smem import byte_pointer
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.stretch import stretch
from ...codegen.totals import moments, reduce
from ...codegen.totals.grid_barrier import COUNTER_BYTES, GridBarrier
from ...codegen.totals.group_totals import BlockPlace, GroupTotals, ThreadPlace
from ...codegen.totals.moments import MIDDLE_OF, Distances, Shifted, start_of
from ...codegen.totals.parts import Average, Moments, Plain, Quantity
from ...codegen.walk.fragments import Fragments, Slots, fragment_bytes
from ...codegen.walk.loops import Loops, coordinates_of
from ...codegen.walk.region_walk import Walk, inputs_of, is_reduction
from ...dialect.tensor import Tensor
from ...expr import Expr, ceildiv, device_dim, maximum, minimum
from ...target import Target
from .grid_records import GridLayout, GridTiling
from .region import coordinates_read

# Of 16 to 43 MB of an H100's 50 MB, a batch norm of 103 MB took least with 30 to 35.
_L2_SHARE = 0.65
_UNTOLD_L2_SHARE = 0.38  # of it, what is found of what was read last, without hints


def slices_of(groups: Expr, sm_count: int) -> Expr:
    """Slices of the reduced elements, a block each; sm_count: that the workspace is made for."""
    resident = minimum(device_dim("sm_count"), sm_count)
    return maximum(resident // maximum(groups, 1), 1)


def l2_bytes(target: Target) -> int:
    """Bytes that the L2 cache keeps, and is told to where there are hints."""
    share = _L2_SHARE if SecondCache.is_of(target) else _UNTOLD_L2_SHARE
    return int(share * (target.l2_mib << 20))


@dataclass
class GridEmitter:
    """The kernel of one fusion."""

    region: Region
    tiling: GridTiling
    output: Output

    def __post_init__(self) -> None:
        t, region = self.tiling, self.region
        reductions = [op for op in region.generics() if is_reduction(op)]
        self.dims = region.dims_of(inputs_of(reductions[0])[0])
        totals = dict(zip(reductions, t.totals, strict=True))
        self.distances = {
            op: reductions[total.of] for op, total in totals.items() if total.way == "distances"
        }
        averages = [op for op, total in totals.items() if total.way == "average"]
        self.averages = {op: moments.mean_of(op) for op in averages}
        self.levels = [
            [op for op, total in totals.items() if total.level == level]
            for level in range(t.levels)
        ]
        self.is_row = t.along == "row"
        width = t.vector_elems
        self.kept = Loops(self.dims, t.axes.kept, 1 if self.is_row else width)
        self.reduced = Loops(self.dims, t.axes.reduced, width if self.is_row else 1)
        self.groups = ceildiv(self.kept.fragments, t.columns)
        self.slices = slices_of(self.groups, self.output.target.sm_count)

    def emit(self) -> None:
        kernel = self.output.kernel("", self.tiling.threads)
        kernel.min_blocks = 1
        counters = self.output.workspace("counters", self.groups * COUNTER_BYTES)
        self.output.memset(counters, self.groups * COUNTER_BYTES)
        self._name_parts()
        with kernel.body():
            _Block(self, kernel, kernel.workspace(counters)).emit()
        self.output.launch(kernel, (self.groups * self.slices, 1, 1), cooperative=True)

    # ---- the parts that blocks leave, by level

    def _name_parts(self) -> None:
        t, most = self.tiling, maximum(self.groups, self.output.target.sm_count)
        self.parts = [
            self.output.workspace(f"parts{i}", most * t.shape.global_bytes(t.quantities(i)))
            for i in range(t.levels)
        ]

    def summed(self, level: Sequence[Any]) -> list[Any]:
        """The reductions of a level that threads make parts of: a mean comes with the squared
        distances from it."""
        return [op for op in level if op not in self.distances.values()]

    @cached_property
    def layout(self) -> GridLayout:
        return GridLayout(self.tiling)

    # ---- what is read

    @cached_property
    def arguments(self) -> list[tuple[Any, Tensor]]:
        return list(self.region.arguments.items())

    @cached_property
    def again(self) -> list[tuple[Any, Tensor]]:
        """The arguments that are read in the first pass and again later, element by element."""
        return [self.arguments[load.argument] for load in self.tiling.again]

    @cached_property
    def pinned(self) -> int:
        """Fragments of a thread that L2 is told to keep."""
        t, target = self.tiling, self.output.target
        of_thread = sum(fragment_bytes(load.bits, t.vector_elems) for load in t.again)
        return l2_bytes(target) // (target.sm_count * t.threads * max(1, of_thread))


class _Block:
    """One thread of one block."""

    def __init__(self, grid: GridEmitter, kernel: Kernel, counters: Any):
        self.grid, self.kernel, self.tiling = grid, kernel, grid.tiling
        t = grid.tiling
        self.width = t.vector_elems
        block = ops.block_id()
        self.slice = kernel.divide(block, grid.groups)
        self.group = kernel.remainder(block, grid.groups, self.slice)
        thread = ops.thread_id()
        self.row, self.column = thread // t.columns, thread % t.columns
        self.thread = thread
        fragment = self.group * t.columns + self.column
        count = kernel.size(grid.kept.fragments)
        self.is_kept_inside = None if self.grid.is_row else fragment < count
        clamped = fragment if grid.is_row else ops.minimum(fragment, count - 1)
        self.at_kept = grid.kept.coordinates(kernel, clamped)
        self._take_slice()
        counter = ops.gep(counters, self.group, ops.i32_type())
        self.barrier = GridBarrier(counter, kernel.size(grid.slices))
        self.memory = kernel.dynamic_shared(grid.layout.bytes)
        self.leaves: dict[Any, Any] = dict(grid.region.leaves(kernel))
        self.walk = Walk(kernel, self.leaves, grid.region.symbols)
        full = tuple(grid.dims)
        # What is read again had better stay in L2.
        targets = grid.region.targets(kernel)
        outputs = [(v, replace(target, is_streamed=True)) for v, target in targets]
        self.whole = [(v, o) for v, o in outputs if o.tensor.shape == full]
        self.of_kept = [(v, o) for v, o in outputs if o.tensor.shape != full]

    def _take_slice(self) -> None:
        """first: reduced fragment of this thread; count: of its fragments, `step` apart.

        All blocks go through the reduced elements together, each taking `rows` at a time: what
        one has of them fits 31 bits.
        """
        kernel, t = self.kernel, self.tiling
        total = self._total
        self.step = kernel.size(self.grid.slices * t.rows)
        self.first = self.slice * t.rows + self.row
        left = ops.maximum(total - self.first, 0)
        self.count = ops.to_i32((left + (self.step - 1)) // self.step)

    @property
    def _total(self) -> Any:
        """The number of reduced fragments."""
        return self.kernel.size(self.grid.reduced.fragments, self.grid.reduced.bits)

    @cached_property
    def fragments(self) -> Fragments:
        """This thread's."""
        t, grid = self.tiling, self.grid
        slots = byte_pointer(self.memory, grid.layout.exchange_bytes)
        has_hints = SecondCache.is_of(grid.output.target)
        return Fragments(
            self.walk, self.width, self.at, self.count, grid.again,
            Slots(t.held, t.threads, self.thread, slots), t.together, t.together, t.in_registers,
            SecondCache(self.count, grid.pinned) if has_hints else None,
        )  # fmt: skip

    # ---- places

    def at(self, i: Any) -> list[Any]:
        i = ops.of_bits(i, self.grid.reduced.bits)
        fragment = self.first + i * self.step
        reduced = self.grid.reduced.coordinates(self.kernel, fragment)
        return coordinates_of(len(self.grid.dims), self.at_kept, reduced)

    # ---- the whole

    def emit(self) -> None:
        self._load_kept(0)
        for number, level in enumerate(self.grid.levels):
            parts = self._parts(number, level)
            # While other blocks are waited for, and not beside the pass before: registers are few.
            self._load_kept(number + 1)
            summed = self.grid.summed(level)
            for op, found in zip(summed, self._totals(number, level, parts), strict=True):
                if op in self.grid.distances:
                    self.leaves[moments.mean_of(self.grid.distances[op])] = reduce.Total(found[0])
                made = self.grid.averages.get(op, op.results[0])
                self.leaves[made] = reduce.Total(found[-1])
        self._store_of_kept()
        if self.whole:
            self._store_whole()

    def _load_kept(self, number: int) -> None:
        """Loads what a pass reads that is the same along the reduced axes, ahead of its loop."""
        reduced = {axis for group in self.tiling.axes.reduced for axis in group}
        at = coordinates_of(len(self.grid.dims), self.at_kept)
        for read in self.tiling.reads[number]:
            if read.is_known and not reduced.intersection(read.at):
                leaf, _ = self.grid.arguments[read.argument]
                self.walk.value(leaf, coordinates_read(read, at), self.width)

    # ---- a level

    @stretch("sum of rows")
    def _parts(self, number: int, level: Sequence[Any]) -> list[list[Any]]:
        """This thread's parts of a level's totals."""
        grid, is_row = self.grid, self.grid.is_row
        level = grid.summed(level)
        sources = [inputs_of(grid.distances.get(op, op))[0] for op in level]
        combines = [reduce.combiner(self.walk, op) for op in level]
        adding = self._adding(level)
        start = [
            adding[op].start() if op in adding else reduce.start(op, self.width, is_row=is_row)
            for op in level
        ]

        def use(now: list[Any], values: Sequence[Any]) -> list[Any]:
            found = list[Any]()
            for op, combine, own, value in zip(level, combines, now, values, strict=True):
                if op in adding:
                    found.append(adding[op].add(own, value))
                else:
                    found.append(combine(own, reduce.taken(op, value, is_row=is_row)))
            return found

        def values(walk: Walk, at: Any) -> list[Any]:
            return [walk.value(source, at, self.width) for source in sources]

        if number:
            is_last = number == len(grid.levels) - 1 and not self.whole
            sums = self.fragments.later_pass(values, start, use, is_last=is_last)
        else:
            sums = self.fragments.first_pass(values, start, use)
        parts: list[list[Any]] = []
        for op, combine, own in zip(level, combines, sums, strict=True):
            if op in adding:
                part = adding[op].part(own, self.count)
                parts.append(moments.folded(part) if is_row else part)
                continue
            total = reduce.lanes(own, combine) if is_row else own
            if op in grid.averages:
                count = self.count * grid.reduced.width
                parts.append(moments.part_of_total(total, count))
            else:
                parts.append([total])
        return parts

    def _adding(self, level: Sequence[Any]) -> dict[Any, Shifted | Distances]:
        """The quantities that add up distances from one of this thread's first elements: squared
        ones, and across rows those of an average, of which sums of f64 would take too many
        registers."""
        grid, is_row = self.grid, self.grid.is_row
        sources = {op: grid.distances[op] for op in level if op in grid.distances}
        sources |= {op: op for op in level if op in grid.averages and not is_row}
        if not sources:
            return {}
        walk = self.walk.branch()
        last = self._total - 1
        places = []
        for step in range(1 if is_row else MIDDLE_OF):
            fragment = ops.minimum(self.first + step * self.step, last)
            reduced = grid.reduced.coordinates(self.kernel, fragment)
            places.append(coordinates_of(len(grid.dims), self.at_kept, reduced))
        found: dict[Any, Shifted | Distances] = {}
        for op, of in sources.items():
            firsts = [walk.value(inputs_of(of)[0], at, self.width) for at in places]
            start = start_of(firsts, is_row=is_row)
            found[op] = Shifted(start) if op in grid.distances else Distances.from_(start)
        return found

    def _totals(self, number: int, level: Sequence[Any], parts: Sequence[Any]) -> list[Any]:
        """The totals of a level's reductions, in all threads; a mean before the squares."""
        quantities = [self._quantity(op) for op in self.grid.summed(level)]
        kernel, grid = self.kernel, self.grid
        exchange = GroupTotals(
            self.tiling.shape, quantities,
            ThreadPlace(self.thread, self.row, self.column), self.memory,
            kernel.workspace(grid.parts[number], is_exclusive=False),
            BlockPlace(self.slice, kernel.size(grid.slices), self.group, kernel.size(grid.groups)),
            self._count_of, self.barrier,
            is_spread=grid.tiling.is_spread,
        )  # fmt: skip
        return exchange.totals(parts)

    def _quantity(self, op: Any) -> Quantity:
        if op in self.grid.distances:
            return Moments()
        if op in self.grid.averages:
            return Average()
        return Plain(reduce.combiner(self.walk, op), reduce.identity(op, 1))

    def _count_of(self, slice_: Any, row: Any, rows: int) -> Any:
        """Elements that some rows of a slice's block reduce, for each entry."""
        total = self._total
        whole = total // self.step
        first = slice_ * self.tiling.rows + row
        left = total - whole * self.step - first
        count = whole * rows + ops.maximum(ops.minimum(left, rows), 0)
        return ops.to_i32(count) * self.grid.reduced.width

    # ---- stores

    @stretch("epilogue")
    def _store_whole(self) -> None:
        def values(walk: Walk, at: Any) -> Any:
            return at, [walk.value(value, at, self.width) for value, _ in self.whole]

        def use(nothing: tuple[()], found: Any) -> tuple[()]:
            at, made = found
            for (_, target), value in zip(self.whole, made, strict=True):
                target.store(at, value, self.is_kept_inside)
            return nothing

        self.fragments.later_pass(values, (), use, stores=True)

    @stretch("epilogue")
    def _store_of_kept(self) -> None:
        """The results of whole rows, by the first slice."""
        if not self.of_kept:
            return
        is_first = ops.compare("eq", self.slice | self.row, 0)
        at = coordinates_of(len(self.grid.dims), self.at_kept)
        with ops.if_(ops.both(is_first, self.is_kept_inside)):
            walk = self.walk.branch()
            for value, target in self.of_kept:
                target.store(at, walk.value(value, at, self.grid.kept.width))
