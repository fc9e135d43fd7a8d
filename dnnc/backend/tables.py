"""How the tables of descriptors are written: rows by the ends of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .attributes import DIM_MAX, MANY, Attribute, attribute_name
from .descriptor import Given, Kind, Record
from .enums import cudnnBackendAttributeType_t as Type
from .enums import cudnnBackendDescriptorType_t as DescriptorType

# Short for the types of elements.
BOOLEAN = Type.CUDNN_TYPE_BOOLEAN
CHAR = Type.CUDNN_TYPE_CHAR
DATA_TYPE = Type.CUDNN_TYPE_DATA_TYPE
DESCRIPTOR = Type.CUDNN_TYPE_BACKEND_DESCRIPTOR
FRACTION = Type.CUDNN_TYPE_FRACTION
HANDLE = Type.CUDNN_TYPE_HANDLE
INT32 = Type.CUDNN_TYPE_INT32
INT64 = Type.CUDNN_TYPE_INT64
REAL = (Type.CUDNN_TYPE_DOUBLE, Type.CUDNN_TYPE_FLOAT)
VOID_PTR = Type.CUDNN_TYPE_VOID_PTR

ANY = (0, MANY)
AXES = (1, DIM_MAX)
SOME = (1, MANY)


def kind_of(name: str) -> DescriptorType:
    """CUDNN_BACKEND_TENSOR_DESCRIPTOR of `TENSOR`."""
    return DescriptorType[f"CUDNN_BACKEND_{name}_DESCRIPTOR"]


class Row:
    """An attribute by the end of its name.

    types: one, or several.  counts: how many elements (default one).  of: kinds of descriptors.
    Others as in `Attribute`.
    """

    def __init__(
        self,
        suffix: str,
        types: Type | Sequence[Type],
        counts: tuple[int, int] = (1, 1),
        *,
        of: str | Sequence[str] = (),
        required: bool = False,
        default: Any = None,
        access: str = "settable",
        why: str = "",
        takes_sizes: bool = False,
    ):
        self.suffix = suffix
        self.types = (types,) if isinstance(types, Type) else tuple(types)
        self.counts = counts
        self.of = tuple(kind_of(name) for name in ([of] if isinstance(of, str) else of))
        self.is_required = required
        self.default = None if default is None else (default,)
        self.access, self.why, self.takes_sizes = access, why, takes_sizes

    def attribute(self, prefix: str) -> Attribute:
        low, high = self.counts
        return Attribute(
            attribute_name(prefix, self.suffix), self.types, low, high, self.of, self.access,
            self.why, self.is_required, self.default, self.takes_sizes,
        )  # fmt: skip


def kind(
    name: str,
    prefix: str,
    rows: Iterable[Row],
    build: Callable[[Given], Any] | None = None,
    read: Mapping[str, Callable[[Record], Any]] | None = None,
) -> Kind:
    """A kind of descriptor; read: end of a read-only attribute's name -> its values."""
    attributes = [row.attribute(prefix) for row in rows]
    readers = {attribute_name(prefix, end): get for end, get in (read or {}).items()}
    return Kind(kind_of(name), prefix, {a.name: a for a in attributes}, build, readers)


def tensor_row(suffix: str, counts: tuple[int, int] = (1, 1), *, required: bool = True) -> Row:
    """An attribute of tensor descriptors."""
    return Row(suffix, DESCRIPTOR, counts, of="TENSOR", required=required)
