# pyright: basic
"""Applies a region of linalg operations to fragments: the one way scalar code enters a kernel.

A region is the `linalg.generic` operations of a fusion's function, up to its leaves: tensors in
memory, an anchor's result in registers or shared memory.  `Walk.value(tensor, at, width)` gives
the elements of any tensor of the region at some coordinates: it follows indexing maps to the
operands, and clones the body's scalar operations onto the fragments that come back.  Epilogues,
operand transforms, pointwise and reduction kernels are all such walks.

Index arithmetic in bodies (`linalg.index`, `tensor.extract`) is kept as coordinates, so that a
gather which turns out to be consecutive becomes a vector access.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, Protocol

from ...dialect import structure
from ...expr import Dim
from ...mlir import arith, attributes_of, ir
from ...stackless import Steps, evaluated
from .. import ops
from ..kernel import Kernel, bits_of
from ..scalars import contraction, math
from ..value import wrapped
from . import index as idx
from .index import Coordinate, Index


class Leaf(Protocol):
    """Where a region's walk ends."""

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        """The elements at some coordinates: a scalar (width 1) or a vector."""
        ...


class InHand:
    """A leaf whose fragment in hand is all that a walk reads of it."""

    def __init__(self) -> None:
        self.current: Any = None

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        return self.current


@dataclass(frozen=True)
class _Generic:
    """A `linalg.generic` as walks read it: once, since they visit it for each fragment.

    maps: of the inputs, their results.  arguments, body: of its block.
    """

    inputs: Sequence[Any]
    maps: Sequence[Sequence[Any]]
    is_reduction: bool
    arguments: Sequence[Any]
    body: Sequence[Any]

    @staticmethod
    def of(operation: Any) -> _Generic:
        block = operation.regions[0].blocks[0]
        return _Generic(
            inputs_of(operation),
            [list(map_.results) for map_ in indexing_maps(operation)],
            is_reduction(operation),
            list(block.arguments),
            [view.operation for view in block.operations],
        )


# Evaluates a linalg.generic with reduction axes: (walk, operation, coordinates, width) -> value.
Reducer = Callable[["Walk", Any, Sequence[Coordinate], int], Any]


class Walk:
    """The values of a region's tensors at coordinates, each computed once.

    leaves: SSA tensor -> leaf.  symbols: of the function, in its order.
    reducer: how reductions inside the region are computed, None where there are none.
    unpacks: whether bf16 becomes f32 by `math.unpacked`.
    contracts: whether sums of products are rounded once.
    """

    def __init__(
        self,
        kernel: Kernel,
        leaves: Mapping[Any, Leaf],
        symbols: Sequence[Dim],
        reducer: Reducer | None = None,
        *,
        unpacks: bool = False,
        contracts: bool = False,
    ):
        self.kernel = kernel
        self.leaves = leaves
        self.symbols = symbols
        self.reducer = reducer
        self.unpacks = unpacks
        self.contracts = contracts
        self._known: dict[Any, Any] = {}
        self._generics: dict[Any, _Generic] = {}

    def value(self, tensor: Any, at: Sequence[Coordinate], width: int) -> Any:
        """The fragment of an SSA tensor at some coordinates."""
        return evaluated(self._value(tensor, at, width))

    def know(self, tensor: Any, at: Sequence[Coordinate], width: int, value: Any) -> None:
        """Gives it the fragment of a tensor that was read elsewhere."""
        self._known[(tensor, tuple(coordinate.key for coordinate in at), width)] = value

    def branch(self) -> Walk:
        """For a block inside this one: it knows what this walk knows, and keeps its own."""
        made = Walk(
            self.kernel, self.leaves, self.symbols, self.reducer,
            unpacks=self.unpacks, contracts=self.contracts,
        )  # fmt: skip
        made._known, made._generics = dict(self._known), self._generics
        return made

    def forget(self) -> None:
        """Drops what was computed: its block ends, and its values do not outlive it."""
        self._known.clear()

    # Steps: see `stackless`.

    def _value(self, tensor: Any, at: Sequence[Coordinate], width: int) -> Steps[Any]:
        if width > 1 and all(coordinate.is_uniform for coordinate in at):
            return ops.splat((yield self._value(tensor, at, 1)), width)
        key = (tensor, tuple(coordinate.key for coordinate in at), width)
        if key not in self._known:
            self._known[key] = yield self._computed(tensor, at, width)
        return self._known[key]

    def _computed(self, tensor: Any, at: Sequence[Coordinate], width: int) -> Steps[Any]:
        if tensor in self.leaves:
            return self.leaves[tensor].load(at, width)
        operation = tensor.owner
        assert operation.name == "linalg.generic", f"no leaf for {tensor}"
        if self._generic(operation).is_reduction:
            assert self.reducer is not None, f"no way to reduce {tensor}"
            return self.reducer(self, operation, at, width)
        operands = yield self._operands(operation, at, width)
        return (yield self._body(operation, operands, at, width, None))

    def _generic(self, operation: Any) -> _Generic:
        if operation not in self._generics:
            self._generics[operation] = _Generic.of(operation)
        return self._generics[operation]

    def operands(self, operation: Any, loops: Sequence[Coordinate], width: int) -> list[Any]:
        """The fragments of a generic's inputs at its loops' coordinates."""
        return evaluated(self._operands(operation, loops, width))

    def _operands(
        self, operation: Any, loops: Sequence[Coordinate], width: int
    ) -> Steps[list[Any]]:
        generic, found = self._generic(operation), list[Any]()
        for operand, results in zip(generic.inputs, generic.maps, strict=False):
            at = [_follow(result, loops) for result in results]
            found.append((yield self._value(operand, at, width)))
        return found

    def body(
        self,
        operation: Any,
        operands: Sequence[Any],
        loops: Sequence[Coordinate],
        width: int,
        result: Any = None,
    ) -> Any:
        """A generic's body on fragments; operands: of its block arguments, as many as are used.
        result: a value of the body that is wanted in place of what it yields."""
        return evaluated(self._body(operation, operands, loops, width, result))

    def _body(
        self,
        operation: Any,
        operands: Sequence[Any],
        loops: Sequence[Coordinate],
        width: int,
        result: Any,
    ) -> Steps[Any]:
        generic = self._generic(operation)
        values: dict[Any, Any] = dict(zip(generic.arguments, operands, strict=False))
        for op in generic.body:
            if op.name == "linalg.yield":
                wanted = op.operands[0] if result is None else result
                return ops.splat(self._fragment(wanted, values, width), width)
            if op.name == "tensor.extract":
                tensor, *places = op.operands
                at = [self._index(i, values) for i in places]
                values[op.results[0]] = yield self._value(tensor, at, width)
            else:
                values[op.results[0]] = self._scalar_op(op, values, loops, width)
        raise AssertionError("a body without linalg.yield")

    # ---- one operation of a body

    def _scalar_op(
        self, op: Any, values: dict[Any, Any], loops: Sequence[Coordinate], width: int
    ) -> Any:
        if op.name == "linalg.index":
            return loops[ir.IntegerAttr(op.attributes["dim"]).value].index()
        if op.name == "arith.index_cast" and isinstance(op.results[0].type, ir.IndexType):
            return _index_of(self._fragment(op.operands[0], values, width))
        if op.name == "arith.constant" and isinstance(op.results[0].type, ir.IndexType):
            return Index.of(ir.IntegerAttr(op.attributes["value"]).value)
        if isinstance(op.results[0].type, ir.IndexType):
            return self._index_op(op, values, width)
        if op.name in ("arith.index_cast", "arith.cmpi") and isinstance(
            op.operands[0].type, ir.IndexType
        ):
            indices = [self._index(operand, values) for operand in op.operands]
            if op.name == "arith.cmpi" and _is_below_together(op, indices, width):
                indices = [Index.of(index.base) for index in indices]
            return self._from_numbers(op, [index.numbers(width) for index in indices])
        return self._clone(op, values, width)

    def _index(self, value: Any, values: Mapping[Any, Any]) -> Index:
        if value in values:
            return values[value]
        op = value.owner
        if op.name == "arith.constant":
            return Index.of(ir.IntegerAttr(op.attributes["value"]).value)
        assert op.name == "dnn.size", f"index value of {op.name}"
        size = structure.read_size(op, self.symbols)
        return Index(self.kernel.size(size, bits_of(size)), divisor=size.known_divisor())

    def _index_op(self, op: Any, values: Mapping[Any, Any], width: int) -> Index:
        operands = [self._index(operand, values) for operand in op.operands]
        a, b = operands[0], operands[1]
        if op.name == "arith.addi":
            return idx.add(*_aligned(a, b, width))
        if op.name == "arith.subi":
            return idx.sub(*_aligned(a, b, width))
        if op.name == "arith.muli" and (a.is_uniform or b.is_uniform):
            whole, factor = (a, b) if b.is_uniform else (b, a)
            return idx.scale(whole, factor.base, factor.divisor)
        makers = {
            "arith.muli": ops.mul,
            "arith.divui": ops.div,
            "arith.remui": ops.rem,
            "arith.minsi": ops.minimum,
            "arith.maxsi": ops.maximum,
        }
        if op.name in ("arith.divui", "arith.remui"):
            kept = _within_rows(op.name, a, b, width)
            if kept is not None:
                return kept
        return idx.apply(makers[op.name], *(idx.spread(o, width) for o in operands))

    def _from_numbers(self, op: Any, numbers: Sequence[Any]) -> Any:
        if op.name == "arith.index_cast":
            return _resized(numbers[0], op.results[0].type.width)
        width = max(map(ops.width_of, numbers))
        numbers = [ops.splat(number, width) for number in numbers]
        return arith.CmpIOp(op.attributes["predicate"], *numbers).result

    def _clone(self, op: Any, values: Mapping[Any, Any], width: int) -> Any:
        if op.name == "arith.constant":
            return ir.Operation.create(
                op.name, results=[op.results[0].type], attributes=attributes_of(op)
            ).results[0]
        operands = [self._fragment(operand, values, width) for operand in op.operands]
        common = max(map(ops.width_of, operands))
        operands = [ops.splat(operand, common) for operand in operands]
        made = math.unpacked(op, operands, common) if self.unpacks else None
        if made is None and self.contracts:
            made = contraction.contracted(op, operands)
        if made is not None:
            return made
        types = [operand.type for operand in op.operands]
        return math.lower(self.kernel.target, op, types, operands, common)

    def _fragment(self, value: Any, values: Mapping[Any, Any], width: int) -> Any:
        """The fragment of a body's value; a constant may stand around the body."""
        if value in values:
            found = values[value]
            return found.numbers(width) if isinstance(found, Index) else found
        return self._clone(value.owner, {}, 1)


# ---- linalg operations


def inputs_of(operation: Any) -> list[Any]:
    """The `ins` of a linalg operation."""
    count, _ = ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])
    return list(operation.operands)[:count]


def init_of(operation: Any) -> Any:
    """The first of the `outs` of a linalg operation."""
    return list(operation.operands)[len(inputs_of(operation))]


def indexing_maps(operation: Any) -> list[Any]:
    """Its maps, of the inputs, then of the outputs."""
    return [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(operation.attributes["indexing_maps"])]


def reduced_axes(operation: Any) -> list[int]:
    """The loops of a generic that are reductions."""
    kinds = ir.ArrayAttr(operation.attributes["iterator_types"])
    return [axis for axis, kind in enumerate(kinds) if "reduction" in str(kind)]


def is_reduction(operation: Any) -> bool:
    return bool(reduced_axes(operation))


def _follow(result: Any, loops: Sequence[Coordinate]) -> Coordinate:
    """The coordinate that one result of an indexing map gives."""
    result = result.maybe_downcast()
    if isinstance(result, ir.AffineDimExpr):
        return loops[result.position]
    if isinstance(result, ir.AffineConstantExpr):
        return Index.of(result.value)
    left, right = result.lhs.maybe_downcast(), result.rhs.maybe_downcast()
    if isinstance(result, ir.AffineMulExpr):
        return idx.scale(_follow(left, loops).index(), right.value)
    assert isinstance(result, ir.AffineAddExpr), f"indexing map result {result}"
    return idx.add(_follow(left, loops).index(), _follow(right, loops).index())


def _aligned(a: Index, b: Index, width: int) -> tuple[Index, Index]:
    """Both as lanes where one is."""
    if a.lanes is None and b.lanes is None:
        return a, b
    return idx.spread(a, width), idx.spread(b, width)


def _is_below_together(op: Any, compared: Sequence[Index], width: int) -> bool:
    """Whether a < b holds for all elements of a fragment or for none: b is where one may begin."""
    a, b = compared
    is_below = ir.IntegerAttr(op.attributes["predicate"]).value == arith.CmpIPredicate.ult
    return (
        is_below
        and a.is_consecutive
        and b.is_uniform
        and a.divisor % width == b.divisor % width == 0
    )


def _within_rows(name: str, a: Index, b: Index, width: int) -> Index | None:
    """a // b or a % b when a fragment can't cross a multiple of b, or starts at one."""
    if not a.is_consecutive or not b.is_uniform:
        return None
    if a.divisor % width == 0 and b.divisor % width == 0:
        if name == "arith.divui":
            return Index.of(ops.div(a.base, b.base))
        starts_at_one = isinstance(b.base, int) and a.divisor % b.base == 0
        start = 0 if starts_at_one else ops.rem(a.base, b.base)
        return Index(start, 1, gcd(a.divisor, b.divisor))
    if isinstance(b.base, int) and a.divisor % b.base == 0:
        start = ops.div(a.base, b.base)
        if name == "arith.divui":
            return Index(lanes=tuple(ops.add(start, i // b.base) for i in range(width)))
        return Index(lanes=tuple(i % b.base for i in range(width)))
    return None


def _index_of(numbers: Any) -> Index:
    """Coordinates that were read from memory, of 32 bits."""
    if ops.width_of(numbers) == 1:
        return Index.of(numbers)
    return Index(lanes=tuple(ops.elements(numbers)))


def _resized(value: Any, bits: int) -> Any:
    own = ops.element_of(value.type).width
    assert own <= bits, f"a number of {own} bits in {bits}"
    if own == bits:
        return value
    wide = ops.vector_type(ir.IntegerType.get_signless(bits), ops.width_of(value))
    return wrapped(arith.ExtSIOp(wide, value))
