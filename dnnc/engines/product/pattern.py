# pyright: basic
"""The base of the engines of matrix products: their pattern, and small readings of a fusion."""

from __future__ import annotations

from collections.abc import Collection

from ... import dtypes
from ...codegen.ampere.operand_tile import is_unit
from ...dialect.fusion import Fusion
from ...dialect.op import Op
from ...dialect.ops import Matmul, MoeGroupedMatmul, Pointwise, Reduction
from ...dialect.tensor import Tensor, text
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr, ceildiv, product
from ..engine import KNOBS_OF_ANY, Reason
from ..surface import boolean_reason, count_reasons, fewer_than, listed, pattern_reason
from ..views.reduced import follows_reduction, unreduced_reason

_MOST_RESULTS = (1 << 31) - 256  # elements of a reduction at the exit
_LEAST_TILE = (16, 8)  # rows and columns: no engine has smaller ones

Product = Matmul | MoeGroupedMatmul


def anchor_reasons(fusion: Fusion) -> tuple[Reason, ...]:
    """Why a fusion's one heavy operation is not a matmul; the other clauses speak of that."""
    anchors = fusion.with_role("anchor")
    if len(anchors) == 1 and isinstance(anchors[0], Matmul):
        return ()
    what = listed(anchors, "no matmul")
    return (pattern_reason(what, "one matmul, pointwise, view operations, reductions after it"),)


def epilogue_reasons(fusion: Fusion, op: Op, *, takes_booleans: bool = False) -> list[Reason]:
    """Why what follows a product is not pointwise, of its dims, and ends in every output."""
    dims = op.results[0].shape
    for other in fusion.ops:
        is_after = any(op in fusion.upstream(t) for t in other.operands)
        if is_after and (other.role != "pointwise" or any(t.shape != dims for t in other.results)):
            what = f"{other.label} of dims {text(other.results[0].shape)} after the product"
            return [pattern_reason(what, f"pointwise operations of dims {text(dims)}", other)]
    for output in fusion.outputs:
        producer = fusion.producers[output]
        if producer is not op and op not in fusion.upstream(output):
            return [pattern_reason(f"{output.label} does not follow the product", "outputs of g2")]
        if output.type.kind == "b" and not takes_booleans:
            return [boolean_reason(output)]
    return []


def products_reasons(fusion: Fusion, most: int) -> tuple[Reason, ...]:
    """Why a fusion's heavy operations are not some matmuls, none of which needs another."""
    supported = f"one to {most} matmuls or grouped products of equal dims, reductions after them"
    anchors = fusion.with_role("anchor")
    found = [op for op in anchors if isinstance(op, Product)]
    if not found or len(found) != len(anchors) or len(found) > most:
        what = listed(anchors, "no matmul")
        return (pattern_reason(what, supported),)
    for op in found:
        if type(op) is not type(found[0]) or _offsets(op) is not _offsets(found[0]):
            what = f"{op.label} and {found[0].label}"
            return (pattern_reason(what, "matmuls, or grouped products of the same offsets", op),)
        if op.c.shape != found[0].c.shape:
            what = f"products of dims {text(op.c.shape)} and others"
            return (pattern_reason(what, supported, op),)
        depths = [other.a.shape[-1] for other in (op, found[0])]
        if depths[0] != depths[1]:
            what = f"products of K = {depths[0]} and {depths[1]}"
            return (pattern_reason(what, "products of one K", op),)
        if any(other in fusion.upstream(t) for t in op.operands for other in found):
            return (pattern_reason(f"{op.label} needs another product", supported, op),)
    return ()


def tile_reasons(op: Product) -> list[Reason]:
    """Why there are more tiles, of small matrices, than kernels count."""
    *batch, m, n = op.c.shape
    tiles = product([*batch, ceildiv(m, _LEAST_TILE[0]), ceildiv(n, _LEAST_TILE[1])])
    return count_reasons(tiles, f"tiles of {op.label}")


def _offsets(op: Product) -> Tensor | None:
    return op.first_token_offset if isinstance(op, MoeGroupedMatmul) else None


def matmuls_of(fusion: Fusion) -> list[Product]:
    return [op for op in fusion.ops if isinstance(op, Product)]


def groups_of(fusion: Fusion) -> Expr:
    """How many groups the rows of A are in; 0: they are not grouped."""
    op = matmul_of(fusion)
    return op.experts if isinstance(op, MoeGroupedMatmul) else Expr.of(0)


def is_grouped(fusion: Fusion) -> bool:
    return isinstance(matmul_of(fusion), MoeGroupedMatmul)


def flowing_reductions(fusion: Fusion) -> list[Reduction]:
    """The reductions whose results go on into work of the product's dims."""
    dims = fusion.with_role("anchor")[0].results[0].shape
    return [
        op
        for op in fusion.ops
        if isinstance(op, Reduction)
        and any(
            op in fusion.upstream(t)
            for other in fusion.ops
            if other.role != "reduction" and other.results[0].shape == dims
            for t in other.operands
        )
    ]


def reducing_epilogue_reasons(
    fusion: Fusion, most_columns: int, kept: Collection[Tensor] = ()
) -> list[Reason]:
    """Why what follows the products is not pointwise work and reductions that an epilogue can do.

    most_columns: of a row that a tile holds; 0: no reduction may be used by what follows.  kept:
    outputs that are operands of the products.
    """
    made = set(fusion.with_role("anchor"))
    dims = fusion.with_role("anchor")[0].results[0].shape
    reduced = {op.y.shape for op in fusion.ops if isinstance(op, Reduction)}
    for op in fusion.ops:
        upstream = {other for t in op.operands for other in fusion.upstream(t)}
        is_after = bool(made & upstream)
        if isinstance(op, Reduction) and (not is_after or op.x.shape != dims):
            what = f"{op.label} of dims {text(op.x.shape)}"
            return [pattern_reason(what, f"reductions of the product's dims {text(dims)}", op)]
        if is_after and op.role not in ("pointwise", "reduction"):
            return [pattern_reason(f"{op.label} after the product", "pointwise, reduction", op)]
        if is_after and any(t.shape not in (dims, *reduced) for t in op.results):
            what = f"{op.label} of dims {text(op.results[0].shape)} after the product"
            return [pattern_reason(what, f"pointwise operations of dims {text(dims)}", op)]
    for op in flowing_reductions(fusion):
        width = dims[-1].bounds()[1]
        axes = [axis for axis in op.axes if dims[axis].constant != 1]
        if axes != [len(dims) - 1] or width > most_columns:
            what = f"{op.label} over axes {axes} of {text(dims)}, used by what follows"
            rows = f"reductions of rows of up to {most_columns} elements"
            return [pattern_reason(what, rows if most_columns else "reductions at the exit", op)]
    reasons = _order_reasons(fusion) or _result_reasons(fusion)
    return reasons or _output_reasons(fusion, made, kept, holds_rows=most_columns > 0)


def _result_reasons(fusion: Fusion) -> list[Reason]:
    """The kernel that combines partials counts a result's elements, a block's at a time, in 31
    bits."""
    flowing = flowing_reductions(fusion)
    for op in fusion.ops:
        count = op.results[0].elements()
        if isinstance(op, Reduction) and op not in flowing and count.bounds()[1] >= _MOST_RESULTS:
            what = f"{op.label} to {count.bounds()[1]} elements"
            supported = fewer_than(_MOST_RESULTS, count)
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "size", what, supported)]
    return []


def _order_reasons(fusion: Fusion) -> list[Reason]:
    """Reductions at the exit are of what is there before a row's are, or of rows themselves."""
    flowing = flowing_reductions(fusion)
    for op in fusion.ops:
        if isinstance(op, Reduction) and op not in flowing:
            before = next((r for r in flowing if r in fusion.upstream(op.x)), None)
            if before is not None and op.y.shape != before.y.shape:
                what = f"{op.label} of what {before.label} leads to"
                wanted = "reductions at the exit, or of rows that flow on"
                return [pattern_reason(what, wanted, op)]
    return []


def _output_reasons(
    fusion: Fusion, made: set[Op], kept: Collection[Tensor], *, holds_rows: bool
) -> list[Reason]:
    """Why outputs are declined.  holds_rows: whether tiles may hold whole rows of reductions."""
    flowing = set(flowing_reductions(fusion))
    dims = fusion.with_role("anchor")[0].results[0].shape
    reduced = {op.y.shape for op in fusion.ops if isinstance(op, Reduction) and op not in flowing}
    for output in fusion.outputs:
        if output in kept:
            continue
        upstream = fusion.upstream(output)
        is_beside = output.shape in reduced and all(op.role == "pointwise" for op in upstream)
        if is_beside and not holds_rows and output.type.kind != "b":
            continue  # stored with the reductions' results
        if not made & upstream:
            return [pattern_reason(f"{output.label} does not follow the product", "outputs of g2")]
        if output.shape != dims and not follows_reduction(fusion, output):
            return [unreduced_reason(output)]
        exits = [op for op in upstream if isinstance(op, Reduction) and op not in flowing]
        if len({op.y.shape for op in exits}) > 1:
            what = (
                f"{output.label} of reductions to {' and '.join(text(op.y.shape) for op in exits)}"
            )
            return [pattern_reason(what, "outputs of reductions of equal dims")]
    return []


def row_reasons(fusion: Fusion) -> list[Reason]:
    """Why row sums at the exit are left to the kernel that reads the product next, as a norm's.

    That kernel has them on its way; at the exit they take partials and a launch more.  Sums of
    rows that tiles hold whole take neither.
    """
    dims = fusion.with_role("anchor")[0].results[0].shape
    if not any(t.shape == dims for t in fusion.outputs):
        return []
    held = set(flowing_reductions(fusion))
    for output in fusion.outputs:
        is_of_rows = output.shape == (*dims[:-1], Expr.of(1)) != dims
        if output.is_virtual and is_of_rows and held.isdisjoint(fusion.upstream(output)):
            what = f"{output.label} of each row, which other kernels take beside the product"
            return [pattern_reason(what, "reductions of rows that are outputs of the graph")]
    return []


def compute_reasons(compute: DType, a: DType, b: DType) -> list[Reason]:
    """The compute type has to be one whose sums the tensor cores keep; a, b: of the operands."""
    sums = (dtypes.i32,) if a.is_integer else (dtypes.f32, dtypes.f16)
    if a.is_fp8 and b.is_fp8:
        sums = (*sums, dtypes.fast_float_for_fp8)
    if compute in sums:
        return []
    return [
        Reason(
            Status.NOT_SUPPORTED_DATA_TYPE,
            "compute type",
            f"{compute.cudnn} for {a}",
            ", ".join(row.cudnn for row in sums),
        )
    ]


def promotes_sums(a: DType, compute: DType) -> bool:
    """Whether sums have to be more exact than the accumulators of fp8 products are."""
    return a.is_fp8 and compute != dtypes.fast_float_for_fp8


def matmul_of(fusion: Fusion) -> Product:
    for op in fusion.ops:
        if isinstance(op, Product):
            return op
    raise ValueError("a fusion without a product")


def sizes_of(op: Product) -> tuple[Expr, Expr, Expr, Expr]:
    """M, N, K and the number of matrices."""
    return op.a.shape[-2], op.b.shape[-1], op.a.shape[-1], product(op.c.shape[:-2])


def is_heavy(op: Op) -> bool:
    """Whether it takes many instructions an element: exp, tanh, erf and the like."""
    return isinstance(op, Pointwise) and op.row.domain == "float" and not op.mode.startswith("relu")


def is_along_columns(output: Tensor) -> bool:
    """Whether an output's columns, not its rows, are contiguous."""
    row, column = output.rank - 2, output.rank - 1
    return is_unit(output, row) and not is_unit(output, column)


def knob_reason(what: str, supported: str, *, of_any: bool = False) -> Reason:
    """A reason of clause knobs.  of_any: these knobs go together for no fusion."""
    return Reason(Status.NOT_SUPPORTED, KNOBS_OF_ANY if of_any else "knobs", what, supported)
