# pyright: basic
"""The MLIR `dnn` dialect, derived from the operations, and its round trip with graphs.

A graph is a `func.func` with the unit attribute `dnn.graph`.  `dnn.symbols` lists its symbols;
the layout of a tensor type is an affine map without dims whose results are the sizes, then the
strides, over the symbols in that order:

    func.func @g(%x: tensor<1x?x384xf16, #dnn.layout<affine_map<()[s0] ->
        (1, s0, 384, s0 * 384, 384, 1)>>> {dnn.uid = 1 : i64, dnn.name = "x"}, ...) -> ...
        attributes {dnn.graph, dnn.symbols = [#dnn.symbol<"M", 1 : i64, 65536 : i64, 8 : i64>]}

What belongs to a value and not to its type (uid, name, alignment, ...) is an attribute of the
function's argument, or of the operation that makes it (`tensors`, one dictionary a result).
A value that is not returned is virtual.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from .. import dtypes, mlir
from ..dtypes import DType
from ..errors import DnncError, Status
from ..expr import Dim, Expr
from ..mlir import ext, func, ir
from .graph import OperationGraph
from .op import MAX_VARIADIC, Field, Op
from .ops import BY_NAME, OPS
from .tensor import DEFAULT_ALIGNMENT, Tensor

# ---- the dialect


mlir.declare_dialect("dnn")


class Dnn(ext.Dialect, name="dnn"):  # type: ignore[call-arg]
    """The dialect; its attributes and operations are made below."""

    _definitions: ClassVar[str] = ""  # in IRDL, which is parsed faster than it is made

    @classmethod
    def _emit_module(cls) -> Any:
        if not cls._definitions:
            cls._definitions = str(super()._emit_module())
        return ir.Module.parse(cls._definitions)


class Pure(ir.MemoryEffectsOpInterface):
    """Operations only compute, so that upstream passes may merge and drop them."""

    @staticmethod
    def get_effects(op: Any, *effects: Any) -> list[Any]:
        return []


def define(kind: Any, name: str, annotations: dict[str, Any], /, **body: Any) -> Any:
    """A class of `ext`, which reads the fields from annotations that must not be text."""
    traits = {"traits": body.pop("traits")} if "traits" in body else {}
    return type(
        name.title().replace("_", ""),
        (kind,),
        {"__annotations__": annotations, "__module__": __name__, **body},
        name=name,
        **traits,
    )


Layout = define(Dnn.Attribute, "layout", {"map": ir.AffineMapAttr})
Symbol = define(
    Dnn.Attribute,
    "symbol",
    {"name": ir.StringAttr, "min": ir.IntegerAttr, "max": ir.IntegerAttr,
     "multiple_of": ir.IntegerAttr},
)  # fmt: skip

# A compute type that no builtin type stands for.
FastFloatForFp8 = define(Dnn.Type, dtypes.fast_float_for_fp8.name, {})


class Number:
    """The kind of a scalar's value: a float, or an int for tensors of integers and booleans."""


_ATTRIBUTE_KINDS = {
    DType: ir.TypeAttr,
    str: ir.StringAttr,
    int: ir.IntegerAttr,
    float: ir.FloatAttr,
    bool: ir.BoolAttr,
    tuple: ir.DenseI64ArrayAttr,
}


def _slots(field: Field) -> list[str]:
    """The dialect's fields of one operand field: a variadic one is many optional ones."""
    return [f"{field.name}_{i}" for i in range(MAX_VARIADIC)] if field.variadic else [field.name]


def _define_op(kind: type[Op]) -> Any:
    annotations: dict[str, Any] = {}
    body: dict[str, Any] = {}
    for field in kind.fields_of("operand"):
        for slot in _slots(field):
            if field.optional or field.variadic:
                annotations[slot], body[slot] = ext.Operand[Any] | None, None
            else:
                annotations[slot], body[slot] = ext.Operand[Any], ext.operand(kw_only=True)
    for field in kind.fields_of("attribute"):
        if not field.optional:  # optional attributes can't be declared; `verify` checks them
            annotations[field.name] = _ATTRIBUTE_KINDS[field.type]
            body[field.name] = ext.attribute(kw_only=True)
    for field in kind.fields_of("result"):
        annotations[field.name] = ext.Result[Any] | None if field.optional else ext.Result[Any]
        body[field.name] = None if field.optional else ext.result(kw_only=True)
    return define(
        Dnn.Operation, kind.op_name, annotations, traits=[Pure],
        verify_invariants=staticmethod(_verifier(kind)), **body,
    )  # fmt: skip


def _verifier(kind: type[Op]) -> Any:
    def verify_invariants(op: Any) -> bool:
        try:
            _verify_segments(op.operation, kind)
            made = _read_op(op.operation, kind, {}, _symbols_around(op.operation))
            for tensor in (*made.operands, *made.results):
                tensor.verify()
            made.verify()
        except KeyError:
            return True  # an attribute is missing: MLIR's own verifier reports it next
        except DnncError as error:
            op.operation.location.emit_error(f"'dnn.{kind.op_name}' op {error}")
            return False
        return True

    return verify_invariants


def _verify_segments(operation: Any, kind: type[Op]) -> None:
    """MLIR accepts segment sizes whose sum is wrong when an operation is parsed."""
    for name, count in (
        ("operandSegmentSizes", len(operation.operands)),
        ("resultSegmentSizes", len(operation.results)),
    ):
        if name in operation.attributes:
            sizes = list(ir.DenseI32ArrayAttr(operation.attributes[name]))
            if sum(sizes) != count or any(size not in (0, 1) for size in sizes):
                raise DnncError(Status.BAD_PARAM, f"{name} {sizes}", f"0s and 1s, {count} in all")


OPERATIONS = {kind.op_name: _define_op(kind) for kind in OPS}

# A number that is part of the graph; `tensors` describes it.
Constant = define(
    Dnn.Operation, "constant", {"value": ir.FloatAttr | ir.IntegerAttr, "y": ext.Result[Any]},
    traits=[Pure], y=ext.result(kw_only=True),
)  # fmt: skip


@contextlib.contextmanager
def context() -> Iterator[Any]:
    """A new MLIR context that knows the dialect, entered."""
    with mlir.context() as made:
        with mlir.dialect_lock:
            Dnn.load(reload=True)
        yield made


# ---- types


def mlir_type(dtype: DType) -> Any:
    """The MLIR type of a data type; one without storage is a type of the dialect."""
    return ir.Type.parse(dtype.name if dtype.has_storage else f"!dnn.{dtype.name}")


def read_type(type_: Any) -> DType:
    """The data type of an MLIR type."""
    return dtypes.of(str(type_).removeprefix("!dnn."))


def tensor_type(tensor: Tensor, symbols: Sequence[str]) -> Any:
    """tensor<1x?x384xf16, #dnn.layout<...>> of a tensor; symbols: names in the graph's order."""
    dynamic = ir.ShapedType.get_dynamic_size()
    dims = [dynamic if n.constant is None else n.constant for n in tensor.shape]
    element = mlir_type(tensor.type)
    return ir.RankedTensorType.get(
        dims, element, layout_attribute((*tensor.shape, *tensor.layout), symbols)
    )


def layout_attribute(sizes: Sequence[Expr], symbols: Sequence[str]) -> Any:
    """#dnn.layout of sizes and strides."""
    position = {name: i for i, name in enumerate(symbols)}
    results = [to_affine(size, position) for size in sizes]
    return Layout.get(ir.AffineMapAttr.get(ir.AffineMap.get(0, len(symbols), results)))


_Layout = tuple[tuple[Expr, ...], tuple[Expr, ...]]

# Each verification reads each type again.  By text: a type would keep its context alive.
_layouts: dict[tuple[str, tuple[Dim, ...]], _Layout] = {}
_MOST_LAYOUTS = 4096


def read_layout(type_: Any, symbols: Sequence[Dim]) -> _Layout:
    """(dims, strides) of a tensor type; without a layout it is packed row-major."""
    key = (str(type_), tuple(symbols))
    found = _layouts.get(key)
    if found is None:
        if len(_layouts) >= _MOST_LAYOUTS:
            _layouts.clear()
        found = _layouts[key] = _layout_of(type_, symbols)
    return found


def _layout_of(type_: Any, symbols: Sequence[Dim]) -> _Layout:
    ranked = ir.RankedTensorType(type_)
    if ranked.encoding is None:
        if not ranked.has_static_shape:
            raise DnncError(Status.BAD_PARAM, f"{type_} has no #dnn.layout", "a layout")
        from .tensor import packed_strides

        dims = tuple(map(Expr.of, ranked.shape))
        return dims, packed_strides(dims)
    if not str(ranked.encoding).startswith("#dnn.layout"):
        raise DnncError(Status.BAD_PARAM, f"encoding {ranked.encoding}", "#dnn.layout")
    results = ir.AffineMapAttr(Layout(ranked.encoding).map).value.results
    sizes = tuple(from_affine(result, symbols) for result in results)
    rank = ranked.rank
    static = tuple(
        None if ranked.is_dynamic_dim(axis) else ranked.get_dim_size(axis) for axis in range(rank)
    )
    if len(sizes) != 2 * rank or static != tuple(size.constant for size in sizes[:rank]):
        raise DnncError(
            Status.BAD_PARAM_SHAPE_MISMATCH, f"the layout of {type_}", "its sizes, then strides"
        )
    return sizes[:rank], sizes[rank:]


def to_affine(size: Expr, position: Mapping[str, int]) -> Any:
    total = ir.AffineExpr.get_constant(0)
    for monomial, coefficient in size.terms:
        product = ir.AffineExpr.get_constant(coefficient)
        for atom in monomial:
            product = ir.AffineExpr.get_mul(_atom_to_affine(atom, position), product)
        total = ir.AffineExpr.get_add(total, product)
    return total


def _atom_to_affine(atom: Any, position: Mapping[str, int]) -> Any:
    if isinstance(atom, Dim):
        return ir.AffineExpr.get_symbol(position[atom.name])
    makers = {
        "//": ir.AffineExpr.get_floor_div,
        "%": ir.AffineExpr.get_mod,
        "ceildiv": ir.AffineExpr.get_ceil_div,
    }
    if atom.function not in makers:
        raise DnncError(
            Status.NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
            f"a tensor's size or stride {atom}",
            "+, -, *, //, %, ceildiv of symbols",
        )
    return makers[atom.function](*(to_affine(arg, position) for arg in atom.args))


def from_affine(affine: Any, symbols: Sequence[Dim]) -> Expr:
    from ..expr import ceildiv

    affine = affine.maybe_downcast()
    if isinstance(affine, ir.AffineConstantExpr):
        return Expr.of(affine.value)
    if isinstance(affine, ir.AffineSymbolExpr):
        position = affine.position
        if position >= len(symbols):
            raise DnncError(Status.BAD_PARAM, f"layout symbol s{position}", "one of dnn.symbols")
        return Expr.of(symbols[position])
    for kind, make in (
        (ir.AffineAddExpr, lambda a, b: a + b),
        (ir.AffineMulExpr, lambda a, b: a * b),
        (ir.AffineFloorDivExpr, lambda a, b: a // b),
        (ir.AffineModExpr, lambda a, b: a % b),
        (ir.AffineCeilDivExpr, ceildiv),
    ):
        if isinstance(affine, kind):
            return make(from_affine(affine.lhs, symbols), from_affine(affine.rhs, symbols))
    raise DnncError(Status.BAD_PARAM, f"layout expression {affine}", "an expression over symbols")


# ---- what belongs to a value

_VALUE_FIELDS: dict[str, tuple[type, Any]] = {
    "uid": (int, None),
    "name": (str, ""),
    "alignment": (int, DEFAULT_ALIGNMENT),
    "is_by_value": (bool, False),
    "value": (Number, None),
    "reordering": (str, "NONE"),
    "prior_of": (int, None),
}


def value_attributes(tensor: Tensor, prefix: str = "") -> dict[str, Any]:
    """The attributes of a tensor that its type does not hold, those at their defaults left out."""
    found = {
        prefix + name: attribute_of(getattr(tensor, name), kind)
        for name, (kind, default) in _VALUE_FIELDS.items()
        if getattr(tensor, name) != default
    }
    if tensor.ragged_offset is not None:
        found[prefix + "ragged_offset"] = attribute_of(tensor.ragged_offset.uid, int)
    return found


def read_tensor(
    type_: Any, attributes: Mapping[str, Any], symbols: Sequence[Dim], prefix: str = ""
) -> Tensor:
    """The tensor of a type and the attributes of its value."""
    dims, strides = read_layout(type_, symbols)
    element = read_type(ir.RankedTensorType(type_).element_type)
    tensor = Tensor(dims=dims, strides=strides, dtype=element)
    for name, (kind, _) in _VALUE_FIELDS.items():
        if prefix + name in attributes:
            setattr(tensor, name, attribute_value(attributes[prefix + name], kind))
    return tensor


def attribute_of(value: Any, kind: type) -> Any:
    """The MLIR attribute of a value of a field's type."""
    if kind is Number:
        kind = type(value)
    if kind is DType:
        return ir.TypeAttr.get(mlir_type(value))
    if kind is str:
        return ir.StringAttr.get(value)
    if kind is bool:
        # Of the base class: a BoolAttr of False counts as one that is not given.
        return ir.Attribute(ir.BoolAttr.get(value))
    if kind is int:
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if kind is float:
        return ir.FloatAttr.get(ir.F64Type.get(), float(value))
    return ir.DenseI64ArrayAttr.get(list(value))


def attribute_value(attribute: Any, kind: type) -> Any:
    """The value of an MLIR attribute for a field's type; another kind is BAD_PARAM."""
    if kind is Number:
        kind = int if isinstance(attribute, ir.IntegerAttr) else float
    try:
        if kind is DType:
            return read_type(ir.TypeAttr(attribute).value)
        value = _ATTRIBUTE_KINDS[kind](attribute)
        return tuple(value) if kind is tuple else value.value
    except ValueError as error:
        raise DnncError(
            Status.BAD_PARAM_ATTRIBUTE_TYPE, f"attribute {attribute}", f"a {kind.__name__}"
        ) from error


# ---- graph -> MLIR


def to_mlir(graph: OperationGraph) -> Any:
    """The module that holds the graph; inside a `context()`."""
    graph.finalize()
    module = ir.Module.create()
    outputs = graph.outputs
    with ir.InsertionPoint(module.body):
        function = begin_function(graph.name, graph.inputs, outputs, graph.symbols)
        function.attributes["dnn.graph"] = ir.UnitAttr.get()
    with ir.InsertionPoint(function.entry_block):
        values = dict(zip(graph.inputs, function.arguments, strict=True))
        emit_ops(graph.ops, values, list(graph.symbols))
        func.ReturnOp([values[tensor] for tensor in outputs])
    return module


def begin_function(
    name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], symbols: Mapping[str, Dim]
) -> Any:
    """An empty `func.func` over tensors, with their value attributes and the symbols."""
    names = list(symbols)
    types = [[tensor_type(t, names) for t in tensors] for tensors in (inputs, outputs)]
    function = func.FuncOp(symbol_name(name), (types[0], types[1]))
    function.add_entry_block()
    for key, tensors in (("arg_attrs", inputs), ("res_attrs", outputs)):
        records = [ir.DictAttr.get(value_attributes(t, "dnn.")) for t in tensors]
        function.attributes[key] = ir.ArrayAttr.get(records)
    function.attributes["dnn.symbols"] = ir.ArrayAttr.get(
        [
            Symbol.get(
                ir.StringAttr.get(d.name),
                *(attribute_of(v, int) for v in (d.min, d.max, d.multiple_of)),
            )
            for d in symbols.values()
        ]
    )
    return function


def symbol_name(name: str) -> str:
    """A function's name: any text, with what MLIR would have to quote replaced."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return kept if kept and not kept[0].isdigit() else f"g_{kept}"


def emit_ops(ops: Sequence[Op], values: dict[Tensor, Any], symbols: Sequence[str]) -> None:
    """Emits operations at the insertion point, extending `values` by their results."""
    for op in ops:
        for tensor in op.operands:
            if tensor not in values and tensor.is_constant:
                values[tensor] = _emit_constant(tensor, symbols)
        values.update(zip(op.results, _emit_op(op, values, symbols), strict=True))


def _emit_constant(tensor: Tensor, symbols: Sequence[str]) -> Any:
    made = Constant(value=attribute_of(tensor.value, Number), y=tensor_type(tensor, symbols))
    made.attributes["tensors"] = ir.ArrayAttr.get([ir.DictAttr.get(value_attributes(tensor))])
    return made.results[0]


def _emit_op(op: Op, values: Mapping[Tensor, Any], symbols: Sequence[str]) -> list[Any]:
    arguments: dict[str, Any] = {}
    for field in op.fields:
        value = getattr(op, field.name)
        if field.kind == "attribute":
            if not field.optional:
                arguments[field.name] = attribute_of(value, field.type)
        elif field.kind == "result":
            arguments[field.name] = value and tensor_type(value, symbols)
        else:
            given = value if field.variadic else (value,)
            for slot, tensor in zip(_slots(field), given, strict=False):
                arguments[slot] = tensor and values[tensor]
    with ir.Location.name(op.name or op.title):
        made = OPERATIONS[op.op_name](**{k: v for k, v in arguments.items() if v is not None})
    for field in op.fields_of("attribute"):
        value = getattr(op, field.name)
        if field.optional and value is not None:
            made.attributes[field.name] = attribute_of(value, field.type)
    if op.name:
        made.attributes["node"] = ir.StringAttr.get(op.name)
    made.attributes["tensors"] = ir.ArrayAttr.get(
        [ir.DictAttr.get(value_attributes(tensor)) for tensor in op.results]
    )
    return list(made.results)


# ---- MLIR -> graph


def from_mlir(module: Any) -> OperationGraph:
    """The finalized graph of a module's one function with `dnn.graph`."""
    function = graph_function(module)
    graph = OperationGraph(function.name.value)
    values = read_arguments(function)
    returned = _returned(function)
    for op in read_ops(function.entry_block, values, read_symbols(function)):
        graph.add(op)
    for op in graph.ops:
        for tensor in op.results:
            tensor.is_virtual = True
    for value in returned:
        if value not in values:
            raise DnncError(Status.BAD_PARAM, f"returned value {value}", "a dnn operation's result")
        values[value].is_virtual = False
        values[value].is_output = True
    return graph.finalize()


def graph_function(module: Any) -> Any:
    """The module's one function with the attribute `dnn.graph`."""
    found = [op for op in module.body.operations if "dnn.graph" in op.operation.attributes]
    if len(found) != 1 or not isinstance(found[0], func.FuncOp):
        raise DnncError(
            Status.BAD_PARAM, f"{len(found)} functions with dnn.graph", "one func.func of them"
        )
    return found[0]


def read_symbols(function: Any) -> list[Dim]:
    """The symbols of a function, in the order that layouts index."""
    if "dnn.symbols" not in function.operation.attributes:
        return []
    found = []
    for entry in ir.ArrayAttr(function.operation.attributes["dnn.symbols"]):
        symbol = Symbol(entry)
        numbers = (ir.IntegerAttr(v).value for v in (symbol.min, symbol.max, symbol.multiple_of))
        found.append(Dim(ir.StringAttr(symbol.params[0]).value, *numbers))
    return found


def _symbols_around(operation: Any) -> list[Dim]:
    parent = operation.parent
    while parent is not None and "dnn.symbols" not in parent.attributes:
        parent = parent.parent
    return read_symbols(parent) if parent is not None else []


def read_arguments(function: Any) -> dict[Any, Tensor]:
    """Argument value -> tensor."""
    symbols = read_symbols(function)
    attributes = function.operation.attributes
    records = (
        [dict_of(entry) for entry in ir.ArrayAttr(attributes["arg_attrs"])]
        if "arg_attrs" in attributes
        else [{} for _ in function.arguments]
    )
    return {
        value: read_tensor(value.type, record, symbols, "dnn.")
        for value, record in zip(function.arguments, records, strict=True)
    }


def dict_of(attribute: Any) -> dict[str, Any]:
    """A dictionary attribute as a Python one."""
    return {entry.name: entry.attr for entry in ir.DictAttr(attribute)}


def _returned(function: Any) -> list[Any]:
    last = list(function.entry_block.operations)[-1]
    return list(last.operands)


def read_ops(block: Any, values: dict[Any, Tensor], symbols: Sequence[Dim]) -> list[Op]:
    """The operations of a block in order; `values` is extended by their results."""
    found = []
    for view in block.operations:
        operation = view.operation
        if operation.name == "dnn.constant":
            tensor = _read_results(operation, symbols)[0]
            tensor.value = attribute_value(operation.attributes["value"], Number)
            values[operation.results[0]] = tensor
        elif operation.name.startswith("dnn."):
            kind = BY_NAME.get(operation.name.removeprefix("dnn."))
            if kind is None:
                raise DnncError(Status.BAD_PARAM, f"operation {operation.name}", ", ".join(BY_NAME))
            found.append(_read_op(operation, kind, values, symbols))
        elif operation.name != "func.return":
            raise DnncError(
                Status.BAD_PARAM, f"operation {operation.name} in a graph", "dnn operations"
            )
    return found


def _read_results(operation: Any, symbols: Sequence[Dim]) -> list[Tensor]:
    attributes = operation.attributes
    records = (
        [dict_of(entry) for entry in ir.ArrayAttr(attributes["tensors"])]
        if "tensors" in attributes
        else [{} for _ in operation.results]
    )
    return [
        read_tensor(value.type, record, symbols)
        for value, record in zip(operation.results, records, strict=True)
    ]


def _read_op(
    operation: Any, kind: type[Op], values: dict[Any, Tensor], symbols: Sequence[Dim]
) -> Op:
    def tensor_of(value: Any) -> Tensor:
        if value not in values:
            values[value] = read_tensor(value.type, {}, symbols)
        return values[value]

    attributes = operation.attributes
    arguments: dict[str, Any] = {"name": ""}
    if "node" in attributes:
        arguments["name"] = ir.StringAttr(attributes["node"]).value
    operands = _present(operation, kind, "operand", [tensor_of(v) for v in operation.operands])
    results = _present(operation, kind, "result", _read_results(operation, symbols))
    arguments.update(operands)
    arguments.update(results)
    for field in kind.fields_of("attribute"):
        if field.name in attributes:
            arguments[field.name] = attribute_value(attributes[field.name], field.type)
        elif not field.optional:
            raise KeyError(field.name)
    made = kind(**arguments)
    values.update(zip(operation.results, made.results, strict=True))
    return made


def _present(
    operation: Any, kind: type[Op], which: str, tensors: Sequence[Tensor]
) -> dict[str, Any]:
    """Field -> tensor, by the segment sizes where there are optional fields."""
    fields = kind.fields_of(which)
    slots = [slot for field in fields for slot in _slots(field)]
    name = f"{which}SegmentSizes"
    if name in operation.attributes:
        sizes = list(ir.DenseI32ArrayAttr(operation.attributes[name]))
    else:
        sizes = [1] * len(tensors) + [0] * (len(slots) - len(tensors))
    rest = iter(tensors)
    by_slot = {slot: next(rest) for slot, size in zip(slots, sizes, strict=True) if size}
    found: dict[str, Any] = {}
    for field in fields:
        given = [by_slot[slot] for slot in _slots(field) if slot in by_slot]
        if field.variadic:
            found[field.name] = tuple(given)
        elif given:
            found[field.name] = given[0]
        elif not field.optional:
            wanted = ", ".join(field.name for field in fields if not field.optional)
            raise DnncError(Status.BAD_PARAM, f"no {which} {field.name}", wanted)
    return found
