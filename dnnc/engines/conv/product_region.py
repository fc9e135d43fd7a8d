# pyright: basic
"""The region of a convolution of one tap as that of products, one for each image.

    %y = call @conv(%x, %w)           [N, C, spatial], [K, C, 1, ...] -> [N, K, spatial]
->  %y = call @product(%w, %x)        [1, K, C], [N, C, pixels] -> [N, K, pixels]

What is around it loses axes in the same way: see `conv.product`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...codegen.region import Region
from ...codegen.walk.region_walk import init_of, inputs_of, reduced_axes
from ...dialect import dnn, structure
from ...dialect.tensor import packed_strides
from ...expr import Expr
from ...mlir import func, ir, linalg
from ..product.region_sm90 import product_calls
from .pattern import is_gradient
from .product import flat_dims, flat_filter, flat_image

_PIXELS = 2  # the axis that all spatial ones become
_COMPUTE_TYPE = "dnn.compute_type"


def product_region(module: Any, region: Region) -> Region:
    """The region of the products; module: where its functions are built, which nothing else keeps.

    Its tensors are those of the given region, by uid.
    """
    (call,) = product_calls(region)
    _, w = call.operands
    tensors = [
        flat_filter(tensor, is_transposed=is_gradient(call)) if value == w else flat_image(tensor)
        for value, tensor in region.arguments.items()
    ]
    low = _Flattening(module, region)
    types = [low.type_of(v, t.shape) for v, t in zip(region.arguments, tensors, strict=True)]
    results = [low.type_of(value) for value, _ in region.outputs]
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("products", (types, results))
        function.add_entry_block()
    low.values.update(zip(region.arguments, function.arguments, strict=True))
    with ir.InsertionPoint(function.entry_block):
        for operation in region.operations:
            low.add(operation)
        func.ReturnOp([low.values[value] for value, _ in region.outputs])
    return Region(
        function,
        dict(zip(function.arguments, tensors, strict=True)),
        tuple((low.values[value], flat_image(tensor)) for value, tensor in region.outputs),
        region.symbols,
    )


@dataclass
class _Flattening:
    """values: of the old region -> of the new one."""

    module: Any
    region: Region
    values: dict[Any, Any] = field(default_factory=dict)

    @property
    def symbols(self) -> list[str]:
        return [dim.name for dim in self.region.symbols]

    def dims_of(self, value: Any) -> tuple[Expr, ...]:
        return flat_dims(self.region.dims_of(value))

    def type_of(self, value: Any, dims: Sequence[Expr] | None = None) -> Any:
        """The type of a value's new one; dims: where it is not an image."""
        dims = dims or self.dims_of(value)
        dynamic = ir.ShapedType.get_dynamic_size()
        static = [dynamic if n.constant is None else n.constant for n in dims]
        layout = dnn.layout_attribute((*dims, *packed_strides(dims)), self.symbols)
        return ir.RankedTensorType.get(static, _element_of(value), layout)

    def add(self, operation: Any) -> None:
        """Adds what an operation becomes."""
        if operation.name == "tensor.empty":
            return  # made where it is filled
        if operation.name == "func.call":
            made = [self._product(operation)]
        elif operation.name == "linalg.generic":
            made = [self._generic(operation)]
        elif operation.name == "linalg.fill":
            made = [self._filled(operation)]
        else:
            made = structure.cloned(operation, self.values)
        self.values.update(zip(operation.results, made, strict=True))

    def _empty(self, value: Any) -> Any:
        dims = self.dims_of(value)
        sizes = [structure.emit_size(n, self.symbols) for n in dims if n.constant is None]
        type_ = self.type_of(value)
        return ir.Operation.create("tensor.empty", results=[type_], operands=sizes).results[0]

    def _filled(self, operation: Any) -> Any:
        result = operation.results[0]
        (scalar,) = (self.values[value] for value in inputs_of(operation))
        made = linalg.FillOp([self.type_of(result)], [scalar], [self._empty(result)])
        linalg.fill_builtin_region(made.operation)
        return made.results[0]

    def _product(self, call: Any) -> Any:
        """A call of a function without a body: engines of products read its attributes alone."""
        x, w = (self.values[value] for value in call.operands)
        result = self.type_of(call.results[0])
        with ir.InsertionPoint(self.module.body):
            types = ([w.type, x.type], [result])
            anchor = func.FuncOp("product", types, visibility="private")
        anchor.attributes["dnn.anchor"] = ir.StringAttr.get("matmul")
        anchor.attributes[_COMPUTE_TYPE] = structure.anchor_of(call).attributes[_COMPUTE_TYPE]
        return func.CallOp([result], ir.FlatSymbolRefAttr.get("product"), [w, x]).results[0]

    def _generic(self, operation: Any) -> Any:
        """The generic's body over fewer loops."""
        result, inputs = operation.results[0], inputs_of(operation)
        reduced = {min(axis, _PIXELS) for axis in reduced_axes(operation)}
        loops = self.dims_of(inputs[0] if reduced else result)
        maps = [_broadcast_map(self.dims_of(value), loops) for value in inputs]
        maps.append(_without(reduced, len(loops)))
        kinds = ["reduction" if axis in reduced else "parallel" for axis in range(len(loops))]
        out = self.values[init_of(operation)] if reduced else self._empty(result)
        made = linalg.GenericOp(
            [self.type_of(result)],
            [self.values[value] for value in inputs],
            [out],
            ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
            ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{k}>") for k in kinds]),
        )
        self._fill_body(made, operation.regions[0].blocks[0])
        return made.results[0]

    def _fill_body(self, made: Any, body: Any) -> None:
        block = made.regions[0].blocks.append(*(argument.type for argument in body.arguments))
        values = {**self.values, **dict(zip(body.arguments, block.arguments, strict=True))}
        with ir.InsertionPoint(block):
            for view in body.operations:
                results = structure.cloned(view.operation, values)
                values.update(zip(view.operation.results, results, strict=True))


def _element_of(value: Any) -> Any:
    return ir.RankedTensorType(value.type).element_type


def _broadcast_map(dims: Sequence[Expr], loops: Sequence[Expr]) -> Any:
    """Loops -> coordinates of an operand: 0 where it broadcasts."""
    broadcast = {
        axis
        for axis, (own, extent) in enumerate(zip(dims, loops, strict=True))
        if own.constant == 1 and extent.constant != 1
    }
    return _without(broadcast, len(loops))


def _without(axes: set[int], rank: int) -> Any:
    """The identity, with 0 along some axes."""
    zero = ir.AffineExpr.get_constant(0)
    return ir.AffineMap.get(
        rank, 0, [zero if axis in axes else ir.AffineExpr.get_dim(axis) for axis in range(rank)]
    )
