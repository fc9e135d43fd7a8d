"""Tensor: a value of an operation graph, by its descriptor."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import DnncError, Status
from ..expr import Dim, Expr, Size, product
from ..places import Place

MAX_RANK = 8
DEFAULT_ALIGNMENT = 16

VECTOR_COUNTS = (1, 4, 32)
REORDERINGS = ("NONE", "INT8x32", "F16x16", "F8_128x4")
SIGNED_ORDER = "F16x16"  # see `dropped_signs`, and `orders` for where elements lie


@dataclass(eq=False)
class Tensor:
    """A tensor descriptor; two tensors are the same only if they are the same object.

    uid: unique in its graph, None until the graph gives it one.
    dims, strides: in elements, outermost first, None until known or inferred.
    dtype: None until known or inferred.
    is_virtual: lives inside the plan only.  is_output: the user asked for it.
    is_by_value: one element, given at execution as a number and passed to kernels by value.
    value: the number of a scalar: fixed at compile time, or the default of a by-value tensor.
    alignment: bytes that divide the address of every buffer bound to it.
    offset: elements from the beginning of its memory to its first element: of a part of another
    tensor, as fusions have it that read one (`fusion_borders`); 0 in graphs.
    ragged_offset: the tensor of element offsets of packed sequences.
    prior_of: the uid of the output whose memory it is, as that was before the graph ran (`prior`).
    reordering: cuDNN's order of elements in memory; see `orders`.
    vector_count: where it is not 1, dims and strides count vectors of so many elements along
    vector_dim, until the graph is finalized (`vectors`).
    made_at: the line of the user's program that made it, for errors; None where it is not known.
    """

    uid: int | None = None
    name: str = ""
    dims: tuple[Expr, ...] | None = None
    strides: tuple[Expr, ...] | None = None
    dtype: DType | None = None
    is_virtual: bool = False
    is_output: bool = False
    is_by_value: bool = False
    value: float | int | None = None
    alignment: int = DEFAULT_ALIGNMENT
    offset: int = 0
    reordering: str = "NONE"
    ragged_offset: Tensor | None = None
    prior_of: int | None = None
    vector_count: int = 1
    vector_dim: int | None = None
    made_at: Place | None = field(default=None, repr=False)

    @property
    def is_constant(self) -> bool:
        """Whether its value is part of the graph (a COMPILE_TIME_CONST scalar)."""
        return self.value is not None and not self.is_by_value

    @property
    def is_vectorized(self) -> bool:
        """Whether its dims count vectors, not elements."""
        return self.vector_count != 1

    @property
    def memory_uid(self) -> int:
        """The uid by which kernels are given its memory: its own, or that of the output that it
        is the prior of."""
        return (self.uid or 0) if self.prior_of is None else self.prior_of

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The dims, which inference has filled by now."""
        assert self.dims is not None, f"dims of {self.label} are not inferred"
        return self.dims

    @property
    def layout(self) -> tuple[Expr, ...]:
        """The strides, which inference has filled by now."""
        assert self.strides is not None, f"strides of {self.label} are not inferred"
        return self.strides

    @property
    def type(self) -> DType:
        """The data type, which inference has filled by now."""
        assert self.dtype is not None, f"data type of {self.label} is not inferred"
        return self.dtype

    @property
    def label(self) -> str:
        """How messages name it."""
        if self.uid is None:  # uids are assigned when the graph is finalized
            return f"tensor '{self.name}'" if self.name else "a tensor without a name"
        if not self.name:
            return f"tensor with uid {self.uid}"
        return f"tensor '{self.name}' (uid {self.uid})"

    def verify_fields(self) -> None:
        """Every field has its type; what verifies and infers tensors relies on this."""
        for name, accepted in _FIELD_TYPES.items():
            value = getattr(self, name)
            kind = type(value)
            if kind in accepted and kind is not int and kind is not str:
                continue  # nearly all fields, of all tensors, each time a graph is verified
            if getattr(value, "ndim", None) == 0:  # a scalar of NumPy or torch
                value = value.item()
                setattr(self, name, value)
            is_bool = isinstance(value, bool)
            is_right = bool in accepted if is_bool else isinstance(value, accepted)
            if is_right and isinstance(value, int):
                is_right = -(1 << 63) <= value < 1 << 64
            if not is_right or (isinstance(value, str) and not is_text(value)):
                wanted = " or ".join(kind.__name__ for kind in accepted)
                what = f"{name} = {value!a:.80} of a tensor"
                supported = f"{wanted}, of at most 64 bits"
                raise DnncError(Status.BAD_PARAM, what, supported, "tensor", made_at=self.made_at)

    def verify(self) -> None:
        """Checks what holds for any tensor, whatever operation uses it."""
        for what, values in (("dim", self.dims), ("stride", self.strides), ("type", self.dtype)):
            if values is None:
                raise self.error(
                    Status.BAD_PARAM, f"{what} is not set and can't be inferred", f"a {what}"
                )
        if not self.type.has_storage:
            raise self.error(
                Status.NOT_SUPPORTED_DATA_TYPE,
                f"data type {self.type.cudnn}, which is a compute type only",
                ", ".join(map(str, dtypes.ALL)),
            )
        if self.rank > MAX_RANK:
            raise self.error(
                Status.NOT_SUPPORTED_SHAPE, f"rank {self.rank}", f"rank 0 to {MAX_RANK}"
            )
        if len(self.layout) != self.rank:
            raise self.error(
                Status.BAD_PARAM_SHAPE_MISMATCH,
                f"{self.rank} dims but {len(self.layout)} strides",
                "one stride a dim",
            )
        for extent in self.shape:
            low, high = extent.bounds()
            if low < 0 or (extent.constant is not None and low < 1):
                raise self.error(Status.BAD_PARAM, f"dim {extent}", "dims of at least 1")
            if high >= 1 << 31:
                said = f"dim {extent!s:.80} up to {hex(high):.40}"
                raise self.error(Status.NOT_SUPPORTED_SHAPE, said, "dims below 2**31")
        for stride in self.layout:
            low, high = stride.bounds()
            if high >= 1 << 63:
                said = f"stride of {hex(high):.40}"
                raise self.error(Status.NOT_SUPPORTED_LAYOUT, said, "strides below 2**63")
            if low < 0:
                raise self.error(Status.BAD_PARAM, f"stride {stride}", "strides of at least 0")
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise self.error(
                Status.BAD_PARAM, f"alignment {self.alignment}", "a power of two, in bytes"
            )
        if self.offset:
            what = f"a first element {self.offset} elements from where its memory begins"
            raise self.error(Status.NOT_SUPPORTED_LAYOUT, what, "0, and operation slice")
        if self.reordering not in REORDERINGS:
            raise self.error(
                Status.BAD_PARAM, f"reordering {self.reordering!r}", ", ".join(REORDERINGS)
            )
        is_scalar = self.is_by_value or self.value is not None
        if is_scalar and any(extent.constant != 1 for extent in self.shape):
            raise self.error(
                Status.BAD_PARAM, f"a scalar of dims {text(self.shape)}", "dims of 1 only"
            )
        if self.is_vectorized:
            self.verify_vectors()

    def verify_vectors(self) -> None:
        """Checks what holds for vectors, as far as dims and data type are known."""
        if self.vector_count not in VECTOR_COUNTS:
            raise self.error(
                Status.NOT_SUPPORTED_LAYOUT,
                f"vectors of {self.vector_count} elements",
                ", ".join(map(str, VECTOR_COUNTS)),
            )
        if not isinstance(self.vector_dim, int):
            raise self.error(
                Status.BAD_PARAM, f"vectors along dimension {self.vector_dim}", "the dimension"
            )
        if self.dims is not None and not 0 <= self.vector_dim < self.rank:
            raise self.error(
                Status.BAD_PARAM_OUT_OF_BOUND,
                f"vectors along dimension {self.vector_dim}",
                f"0 to {self.rank - 1}",
            )
        if self.dims is not None and self.rank == MAX_RANK:
            raise self.error(
                Status.NOT_SUPPORTED_SHAPE,
                f"vectors in a tensor of rank {self.rank}",
                f"rank 1 to {MAX_RANK - 1}",
            )
        if self.dtype == dtypes.i1:
            raise self.error(
                Status.NOT_SUPPORTED_DATA_TYPE, f"vectors of {self.dtype}", "types of whole bytes"
            )
        if self.is_by_value or self.value is not None:
            raise self.error(Status.BAD_PARAM, "a scalar of vectors", "a scalar of one element")
        if self.ragged_offset is not None:
            raise self.error(
                Status.NOT_SUPPORTED_LAYOUT, "ragged, of vectors", "ragged tensors of elements"
            )
        if self.dims is not None and self.strides is not None and self.repeated_axes:
            raise self.error(
                Status.NOT_SUPPORTED_LAYOUT,
                f"vectors of strides {text(self.strides)}",
                "strides of at least 1",
            )

    def take_form(self, dims: tuple[Expr, ...], strides: tuple[Expr, ...]) -> None:
        """Counts elements from now on, no vectors."""
        self.dims, self.strides = dims, strides
        self.vector_count, self.vector_dim = 1, None

    def normalize_value(self) -> None:
        """A scalar's value as a float, or as an int where its data type holds integers."""
        if self.value is None or self.dtype is None:
            return
        if self.dtype.is_float:
            self.value = float(self.value)  # of 64 bits, which a double holds
            return
        low, high = self.dtype.integer_range
        if not (math.isfinite(self.value) and low <= self.value <= high) or self.value % 1:
            raise self.error(
                Status.BAD_PARAM,
                f"value {self.value} of data type {self.dtype}",
                f"an integer from {low} to {high}",
            )
        self.value = int(self.value)

    def error(self, status: Status, what: str, supported: str = "") -> DnncError:
        return DnncError(status, what, supported, self.label, made_at=self.made_at)

    def elements(self) -> Expr:
        """How many elements it has."""
        return product(self.shape)

    def span(self) -> Expr:
        """Elements from its first to its last in memory, both counted (0 for an empty one)."""
        return sum(((d - 1) * s for d, s in zip(self.shape, self.layout, strict=True)), Expr.of(1))

    @property
    def repeated_axes(self) -> tuple[int, ...]:
        """The axes along which each element is the same place in memory: those of stride 0."""
        return _repeated(self.shape, self.layout)

    def is_dense(self) -> bool:
        """Whether its elements fill their span without gaps, in some order of the dims."""
        return dense_order(self.shape, self.layout) is not None


def is_text(value: object) -> bool:
    """Whether a value is text that can be written as UTF-8: half a surrogate pair can't."""
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


_NONE = type(None)
_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "uid": (int, _NONE),
    "name": (str,),
    "is_virtual": (bool,),
    "is_output": (bool,),
    "is_by_value": (bool,),
    "value": (int, float, bool, _NONE),
    "alignment": (int,),
    "reordering": (str,),
    "prior_of": (int, _NONE),
    "vector_count": (int,),
    "vector_dim": (int, _NONE),
}


def is_in_tiles(tensor: Tensor) -> bool:
    """Whether it is what lies in memory of matrices in the order F16x16, row by row of tiles."""
    is_ordered = tensor.reordering == SIGNED_ORDER and not tensor.is_virtual
    return is_ordered and tensor.rank == 8 and tensor.layout[-1].constant == 1


def sizes(values: Any, kind: str = "size", where: str = "tensor") -> tuple[Expr, ...]:
    """Dims or strides as expressions; what is neither whole nor a symbol is BAD_PARAM.

    kind: of each, for the error.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        what = f"{kind}s of {values!a:.80}"
        raise DnncError(Status.BAD_PARAM, what, "a list of integers and dnnc.Dims", where)
    return tuple(_size(value, kind, where) for value in values)


def _size(value: Any, kind: str, where: str) -> Expr:
    if isinstance(value, Dim | Expr):
        return Expr.of(value)
    try:
        return Expr.of(operator.index(value))
    except TypeError as error:
        raise DnncError(
            Status.BAD_PARAM, f"a {kind} of {value!a:.80}", "an integer or a dnnc.Dim", where
        ) from error


def packed_strides(dims: Sequence[Size], order: Sequence[int] | None = None) -> tuple[Expr, ...]:
    """Strides that pack `dims`; order: the dims from outermost to innermost (default row-major)."""
    strides = [Expr.of(1)] * len(dims)
    running = Expr.of(1)
    for axis in reversed(order if order is not None else range(len(dims))):
        strides[axis] = running
        running = running * Expr.of(dims[axis])
    return tuple(strides)


def channels_last(dims: Sequence[Size]) -> tuple[Expr, ...]:
    """Strides that pack `dims` with the second one innermost, where there is a second one."""
    rank = len(dims)
    return packed_strides(dims, (0, *range(2, rank), 1)[:rank])


def packed_like(dims: Sequence[Size], model: Tensor) -> tuple[Expr, ...]:
    """Strides that pack `dims` in the order of a model's strides, row-major if it has another rank.

    Of equal strides the first one's axis is the inner one, as cudnn-frontend has it.
    """
    if model.rank != len(dims):
        return packed_strides(dims)
    values = _typical(model.layout)
    order = sorted(range(model.rank), key=lambda axis: (values[axis], axis), reverse=True)
    return packed_strides(dims, order)


def _typical(sizes: Sequence[Expr]) -> list[int]:
    """Sizes with every symbol at the middle of its range."""
    middle = {dim.name: max(1, (dim.min + dim.max) // 2) for expr in sizes for dim in expr.dims()}
    return [size.evaluate(middle) for size in sizes]


def _repeated(dims: Sequence[Expr], strides: Sequence[Expr]) -> tuple[int, ...]:
    zeros = [axis for axis, stride in enumerate(strides) if stride.constant == 0]
    return tuple(axis for axis in zeros if dims[axis].constant != 1) if zeros else ()


def stride_order(dims: Sequence[Expr], strides: Sequence[Expr]) -> tuple[int, ...]:
    """The axes from the largest stride to the smallest, ties in the order given.

    A stride of a symbol is ranked by its value at the middle of every symbol's range.  An axis of
    stride 0 follows the axis before it; the first one is outermost.
    """
    values = _typical(strides)
    repeated = [a for a, value in enumerate(values) if value == 0 and dims[a].constant != 1]
    order = sorted(
        (axis for axis in range(len(dims)) if axis not in repeated),
        key=lambda axis: (-values[axis], dims[axis].constant == 1, axis),
    )
    for axis in repeated:
        order.insert(order.index(axis - 1) + 1 if axis else 0, axis)
    return tuple(order)


def is_injective(dims: Sequence[Expr], strides: Sequence[Expr]) -> bool:
    """Whether no two elements share a place.

    Of symbols it is asked at the sizes at which that is likeliest: dims of 2, or the least ones
    above it, and strides that no dim tells as large as they may be.
    """
    if _repeated(dims, strides):
        return False
    told = {dim for extent in dims for dim in extent.dims()}
    sizes = {dim.name: _small(dim) for dim in told}
    sizes |= {d.name: d.greatest for s in strides for d in s.dims() if d not in told}
    return _is_injective_at(dims, strides, sizes)


def _is_injective_at(
    dims: Sequence[Expr], strides: Sequence[Expr], sizes: Mapping[str, int]
) -> bool:
    if sizes:
        pairs = [(s.evaluate(sizes), d.evaluate(sizes)) for s, d in zip(strides, dims, strict=True)]
    else:  # asked of every tensor, most of which have no symbols
        pairs = [(s.constant or 0, d.constant or 0) for s, d in zip(strides, dims, strict=True)]
    reached = 0
    for stride, extent in sorted([pair for pair in pairs if pair[1] > 1]):
        if stride <= reached:
            return False
        reached += stride * (extent - 1)
    return True


def _small(dim: Dim) -> int:
    """The least size of a symbol that is at least 2, if there is one."""
    return dim.least if dim.least > 1 else min(max(2, dim.multiple_of), dim.greatest)


def strides_like(model: Tensor) -> tuple[Expr, ...]:
    """Strides of a result of the model's dims that lies in memory as the model does; packed where
    two of the model's elements share a place, at some sizes or at all."""
    sizes = (*model.shape, *model.layout)
    greatest = {dim.name: dim.greatest for size in sizes for dim in size.dims()}
    is_apart = is_injective(model.shape, model.layout)
    if is_apart and (not greatest or _is_injective_at(model.shape, model.layout, greatest)):
        return model.layout
    return packed_strides(model.shape, stride_order(model.shape, model.layout))


def dense_order(dims: Sequence[Expr], strides: Sequence[Expr]) -> tuple[int, ...] | None:
    """The axes from outermost to innermost if the strides pack the dims, else None.

    The stride of a dim of 1 does not matter.
    """
    order = stride_order(dims, strides)
    running = Expr.of(1)
    for axis in reversed(order):
        if dims[axis].constant == 1:
            continue
        if strides[axis] != running:
            return None
        running = running * dims[axis]
    return order


def with_rank(sizes: Sequence[Expr], rank: int) -> tuple[Expr, ...]:
    """Dims, or strides, of so many axes: with dims of 1 ahead."""
    return (*(Expr.of(1),) * (rank - len(sizes)), *sizes)


def broadcast_dims(shapes: Iterable[Sequence[Expr]]) -> tuple[Expr, ...]:
    """The dims of operands together: leading dims of 1 are implied, and of each axis the first
    dim that is not 1 counts, which the others have to equal."""
    listed = list(shapes)
    rank = max(map(len, listed))
    dims: list[Expr] = []
    for axis in range(-rank, 0):
        for shape in listed:
            if len(shape) >= -axis and shape[axis].constant != 1:
                dims.append(shape[axis])
                break
        else:
            dims.append(Expr.of(1))
    return tuple(dims)


def text(values: Iterable[Size]) -> str:
    """[2, M, 64], as messages print sizes."""
    return "[" + ", ".join(map(str, values)) + "]"


def symbols_of(tensors: Iterable[Tensor]) -> dict[str, Dim]:
    """The symbols that the tensors use, by name; one name for two ranges is BAD_PARAM.

    Of a graph that was validated before, and has tensors more now, some symbols have bounds of
    products yet that others get.
    """
    found: dict[str, Dim] = {}
    for tensor in tensors:
        for expr in (*(tensor.dims or ()), *(tensor.strides or ())):
            if expr.constant is not None:
                continue
            for dim in sorted(expr.dims(), key=lambda dim: dim.name):
                known = found.setdefault(dim.name, dim)
                if known != dim and replace(known, within=()) != replace(dim, within=()):
                    raise tensor.error(
                        Status.BAD_PARAM_DUPLICATED_ENTRIES,
                        f"{dim!r} and {found[dim.name]!r} have one name",
                        "one range for a name",
                    )
    return found
