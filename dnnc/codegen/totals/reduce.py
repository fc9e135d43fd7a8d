# pyright: basic
"""Reductions: across the threads of a block, and serially inside one thread.

`combine(a, b)` emits the combination of two fragments; it must be associative, and every order
used here is fixed, so that results repeat bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...dialect import dnn
from ...expr import Expr
from ...mlir import arith, ir, llvm, nvvm
from ...target import WARP_THREADS
from .. import ops
from ..kernel import Kernel
from ..state import loop
from ..walk.index import Coordinate, Index
from ..walk.region_walk import Walk, indexing_maps, init_of, inputs_of, reduced_axes

Combine = Callable[[Any, Any], Any]
UNROLL = 4  # fragments that `accumulate` loads together
_WIDE_LANES = 2  # of a row's fragment where totals are of f64
_SHORT_RUN = 16  # elements of few digits that are added up in f32
_RUN = 16  # groups of these that it combines before they come to the total


def identity(operation: Any, width: int) -> Any:
    """The fragment that a reducing generic starts from: the constant that fills its `outs`."""
    fill = init_of(operation).owner
    assert fill.name == "linalg.fill", f"a reduction that starts from {fill.name}"
    constant = fill.operands[0].owner
    type_ = constant.results[0].type
    made = ir.Operation.create(
        "arith.constant", results=[type_], attributes={"value": constant.attributes["value"]}
    )
    return ops.splat(made.results[0], width)


def start_of(operation: Any) -> float:
    """The number that a reducing generic of floats starts from."""
    return ir.FloatAttr(init_of(operation).owner.operands[0].owner.attributes["value"]).value


def is_wide(operation: Any) -> bool:
    """Whether a reducing generic adds up elements of f32 in f64."""
    names = [view.operation.name for view in operation.regions[0].blocks[0].operations]
    return names == ["arith.extf", "arith.addf", "linalg.yield"]


def neutral(operation: Any, width: int) -> Any:
    """The fragment of elements that changes nothing."""
    if is_wide(operation):
        return ops.zeros(ops.vector_type(ops.f32_type(), width))
    return identity(operation, width)


def taken(operation: Any, value: Any, *, is_row: bool, inside: Any = None) -> Any:
    """The values that totals take of a fragment of elements; is_row: all lanes are of one total.
    inside: whether there is such a fragment; None: there is.

    Where totals are wider, those of a row are added up to two lanes first: conversions are slow,
    and an addition of two elements costs half a unit of their mean at most.
    """
    if not is_wide(operation):
        return where_inside(inside, value, operation)
    while is_row and (width := ops.width_of(value)) > _WIDE_LANES:
        halves = [ops.part(value, at, width // 2) for at in (0, width // 2)]
        value = arith.AddFOp(*halves).result
    type_ = ops.vector_type(ir.F64Type.get(), ops.width_of(value))
    return arith.ExtFOp(type_, where_inside(inside, value, operation)).result


def where_inside(inside: Any, value: Any, operation: Any) -> Any:
    """A fragment of elements; where there is none, what changes nothing."""
    if inside is None:
        return value
    return arith.SelectOp(inside, value, neutral(operation, ops.width_of(value))).result


def start(operation: Any, width: int, *, is_row: bool) -> Any:
    """The total of nothing, as of fragments of so many elements."""
    if is_row and is_wide(operation):
        width = min(width, _WIDE_LANES)
    return identity(operation, width)


def combiner(walk: Walk, operation: Any) -> Combine:
    """The combination of a reducing generic of one operand: total, next -> total; next is another
    total, or what is `taken` of a fragment."""
    if is_wide(operation):
        return lambda total, value: arith.AddFOp(total, value).result

    def combine(total: Any, value: Any) -> Any:
        return walk.body(operation, [value, total], (), ops.width_of(total))

    return combine


def total_of_short(
    values: Sequence[Any], combine: Combine, *, is_row: bool, elements: int = 0
) -> Any:
    """The total, in f64, of fragments of f32 whose elements have few digits
    (`matching.are_short`): runs of `_SHORT_RUN` are added up in f32, which has the sum of like
    elements, since a conversion to f64 takes as long as eight additions.

    elements: of a row that each value is the sum of already; 0: as many as it has lanes.
    """
    run = max(1, _SHORT_RUN // (elements or ops.width_of(values[0]))) if is_row else _SHORT_RUN
    total = None
    for first in range(0, len(values), run):
        some = together(combine, values[first : first + run])
        some = lanes(some, combine) if is_row else some
        type_ = ops.vector_type(ir.F64Type.get(), ops.width_of(some))
        wide = arith.ExtFOp(type_, some).result
        total = wide if total is None else combine(total, wide)
    return total


@dataclass(frozen=True)
class ThreadTotal:
    """The way a thread adds up the elements of one reduction, fragment after fragment.

    operation: the reduction.  width: elements of a fragment.  is_row: whether these are of one
    total.  is_short: whether elements whose total is of f64 have few digits.  is_exact: whether
    they are so few, too, that a total of f32 has the sum of like elements; see `wide`.
    """

    operation: Any
    combine: Combine
    width: int
    is_row: bool
    is_short: bool = False
    is_exact: bool = False

    def start(self) -> Any:
        if self.is_exact:
            return neutral(self.operation, self.width)
        if self.is_short and self.is_row:
            return identity(self.operation, 1)
        return start(self.operation, self.width, is_row=self.is_row)

    def add(self, total: Any, value: Any) -> Any:
        return self.combine(total, self.of([value]))

    def add_all(self, total: Any, values: Sequence[Any]) -> Any:
        return self.combine(total, self.of(values))

    def total(self, found: Any) -> Any:
        return found

    def of(self, values: Sequence[Any]) -> Any:
        """The total of some fragments."""
        if self.is_short and not self.is_exact:
            return total_of_short(values, self.combine, is_row=self.is_row)
        own = self._taken(values[0])
        for value in values[1:]:
            own = self.combine(own, self._taken(value))
        return own

    def _taken(self, value: Any) -> Any:
        return value if self.is_exact else taken(self.operation, value, is_row=self.is_row)


def wide(operation: Any, total: Any) -> Any:
    """A total in the type of a reduction's result, of f32 where that is exact (`ThreadTotal`)."""
    type_ = ops.vector_type(operation.results[0].type.element_type, ops.width_of(total))
    return total if total.type == type_ else arith.ExtFOp(type_, total).result


def lanes(value: Any, combine: Combine) -> Any:
    """The elements of a fragment combined into one, halves first."""
    parts = ops.elements(value)
    while len(parts) > 1:
        half = len(parts) // 2
        folded = [combine(parts[i], parts[i + half]) for i in range(half)]
        parts = folded + parts[2 * half :]
    return parts[0]


def shuffle_xor(value: Any, distance: int) -> Any:
    """Another lane's scalar (32 or 64 bits)."""
    return _shuffled(value, ops.const(distance), nvvm.ShflKind.bfly)


def from_lane(value: Any, lane: Any) -> Any:
    """A lane's fragment of 32 or 64 bits an element."""
    moved = [_shuffled(e, ops.value_of(lane), nvvm.ShflKind.idx) for e in ops.elements(value)]
    return ops.from_elements(moved)


def _shuffled(value: Any, lane: Any, kind: Any) -> Any:
    bits = value.type.width
    word = ops.i32_type()
    if bits == 64:
        pair = llvm.BitcastOp(ir.VectorType.get([2], word), value).result
        moved = ops.from_elements([_shuffled(part, lane, kind) for part in ops.elements(pair)])
        return llvm.BitcastOp(value.type, moved).result
    given = value if value.type == word else llvm.BitcastOp(word, value).result
    mask, clamp = ops.const(-1), ops.const(WARP_THREADS - 1)
    moved = nvvm.shfl_sync(mask, given, lane, clamp, kind)
    return moved if value.type == word else llvm.BitcastOp(value.type, moved).result


def across_lanes(value: Any, count: int, combine: Combine, step: int = 1) -> Any:
    """A fragment combined over groups of `count` lanes of a warp, `step` apart (powers of 2)."""
    distance = step * count // 2
    while distance >= step:
        other = ops.from_elements([shuffle_xor(e, distance) for e in ops.elements(value)])
        value = combine(value, other)
        distance //= 2
    return value


def scattered(
    value: Any, lane: Any, count: int, combine: Combine, step: int
) -> tuple[Any, Any, Any]:
    """(what a lane has of a fragment combined as by `across_lanes`, the first of its elements,
    whether no lane before it has the same).

    lane: of the count.  Lanes exchange halves of what is left, so that a fragment of as many
    elements as lanes takes about as many shuffles, not as many for each step.
    """
    first: Any = 0
    while count > 1 and (width := ops.width_of(value)) > 1:
        count //= 2
        is_upper = ops.compare("ne", lane & count, 0)
        halves = [ops.part(value, at, width // 2) for at in (0, width // 2)]
        kept = arith.SelectOp(is_upper, halves[1], halves[0]).result
        given = arith.SelectOp(is_upper, halves[0], halves[1]).result
        moved = [shuffle_xor(e, step * count) for e in ops.elements(given)]
        value = combine(kept, ops.from_elements(moved))
        first = first + ops.select(is_upper, width // 2, 0)
    is_first = ops.compare("eq", lane & (count - 1), 0) if count > 1 else None
    return across_lanes(value, count, combine, step), first, is_first


def across_rows(
    kernel: Kernel, name: str, value: Any, column: Any, row: Any, rows: int, combine: Combine
) -> Any:
    """A fragment combined over the rows of a block's threads, through shared memory.

    Thread (column, row) gives a fragment; the result is right in row 0.  columns * rows threads.
    """
    if rows == 1:
        return value
    columns = kernel.threads // rows
    return _through_rows(kernel, name, value, column, row, columns, rows, combine)


def _through_rows(
    kernel: Kernel,
    name: str,
    value: Any,
    column: Any,
    row: Any,
    columns: int,
    rows: int,
    combine: Combine,
) -> Any:
    """`across_rows`; threads whose column is not one of so many take no part."""
    width = ops.width_of(value)
    element = ops.element_of(value.type)
    size = element.width // 8
    buffer = kernel.shared(name, columns * rows * width * size)
    is_part = None if columns * rows == kernel.threads else ops.less(column, columns)
    place = (row * columns + column) * width
    alignment = min(16, size * width)
    with ops.if_(is_part):
        ops.store(ops.gep(buffer, place, element), value, alignment)
    ops.barrier()
    column = column if is_part is None else ops.minimum(column, columns - 1)
    total = value
    for other in range(1, rows):
        at = (column + other * columns) * width
        pointer = ops.gep(buffer, at, element)
        total = combine(total, ops.load(pointer, value.type, alignment))
    return total


def across_block(kernel: Kernel, name: str, value: Any, columns: int, combine: Combine) -> Any:
    """A fragment combined over all threads of a block that have the same column.

    Thread t gives one of column t % columns, a power of two up to a warp; the result is right in
    the first so many threads.
    """
    value = across_lanes(value, WARP_THREADS // columns, combine, columns)
    warps, thread = kernel.threads // WARP_THREADS, ops.thread_id()
    lane, warp = thread & (WARP_THREADS - 1), thread >> 5
    return _through_rows(kernel, name, value, lane, warp, columns, warps, combine)


def across_warps(
    kernel: Kernel, name: str, value: Any, column: Any, lane: Any, count: int, combine: Combine
) -> Any:
    """A scalar combined over `count` neighbouring threads, a multiple of a warp.

    column: which such group a thread is in; lane: its place in it.  Right in lane 0.
    """
    value = across_lanes(value, WARP_THREADS, combine)
    warps = count // WARP_THREADS
    if warps == 1:
        return value
    element = value.type
    size = element.width // 8
    groups = kernel.threads // count
    buffer = kernel.shared(name, groups * warps * size)
    warp = lane >> 5
    with ops.if_(ops.compare("eq", lane & (WARP_THREADS - 1), 0)):
        place = column * warps + warp
        ops.store(ops.gep(buffer, place, element), value, size)
    ops.barrier()
    total = ops.load(ops.gep(buffer, column * warps, element), element, size)
    for other in range(1, warps):
        place = column * warps + other
        total = combine(total, ops.load(ops.gep(buffer, place, element), element, size))
    return total


# ---- inside one thread


def accumulate(
    combines: Sequence[Combine],
    totals: Sequence[Any],
    load: Callable[[Any], Sequence[Any]],
    first: Any,
    end: Any,
    step: int,
) -> list[Any]:
    """Totals, one a reduction, and what `load` gives for i = first, first + step, ... below end.

    totals: what changes nothing.  Several fragments are loaded before the first is used, and
    combined with each other, then `_RUN` such groups, before these come to the total: what rounding
    does to small terms of a large total adds up.  The rest go one by one.
    """
    start = list(totals)

    def many(i: Any, now: list[Any]) -> list[Any]:
        loaded = zip(*[load(i + step * u) for u in range(UNROLL)], strict=True)
        groups = [together(c, values) for c, values in zip(combines, loaded, strict=True)]
        return [c(t, v) for c, t, v in zip(combines, now, groups, strict=True)]

    stride = step * UNROLL
    whole = end - step * (UNROLL - 1)

    @loop(first, whole, stride * _RUN, state=start)
    def of_groups(i: Any, now: list[Any]) -> list[Any]:
        own = loop(i, ops.minimum(i + stride * _RUN, whole), stride, state=start)(many)
        return [c(t, v) for c, t, v in zip(combines, now, own, strict=True)]

    done = ops.maximum(whole - first, 0)
    rounds = (done + (stride - 1)) // stride
    rest = first + rounds * stride

    @loop(rest, end, step, state=of_groups)
    def found(i: Any, now: list[Any]) -> list[Any]:
        return [c(t, v) for c, t, v in zip(combines, now, load(i), strict=True)]

    return found


def together(combine: Combine, values: Sequence[Any]) -> Any:
    """Neighbours first, in their order."""
    while len(values) > 1:
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        values = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]


def unrolled(
    first: Any,
    end: Any,
    now: Any,
    load: Callable[[Any], Any],
    use: Callable[[Any, Any], Any],
    together: int,
    use_all: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> Any:
    """A record `now`, after now = use(now, load(i)) for i = first, first + 1, ... below end.

    together: so many loads come before their uses; the rest go one by one.  use_all: what takes
    these at once, as sums do in groups: what rounding does to small terms of a large total adds up.
    """

    count = ops.maximum(end - first, 0)
    rest = first + count - count % together

    @loop(first, rest, together, state=now)
    def most(i: Any, now: Any) -> Any:
        loaded = [load(i + u) for u in range(together)]
        if use_all is not None:
            return use_all(now, loaded)
        for one in loaded:
            now = use(now, one)
        return now

    @loop(rest, end, state=most)
    def found(i: Any, now: Any) -> Any:
        return use(now, load(i))

    return found


def loop_extents(operation: Any, symbols: Sequence[Any]) -> dict[int, Expr]:
    """Loop -> its size, from the dims of the operands."""
    found: dict[int, Expr] = {}
    for operand, map_ in zip(inputs_of(operation), indexing_maps(operation), strict=False):
        dims, _ = dnn.read_layout(operand.type, symbols)
        for extent, result in zip(dims, map_.results, strict=True):
            result = result.maybe_downcast()
            if isinstance(result, ir.AffineDimExpr):
                known = found.get(result.position)
                if known is None or known.constant == 1:
                    found[result.position] = extent
    return found


def serial(
    walk: Walk, operation: Any, at: Sequence[Coordinate], width: int, unroll: int = 1
) -> Any:
    """Reduces in one thread, in the order of the indices: a `Reducer` for any generic.

    unroll: the innermost loops, if they are of at most so many terms, are written out, so that
    loads of several terms are under way together.
    """
    maps = indexing_maps(operation)
    loops: list[Coordinate] = [Index.of(0)] * maps[-1].n_dims
    for coordinate, result in zip(at, maps[-1].results, strict=True):
        result = result.maybe_downcast()
        if isinstance(result, ir.AffineDimExpr):
            loops[result.position] = coordinate
    extents = loop_extents(operation, walk.symbols)
    axes = reduced_axes(operation)
    looped = _loops_kept([extents[axis].constant for axis in axes], unroll)

    def nest(depth: int, total: Any, here: Walk) -> Any:
        if depth == len(axes):
            operands = here.operands(operation, loops, width)
            return here.body(operation, [*operands, total], loops, width)
        if depth >= looped:
            for i in range(extents[axes[depth]].constant or 0):
                loops[axes[depth]] = Index.of(i)
                total = nest(depth + 1, total, here)
            return total
        extent = walk.kernel.size(extents[axes[depth]])

        @loop(0, extent, state=total)
        def end(i: Any, now: Any) -> Any:
            loops[axes[depth]] = Index(i)
            inner = Walk(walk.kernel, walk.leaves, walk.symbols, walk.reducer)
            return nest(depth + 1, now, inner)

        return end

    return nest(0, identity(operation, width), walk)


def _loops_kept(extents: Sequence[int | None], unroll: int) -> int:
    """How many loops, outermost first, are left when the others are of few terms."""
    kept, terms = len(extents), 1
    while kept and (terms := terms * (extents[kept - 1] or unroll + 1)) <= unroll:
        kept -= 1
    return kept


@dataclass(frozen=True)
class Total:
    """A reduction's result in registers, as a leaf of the walk over what comes after."""

    value: Any

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        if width == ops.width_of(self.value):
            return self.value
        assert ops.width_of(self.value) == 1, "a total is read as it was made"
        return ops.splat(self.value, width)
