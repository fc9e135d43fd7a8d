# pyright: basic
"""Values as MLIR attributes: of an operation's fields, and of what belongs to a tensor's value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import DnncError, Status
from ..mlir import ir
from .tensor import DEFAULT_ALIGNMENT, Tensor


class Number:
    """The kind of a scalar's value: a float, or an int for tensors of integers and booleans."""


KINDS = {
    DType: ir.TypeAttr,
    str: ir.StringAttr,
    int: ir.IntegerAttr,
    float: ir.FloatAttr,
    bool: ir.BoolAttr,
    tuple: ir.DenseI64ArrayAttr,
}

UNSIGNED = "dnn.unsigned"  # of an argument: a number of ui8 where elements are signless

VALUE_FIELDS: dict[str, tuple[type, Any]] = {
    "uid": (int, None),
    "name": (str, ""),
    "alignment": (int, DEFAULT_ALIGNMENT),
    "offset": (int, 0),
    "is_by_value": (bool, False),
    "value": (Number, None),
    "reordering": (str, "NONE"),
    "prior_of": (int, None),
}


def mlir_type(dtype: DType) -> Any:
    """The MLIR type of a data type; one without storage is a type of the dialect."""
    return ir.Type.parse(dtype.name if dtype.has_storage else f"!dnn.{dtype.name}")


def read_type(type_: Any) -> DType:
    """The data type of an MLIR type."""
    return dtypes.of_mlir(str(type_).removeprefix("!dnn."))


def data_type_of(value: Any) -> DType:
    """The data type of the elements of an SSA tensor."""
    return read_type(ir.RankedTensorType(value.type).element_type)


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
        if not -(1 << 63) <= value < 1 << 63:
            raise _ill_typed(f"{hex(value):.40}", "an integer of 64 bits")
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
        if kind is int and isinstance(ir.IntegerAttr(attribute).type, ir.IndexType):
            raise ValueError("an index has no width")
        value = KINDS[kind](attribute)
        return tuple(value) if kind is tuple else value.value
    except (ValueError, UnicodeDecodeError) as error:
        raise _ill_typed(f"attribute {attribute}", f"a {kind.__name__}") from error


def dict_of(attribute: Any, what: str = "attributes") -> dict[str, Any]:
    """A dictionary attribute as a Python one."""
    found = typed(attribute, ir.DictAttr, what)
    return {entry.name: entry.attr for entry in found}


def list_of(attribute: Any, what: str) -> list[Any]:
    """An array attribute as a list."""
    return list(typed(attribute, ir.ArrayAttr, what))


def text_of(attribute: Any, what: str) -> str:
    """A string attribute's text."""
    found = typed(attribute, ir.StringAttr, what)
    try:
        return found.value
    except UnicodeDecodeError as error:
        raise DnncError(Status.BAD_PARAM, f"{what} is not UTF-8 text", "UTF-8") from error


def typed(attribute: Any, kind: Callable[[Any], Any], what: str) -> Any:
    """An attribute as one of a class of the bindings; another is BAD_PARAM."""
    try:
        return kind(attribute)
    except ValueError as error:
        wanted = getattr(kind, "attr_name", kind.__name__)  # type: ignore[attr-defined]
        raise _ill_typed(f"{what} = {attribute}", f"an attribute of kind {wanted}") from error


def _ill_typed(what: str, wanted: str) -> DnncError:
    return DnncError(Status.BAD_PARAM_ATTRIBUTE_TYPE, f"{what:.200}", wanted)


# ---- what belongs to a value


def value_attributes(tensor: Tensor, prefix: str = "") -> dict[str, Any]:
    """The attributes of a tensor that its type does not hold, those at their defaults left out."""
    return {
        prefix + name: attribute_of(getattr(tensor, name), kind)
        for name, (kind, default) in VALUE_FIELDS.items()
        if getattr(tensor, name) != default
    }


def read_value_attributes(tensor: Tensor, attributes: Mapping[str, Any], prefix: str = "") -> None:
    """Sets what belongs to a tensor's value; an attribute that no value has is BAD_PARAM, and so is
    `dnn.unsigned` beside elements that are not i8."""
    for key, attribute in attributes.items():
        if key == UNSIGNED:
            if tensor.type != dtypes.i8:
                what = f"{UNSIGNED} beside elements of {tensor.type.name}"
                raise DnncError(Status.BAD_PARAM, what, "i8")
            tensor.dtype = dtypes.ui8
            continue
        name = key.removeprefix(prefix)
        if name not in VALUE_FIELDS or key != prefix + name:
            known = ", ".join(prefix + name for name in VALUE_FIELDS)
            raise DnncError(Status.BAD_PARAM, f"attribute {key} of a tensor", known)
        setattr(tensor, name, attribute_value(attribute, VALUE_FIELDS[name][0]))
