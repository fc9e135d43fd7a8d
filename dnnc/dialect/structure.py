# pyright: basic
"""How a module shows fusions, engine choices, sizes and launches, and how passes read that.

    func.func private @ffn_fusion0(%x: ... {dnn.uid = 1 : i64}, ...) -> (... {dnn.uid = 6 : i64})
        attributes {dnn.fusion = 0 : i64, dnn.engine = "matmul_sm80", dnn.knobs = {TILE_M = 128}}

Fusions are functions and not operations with a region, because a dialect defined from Python
can't have operations whose operands differ in type in any number.  What connects them are the
uids of their arguments and results.  The graph's own function stays beside them, untouched.
An anchor is a function of its own, `dnn.anchor`, which the fusion calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import mlir
from ..dtypes import DType
from ..errors import DnncError, Status
from ..expr import Dim, Expr
from ..mlir import ext, func, ir
from . import dnn
from .bound_attributes import BOUNDS
from .fusion import Fusion
from .graph import OperationGraph
from .tensor import Tensor

# A size expression as an index value: `"dnn.size"() {value = affine_map<()[s0] -> (s0 * 8)>}`.
SizeOp = dnn.define(
    dnn.Dnn.Operation, "size", {"value": ir.AffineMapAttr, "y": ext.Result[Any]},
    traits=[dnn.Pure], y=ext.result(kw_only=True),
)  # fmt: skip


def write_fusion(module: Any, name: str, fusion: Fusion, symbols: Mapping[str, Dim]) -> Any:
    """Appends the function of a fusion, with its operations and their roles."""
    fusion = fusion.in_graph
    with ir.InsertionPoint(module.body), dnn.location_of(fusion.ops[0]):
        function = dnn.begin_function(
            f"{name}_fusion{fusion.index}", fusion.inputs, fusion.outputs, symbols
        )
        function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        function.attributes["dnn.fusion"] = dnn.attribute_of(fusion.index, int)
        if fusion.must_repeat:
            function.attributes[dnn.REPEATS] = ir.UnitAttr.get()
    _write_body(function, fusion, symbols)
    return function


def write_in_place_of(function: Any, fusion: Fusion) -> Any:
    """Writes the function of a fusion of other operations, of the same inputs and outputs in
    memory, ahead of one that it is to replace, with its name, attributes and location."""
    symbols = {dim.name: dim for dim in dnn.read_symbols(function)}
    kept = kept_attributes(function)
    with ir.InsertionPoint(function.operation), function.operation.location:
        made = dnn.begin_function(function.name.value, fusion.inputs, fusion.outputs, symbols)
    for key, value in kept.items():
        made.attributes[key] = value
    _write_body(made, fusion, symbols)
    return made


def kept_attributes(function: Any) -> dict[str, Any]:
    """The attributes of a fusion's function that one with other operations keeps."""
    written = ("dnn.symbols", BOUNDS)  # with the types
    return {
        key: value
        for key, value in mlir.attributes_of(function.operation).items()
        if key == "sym_visibility" or (key.startswith("dnn.") and key not in written)
    }


def _write_body(function: Any, fusion: Fusion, symbols: Mapping[str, Dim]) -> None:
    with ir.InsertionPoint(function.entry_block):
        values = dict(zip(fusion.inputs, function.arguments, strict=True))
        dnn.emit_ops(fusion.ops, values, list(symbols))
        func.ReturnOp([values[tensor] for tensor in fusion.outputs])
    write_roles(function, fusion)


def write_roles(function: Any, fusion: Fusion) -> None:
    """Writes the roles of the operations of a fusion's function."""
    for op, operation in zip(fusion.ops, operations_of(function), strict=True):
        operation.attributes[dnn.ROLE] = ir.StringAttr.get(fusion.roles[op])


def operations_of(function: Any) -> list[Any]:
    """The operations of a fusion's function, in order, constants left out."""
    found = [view.operation for view in function.entry_block.operations]
    return [op for op in found if op.name.startswith("dnn.") and op.name != "dnn.constant"]


def fusion_functions(module: Any) -> Iterator[Any]:
    """The functions of the fusions, in the order of their index."""
    found = [op for op in module.body.operations if "dnn.fusion" in op.operation.attributes]
    return iter(sorted(found, key=lambda f: dnn.attribute_value(f.attributes["dnn.fusion"], int)))


def read_fusion(function: Any) -> Fusion:
    """The fusion of its function, while that still holds dnn operations."""
    written = read_as_written(function)
    with mlir.located(function.operation):
        return Fusion.of_graph(written.index, written.ops, written.outputs, written.must_repeat)


def read_as_written(function: Any) -> Fusion:
    """The fusion of a function's own operations: views at its borders are operations, too."""
    with mlir.located(function.operation):
        values = dnn.read_arguments(function)
        ops = dnn.read_ops(function.entry_block, values, dnn.read_symbols(function))
        last = list(function.entry_block.operations)[-1]
        outputs = tuple(values[value] for value in last.operands)
        index = ir.IntegerAttr(function.attributes["dnn.fusion"]).value
        must_repeat = dnn.REPEATS in function.operation.attributes
        return Fusion(index, tuple(ops), outputs, must_repeat)


def read_results(function: Any) -> list[Tensor]:
    """The tensors that a function returns, by its type and result attributes."""
    symbols = dnn.read_symbols(function)
    types = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results
    records = dnn.records_of(function.operation, "res_attrs", len(types))
    return [
        dnn.read_tensor(type_, record, symbols, "dnn.")
        for type_, record in zip(types, records, strict=True)
    ]


def set_engine(function: Any, engine: str, knobs: Mapping[str, int], notes: Sequence[str]) -> None:
    """Records the engine, its knobs and its numerical notes on a fusion's function."""
    function.attributes["dnn.engine"] = ir.StringAttr.get(engine)
    function.attributes["dnn.knobs"] = ir.DictAttr.get(
        {name: dnn.attribute_of(value, int) for name, value in knobs.items()}
    )
    function.attributes["dnn.notes"] = to_attribute(list(notes))


def engine_of(function: Any) -> tuple[str, dict[str, int]]:
    """(engine, knobs) of a fusion's function; BAD_PARAM before select-engine has run."""
    attributes = function.operation.attributes
    if "dnn.engine" not in attributes:
        raise DnncError(
            Status.BAD_PARAM, f"@{function.name.value} has no dnn.engine", "select-engine first"
        )
    knobs = dnn.dict_of(attributes["dnn.knobs"]) if "dnn.knobs" in attributes else {}
    return (
        ir.StringAttr(attributes["dnn.engine"]).value,
        {name: ir.IntegerAttr(value).value for name, value in knobs.items()},
    )


def verify_not_prepared(function: Any, pass_: str) -> None:
    """Refuses a fusion whose operations and tile are those of the engine that it has."""
    attributes = function.operation.attributes
    if PREPARED in attributes:
        of = f" for engine {engine_of(function)[0]}" if "dnn.engine" in attributes else ""
        what = f"pass {pass_}: @{function.name.value} is prepared{of}"
        with mlir.located(function.operation):
            raise DnncError(Status.BAD_PARAM, what, f"{pass_} ahead of prepare-fusions")


def tile_of(function: Any) -> Any:
    """The engine's tiling of a fusion; BAD_PARAM before prepare-fusions has run."""
    attributes = function.operation.attributes
    if "dnn.tile" not in attributes:
        what = f"@{function.name.value} has no dnn.tile"
        raise DnncError(Status.BAD_PARAM, what, "dnn.tile as prepare-fusions writes it")
    return from_attribute(attributes["dnn.tile"])


def emit_size(size: Expr, symbols: Sequence[str]) -> Any:
    """A size expression as an index value: a constant, or `dnn.size`."""
    from ..mlir import arith

    index = ir.IndexType.get()
    if size.constant is not None:
        return arith.ConstantOp(index, ir.IntegerAttr.get(index, size.constant)).result
    position = {name: i for i, name in enumerate(symbols)}
    map_ = ir.AffineMap.get(0, len(symbols), [dnn.to_affine(size, position)])
    return SizeOp(value=ir.AffineMapAttr.get(map_), y=index).results[0]


def read_size(operation: Any, symbols: Sequence[Dim]) -> Expr:
    """The expression of a `dnn.size`."""
    map_ = ir.AffineMapAttr(operation.attributes["value"]).value
    (result,) = map_.results
    return dnn.from_affine(result, symbols)


PREPARED = "dnn.prepared"  # of a fusion whose operations are those that its engine computes
VARIANT = "dnn.variant"
SPLIT_REASON = "dnn.split_reason"
PLACES = "dnn.places"  # of a fusion's operations among those of the graph that an output needs
DIGEST = "dnn.graph_digest"


def digest_of(graph: OperationGraph, split_reason: str) -> str:
    """A digest that tells the graph that was fused, and why it was split, from any other."""
    text = f"{graph.canonical_text()}\n{split_reason}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def variant_suffix(module: Any) -> str:
    """The suffix of the names of kernels: those of a plan's configs differ; the first has none."""
    attributes = module.operation.attributes
    if VARIANT not in attributes:
        return ""
    return f"_v{ir.IntegerAttr(attributes[VARIANT]).value}"


# The name that a fusion has in its own module of kernels, whichever the graph.
ALONE = "fusion0"


def name_in_graph(name: str, index: int, suffix: str = "") -> str:
    """The name in the plan of a kernel or a buffer, by the one that it has in its module.

    index: of the fusion in the graph.
    """
    return f"fusion{index}{name.removeprefix(ALONE)}{suffix}"


def anchor_of(call: Any) -> Any:
    """The anchor's function that a call names."""
    name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
    module = call.parent.operation.parent.operation
    for view in module.regions[0].blocks[0].operations:
        if view.operation.name == "func.func" and view.name.value == name:
            return view
    raise DnncError(Status.BAD_PARAM, f"no function {name}", "the anchor that is called")


def compute_type_of(call: Any) -> DType:
    """The compute type of the anchor that a call names."""
    return dnn.attribute_value(anchor_of(call).attributes["dnn.compute_type"], DType)


def calls_anchors(function: Any) -> bool:
    """Whether anchors stand in functions of their own, which it calls."""
    return any(op.operation.name == "func.call" for op in function.entry_block.operations)


def inline_anchors(module: Any, function: Any) -> None:
    """Replaces the calls of anchors in a function by the anchors' own operations."""
    anchors = {
        op.name.value: op
        for op in module.body.operations
        if "dnn.anchor" in op.operation.attributes
    }
    for view in list(function.entry_block.operations):
        call = view.operation
        if call.name != "func.call":
            continue
        name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        body = anchors[name].entry_block
        values = dict(zip(body.arguments, call.operands, strict=True))
        with ir.InsertionPoint(call):
            for op in list(body.operations)[:-1]:
                values.update(zip(op.results, cloned(op.operation, values), strict=True))
        returned = [values[value] for value in list(body.operations)[-1].operands]
        for result, value in zip(call.results, returned, strict=True):
            result.replace_all_uses_with(value)
        call.erase()
        anchors[name].operation.erase()


def cloned(operation: Any, values: Mapping[Any, Any]) -> list[Any]:
    """The results of a clone in which other values are used, bodies included."""
    made = operation.clone()

    def replace(op: Any) -> Any:
        for position, value in enumerate(op.operands):
            op.operands[position] = values.get(value, value)
        return ir.WalkResult.ADVANCE

    made.operation.walk(replace)
    return list(made.results)


# ---- plain data as attributes


def to_attribute(data: Any) -> Any:
    """JSON-like data as an attribute: dictionaries, arrays, strings, integers, booleans."""
    if isinstance(data, Mapping):
        return ir.DictAttr.get({key: to_attribute(value) for key, value in data.items()})
    if isinstance(data, list | tuple):
        return ir.ArrayAttr.get([to_attribute(item) for item in data])
    return dnn.attribute_of(data, type(data))


def from_attribute(attribute: Any) -> Any:
    """The data of such an attribute."""
    attribute = attribute.maybe_downcast()
    if isinstance(attribute, ir.DictAttr):
        return {entry.name: from_attribute(entry.attr) for entry in attribute}
    if isinstance(attribute, ir.ArrayAttr):
        return [from_attribute(item) for item in attribute]
    if isinstance(attribute, ir.BoolAttr):
        return bool(attribute.value)
    return attribute.value


# The steps of a lowered module and what belongs to them, in the plan's own terms:
# `steps`, `fusions` as the plan has them, `buffers` {name, bytes}, then `workspace_bytes`.
ProgramOp = dnn.define(dnn.Dnn.Operation, "program", {"steps": ir.ArrayAttr})


def write_program(module: Any, data: Mapping[str, Any]) -> None:
    """Puts the module's `dnn.program`, in place of one that is there."""
    old = _program_ops(module)
    with ir.InsertionPoint(module.body):
        made = ProgramOp(to_attribute(data["steps"]))
        for key, value in data.items():
            made.attributes[key] = to_attribute(value)
    for op in old:
        op.operation.erase()


def read_program(module: Any) -> dict[str, Any]:
    """The data of the module's `dnn.program`."""
    found = _program_ops(module)
    if len(found) != 1:
        raise DnncError(
            Status.BAD_PARAM, f"{len(found)} operations dnn.program", "lower-to-kernels first"
        )
    attributes = mlir.attributes_of(found[0].operation)
    return {name: from_attribute(value) for name, value in attributes.items()}


def _program_ops(module: Any) -> list[Any]:
    return [op for op in module.body.operations if op.operation.name == "dnn.program"]
