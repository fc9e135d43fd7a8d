# pyright: basic
"""The base of the engines of reductions: which axes are reduced, and how memory runs along them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from ...codegen.region import Access, identity_access, loop_groups
from ...dialect.fusion import Fusion, remembered
from ...dialect.op import Op
from ...dialect.ops import Reduction
from ...dialect.tensor import Tensor, stride_order, text
from ...errors import Status
from ...expr import Expr, product
from ..engine import Reason
from ..surface import boolean_reason, pattern_reason
from . import accesses


def is_reduction_op(op: Op) -> TypeGuard[Reduction]:
    """A reduction over some axis; one over none is pointwise work."""
    return op.role == "reduction"


@remembered
def reductions_of(fusion: Fusion) -> tuple[Reduction, ...]:
    return tuple(op for op in fusion.ops if is_reduction_op(op))


def agreement_reasons(reductions: Sequence[Reduction]) -> list[Reason]:
    """Why reductions are not of the same dims over the same axes."""
    first = reductions[0]
    for op in reductions[1:]:
        if (op.x.shape, op.y.shape) != (first.x.shape, first.y.shape):
            what, other = (
                f"{r.label} of {text(r.x.shape)} to {text(r.y.shape)}" for r in (op, first)
            )
            what = f"{what}, {other}"
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "reductions", what, "equal dims, axes")]
    return []


def after_reasons(
    fusion: Fusion, along: Sequence[Reduction], columns: Sequence[Reduction] = ()
) -> list[Reason]:
    """Reasons against what follows, unless it is pointwise, of the dims of rows, of their
    results, or of columns."""
    x, y = along[0].x.shape, along[0].y.shape
    for op in fusion.ops:
        above = {r for t in op.operands for r in fusion.upstream(t)}
        if above & set[Op](columns):
            dims, what = [columns[0].y.shape], "after the sums of columns"
        elif above & set[Op](along) and op not in (*along, *columns):
            dims, what = [x, y], "after the reductions"
        else:
            continue
        if op.role != "pointwise" or any(t.shape not in dims for t in op.results):
            found = f"{op.label} of dims {text(op.results[0].shape)}"
            wanted = f"pointwise operations of dims {' or '.join(map(text, dims))}"
            return [Reason(Status.NOT_SUPPORTED_GRAPH_PATTERN, what, found, wanted)]
        parts = [fusion.upstream(t) for t in op.operands]
        if above & set[Op](columns) and any(
            p & set[Op](along) and not p & set[Op](columns) for p in parts
        ):
            return [pattern_reason(f"{op.label} of rows and of columns", "one of them")]
    return []


def output_reasons(
    fusion: Fusion,
    first: Reduction,
    holds_bytes: Callable[[Tensor, Reduction], bool],
    columns: Sequence[Reduction] = (),
) -> list[Reason]:
    """Outputs are of the dims of rows or of totals; holds_bytes: whether each byte of a boolean
    output has one writer."""
    dims = {first.x.shape, first.y.shape, *(op.y.shape for op in columns)}
    for output in fusion.outputs:
        if output.shape not in dims:
            what = f"{output.label} of dims {text(output.shape)}"
            wanted = " or ".join(sorted(map(text, dims)))
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "output dims", what, wanted)]
        if output.type.kind == "b" and not holds_bytes(output, first):
            return [boolean_reason(output)]
        if output.shape != first.x.shape and not follows_reduction(fusion, output):
            return [unreduced_reason(output)]
    return []


def follows_reduction(fusion: Fusion, output: Tensor) -> bool:
    """Whether a reduction's values lead to an output, not its dims alone: an index has none."""
    return bool(fusion.sources(output) & set[Op](reductions_of(fusion)))


def is_of_indices(fusion: Fusion, output: Tensor) -> bool:
    """Whether an output is made of indices and of no reduction: each lane would give its own."""
    above = fusion.sources(output)
    return not follows_reduction(fusion, output) and any(not op.read_operands for op in above)


def unreduced_reason(output: Tensor) -> Reason:
    what = f"{output.label} of dims {text(output.shape)}, which no reduction leads to"
    return pattern_reason(what, "outputs of the dims before the reductions, or made of theirs")


def sizes_along(op: Reduction) -> tuple[list[Expr], list[Expr]]:
    """(reduced sizes, kept sizes)."""
    reduced = [op.x.shape[axis] for axis in op.axes]
    return reduced, [n for axis, n in enumerate(op.x.shape) if axis not in op.axes]


@remembered
def runs_along_row(fusion: Fusion, op: Reduction) -> bool:
    """Whether a reduction is over the fastest axis of its widest whole input."""
    leaves = [t for t in fusion.inputs if t.shape == op.x.shape] or [op.x]
    leaf = max(leaves, key=lambda t: t.type.bits)
    order = [a for a in stride_order(leaf.shape, leaf.layout) if op.x.shape[a].constant != 1]
    return not order or order[-1] in op.axes


def holds_bytes(output: Tensor, first: Reduction) -> bool:
    """Whether each byte of a boolean output is of one fragment."""
    if output.elements().constant == 1:
        return True
    if output.shape != first.x.shape:
        return False
    order = [a for a in stride_order(output.shape, output.layout) if output.shape[a].constant != 1]
    strides = [output.layout[axis] for axis in order[:-1]]
    is_last = output.layout[order[-1]].constant == 1
    is_last &= output.shape[order[-1]].known_divisor() % 8 == 0
    return is_last and all(s.known_divisor() % 8 == 0 for s in strides)


@remembered
def accesses_of(
    fusion: Fusion, sources: tuple[Reduction, ...]
) -> tuple[tuple[Tensor, Access], ...]:
    """How memory is addressed: leaves before the reductions over all axes, outputs and leaves
    after them over the kept ones."""
    found: list[tuple[Tensor, Access]] = []
    totals = {op.y for op in sources}
    seen: accesses.Reached = set()

    def add(tensor: Tensor, access: Access) -> None:
        reached = accesses.accesses(fusion, tensor, access, totals.__contains__, seen)
        found.extend((t, path) for t, path in reached if t not in fusion.producers)

    dims = sources[0].x.shape
    for op in sources:
        add(op.x, identity_access(len(dims)))
    for tensor in fusion.outputs:
        access = tuple(
            ("loop", axis) if size == n else ("zero",)
            for axis, (size, n) in enumerate(zip(tensor.shape, dims, strict=True))
        )
        found.append((tensor, access))
        add(tensor, access)
    return tuple((t, a) for t, a in found if not t.is_by_value)


@dataclass(frozen=True)
class ReducedAxes:
    """The axes of what is reduced, as loops go through them.

    kept, reduced: see `loop_groups`.  is_row: whether fragments lie along the reduced ones.
    inner: elements of the group that they lie along.  smallest: bits of the smallest type.
    """

    kept: tuple[tuple[int, ...], ...]
    reduced: tuple[tuple[int, ...], ...]
    is_row: bool
    dims: tuple[Expr, ...]
    smallest: int

    def along(self, *, is_row: bool) -> Expr:
        """Elements of the group that fragments lie along."""
        groups = self.reduced if is_row else self.kept
        return product(self.dims[axis] for axis in groups[-1]) if groups else Expr.of(1)


@remembered
def reduced_axes(
    fusion: Fusion,
    sources: tuple[Reduction, ...],
    order_of: Callable[[Fusion, tuple[Reduction, ...]], Sequence[int]],
    is_wide: Callable[[Fusion, Sequence[tuple[Tensor, Access]]], bool],
) -> ReducedAxes:
    """sources: reductions, of which the first says the dims.  order_of: the axes, the slowest
    first.  is_wide: see `loop_groups`."""
    first, found = sources[0], accesses_of(fusion, sources)
    dims = tuple(first.x.shape)
    kept = [axis for axis, n in enumerate(first.y.shape) if n == dims[axis]]
    order, wide = order_of(fusion, sources), is_wide(fusion, found)
    groups = [
        loop_groups(dims, [a for a in order if (a in kept) == is_kept], found, is_wide=wide)
        for is_kept in (True, False)
    ]
    fastest = [axis for axis in order if dims[axis].constant != 1][-1:]
    return ReducedAxes(
        *groups,
        is_row=not fastest or fastest[0] not in kept,
        dims=dims,
        smallest=min(max(8, t.type.bits) for t, _ in found),
    )


# Pairs of a reduction and another one, in whose pass it is found.
Together = frozenset[tuple[Reduction, Reduction]]


@remembered
def levels_of(
    fusion: Fusion, reductions: tuple[Reduction, ...], together: Together = frozenset()
) -> tuple[tuple[Reduction, ...], ...]:
    """The reductions by how many of them, one after the other, they need; together: those that are
    computed at another one's level whatever they need."""
    other, depths = dict(together), dict[Op, int]()
    for op in reductions:
        above = [depths[r] for r in fusion.sources(op.x) if r in depths]
        depths[op] = depths[other[op]] if op in other else 1 + max(above, default=0)
    return tuple(
        tuple(op for op in reductions if depths[op] == d) for d in sorted({*depths.values()})
    )


@remembered
def reads_of_passes(
    fusion: Fusion,
    levels: tuple[tuple[Reduction, ...], ...],
    together: Together = frozenset(),
    after: tuple[Tensor, ...] = (),
) -> tuple[Mapping[Tensor, list[Access]], ...]:
    """How inputs are read in each level's pass, and in the one that comes after.

    together: reductions that go over another one's input.  after: what the last pass goes through
    beside outputs.
    """
    other, dims = dict(together), levels[0][0].x.shape
    stop = {op.y for level in levels for op in level}
    passes = [[other.get(op, op).x for op in level] for level in levels]
    passes.append([*(t for t in fusion.outputs if t.shape == dims), *after])
    return tuple(found_reads(fusion, group, len(dims), stop) for group in passes)


def inputs_read_again(passes: Sequence[Mapping[Tensor, list[Access]]]) -> tuple[Tensor, ...]:
    """Inputs that the first pass over a row reads and a later one again, element by element."""
    first, *later = passes
    return tuple(
        tensor
        for tensor, found in first.items()
        if found == [identity_access(tensor.rank)]
        and any(tensor in each for each in later)
        and not (tensor.is_by_value or tensor.type.kind == "b")
    )


def found_reads(
    fusion: Fusion, tensors: Sequence[Tensor], rank: int, stop: Collection[Tensor]
) -> dict[Tensor, list[Access]]:
    """The inputs that elements of some tensors of a rank come from -> how each is addressed; stop:
    tensors that nothing is looked for behind."""
    found: dict[Tensor, list[Access]] = {}
    seen: accesses.Reached = set()
    for tensor in tensors:
        whole = identity_access(rank)
        for leaf, at in accesses.accesses(fusion, tensor, whole, stop.__contains__, seen):
            if leaf not in fusion.producers:
                found.setdefault(leaf, []).append(at)
    return found


def counts_whole(fusion: Fusion, found: Sequence[tuple[Tensor, Access]]) -> bool:
    """Whether no coordinate is worked out by itself, so that one number of 64 bits may count."""
    return not accesses.takes_apart(fusion, found)


def axis_order(fusion: Fusion, sources: tuple[Reduction, ...]) -> list[int]:
    """Axes from slowest to fastest in the largest tensor that is addressed along all of them."""
    dims = sources[0].x.shape
    whole = [
        t for t, access in accesses_of(fusion, sources)
        if t.shape == dims and access == identity_access(len(dims))
    ]  # fmt: skip
    if not whole:
        return list(range(len(dims)))
    largest = max(whole, key=lambda t: t.type.bits)
    return list(stride_order(largest.shape, largest.layout))
