# pyright: basic
"""Specifies what the text of a stage may hold: its operations, and their attributes with types.

    graph    one function `dnn.graph` of dnn operations
    fused    and a function `dnn.fusion` of dnn operations for each fusion, with engine and knobs
    linalg   the fusions as linalg over scalar arith and math, and their anchors' functions
    kernel   `gpu.module` and `dnn.program` beside the graph; nvvm, ptx: likewise

`verify` refuses everything else, by name.  The attributes of dnn operations themselves are their
fields, which the dialect's own verifiers check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..dialect import dnn, structure
from ..dialect.attributes import (
    UNSIGNED,
    VALUE_FIELDS,
    attribute_value,
    dict_of,
    list_of,
    text_of,
    typed,
)
from ..dialect.bound_attributes import BOUNDS
from ..dialect.op import Op
from ..dialect.ops import BY_NAME
from ..engines import engine_named, plain_data
from ..errors import DnncError, Status
from ..mlir import ir, located

Check = Callable[[Any, str], Any]  # of an attribute and its name; raises where it is ill-typed


def _integer(attribute: Any, name: str) -> None:
    attribute_value(attribute, int)


def _unit(attribute: Any, name: str) -> None:
    typed(attribute, ir.UnitAttr, name)


def _texts(attribute: Any, name: str) -> None:
    for entry in list_of(attribute, name):
        text_of(entry, f"an entry of {name}")


def _integers(attribute: Any, name: str) -> None:
    typed(attribute, ir.DenseI64ArrayAttr, name)


def _knobs(attribute: Any, name: str) -> None:
    for value in dict_of(attribute, name).values():
        attribute_value(value, int)


def _plain(attribute: Any, name: str) -> None:
    """Dictionaries, arrays, texts, integers and booleans."""
    kinds = (ir.DictAttr, ir.ArrayAttr, ir.StringAttr, ir.IntegerAttr, ir.BoolAttr)
    pending = [attribute]
    while pending:
        at = pending.pop().maybe_downcast()
        if not isinstance(at, kinds):
            typed(at, ir.DictAttr, f"a part of {name}")
        if isinstance(at, ir.DictAttr):
            pending += [entry.attr for entry in at]
        elif isinstance(at, ir.ArrayAttr):
            pending += list(at)


def _any(attribute: Any, name: str) -> None:
    """Accepts anything: MLIR itself verifies it."""


_OF_MODULE: Mapping[str, Check] = {"dnn.target": text_of, structure.VARIANT: _integer}
_OF_FUSIONS_MODULE = {**_OF_MODULE, structure.SPLIT_REASON: text_of, structure.DIGEST: text_of}
_OF_KERNELS_MODULE = {**_OF_FUSIONS_MODULE, "gpu.container_module": _unit}

_OF_FUNCTION: Mapping[str, Check] = {
    "sym_name": text_of,
    "function_type": _any,
    "sym_visibility": text_of,
    "arg_attrs": list_of,
    "res_attrs": list_of,
}
_OF_GRAPH = {
    **_OF_FUNCTION,
    "dnn.graph": _unit,
    "dnn.symbols": list_of,
    BOUNDS: list_of,
    dnn.REPEATS: _unit,
}
_OF_FUSION = {
    **_OF_FUNCTION,
    "dnn.fusion": _integer,
    "dnn.symbols": list_of,
    BOUNDS: list_of,
    "dnn.ops": _texts,
    structure.PLACES: _integers,
    "dnn.engine": text_of,
    "dnn.knobs": _knobs,
    "dnn.notes": _texts,
    "dnn.tile": _plain,
    dnn.REPEATS: _unit,
}
_OF_FUSION_OF_OPS = {**_OF_FUSION, structure.PREPARED: _unit}


def _flags(*accepted: str) -> Mapping[str, Check]:
    """Which approximation an engine may take: sets of flags, beside none."""

    def verify(attribute: Any, name: str) -> None:
        known = [f"#arith.fastmath<{flags}>" for flags in ("none", *accepted)]
        if str(attribute) not in known:
            raise DnncError(Status.BAD_PARAM, f"{name} = {attribute}", ", ".join(known))

    return {"fastmath": verify}


def _no_overflow(attribute: Any, name: str) -> None:
    if str(attribute) != "#arith.overflow<none>":
        raise DnncError(Status.BAD_PARAM, f"{name} = {attribute}", "#arith.overflow<none>")


_EXACT = _flags()
_NEAR = _flags("afn")
_OVERFLOW: Mapping[str, Check] = {"overflowFlags": _no_overflow}
_NOTHING: Mapping[str, Check] = {}

# The scalar arithmetic of bodies, as `lower-to-linalg` writes it.
SCALAR: Mapping[str, Mapping[str, Check]] = {
    "arith.constant": {"value": _any},
    "arith.cmpf": {**_EXACT, "predicate": _any},
    "arith.cmpi": {"predicate": _any},
    **dict.fromkeys(
        ("arith.addf", "arith.subf", "arith.mulf", "arith.remf", "arith.negf",
         "arith.maximumf", "arith.minimumf", "arith.maxnumf", "math.absf", "math.atan2",
         "math.ceil", "math.copysign", "math.cos", "math.expm1", "math.floor", "math.fma",
         "math.log1p", "math.powf", "math.roundeven", "math.sin", "math.tan"), _EXACT),
    **dict.fromkeys(("math.exp", "math.log", "math.rsqrt", "math.sqrt"), _NEAR),
    "arith.divf": _flags("afn", "arcp"),
    "math.erf": _flags("afn", "contract,afn"),
    "math.tanh": _flags("afn", "arcp", "arcp,contract"),
    **dict.fromkeys(
        ("arith.addi", "arith.subi", "arith.muli", "arith.shli", "arith.trunci"), _OVERFLOW),
    **dict.fromkeys(
        ("arith.andi", "arith.ori", "arith.xori", "arith.divsi", "arith.divui", "arith.remui",
         "arith.maxsi", "arith.minsi", "arith.shrsi", "arith.shrui", "arith.select",
         "arith.bitcast", "arith.extf", "arith.truncf", "arith.extsi", "arith.extui",
         "arith.sitofp", "arith.uitofp", "arith.fptosi", "math.absi"), _NOTHING),
}  # fmt: skip

_LINALG: Mapping[str, Mapping[str, Check]] = {
    **SCALAR,
    "arith.index_cast": _NOTHING,
    "dnn.size": {"value": _any},
    "func.call": {"callee": _any, "dnn.parts": _texts},
    "func.return": _NOTHING,
    "linalg.fill": {"operandSegmentSizes": _any},
    "linalg.generic": {
        "indexing_maps": _any,
        "iterator_types": _any,
        "operandSegmentSizes": _any,
        "dnn.role": text_of,
        "dnn.parts": _texts,
        "dnn.fixed": _unit,
        "dnn.peers": _plain,
        "dnn.load": text_of,
        "dnn.blocks": _integers,
        "dnn.factor": _integer,
    },
    "linalg.index": {"dim": _any},
    "linalg.yield": _NOTHING,
    "tensor.empty": _NOTHING,
    "tensor.extract": _NOTHING,
}

# The attributes of dnn operations are checked where they are read.
_GRAPH: dict[str, Mapping[str, Check] | None] = {"dnn.constant": None, "func.return": _NOTHING}


@dataclass(frozen=True)
class Stage:
    """The contents of one stage: attributes of the module, attributes of each kind of function
    and the operations inside it.  others: operations beside the functions.  None: not looked
    into."""

    module: Mapping[str, Check]
    fusion: Mapping[str, Check] | None = None
    inside: Mapping[str, Mapping[str, Check] | None] = field(default_factory=dict)
    has_anchors: bool = False
    others: tuple[str, ...] = ()


_KERNELS = Stage(_OF_KERNELS_MODULE, others=("gpu.module", "dnn.program"))
SPECS: Mapping[str, Stage] = {
    "graph": Stage(_OF_MODULE),
    "fused": Stage(_OF_FUSIONS_MODULE, _OF_FUSION_OF_OPS, _GRAPH),
    "linalg": Stage(_OF_FUSIONS_MODULE, _OF_FUSION, _LINALG, has_anchors=True),
    "kernel": _KERNELS,
    "nvvm": _KERNELS,
    "ptx": Stage(_OF_KERNELS_MODULE, others=("dnn.program",)),
}


def stage_of(module: Any) -> str:
    """The stage that a module is at, by what it holds; one at ptx is at nvvm without its code."""
    operations = [op.operation for op in module.body.operations]
    kernels = [op for op in operations if op.name == "gpu.module"]
    if kernels:
        dialects = {op.name.split(".")[0] for kernel in kernels for op in inside_of(kernel)}
        return "nvvm" if dialects <= {"llvm", "nvvm", "gpu"} else "kernel"
    fusions = list(structure.fusion_functions(module))
    if not fusions:
        return "graph"
    inside = {op.name for function in fusions for op in inside_of(function.operation)}
    has_ops = any(name.startswith("dnn.") and name != "dnn.size" for name in inside)
    return "fused" if has_ops else "linalg"


def verify(module: Any, name: str) -> None:
    """BAD_PARAM for what a stage does not hold, by its name and place."""
    spec = SPECS[name]
    _GRAPH.update(dict.fromkeys(f"dnn.{op}" for op in BY_NAME))
    at = f"stage {name}"
    _verify_attributes(module.operation, spec.module, f"{at}: the module")
    for view in module.body.operations:
        _verify_part(view.operation, spec, at)


def _verify_part(operation: Any, spec: Stage, at: str) -> None:
    if operation.name in spec.others:
        return
    with located(operation):
        if operation.name != "func.func":
            accepted = ", ".join(("func.func", *spec.others))
            raise DnncError(Status.BAD_PARAM, f"operation {operation.name}", accepted, at)
        _verify_function(operation, spec, at)


def _verify_function(operation: Any, spec: Stage, at: str) -> None:
    function = operation.opview
    where = f"{at}: @{function.name.value}"
    dnn.verify_one_block(function)
    attributes = operation.attributes
    if "dnn.anchor" in attributes and spec.has_anchors:
        kind = BY_NAME.get(text_of(attributes["dnn.anchor"], "dnn.anchor"))
        known = _of_anchor(kind) if kind else {"dnn.anchor": text_of, **_OF_FUNCTION}
        inside: Mapping[str, Any] = _LINALG
    elif "dnn.fusion" in attributes and spec.fusion is not None:
        known, inside = spec.fusion, spec.inside
    else:
        known, inside = _OF_GRAPH, _GRAPH
    _verify_attributes(operation, known, where)
    if "dnn.tile" in attributes:
        _verify_tile(function, where)
    for key in ("arg_attrs", "res_attrs"):
        for entry in list_of(attributes[key], key) if key in attributes else ():
            record = dict_of(entry, key)
            allowed = [f"dnn.{name}" for name in VALUE_FIELDS]
            if spec.has_anchors and key == "arg_attrs":
                allowed.append(UNSIGNED)
            for each in record:
                if each not in allowed:
                    accepted = ", ".join(allowed)
                    raise DnncError(Status.BAD_PARAM, f"attribute {each}", accepted, where)
    for op in inside_of(operation):
        with located(op):
            if op.name not in inside:
                what = f"operation {op.name}"
                raise DnncError(Status.BAD_PARAM, what, _names(inside), where)
            accepted = inside[op.name]
            if accepted is not None:
                _verify_attributes(op, accepted, f"{where}: {op.name}")
            elif known is _OF_GRAPH:
                _verify_unmarked(op, f"{where}: {op.name}")


def _verify_unmarked(operation: Any, where: str) -> None:
    """Refuses in a graph what passes write of operations in fusions: nothing reads it there."""
    for key in dnn.MARKS:
        if key in operation.attributes:
            what = f"attribute {key} in a graph"
            raise DnncError(Status.BAD_PARAM, what, f"{key} in fusions", where)


def _verify_tile(function: Any, where: str) -> None:
    """A tiling is of the fields of its engine's record."""
    try:
        engine = engine_named(structure.engine_of(function)[0])
        plain_data.verify(engine.tiling, structure.tile_of(function), "dnn.tile")
    except DnncError as error:
        raise DnncError(error.status, error.what, error.supported, where) from error


def _of_anchor(kind: type[Op]) -> Mapping[str, Check]:
    own = {f"dnn.{f.name}": _any for f in kind.fields_of("attribute")}
    return {"dnn.anchor": text_of, **_OF_FUNCTION, **own}


def _names(inside: Mapping[str, Any]) -> str:
    names = sorted(name for name, known in inside.items() if known is not None)
    return ", ".join(names + ["operations of dnn"] * (len(names) < len(inside)))


def _verify_attributes(operation: Any, known: Mapping[str, Check], where: str) -> None:
    for key in operation.attributes:
        if key not in known:
            accepted = ", ".join(known) or "no attributes"
            raise DnncError(Status.BAD_PARAM, f"attribute {key}", accepted, where)
        try:
            known[key](operation.attributes[key], key)
        except DnncError as error:
            raise DnncError(error.status, error.what, error.supported, where) from error


def inside_of(operation: Any) -> Iterator[Any]:
    """The operations in an operation's regions, however deep."""
    pending = [operation]
    while pending:
        for region in pending.pop().regions:
            for block in region.blocks:
                for view in block.operations:
                    yield view.operation
                    pending.append(view.operation)
