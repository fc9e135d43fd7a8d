# pyright: basic
"""Reductions at the exit of a product: what engines of every architecture share.

A product's kernel writes partials of what it has of each element to the workspace; a second kernel
combines those, in order, and does what follows.  Where there may be many, a kernel between the two
combines runs of them.  The result is the same in every run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.totals import reduce
from ...codegen.walk.index import Coordinate
from ...codegen.walk.loops import Loops, coordinates_of
from ...codegen.walk.region_walk import Walk, inputs_of, is_reduction, reduced_axes
from ...expr import Expr, ceildiv, product
from ...mlir import nvvm
from .exit_model import LONE_PARTS, MOST_PARTS

_THREADS = 256  # of the kernels that combine partials
_COLUMNS = (32, 16, 8)  # of elements that a block of them has, where there are several
_FEW_LOADS = 4  # of a thread: partials that come together
_MANY_THREADS = 1024  # the same of the one that has many partials of few elements
_MOST_PLACES = (1 << 31) - 1  # that 32 bits count
_MOST_RUNS = 65535  # of a grid along y
_RUN = 16  # partials of a thread of the kernel between, unless runs were too many


@dataclass(frozen=True)
class SpaceAxes:
    """The axes of a product's dims that are rows, columns and matrices.

    rows, columns: the axes that each counts through, the last one fastest.  batch: of a loop over
    matrices, the axis that it goes along.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    batch: Mapping[int, int]


@dataclass
class Exit:
    """One reduction at the exit.

    operation: the reducing generic.  name: of its partials' buffer, without the kernel's.
    kept: loops over its result's elements.  parts: partials of each.
    """

    operation: Any
    name: str
    kept: Loops
    parts: Expr
    keeps_row: bool
    keeps_column: bool

    @property
    def element(self) -> Any:
        return ops.element_of(self.operation.results[0].type.element_type)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.element.width // 8

    @property
    def elements(self) -> Expr:
        return self.kept.fragments

    @property
    def is_wide(self) -> bool:
        """Whether places of partials may take more than 31 bits."""
        return (self.parts * self.elements).bounds()[1] > _MOST_PLACES

    def join(self, part: Any, elements: Any, number: Any) -> Any:
        """The place of an element among a part's, which follow each other; elements: of a part."""
        if self.is_wide:
            part, elements, number = (ops.to_i64(n) for n in (part, elements, number))
        return part * elements + number

    def dims_of(self, region: Region) -> tuple[Expr, ...]:
        """The dims of its result."""
        return region.dims_of(self.operation.results[0])

    @property
    def loops(self) -> Any:
        """Equal for exits that one kernel can finish."""
        return self.kept.groups, str(self.elements), str(self.parts)


class PartialExits:
    """The reductions at the exit of one kernel, of which it writes partials.

    operations: the reducing generics.  axes: of the product's dims.  sizes: rows and columns of a
    matrix.  batch: loops over the matrices.  parts: partials of an element along rows and columns,
    where these are reduced.
    """

    def __init__(
        self, kernel: Kernel, region: Region, operations: Sequence[Any], axes: SpaceAxes,
        sizes: Sequence[Expr], batch: Loops, parts: Sequence[Expr],
    ):  # fmt: skip
        self.kernel, self.region, self.axes = kernel, region, axes
        self.sizes, self.batch, self.parts = sizes, batch, parts
        self.exits = [self._exit(i, op) for i, op in enumerate(operations)]

    def _exit(self, i: int, operation: Any) -> Exit:
        dims = self.region.dims_of(inputs_of(operation)[0])
        reduced = set(reduced_axes(operation))
        kept = tuple((a,) for a, n in enumerate(dims) if a not in reduced and n.constant != 1)
        keeps_row = keeps(self.axes.rows, dims, reduced)
        keeps_column = keeps(self.axes.columns, dims, reduced)
        parts = product(self.batch.dims[axis] for axis in self._loops(reduced, kept=False))
        if not keeps_column:
            parts = parts * self.parts[1]
        if not keeps_row:
            parts = parts * self.parts[0]
        return Exit(operation, f"partial{i}", Loops(dims, kept), parts, keeps_row, keeps_column)

    def _loops(self, reduced: set[int], *, kept: bool) -> Iterator[int]:
        """The loops over matrices whose axes are kept, or are reduced."""
        for loop in itertools.chain.from_iterable(self.batch.groups):
            if (self.axes.batch[loop] not in reduced) == kept:
                yield loop

    def place(
        self, found: Exit, batch: Mapping[int, Coordinate], parts: Sequence[Any], row: Any,
        column: Any,
    ) -> Any:  # fmt: skip
        """Where a partial of an element lies among those of a reduction.

        parts: the partial's numbers along rows and columns.
        """
        part = self.part(found, batch, parts)
        number = self.number(found, batch, row, column)
        return found.join(part, self.kernel.size(found.elements), number)

    def number(self, found: Exit, batch: Mapping[int, Coordinate], row: Any, column: Any) -> Any:
        """The place of an element among those of the result, row-major."""
        kernel, reduced = self.kernel, set(reduced_axes(found.operation))
        number: Any = 0
        for loop in self._loops(reduced, kept=True):
            number = number * kernel.size(self.batch.dims[loop])
            number = number + batch[loop].index().base
        sides = ((self.axes.rows, row, 0), (self.axes.columns, column, 1))
        keeps = (found.keeps_row, found.keeps_column)
        kept = [side for side, keep in zip(sides, keeps, strict=True) if keep]
        for _, inner, side in sorted(kept, key=lambda side: side[0]):
            number = number * kernel.size(self.sizes[side])
            number = number + inner
        return number

    def part(self, found: Exit, batch: Mapping[int, Coordinate], parts: Sequence[Any]) -> Any:
        """The number of the part that has some numbers along rows and columns."""
        kernel, reduced = self.kernel, set(reduced_axes(found.operation))
        part: Any = 0
        for loop in self._loops(reduced, kept=False):
            part = part * kernel.size(self.batch.dims[loop])
            part = part + batch[loop].index().base
        for side, keeps in ((1, found.keeps_column), (0, found.keeps_row)):
            if not keeps:
                part = part * kernel.size(self.parts[side])
                part = part + parts[side]
        return part

    def buffer(self, found: Exit) -> Any:
        """Where the product's kernel writes a reduction's partials."""
        return self.kernel.workspace(f"{self.kernel.name}.{found.name}")

    # ---- the kernels that follow

    def emit_second(self, output: Output) -> None:
        """Combines the partials of each reduction and stores what follows from them."""
        groups: dict[Any, list[Exit]] = {}
        for found in self.exits:
            output.workspace(found.name, found.parts * found.elements * found.size)
            groups.setdefault(found.loops, []).append(found)
        for i, group in enumerate(groups.values()):
            self._emit_second(output, i, group)

    def _emit_second(self, output: Output, number: int, group: Sequence[Exit]) -> None:
        first = group[0]
        names, parts = [found.name for found in group], first.parts
        is_early = output.target.overlaps_launches
        most = MOST_PARTS if first.kept.groups else LONE_PARTS
        if parts.bounds()[1] > most:
            rows = _THREADS // max(_COLUMNS) if first.kept.groups else _THREADS
            blocks = ceildiv(first.elements, _THREADS // rows)
            least = -(-int(parts.bounds()[1]) // (_MOST_RUNS * rows))
            run, sources = rows * max(_RUN, least), names
            names, runs = [f"folded{name}" for name in names], ceildiv(parts, run)
            for found, name in zip(group, names, strict=True):
                output.workspace(name, runs * found.elements * found.size)
            kernel = output.kernel(f"fold{number}", _THREADS)
            with kernel.body():
                _Combining(self, kernel, group, sources, parts, rows, run, is_early).fold(names)
            output.launch(kernel, (blocks, runs, 1), programmatic=is_early)
            parts = runs
        threads, columns = _block_for(parts) if first.kept.groups else (_THREADS, 1)
        rows, blocks = threads // columns, ceildiv(first.elements, columns)
        kernel = output.kernel(f"exit{number}", threads)
        with kernel.body():
            _Combining(self, kernel, group, names, parts, rows, 0, is_early).store()
        output.launch(kernel, (blocks, 1, 1), programmatic=is_early)


def _block_for(parts: Expr) -> tuple[int, int]:
    """(threads of a block, elements that it has): of so few that each thread has few partials."""
    most = parts.bounds()[1]
    if most > LONE_PARTS:
        return _MANY_THREADS, min(_COLUMNS)
    enough = (n for n in _COLUMNS if _THREADS // n * _FEW_LOADS >= most)
    return _THREADS, next(enough, min(_COLUMNS))


class _Combining:
    """A kernel that combines partials: a column of threads those of an element, in order.

    sources: buffers of each reduction's, by name.  parts: partials of an element.
    run: those that a block has, by its place along y; 0: all.  is_early: it may start before the
    kernel ahead of it ends.
    """

    def __init__(
        self, exits: PartialExits, kernel: Kernel, group: Sequence[Exit], sources: Sequence[str],
        parts: Expr, rows: int, run: int, is_early: bool,
    ):  # fmt: skip
        self.exits, self.kernel, self.group, self.rows = exits, kernel, group, rows
        columns = kernel.threads // rows
        thread = ops.thread_id()
        column, self.row = thread % columns, thread // columns
        number = ops.block_id() * columns + column
        self.count = kernel.size(group[0].elements)
        self.kept = ops.minimum(number, self.count - 1)
        self.is_writer = ops.both(number < self.count, ops.compare("eq", self.row, 0))
        self.leaves: dict[Any, Any] = exits.region.leaves(kernel, is_exclusive=False)
        walk = Walk(kernel, self.leaves, exits.region.symbols)
        combines = [reduce.combiner(walk, found.operation) for found in group]
        start = [reduce.identity(found.operation, 1) for found in group]
        first, end = self.row, kernel.size(parts)
        if run:
            begin = ops.block_id("y") * run
            first, end = begin + self.row, ops.minimum(begin + run, end)
        buffers = [self._buffer(name) for name in sources]
        if is_early:
            nvvm.griddepcontrol(nvvm.GridDepActionKind.wait)

        def load(part: Any) -> list[Any]:
            kept = ops.minimum(part, end - 1)
            place, is_there = group[0].join(kept, self.count, self.kept), part < end
            return [
                ops.select(
                    is_there,
                    ops.load(ops.gep(buffer, place, found.element), found.element, found.size),
                    nothing,
                )
                for buffer, found, nothing in zip(buffers, group, start, strict=True)
            ]

        # Whole groups of loads, that none waits for the one before it.
        step = rows * reduce.UNROLL
        whole = first + ((end - first) + (step - 1)) // step * step
        totals = reduce.accumulate(combines, start, load, first, whole, rows)
        self.totals = [
            reduce.across_block(kernel, f"rows{i}", total, columns, combine)
            for i, (total, combine) in enumerate(zip(totals, combines, strict=True))
        ]

    def _buffer(self, name: str) -> Any:
        name = f"{self.exits.kernel.name}.{name}"
        return self.kernel.workspace(name, is_exclusive=False)

    def fold(self, names: Sequence[str]) -> None:
        """Writes the totals of the block's run."""
        place = self.group[0].join(ops.block_id("y"), self.count, self.kept)
        with ops.if_(self.is_writer):
            for found, name, total in zip(self.group, names, self.totals, strict=True):
                ops.store(ops.gep(self._buffer(name), place, found.element), total, found.size)

    def store(self) -> None:
        """Stores what follows from the totals, and what is computed beside them."""
        region, kept = self.exits.region, self.group[0].kept
        made = {
            found.operation.results[0]: reduce.Total(total)
            for found, total in zip(self.group, self.totals, strict=True)
        }
        with ops.if_(self.is_writer):
            after = Walk(self.kernel, {**self.leaves, **made}, region.symbols)
            at: list[Coordinate] = coordinates_of(
                len(kept.dims), kept.coordinates(self.kernel, self.kept)
            )
            for value, target in region.targets(self.kernel, is_exclusive=False):
                if region.depends_on(value, made) or self._is_beside(value):
                    target.store(at, after.value(value, at, 1))

    def _is_beside(self, value: Any) -> bool:
        """Whether an output of a reduction's dims follows none; the first kernel of these dims has
        it."""
        region = self.exits.region
        totals = [found.operation.results[0] for found in self.exits.exits]
        if region.depends_on(value, totals):
            return False
        dims = region.dims_of(value)
        alike = [found for found in self.exits.exits if found.dims_of(region) == dims]
        return bool(alike) and alike[0] in self.group


# ---- what leads where


def keeps(axes: Sequence[int], dims: Sequence[Expr], reduced: set[int]) -> bool:
    """Whether a reduction keeps what counts through some axes."""
    found = {axis in reduced for axis in axes if dims[axis].constant != 1}
    assert len(found) < 2, "a reduction of some of the axes that are counted through together"
    return found != {True}


def exit_reductions(region: Region, outputs: Sequence[str]) -> list[Any]:
    """The reductions that outputs of path "exit" depend on."""
    wanted = [
        value for (value, _), path in zip(region.outputs, outputs, strict=True) if path == "exit"
    ]
    return [
        operation
        for operation in region.generics()
        if is_reduction(operation)
        and any(region.depends_on(value, [operation.results[0]]) for value in wanted)
    ]
