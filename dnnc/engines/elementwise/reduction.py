# pyright: basic
"""Engine reduction: reductions over the same axes, with pointwise work before and after.

    grid: blocks of kept fragments x slices of the reduced elements
    a block: `columns` threads along the kept fragments x `rows` threads along the reduced ones

Each thread loads fragments of the operands of all reductions, applies what comes before them,
and keeps a running total; rows are combined through shuffles and shared memory, slices by a
second launch over partial totals in the workspace.  What comes after is applied to the totals.
Fragments lie along the reduced axes when the fastest axis of the largest input is reduced
("row"), else along the kept ones ("column").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from ...codegen import ops
from ...codegen.kernel import Kernel, bits_of_count
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.state import loop
from ...codegen.stretch import stretch
from ...codegen.totals import reduce
from ...codegen.walk.index import Coordinate
from ...codegen.walk.loops import Loops, coordinates_of
from ...codegen.walk.region_walk import Walk, inputs_of, is_reduction
from ...dialect.averages import total_type
from ...dialect.fusion import Fusion
from ...dialect.ops import Reduction
from ...dialect.tensor import text
from ...errors import Status
from ...expr import ceildiv, product, typical
from ...target import WARP_THREADS, Target
from ..engine import Engine, Knob, Knobs, Prediction, Reason
from ..knob_values import KnobValues
from ..surface import (
    LAUNCH_SECONDS,
    boolean_reason,
    count_reasons,
    fp8_reasons,
    memory_seconds,
    pattern_reason,
    too_large_reasons,
)
from ..views.reduced import (
    agreement_reasons,
    axis_order,
    counts_whole,
    is_of_indices,
    reduced_axes,
    reductions_of,
    runs_along_row,
    sizes_along,
    unreduced_reason,
)

_THREADS = 256
# Of the model, fitted to sums of 6512 x 32 elements on an H100: blocks whose loads one block has
# under way, and what each load of the second kernel takes, which are one after the other.
_LOADS = 2
_LOAD_SECONDS = 0.1e-6
_MOST_SHARED_BYTES = 48 << 10  # of a kernel's own arrays


_SLICES = (1, 8, 32, 128, 512)  # that are worth a look


@dataclass(frozen=True)
class _Choice(KnobValues):
    """One value of each knob; rows: threads along the reduced axes.  slices: of the reduction."""

    rows: Annotated[int, "TILE_ROWS"]
    slices: Annotated[int, "SPLIT_K_SLC"]


@dataclass(frozen=True)
class ReductionTiling:
    """The tiling that `dnn.tile` says.

    kept, reduced: loop groups of the axes.  vector_elems: elements of a fragment.
    along: "row" if fragments lie along the reduced axes, else "column".  threads: of a block.
    rows: of its threads, along the reduced axes.  slices: of the reduction.
    """

    kept: tuple[tuple[int, ...], ...]
    reduced: tuple[tuple[int, ...], ...]
    vector_elems: int
    along: str
    threads: int
    rows: int
    slices: int


@dataclass(frozen=True)
class ReductionEngine(Engine):
    """See the file's docstring."""

    tiling = ReductionTiling
    name: str = "reduction"
    index: int = 3
    families: tuple[str, ...] = ("reduction",)
    support: tuple[str, ...] = (
        "one or more reductions of equal dims and axes, any mode; pointwise and view operations "
        "before, pointwise after; outputs after them and, of the reduced dims' full size, before; "
        "boolean outputs of one element only",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        reductions = reductions_of(fusion)
        reasons: list[Reason] = []
        heavy = fusion.with_role("anchor")
        if heavy:
            reasons.append(pattern_reason(heavy[0].label, "reduction, pointwise, view", heavy[0]))
        if not reductions:
            return (*reasons, pattern_reason("no reduction", "one reduction at least"))
        reasons += agreement_reasons(reductions)
        reasons += self._after_reasons(fusion, reductions)
        reasons += self._output_reasons(fusion, reductions[0])
        return (*reasons, *fp8_reasons(fusion, target), *too_large_reasons(fusion))

    def _after_reasons(self, fusion: Fusion, reductions: Sequence[Reduction]) -> list[Reason]:
        """Reasons against what follows a reduction, unless it works on its result's dims,
        element by element."""
        y = reductions[0].y
        for op in fusion.ops:
            above = [r for r in reductions if any(r in fusion.upstream(t) for t in op.operands)]
            if not above or op.role == "anchor":
                continue
            if op.role == "reduction":
                what = f"{op.label} needs {above[0].label}"
                return [pattern_reason(what, "one level of sums", op)]
            if op.role == "view" or any(t.shape != y.shape for t in op.results):
                what = f"{op.label} of dims {text(op.results[0].shape)} after {above[0].label}"
                return [
                    Reason(
                        Status.NOT_SUPPORTED_GRAPH_PATTERN,
                        "after the reduction",
                        what,
                        f"pointwise operations of dims {text(y.shape)}",
                    )
                ]
        return []

    def _output_reasons(self, fusion: Fusion, first: Reduction) -> list[Reason]:
        for output in fusion.outputs:
            if output.shape not in (first.y.shape, first.x.shape):
                return [
                    Reason(
                        Status.NOT_SUPPORTED_SHAPE,
                        "output dims",
                        f"{output.label} of dims {text(output.shape)}",
                        f"{text(first.y.shape)} or {text(first.x.shape)}",
                    )
                ]
            if output.type.kind == "b" and output.elements().constant != 1:
                return [boolean_reason(output)]
            if output.shape != first.x.shape and is_of_indices(fusion, output):
                return [unreduced_reason(output)]
        return []

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_ROWS", (32, 1, 2, 4, 8, 16, 64, 128, 256), "threads along the reduced axes"),
        Knob("SPLIT_K_SLC", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), "slices of the reduction"),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        reductions, rows = reductions_of(fusion), _Choice.of(knobs).rows
        kept = product(sizes_along(reductions[0])[1])
        if reasons := count_reasons(ceildiv(kept, _THREADS // rows), f"blocks of TILE_ROWS={rows}"):
            return tuple(reasons)
        if rows == 1 or runs_along_row(fusion, reductions[0]):
            return ()
        needed = _shared_bytes([total_type(fusion, op).bits // 8 for op in reductions], 1)
        if needed <= _MOST_SHARED_BYTES:
            return ()
        what = f"{needed} bytes of shared memory for {len(reductions)} sums of columns"
        supported = f"TILE_ROWS=1, or {_MOST_SHARED_BYTES} bytes"
        return (Reason(Status.NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT, "knobs", what, supported),)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        found = [
            _Choice(rows, slices).knobs for rows in (32, 8, 256, 128, 16, 4) for slices in _SLICES
        ]
        legal = [knobs for knobs in found if not self.legal(knobs, fusion, target)]
        return legal or [_Choice(1, slices).knobs for slices in _SLICES]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        first = reductions_of(fusion)[0]
        reduced, kept = sizes_along(first)
        is_row = runs_along_row(fusion, first)
        choice = _Choice.of(knobs)
        rows, slices = choice.rows, choice.slices
        width = 4
        n_reduced = max(1, typical(product(reduced)) // (width if is_row else 1))
        n_kept = max(1, typical(product(kept)) // (1 if is_row else width))
        columns = _THREADS // rows
        blocks = -(-n_kept // columns) * slices
        stream = memory_seconds(fusion, target, blocks=blocks * _LOADS)
        # Threads without work, and rows of a warp that is not read as one piece.
        steps = -(-n_reduced // (rows * slices))
        used = n_reduced / (steps * rows * slices) * n_kept / (-(-n_kept // columns) * columns)
        if not is_row:
            used *= min(1.0, columns * width * 2 / 64)
        combine = 0.02e-6 * (rows / WARP_THREADS if is_row else rows)
        second = LAUNCH_SECONDS + slices * n_kept * 8 / (target.dram_gbs * 1e9)
        second += -(-slices // rows) * _LOAD_SECONDS
        seconds = LAUNCH_SECONDS + (stream.seconds - LAUNCH_SECONDS) / max(used, 1e-3) + combine
        chain = steps * 0.15e-6 / reduce.UNROLL
        total = max(seconds, LAUNCH_SECONDS + chain) + (second if slices > 1 else 0)
        return Prediction(total, stream.bound)

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> ReductionTiling:
        reductions, choice = reductions_of(fusion), _Choice.of(knobs)
        axes = reduced_axes(fusion, reductions, axis_order, counts_whole)
        width, size = max(1, 128 // axes.smallest), axes.along(is_row=axes.is_row)
        while size.known_divisor() % width:
            width //= 2
        if not axes.is_row and choice.rows > 1:
            sizes = [total_type(fusion, op).bits // 8 for op in reductions]
            while width > 1 and _shared_bytes(sizes, width) > _MOST_SHARED_BYTES:
                width //= 2
        return ReductionTiling(
            kept=axes.kept,
            reduced=axes.reduced,
            vector_elems=width,
            along="row" if axes.is_row else "column",
            threads=_THREADS,
            rows=choice.rows,
            slices=choice.slices,
        )

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: ReductionTiling, output: Output) -> None:
        _Emitter(region, tile, output).emit()


def _shared_bytes(sizes: Sequence[int], width: int) -> int:
    """Bytes that threads above each other combine; sizes: of an element of each total."""
    return _THREADS * width * sum(sizes)


@dataclass
class _Emitter:
    """The kernels of one fusion."""

    region: Region
    tile: ReductionTiling
    output: Output

    def __post_init__(self) -> None:
        self.reductions = [op for op in self.region.generics() if is_reduction(op)]
        dims = self.region.dims_of(inputs_of(self.reductions[0])[0])
        self.rank = len(dims)
        self.is_row = self.tile.along == "row"
        width = self.tile.vector_elems
        self.kept = Loops(dims, self.tile.kept, 1 if self.is_row else width)
        self.reduced = Loops(dims, self.tile.reduced, width if self.is_row else 1)
        self.rows, self.slices = self.tile.rows, self.tile.slices
        self.columns = self.tile.threads // self.rows
        self.kept_elements = product(
            extent for group in self.kept.groups for extent in self.kept.extents(group)
        )

    def emit(self) -> None:
        blocks = ceildiv(self.kept.fragments, self.columns)
        names = [self._partials(i) for i in range(len(self.reductions))] if self.slices > 1 else []
        kernel = self.output.kernel("", self.tile.threads)
        with kernel.body():
            self._emit_first(kernel, names)
        self.output.launch(kernel, (blocks, self.slices, 1))
        if names:
            second = self.output.kernel("finish", self.tile.threads)
            with second.body():
                self._emit_second(second, names)
            self.output.launch(second, (blocks, 1, 1))

    def _partials(self, i: int) -> str:
        element = self._element(self.reductions[i])
        size = self.kept_elements * self.slices * (element.width // 8)
        return self.output.workspace(f"partial{i}", size)

    def _element(self, operation: Any) -> Any:
        return ops.element_of(operation.results[0].type.element_type)

    # ---- threads

    def _thread(self) -> tuple[Any, Any]:
        """(column, row) of a thread; the faster one runs along the fragments' axis."""
        thread = ops.thread_id()
        fast = self.rows if self.is_row else self.columns
        quotient, rest = thread >> (fast.bit_length() - 1), thread & (fast - 1)
        return (quotient, rest) if self.is_row else (rest, quotient)

    def _emit_first(self, kernel: Kernel, partials: Sequence[str]) -> None:
        column, row = self._thread()
        fragment = self.kept.first_of(ops.block_id(), self.columns) + column
        count = kernel.size(self.kept.fragments, self.kept.bits)
        clamped = ops.minimum(fragment, count - 1)
        kept = self.kept.coordinates(kernel, clamped)
        is_inside = fragment < count
        low, high = self._slice(kernel)
        leaves = self.region.leaves(kernel)
        walk = Walk(kernel, leaves, self.region.symbols)
        before = self._outputs_before(kernel)

        def load(i: Any) -> list[Any]:
            inner = Walk(kernel, leaves, self.region.symbols)
            at = coordinates_of(self.rank, kept, self.reduced.coordinates(kernel, i))
            width = self.tile.vector_elems
            values = [
                reduce.taken(op, inner.value(inputs_of(op)[0], at, width), is_row=self.is_row)
                for op in self.reductions
            ]
            for value, target in before:
                target.store(at, inner.value(value, at, width), is_inside)
            return values

        totals = reduce.accumulate(
            [reduce.combiner(walk, op) for op in self.reductions],
            [
                reduce.start(op, self.tile.vector_elems, is_row=self.is_row)
                for op in self.reductions
            ],
            load, low + row, high, self.rows,
        )  # fmt: skip
        totals = self._combined(kernel, walk, totals, column, row)
        is_writer = ops.both(is_inside, ops.compare("eq", row, 0))
        with ops.if_(is_writer):
            if partials:
                self._store_partials(kernel, partials, totals, fragment)
            else:
                self._store_results(kernel, leaves, totals, kept)

    def _slice(self, kernel: Kernel) -> tuple[Any, Any]:
        """The range of reduced fragments that the block works on."""
        count, bits = self.reduced.fragments, self.reduced.bits
        if self.slices == 1:
            return 0, kernel.size(count, bits)
        length = kernel.size(ceildiv(count, self.slices), bits)
        low = ops.block_id("y") * length
        return low, ops.minimum(low + length, kernel.size(count, bits))

    def _outputs_before(self, kernel: Kernel) -> list[tuple[Any, Any]]:
        """Outputs of the full dims, which are written while the reductions run."""
        return [
            (value, target)
            for value, target in self.region.targets(kernel)
            if not self._is_after(value)
        ]

    def _is_after(self, value: Any) -> bool:
        """Whether a value depends on a reduction."""
        return self.region.depends_on(value, [op.results[0] for op in self.reductions])

    # ---- totals

    @stretch("sum of parts")
    def _combined(
        self, kernel: Kernel, walk: Walk, totals: Sequence[Any], column: Any, row: Any
    ) -> list[Any]:
        """The totals of all rows, right in row 0."""
        found = []
        for i, (op, total) in enumerate(zip(self.reductions, totals, strict=True)):
            combine = reduce.combiner(walk, op)
            if not self.is_row:
                found.append(
                    reduce.across_rows(kernel, f"rows{i}", total, column, row, self.rows, combine)
                )
                continue
            total = reduce.lanes(total, combine)
            if self.rows <= WARP_THREADS:
                found.append(reduce.across_lanes(total, self.rows, combine))
            else:
                found.append(
                    reduce.across_warps(kernel, f"rows{i}", total, column, row, self.rows, combine)
                )
        return found

    # ---- results

    @stretch("epilogue")
    def _store_results(
        self,
        kernel: Kernel,
        leaves: Mapping[Any, Any],
        totals: Sequence[Any],
        kept: Mapping[int, Coordinate],
    ) -> None:
        made = {
            op.results[0]: reduce.Total(t) for op, t in zip(self.reductions, totals, strict=True)
        }
        walk = Walk(kernel, {**leaves, **made}, self.region.symbols)
        at = coordinates_of(self.rank, dict(kept))
        for value, target in self.region.targets(kernel):
            if self._is_after(value):
                target.store(at, walk.value(value, at, self.kept.width))

    @property
    def _partial_bits(self) -> int:
        """Bits of the places of partials."""
        return bits_of_count(self.kept_elements * self.slices)

    @stretch("epilogue")
    def _store_partials(
        self, kernel: Kernel, names: Sequence[str], totals: Sequence[Any], fragment: Any
    ) -> None:
        count = kernel.size(self.kept_elements, self._partial_bits)
        base = ops.block_id("y") * count
        first = ops.of_bits(fragment, self._partial_bits)
        place = base + first * self.kept.width
        for name, total in zip(names, totals, strict=True):
            element = ops.element_of(total.type)
            pointer = ops.gep(kernel.workspace(name), place, element)
            ops.store(pointer, total, element.width // 8)

    def _emit_second(self, kernel: Kernel, names: Sequence[str]) -> None:
        """One total a kept element, over the slices."""
        column, row = self._thread()
        fragment = self.kept.first_of(ops.block_id(), self.columns) + column
        count = kernel.size(self.kept.fragments, self.kept.bits)
        clamped = ops.minimum(fragment, count - 1)
        elements = kernel.size(self.kept_elements, self._partial_bits)
        start = ops.of_bits(clamped, self._partial_bits)
        leaves = self.region.leaves(kernel)
        walk = Walk(kernel, leaves, self.region.symbols)
        width = self.kept.width
        combines = [reduce.combiner(walk, op) for op in self.reductions]

        first = [reduce.identity(op, width) for op in self.reductions]

        @loop(row, self.slices, self.rows, state=first)
        def totals(i: Any, now: list[Any]) -> list[Any]:
            place = i * elements + start * width
            made = []
            for name, combine, total in zip(names, combines, now, strict=True):
                element = ops.element_of(total.type)
                pointer = ops.gep(kernel.workspace(name), place, element)
                loaded = ops.load(pointer, total.type, element.width // 8)
                made.append(combine(total, loaded))
            return made

        totals = self._combined(kernel, walk, totals, column, row)
        is_writer = ops.both(fragment < count, ops.compare("eq", row, 0))
        with ops.if_(is_writer):
            self._store_results(kernel, leaves, totals, self.kept.coordinates(kernel, fragment))


REDUCTION = ReductionEngine()
