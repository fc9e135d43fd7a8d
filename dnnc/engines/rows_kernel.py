# pyright: basic
"""The kernels of engine rows; see the engine for the whole.

    for each group of rows of a block:
        for each level of reductions: load (once, where rows are held), combine
        store what comes after the last
    where columns are summed too: store the block's sums, which a second kernel adds up

A level is the reductions that need those of the levels before, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import gcd
from typing import Any

from ..codegen import cluster, moments, ops, reduce
from ..codegen.exponentials import RunningSum, sums_of_exponentials
from ..codegen.fragments import Fragments, kept_bytes
from ..codegen.index import Coordinate, Index
from ..codegen.kernel import Kernel
from ..codegen.loops import Loops, coordinates_of
from ..codegen.memory import GlobalTensor
from ..codegen.moments import Shifted
from ..codegen.output import Output
from ..codegen.parts import inverse, times, to_f32
from ..codegen.pipeline import Cursor
from ..codegen.reduce import Combine
from ..codegen.region import Access, Region, identity_access
from ..codegen.row_ring import RowRing, is_run, ring_bytes
from ..codegen.row_totals import RowTotals
from ..codegen.walk import Walk, inputs_of, is_reduction, reduced_axes
from ..dialect.tensor import Tensor
from ..expr import Expr, ceildiv, minimum, product
from ..mlir import arith, nvvm
from .reduced import read_again, reads_of_passes, region_levels

_COLUMN_THREADS = 256  # of the kernel that adds up columns
_COLUMN_ROWS = 32  # of its threads that share a column
_COLUMN_WIDTH = 4  # elements of its fragments, at most
COLUMNS_BYTES = _COLUMN_THREADS * _COLUMN_WIDTH  # of shared memory, for each byte of a sum
_TOGETHER = 4  # fragments of a row that a thread loads together
_MANY_THREADS = 512  # of a block; of more, each has fewer registers
_ZERO = Index.of(0)

# Of a reduction, what makes a thread's part of it, once the totals that it needs are known.
Later = dict[Any, Callable[[], Any]]


@dataclass(frozen=True)
class RowsTiling:
    """What `dnn.tile` says.

    kept, reduced: loop groups of the axes.  vector_elems: elements of a fragment.
    along: "row" if fragments lie along the reduced axes, else "column".
    threads: of a block.  row_threads: that share a row.  held: fragments of a row that a thread
    holds, 0 if the row is read again in each pass.  is_whole: those are the row exactly.
    cluster: blocks that share a row.  blocks: of a multiprocessor, which go through the rows; 0:
    a block for every group of rows.  stages: of the ring that rows come through, 0: none.
    slots: fragments that a thread keeps in shared memory of a row that is read again.
    """

    kept: tuple[tuple[int, ...], ...]
    reduced: tuple[tuple[int, ...], ...]
    vector_elems: int
    along: str
    threads: int
    row_threads: int
    held: int
    is_whole: bool
    cluster: int
    blocks: int
    stages: int
    slots: int

    @staticmethod
    def of(tile: Mapping[str, Any]) -> RowsTiling:
        groups = {name: tuple(tuple(group) for group in tile[name]) for name in ("kept", "reduced")}
        return RowsTiling(**{**tile, **groups})

    @property
    def rows(self) -> int:
        """Fragments of kept elements that a block works on side by side."""
        return self.threads // self.row_threads

    @property
    def step(self) -> int:
        """Fragments of a row that are worked on side by side."""
        return self.row_threads * self.cluster


def split_region(region: Region) -> tuple[list[Any], list[Any]]:
    """(reductions along rows, sums of columns) of a region; see `rows.split_reductions`."""
    reductions = [op for op in region.generics() if is_reduction(op)]
    needed = [op for op in reductions if _flows_on(region, op)]
    dims = region.dims_of(inputs_of(reductions[0])[0])
    wide = [axis for axis, n in enumerate(dims) if n.constant != 1]
    row = set(reduced_axes((needed or reductions)[0]))
    kept = [axis for axis in wide if axis not in row]
    columns = [op for op in reductions if [a for a in reduced_axes(op) if a in wide] == kept]
    return [op for op in reductions if op not in columns], columns


def _flows_on(region: Region, reduction: Any) -> bool:
    """Whether its result goes into work of its input's dims, or into another reduction."""
    dims = region.dims_of(inputs_of(reduction)[0])
    made = {reduction.results[0]}
    for op in region.generics():
        if op != reduction and made.intersection(inputs_of(op)):
            made.add(op.results[0])
            if is_reduction(op) or region.dims_of(op.results[0]) == dims:
                return True
    return False


@dataclass
class RowsEmitter:
    """The kernels of one fusion."""

    region: Region
    tiling: RowsTiling
    output: Output

    def __post_init__(self) -> None:
        t = self.tiling
        self.is_row = t.along == "row"
        along_rows, self.columns = split_region(self.region)
        self.dims = self.region.dims_of(inputs_of(along_rows[0])[0])
        self.levels = region_levels(self.region, along_rows)
        # Several blocks of a multiprocessor rather go over the row again: moments take registers.
        found = moments.squared_distances(self.region) if t.slots else {}
        self.distances = {op: of for op, of in found.items() if {op, of} <= {*along_rows}}
        found = sums_of_exponentials(self.region) if self.is_row and not t.held else {}
        self.exponentials = {op: of for op, of in found.items() if {op, of} <= {*along_rows}}
        width = t.vector_elems
        self.kept = Loops(self.dims, t.kept, 1 if self.is_row else width)
        self.reduced = Loops(self.dims, t.reduced, width if self.is_row else 1)
        self.narrow = replace(self.reduced, width=gcd(self.reduced.width, _COLUMN_WIDTH))
        self.groups = ceildiv(self.kept.fragments, t.rows)
        self.row_axes = tuple(axis for group in t.reduced for axis in group)
        self.memory: Any = None

    # ---- the whole

    def emit(self) -> None:
        t = self.tiling
        kernel = self.output.kernel("", t.threads)
        kernel.cluster = t.cluster
        kernel.min_blocks = t.blocks
        names = [self._partials(i) for i in range(len(self.columns))]
        with kernel.body():
            self._emit_rows(kernel, names)
        self.output.launch(kernel, (self._grid * t.cluster, 1, 1))
        if names:
            second = self.output.kernel("columns", _COLUMN_THREADS)
            with second.body():
                self._emit_columns(second, names)
            columns = _COLUMN_THREADS // _COLUMN_ROWS
            self.output.launch(second, (ceildiv(self.narrow.fragments, columns), 1, 1))

    @cached_property
    def _grid(self) -> Expr:
        """Blocks, or clusters of them."""
        t = self.tiling
        if not t.blocks:
            return self.groups
        most = t.blocks * self.output.target.sm_count // t.cluster
        return minimum(self.groups, most)

    # ---- rows

    def _emit_rows(self, kernel: Kernel, partials: Sequence[str]) -> None:
        t = self.tiling
        thread = ops.thread_id()
        fast = t.row_threads if self.is_row else t.rows
        high, low = ops.shr(thread, fast.bit_length() - 1), ops.and_(thread, fast - 1)
        self.lane, self.row = (low, high) if self.is_row else (high, low)
        self.rank = nvvm.read_ptx_sreg_cluster_ctarank() if t.cluster > 1 else 0
        self.totals = RowTotals(
            kernel, self.is_row, t.row_threads, t.rows, t.cluster, self.lane, self.row, self.rank
        )
        self.first = ops.add(ops.mul(self.rank, t.row_threads), self.lane)
        if t.slots:
            self.memory = kernel.dynamic_shared(self._slot_bytes)
        if t.cluster > 1:
            cluster.arrive()
        number = ops.div(ops.block_id(), t.cluster)
        if not t.blocks:
            self._emit_group(kernel, number, 0, {}, [])
        else:
            sums = self._emit_groups(kernel, number)
            self._store_partials(kernel, partials, sums, number)
        if t.cluster > 1:
            cluster.wait()  # no block ends while others write to it

    def _emit_groups(self, kernel: Kernel, number: Any) -> list[Any]:
        """One group after the other; gives the sums of columns."""
        t = self.tiling
        count = kernel.size(self.groups)
        clusters = ops.div(nvvm.read_ptx_sreg_nctaid_x(), t.cluster)
        ring, staged = self._ring(kernel)
        if ring is not None:
            ring.make()
            for stage in range(t.stages):
                ring.fill(stage, ops.add(number, ops.mul(clusters, stage)), count)

        def group(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            turn, stage, phase, *sums = carried
            cursor, leaves = Cursor(stage, phase), {}
            if ring is not None:
                ring.wait(cursor)
                leaves = {v: ring.leaf(n, stage, self.row) for n, v in enumerate(staged)}
            sums = self._emit_group(kernel, i, turn, leaves, sums)
            if ring is not None:
                ops.barrier()  # all have read the stage
                ring.fill(stage, ops.add(i, ops.mul(clusters, t.stages)), count)
                cursor = cursor.next(t.stages)
            return [ops.xor(turn, 1), *cursor.values, *sums]

        zeros = [v for op in self.columns for v in [self._zero(op)] * t.held]
        start = [ops.const(0), *Cursor().values, *zeros]
        return ops.for_(number, count, clusters, start, group)[3:]

    def _ring(self, kernel: Kernel) -> tuple[RowRing | None, list[Any]]:
        """(the ring, the arguments whose rows come through it)."""
        t = self.tiling
        whole = {identity_access(len(self.dims))}
        staged = [
            value
            for value, accesses in self.leaf_accesses.items()
            if t.stages
            and accesses == whole
            and self.region.arguments[value].shape == tuple(self.dims)
            and is_run(self.region.arguments[value], self.row_axes)
        ]
        if not staged:
            return None, []
        tensors = [self.region.arguments[value] for value in staged]
        bytes_ = ring_bytes(tensors, self.row_axes, t.rows, t.stages)
        sources = [GlobalTensor(kernel, tensor) for tensor in tensors]
        memory = kernel.dynamic_shared(bytes_)

        def at(group: Any, row: Any) -> list[Coordinate]:
            last = ops.sub(kernel.size(self.kept.fragments), 1)
            fragment = ops.minimum(ops.add(ops.mul(group, t.rows), row), last)
            return coordinates_of(len(self.dims), self.kept.coordinates(kernel, fragment))

        return RowRing(kernel, sources, self.row_axes, t.rows, t.stages, at, memory), staged

    @cached_property
    def leaf_accesses(self) -> dict[Any, set[Access]]:
        """Argument -> how its elements are addressed by work of the rows' dims."""
        full = identity_access(len(self.dims))
        stop = {op.results[0] for level in self.levels for op in level}
        sources = [inputs_of(op)[0] for level in self.levels for op in level]
        sources += [inputs_of(op)[0] for op in self.columns]
        dims = tuple(self.dims)
        sources += [value for value, tensor in self.region.outputs if tensor.shape == dims]
        found: dict[Any, set[Access]] = {}
        for value in sources:
            for leaf, access in self.region.accesses(value, full, stop=stop.__contains__):
                if leaf in self.region.arguments:
                    found.setdefault(leaf, set()).add(access)
        return found

    def _zero(self, operation: Any) -> Any:
        return reduce.identity(operation, self.tiling.vector_elems)

    def _emit_group(
        self,
        kernel: Kernel,
        number: Any,
        turn: Any,
        leaves: Mapping[Any, Any],
        sums: Sequence[Any],
    ) -> Sequence[Any]:
        """One group of rows; gives the sums of columns with what it adds to them.

        leaves: of the arguments that are in shared memory.
        """
        t = self.tiling
        fragment = ops.add(ops.mul(number, t.rows), self.row)
        count = kernel.size(self.kept.fragments)
        is_row_inside = None if t.rows == 1 else ops.less(fragment, count)
        clamped = fragment if t.rows == 1 else ops.minimum(fragment, ops.sub(count, 1))
        kept = self.kept.coordinates(kernel, clamped)
        group = _Group(self, kernel, kept, turn, leaves, is_row_inside)
        if not t.held:
            return group.streamed()
        return group.reread(sums) if leaves and self.columns else group.held(sums)

    # ---- rows that are read again

    @cached_property
    def again(self) -> list[tuple[Any, Tensor]]:
        return read_again(self.region, reads_of_passes(self.region, self.levels))

    @property
    def _slot_bytes(self) -> int:
        t = self.tiling
        tensors = [tensor for _, tensor in self.again]
        return kept_bytes(tensors, t.vector_elems, t.slots, t.threads)

    # ---- columns

    @cached_property
    def row_elements(self) -> Expr:
        return product(n for group in self.reduced.groups for n in self.reduced.extents(group))

    def _partials(self, i: int) -> str:
        element = ops.element_of(self.columns[i].results[0].type.element_type)
        size = self.row_elements * self._grid * (element.width // 8)
        return self.output.workspace(f"column{i}", size)

    def _store_partials(
        self, kernel: Kernel, names: Sequence[str], sums: Sequence[Any], number: Any
    ) -> None:
        """The sums of all rows of a block, or of a cluster's; number: its place among them."""
        t = self.tiling
        if not names:
            return
        base = ops.mul(number, kernel.size(self.row_elements))
        is_first = None if t.rows == 1 else ops.compare("eq", self.row, 0)
        walk = Walk(kernel, {}, self.region.symbols)
        for i, (name, op) in enumerate(zip(names, self.columns, strict=True)):
            combine, values = reduce.combiner(walk, op), sums[i * t.held : (i + 1) * t.held]
            for u, value in enumerate(self._of_block(kernel, name, values, combine)):
                element = ops.element_of(value.type)
                fragment = ops.add(self.first, u * t.step)
                at = ops.add(base, ops.mul(fragment, t.vector_elems))
                with ops.if_(ops.both(self.inside(kernel, fragment), is_first)):
                    pointer = ops.gep(kernel.workspace(name), at, element)
                    ops.store(pointer, value, min(16, element.width // 8 * t.vector_elems))

    def _of_block(
        self, kernel: Kernel, name: str, values: Sequence[Any], combine: Combine
    ) -> list[Any]:
        """Fragments combined over the rows that lie side by side; right in the first of them."""
        t = self.tiling
        if t.rows == 1:
            return list(values)
        size = ops.element_of(values[0].type).width // 8
        buffer = kernel.shared(f"{name}_rows", t.threads * t.vector_elems * size)
        found = []
        for value in values:
            made = reduce.through_rows(
                buffer, value, self.lane, self.row, t.row_threads, t.rows, combine
            )
            found.append(made)
            ops.barrier()  # all have read what the next one overwrites
        return found

    def inside(self, kernel: Kernel, fragment: Any) -> Any:
        """Whether a fragment is one of the row's; None: it always is."""
        if self.tiling.is_whole:
            return None
        return ops.less(fragment, kernel.size(self.reduced.fragments))

    def _emit_columns(self, kernel: Kernel, names: Sequence[str]) -> None:
        """Adds up what the blocks left, and stores what comes after."""
        width, rows = self.narrow.width, _COLUMN_ROWS
        thread = ops.thread_id()
        columns = _COLUMN_THREADS // rows
        column, row = ops.rem(thread, columns), ops.div(thread, columns)
        fragment = ops.add(ops.mul(ops.block_id(), columns), column)
        count = kernel.size(self.narrow.fragments)
        clamped = ops.minimum(fragment, ops.sub(count, 1))
        elements = kernel.size(self.row_elements)
        leaves: dict[Any, Any] = self.region.leaves(kernel)
        walk = Walk(kernel, leaves, self.region.symbols)
        combines = [reduce.combiner(walk, op) for op in self.columns]

        def load(i: Any) -> list[Any]:
            place = ops.add(ops.mul(i, elements), ops.mul(clamped, width))
            found = []
            for name, op in zip(names, self.columns, strict=True):
                element = ops.element_of(op.results[0].type.element_type)
                pointer = ops.gep(kernel.workspace(name), place, element)
                type_ = ops.vector_type(element, width)
                found.append(ops.load(pointer, type_, min(16, element.width // 8 * width)))
            return found

        start = [reduce.identity(op, width) for op in self.columns]
        totals = reduce.accumulate(combines, start, load, row, kernel.size(self._grid), rows)
        totals = [
            reduce.across_rows(kernel, f"columns{i}", total, column, row, rows, combine)
            for i, (total, combine) in enumerate(zip(totals, combines, strict=True))
        ]
        is_writer = ops.both(ops.less(fragment, count), ops.compare("eq", row, 0))
        with ops.if_(is_writer):
            for op, total in zip(self.columns, totals, strict=True):
                leaves[op.results[0]] = reduce.Total(total)
            after = Walk(kernel, leaves, self.region.symbols)
            at = coordinates_of(len(self.dims), self.narrow.coordinates(kernel, fragment))
            for value, target in self.region.targets(kernel):
                if self.is_of_columns(value):
                    target.store(at, after.value(value, at, width))

    def is_of_columns(self, value: Any) -> bool:
        """Whether a value depends on a sum of columns."""
        totals = {op.results[0] for op in self.columns}
        if not totals:
            return False
        rank = len(self.region.dims_of(value))
        reached = self.region.accesses(value, identity_access(rank), stop=lambda v: v in totals)
        return any(leaf in totals for leaf, _ in reached)


class _Group:
    """A thread's part of one group of rows."""

    def __init__(
        self,
        rows: RowsEmitter,
        kernel: Kernel,
        kept: Any,
        turn: Any,
        leaves: Mapping[Any, Any],
        is_row_inside: Any,
    ):
        self.rows, self.kernel, self.turn = rows, kernel, turn
        self.tiling = rows.tiling
        self.kept, self.is_row_inside = kept, is_row_inside
        self.leaves: dict[Any, Any] = {**rows.region.leaves(kernel), **leaves}
        self.staged = leaves
        self.walk = Walk(kernel, self.leaves, rows.region.symbols)
        self.width = self.tiling.vector_elems
        outputs = [
            (value, target)
            for value, target in rows.region.targets(kernel)
            if not rows.is_of_columns(value)
        ]
        full = tuple(rows.dims)
        self.whole = [(v, t) for v, t in outputs if t.tensor.shape == full]
        self.of_rows = [(v, t) for v, t in outputs if t.tensor.shape != full]

    def at(self, fragment: Any) -> list[Any]:
        """The coordinates of a fragment of the row; past the end, those of the last one."""
        if not self.tiling.is_whole:
            last = ops.sub(self.kernel.size(self.rows.reduced.fragments), 1)
            fragment = ops.minimum(fragment, last)
        reduced = self.rows.reduced.coordinates(self.kernel, fragment)
        return coordinates_of(len(self.rows.dims), self.kept, reduced)

    # ---- rows in registers

    def held(self, sums: Sequence[Any]) -> list[Any]:
        t, rows = self.tiling, self.rows
        fragments = [ops.add(rows.first, u * t.step) for u in range(t.held)]
        places = [self.at(fragment) for fragment in fragments]
        inside = [rows.inside(self.kernel, fragment) for fragment in fragments]
        self._load_all(places)
        for number, level in enumerate(rows.levels):
            combines = [reduce.combiner(self.walk, op) for op in level]
            parts = []
            for op, combine in zip(level, combines, strict=True):
                total = None
                for at, is_inside in zip(places, inside, strict=True):
                    value = self._masked(op, at, is_inside)
                    total = value if total is None else combine(total, value)
                parts.append(total)
            self._keep(level, rows.totals.combine(f"level{number}", parts, combines, self.turn))
        added = [
            reduce.combiner(self.walk, op)(
                sums[i * t.held + u], self._masked(op, at, ops.both(inside[u], self.is_row_inside))
            )
            for i, op in enumerate(rows.columns)
            for u, at in enumerate(places)
        ]
        ready = [
            (at, ops.both(is_inside, self.is_row_inside),
             [self.walk.value(value, at, self.width) for value, _ in self.whole])
            for at, is_inside in zip(places, inside, strict=True)
        ]  # fmt: skip
        for at, condition, values in ready:
            for (_, target), value in zip(self.whole, values, strict=True):
                target.store(at, value, condition)
        self._store_of_rows()
        return added

    # ---- rows in shared memory, so that sums of columns have the registers

    def reread(self, sums: Sequence[Any]) -> list[Any]:
        """As `held`, but each pass takes its fragments from shared memory, one after the other."""
        t, rows = self.tiling, self.rows
        # Or the places of all fragments would be worked out ahead of all rows, and held.
        first = ops.opaque(rows.first)
        fragments = [ops.add(first, u * t.step) for u in range(t.held)]
        places = [self.at(fragment) for fragment in fragments]
        inside = [rows.inside(self.kernel, fragment) for fragment in fragments]
        self._load_all(places[:1], only_of_rows=True)
        self._hide_columns()
        for number, level in enumerate(rows.levels):
            combines = [reduce.combiner(self.walk, op) for op in level]
            parts: list[Any] = [None] * len(level)
            for at, is_inside in zip(places, inside, strict=True):
                walk = self.walk.branch()
                for i, op in enumerate(level):
                    value = self._masked(op, at, is_inside, walk)
                    parts[i] = value if parts[i] is None else combines[i](parts[i], value)
            self._keep(level, rows.totals.combine(f"level{number}", parts, combines, self.turn))
        added = list(sums)
        for u, (at, is_inside) in enumerate(zip(places, inside, strict=True)):
            walk, condition = self.walk.branch(), ops.both(is_inside, self.is_row_inside)
            for i, op in enumerate(rows.columns):
                combine, place = reduce.combiner(walk, op), i * t.held + u
                added[place] = combine(added[place], self._masked(op, at, condition, walk))
            values = [walk.value(value, at, self.width) for value, _ in self.whole]
            for (_, target), value in zip(self.whole, values, strict=True):
                target.store(at, value, condition)
        self._store_of_rows()
        return added

    def _hide_columns(self) -> None:
        """Has what is the same in all rows (a norm's scale) loaded for each row: the compiler
        would load it ahead of them all, and hold as many registers as it has elements."""
        for leaf, accesses in self.rows.leaf_accesses.items():
            tensor = self.rows.region.arguments[leaf]
            is_of_row = any(("loop", axis) in a for a in accesses for axis in self.rows.row_axes)
            if is_of_row and leaf not in self.staged and not tensor.is_by_value:
                pointer = ops.opaque(self.kernel.pointer(tensor, is_exclusive=True))
                self.leaves[leaf] = GlobalTensor(self.kernel, tensor, True, pointer)

    def _load_all(self, places: Sequence[Any], *, only_of_rows: bool = False) -> None:
        """Starts every load ahead of the first barrier, also of what the end alone reads.

        only_of_rows: of what is one number a row.
        """
        row_axes = {("loop", axis) for axis in self.rows.row_axes}
        for at in places:
            for leaf, accesses in self.rows.leaf_accesses.items():
                for access in accesses:
                    is_known = all(a[0] in ("loop", "zero") for a in access)
                    if leaf in self.staged or (only_of_rows and row_axes.intersection(access)):
                        continue
                    if is_known:
                        where = [at[a[1]] if a[0] == "loop" else _ZERO for a in access]
                        self.walk.value(leaf, where, self.width)

    def _masked(self, op: Any, at: Any, is_inside: Any, walk: Walk | None = None) -> Any:
        """What a reduction takes of a fragment: nothing of one past the row's end."""
        value = (walk or self.walk).value(inputs_of(op)[0], at, self.width)
        if is_inside is None:
            return value
        return arith.SelectOp(is_inside, value, reduce.identity(op, self.width)).result

    def _keep(self, level: Sequence[Any], totals: Sequence[Any]) -> None:
        for op, total in zip(level, totals, strict=True):
            self.leaves[op.results[0]] = reduce.Total(total)

    def _store_of_rows(self) -> None:
        """The results of whole rows, by the first thread of each."""
        if not self.of_rows:
            return
        at = coordinates_of(len(self.rows.dims), self.kept)
        is_first = ops.compare("eq", self.rows.first, 0)
        with ops.if_(ops.both(is_first, self.is_row_inside)):
            walk = self.walk.branch()
            for value, target in self.of_rows:
                target.store(at, walk.value(value, at, self.rows.kept.width))

    # ---- rows that are read again in each pass

    def streamed(self) -> list[Any]:
        rows, fragments = self.rows, self._fragments()
        later: Later = {}
        for number, level in enumerate(rows.levels):
            parts = self._streamed_parts(fragments, number, level, later)
            combines = [reduce.combiner(self.walk, op) for op in level]
            totals = rows.totals.combine(f"level{number}", parts, combines, self.turn)
            self._keep(level, totals)
        if self.whole:
            fragments.later_pass(self._outputs_at, [], self._store_outputs, stores=True)
        self._store_of_rows()
        return []

    def _streamed_parts(
        self, fragments: Fragments, number: int, level: Sequence[Any], later: Later
    ) -> list[Any]:
        """This thread's parts of a level's totals.

        later: what earlier levels have left, by the reductions that are made of it without another
        pass, once those levels' totals are known; this level leaves its own.
        """
        own = [op for op in level if op not in later]
        states = [self._state(op, number, fragments) for op in own]
        sizes = [len(state.start()) for state in states]

        def values(walk: Walk, at: Any) -> list[Any]:
            return [walk.value(inputs_of(op)[0], at, self.width) for op in own]

        def use(carried: Any, found: Any) -> list[Any]:
            each = zip(states, _split(carried, sizes), found, strict=True)
            return [new for state, old, value in each for new in state.add(old, value)]

        sums: list[Any] = []
        if own:
            go = fragments.later_pass if number else fragments.first_pass
            sums = go(values, [v for state in states for v in state.start()], use)
        parts = {op: later[op]() for op in level if op in later}
        for op, state, found in zip(own, states, _split(sums, sizes), strict=True):
            parts[op] = found[0]
            later.update(self._left(op, state, found, fragments))
        return [parts[op] for op in level]

    def _state(self, op: Any, number: int, fragments: Fragments) -> Any:
        """What a thread adds up for a reduction, and for those that are made of it later."""
        combine = reduce.combiner(self.walk, op)
        sums = [other for other, of in self.rows.exponentials.items() if of == op]
        if sums:
            return RunningSum(self.walk, sums[0], combine, self.width)
        plain = _Plain(combine, reduce.identity(op, self.width))
        if op not in self.rows.distances.values():
            return plain
        walk, at = self.walk.branch(), fragments.at(0)
        return _WithMoments(plain, Shifted(walk.value(inputs_of(op)[0], at, self.width)))

    def _left(self, op: Any, state: Any, found: Sequence[Any], fragments: Fragments) -> Later:
        """By reduction, what makes this thread's part of it of a state of another one."""
        if isinstance(state, RunningSum):
            sums = [other for other, of in self.rows.exponentials.items() if of == op]
            return {other: partial(self._scaled, state, found, op) for other in sums}
        if isinstance(state, _WithMoments):
            part = state.shifted.part(found[1:], fragments.count)
            part = moments.folded(part) if self.rows.is_row else part
            squares = [other for other, of in self.rows.distances.items() if of == op]
            return {other: partial(self._distances, other, part) for other in squares}
        return {}

    def _scaled(self, state: RunningSum, found: Sequence[Any], maximum: Any) -> Any:
        return state.part(found, self.leaves[maximum.results[0]].value)

    def _distances(self, op: Any, part: Sequence[Any]) -> Any:
        """This thread's squared distances from the row's mean, by its own moments."""
        count, mean, squares = part
        total = self.leaves[self.rows.distances[op].results[0]].value
        elements = to_f32(self.kernel.size(self.rows.row_elements))
        off = arith.SubFOp(mean, times(total, inverse(elements))).result
        return arith.AddFOp(squares, arith.MulFOp(times(off, count), off).result).result

    def _fragments(self) -> Fragments:
        """Those of this thread's row."""
        t, rows = self.tiling, self.rows
        left = ops.sub(self.kernel.size(rows.reduced.fragments), rows.first)
        count = ops.div(ops.add(ops.maximum(left, 0), t.step - 1), t.step)

        def at(i: Any) -> list[Any]:
            return self.at(ops.add(rows.first, ops.mul(i, t.step)))

        # So that several blocks of a multiprocessor have the registers, or the one of many threads.
        together, stored = (2, 2) if t.threads > _MANY_THREADS else (_TOGETHER, 1)
        return Fragments(
            self.walk, self.width, at, count, rows.again, t.slots, t.threads, ops.thread_id(),
            rows.memory, together, stored,
        )  # fmt: skip

    def _outputs_at(self, walk: Walk, at: Any) -> tuple[Any, list[Any]]:
        return at, [walk.value(value, at, self.width) for value, _ in self.whole]

    def _store_outputs(self, carried: Sequence[Any], found: Any) -> Sequence[Any]:
        at, values = found
        for (_, target), value in zip(self.whole, values, strict=True):
            target.store(at, value, self.is_row_inside)
        return carried


# ---- what a thread adds up in one pass


@dataclass(frozen=True)
class _Plain:
    """[the total of each lane]."""

    combine: Combine
    nothing: Any

    def start(self) -> list[Any]:
        return [self.nothing]

    def add(self, state: Sequence[Any], value: Any) -> list[Any]:
        return [self.combine(state[0], value)]


@dataclass(frozen=True)
class _WithMoments:
    """[the total, and what its squared distances are made of]."""

    plain: _Plain
    shifted: Shifted

    def start(self) -> list[Any]:
        return [*self.plain.start(), *self.shifted.start()]

    def add(self, state: Sequence[Any], value: Any) -> list[Any]:
        return [*self.plain.add(state[:1], value), *self.shifted.add(state[1:], value)]


def _split(values: Sequence[Any], sizes: Sequence[int]) -> list[Sequence[Any]]:
    """Runs of values, of these sizes."""
    left = list(values)
    return [[left.pop(0) for _ in range(size)] for size in sizes]
