# pyright: basic
"""lower-to-linalg: the operations of each fusion become linalg over scalar arith and math.

Precondition: fusions with an engine.  Postcondition: each fusion's function holds
`linalg.generic` operations (attribute `dnn.role`) and calls of anchors; an anchor is a private
function that holds its own decomposition, which an engine may inline or replace, and whose
attributes are those of the operation (`dnn.compute_type`).

    "dnn.pointwise"(%c, %b) {mode = "add", role = "g2"}
->  linalg.generic {indexing_maps = [(d0, d1, d2) -> (d0, d1, d2), ... -> (0, 0, d2), ...]}
        ins(%c, %b) outs(%empty) attrs = {dnn.role = "g2"} { arith.addf ... }

The bodies convert operands to the compute type and the result to its data type, so that virtual
tensors are rounded.  Reductions become a map (where the mode has one), a combination that is
associative and a finish.  Tensors keep their layouts; ui8 becomes signless i8.
"""

from __future__ import annotations

import math as python_math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .. import dtypes
from ..codegen.scalar import Scalars, accumulation_type, constant, convert, element_type
from ..dialect import dnn, structure
from ..dialect.fusion import Fusion
from ..dialect.op import Op
from ..dialect.ops import (
    BlockMaskLoad,
    Concatenate,
    ConvFprop,
    Matmul,
    MoeGroupedMatmul,
    PagedCacheLoad,
    PeerReduction,
    Pointwise,
    RaggedLoad,
    RaggedStore,
    Reduction,
    Resample,
    ResampleBackward,
    Reshape,
    Rng,
    Slice,
    Transpose,
)
from ..dialect.ops.reduction import ReductionMode
from ..dialect.ops.views import View, coordinates
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..engines import engine_named, explicit
from ..engines.attention import attention_of, attention_reasons
from ..engines.operand_types import CASTING, with_casts
from ..engines.refined import REFINING, refined
from ..errors import DnncError, Status
from ..expr import Dim, Expr, product
from ..mlir import arith, attributes_of, func, ir, linalg, tensor
from ..rounding import round_to, widen
from .fuse import target_of
from .linalg_approximation import approximation, stays_float
from .linalg_block_mask import block_mask_load
from .linalg_conv import conv_fprop_body
from .linalg_paged import paged_cache_load
from .linalg_peers import peer_reduction
from .linalg_ragged import ragged_load, ragged_store_body
from .linalg_resample import resample, resample_backward
from .linalg_rng import rng
from .pass_base import Pass

_WHOLE_F32 = 1 << 24  # integers up to it are f32 numbers


@dataclass
class _Lowering:
    """One fusion on its way: values of its tensors so far.

    scores: operations on the scores of an attention.  of_rows: its reductions, which reduce the
    last axis where that is one key, too.
    """

    module: Any
    fusion: Fusion
    name: str
    symbols: list[str]
    values: dict[Tensor, Any] = field(default_factory=dict)
    role: str = ""
    anchors: int = 0
    scores: frozenset[Op] = frozenset()
    of_rows: frozenset[Op] = frozenset()

    # ---- types

    def type_of(self, like: Tensor, dtype: DType | None = None) -> Any:
        """like's dims and layout, with signless elements of `dtype` (default: its own)."""
        ranked = ir.RankedTensorType(dnn.tensor_type(like, self.symbols))
        element = element_type(dtype or like.type)
        return ir.RankedTensorType.get(ranked.shape, element, ranked.encoding)

    def empty(self, type_: Any, dims: Sequence[Expr]) -> Any:
        """An uninitialised tensor of these dims."""
        dynamic = [
            structure.emit_size(extent, self.symbols) for extent in dims if extent.constant is None
        ]
        operation = ir.Operation.create("tensor.empty", results=[type_], operands=dynamic)
        return operation.results[0]

    def filled(self, like: Tensor, dtype: DType, value: float | int) -> Any:
        """A tensor of like's dims, each element `value`."""
        scalar = constant(value, element_type(dtype))
        type_ = self.type_of(like, dtype)
        made = linalg.FillOp([type_], [scalar], [self.empty(type_, like.shape)])
        linalg.fill_builtin_region(made.operation)
        return made.results[0]

    # ---- generics

    def generic(
        self,
        like: Tensor,
        dtype: DType,
        operands: Sequence[tuple[Any, Any]],
        body: Callable[..., Any],
        *,
        init: Any = None,
        output_map: Any = None,
        iterators: Sequence[str] | None = None,
    ) -> Any:
        """A `linalg.generic` over like's dims; operands: (value, indexing map).

        body gets the operands' scalars and, if there is an `init`, the accumulator.
        """
        rank = like.rank
        type_ = self.type_of(like, dtype)
        identity = ir.AffineMap.get_identity(rank)
        out = init if init is not None else self.empty(type_, like.shape)
        maps = [
            ir.AffineMapAttr.get(m) for m in (*(m for _, m in operands), output_map or identity)
        ]
        kinds = [
            ir.Attribute.parse(f"#linalg.iterator_type<{kind}>")
            for kind in (iterators or ["parallel"] * rank)
        ]
        made = linalg.GenericOp(
            [type_], [value for value, _ in operands], [out],
            ir.ArrayAttr.get(maps), ir.ArrayAttr.get(kinds),
        )  # fmt: skip
        made.operation.attributes["dnn.role"] = ir.StringAttr.get(self.role)
        scalars = [ir.RankedTensorType(value.type).element_type for value, _ in operands]
        block = made.regions[0].blocks.append(*scalars, element_type(dtype))
        with ir.InsertionPoint(block):
            arguments = list(block.arguments)
            given = arguments if init is not None else arguments[:-1]
            linalg.YieldOp([body(*given)])
        return made.results[0]

    def broadcast_map(self, operand: Tensor, result: Tensor) -> Any:
        """Result dims -> operand dims: 0 where the operand broadcasts."""
        zero = ir.AffineExpr.get_constant(0)
        exprs = [
            zero if n.constant == 1 and result.shape[axis].constant != 1
            else ir.AffineExpr.get_dim(axis)
            for axis, n in enumerate(operand.shape)
        ]  # fmt: skip
        return ir.AffineMap.get(result.rank, 0, exprs)

    def value(self, source: Tensor) -> Any:
        """The value of a tensor; that of a constant is made when it is asked for."""
        if source not in self.values:
            assert source.is_constant, f"{source.label} has no value yet"
            self.values[source] = self.generic(
                source, source.type, [], lambda: _constant_of(source, source.type)
            )
        return self.values[source]

    def operand(self, source: Tensor, result: Tensor) -> list[tuple[Any, Any]]:
        """[(value, map)] of an operand; nothing for a constant, which bodies hold."""
        if source.is_constant:
            return []
        return [(self.values[source], self.broadcast_map(source, result))]

    def scalar(self, source: Tensor, rest: list[Any], dtype: DType) -> Any:
        """The next operand's scalar in a compute type; `rest` are the body's arguments."""
        if source.is_constant:
            return _constant_of(source, dtype)
        return convert(rest.pop(0), source.type, dtype)

    def operand_scalars(
        self, op: Pointwise, sources: Sequence[Tensor], rest: list[Any]
    ) -> list[Any]:
        """The operands of a pointwise operation: in the compute type, but a boolean that is
        chosen by, which is none of its arithmetic."""
        types = [op.compute_type] * len(sources)
        if op.mode == "binary_select" and sources[-1].type == dtypes.i1:
            types[-1] = dtypes.i1
        return [self.scalar(s, rest, t) for s, t in zip(sources, types, strict=True)]


def _constant_of(source: Tensor, dtype: DType) -> Any:
    """The number of a constant, rounded to its data type, then converted to another."""
    if source.type.is_float and source.type.bits == 8:  # arith has no constants of fp8
        rounded = float(widen(round_to(source.value, source.type)))
        return convert(constant(rounded, element_type(dtypes.f32)), dtypes.f32, dtype)
    if source.type.is_float and dtype in (dtypes.i32, dtypes.i64):
        # A plain number, which index arithmetic is read off by.
        rounded = widen(round_to(source.value or 0.0, source.type))
        whole = widen(round_to(rounded, dtype))
        return constant(int(whole), element_type(dtype))
    return convert(constant(source.value or 0, element_type(source.type)), source.type, dtype)


# ---- one rule an operation


def _pointwise(low: _Lowering, op: Pointwise) -> None:
    compute = op.compute_type
    reads = op.read_operands
    operands = [pair for source in reads for pair in low.operand(source, op.y)]
    is_copy = op.mode == "identity" and op.x.type == op.y.type
    scalars = Scalars(
        compute,
        approximation(op, low.fusion, low.scores),
        is_division_exact=not stays_float(op.results[0], low.fusion),
    )

    def body(*given: Any) -> Any:
        rest = list(given)
        if is_copy:
            return low.scalar(op.x, rest, op.x.type)
        taken = low.operand_scalars(op, reads, rest)
        if op.mode == "gen_index":
            return _index(scalars, op)
        value = op.row.emit(scalars, *taken, **op.parameters())
        return convert(value, dtypes.i1 if op.row.result == "bool" else compute, op.y.type)

    low.values[op.y] = low.generic(op.y, op.y.type, operands, body)


def _index(scalars: Scalars, op: Pointwise) -> Any:
    """The index along an axis, in integers where the compute type would give the same."""
    most = op.y.shape[op.axis or 0].bounds()[1]
    if op.compute_type == dtypes.f32 and op.y.type == dtypes.i32 and most <= _WHOLE_F32:
        scalars = Scalars(dtypes.i32)
    made = op.row.emit(scalars, None, **op.parameters())
    return convert(made, scalars.dtype, op.y.type)


def _identity_of(row: ReductionMode, dtype: DType) -> float | int:
    """The value that a combination leaves anything else unchanged with."""
    combine = row.combine
    if row.name == "amax" and dtype.is_float:
        return 0.0
    if combine in ("add", "mul"):
        return 0 if combine == "add" else 1
    if dtype.is_float:
        return python_math.inf if combine == "min" else -python_math.inf
    return (1 << 31) - 1 if combine == "min" else -(1 << 31)


def _reduction(low: _Lowering, op: Reduction) -> None:
    compute, row = op.compute_type, op.row
    scalars = Scalars(compute)
    mapped = low.values.get(op.x)
    if mapped is None or row.before or op.x.type != compute:
        mapped = low.generic(
            op.x,
            compute,
            low.operand(op.x, op.x),
            lambda *given: _before(scalars, row.before, low.scalar(op.x, list(given), compute)),
        )
    axes = (op.x.rank - 1,) if op in low.of_rows else op.axes
    combined = _combined(low, op, scalars, mapped, axes) if axes else mapped
    has_other_strides = combined.type != low.type_of(op.y, compute)  # where nothing is reduced
    if row.after or op.y.type != compute or has_other_strides:
        count = structure.emit_size(_count(op), low.symbols) if row.after else None
        combined = low.generic(
            op.y,
            op.y.type,
            [(combined, ir.AffineMap.get_identity(op.y.rank))],
            lambda total: convert(_after(scalars, row.after, total, count), compute, op.y.type),
        )
    low.values[op.y] = combined


def _combined(
    low: _Lowering, op: Reduction, scalars: Scalars, mapped: Any, axes: tuple[int, ...]
) -> Any:
    """The mapped elements combined along the reduced axes."""
    compute, row = op.compute_type, op.row
    zero = ir.AffineExpr.get_constant(0)
    output_map = ir.AffineMap.get(
        op.x.rank, 0,
        [zero if axis in axes else ir.AffineExpr.get_dim(axis) for axis in range(op.x.rank)],
    )  # fmt: skip
    return low.generic(
        op.y,
        compute,
        [(mapped, ir.AffineMap.get_identity(op.x.rank))],
        lambda x, total: getattr(scalars, row.combine)(total, x),
        init=low.filled(op.y, compute, _identity_of(row, compute)),
        output_map=output_map,
        iterators=["reduction" if axis in axes else "parallel" for axis in range(op.x.rank)],
    )


def _count(op: Reduction) -> Expr:
    return product(op.x.shape[axis] for axis in op.axes)


def _before(scalars: Scalars, step: str, x: Any) -> Any:
    if step == "abs":
        return scalars.abs(x)
    if step == "square":
        return scalars.mul(x, x)
    if step == "zero_to_one":
        return scalars.select(scalars.eq(x, scalars.const(0)), scalars.const(1), x)
    return x


def _after(scalars: Scalars, step: str, total: Any, count: Any) -> Any:
    if step == "sqrt":
        return scalars.sqrt(total)
    if step == "divide_by_count":
        number = arith.IndexCastOp(ir.IntegerType.get_signless(64), count).result
        return scalars.div(total, arith.SIToFPOp(scalars.type, number).result)
    return total


def _view(low: _Lowering, op: View) -> None:
    at = coordinates(op.y.shape)
    source = op.source(at)
    value = low.value(op.x)
    maps = [_single_dim(expr, at) for expr in source]
    if all(found is not None for found in maps) and not _cuts(op, maps):
        map_ = ir.AffineMap.get(op.y.rank, 0, maps)
        low.values[op.y] = low.generic(op.y, op.y.type, [(value, map_)], lambda element: element)
        return
    sizes = _SizeValues(low, (source,))
    low.values[op.y] = low.generic(op.y, op.y.type, [], lambda: _extract(value, source, sizes))


def _cuts(op: View, maps: Sequence[Any]) -> bool:
    """Whether a loop over a part of X indexes X directly: linalg takes such loops for all of X."""
    return any(
        isinstance(found.maybe_downcast(), ir.AffineDimExpr)
        and op.y.shape[ir.AffineDimExpr(found).position] != op.x.shape[axis]
        for axis, found in enumerate(maps)
    )


def _single_dim(expr: Expr, at: Sequence[Expr]) -> Any:
    """expr as an affine map's result, if it is a constant or one coordinate scaled and shifted."""
    if expr.constant is not None:
        return ir.AffineExpr.get_constant(expr.constant)
    for axis, coordinate in enumerate(at):
        if coordinate.constant is None and expr.dims() == coordinate.dims():
            (dim,) = coordinate.dims()
            step = dict(expr.terms).get((dim,))
            offset = (expr - coordinate * step).constant if step is not None else None
            if offset is not None:
                return ir.AffineExpr.get_dim(axis) * step + offset
    return None


class _SizeValues:
    """Index values of the symbols that coordinates name, made outside the body that uses them."""

    def __init__(self, low: _Lowering, coordinates: Sequence[Sequence[Expr]]):
        dims = {d for source in coordinates for expr in source for d in expr.dims()}
        self.values = {
            dim: structure.emit_size(Expr.of(dim), low.symbols)
            for dim in sorted(dims, key=str)
            if not dim.name.startswith("_d")
        }

    def index(self, expr: Expr) -> Any:
        """An expression over coordinates and sizes as an index value, inside the body."""
        total = None
        for monomial, coefficient in expr.terms:
            factors = [self._atom(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.append(index_constant(coefficient))
            value = factors[0]
            for factor in factors[1:]:
                value = arith.MulIOp(value, factor).result
            total = value if total is None else arith.AddIOp(total, value).result
        return index_constant(0) if total is None else total

    def _atom(self, atom: Any) -> Any:
        if isinstance(atom, Dim):
            if atom.name.startswith("_d"):
                return linalg.IndexOp(int(atom.name[2:])).result
            return self.values[atom]
        # Coordinates and sizes are not negative, so that unsigned division is the floor.
        make = {"//": arith.DivUIOp, "%": arith.RemUIOp}[atom.function]
        return make(*(self.index(arg) for arg in atom.args)).result


def index_constant(value: int) -> Any:
    type_ = ir.IndexType.get()
    return arith.ConstantOp(type_, ir.IntegerAttr.get(type_, value)).result


def _extract(value: Any, at: Sequence[Expr], sizes: _SizeValues) -> Any:
    return tensor.ExtractOp(value, [sizes.index(expr) for expr in at]).result


def _concatenate(low: _Lowering, op: Concatenate) -> None:
    """Selects by the coordinate; the extractions not taken are kept inside their tensors."""
    at = coordinates(op.y.shape)
    starts = [Expr.of(0)]
    for source in op.inputs:
        starts.append(starts[-1] + source.shape[op.axis])
    sizes = _SizeValues(low, [[*starts], *(source.shape for source in op.inputs)])
    values = [low.value(source) for source in op.inputs]

    def body() -> Any:
        along = sizes.index(at[op.axis])
        chosen = None
        parts = zip(op.inputs, starts[:-1], values, strict=True)
        for source, start, whole in reversed(list(parts)):
            offset = arith.SubIOp(along, sizes.index(start)).result
            last = sizes.index(source.shape[op.axis] - 1)
            inside = arith.MaxSIOp(index_constant(0), arith.MinSIOp(offset, last).result).result
            where = [
                inside if axis == op.axis else sizes.index(coordinate)
                for axis, coordinate in enumerate(at)
            ]
            value = tensor.ExtractOp(whole, where).result
            if chosen is None:
                chosen = value
            else:
                end = sizes.index(start + source.shape[op.axis])
                is_here = arith.CmpIOp(arith.CmpIPredicate.ult, along, end).result
                chosen = arith.SelectOp(is_here, value, chosen).result
        return chosen

    low.values[op.y] = low.generic(op.y, op.y.type, [], body)


def _matmul(low: _Lowering, op: Matmul) -> None:
    if op.groups():  # of a text: `fuse` writes what it stands for
        raise DnncError(
            Status.NOT_SUPPORTED_GRAPH_PATTERN,
            f"batch dims of which one divides the other, in axes {list(op.groups())}",
            "a product of split batch dims, between reshapes",
            op.label,
        )
    sums = accumulation_type(op.compute_type)
    result = _call_anchor(low, op, sums, _matmul_body)
    low.values[op.c] = _cast_from(low, result, op.c, sums, op.compute_type)


def _matmul_body(low: _Lowering, op: Matmul, sums: DType, a: Any, b: Any) -> Any:
    rank = op.c.rank + 1
    dims = [ir.AffineExpr.get_dim(axis) for axis in range(rank)]
    *batch, m, n, k = dims
    zero = ir.AffineExpr.get_constant(0)

    def batches(source: Tensor) -> list[Any]:
        return [
            zero if source.shape[axis].constant == 1 and op.c.shape[axis].constant != 1 else dim
            for axis, dim in enumerate(batch)
        ]

    scalars = Scalars(sums)

    def body(x: Any, y: Any, total: Any) -> Any:
        return scalars.fma(convert(x, op.a.type, sums), convert(y, op.b.type, sums), total)

    return low.generic(
        op.c,
        sums,
        [
            (a, ir.AffineMap.get(rank, 0, [*batches(op.a), m, k])),
            (b, ir.AffineMap.get(rank, 0, [*batches(op.b), k, n])),
        ],
        body,
        init=low.filled(op.c, sums, 0),
        output_map=ir.AffineMap.get(rank, 0, [*batch, m, n]),
        iterators=["parallel"] * (rank - 1) + ["reduction"],
    )


def _conv_fprop(low: _Lowering, op: ConvFprop) -> None:
    sums = accumulation_type(op.compute_type)
    result = _call_anchor(low, op, sums, conv_fprop_body)
    low.values[op.y] = _cast_from(low, result, op.y, sums, op.compute_type)


def _ragged_store(low: _Lowering, op: RaggedStore) -> None:
    low.values[op.packed] = _call_anchor(low, op, op.packed.type, ragged_store_body)


def _moe_grouped_matmul(low: _Lowering, op: MoeGroupedMatmul) -> None:
    sums = accumulation_type(op.compute_type)
    result = _call_anchor(low, op, sums, _moe_grouped_matmul_body)
    low.values[op.output] = _cast_from(low, result, op.output, sums, op.compute_type)


def _moe_grouped_matmul_body(
    low: _Lowering, op: MoeGroupedMatmul, sums: DType, token: Any, weight: Any, first: Any
) -> Any:
    """Sums over experts too, keeping what a row's own expert adds.

    No index depends on data, so that coordinates stay what a walk can follow.
    """
    ends = _ends_of_experts(low, op, first)
    one, row, n, expert, k = (ir.AffineExpr.get_dim(axis) for axis in range(5))
    zero = ir.AffineExpr.get_constant(0)
    scalars = Scalars(sums)

    def body(x: Any, y: Any, start: Any, end: Any, total: Any) -> Any:
        at = arith.IndexCastOp(start.type, linalg.IndexOp(1).result).result
        is_after = arith.CmpIOp(arith.CmpIPredicate.sge, at, start).result
        is_before = arith.CmpIOp(arith.CmpIPredicate.slt, at, end).result
        is_own = arith.AndIOp(is_after, is_before).result
        x, y = convert(x, op.token.type, sums), convert(y, op.weight.type, sums)
        return arith.SelectOp(is_own, scalars.fma(x, y, total), total).result

    return low.generic(
        op.output,
        sums,
        [
            (token, ir.AffineMap.get(5, 0, [one, row, k])),
            (weight, ir.AffineMap.get(5, 0, [expert, k, n])),
            (first, ir.AffineMap.get(5, 0, [expert, zero, zero])),
            (ends, ir.AffineMap.get(5, 0, [expert, zero, zero])),
        ],
        body,
        init=low.filled(op.output, sums, 0),
        output_map=ir.AffineMap.get(5, 0, [one, row, n]),
        iterators=["parallel"] * 3 + ["reduction"] * 2,
    )


def _ends_of_experts(low: _Lowering, op: MoeGroupedMatmul, first: Any) -> Any:
    """The row after each expert's last: the next expert's first, or the number of rows."""
    rows = op.token.shape[1]
    sizes = _SizeValues(low, [[rows, op.experts]])
    type_ = element_type(dtypes.i32)

    def body() -> Any:
        after = arith.AddIOp(linalg.IndexOp(0).result, index_constant(1)).result
        inside = arith.MinSIOp(after, sizes.index(op.experts - 1)).result
        zero = index_constant(0)
        start = tensor.ExtractOp(first, [inside, zero, zero]).result
        is_inside = arith.CmpIOp(arith.CmpIPredicate.ult, after, sizes.index(op.experts)).result
        count = arith.IndexCastOp(type_, sizes.index(rows)).result
        return arith.SelectOp(is_inside, start, count).result

    return low.generic(op.first_token_offset, dtypes.i32, [], body)


def _call_anchor(low: _Lowering, op: Op, sums: DType, body: Callable[..., Any]) -> Any:
    """A private function of the anchor's decomposition, and a call of it."""
    operands = [low.value(source) for source in op.operands]
    result = low.type_of(op.results[0], sums)
    name = f"{low.name}_anchor{low.anchors}"
    low.anchors += 1
    with ir.InsertionPoint(low.module.body):
        function = func.FuncOp(
            name, ([value.type for value in operands], [result]), visibility="private"
        )
        function.add_entry_block()
        function.attributes["dnn.anchor"] = ir.StringAttr.get(op.op_name)
        for key, value in op.attributes().items():
            field_ = next(f for f in op.fields if f.name == key)
            function.attributes[f"dnn.{key}"] = dnn.attribute_of(value, field_.type)
    with ir.InsertionPoint(function.entry_block):
        outer, low.role = low.role, "anchor"
        func.ReturnOp([body(low, op, sums, *function.arguments)])
        low.role = outer
    return func.CallOp([result], ir.FlatSymbolRefAttr.get(name), operands).results[0]


def _cast_from(low: _Lowering, value: Any, result: Tensor, sums: DType, compute: DType) -> Any:
    """The anchor's sums in the result's data type, through the compute type."""
    compute = compute if compute.has_storage else sums
    if sums == compute == result.type:
        return value
    return low.generic(
        result,
        result.type,
        [(value, ir.AffineMap.get_identity(result.rank))],
        lambda total: convert(convert(total, sums, compute), compute, result.type),
    )


_RULES: dict[type[Op], Callable[[_Lowering, Any], None]] = {
    Pointwise: _pointwise,
    Reduction: _reduction,
    Transpose: _view,
    Slice: _view,
    Reshape: _view,
    Concatenate: _concatenate,
    PagedCacheLoad: paged_cache_load,
    BlockMaskLoad: block_mask_load,
    RaggedLoad: ragged_load,
    RaggedStore: _ragged_store,
    Matmul: _matmul,
    MoeGroupedMatmul: _moe_grouped_matmul,
    ConvFprop: _conv_fprop,
    Resample: resample,
    ResampleBackward: resample_backward,
    Rng: rng,
    PeerReduction: peer_reduction,
}


@dataclass(frozen=True)
class LowerToLinalg(Pass):
    """The pass; see the file's docstring."""

    name: ClassVar[str] = "lower-to-linalg"

    def run(self, module: Any) -> None:
        for function in list(structure.fusion_functions(module)):
            _lower_fusion(module, function)


def _lower_fusion(module: Any, old: Any) -> None:
    fusion = structure.read_fusion(old)
    if "dnn.engine" in old.attributes:  # of a text it may be anything
        name, knobs = structure.engine_of(old)
        explicit.verify_choice(engine_named(name), fusion, knobs, target_of(module))
    scores: frozenset[Op] = frozenset()
    of_rows: frozenset[Op] = frozenset()
    if "dnn.engine" in old.attributes and not attention_reasons(fusion):
        found = attention_of(fusion)
        scores = fusion.upstream(found.score)
        of_rows = frozenset((found.maximum, found.total))
    symbols = {dim.name: dim for dim in dnn.read_symbols(old)}
    name = old.name.value
    kept = {
        key: value
        for key, value in attributes_of(old.operation).items()
        if key.startswith("dnn.") and key != "dnn.symbols"
    }
    inputs = list(dnn.read_arguments(old).values())
    results = structure.read_results(old)
    engine = structure.engine_of(old)[0] if "dnn.engine" in kept else ""
    if engine in CASTING:
        fusion = with_casts(fusion, engine)
    if engine in REFINING:
        fusion = refined(fusion)
        finer = {t.uid: t for t in fusion.tensors}
        inputs, results = ([finer.get(t.uid, t) for t in ends] for ends in (inputs, results))
    by_uid = {t.uid: t for t in fusion.inputs}
    old.operation.erase()
    with ir.InsertionPoint(module.body):
        function = dnn.begin_function(name, inputs, results, symbols)
        function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        for key, value in kept.items():
            function.attributes[key] = value
    low = _Lowering(module, fusion, name, list(symbols), scores=scores, of_rows=of_rows)
    _make_signless(function, low, inputs, results)
    for tensor_, value in zip(inputs, function.arguments, strict=True):
        low.values[by_uid.get(tensor_.uid, tensor_)] = value
    with ir.InsertionPoint(function.entry_block):
        for op in fusion.ops:
            rule = _RULES.get(type(op))
            if rule is None:
                raise DnncError(
                    Status.NOT_SUPPORTED_GRAPH_PATTERN,
                    "no lowering to linalg",
                    ", ".join(kind.op_name for kind in _RULES),
                    op.label,
                )
            low.role = fusion.roles[op]
            with ir.Location.name(op.name or op.title):
                rule(low, op)
        func.ReturnOp([low.values[output] for output in fusion.outputs])


def _make_signless(
    function: Any, low: _Lowering, inputs: Sequence[Tensor], results: Sequence[Tensor]
) -> None:
    """The function's types with signless elements; `dnn.dtype` keeps what ui8 was."""
    types = [[low.type_of(t) for t in tensors] for tensors in (inputs, results)]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
    for argument, type_ in zip(function.arguments, types[0], strict=True):
        argument.set_type(type_)
