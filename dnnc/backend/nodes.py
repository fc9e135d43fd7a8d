"""Nodes, which finalized operation descriptors hold: they make operations of a graph's tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .. import dtypes
from ..dialect.op import Op
from ..dialect.ops import Pointwise
from ..dialect.ops.views import Reshape
from ..dialect.tensor import Tensor, packed_strides, sizes, stride_order
from ..dialect.vectors import elements_of, of_elements
from ..dtypes import DType
from ..errors import Status
from .tensors import TensorSpec, conflict

_POINTWISE: type[Op] = Pointwise  # made of fields by name, as any operation


class Tensors:
    """The tensors of a graph, one for each uid, and constants."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[TensorSpec, Tensor]] = {}

    def __call__(self, spec: TensorSpec) -> Tensor:
        """The tensor of a descriptor; two that differ must not have one uid."""
        if spec.uid not in self._known:
            tensor = spec.tensor()
            self._known[spec.uid] = (spec, tensor)
            if spec.ragged_offset is not None:
                tensor.ragged_offset = self(spec.ragged_offset)
        known, tensor = self._known[spec.uid]
        if known != spec:
            raise conflict(known, spec)
        return tensor

    @property
    def specs(self) -> Iterable[TensorSpec]:
        return (spec for spec, _ in self._known.values())


class Refusal(NamedTuple):
    """Why no graph may have what a descriptor says: what an error of it holds."""

    status: Status
    what: str
    supported: str
    where: str


@dataclass(frozen=True)
class Node:
    """An operation as a descriptor says it.

    make: the operation, and those that scale its tensors, of a graph's tensors and the rank of
    its device.  refusal: why no graph may have it.  is_in_place: a result is an operand, too.
    """

    make: Callable[[Tensors, int], list[Op]]
    refusal: Refusal | None = None
    is_in_place: bool = False

    def verified(self) -> Node:
        """Itself, when its operations hold by themselves."""
        for op in map(of_elements, self.make(Tensors(), 0)):
            op.verify_fields()
            op.verify_rank_0()
            op.infer()
            op.verify()
        return self


def constant(value: float | int, dtype: DType, rank: int) -> Tensor:
    """A number as a tensor that is part of the graph."""
    ones = sizes([1] * rank)
    return Tensor(dims=ones, strides=ones, dtype=dtype, value=value)


def unsupported(name: str, what: str, supported: str) -> Refusal:
    """The refusal of an attribute's value."""
    return Refusal(Status.NOT_SUPPORTED, what, supported, f"CUDNN_ATTR_{name}")


class Scale(NamedTuple):
    """The result is alpha * op(operands) + beta * what the result's memory held."""

    alpha: float = 1.0
    beta: float = 0.0


def made(
    op: type[Op],
    values: Mapping[str, Any],
    scale: Scale,
    groups: Mapping[str, int],
    tensors: Tensors,
    peer_rank: int,
) -> list[Op]:
    """An operation of a graph's tensors, and those that scale its result.

    groups: field -> axis along which groups of a tensor lie apart, which reshapes join.
    """
    given = {name: _tensor(value, tensors) for name, value in values.items()}
    if given.get("peer_stats"):
        given["peer_rank"] = peer_rank
    if isinstance(given.get("seed"), int):
        given["seed"] = constant(given["seed"], dtypes.i64, 1)
    if scale == Scale():
        return _over_what_it_reads(_between_reshapes(op, given, groups))
    field = op.fields_of("result")[0].name
    compute = given["compute_type"]
    kept = given[field]
    unscaled = given[field] = _virtual_like(kept, compute)
    ops = _between_reshapes(op, given, groups)
    return [*ops, *_scaled(unscaled, scale, kept, compute)]


def _between_reshapes(
    op: type[Op], given: Mapping[str, Any], groups: Mapping[str, int]
) -> list[Op]:
    """The operation, with reshapes that join groups which lie apart with the channels behind."""
    fields, ahead, behind = dict(given), list[Op](), list[Op]()
    results = [field.name for field in op.fields_of("result")]
    for name, axis in groups.items():
        tensor = given[name]
        joined = fields[name] = _joined(tensor, axis)
        if name in results:
            behind.append(Reshape(x=joined, y=tensor, reshape_mode="LOGICAL"))
        else:
            ahead.append(Reshape(x=tensor, y=joined, reshape_mode="LOGICAL"))
    return [*ahead, op(**fields), *behind]


def _joined(tensor: Tensor, axis: int) -> Tensor:
    """A virtual tensor of the elements, with an axis and the next as one.

    Its axes are in the order that they have in memory, so that channels which come last stay there.
    """
    elements = elements_of(tensor) if tensor.is_vectorized else tensor
    dims = elements.shape
    order = [a - (a > axis) for a in stride_order(dims, elements.layout) if a != axis]
    dims = (*dims[:axis], dims[axis] * dims[axis + 1], *dims[axis + 2 :])
    return Tensor(
        dims=dims, strides=packed_strides(dims, order), dtype=tensor.dtype, is_virtual=True
    )


def is_in_place(op: type[Op], values: Mapping[str, Any]) -> bool:
    """Whether one tensor is an operand and a result."""

    def uids(kind: str) -> set[int]:
        given = [values.get(field.name) for field in op.fields_of(kind)]
        listed = [item for value in given for item in (value if type(value) is tuple else [value])]
        return {spec.uid for spec in listed if isinstance(spec, TensorSpec)}

    return not uids("operand").isdisjoint(uids("result"))


def _tensor(value: Any, tensors: Tensors) -> Any:
    if isinstance(value, TensorSpec):
        return tensors(value)
    if isinstance(value, tuple) and value and isinstance(value[0], TensorSpec):
        return tuple(tensors(item) for item in value)
    return value


def _virtual_like(tensor: Tensor, compute: DType) -> Tensor:
    """A tensor of a graph's inside, of the same dims."""
    return Tensor(
        dims=tensor.dims, strides=packed_strides(tensor.shape), dtype=_scale_type(compute),
        is_virtual=True, vector_count=tensor.vector_count, vector_dim=tensor.vector_dim,
    )  # fmt: skip


def _scale_type(compute: DType) -> DType:
    return compute if compute in (dtypes.f32, dtypes.f64) else dtypes.f32


def _scaled(x: Tensor, scale: Scale, y: Tensor, compute: DType) -> list[Op]:
    """y = alpha * x + beta * what y's memory held; sums are rounded once, to y's type."""
    if scale.beta == 0.0:
        return [_scaling(x, scale.alpha, y, compute)]
    terms = [x, _prior_of(y)]
    found: list[Op] = []
    for place, factor in enumerate(scale):
        if factor != 1.0:
            product = _virtual_like(y, compute)
            found.append(_scaling(terms[place], factor, product, compute))
            terms[place] = product
    a, b = terms
    return [*found, _POINTWISE(x=a, b=b, y=y, mode="add", compute_type=_scale_type(compute))]


def _scaling(x: Tensor, alpha: float, y: Tensor, compute: DType) -> Op:
    dtype = _scale_type(compute)
    factor = constant(alpha, dtype, x.rank)
    return _POINTWISE(x=x, b=factor, y=y, mode="mul", compute_type=dtype)


def made_pointwise(
    values: Mapping[str, Any],
    factors: Mapping[str, float],
    make: Callable[[Mapping[str, Any]], list[Op]],
    tensors: Tensors,
    peer_rank: int,
) -> list[Op]:
    """A pointwise operation, and those that scale its operands.

    make: what it is made of, from its fields.
    """
    given = {name: _tensor(value, tensors) for name, value in values.items()}
    before: list[Op] = []
    for name, factor in factors.items():
        if factor == 1.0:
            continue
        x = given[name]
        given[name] = _virtual_like(x, given["compute_type"])
        before.append(_scaling(x, factor, given[name], given["compute_type"]))
    return _over_what_it_reads([*before, *make(given)])


def pointwise_alone(given: Mapping[str, Any]) -> list[Op]:
    return [_POINTWISE(**given)]


def made_of_several(
    values: Mapping[str, Any],
    make: Callable[[Mapping[str, Any]], list[Op]],
    tensors: Tensors,
    peer_rank: int,
) -> list[Op]:
    """Operations that stand for one of cuDNN's, from its fields."""
    return _over_what_it_reads(make({name: _tensor(v, tensors) for name, v in values.items()}))


def _over_what_it_reads(ops: list[Op]) -> list[Op]:
    """Operations of which one may write a tensor that it, or one ahead of it, reads.

    What is read then is what the tensor's memory held (`dialect/prior`).
    """
    written = {tensor for op in ops for tensor in op.results if not tensor.is_virtual}
    read = {tensor for op in ops for tensor in op.operands}
    priors = {tensor: _prior_of(tensor) for tensor in written & read}
    for op in ops if priors else ():
        for field in op.fields_of("operand"):
            value = getattr(op, field.name)
            if field.variadic:
                setattr(op, field.name, tuple(priors.get(tensor, tensor) for tensor in value))
            else:
                setattr(op, field.name, priors.get(value, value))
    return ops


def _prior_of(y: Tensor) -> Tensor:
    """The tensor of a result's memory before it is written."""
    return replace(y, uid=None, name="", is_output=False, prior_of=y.uid)
