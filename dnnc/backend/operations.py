"""Operation descriptors and the descriptors of their parameters, derived from the operations.

Each has a row for every field of the operations that it stands for, under the name that the
field or `mapping` gives, and what cuDNN has beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..dialect.op import MAX_VARIADIC, Field, Op
from ..dialect.ops import OPS
from ..dtypes import DType
from .building import build, build_parameters, prefix_of, suffix_of
from .descriptor import Kind
from .enums import cudnnBackendAttributeName_t as Name
from .enums import cudnnBackendDescriptorType_t as DescriptorType
from .mapping import DEFAULTS, EXTRAS, PARAMETERS, TYPES, Parameters
from .tables import AXES, BOOLEAN, DATA_TYPE, DESCRIPTOR, INT64, REAL, Row, kind


def _types(field: Field, name: str) -> tuple[Any, ...]:
    if name in TYPES:
        return TYPES[name]
    if field.kind != "attribute":
        return (DESCRIPTOR,)
    return {DType: (DATA_TYPE,), float: REAL, bool: (BOOLEAN,)}.get(field.type, (INT64,))


def _row(field: Field, suffix: str, prefix: str, *, is_required: bool) -> Row:
    """The attribute of a field."""
    name = f"{prefix}_{suffix}"
    counts = (1, MAX_VARIADIC) if field.variadic else AXES if field.type is tuple else (1, 1)
    default = DEFAULTS.get(name)
    if field.type is int and field.default is not None:
        default = field.default
    types = _types(field, name)
    return Row(
        suffix, types, counts, of="TENSOR" if DESCRIPTOR in types else (),
        required=is_required and default is None, default=default,
    )  # fmt: skip


def _rows(ops: Sequence[type[Op]], parameters: Parameters | None) -> list[Row]:
    """The attributes of an operation descriptor that stands for any of some operations."""
    name, prefix = ops[0].backend, prefix_of(ops[0])
    rows: dict[str, Row] = {}
    if parameters is not None:
        row = Row(parameters.link, DESCRIPTOR, of=parameters.kind, required=True)
        rows[row.suffix] = row
    fields = [{s: f for f in op.fields if (s := suffix_of(op, f, parameters))} for op in ops]
    for suffix, field in {s: f for of_op in fields for s, f in of_op.items()}.items():
        # What some of the operations need is asked for when it is known which one it is.
        needed = all(suffix in of_op and not of_op[suffix].optional for of_op in fields)
        rows[suffix] = _row(field, suffix, prefix, is_required=needed)
    rows |= {row.suffix: row for row in EXTRAS.get(name, ())}
    return sorted(rows.values(), key=lambda row: Name[f"CUDNN_ATTR_{prefix}_{row.suffix}"])


# Operations whose tensors depend on the mode -> ends of attributes that `build` asks for.
_BY_MODE = {
    "OPERATION_POINTWISE": ("XDESC", "YDESC"),
    "OPERATION_BN_FINALIZE_STATISTICS": ("_DESC",),
}


def _operation_kind(ops: Sequence[type[Op]]) -> Kind:
    name = ops[0].backend
    parameters = PARAMETERS.get(name)
    rows = _rows(ops, parameters)
    for row in rows:
        if row.suffix.endswith(_BY_MODE.get(name, ())):
            row.is_required = False
    return kind(name, prefix_of(ops[0]), rows, partial(build, ops, parameters))


def _parameters_kind(op: type[Op], parameters: Parameters) -> Kind:
    rows = list(EXTRAS.get(parameters.kind, ()))
    fields = {field.name: field for field in op.fields}
    for field_name, suffix in parameters.names.items():
        field = fields[field_name]
        rows.append(_row(field, suffix, parameters.kind, is_required=not field.optional))
    rows.sort(key=lambda row: Name[f"CUDNN_ATTR_{parameters.kind}_{row.suffix}"])
    build = partial(build_parameters, {s: fields[n] for n, s in parameters.names.items()})
    return kind(parameters.kind, parameters.kind, rows, build)


def derived_kinds() -> dict[DescriptorType, Kind]:
    """The descriptors of every operation of the dialect that cuDNN 9.19 has, and of parameters."""
    groups: dict[str, list[type[Op]]] = {}
    for op in OPS:
        if op.backend and f"CUDNN_BACKEND_{op.backend}_DESCRIPTOR" in DescriptorType.__members__:
            groups.setdefault(op.backend, []).append(op)
    kinds: dict[DescriptorType, Kind] = {}
    for name, ops in groups.items():
        made = _operation_kind(ops)
        kinds[made.type] = made
        parameters = PARAMETERS.get(name)
        if parameters is not None:
            made = _parameters_kind(ops[0], parameters)
            kinds.setdefault(made.type, made)
    return kinds
