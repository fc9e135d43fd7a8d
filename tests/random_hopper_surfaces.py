"""Random graphs inside the support surface of matmul_sm90."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dnnc
from dnnc import dtypes
from dnnc.dialect.tensor import packed_strides, sizes
from dnnc.expr import Expr
from tests.random_builder import F8_TYPES, Builder, broadcast_dims, broadcasts
from tests.random_nodes import MAX_ELEMENTS, Drawn, Factor, Node, Offsets, Style, Untenable, pick
from tests.random_surfaces import exits, factor_inside, followed, retried


def inside_hopper(builder: Builder, seed: int) -> Drawn:
    """One product, or two of equal dims and types, as for matmul_sm80 and of fp8; after them
    pointwise operations, among them a row's reduction that they use again, or reductions at the
    exit."""
    rng = builder.rng
    shape = pick(rng, {"pointwise": 5, "pair": 2, "row": 3, "exit": 4})
    types, is_fast = _hopper_types(builder)
    rank = pick(rng, {2: 4, 3: 5, 4: 3})
    batch = builder.dims(rank - 2, 6) if rank > 2 else ()
    m, k = (Expr.of(builder.extent(limit)) for limit in (70, 150))
    n = Expr.of(int(rng.integers(2, 70)) if shape == "row" else builder.extent(70))

    def factor(dims: Sequence[Expr], dtype: Any) -> Node:
        return factor_inside(builder, dims, dtype)

    products = _hopper_products(
        builder, (*batch, m, n, k), types, is_fast, (factor, factor), is_pair=shape == "pair"
    )
    after, ends = _hopper_epilogue(builder, products, shape)
    outputs = [node for node in (*after, *ends) if not node.uses or builder.chance(0.2)]
    if any(node.dtype.kind == "b" for node in outputs):
        raise Untenable("a boolean output")
    builder.set_outputs(outputs)
    return builder.drawn(seed, "matmul_sm90")


def _hopper_types(builder: Builder) -> tuple[tuple[Any, Any], bool]:
    """Types of A and B, and whether their sums may be those of FAST_FLOAT_FOR_FP8."""
    rng = builder.rng
    operand = pick(rng, {dtypes.f16: 4, dtypes.bf16: 3, dtypes.f32: 3, dtypes.i8: 2, "fp8": 3})
    first, second = (pick(rng, F8_TYPES) if operand == "fp8" else operand for _ in "ab")
    return (first, second), operand == "fp8" and builder.chance(0.4)


def _hopper_products(
    builder: Builder,
    dims: Sequence[Expr],
    types: tuple[Any, Any],
    is_fast: bool,
    factors: tuple[Factor, Factor],
    *,
    is_pair: bool,
) -> list[Node]:
    """One or two products of dims [.., M, N, K]; factors: what makes A and B."""
    *batch, m, n, k = dims

    def a() -> Node:
        return factors[0]((*batch, m, k), types[0])

    def b() -> Node:
        return factors[1]((*batch, k, n), types[1])

    first = a()
    c = _hopper_product(builder, first, b(), is_fast)
    if not is_pair:
        return [c]
    again = first if builder.chance(0.7) else a()
    other = _hopper_product(builder, again, b(), is_fast)
    if other.dims != c.dims:
        raise Untenable("products of other dims")
    return [c, other]


def _hopper_epilogue(
    builder: Builder, products: Sequence[Node], shape: str
) -> tuple[list[Node], list[Node]]:
    """Nodes of the products' dims (and reductions that they use), and those of the exit."""
    after = followed(builder, products, pick(builder.rng, {0: 2, 1: 3, 2: 3, 3: 1}))
    if shape == "pair":
        # One operation that needs both.
        after.append(retried(builder, lambda: _both(builder, products)))
    if shape == "row":
        after += _normalized(builder, after)
    return after, exits(builder, after) if shape == "exit" else []


def _hopper_product(builder: Builder, a: Node, b: Node, is_fast: bool) -> Node:
    whole = (*broadcast_dims([a.dims[:-2], b.dims[:-2]]), a.dims[-2], b.dims[-1])
    if builder.count(whole) > 2 * MAX_ELEMENTS:
        raise Untenable("size")
    builder.require_countable(whole)
    compute = dtypes.fast_float_for_fp8 if is_fast else dtypes.f32
    if b.dtype == dtypes.i8:
        compute = dtypes.i32
    sketch = builder._matmul_sketch(a, b)
    made = builder.g.matmul(builder.realize(a), builder.realize(b), compute_data_type=compute)
    is_integer = b.dtype == dtypes.i8 and builder.chance(0.7)
    result = dtypes.i32 if is_integer else builder.result_type(sketch)
    node = builder.finished(made, result, whole, sketch, [a, b])
    node.has_sum = True
    return node


def _both(builder: Builder, products: Sequence[Node]) -> Node:
    """A pointwise operation of two products."""
    first, second = products
    made = builder.pointwise(first, dims=first.dims, accept=lambda node: node is second)
    if not second.uses:
        raise Untenable("one product is not needed")
    return made


def _normalized(builder: Builder, after: Sequence[Node]) -> list[Node]:
    """A reduction of the rows of a node, and pointwise operations of full dims that use it."""
    source = pick(builder.rng, after)
    axis = source.rank - 1
    total = retried(builder, lambda: builder.reduction(source, axes=[axis], trivial=False))

    def fits(node: Node) -> bool:
        return node is total

    made = retried(builder, lambda: builder.pointwise(source, dims=source.dims, accept=fits))
    if not total.uses:
        raise Untenable("the reduction is not needed")
    return [total, made, *followed(builder, [made], pick(builder.rng, {0: 3, 1: 2}))[1:]]


# ---- packed boolean outputs of matmul_sm90

_MASKING = {"comparison": 12, "logic": 2, "binary": 1, "unary": 1, "activation": 1, "select": 1}
_BYTE = 8  # elements


def inside_bits(builder: Builder, seed: int) -> Drawn:
    """A graph inside matmul_sm90's surface, with masks of the product's dims, alone or not."""
    rng = builder.rng
    builder.most = MOST_OF_TILES
    shape = pick(rng, {"pointwise": 5, "pair": 2, "row": 2, "exit": 2})
    # What lies along the instruction's columns has whole bytes; a row that flows on is along them.
    axis = -1 if shape == "row" or builder.chance(0.7) else -2
    types, is_fast = _hopper_types(builder)
    batch = builder.dims(pick(rng, {1: 5, 2: 2}), 4) if builder.chance(0.6) else ()
    m, n = (_extent_of_bytes(builder) if at == axis else _side(builder) for at in (-2, -1))
    if shape == "row" and n.bounds()[1] > MOST_REDUCED:
        raise Untenable("a row too long for a tile")
    whole_dims, factors = (*batch, m, n, _depth(builder)), _tiled_factors(builder)
    products = _hopper_products(
        builder, whole_dims, types, is_fast, factors, is_pair=shape == "pair"
    )
    after, ends = _hopper_epilogue(builder, products, shape)
    masks = _masks(builder, [node for node in after if node.dims == products[0].dims])
    outputs = [n for n in (*after, *masks, *ends) if not n.uses or builder.chance(0.2)]
    if not _pack_booleans(builder, outputs, products[0].dims, axis):
        raise Untenable("every mask is used")
    builder.set_outputs(outputs)
    return builder.drawn(seed, "matmul_sm90")


def _extent_of_bytes(builder: Builder) -> Expr:
    """A size of whole bytes of booleans."""
    symbols = [s for s in builder.symbols if Expr.of(s).known_divisor() % _BYTE == 0]
    if symbols and builder.chance(0.5):
        return Expr.of(pick(builder.rng, symbols))
    return Expr.of(_BYTE * int(builder.rng.integers(1, pick(builder.rng, {6: 2, 18: 1}))))


def _masks(builder: Builder, sources: Sequence[Node]) -> list[Node]:
    """One or two boolean nodes, and maybe one that uses the first."""
    dims = sources[0].dims
    found: list[Node] = []

    def fits(node: Node) -> bool:
        return node in sources or (not node.has_sum and broadcasts(node.dims, dims, False))

    for _ in range(pick(builder.rng, {1: 3, 2: 1})):
        source = pick(builder.rng, sources)
        made = retried(
            builder,
            lambda s=source: builder.pointwise(
                s, dims=dims, result=dtypes.i1, accept=fits, groups=_MASKING
            ),
        )
        found.append(made)
    return followed(builder, found, 1) if builder.chance(0.2) else found


def _pack_booleans(
    builder: Builder, outputs: Sequence[Node], dims: Sequence[Expr], axis: int
) -> bool:
    """Boolean outputs get strides that are whole bytes, the axis contiguous; whether any does."""
    booleans = [node for node in outputs if node.dtype.kind == "b"]
    if any(node.dims != tuple(dims) for node in booleans):
        raise Untenable("a boolean output of a reduction")
    for node in booleans:
        node.tensor.set_stride(_strides_of_bytes(builder, dims, axis % len(dims)))
    return bool(booleans)


def _strides_of_bytes(builder: Builder, dims: Sequence[Expr], axis: int) -> list[Expr]:
    others = [other for other in range(len(dims)) if other != axis]
    if builder.chance(0.2):
        others = [int(at) for at in builder.rng.permutation(others)]
    found = [Expr.of(1)] * len(dims)
    running = dims[axis]
    for other in reversed(others):
        running = running + pick(builder.rng, {0: 6, _BYTE: 1, 3 * _BYTE: 1})
        found[other] = running
        running = running * dims[other]
    return found


# ---- what fills tiles of Hopper's

MOST_OF_TILES = 24_000  # elements of a computed operand or of a product
MOST_REDUCED = 128  # columns of a tile of every knob that the tests draw


def _side(builder: Builder) -> Expr:
    """M or N: a part of a tile, about one, or several."""
    if builder.symbols and builder.chance(0.3):
        return Expr.of(pick(builder.rng, builder.symbols))
    low, high = pick(builder.rng, {(1, 16): 2, (17, 70): 3, (71, 200): 2})
    return Expr.of(int(builder.rng.integers(low, high + 1)))


def _depth(builder: Builder) -> Expr:
    """K, of aligned rows more often than not."""
    if builder.chance(0.65):
        return Expr.of(16 * int(builder.rng.integers(1, pick(builder.rng, {10: 3, 17: 1}))))
    return Expr.of(builder.extent(150))


def _tiled_factors(builder: Builder, *, whole: bool = False) -> tuple[Factor, Factor]:
    """Functions that make A and B; whole: no batch of theirs is broadcast.

    Now and then, of such as consumers can compute in their registers: one comes by TMA, the
    other is computed of narrow elements that do, with k contiguous.
    """
    kinds = pick(builder.rng, {("", ""): 5, ("raw", "tma"): 2, ("tma", "raw"): 2})

    def a(dims: Sequence[Expr], dtype: Any) -> Node:
        return _tiled_factor(builder, dims, dtype, kinds[0], len(dims) - 1, whole)

    def b(dims: Sequence[Expr], dtype: Any) -> Node:
        return _tiled_factor(builder, dims, dtype, kinds[1], len(dims) - 2, whole)

    return a, b


def _tiled_factor(
    builder: Builder, dims: Sequence[Expr], dtype: Any, kind: str, k_axis: int, whole: bool
) -> Node:
    """An operand of a product, in the layouts and with the work before it that paths are for.

    kind: "tma": an aligned input; "raw": computed of one, k contiguous; "": any operand.
    """
    work = {"tma": "input", "raw": "computed"}.get(kind)
    work = work or pick(builder.rng, {"input": 4, "computed": 5, "any": 2})
    if work == "any":
        return factor_inside(builder, dims, dtype, whole=whole)
    dims = [
        Expr.of(1) if not whole and axis < len(dims) - 2 and builder.chance(0.2) else n
        for axis, n in enumerate(dims)
    ]
    if work == "input":
        return _tiled_input(builder, dims, dtype, kind, k_axis)
    read = dtype
    if builder.chance(0.75):
        narrow = (dtypes.i8, dtypes.f16, dtypes.bf16, *F8_TYPES)
        read = pick(builder.rng, narrow if kind else (*narrow, dtypes.f32))
    source = _tiled_input(builder, dims, read, kind, k_axis)

    def fits(node: Node) -> bool:
        return not node.has_sum and broadcasts(node.dims, dims, False)

    return retried(builder, lambda: builder.pointwise(source, dims=dims, result=dtype, accept=fits))


def _tiled_input(
    builder: Builder, dims: Sequence[Expr], dtype: Any, kind: str, k_axis: int
) -> Node:
    """With k contiguous, or the matrix's other axis, or of any layout."""
    made = builder.input(dims, dtype)
    order = [axis for axis in range(len(dims)) if axis != k_axis]
    layouts = [packed_strides(dims, [*order, k_axis])] * 5
    if kind != "raw":
        layouts += [packed_strides(dims, [*order[:-1], k_axis, order[-1]])] * 3
    if not kind:
        layouts += [made.strides] * 2
    made.strides = pick(builder.rng, layouts)
    made.alignment = 16 if kind else 0
    return made


# ---- grouped products


def inside_grouped(builder: Builder, seed: int) -> Drawn:
    """One product of experts, or two of the same offsets, pointwise operations before and after
    it; now and then masks among the outputs."""
    rng = builder.rng
    builder.most = MOST_OF_TILES
    operand = pick(rng, {dtypes.f16: 4, dtypes.bf16: 4, dtypes.f32: 2, "fp8": 3})
    types = tuple(pick(rng, F8_TYPES) if operand == "fp8" else operand for _ in "ab")
    rows, experts, k = _tokens(builder), _experts(builder), _depth(builder)
    has_masks = builder.chance(0.3)
    n = _extent_of_bytes(builder) if has_masks else _side(builder)
    first, source = _offsets(builder, experts, rows)
    a, b = _tiled_factors(builder, whole=True)
    token = a((Expr.of(1), rows, k), types[0])
    products = [_grouped_product(builder, token, b((experts, k, n), types[1]), first)]
    if is_pair := builder.chance(0.25):
        again = token if builder.chance(0.75) else a((Expr.of(1), rows, k), types[0])
        products.append(_grouped_product(builder, again, b((experts, k, n), types[1]), first))
    op = next(op for op in builder.g.graph.ops if products[0].tensor in op.results)
    builder.styles[source.tensor] = Offsets(op, pick(rng, {1: 5, 16: 1, 64: 1}))
    after, _ = _hopper_epilogue(builder, products, "pair" if is_pair else "pointwise")
    masks = _masks(builder, after) if has_masks else []
    outputs = [node for node in (*after, *masks) if not node.uses or builder.chance(0.2)]
    if not has_masks and any(node.dtype.kind == "b" for node in outputs):
        raise Untenable("a boolean output")
    _pack_booleans(builder, outputs, products[0].dims, -1)
    builder.set_outputs(outputs)
    return builder.drawn(seed, "matmul_sm90")


def _tokens(builder: Builder) -> Expr:
    """Rows of all experts: parts of a tile, or tiles; a symbol now and then."""
    low, high = pick(builder.rng, {(1, 16): 2, (17, 70): 2, (71, 200): 2})
    count = int(builder.rng.integers(low, high + 1))
    if not builder.chance(0.35):
        return Expr.of(count)
    builder.sizes["R"] = count
    return Expr.of(dnnc.Dim("R", max=pick(builder.rng, {512: 1, 4096: 1})))


def _experts(builder: Builder) -> Expr:
    count = int(builder.rng.integers(1, pick(builder.rng, {4: 4, 9: 4, 40: 1})))
    if not builder.chance(0.25):
        return Expr.of(count)
    builder.sizes["E"] = count
    return Expr.of(dnnc.Dim("E", max=pick(builder.rng, {64: 1, 1024: 1})))


def _offsets(builder: Builder, experts: Expr, rows: Expr) -> tuple[Node, Node]:
    """The offsets of experts, and the input that they come from: itself, or behind operations."""
    dims = (experts, Expr.of(1), Expr.of(1))
    steps = pick(builder.rng, {"none": 6, "cast": 1, "shift": 1})
    kind = pick(builder.rng, (dtypes.i64, dtypes.f32)) if steps == "cast" else dtypes.i32
    source = builder.input(dims, kind, Style(0, builder.value_of(rows), 1))
    source.strides = sizes(pick(builder.rng, ((1, 1, 1), (1, 1, 1), (3, 1, 1), (1, 7, 5))))
    tensor, g = builder.realize(source), builder.g
    if steps == "none":
        return source, source
    if steps == "cast":
        made = g.identity(tensor, compute_data_type=dtypes.f32)
    else:
        made = g.add(tensor, 3, compute_data_type=dtypes.i32).set_data_type(dtypes.i32)
        made = g.sub(made, 3, compute_data_type=dtypes.i32)
    return builder.finished(made, dtypes.i32, dims, source.sketch, [source]), source


def _grouped_product(builder: Builder, token: Node, weight: Node, first: Node) -> Node:
    dims = (Expr.of(1), token.dims[1], weight.dims[2])
    if builder.count(dims) > MOST_OF_TILES:
        raise Untenable("size")
    builder.require_countable(dims)
    sketch = builder._matmul_sketch(token, weight)
    tensors = [builder.realize(node) for node in (token, weight, first)]
    made = builder.g.moe_grouped_matmul(*tensors, compute_data_type=dtypes.f32)
    node = builder.finished(made, builder.result_type(sketch), dims, sketch, [token, weight])
    node.has_sum = True
    return node
