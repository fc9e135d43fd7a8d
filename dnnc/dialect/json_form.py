"""The JSON form of an operation graph: what a plan keeps and a graph file may hold.

{"dnnc_graph": 1, "name": str,
 "symbols": [{"name", "min", "max", "multiple_of"}],
 "bounds": [{"product": "batch*length", "max": int}], where there are any,
 "repeats": true, where results must have the same bits each time,
 "tensors": [{"uid", "name", "dims", "strides", "dtype", and what differs from the defaults}],
 "ops": [{"op", "name", "operands": {field: uid or [uid]}, "results": {...}, "attributes": {...}}]}
A size is a number or the text of an expression over the symbols.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from .. import dtypes, expr
from ..dtypes import DType
from ..errors import DnncError, Status
from ..expr import Bound, Dim, Expr, bounds_of
from .graph import OperationGraph
from .op import Op
from .ops import BY_NAME
from .tensor import DEFAULT_ALIGNMENT, Tensor, symbols_of

VERSION = 1

_GRAPH_KEYS = ("dnnc_graph", "name", "symbols", "bounds", "repeats", "tensors", "ops")
_SYMBOL_KEYS = ("name", "min", "max", "multiple_of")
_BOUND_KEYS = ("product", "max")
_OP_KEYS = ("op", "name", "operands", "results", "attributes")

# Tensor field -> its default, for the fields that JSON leaves out when they have it.
_OPTIONAL = {
    "name": "",
    "is_virtual": False,
    "is_by_value": False,
    "value": None,
    "alignment": DEFAULT_ALIGNMENT,
    "reordering": "NONE",
    "prior_of": None,
    "vector_count": 1,
    "vector_dim": None,
}


_TENSOR_KEYS = ("uid", "dims", "strides", "dtype", "ragged_offset", *_OPTIONAL)


def to_json(graph: OperationGraph) -> dict[str, Any]:
    """The JSON form of a validated graph."""
    repeats = {"repeats": True} if graph.repeats else {}
    return {"dnnc_graph": VERSION, "name": graph.name, **repeats, **ops_to_json(graph.ops)}


def ops_to_json(ops: Sequence[Op]) -> dict[str, Any]:
    """Operations, with their tensors in order of use and their symbols by name."""
    tensors = tuple(dict.fromkeys(t for op in ops for t in (*op.operands, *op.results)))
    symbols = symbols_of(tensors)
    return {
        "symbols": [symbol_to_json(d) for _, d in sorted(symbols.items())],
        **bounds_to_json(bounds_of(symbols.values())),
        "tensors": [_tensor_to_json(tensor) for tensor in tensors],
        "ops": [op_to_json(op) for op in ops],
    }


def symbol_to_json(dim: Dim) -> dict[str, Any]:
    return {"name": dim.name, "min": dim.min, "max": dim.max, "multiple_of": dim.multiple_of}


def bounds_to_json(bounds: Sequence[Bound]) -> dict[str, Any]:
    """The field of bounds of products; nothing where there are none."""
    if not bounds:
        return {}
    return {"bounds": [{"product": str(bound), "max": bound.max} for bound in bounds]}


def from_json(data: Any, tensor_type: type[Tensor] = Tensor) -> OperationGraph:
    """The finalized graph of a JSON form; a malformed one is BAD_PARAM with the place.

    tensor_type: what its tensors are.
    """
    record = _record(data, "graph")
    _require_known(record, _GRAPH_KEYS, "graph")
    if record.get("dnnc_graph") != VERSION:
        raise _bad("graph", f"dnnc_graph = {record.get('dnnc_graph')!r}", str(VERSION))
    dims = {}
    for entry in _list(record, "symbols", "graph"):
        symbol = _record(entry, "symbol")
        _require_known(symbol, _SYMBOL_KEYS, "symbol")
        fields = {key: symbol.get(key) for key in _SYMBOL_KEYS}
        _require_types(fields, {"name": str, "min": int, "max": int, "multiple_of": int}, "symbol")
        dim = Dim(**cast(Any, fields))
        if dims.setdefault(dim.name, dim) is not dim:
            raise _bad("symbol", f"{dim.name} twice", "each name once")
    graph = OperationGraph(_name(record.get("name", "graph"), "graph"))
    graph.repeats = record.get("repeats", False)
    if not isinstance(graph.repeats, bool):
        raise _bad("graph", f"repeats = {graph.repeats!r}", "true or false")
    for entry in _list(record, "bounds", "graph") if "bounds" in record else ():
        bound = _record(entry, "bound")
        _require_known(bound, _BOUND_KEYS, "bound")
        fields = {key: bound.get(key) for key in _BOUND_KEYS}
        _require_types(fields, {"product": str, "max": int}, "bound")
        graph.bound(expr.parse(bound["product"], dims), max=bound["max"])
    tensors: dict[int, Tensor] = {}
    ragged: list[tuple[Tensor, int]] = []
    for entry in _list(record, "tensors", "graph"):
        tensor, offset_uid = _tensor_from_json(_record(entry, "tensor"), dims, tensor_type)
        assert tensor.uid is not None
        if tensor.uid in tensors:
            raise _bad("tensor", f"uid {tensor.uid} twice", "each uid once")
        tensors[tensor.uid] = tensor
        if offset_uid is not None:
            ragged.append((tensor, offset_uid))
    for tensor, offset_uid in ragged:
        tensor.ragged_offset = _tensor_of(tensors, offset_uid, tensor.label)
    for entry in _list(record, "ops", "graph"):
        graph.add(_op_from_json(_record(entry, "op"), tensors))
    return graph.finalize()


def value_to_json(value: Any) -> Any:
    """An attribute's value in JSON."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return list(cast(Any, value)) if isinstance(value, tuple) else value


def value_from_json(value: Any, kind: type) -> Any:
    """An attribute's value, of the field's type, from JSON."""
    if kind is DType:
        return dtypes.of(value)
    if kind is float and isinstance(value, str | int):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return value  # `verify` names it
    return tuple(cast(Any, value)) if kind is tuple and isinstance(value, list) else value


def _tensor_to_json(tensor: Tensor) -> dict[str, Any]:
    data: dict[str, Any] = {
        "uid": tensor.uid,
        "dims": sizes_to_json(tensor.shape),
        "strides": sizes_to_json(tensor.layout),
        "dtype": tensor.type.name,
        **options_to_json(tensor),
    }
    if tensor.ragged_offset is not None:
        data["ragged_offset"] = tensor.ragged_offset.uid
    return data


def sizes_to_json(sizes: Sequence[Expr]) -> list[int | str]:
    """Dims or strides: numbers, and the texts of expressions."""
    return [str(size) if size.constant is None else size.constant for size in sizes]


def options_to_json(tensor: Tensor) -> dict[str, Any]:
    """The fields of a tensor that differ from their defaults."""
    data: dict[str, Any] = {}
    for name, default in _OPTIONAL.items():
        value = getattr(tensor, name)
        if value != default:
            data[name] = value_to_json(value)
    return data


def op_to_json(op: Op) -> dict[str, Any]:
    """An operation, its tensors by their uids."""

    def ends(kind: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in op.fields_of(kind):
            value = getattr(op, field.name)
            if field.variadic:
                if value or not field.optional:
                    found[field.name] = [tensor.uid for tensor in value]
            elif value is not None:
                found[field.name] = value.uid
        return found

    return {
        "op": op.op_name,
        "name": op.name,
        "operands": ends("operand"),
        "results": ends("result"),
        "attributes": {name: value_to_json(v) for name, v in op.attributes().items()},
    }


def _bad(where: str, what: str, supported: str) -> DnncError:
    return DnncError(Status.BAD_PARAM, what, supported, f"graph JSON: {where}")


def _record(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _bad(where, f"{value!r:.40}", "an object")
    return cast(Mapping[str, Any], value)


def _list(record: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list):
        raise _bad(where, f"{key} = {value!r:.40}", "a list")
    return cast(list[Any], value)


def _require_known(record: Mapping[str, Any], known: Collection[str], where: str) -> None:
    unknown = [key for key in record if key not in known]
    if unknown:
        raise _bad(where, f"{unknown[0]!r:.40}", ", ".join(known))


def _require_types(values: Mapping[str, Any], types: Mapping[str, type], where: str) -> None:
    for key, wanted in types.items():
        value = values.get(key)
        if wanted is str and isinstance(value, str):
            _name(value, f"{where}: {key}")
        elif wanted is int and isinstance(value, int) and not isinstance(value, bool):
            if not -(1 << 63) <= value < 1 << 63:
                raise _bad(where, f"{key} = {hex(value):.40}", "an integer of 64 bits")
        elif wanted is int or not isinstance(value, wanted):
            raise _bad(where, f"{key} = {value!r:.40}", f"a value of type {wanted.__name__}")


def _name(value: Any, where: str) -> str:
    """Text that has a place in MLIR and in a file."""
    if not isinstance(value, str):
        raise _bad(where, f"name {value!r:.40}", "text")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise _bad(where, f"text {value!a:.40} with half of a surrogate pair", "UTF-8 text")
    return value


def _number(value: Any, where: str) -> float | int | None:
    """A scalar's value: a number, or the text of an infinite one."""
    try:
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value if value is None or -(1 << 63) <= value < 1 << 64 else float(value)
        if isinstance(value, float | str):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise _bad(where, f"value {value!a:.40}", "a number that a double holds")


def _tensor_from_json(
    data: Mapping[str, Any], dims: Mapping[str, Dim], tensor_type: type[Tensor]
) -> tuple[Tensor, int | None]:
    _require_types(data, {"uid": int, "dtype": str}, "tensor")
    where = f"tensor {data['uid']}"
    _require_known(data, _TENSOR_KEYS, where)

    def sizes(key: str) -> tuple[Expr, ...]:
        return tuple(
            expr.parse(size, dims) if isinstance(size, str) else Expr.of(_integer(size, where))
            for size in _list(data, key, where)
        )

    tensor = tensor_type(
        uid=data["uid"],
        dims=sizes("dims"),
        strides=sizes("strides"),
        dtype=dtypes.of(data["dtype"]),
    )
    for name, default in _OPTIONAL.items():
        value = data.get(name, default)
        setattr(tensor, name, _number(value, where) if name == "value" else value)
    kinds = {
        "name": str,
        "is_virtual": bool,
        "is_by_value": bool,
        "alignment": int,
        "reordering": str,
        "vector_count": int,
    }
    kinds |= {key: int for key in ("prior_of", "vector_dim") if getattr(tensor, key) is not None}
    _require_types(vars(tensor), kinds, where)
    return tensor, data.get("ragged_offset")


def _integer(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _bad(where, f"size {value!r:.40}", "an integer or the text of an expression")
    return value


def _tensor_of(tensors: Mapping[int, Tensor], uid: Any, where: str) -> Tensor:
    if not isinstance(uid, int) or isinstance(uid, bool) or uid not in tensors:
        raise _bad(where, f"unknown uid {uid!r:.40}", f"one of {list(tensors)!r:.200}")
    return tensors[uid]


def _op_from_json(data: Mapping[str, Any], tensors: Mapping[int, Tensor]) -> Op:
    _require_known(data, _OP_KEYS, "op")
    kind = BY_NAME.get(str(data.get("op")))
    if kind is None:
        accepted = f"{', '.join(BY_NAME)}, or one that dnnc.operations.register was given"
        raise _bad("op", f"op = {data.get('op')!r:.40}", accepted)
    ends = {
        **_record(data.get("operands"), f"{kind.op_name} operands"),
        **_record(data.get("results"), f"{kind.op_name} results"),
    }
    given = _record(data.get("attributes"), f"{kind.op_name} attributes")
    unknown = (ends.keys() | given.keys()) - {field.name for field in kind.fields}
    if unknown:
        known = ", ".join(field.name for field in kind.fields)
        raise _bad(kind.op_name, ", ".join(sorted(unknown)), known)
    values: dict[str, Any] = {"name": _name(data.get("name", ""), kind.op_name)}
    for field in kind.fields:
        if field.kind == "attribute":
            if field.name in given:
                values[field.name] = value_from_json(given[field.name], field.type)
        elif field.variadic and (field.name in ends or not field.optional):
            uids = _list(ends, field.name, kind.op_name)
            values[field.name] = tuple(_tensor_of(tensors, uid, kind.op_name) for uid in uids)
        elif field.name in ends:
            values[field.name] = _tensor_of(tensors, ends[field.name], kind.op_name)
        elif not field.optional:
            raise _bad(kind.op_name, f"no {field.name}", f"the uid of {field.name}")
    return kind(**values)
