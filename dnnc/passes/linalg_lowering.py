# pyright: basic
"""One fusion on its way to linalg: its tensors' values, and how operations are built of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import dtypes
from ..codegen.scalars.scalar import constant, convert, element_type
from ..dialect import dnn, structure
from ..dialect.fusion import Fusion
from ..dialect.ops import Pointwise
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..engines import Marks
from ..expr import Expr
from ..mlir import ir, linalg
from ..rounding import round_to, widen


@dataclass
class Lowering:
    """One fusion on its way, as its engine has it: values of its tensors so far.

    marks: what its operations are to the engine.  role, is_fixed: of the operation that is lowered.
    """

    module: Any
    fusion: Fusion
    marks: Marks
    name: str
    symbols: list[str]
    values: dict[Tensor, Any] = field(default_factory=dict)
    role: str = ""
    is_fixed: bool = False
    anchors: int = 0

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
        if self.is_fixed:
            made.operation.attributes["dnn.fixed"] = ir.UnitAttr.get()
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
