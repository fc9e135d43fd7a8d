"""Descriptors, and the calls that create, set, finalize, get and destroy them.

A descriptor is open until `finalize` succeeds; then it holds a `Record`, which never changes.
Descriptors that were set on others are looked at when those are finalized, and only their records
are kept, so that a descriptor may be destroyed as soon as what uses it is finalized.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import DnncError, Status
from .attributes import Attribute, Elements, attribute_name, converted, names_of, read_elements
from .enums import cudnnBackendAttributeName_t as Name
from .enums import cudnnBackendAttributeType_t as Type
from .enums import cudnnBackendDescriptorType_t as DescriptorType


@dataclass(frozen=True)
class Kind:
    """A kind of descriptor.

    prefix: of its attributes, after CUDNN_ATTR_.  attributes: in the order of their values.
    build: what a finalized descriptor stands for, from what was set; it raises where that is
    wrong.  None: only dnnc makes such descriptors.
    read: attribute -> its values, of a finalized descriptor; of an "input" attribute, what tells
    them from the descriptor that a caller asks about.
    """

    type: DescriptorType
    prefix: str
    attributes: Mapping[Name, Attribute]
    build: Callable[[Given], Any] | None
    read: Mapping[Name, Callable[[Record], Any]] = field(default_factory=dict[Name, Any])

    def name_of(self, suffix: str) -> Name:
        return attribute_name(self.prefix, suffix)


@dataclass(frozen=True, eq=False)
class Record:
    """The record that a finalized descriptor holds.

    values: of the attributes that are set or have a default; descriptors among them as records.
    payload: what the descriptor stands for, made by its kind.
    """

    kind: Kind
    values: Mapping[Name, Elements]
    payload: Any


class Given:
    """The attributes that were set on a descriptor being finalized, by the ends of their names."""

    def __init__(self, kind: Kind, values: Mapping[Name, Elements]):
        self.kind, self.values = kind, values

    def __contains__(self, suffix: str) -> bool:
        return bool(self.all(suffix))

    def __iter__(self) -> Iterator[str]:
        ends = (name.name.partition(f"_ATTR_{self.kind.prefix}_")[2] for name in self.values)
        return (end for end in ends if end in self)

    def all(self, suffix: str) -> tuple[Any, ...]:
        """The elements, none if the attribute is not set."""
        found = self.values.get(self.kind.name_of(suffix))
        return () if found is None else found.values

    def one(self, suffix: str) -> Any:
        """The element, None if the attribute is not set."""
        return next(iter(self.all(suffix)), None)

    def payload(self, suffix: str) -> Any:
        """The payload of the descriptor that is the element; None if it is not set."""
        record = self.one(suffix)
        return None if record is None else record.payload

    def error(
        self, suffix: str, what: str, supported: str, status: Status = Status.BAD_PARAM
    ) -> DnncError:
        return DnncError(status, what, supported, self.kind.name_of(suffix).name)


class Attributes(NamedTuple):
    """The result that `get_attribute` gives.

    element_count: elements that the attribute has.  elements: those that were asked for; text
    for CUDNN_TYPE_CHAR, whose count has the zero at the end in it.
    """

    element_count: int
    elements: Sequence[Any]


class Descriptor:
    """A descriptor of the backend API, made by `create_descriptor`; opaque."""

    __slots__ = ("__weakref__", "_is_destroyed", "_lock", "_record", "_values", "kind")

    def __init__(self, kind: Kind, record: Record | None = None):
        self.kind = kind
        self._values: dict[Name, Elements] = {}
        self._record = record
        self._is_destroyed = False
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        state = "destroyed" if self._is_destroyed else "open" if self._record is None else "final"
        return f"<{self.kind.type.name}, {state}>"

    # ---- the calls

    def set(self, name: Any, kind: Any, count: Any, given: Any) -> None:
        with self._lock:
            self._require_alive()
            if self._record is not None:
                raise self._error(Status.NOT_INITIALIZED, "it is finalized", "an open descriptor")
            attribute = self._attribute(name)
            self._require_settable(attribute)
            self._require_type(attribute, kind)
            self._values[attribute.name] = self._elements(attribute, Type(kind), count, given)

    def finalize(self) -> None:
        with self._lock:
            self._require_alive()
            if self._record is not None:
                raise self._error(Status.BAD_PARAM, "it is finalized already", "an open descriptor")
            if self.kind.build is None:
                raise self._error(
                    Status.NOT_SUPPORTED,
                    "nobody but dnnc finalizes such descriptors",
                    "one that get_attribute gave",
                )
            values = self._complete()
            payload = self.kind.build(Given(self.kind, values))
            self._record = Record(self.kind, values, payload)
            self._values = {}

    def get(self, name: Any, kind: Any, requested: Any, array: Any) -> Attributes:
        with self._lock:
            self._require_alive()
            record = self._record
        if record is None:
            raise self._error(Status.NOT_INITIALIZED, "it is not finalized", "finalize it first")
        attribute = self._attribute(name)
        if attribute.access == "unsupported":
            raise self._unsupported(attribute)
        self._require_type(attribute, kind)
        if requested is not None and (type(requested) is not int or requested < 0):
            what = f"{requested!r:.40} elements are asked for"
            raise self._error(Status.BAD_PARAM, what, "0 or more, None for all", attribute.name)
        return self._got(record, attribute, Type(kind), requested, array)

    def destroy(self) -> None:
        with self._lock:
            self._require_alive()
            self._is_destroyed = True
            self._record = None
            self._values = {}

    # ---- what others take of it

    def record(self, what: str) -> Record:
        """Its payload; what: who asks.  BAD_PARAM kinds unless it is finalized and alive."""
        # Without the lock: two descriptors that are set on each other must not wait for each other.
        found = self._record
        if self._is_destroyed:
            raise DnncError(Status.BAD_PARAM, f"{self!r}", "a descriptor that is alive", what)
        if found is None:
            status = Status.BAD_PARAM_NOT_FINALIZED
            raise DnncError(status, f"{self!r}", "a finalized descriptor", what)
        return found

    def take(self, record: Record, what: str) -> None:
        """Becomes a finalized descriptor, in place of one that was created to be filled."""
        with self._lock:
            self._require_alive()
            if self.kind is not record.kind:
                raise DnncError(
                    Status.BAD_PARAM_DESCRIPTOR_TYPE, f"{self!r}", record.kind.type.name, what
                )
            self._record = record
            self._values = {}

    # ---- checks

    def _error(
        self, status: Status, what: str, supported: str, name: Name | None = None
    ) -> DnncError:
        where = self.kind.type.name if name is None else name.name
        return DnncError(status, what, supported, where)

    def _require_alive(self) -> None:
        if self._is_destroyed:
            raise self._error(Status.BAD_PARAM, "it was destroyed", "a descriptor that is alive")

    def _attribute(self, name: Any) -> Attribute:
        known = type(name) in (int, Name)
        attribute = next((a for n, a in self.kind.attributes.items() if known and n == name), None)
        if attribute is None:
            shown = name.name if isinstance(name, Name) else repr(name)[:40]
            raise self._error(
                Status.BAD_PARAM, f"it has no attribute {shown}", names_of(self.kind.attributes)
            )
        return attribute

    def _require_settable(self, attribute: Attribute) -> None:
        if self.kind.build is None:
            what = "nobody but dnnc sets attributes of such descriptors"
            raise self._error(Status.NOT_SUPPORTED, what, "get_attribute", attribute.name)
        if attribute.access in ("read-only", "input"):
            raise self._error(Status.BAD_PARAM, "it is read-only", "get_attribute", attribute.name)
        if attribute.access == "unsupported":
            raise self._unsupported(attribute)

    def _unsupported(self, attribute: Attribute) -> DnncError:
        return self._error(Status.NOT_SUPPORTED, attribute.why, "", attribute.name)

    def _require_type(self, attribute: Attribute, kind: Any) -> None:
        if type(kind) not in (int, Type) or kind not in attribute.types:
            raise self._error(
                Status.BAD_PARAM_ATTRIBUTE_TYPE,
                f"attribute type {kind.name if isinstance(kind, Type) else repr(kind)[:40]}",
                names_of(attribute.types),
                attribute.name,
            )

    def _elements(self, attribute: Attribute, kind: Type, count: Any, given: Any) -> Elements:
        elements = read_elements(attribute, kind, count, given, attribute.name.name)
        if kind is Type.CUDNN_TYPE_BACKEND_DESCRIPTOR:
            for item in elements.values:
                self._require_descriptor(attribute, item)
        return elements

    def _require_descriptor(self, attribute: Attribute, item: Any) -> None:
        accepted = names_of(attribute.of)
        if item is None:
            raise self._error(
                Status.BAD_PARAM_NULL_POINTER, "no descriptor", accepted, attribute.name
            )
        if not isinstance(item, Descriptor):
            raise self._error(Status.BAD_PARAM, f"{item!r:.40}", accepted, attribute.name)
        if item.kind.type not in attribute.of:
            status = Status.BAD_PARAM_DESCRIPTOR_TYPE
            raise self._error(status, f"{item!r}", accepted, attribute.name)
        if item._is_destroyed:
            raise self._error(Status.BAD_PARAM, f"{item!r}", accepted, attribute.name)

    # ---- finalizing

    def _complete(self) -> dict[Name, Elements]:
        """The attributes that are set, with the records of descriptors, and defaults; missing
        ones raise."""
        found: dict[Name, Elements] = {}
        for name, attribute in self.kind.attributes.items():
            elements = self._values.get(name)
            if elements is None and attribute.is_required:
                raise self._error(
                    Status.BAD_PARAM, "it is not set", names_of(attribute.types), name
                )
            if elements is None and attribute.default is not None:
                elements = Elements(attribute.types[0], attribute.default)
            if elements is not None:
                found[name] = _with_records(elements, name.name)
        return found

    # ---- getting

    def _got(
        self, record: Record, attribute: Attribute, kind: Type, requested: int | None, array: Any
    ) -> Attributes:
        read = self.kind.read.get(attribute.name)
        if read is not None and attribute.access == "input":
            values = tuple(read(record)(self._input(array, attribute)))
            return Attributes(len(values), list(values[:requested]))
        if read is not None:
            elements = Elements(kind, tuple(read(record)))
        else:
            given = record.values.get(attribute.name, Elements(kind, ()))
            elements = converted(given, kind) or self._other_type(attribute, given)
        if kind is Type.CUDNN_TYPE_CHAR:
            text = "".join(elements.values)
            return Attributes(len(text) + 1, text[:requested])
        values = elements.values[:requested]
        if kind is Type.CUDNN_TYPE_BACKEND_DESCRIPTOR:
            return Attributes(len(elements.values), _filled(values, array, attribute.name.name))
        return Attributes(len(elements.values), list(values))

    def _input(self, array: Any, attribute: Attribute) -> Record:
        """The descriptor that a caller passes to be asked about."""
        items = array if isinstance(array, list | tuple) else [array]
        if len(items) != 1:
            raise self._error(Status.BAD_PARAM, f"{len(items)} descriptors", "1", attribute.name)
        self._require_descriptor(attribute, items[0])
        return items[0].record(attribute.name.name)

    def _other_type(self, attribute: Attribute, given: Elements) -> Elements:
        raise self._error(
            Status.BAD_PARAM_ATTRIBUTE_TYPE,
            "another type than it was set with",
            given.type.name,
            attribute.name,
        )


def _with_records(elements: Elements, where: str) -> Elements:
    if elements.type is not Type.CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return elements
    return Elements(elements.type, tuple(item.record(where) for item in elements.values))


def _filled(records: Sequence[Record], array: Any, where: str) -> list[Descriptor]:
    """Descriptors of these records: new ones, or those that the caller created for them."""
    if array is None:
        return [Descriptor(record.kind, record) for record in records]
    items = array if isinstance(array, list | tuple) else [array]
    if len(items) < len(records):
        raise DnncError(
            Status.BAD_PARAM_SIZE_INSUFFICIENT,
            f"{len(items)} descriptors for {len(records)} elements",
            f"{len(records)} descriptors, or fewer elements",
            where,
        )
    taken = list(items[: len(records)])
    if not all(isinstance(item, Descriptor) for item in taken):
        raise DnncError(Status.BAD_PARAM, "no descriptor", "descriptors to be filled", where)
    for item, record in zip(taken, records, strict=True):
        item.take(record, where)
    return taken


def require_descriptor(value: Any, kinds: Sequence[DescriptorType] = ()) -> Descriptor:
    """A descriptor, of one of the kinds if any are named."""
    if value is None:
        raise DnncError(Status.BAD_PARAM_NULL_POINTER, "no descriptor", "a descriptor")
    if not isinstance(value, Descriptor):
        raise DnncError(Status.BAD_PARAM, f"{value!r:.40}", "a descriptor of create_descriptor")
    if kinds and value.kind.type not in kinds:
        status = Status.BAD_PARAM_DESCRIPTOR_TYPE
        raise DnncError(status, f"{value!r}", names_of(kinds), "execute")
    return value
