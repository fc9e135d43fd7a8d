"""Op: the base of every operation, and the fields that describe one.

An operation is one class in `dialect/ops`. From its fields come the pygraph method, the
`dnn` op, the backend descriptor's attribute names, the row of the docs and the derived tests;
its `verify`, `infer` and `reference` are the only statement of what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar, Self, dataclass_transform

from ..dtypes import DType, f32
from ..errors import DnncError, Status
from ..expr import Expr
from ..places import Place
from .tensor import Tensor, is_text, packed_strides, text

# Operands of one variadic field that the dialect declares (the dialect needs a bound, since
# its variadic operands must all have one type).
MAX_VARIADIC = 32


@dataclass(frozen=True)
class Field:
    """One operand, result or attribute of an operation.

    kind: "operand", "result" or "attribute".  doc: its meaning, shapes in brackets.
    frontend: its name in the pygraph method ("" = its name here); of a result, what its tensor's
    name ends in ("" = its name here in capitals).
    backend: its attribute name after the descriptor's prefix ("" = it has none).
    optional: may be absent (None).  variadic: a tuple of tensors, empty where it is absent.
    is_peer: its tensors are several devices', through which they exchange values: the operation
    writes them too.
    type: of an attribute: DType, int, float, bool, str, or tuple (of ints).
    choices: the strings that are accepted.  default: of an attribute.
    """

    name: str
    kind: str
    doc: str = ""
    frontend: str = ""
    backend: str = ""
    optional: bool = False
    variadic: bool = False
    type: type = str
    choices: tuple[str, ...] = ()
    default: Any = None
    is_peer: bool = False

    @property
    def parameter(self) -> str:
        return self.frontend or self.name

    @property
    def suffix(self) -> str:
        """The name of a result's tensor in cudnn-frontend, after the operation's name."""
        return self.frontend or self.name.upper()


def operand(
    doc: str, *, frontend: str = "", backend: str = "", optional: bool = False
) -> Any:  # A Tensor, or None when optional.
    return Field("", "operand", doc, frontend, backend, optional)


def operands(
    doc: str,
    *,
    frontend: str = "",
    backend: str = "",
    optional: bool = False,
    is_peer: bool = False,
) -> Any:  # tuple[Tensor, ...]
    return Field("", "operand", doc, frontend, backend, optional, True, is_peer=is_peer)


def result(
    doc: str, *, frontend: str = "", backend: str = "", optional: bool = False
) -> Any:  # A Tensor, or None when optional.
    return Field("", "result", doc, frontend, backend, optional)


def attribute(
    doc: str,
    type: type,
    default: Any = None,
    *,
    frontend: str = "",
    backend: str = "",
    choices: tuple[str, ...] = (),
    optional: bool = False,
) -> Any:
    return Field("", "attribute", doc, frontend, backend, optional, False, type, choices, default)


def arithmetic_type(doc: str = "the type of the arithmetic", *, backend: str = "") -> Any:
    """The attribute with the type in which an operation computes."""
    return attribute(doc, DType, f32, frontend="compute_data_type", backend=backend)


@dataclass_transform(
    kw_only_default=True, field_specifiers=(operand, operands, result, attribute, arithmetic_type)
)
class Op:
    """An operation of a graph: named operands, results and attributes.

    op_name: the mnemonic in the dialect, and the pygraph method.
    backend: the descriptor type, without CUDNN_BACKEND_ and _DESCRIPTOR ("" = it has none).
    prefix: of the descriptor's attributes, without CUDNN_ATTR_ (default: backend).
    roles: what the op may be in a fusion: "anchor", "pointwise", "reduction" or "view".
    kind_field: the attribute that titles have ("" = none).
    is_composite: `expand` always replaces it, so that no fusion has it.
    keeps_memory: what its result is depends on how its operand lies in memory.
    must_repeat: whether its results must have the same bits each time, whatever computes them.
    made_at: the line of the user's program that made it, for errors; None where it is not known.
    scalars: operands of one element, which may have no dims.  takes_rank_0: all tensors may.
    """

    op_name: ClassVar[str] = ""
    backend: ClassVar[str] = ""
    prefix: ClassVar[str] = ""
    kind_field: ClassVar[str] = ""
    is_composite: ClassVar[bool] = False
    scalars: ClassVar[tuple[str, ...]] = ()
    takes_rank_0: ClassVar[bool] = False
    role: str = "anchor"
    keeps_memory: bool = False
    must_repeat: bool = False
    fields: ClassVar[tuple[Field, ...]] = ()
    _by_kind: ClassVar[Mapping[str, tuple[Field, ...]]] = {}
    _present: ClassVar[Mapping[str, Callable[[Any], tuple[Tensor, ...]]]] = {}

    name: str = ""
    made_at: Place | None = None

    def __init_subclass__(cls) -> None:
        own = {
            key: replace(value, name=key)
            for key, value in vars(cls).items()
            if isinstance(value, Field)
        }
        # A field of the base class may be described anew; it keeps its place.  One that the class
        # sets to None is a field that it has not.
        inherited = [
            own.pop(field.name, field)
            for field in cls.fields
            if vars(cls).get(field.name, field) is not None
        ]
        cls.fields = (*inherited, *own.values())
        kinds = dict.fromkeys(field.kind for field in cls.fields)
        cls._by_kind = {kind: tuple(f for f in cls.fields if f.kind == kind) for kind in kinds}
        cls._present = {kind: _present(cls.fields_of(kind)) for kind in ("operand", "result")}

    def __init__(self, *, name: str = "", **values: Any):
        self.name = name
        for field in self.fields:
            if field.name in values:
                value = values.pop(field.name)
            elif field.kind == "attribute" or field.optional:
                value = field.default
            else:
                raise TypeError(f"{self.op_name} needs {field.name}")
            if field.variadic:
                value = () if value is None else tuple(value)
            elif field.type is float and type(value) is int:
                value = self._as_float(field, value)
            setattr(self, field.name, value)
        if values:
            raise TypeError(f"{self.op_name} has no {', '.join(values)}")

    def _as_float(self, field: Field, value: int) -> float:
        try:
            return float(value)
        except OverflowError as error:
            raise DnncError(
                Status.BAD_PARAM_ATTRIBUTE_TYPE,
                f"{field.parameter} = {hex(value):.40}",
                "a number that a double holds",
                self.op_name,
            ) from error

    # ---- its tensors and attributes

    @classmethod
    def fields_of(cls, kind: str) -> tuple[Field, ...]:
        return cls._by_kind.get(kind, ())

    def tensors(self, kind: str) -> Iterator[tuple[Field, Tensor]]:
        """(field, tensor) of each operand or result that is present, in order."""
        for field in self.fields_of(kind):
            value = getattr(self, field.name)
            for tensor in value if field.variadic else (value,):
                if tensor is not None:
                    yield field, tensor

    @property
    def operands(self) -> tuple[Tensor, ...]:
        return self._present["operand"](self)

    @property
    def read_operands(self) -> tuple[Tensor, ...]:
        """The operands whose elements are read; of the others the dims count alone."""
        return self.operands

    @property
    def results(self) -> tuple[Tensor, ...]:
        return self._present["result"](self)

    def replace_tensors(self, others: Mapping[Tensor, Tensor]) -> None:
        """Puts others in the places of those tensors that have one."""
        for field in (*self.fields_of("operand"), *self.fields_of("result")):
            value = getattr(self, field.name)
            if field.variadic:
                setattr(self, field.name, tuple(others.get(tensor, tensor) for tensor in value))
            elif value is not None:
                setattr(self, field.name, others.get(value, value))

    def with_tensors(self, others: Mapping[Tensor, Tensor]) -> Self:
        """A copy in which others are in the places of those tensors that have one."""
        made = copy(self)
        made.replace_tensors(others)
        return made

    def attributes(self) -> dict[str, Any]:
        """Attribute name -> value, those that are absent left out."""
        pairs = ((f.name, getattr(self, f.name)) for f in self.fields_of("attribute"))
        return {name: value for name, value in pairs if value is not None}

    @property
    def title(self) -> str:
        """The mnemonic with what tells it from its kind: pointwise:add, reduction:max."""
        kind = f":{getattr(self, self.kind_field)}" if self.kind_field else ""
        return f"{self.op_name}{kind}"

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"{self.title} '{self.name}'" if self.name else self.title

    def __repr__(self) -> str:
        ends = ", ".join(str(t.uid) for t in self.operands)
        return f"<{self.label} ({ends}) -> ({', '.join(str(t.uid) for t in self.results)})>"

    # ---- what an operation defines

    def infer(self) -> None:
        """Fills the dims, strides and types of results that the user left open."""
        raise NotImplementedError

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        """How a virtual result lies in memory whose strides nobody set.

        `infer` gives it those that cudnn-frontend would, for the user to read; but nobody sees its
        memory, if it has any.  `OperationGraph.finalize` gives it these.
        """
        return packed_strides(tensor.shape)

    def verify(self) -> None:
        """Raises unless every constraint of the class's docstring holds."""
        raise NotImplementedError

    def reference(self, *operands: Any, **context: Any) -> Any:
        """The results as float64, int64 or bool arrays, from such operands."""
        raise NotImplementedError

    def undefined(self, *operands: Any, **context: Any) -> Any:
        """Which elements of its one result may be anything, a boolean array; None: none of them."""
        return None

    def expand(self) -> Sequence[Op] | None:
        """The simpler operations that stand for it, in order, made of it once it is verified.

        None: it is none of several; engines see the operation itself.  See `expansion`.
        """
        return None

    @classmethod
    def left_out(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The optional results that an operation of such operands and attributes has not."""
        return ()

    def draw(self, tensor: Tensor, rng: Any, sizes: Mapping[str, int]) -> Any:
        """Random values for an operand that not all values suit; None where all do."""
        return None

    # ---- checks that operations share

    def verify_fields(self) -> None:
        """Every operand and result that has to be there is a tensor, every attribute has its type.

        What infers and verifies an operation relies on this.
        """
        for field in self.fields:
            if field.kind != "attribute":
                self._require_tensors(field)
        self.require_attribute_choices()

    def verify_rank_0(self) -> None:
        """A tensor whose dims are known, and are none, is where the operation takes such.

        What infers and verifies other operations relies on one dim at least.
        """
        for kind in ("operand", "result"):
            for field, tensor in self.tensors(kind):
                if tensor.dims == () and not self.takes_rank_0 and field.name not in self.scalars:
                    what = f"{field.parameter} {tensor.label} of rank 0"
                    raise self.error(field.name, what, "rank 1 to 8", Status.NOT_SUPPORTED_SHAPE)

    def _require_tensors(self, field: Field) -> None:
        value = getattr(self, field.name)
        given = value if field.variadic else (value,)
        is_absent = field.optional and value is None
        if not is_absent and not all(isinstance(tensor, Tensor) for tensor in given):
            raise self.error(field.name, f"{field.kind} {_shown(field)}={value!r}", "a tensor")

    def error(
        self,
        constraint: str,
        what: str,
        supported: str = "",
        status: Status = Status.BAD_PARAM,
    ) -> DnncError:
        """The error of a broken constraint, `C2` of the class's docstring.

        One about dims names the operands, if they are few: any of them may be the wrong one.
        """
        where = f"{self.label} ({constraint})"
        if status == Status.BAD_PARAM_SHAPE_MISMATCH and (known := self._described_operands()):
            where = f"{where} of {known}"
        return DnncError(status, what, supported, where, made_at=self.made_at)

    def shape_error(self, constraint: str, what: str, supported: str) -> DnncError:
        """The error of a broken constraint on dims."""
        return self.error(constraint, what, supported, Status.BAD_PARAM_SHAPE_MISMATCH)

    def require_dims(self, constraint: str, dims: Sequence[Expr], *tensors: Tensor | None) -> None:
        """Requires these dims of the tensors that are there."""
        for tensor in tensors:
            if tensor is not None and tensor.shape != dims:
                what = f"{tensor.label} has dims {text(tensor.shape)}"
                raise self.shape_error(constraint, what, text(dims))

    def _described_operands(self) -> str:
        """a 'x' [8, 64], b 'w' [32, 64]; nothing of more than three, or if none has a name."""
        if len(self.operands) > 3 or not any(tensor.name for tensor in self.operands):
            return ""
        said = [
            f"{field.parameter} {_name_of(tensor)}{text(tensor.dims)}"
            for field, tensor in self.tensors("operand")
            if tensor.dims is not None
        ]
        return ", ".join(said)

    def require_attribute_choices(self) -> None:
        """Every attribute has its type and one of its choices."""
        for field in self.fields_of("attribute"):
            value = getattr(self, field.name)
            if value is None and field.optional:
                continue
            if field.choices and value not in field.choices:
                raise self.error(
                    field.name, f"{field.parameter}={value!a:.80}", ", ".join(field.choices)
                )
            if not _has_type(value, field.type) or not _has_width(value):
                raise self.error(
                    field.name,
                    f"{field.parameter}={value!a:.80}",
                    f"a value of type {field.type.__name__}",
                    Status.BAD_PARAM_ATTRIBUTE_TYPE,
                )

    def require_type(self, constraint: str, tensor: Tensor, accepted: Sequence[DType]) -> None:
        if tensor.type not in accepted:
            raise self.error(
                constraint,
                f"data type {tensor.type} of {tensor.label}",
                ", ".join(map(str, accepted)),
                Status.NOT_SUPPORTED_DATA_TYPE,
            )


def _present(fields: Sequence[Field]) -> Callable[[Any], tuple[Tensor, ...]]:
    """A function that gives an operation's tensors in some fields, those that are present.

    Operations are asked for them all the time, so that it does no more than a class needs.
    """
    if not fields:
        return lambda op: ()
    values: Any = attrgetter(*(field.name for field in fields))
    if len(fields) == 1 and not fields[0].variadic:
        return lambda op: () if (tensor := values(op)) is None else (tensor,)
    if not any(field.variadic for field in fields):
        return lambda op: found if None not in (found := values(op)) else (
            tuple([tensor for tensor in found if tensor is not None])
        )  # fmt: skip
    return lambda op: tuple([
        tensor
        for field in fields
        for tensor in (getattr(op, field.name) if field.variadic else (getattr(op, field.name),))
        if tensor is not None
    ])  # fmt: skip


def _shown(field: Field) -> str:
    """How messages name an operand or a result."""
    return field.name if field.kind == "result" else field.parameter


def _name_of(tensor: Tensor) -> str:
    """The name, else the uid, with a space behind; nothing where there is neither."""
    if tensor.name:
        return f"{tensor.name!r} "
    return "" if tensor.uid is None else f"(uid {tensor.uid}) "


def _has_width(value: object) -> bool:
    """Whether integers fit 64 bits, texts are such."""
    if isinstance(value, tuple):
        return all(_has_width(item) for item in value)
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return not isinstance(value, str) or is_text(value)


def _has_type(value: object, wanted: type) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted is tuple and isinstance(value, tuple):
        return all(_has_type(item, int) for item in value)
    return isinstance(value, wanted)
