# pyright: basic
"""Region: a fusion's function at the linalg stage, as engines read it when they emit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from ..dialect import dnn, structure
from ..dialect.tensor import Tensor, is_in_tiles, packed_strides, symbols_of
from ..errors import DnncError, Status
from ..expr import Dim, Expr, product
from ..mlir import attributes_of, func, ir, linalg
from .kernel import Kernel
from .memory.parted import End, PartedTensor, StoredPart
from .memory.tensors import GlobalTensor, ScalarTensor
from .memory.tiled_tensor import TiledTensor
from .walk.region_walk import Leaf, indexing_maps, inputs_of

# Where a leaf is read from, along each of its axes: ("loop", axis of the iteration),
# ("zero",) for a broadcast, or ("other",) for anything that is worked out.
Access = tuple[tuple[Any, ...], ...]
Reached = set[tuple[Any, Access]]
_Value = TypeVar("_Value")


@dataclass(frozen=True, eq=False)
class Region:
    """The linalg operations of one fusion.

    arguments: SSA argument -> tensor.  outputs: (returned value, tensor), in order.  adds: whether
    results are added to what outputs hold, see `GlobalTensor`.  parted: of outputs, by place, that
    stand for several or for more axes, what is stored in their place.
    """

    function: Any
    arguments: Mapping[Any, Tensor]
    outputs: tuple[tuple[Any, Tensor], ...]
    symbols: tuple[Dim, ...]
    adds: bool = False
    parted: Mapping[int, tuple[StoredPart, ...]] = field(default_factory=dict)

    @staticmethod
    def of(function: Any) -> Region:
        arguments = dnn.read_arguments(function)
        returned = list(list(function.entry_block.operations)[-1].operands)
        pairs = zip(returned, structure.read_results(function), strict=True)
        return Region(function, arguments, tuple(pairs), tuple(dnn.read_symbols(function)))

    @property
    def operations(self) -> list[Any]:
        """The operations of the function, without its return."""
        return [view.operation for view in self.function.entry_block.operations][:-1]

    @cached_property
    def parts(self) -> Mapping[str, Sequence[Any]]:
        """Name -> the operations that the engine knows by it; see `engines.Marks.parts`."""
        found: dict[str, list[Any]] = {}
        for op in self.operations:
            if "dnn.parts" in op.attributes:
                for name in structure.from_attribute(op.attributes["dnn.parts"]):
                    found.setdefault(name, []).append(op)
        return found

    def part(self, name: str) -> Any:
        """The one operation of this name."""
        found = self.parts.get(name, ())
        if len(found) != 1:
            what = f"{len(found)} operations with {name!r} in dnn.parts"
            raise DnncError(Status.BAD_PARAM, what, "one, as lower-to-linalg writes it")
        return found[0]

    def generics(self) -> list[Any]:
        return [op for op in self.operations if op.name == "linalg.generic"]

    def takes_apart(self, accesses: Iterable[tuple[Tensor, Access]]) -> bool:
        """Whether coordinates are worked out one by one, for an address or as numbers.

        accesses: of its tensors.
        """
        bodies = [generic.regions[0].blocks[0] for generic in self.generics()]
        return any(place[0] == "other" for _, access in accesses for place in access) or any(
            view.operation.name == "linalg.index" for body in bodies for view in body.operations
        )

    def leaves(self, kernel: Kernel, *, is_exclusive: bool = True) -> dict[Any, Leaf]:
        """A leaf for each argument, on a kernel that is being built."""
        return {
            value: (
                ScalarTensor(kernel, tensor)
                if tensor.is_by_value
                else GlobalTensor(kernel, tensor, is_exclusive)
            )
            for value, tensor in self.arguments.items()
        }

    def targets(self, kernel: Kernel, *, is_exclusive: bool = True) -> list[tuple[Any, Any]]:
        """(returned value, where it is stored) of each output."""
        found = list[tuple[Any, Any]]()
        for place, (value, tensor) in enumerate(self.outputs):
            if place in self.parted:
                target: Any = PartedTensor(kernel, self.parted[place], is_exclusive)
            else:
                target = self._target(kernel, value, tensor, is_exclusive)
            found.append((value, target))
        return found

    def _target(
        self, kernel: Kernel, value: Any, tensor: Tensor, is_exclusive: bool
    ) -> GlobalTensor:
        dims = self.dims_of(value)
        if is_in_tiles(tensor) and dims != tensor.shape:
            return TiledTensor(kernel, tensor, is_exclusive, dims=dims)
        return GlobalTensor(kernel, tensor, is_exclusive, is_added_to=self.adds)

    def of_matrices(self) -> Region:
        """The region with the matrices that outputs in the order F16x16 hold in place of what lies
        in memory: `targets` know where their elements go."""
        pairs = [(_matrices(v) if is_in_tiles(t) else v, t) for v, t in self.outputs]
        return replace(self, outputs=tuple(pairs))

    def behind_parts(self, plan: Sequence[Sequence[End]]) -> Region:
        """The region with what outputs are parts of in their place; plan: of each of these the ends
        that it has; empty: outputs are as they are."""
        outputs, parted = list[tuple[Any, Tensor]](), dict[int, tuple[StoredPart, ...]]()
        for place, ends in enumerate(plan):
            value, tensor = self.outputs[ends[0].place]
            if ends[0].axes:
                for _ in range(ends[0].views):
                    (value,) = read_values(value.owner)
                dims = self.dims_of(value)
                parted[place] = tuple(StoredPart(self.outputs[e.place][1], e) for e in ends)
                tensor = replace(tensor, uid=None, dims=dims, strides=packed_strides(dims))
            outputs.append((value, tensor))
        return replace(self, outputs=tuple(outputs), parted=parted) if plan else self

    def dims_of(self, value: Any) -> tuple[Expr, ...]:
        """The sizes of any tensor of the region, by its type."""
        return dnn.read_layout(value.type, self.symbols)[0]

    def accesses(
        self,
        value: Any,
        at: Access,
        stop: Callable[[Any], bool] = lambda value: False,
        seen: Reached | None = None,
    ) -> list[tuple[Any, Access]]:
        """The leaves of a tensor, see `leaves_of`; stop: values that count as leaves."""

        def sources(value: Any, at: Access) -> list[tuple[Any, Access]] | None:
            is_leaf = stop(value) or not _is_generic(value)
            return None if is_leaf else _read_accesses(value.owner, at)

        return leaves_of(value, at, sources, seen)

    def depends_on(self, value: Any, totals: Collection[Any]) -> bool:
        """Whether elements of a tensor are made of one of these."""
        whole = identity_access(len(self.dims_of(value)))
        reached = self.accesses(value, whole, stop=lambda v: v in totals)
        return any(leaf in totals for leaf, _ in reached)

    def reads(self) -> list[tuple[Any, Access]]:
        """The leaves that elements of the outputs come from, and how each is addressed, where an
        element stands for its own coordinates."""
        seen: Reached = set()
        return [
            found
            for value, tensor in self.outputs
            for found in self.accesses(value, identity_access(tensor.rank), seen=seen)
        ]


def leaves_of(
    tensor: _Value,
    at: Access,
    sources: Callable[[_Value, Access], list[tuple[_Value, Access]] | None],
    seen: set[tuple[_Value, Access]] | None = None,
) -> list[tuple[_Value, Access]]:
    """The leaves that a tensor's elements come from, and how each is addressed, each once.

    at: how the tensor itself is addressed.  sources: what is read for elements of a tensor so
    addressed; None: it is a leaf.  seen: what earlier calls have reached, which is left out; what
    this one reaches is added.
    """
    found: list[tuple[_Value, Access]] = []
    seen = set() if seen is None else seen
    pending = [(tensor, at)]
    while pending:
        reached = pending.pop()
        if reached in seen:
            continue
        seen.add(reached)
        read = sources(*reached)
        if read is None:
            found.append(reached)
        else:
            pending += reversed(read)
    return found


def _is_generic(value: Any) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == "linalg.generic"


def _read_accesses(operation: Any, at: Access) -> list[tuple[Any, Access]]:
    """The values that a generic reads for an element of its result, and how each is addressed."""
    # A reduction's loops beyond its result's are not loops of the iteration.
    count = _loop_count(operation)
    loops = list(at) if len(at) == count else [("other",)] * count
    found = [
        (operand, composed(map_, loops))
        for operand, map_ in zip(inputs_of(operation), indexing_maps(operation), strict=False)
    ]
    found += ((tensor, (("other",),) * len(places)) for tensor, *places in _extractions(operation))
    return found


def read_values(operation: Any) -> list[Any]:
    """The tensors whose elements a generic reads."""
    return [*inputs_of(operation), *(tensor for tensor, *_ in _extractions(operation))]


def _extractions(operation: Any) -> list[Any]:
    """[tensor, place along each axis] of each element that a generic's body takes of a tensor."""
    body = operation.regions[0].blocks[0].operations
    return [view.operation.operands for view in body if view.operation.name == "tensor.extract"]


def copy_region(module: Any, source: Tensor, result: Tensor, cast: Any = None) -> Region:
    """The region of a copy, of a tensor to one of the same dims.

    module: where its function is built; nothing else keeps it.  cast: a `linalg.generic` of one
    input, whose body gives elements the result's type; None: they have it.
    """
    symbols = symbols_of((source, result))
    names = list(symbols)
    with ir.InsertionPoint(module.body):
        function = dnn.begin_function("copy", [source], [result], symbols)
    with ir.InsertionPoint(function.entry_block):
        (argument,) = function.arguments
        sizes = [structure.emit_size(n, names) for n in result.shape if n.constant is None]
        type_ = dnn.tensor_type(result, names)
        empty = ir.Operation.create("tensor.empty", results=[type_], operands=sizes).results[0]
        made = _copied(argument, empty, result.rank, cast)
        func.ReturnOp([made])
    return Region(function, {argument: source}, ((made, result),), tuple(symbols.values()))


def _matrices(value: Any) -> Any:
    """Value that the view behind a value takes elements of; the value itself if it is no view."""
    if isinstance(value.owner, ir.Block) or value.owner.name != "linalg.generic":
        return value
    body = [view.operation for view in value.owner.regions[0].blocks[0].operations]
    taken = [op.operands[0] for op in body if op.name == "tensor.extract"]
    return taken[0] if len(taken) == 1 and not inputs_of(value.owner) else value


def _copied(value: Any, out: Any, rank: int, cast: Any) -> Any:
    maps = [ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))] * 2
    kinds = [ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank
    made = linalg.GenericOp(
        [out.type], [value], [out], ir.ArrayAttr.get(maps), ir.ArrayAttr.get(kinds)
    )
    elements = [ir.RankedTensorType(each.type).element_type for each in (value, out)]
    block = made.regions[0].blocks.append(*elements)
    with ir.InsertionPoint(block):
        element = block.arguments[0]
        linalg.YieldOp([element if cast is None else _body(cast, element)])
    return made.results[0]


def _body(generic: Any, element: Any) -> Any:
    """The value that a generic of one input yields for an element, in another block."""
    own = generic.regions[0].blocks[0]
    values = {own.arguments[0]: element}
    for view in own.operations:
        op = view.operation
        operands = [values[operand] for operand in op.operands]
        if op.name == "linalg.yield":
            return operands[0]
        made = ir.Operation.create(
            op.name, [result.type for result in op.results], operands, attributes_of(op)
        )
        values |= dict(zip(op.results, made.results, strict=True))
    raise AssertionError("a body without linalg.yield")


def _loop_count(operation: Any) -> int:
    return indexing_maps(operation)[-1].n_dims


def composed(map_: Any, loops: Sequence[Any]) -> Access:
    """How an operand of an indexing map is addressed, by what its loops are."""
    found = []
    for result in map_.results:
        result = result.maybe_downcast()
        if isinstance(result, ir.AffineDimExpr):
            found.append(loops[result.position])
        else:
            is_zero = isinstance(result, ir.AffineConstantExpr) and result.value == 0
            found.append(("zero",) if is_zero else ("other",))
    return tuple(found)


def identity_access(rank: int) -> Access:
    return tuple(("loop", axis) for axis in range(rank))


def loop_groups(
    dims: Sequence[Expr],
    order: Sequence[int],
    accesses: Sequence[tuple[Tensor, Access]],
    *,
    is_wide: bool = False,
) -> tuple[tuple[int, ...], ...]:
    """Iteration axes, outermost first, merged where every tensor's addresses allow it.

    order: the axes in the order to run through them.  Axes of 1 are left out.  Two neighbours
    merge when each tensor either uses neither, or has nesting strides along both; then one
    number counts through both and nothing is divided.  It is below 2**31, unless is_wide.
    """
    groups: list[list[int]] = []
    for axis in order:
        if dims[axis].constant == 1:
            continue
        last = groups[-1] if groups else []
        fits = is_wide or product(dims[i] for i in (*last, axis)).bounds()[1] < 1 << 31
        if last and fits and all(_nests(t, access, last[-1], axis) for t, access in accesses):
            last.append(axis)
        else:
            groups.append([axis])
    return tuple(map(tuple, groups))


def _nests(tensor: Tensor, access: Access, outer: int, inner: int) -> bool:
    at = {a[1]: i for i, a in enumerate(access) if a[0] == "loop"}
    if tensor.is_by_value or (outer not in at and inner not in at):
        return True
    if outer not in at or inner not in at:
        return False
    i, j = at[outer], at[inner]
    return tensor.layout[i] == tensor.layout[j] * tensor.shape[j]
