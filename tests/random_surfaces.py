"""Random graphs inside the support surfaces of engines that take every target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dnnc import dtypes
from dnnc.dialect.tensor import packed_strides
from dnnc.expr import Expr
from tests.random_builder import VIEWS, Builder, broadcast_dims, broadcasts
from tests.random_nodes import MAX_ELEMENTS, Drawn, Node, Untenable, pick


def without_gaps(node: Node) -> None:
    """Boolean outputs are packed, and all in one order of their axes."""
    if node.dtype.kind == "b":
        node.tensor.set_stride(packed_strides(node.dims))


def inside_pointwise(builder: Builder, seed: int) -> Drawn:
    """Pointwise and view operations; outputs of equal dims."""
    kinds = pick(
        builder.rng,
        [{"pointwise": 1}, {"pointwise": 3, **dict.fromkeys(VIEWS, 1)}],
    )
    for _ in range(pick(builder.rng, (1, 2, 3, 4, 5, 6, 7, 8))):
        builder.step(kinds)
    outputs_like_the_last(builder)
    return builder.drawn(seed, "pointwise")


def outputs_like_the_last(builder: Builder) -> list[Node]:
    """The last result and some others of its dims become the outputs."""
    results = builder.results()
    last = results[-1]
    outputs = [n for n in results if n is last or (n.dims == last.dims and builder.chance(0.4))]
    for node in outputs:
        without_gaps(node)
        if node.dtype.kind == "b" and _is_reshaped(builder, node):
            raise Untenable("a reshape knows the strides")
    builder.set_outputs(outputs)
    return outputs


def _is_reshaped(builder: Builder, node: Node) -> bool:
    """Whether a change of its strides would change what a reshape means."""
    return any(
        op.op_name == "reshape" and any(node.tensor is t for t in (*op.operands, *op.results))
        for op in builder.g.graph.ops
    )


def inside_reduction(builder: Builder, seed: int) -> Drawn:
    """Pointwise and views, then reductions of one shape and one set of axes, then pointwise."""
    rng = builder.rng
    for _ in range(pick(rng, {0: 4, 1: 3, 2: 2, 3: 1})):
        builder.step({"pointwise": 5, **dict.fromkeys(VIEWS, 1)})
    x = (builder.results() or [builder.input(builder.dims())])[-1]
    axes = builder.axes(x)
    if all(x.dims[axis].constant == 1 for axis in axes):
        raise Untenable("nothing to reduce")
    sums = [retried(builder, lambda: builder.reduction(x, axes=axes))]
    for _ in range(pick(rng, {0: 6, 1: 2, 2: 1})):
        same = builder.existing(lambda node: node.dims == x.dims and not node.has_sum) or x
        sums.append(retried(builder, lambda s=same: builder.reduction(s, axes=axes)))
    after = followed(builder, sums, pick(rng, {0: 3, 1: 3, 2: 2, 3: 1}), reads=True)
    is_single = all(n.constant == 1 for n in sums[0].dims)
    outputs = [node for node in after if not node.uses or builder.chance(0.25)]
    full = [n for n in builder.results() if n.dims == x.dims and not n.has_sum]
    outputs += [node for node in full if builder.chance(0.2)]
    if any(node.dtype.kind == "b" and not (is_single and node in after) for node in outputs):
        raise Untenable("a boolean output")
    builder.set_outputs(outputs)
    return builder.drawn(seed, "reduction")


def followed(
    builder: Builder, first: Sequence[Node], count: int, *, reads: bool = False
) -> list[Node]:
    """Nodes of equal dims, and pointwise operations of those dims after them.

    reads: whether each must need their values: those of what a reduction leaves.
    """
    after = list(first)
    dims = after[0].dims

    def fits(node: Node) -> bool:
        return node in after or (not node.has_sum and broadcasts(node.dims, dims, False))

    for _ in range(count):
        made = retried(
            builder,
            lambda: builder.pointwise(
                pick(builder.rng, after), dims=dims, accept=fits, reads=reads
            ),
        )
        after.append(made)
    return after


def retried(builder: Builder, make: Callable[[], Node], tries: int = 40) -> Node:
    for _ in range(tries):
        try:
            return make()
        except Untenable:
            continue
    raise Untenable("no operation")


def inside_matmul(builder: Builder, seed: int) -> Drawn:
    """A product of tensor-core types with pointwise and views on A, B and beside it, and
    pointwise operations of its dims after it."""
    rng = builder.rng
    operand = pick(rng, {dtypes.f16: 4, dtypes.bf16: 3, dtypes.f32: 3, dtypes.i8: 2})
    rank = pick(rng, {2: 4, 3: 5, 4: 3, 5: 1})
    batch = builder.dims(rank - 2, 6) if rank > 2 else ()
    m, n, k = (Expr.of(builder.extent(70)) for _ in range(3))
    a = factor_inside(builder, (*batch, m, k), operand)
    b = factor_inside(builder, (*batch, k, n), operand)
    dims = (*broadcast_dims([a.dims[:-2], b.dims[:-2]]), m, n)
    if builder.count(dims) > 2 * MAX_ELEMENTS:
        raise Untenable("size")
    builder.require_countable(dims)
    is_integer = operand == dtypes.i8
    compute = dtypes.i32 if is_integer else pick(rng, {dtypes.f32: 9, dtypes.f16: 1})
    sketch = builder._matmul_sketch(a, b)
    made = builder.g.matmul(builder.realize(a), builder.realize(b), compute_data_type=compute)
    dtype = dtypes.i32 if is_integer and builder.chance(0.7) else builder.result_type(sketch)
    c = builder.finished(made, dtype, dims, sketch, [a, b])
    c.has_sum = True
    after = followed(builder, [c], pick(rng, {0: 2, 1: 3, 2: 3, 3: 2, 4: 1}))
    after += exits(builder, after) if builder.chance(0.3) else []
    outputs = [node for node in after if not node.uses or builder.chance(0.2)]
    if any(node.dtype.kind == "b" for node in outputs):
        raise Untenable("a boolean output")
    builder.set_outputs(outputs)
    return builder.drawn(seed, "matmul_sm80")


def factor_inside(
    builder: Builder, dims: Sequence[Expr], operand: Any, *, whole: bool = False
) -> Node:
    """An operand of a product: an input, or a pointwise graph or a view of inputs.

    It needs no other product.  whole: no batch of it is broadcast.
    """
    dims = [
        Expr.of(1) if not whole and axis < len(dims) - 2 and builder.chance(0.25) else n
        for axis, n in enumerate(dims)
    ]
    kind = pick(builder.rng, {"input": 5, "pointwise": 4, "transpose": 1, "both": 1})
    if kind == "input":
        return builder.input(dims, operand)
    order = [int(axis) for axis in builder.rng.permutation(len(dims))]
    first = builder.input(dims)
    if kind in ("transpose", "both"):
        permuted = [dims[axis] for axis in order]
        source = builder.input(permuted, operand if kind == "transpose" else None)
        back = [int(axis) for axis in np.argsort(order)]
        made = builder.g.transpose(builder.realize(source), back)
        first = builder.finished(made, source.dtype, dims, source.sketch, [source])
    if kind == "transpose":
        return first

    def fits(node: Node) -> bool:
        return not node.has_sum and broadcasts(node.dims, dims, False)

    return retried(
        builder, lambda: builder.pointwise(first, dims=dims, result=operand, accept=fits)
    )


def inside_fallback(builder: Builder, seed: int) -> Drawn:
    """Anything with sums that do not need each other; outputs of equal dims."""
    rng = builder.rng
    for _ in range(pick(rng, {0: 4, 1: 3, 2: 2})):
        builder.step({"pointwise": 3, **dict.fromkeys(VIEWS, 1)})
    count = pick(rng, {1: 5, 2: 3})
    for _ in range(count):
        retried(builder, lambda: _lone_sum(builder))
    for _ in range(pick(rng, {0: 2, 1: 3, 2: 3, 3: 1})):
        builder.step({"pointwise": 3, **dict.fromkeys(VIEWS, 1)})
    if not outputs_like_the_last(builder)[-1].has_sum:
        raise Untenable("no sum is needed")
    return builder.drawn(seed, "fallback")


def _lone_sum(builder: Builder) -> Node:
    """A product or a reduction that needs no other."""
    if builder.chance(0.5):
        return builder.matmul(accept=lambda node: not node.has_sum)
    return builder.reduction(accept=lambda node: not node.has_sum, trivial=False)


def exits(builder: Builder, after: Sequence[Node]) -> list[Node]:
    """One or two reductions of nodes of the product's dims, maybe a pointwise operation after."""
    found: list[Node] = []
    for _ in range(pick(builder.rng, {1: 4, 2: 1})):
        source = pick(builder.rng, after)
        axes = builder.axes(source)
        total = retried(
            builder, lambda s=source, a=axes: builder.reduction(s, axes=a, trivial=False)
        )
        found.append(total)
        if builder.chance(0.3):
            found += followed(builder, [total], 1, reads=True)[1:]
    return found
