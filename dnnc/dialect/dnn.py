# pyright: basic
"""The MLIR `dnn` dialect, derived from the operations, and its round trip with graphs.

A graph is a `func.func` with the unit attribute `dnn.graph`.  `dnn.symbols` lists its symbols;
the layout of a tensor type is an affine map without dims whose results are the sizes, then the
strides, over the symbols in that order:

    func.func @g(%x: tensor<1x?x384xf16, #dnn.layout<affine_map<()[s0] ->
        (1, s0, 384, s0 * 384, 384, 1)>>> {dnn.uid = 1 : i64, dnn.name = "x"}, ...) -> ...
        attributes {dnn.graph, dnn.symbols = [#dnn.symbol<"M", 1 : i64, 65536 : i64, 8 : i64>]}

Products of sizes that are bounded stand beside: dnn.bounds = [#dnn.bound<["B", "M"], 4096 : i64>].
What belongs to a value and not to its type (uid, name, alignment, ...) is an attribute of the
function's argument, or of the operation that makes it (`tensors`, one dictionary a result).
A value that is not returned is virtual.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import mlir
from ..errors import DnncError, Status
from ..expr import Dim, Expr
from ..mlir import ext, func, ir
from .affine import from_affine, to_affine
from .attributes import (
    KINDS,
    Number,
    attribute_of,
    attribute_value,
    dict_of,
    list_of,
    mlir_type,
    read_type,
    read_value_attributes,
    text_of,
    typed,
    value_attributes,
)
from .bound_attributes import with_bounds, write_bounds
from .define import Pure, define
from .definition import Dnn, Layout, ProductBound, Symbol
from .graph import OperationGraph
from .op import MAX_VARIADIC, Field, Op
from .ops import BY_NAME, OPS
from .tensor import Tensor

REPEATS = "dnn.repeats"  # of a graph or a fusion: results have the same bits each time

# ---- the dialect's operations


def _slots(field: Field) -> list[str]:
    """The dialect's fields of one operand field: a variadic one is many optional ones."""
    return [f"{field.name}_{i}" for i in range(MAX_VARIADIC)] if field.variadic else [field.name]


@functools.cache
def _slot_count(kind: type[Op], which: str) -> int:
    return sum(len(_slots(field)) for field in kind.fields_of(which))


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
            annotations[field.name] = KINDS[field.type]
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
            _verify_attributes(op.operation, kind)
            _verify_segments(op.operation, kind)
            made = read_op(op.operation, kind, values := {}, _symbols_around(op.operation))
            for value, tensor in values.items():
                tensor.is_virtual = not (mlir.is_argument(value) or mlir.is_returned(value))
                tensor.verify()
            made.verify_rank_0()
            made.verify()
        except KeyError:
            return True  # an attribute is missing: MLIR's own verifier reports it next
        except DnncError as error:
            _emit_error(op, error)
            return False
        return True

    return verify_invariants


def _emit_error(op: Any, error: DnncError) -> None:
    error.made_at = None  # MLIR says where
    op.operation.location.emit_error(f"'{op.operation.name}' op {error}")


# Attributes of an operation beside its own: its name in the graph, its results' values, its place
# in a fusion (`Fusion.roles`), and what it is to the engine of one (`engines.Marks`).
NODE, TENSORS, ROLE = "node", "tensors", "role"
PARTS, IS_SCORE, REDUCES_ROWS, IS_FIXED = "parts", "is_score", "reduces_rows", "is_fixed"
MARKS = (ROLE, PARTS, IS_SCORE, REDUCES_ROWS, IS_FIXED)  # in fusions alone
_ROLES = re.compile("anchor|g2|g1[a-z]*")
_ROLE_NAMES = "anchor, g1 (g1a, g1b, ... of several operands), g2"


@functools.cache
def attribute_names(kind: type[Op]) -> frozenset[str]:
    """The attributes that an operation may have; every other is refused."""
    own = (field.name for field in kind.fields_of("attribute"))
    segments = (
        f"{which}SegmentSizes"
        for which in ("operand", "result")
        if any(field.optional or field.variadic for field in kind.fields_of(which))
    )
    return frozenset((*own, *segments, NODE, TENSORS, *MARKS))


def _verify_attributes(operation: Any, kind: type[Op]) -> None:
    known = attribute_names(kind)
    for name in operation.attributes:
        if name not in known:
            raise DnncError(Status.BAD_PARAM, f"attribute {name}", ", ".join(sorted(known)))
    if ROLE in operation.attributes:
        role = text_of(operation.attributes[ROLE], ROLE)
        if not _ROLES.fullmatch(role):
            raise DnncError(Status.BAD_PARAM, f"role = {role!r:.80}", _ROLE_NAMES)
    for name in (IS_SCORE, REDUCES_ROWS, IS_FIXED):
        if name in operation.attributes:
            typed(operation.attributes[name], ir.UnitAttr, name)
    read_parts(operation)


def read_parts(operation: Any) -> list[str]:
    """The names by which an engine knows an operation."""
    attributes = operation.attributes
    found = list_of(attributes[PARTS], PARTS) if PARTS in attributes else ()
    return [text_of(entry, f"an entry of {PARTS}") for entry in found]


def _verify_segments(operation: Any, kind: type[Op]) -> None:
    """MLIR accepts segment sizes whose sum is wrong when an operation is parsed."""
    for name, count in (
        ("operandSegmentSizes", len(operation.operands)),
        ("resultSegmentSizes", len(operation.results)),
    ):
        if name in operation.attributes:
            sizes = list(typed(operation.attributes[name], ir.DenseI32ArrayAttr, name))
            slots = _slot_count(kind, name.removesuffix("SegmentSizes"))
            is_right = sum(sizes) == count and len(sizes) == slots
            if not is_right or any(size not in (0, 1) for size in sizes):
                what = f"{name} {sizes!r:.120}"
                raise DnncError(Status.BAD_PARAM, what, f"{slots} sizes of 0 or 1, {count} in all")


OPERATIONS = {kind.op_name: _define_op(kind) for kind in OPS}
_known: dict[str, type[Op]] = {kind.op_name: kind for kind in OPS}


def _follow_registered() -> None:
    """Defines the operations that were registered since, and forgets those that are no more."""
    if _known == BY_NAME:
        return
    for name in [name for name, kind in _known.items() if BY_NAME.get(name) is not kind]:
        del _known[name]
        Dnn.operations.remove(OPERATIONS.pop(name))
    for name, kind in BY_NAME.items():
        if name not in _known:
            _known[name], OPERATIONS[name] = kind, _define_op(kind)
    Dnn._definitions = b""


def _verify_constant(op: Any) -> bool:
    try:
        for name in op.operation.attributes:
            if name not in ("value", TENSORS):
                raise DnncError(Status.BAD_PARAM, f"attribute {name}", f"value, {TENSORS}")
        read_constant(op.operation, _symbols_around(op.operation)).verify()
    except KeyError:
        return True  # as above
    except DnncError as error:
        _emit_error(op, error)
        return False
    return True


# A number that is part of the graph; `tensors` describes it.
Constant = define(
    Dnn.Operation, "constant", {"value": ir.FloatAttr | ir.IntegerAttr, "y": ext.Result[Any]},
    traits=[Pure], y=ext.result(kw_only=True),
    verify_invariants=staticmethod(_verify_constant),
)  # fmt: skip


@contextlib.contextmanager
def context() -> Iterator[Any]:
    """A new MLIR context that knows the dialect, entered."""
    with mlir.context() as made:
        with mlir.dialect_lock:
            _follow_registered()
            Dnn.load(reload=True)
        yield made


def definitions() -> str:
    """The dialect's operations, attributes and types in IRDL, which other MLIR tools load.

    Optional attributes can't be written in it, nor what the verifiers of operations check.
    """
    with context():
        return str(ir.Module.parse(Dnn._definitions))


# ---- types


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


def read_tensor(
    type_: Any, attributes: Mapping[str, Any], symbols: Sequence[Dim], prefix: str = ""
) -> Tensor:
    """The tensor of a type and the attributes of its value."""
    dims, strides = read_layout(type_, symbols)
    element = read_type(ir.RankedTensorType(type_).element_type)
    tensor = Tensor(dims=dims, strides=strides, dtype=element)
    read_value_attributes(tensor, attributes, prefix)
    return tensor


# ---- graph -> MLIR


def to_mlir(graph: OperationGraph) -> Any:
    """The module that holds the graph; inside a `context()`."""
    graph.finalize()
    module = ir.Module.create()
    outputs = graph.outputs
    with ir.InsertionPoint(module.body):
        function = begin_function(graph.name, graph.inputs, outputs, graph.symbols)
        function.attributes["dnn.graph"] = ir.UnitAttr.get()
        if graph.repeats:
            function.attributes[REPEATS] = ir.UnitAttr.get()
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
    for argument, made_at in zip(function.arguments, (t.made_at for t in inputs), strict=True):
        argument.set_location(mlir.location_of(made_at))
    for key, tensors in (("arg_attrs", inputs), ("res_attrs", outputs)):
        if tensors:  # MLIR does not print a list of nothing
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
    write_bounds(function, symbols.values(), ProductBound)
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
    made.attributes[TENSORS] = ir.ArrayAttr.get([ir.DictAttr.get(value_attributes(tensor))])
    return made.results[0]


def location_of(op: Op) -> Any:
    """The location of what an operation becomes: its name, at its place in the user's program."""
    return ir.Location.name(op.name or op.title, mlir.location_of(op.made_at))


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
    with location_of(op):
        made = OPERATIONS[op.op_name](**{k: v for k, v in arguments.items() if v is not None})
    for field in op.fields_of("attribute"):
        value = getattr(op, field.name)
        if field.optional and value is not None:
            made.attributes[field.name] = attribute_of(value, field.type)
    if op.name:
        made.attributes[NODE] = ir.StringAttr.get(op.name)
    made.attributes[TENSORS] = ir.ArrayAttr.get(
        [ir.DictAttr.get(value_attributes(tensor)) for tensor in op.results]
    )
    return list(made.results)


# ---- MLIR -> graph


def from_mlir(module: Any) -> OperationGraph:
    """The finalized graph of a module's one function with `dnn.graph`."""
    function = graph_function(module)
    with mlir.located(function.operation):
        graph = OperationGraph(function.name.value)
        graph.repeats = REPEATS in function.operation.attributes
        values = read_arguments(function)
        for op in read_ops(function.entry_block, values, read_symbols(function)):
            graph.add(op)
        for op in graph.ops:
            for tensor in op.results:
                tensor.is_virtual = True
        for tensor in _returned(function, values):
            tensor.is_virtual = False
            tensor.is_output = True
        return graph.finalize()


def graph_function(module: Any) -> Any:
    """The module's one function with the attribute `dnn.graph`."""
    found = [op for op in module.body.operations if "dnn.graph" in op.operation.attributes]
    if len(found) != 1 or not isinstance(found[0], func.FuncOp):
        what = f"{len(found)} functions with dnn.graph"
        raise DnncError(Status.BAD_PARAM, what, "one func.func of them")
    verify_one_block(found[0])
    return found[0]


def verify_one_block(function: Any) -> None:
    """BAD_PARAM unless a function is one block of operations."""
    blocks = len(function.operation.regions[0].blocks)
    if blocks != 1:
        what = f"{blocks} blocks in @{function.name.value}"
        raise DnncError(Status.BAD_PARAM, what, "one, which ends in return")


def read_symbols(function: Any) -> list[Dim]:
    """The symbols of a function, in the order that layouts index."""
    if "dnn.symbols" not in function.operation.attributes:
        return []
    found: list[Dim] = []
    for entry in list_of(function.operation.attributes["dnn.symbols"], "dnn.symbols"):
        symbol = typed(entry, Symbol, "an entry of dnn.symbols")
        numbers = (attribute_value(v, int) for v in (symbol.min, symbol.max, symbol.multiple_of))
        found.append(Dim(text_of(symbol.params[0], "a symbol's name"), *numbers))
    if len({dim.name for dim in found}) != len(found):
        names = [dim.name for dim in found]
        raise DnncError(Status.BAD_PARAM, f"dnn.symbols {names}", "each name once")
    return with_bounds(found, function, ProductBound)


def _symbols_around(operation: Any) -> list[Dim]:
    parent = operation.parent
    while parent is not None and "dnn.symbols" not in parent.attributes:
        parent = parent.parent
    return read_symbols(parent) if parent is not None else []


def read_arguments(function: Any) -> dict[Any, Tensor]:
    """Argument value -> tensor."""
    symbols = read_symbols(function)
    records = records_of(function.operation, "arg_attrs", len(function.arguments))
    found = {}
    for value, record in zip(function.arguments, records, strict=True):
        found[value] = tensor = read_tensor(value.type, record, symbols, "dnn.")
        tensor.made_at = mlir.place_of(value.location)
    return found


def records_of(operation: Any, name: str, count: int) -> list[dict[str, Any]]:
    """The dictionaries of an attribute, one a value; without the attribute they are empty."""
    if name not in operation.attributes:
        return [{} for _ in range(count)]
    found = list_of(operation.attributes[name], name)
    if len(found) != count:
        raise DnncError(Status.BAD_PARAM, f"{len(found)} entries of {name}", f"{count}")
    return [dict_of(entry, f"an entry of {name}") for entry in found]


def _returned(function: Any, values: Mapping[Any, Tensor]) -> list[Tensor]:
    """The tensors that a graph's function returns; what its result attributes say of them has to
    be what the operations say."""
    last = list(function.entry_block.operations)[-1]
    records = records_of(function.operation, "res_attrs", len(last.operands))
    found: list[Tensor] = []
    for value, record in zip(last.operands, records, strict=True):
        if value not in values:
            raise DnncError(Status.BAD_PARAM, f"returned value {value}", "a dnn operation's result")
        tensor = values[value]
        said = value_attributes(tensor, "dnn.")
        read_value_attributes(tensor, record, "dnn.")
        for name, attribute in said.items():
            if name in record and record[name] != attribute:
                what = f"{name} = {record[name]} of a returned value"
                raise DnncError(Status.BAD_PARAM, what, f"{attribute}, as its operation has it")
        found.append(tensor)
    return found


def read_ops(block: Any, values: dict[Any, Tensor], symbols: Sequence[Dim]) -> list[Op]:
    """The operations of a block in order; `values` is extended by their results."""
    found = []
    for view in block.operations:
        operation = view.operation
        with mlir.located(operation):
            if operation.name == "dnn.constant":
                values[operation.results[0]] = read_constant(operation, symbols)
            elif operation.name != "func.return":
                found.append(read_op(operation, _kind_of(operation), values, symbols))
    return found


def _kind_of(operation: Any) -> type[Op]:
    """The kind of an operation of the dialect."""
    prefix, _, name = operation.name.partition(".")
    if prefix != "dnn" or name not in BY_NAME:
        raise DnncError(Status.BAD_PARAM, f"operation {operation.name}", ", ".join(BY_NAME))
    return BY_NAME[name]


def read_constant(operation: Any, symbols: Sequence[Dim]) -> Tensor:
    tensor = read_tensors(operation, symbols)[0]
    value = attribute_value(operation.attributes["value"], Number)
    if tensor.value not in (None, value):
        raise DnncError(
            Status.BAD_PARAM, f"value {tensor.value} in {TENSORS}", f"{value}, as value"
        )
    tensor.value = value
    return tensor


def read_tensors(operation: Any, symbols: Sequence[Dim]) -> list[Tensor]:
    records = records_of(operation, TENSORS, len(operation.results))
    made_at = mlir.place_of(operation.location)
    found = []
    for value, record in zip(operation.results, records, strict=True):
        tensor = read_tensor(value.type, record, symbols)
        tensor.made_at = made_at
        found.append(tensor)
    return found


def read_op(
    operation: Any, kind: type[Op], values: dict[Any, Tensor], symbols: Sequence[Dim]
) -> Op:
    def tensor_of(value: Any) -> Tensor:
        if value not in values:
            values[value] = read_tensor(value.type, {}, symbols)
        return values[value]

    attributes = operation.attributes
    arguments: dict[str, Any] = {"name": ""}
    if NODE in attributes:
        arguments["name"] = text_of(attributes[NODE], NODE)
    operands = _present(operation, kind, "operand", [tensor_of(v) for v in operation.operands])
    results = _present(operation, kind, "result", read_tensors(operation, symbols))
    arguments.update(operands)
    arguments.update(results)
    for field in kind.fields_of("attribute"):
        if field.name in attributes:
            arguments[field.name] = attribute_value(attributes[field.name], field.type)
        elif not field.optional:
            raise KeyError(field.name)
    made = kind(**arguments)
    made.made_at = mlir.place_of(operation.location)
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
        sizes = list(typed(operation.attributes[name], ir.DenseI32ArrayAttr, name))
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
