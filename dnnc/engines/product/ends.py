"""Outputs that are parts of a product's result, or have more axes than it: how engines see them.

    y [1, M, 3N] --slice--> [1, M, N] --reshape--> q [1, B, S, H, D] in memory, k and v alike
->  y [1, M, 3N], which a kernel stores where q, k and v have its elements

Engines judge the fusion below: all that follows the product has its dims.  What the views say is
plain data of the tiling, by which kernels find the parts' places (`codegen.memory.parted`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from ...codegen.hopper import tma
from ...codegen.memory.parted import End
from ...dialect.fusion import Fusion, remembered
from ...dialect.op import Op
from ...dialect.ops import Matmul, Reshape, Slice
from ...dialect.tensor import Tensor, packed_strides
from ...expr import Expr, product


@dataclass(frozen=True)
class Grain:
    """How much of an output that is stored in parts lies together.

    rows, columns: numbers such that neighbours, of which as many as divide it begin at a multiple
    of their number, are of one part and along one axis in memory; 0: any are.
    is_moved: whether TMA takes the parts.
    """

    rows: int
    columns: int
    is_moved: bool


@dataclass(frozen=True)
class Ends:
    """A fusion as engines judge it, and what its outputs stand for.

    of_outputs: of each, the outputs of the graph that are stored in its place.  grains: of each;
    None: it is an output of the graph.
    """

    fusion: Fusion
    of_outputs: tuple[tuple[End, ...], ...] = ()
    grains: tuple[Grain | None, ...] = ()


@remembered
def ends_of(fusion: Fusion) -> Ends:
    """The ends of a fusion; without parts, or where the views behind its product are others than
    `fusion_borders` leaves, the fusion alone."""
    if not fusion.with_role("view") or not isinstance(fusion.anchor, Matmul):
        return Ends(fusion)
    found: dict[Tensor, list[End]] = {}
    behind = set[Op]()
    for place, output in enumerate(fusion.outputs):
        views = _views(fusion, output)
        if not views:
            found[output] = [End(place)]
            continue
        base = views[0].x
        end = _end(place, views, output, fusion.anchor.c.shape)
        if end is None or base in fusion.outputs:
            return Ends(fusion)
        found.setdefault(base, []).append(end)
        behind.update(views)
    if not behind:
        return Ends(fusion)
    parts = {base: ends for base, ends in found.items() if ends[0].axes}
    stands = {base: _stand_in(base, ends[0], fusion) for base, ends in parts.items()}
    ops = tuple(op.with_tensors(stands) for op in fusion.ops if op not in behind)
    outputs = tuple(stands.get(base, base) for base in found)
    return Ends(
        Fusion(fusion.index, ops, outputs, fusion.must_repeat),
        tuple(map(tuple, found.values())),
        tuple(_grain(ends, fusion) if base in parts else None for base, ends in found.items()),
    )


def _views(fusion: Fusion, output: Tensor) -> list[Slice | Reshape]:
    """The slice and the reshape, or one of them, behind a product, whose result an output is."""
    found: list[Slice | Reshape] = []
    for kind in (Reshape, Slice):
        op = fusion.producers.get(found[0].x if found else output)
        is_alone = not found or len(fusion.readers[found[0].x]) == 1
        if type(op) is kind and is_alone and fusion.anchor in fusion.upstream(op.x):
            found.insert(0, op)
    return found


def _end(
    place: int, views: list[Slice | Reshape], output: Tensor, dims: tuple[Expr, ...]
) -> End | None:
    """An output behind views of a tensor of a product's dims; None: the views are others."""
    if views[0].x.shape != dims or output.type.kind == "b":
        return None
    first, last = views[0], views[-1]
    start = stop = 0
    if isinstance(first, Slice):
        *others, columns = range(len(dims))
        if any(first.y.shape[axis] != dims[axis] for axis in others) or first.steps[columns] != 1:
            return None
        start, count = first.starts[columns], first.y.shape[columns].constant or 0
        stop = 0 if start + count == dims[columns].constant else start + count
        dims = first.y.shape
    if not isinstance(last, Reshape):
        return End(place, len(views), start, stop, tuple((axis,) for axis in range(len(dims))))
    runs = last.runs()
    if any(len(own) != 1 for own, _ in runs):
        return None
    axes, count = list[tuple[int, ...]](), 0
    counted = {own[0]: other for own, other in runs}
    for axis in range(len(dims)):
        own = counted.get(axis, [count])
        if own != list(range(count, count + len(own))):
            return None
        axes.append(tuple(own))
        count += len(own)
    return End(place, len(views), start, stop, tuple(axes)) if count == output.rank else None


def _stand_in(base: Tensor, end: End, fusion: Fusion) -> Tensor:
    """A tensor as all parts of it were stored in one piece, contiguous where the first one is."""
    output = fusion.outputs[end.place]
    row, column = (axes[-1] for axes in end.axes[-2:])
    strides = packed_strides(base.shape)
    if not _is_contiguous(output, column):
        *outer, inner = packed_strides((*base.shape[:-2], base.shape[-1], base.shape[-2]))
        scale = 1 if _is_contiguous(output, row) else 2
        strides = (*outer[:-1], inner * scale, outer[-1] * scale)
    return replace(base, strides=strides, alignment=output.alignment, is_virtual=False)


def _is_contiguous(output: Tensor, axis: int) -> bool:
    return output.layout[axis].constant == 1 or output.shape[axis].constant == 1


def _grain(ends: list[End], fusion: Fusion) -> Grain:
    rows = columns = 0
    first, is_moved = fusion.outputs[ends[0].place], True
    is_along_rows = not _is_contiguous(first, ends[0].axes[-1][-1])
    for end in ends:
        output = fusion.outputs[end.place]
        of_rows, of_columns = end.axes[-2:]
        rows = gcd(rows, *_inner(output, of_rows))
        columns = gcd(columns, end.start, end.stop, *_inner(output, of_columns))
        axes = (of_rows[-1], of_columns[-1]) if is_along_rows else (of_columns[-1], of_rows[-1])
        along = output.shape[axes[0]].known_divisor() * output.type.bits
        is_moved &= tma.refusal(output, axes) is None and along % (8 * tma.ALIGNMENT) == 0
    return Grain(rows, columns, is_moved)


def _inner(output: Tensor, axes: tuple[int, ...]) -> list[int]:
    """Numbers that divide how many elements the inner axes of some count to."""
    dims = [output.shape[axis] for axis in axes]
    return [product(dims[place:]).known_divisor() for place in range(1, len(dims))]
