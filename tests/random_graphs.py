"""Random operation graphs: valid ones from the operations' constraints, and ones that lie inside
an engine's stated support surface.

    python -m tests.random_graphs SEED [pointwise|reduction|fallback|broken]
    python -m tests.random_graphs SEED [matmul_sm80|matmul_sm90|grouped|bits]

A seed gives the same graph every time.  Values are kept tame while a graph grows: every node has
a sketch, a few dozen values that its elements might have, and an operation is taken only if its
result's sketch is finite and not large.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import dnnc
from dnnc import dtypes
from dnnc.dialect.ops import MoeGroupedMatmul, Pointwise
from dnnc.dialect.ops.reduction import BY_NAME as REDUCTIONS
from dnnc.dialect.ops.reduction import INDEXED_MODES
from dnnc.dialect.pointwise_modes import MODES, Mode
from dnnc.dialect.tensor import Tensor, dense_order, packed_strides, sizes
from dnnc.expr import Expr, product
from dnnc.rounding import round_to, to_int32_wrapped, widen

SAMPLES = 64  # values of a sketch
MAX_ELEMENTS = 3000  # of one tensor: the interpreter runs every thread
MAX_TERMS = 200_000  # multiply-adds of one matrix product
LARGEST = 2.0e3  # of a tame value

FLOATS = (dtypes.f32, dtypes.f16, dtypes.bf16, dtypes.f64)
MMA_TYPES = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.i8)
F8_TYPES = (dtypes.f8e4m3, dtypes.f8e5m2)


@dataclass(frozen=True)
class Style:
    """How the values of an input are drawn: from low to high, on multiples of step if it is set."""

    low: float
    high: float
    step: float = 0.0

    def draw(self, rng: np.random.Generator, shape: Any) -> Any:
        """Values as float64."""
        found = rng.uniform(self.low, self.high, shape)
        return np.round(found / self.step) * self.step if self.step else found


FLOAT_STYLES = {
    Style(-2.0, 2.0): 8,
    Style(0.25, 2.0): 5,
    Style(-2.0, 2.0, 0.25): 5,
    Style(-6.0, 6.0): 2,
    Style(-3.0, 3.0, 1.0): 2,
}
INTEGER_STYLES = {Style(-9, 9, 1): 8, Style(1, 6, 1): 3, Style(-100, 100, 1): 1}
UNSIGNED_STYLES = {Style(0, 12, 1): 5, Style(1, 200, 1): 1}
WIDE_STYLE = Style(-(2.0**40), 2.0**40, 1)
BOOLEAN_STYLE = Style(0, 1, 1)


@dataclass(frozen=True)
class Offsets:
    """The style of an input that holds, maybe behind other operations, the offsets of experts.

    step: they are multiples of it, so that experts end where tiles do, or have no rows.
    """

    op: MoeGroupedMatmul
    step: int = 1

    def draw(self, rng: np.random.Generator, sizes: Mapping[str, int]) -> Any:
        first = self.op.draw(self.op.first_token_offset, rng, sizes)
        return first // self.step * self.step


@dataclass(eq=False)
class Node:
    """A tensor of a graph that is being drawn.

    An input has a tensor only once it is used.  sketch: values that elements might have.
    has_sum: a reduction or a matrix product is above it.  uses: operations that read it.
    alignment: of an input, in bytes; 0: any.
    """

    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    dtype: dtypes.DType
    sketch: Any
    tensor: Any = None
    style: Style | None = None
    scalar: str = ""  # "constant" or "by value"
    value: float | int = 0
    has_sum: bool = False
    uses: int = 0
    alignment: int = 0

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclass
class Drawn:
    """A drawn graph and what is needed to run it.

    sizes: values of the symbols.  styles: how each input's values are drawn.
    engine: the engine whose surface it was drawn from, "" for the constraints alone.
    specials: whether a few inputs are NaN, infinite, -0 or subnormal.
    surface: what of `INSIDE` it was drawn from.
    """

    seed: int
    pygraph: Any
    sizes: dict[str, int]
    styles: dict[Tensor, Style | Offsets] = field(default_factory=dict)
    engine: str = ""
    specials: bool = False
    surface: str = ""

    @property
    def graph(self) -> Any:
        return self.pygraph.graph

    @property
    def description(self) -> str:
        """The graph as text, one line a tensor or an operation."""
        return describe(self)

    def inputs(self, seed: int = 0) -> dict[int, Any]:
        """Values of the inputs by uid, in the tensors' types; the graph must be finalized."""
        rng = np.random.default_rng([77, self.seed, seed])
        return {t.uid: self._values(t, rng) for t in self.graph.inputs}

    def _values(self, tensor: Tensor, rng: np.random.Generator) -> Any:
        """Elements that share a place in memory are equal, so they are drawn by their place."""
        style = self.styles[tensor]
        if isinstance(style, Offsets):
            return round_to(style.draw(rng, self.sizes), tensor.type)
        dims = [extent.evaluate(self.sizes) for extent in tensor.shape]
        places = np.zeros(dims, np.int64)
        for axis, extent in enumerate(dims):
            stride = tensor.layout[axis].evaluate(self.sizes)
            shape = [extent if i == axis else 1 for i in range(len(dims))]
            places = places + np.arange(extent).reshape(shape) * stride
        count = int(places.max(initial=0)) + 1
        flat = style.draw(rng, count)
        if self.specials and tensor.type.is_float and not tensor.is_by_value:
            for value in (np.nan, np.inf, -np.inf, -0.0, 1e-40):
                flat[rng.integers(0, count)] = value
        if tensor.is_by_value:
            flat[:] = tensor.value if rng.integers(0, 2) else flat
        return round_to(flat if tensor.type.is_float else np.rint(flat), tensor.type)[places]


# Makes an operand of some dims and of a type.
Factor = Callable[[Sequence[Expr], Any], Node]


class Untenable(Exception):
    """The choices made so far lead to no graph; another try is made."""


def pick(rng: np.random.Generator, weights: Mapping[Any, float] | Sequence[Any]) -> Any:
    """One of a sequence, or a key of a mapping by its weight."""
    choices = list(weights)
    if not isinstance(weights, Mapping):
        return choices[int(rng.integers(0, len(choices)))]
    shares = np.array([weights[choice] for choice in choices], float)
    return choices[int(rng.choice(len(choices), p=shares / shares.sum()))]


# ---- modes, in groups that are equally interesting

_GROUPS: dict[str, tuple[Mode, ...]] = {
    "binary": tuple(m for m in MODES if m.value < 100 and m.arity == 2),
    "unary": tuple(m for m in MODES if m.value < 100 and m.arity == 1),
    "activation": tuple(m for m in MODES if 100 <= m.value < 200),
    "backward": tuple(m for m in MODES if 200 <= m.value < 300),
    "comparison": tuple(m for m in MODES if 300 <= m.value < 400),
    "logic": tuple(m for m in MODES if 400 <= m.value < 500),
    "index": tuple(m for m in MODES if 500 <= m.value < 600),
    "select": tuple(m for m in MODES if m.value >= 600),
}
_GROUP_WEIGHTS = {
    "binary": 30,
    "unary": 22,
    "activation": 16,
    "backward": 10,
    "comparison": 9,
    "logic": 4,
    "index": 3,
    "select": 8,
}
KINDS = {
    "pointwise": 52,
    "matmul": 10,
    "reduction": 11,
    "indexed": 2,
    "transpose": 7,
    "slice": 7,
    "reshape": 6,
    "concatenate": 7,
}
VIEWS = ("transpose", "slice", "reshape", "concatenate")
_RESULT_TYPES = {
    dtypes.f32: 50,
    dtypes.f16: 16,
    dtypes.bf16: 14,
    dtypes.f64: 4,
    dtypes.i8: 4,
    dtypes.i32: 5,
    dtypes.i1: 3,
    dtypes.ui8: 2,
    dtypes.i64: 2,
}
_INPUT_TYPES = {
    dtypes.f32: 40,
    dtypes.f16: 20,
    dtypes.bf16: 15,
    dtypes.i8: 7,
    dtypes.i32: 7,
    dtypes.i1: 4,
    dtypes.f64: 3,
    dtypes.ui8: 2,
    dtypes.i64: 2,
}


class Builder:
    """Draws a graph operation by operation.

    nodes: results so far, and inputs that are in use.  types: what inputs may be.
    max_count: elements that a tensor may have, each symbol at its largest.
    most: elements that the result of a pointwise operation may have.
    """

    def __init__(self, seed: Sequence[int], *, max_count: int = 1 << 40):
        self.rng = np.random.default_rng(list(seed))
        self.types = _INPUT_TYPES
        self.max_count = max_count
        self.most = MAX_ELEMENTS
        self.g = dnnc.pygraph(
            "drawn",
            io_data_type=dtypes.f32,
            intermediate_data_type=dtypes.f32,
            compute_data_type=dtypes.f32,
            target="sm_80",
        )
        self.sizes: dict[str, int] = {}
        self.symbols = [
            self._symbol(name)
            for name in ("M", "B", "T")[: pick(self.rng, {0: 60, 1: 25, 2: 12, 3: 3})]
        ]
        self.nodes: list[Node] = []
        self.styles: dict[Tensor, Style | Offsets] = {}

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    # ---- sizes

    def _symbol(self, name: str) -> dnnc.Dim:
        multiple = pick(self.rng, {1: 6, 2: 2, 4: 1, 8: 2})
        value = multiple * int(self.rng.integers(1, 1 + max(1, 32 // multiple)))
        low = pick(self.rng, {1: 4, multiple: 2})
        largest = pick(self.rng, {64: 4, 512: 3, 4096: 1})
        self.sizes[name] = value
        return dnnc.Dim(name, min=low, max=largest, multiple_of=multiple)

    def value_of(self, size: Any) -> int:
        return Expr.of(size).evaluate(self.sizes)

    def count(self, dims: Iterable[Any]) -> int:
        return math.prod(self.value_of(extent) for extent in dims)

    def extent(self, limit: int) -> Any:
        """A size of at most `limit` elements, a symbol now and then."""
        fitting = [s for s in self.symbols if self.sizes[s.name] <= limit]
        if fitting and self.chance(0.4):
            return pick(self.rng, fitting)
        kind = pick(self.rng, {"one": 1, "small": 4, "medium": 4, "large": 0.7})
        low, high = {"one": (1, 1), "small": (2, 8), "medium": (7, 40), "large": (41, 100)}[kind]
        return int(min(limit, self.rng.integers(low, high + 1)))

    def dims(self, rank: int | None = None, limit: int = MAX_ELEMENTS) -> tuple[Expr, ...]:
        """Dims of a new tensor."""
        rank = rank or pick(self.rng, {1: 6, 2: 26, 3: 30, 4: 22, 5: 6, 6: 4, 7: 3, 8: 3})
        found = [Expr.of(1)] * rank
        for axis in self.rng.permutation(rank):
            found[axis] = Expr.of(self.extent(max(1, limit)))
            limit //= self.value_of(found[axis])
        return tuple(found)

    def strides(self, dims: Sequence[Expr], *, overlaps: bool = False) -> tuple[Expr, ...]:
        """Row-major strides, or permuted, with gaps, and (of inputs) overlapping."""
        kinds = {"row": 55, "permuted": 20, "gaps": 13, "both": 8, "overlap": 2 if overlaps else 0}
        kind = pick(self.rng, kinds)
        order = list(range(len(dims)))
        if kind in ("permuted", "both"):
            order = [int(axis) for axis in self.rng.permutation(len(dims))]
        found = list(packed_strides(dims, order))
        if kind in ("gaps", "both"):
            running = Expr.of(pick(self.rng, {1: 5, 2: 1, 3: 1}))
            for axis in reversed(order):
                found[axis] = running
                running = running * dims[axis] + pick(self.rng, {0: 4, 1: 1, 4: 1, 8: 1})
        if kind == "overlap":
            found[int(self.rng.integers(0, len(dims)))] = Expr.of(1)
        for axis, extent in enumerate(dims):
            if extent.constant == 1 and self.chance(0.1):
                found[axis] = Expr.of(pick(self.rng, (0, 1, 5)))
        return tuple(found)

    # ---- nodes

    def input(
        self,
        dims: Sequence[Expr],
        dtype: Any = None,
        style: Style | None = None,
        *,
        packed: bool = False,
    ) -> Node:
        """An input that gets its tensor when it is used."""
        dtype = dtype or pick(self.rng, self.types)
        if style is None:
            style = self._style(dtype)
        self.require_countable(dims)
        strides = packed_strides(dims) if packed else self.strides(dims, overlaps=True)
        sketch = widen(round_to(style.draw(self.rng, SAMPLES), dtype)).astype(float)
        return Node(tuple(dims), strides, dtype, sketch, style=style)

    def require_countable(self, dims: Sequence[Expr]) -> None:
        """No size past 2**31, and no more elements in all than may be."""
        largest = product(dims).bounds()[1]
        if largest > self.max_count or any(extent.bounds()[1] >= 1 << 31 for extent in dims):
            raise Untenable("too many elements")

    def _style(self, dtype: Any) -> Style:
        if dtype.kind == "b":
            return BOOLEAN_STYLE
        if dtype.kind == "u":
            return pick(self.rng, UNSIGNED_STYLES)
        if dtype == dtypes.i64 and self.chance(0.1):
            return WIDE_STYLE
        return pick(self.rng, FLOAT_STYLES if dtype.is_float else INTEGER_STYLES)

    def number(self, rank: int) -> Node:
        """A scalar: a constant of the kernel or a by-value tensor."""
        dtype = pick(self.rng, {dtypes.f32: 6, dtypes.f16: 1, dtypes.i32: 2, dtypes.f64: 1,
                                dtypes.ui8: 0.5, dtypes.i1: 0.3, dtypes.bf16: 0.5})  # fmt: skip
        style = self._style(dtype)
        value = style.draw(self.rng, ()).item()
        value = value if dtype.is_float else int(value)
        node = Node(sizes([1] * rank), sizes([1] * rank), dtype, np.full(SAMPLES, float(value)))
        node.scalar = pick(self.rng, {"constant": 2, "by value": 1})
        node.value, node.style = value, style
        return node

    def realize(self, node: Node) -> Any:
        """The tensor of a node, made on first use."""
        node.uses += 1
        if node.tensor is not None:
            return node.tensor
        if node.scalar:
            kind = "COMPILE_TIME_CONST" if node.scalar == "constant" else "RUNTIME_PARAM"
            node.tensor = self.g.tensor_scalar(node.value, kind, node.dtype)
            node.tensor.set_dim([1] * node.rank).set_stride([1] * node.rank)
        else:
            weights = {16: 70, 8: 6, 4: 8, 32: 6, 256: 4, 2: 3, 1: 3}
            alignment = node.alignment or pick(self.rng, weights)
            node.tensor = self.g.tensor(
                node.dims, node.strides, node.dtype, alignment_value=max(1, alignment)
            )
        self.styles[node.tensor] = node.style or BOOLEAN_STYLE
        self.nodes.append(node)
        return node.tensor

    def existing(self, accept: Callable[[Node], bool] = lambda node: True) -> Node | None:
        """A node that is there already, newer ones more often; None if none is acceptable."""
        fitting = [node for node in self.nodes if not node.scalar and accept(node)]
        if not fitting:
            return None
        weights = {i: 1.0 + i for i in range(len(fitting))}
        return fitting[pick(self.rng, weights)]

    def operand(self, accept: Callable[[Node], bool] = lambda node: True) -> Node:
        """A node that is there, or a new input."""
        found = self.existing(accept) if self.chance(0.85) else None
        if found is not None:
            return found
        for _ in range(8):
            is_number = self.chance(0.02)
            made = self.number(pick(self.rng, (1, 2, 3))) if is_number else self.input(self.dims())
            if accept(made):
                return made
        raise Untenable("no operand")

    def finished(
        self, tensor: Any, dtype: Any, dims: Sequence[Expr], sketch: Any, operands: Iterable[Node]
    ) -> Node:
        """The node of a new operation's result, with its type and maybe strides set.

        The dims are those of `require_countable`, which is asked before the operation is added.
        """
        if tensor.dtype != dtype or self.chance(0.5):
            tensor.set_data_type(dtype)
        if tensor.dims is None:
            tensor.set_dim(dims)
        if tensor.strides is None or self.chance(0.2):
            tensor.set_stride(self.strides(dims))
        rounded = widen(round_to(sketch, dtype)).astype(float)
        has_sum = any(node.has_sum for node in operands)
        node = Node(tuple(dims), tensor.strides, dtype, rounded, tensor, has_sum=has_sum)
        self.nodes.append(node)
        return node

    # ---- steps

    def step(self, kinds: Mapping[str, float] = KINDS, tries: int = 60) -> Node:
        """One more operation."""
        for _ in range(tries):
            try:
                return getattr(self, pick(self.rng, kinds))()
            except Untenable:
                continue
        raise Untenable("no operation")

    def result_type(self, sketch: Any, *, is_bool: bool = False) -> Any:
        if is_bool:
            return pick(self.rng, {dtypes.i1: 70, dtypes.f32: 12, dtypes.i32: 6, dtypes.i8: 6,
                                   dtypes.f16: 6})  # fmt: skip
        return pick(self.rng, _RESULT_TYPES)

    # ---- pointwise

    def pointwise(
        self,
        first: Node | None = None,
        *,
        dims: Sequence[Expr] | None = None,
        result: Any = None,
        accept: Callable[[Node], bool] = lambda node: True,
        groups: Mapping[str, float] = _GROUP_WEIGHTS,
        reads: bool = False,
    ) -> Node:
        """A pointwise operation.

        first: an operand that it must have.  dims: what the result's must be.
        result: the result's type.  accept: what other nodes may be operands.
        groups: of modes, with their weights.  reads: whether it must need an operand's values.
        """
        mode = pick(self.rng, _GROUPS[pick(self.rng, groups)])
        if reads and mode.name == "gen_index":
            raise Untenable("an index alone")
        x = first or self.operand(accept)
        others = [self._partner(x, mode, i, dims, accept) for i in range(mode.arity - 1)]
        operands = [x, *others]
        if mode.arity == 2 and self.chance(0.5):
            operands.reverse()
        shape = broadcast(operands)
        if self.count(shape) > self.most or (dims is not None and shape != tuple(dims)):
            raise Untenable("dims")
        self.require_countable(shape)
        compute = self._compute_type(mode, operands)
        parameters = self._parameters(mode, operands[0])
        sketch = self._pointwise_sketch(mode, operands, compute, parameters)
        method, _ = pick(self.rng, mode.methods)
        tensors = [self.realize(node) for node in operands]
        made = getattr(self.g, method)(*tensors, **parameters, compute_data_type=compute)
        dtype = result or self.result_type(sketch, is_bool=mode.result == "bool")
        return self.finished(made, dtype, shape, sketch, operands)

    def _partner(
        self,
        x: Node,
        mode: Mode,
        position: int,
        dims: Sequence[Expr] | None,
        accept: Callable[[Node], bool],
    ) -> Node:
        """A second or third operand: one that is there, a new input, a number, x itself."""
        is_mask = mode.name == "binary_select" and position == 1

        def fits(node: Node) -> bool:
            compatible = node.rank == x.rank and broadcasts(node.dims, x.dims, dims is None)
            return compatible and accept(node) and (not is_mask or node.dtype.kind == "b")

        choice = pick(self.rng, {"there": 45, "new": 35, "number": 13, "same": 7})
        if choice == "number" and not is_mask:
            return self.number(x.rank)
        if choice == "same" and not is_mask:
            return x
        found = self.existing(fits) if choice == "there" else None
        if found is not None:
            return found
        wanted = [
            Expr.of(1) if self.chance(0.15) else self._widened(extent) if dims is None else extent
            for extent in x.dims
        ]
        if is_mask and self.chance(0.85):
            return self.input(wanted, dtypes.i1)
        if mode.result == "bool" and x.style is not None and self.chance(0.7):
            return self.input(wanted, x.dtype, x.style)  # on one grid, values may be equal
        return self.input(wanted, x.dtype if self.chance(0.6) and x.dtype in self.types else None)

    def _widened(self, extent: Expr) -> Expr:
        """The size itself; instead of 1 another one at times."""
        if extent.constant == 1 and self.chance(0.12):
            return Expr.of(self.extent(12))
        return extent

    def _compute_type(self, mode: Mode, operands: Sequence[Node]) -> Any:
        integers = all(not node.dtype.is_float for node in operands)
        wide = any(node.dtype == dtypes.f64 for node in operands)
        weights = {dtypes.f32: 20.0, dtypes.f64: 12.0 if wide else 1.0}
        if mode.domain != "float":
            weights[dtypes.i32] = 30.0 if integers else 1.0
        if mode.domain == "any":
            weights[dtypes.i1] = 40.0 if all(n.dtype.kind == "b" for n in operands) else 1.0
        return pick(self.rng, weights)

    def _parameters(self, mode: Mode, x: Node) -> dict[str, Any]:
        """Values of some of a mode's parameters, under the method's names."""
        if mode.name == "gen_index":
            return {"axis": int(self.rng.integers(0, x.rank))}
        found: dict[str, Any] = {}
        if mode.name in ("relu_fwd", "relu_bwd"):
            if self.chance(0.4):
                found["negative_slope"] = pick(self.rng, (0.0, 0.01, 0.25, 1.5, -0.5))
            if self.chance(0.3):
                found["lower_clip"] = pick(self.rng, (-1.0, 0.0, 0.5))
            if self.chance(0.3):
                found["upper_clip"] = pick(self.rng, (1.0, 6.0))
        for name in ("elu_alpha", "softplus_beta", "swish_beta"):
            if name in mode.parameters and self.chance(0.5):
                found[name] = pick(self.rng, (0.5, 1.0, 1.7, 2))
        return found

    def _pointwise_sketch(
        self, mode: Mode, operands: Sequence[Node], compute: Any, parameters: Mapping[str, Any]
    ) -> Any:
        """Values that the result might have; Untenable where they are not tame."""
        if mode.name == "gen_index":
            extent = self.value_of(operands[0].dims[parameters["axis"]])
            return np.floor(self.rng.uniform(0, extent, SAMPLES))
        arrays = []
        for node in operands:
            values = node.sketch if node is operands[0] else self.rng.permutation(node.sketch)
            arrays.append(_as_compute(values, compute))
        probe = Pointwise(mode=mode.name, x=Tensor(), y=Tensor(), compute_type=compute)
        for name, value in parameters.items():
            setattr(probe, _ATTRIBUTES.get(name, name), value)
        with np.errstate(all="ignore"):
            found = mode.reference(*arrays, **probe.parameters())
        return self.tame(found)

    def tame(self, sketch: Any) -> Any:
        """The sketch as floats, if they are finite and not large; rarely one that is not."""
        found = np.asarray(sketch, float)
        if (not np.isfinite(found).all() or np.abs(found).max() > LARGEST) and not self.chance(
            0.01
        ):
            raise Untenable("values")
        return found

    # ---- sums

    def matmul(
        self,
        a: Node | None = None,
        b: Node | None = None,
        *,
        accept: Callable[[Node], bool] = lambda node: True,
        types: Sequence[Any] | None = None,
    ) -> Node:
        """A matrix product of a node and another one or a new input."""
        a = a or self.operand(lambda node: node.rank >= 2 and accept(node))
        b = b or self._factor(a, accept, types)
        if self.chance(0.3) and b.dims[-1] == a.dims[-2]:  # as far as it fits, the other way round
            a, b = b, a
        if a.dims[-1] != b.dims[-2]:
            raise Untenable("K")
        batch = broadcast_dims([a.dims[:-2], b.dims[:-2]])
        dims = (*batch, a.dims[-2], b.dims[-1])
        if self.count(dims) > MAX_ELEMENTS or self.count((*dims, a.dims[-1])) > MAX_TERMS:
            raise Untenable("size")
        self.require_countable(dims)
        compute = self._sum_type(a, b)
        sketch = self._matmul_sketch(a, b)
        made = self.g.matmul(self.realize(a), self.realize(b), compute_data_type=compute)
        dtype = self.result_type(sketch)
        if compute == dtypes.i32 and self.chance(0.7):
            dtype = dtypes.i32
        node = self.finished(made, dtype, dims, sketch, [a, b])
        node.has_sum = True
        return node

    def _factor(self, a: Node, accept: Callable[[Node], bool], types: Sequence[Any] | None) -> Node:
        """A second operand for a product with `a`."""
        found = self.existing(
            lambda node: (
                node.rank == a.rank
                and node.dims[-2] == a.dims[-1]
                and broadcasts(node.dims[:-2], a.dims[:-2], True)
                and accept(node)
            )
        )
        if found is not None and self.chance(0.4):
            return found
        batch = [Expr.of(1) if self.chance(0.3) else self._widened(n) for n in a.dims[:-2]]
        columns = Expr.of(self.extent(40))
        dtype = a.dtype if self.chance(0.75) else None
        if types is not None:
            dtype = pick(self.rng, types)
        elif dtype not in self.types:
            dtype = None
        return self.input((*batch, a.dims[-1], columns), dtype)

    def _sum_type(self, a: Node, b: Node) -> Any:
        weights = {dtypes.f32: 20.0, dtypes.f16: 1.0, dtypes.f64: 1.0}
        if dtypes.f64 in (a.dtype, b.dtype):
            weights[dtypes.f64] = 20.0
        if a.dtype.is_integer and b.dtype.is_integer:
            weights[dtypes.i32] = 60.0
        if a.dtype == b.dtype == dtypes.f16:
            weights[dtypes.f16] = 6.0
        return pick(self.rng, weights)

    def _matmul_sketch(self, a: Node, b: Node) -> Any:
        depth = self.value_of(a.dims[-1])
        left = self.rng.choice(a.sketch, (SAMPLES, depth))
        right = self.rng.choice(b.sketch, (SAMPLES, depth))
        with np.errstate(all="ignore"):
            return self.tame((left * right).sum(axis=1))

    def reduction(
        self,
        x: Node | None = None,
        *,
        axes: Sequence[int] | None = None,
        accept: Callable[[Node], bool] = lambda node: True,
        trivial: bool = True,
    ) -> Node:
        """A reduction of a node over some axes; trivial: those may be of 1 only, or none."""
        x = x or self.operand(accept)
        if axes is None:
            axes = self.axes(x)
        if not trivial and all(x.dims[axis].constant == 1 for axis in axes):
            raise Untenable("nothing to reduce")
        dims = tuple(Expr.of(1) if axis in axes else n for axis, n in enumerate(x.dims))
        row = REDUCTIONS[pick(self.rng, list(REDUCTIONS))]
        weights = {dtypes.f32: 20.0, dtypes.f64: 12.0 if x.dtype == dtypes.f64 else 1.0}
        if row.takes_integers:
            weights[dtypes.i32] = 30.0 if not x.dtype.is_float else 0.7
        compute = pick(self.rng, weights)
        count = self.count(x.dims) // max(1, self.count(dims))
        if row.combine == "mul" and count > 24:
            raise Untenable("a long product")
        values = _as_compute(self.rng.choice(x.sketch, (SAMPLES, max(1, count))), compute)
        sketch = self.tame(row.reference(values, (1,)).reshape(SAMPLES))
        made = self.g.reduction(self.realize(x), row.name, compute_data_type=compute)
        made.set_dim(dims)
        if self.chance(0.7):
            made.set_stride(self.strides(dims))
        else:
            made.set_stride(packed_strides(dims))
        node = self.finished(made, self.result_type(sketch), dims, sketch, [x])
        node.has_sum = True
        return node

    def indexed(self) -> Node:
        """The places of extremes, and maybe the extremes."""
        x = self.operand()
        axes = self.axes(x)
        dims = tuple(Expr.of(1) if axis in axes else n for axis, n in enumerate(x.dims))
        mode, compute = (
            pick(self.rng, INDEXED_MODES),
            pick(self.rng, {dtypes.f32: 9, dtypes.f64: 1}),
        )
        value = self.tame(np.abs(x.sketch) if mode == "amax" else x.sketch)
        made, index = self.g.reduction(self.realize(x), mode, compute, generate_index=True)
        made.set_dim(dims).set_stride(self.strides(dims))
        index.set_dim(dims)
        node = self.finished(made, self.result_type(value), dims, value, [x])
        count = self.count(x.dims) // max(1, self.count(dims))
        places = self.rng.integers(0, max(1, min(count, LARGEST)), SAMPLES)
        # Whatever size a symbol has, INT64 holds its places.
        place = self.finished(index, dtypes.i64, dims, places, [x])
        node.has_sum = place.has_sum = True
        return place

    def axes(self, x: Node) -> list[int]:
        """Axes to reduce, none of them now and then."""
        found = [axis for axis in range(x.rank) if self.chance(0.5)]
        if not found and self.chance(0.9):
            return [int(self.rng.integers(0, x.rank))]
        return found

    # ---- views

    def transpose(self, x: Node | None = None) -> Node:
        x = x or self.operand()
        order = [int(axis) for axis in self.rng.permutation(x.rank)]
        made = self.g.transpose(self.realize(x), order)
        return self.finished(made, x.dtype, [x.dims[axis] for axis in order], x.sketch, [x])

    def slice(self, x: Node | None = None) -> Node:
        x = x or self.operand()
        slices = [self._slice_of(extent.constant) for extent in x.dims]
        dims = [
            extent if s == slice(None) else Expr.of(len(range(*s.indices(extent.constant))))
            for extent, s in zip(x.dims, slices, strict=True)
        ]
        made = self.g.slice(self.realize(x), slices)
        return self.finished(made, x.dtype, dims, x.sketch, [x])

    def _slice_of(self, extent: int | None) -> slice:
        if extent is None or self.chance(0.4):
            return slice(None)
        start = int(self.rng.integers(0, extent))
        stop = int(self.rng.integers(start + 1, extent + 1))
        return slice(start, stop, pick(self.rng, {1: 5, 2: 2, 3: 1}))

    def reshape(self, x: Node | None = None) -> Node:
        x = x or self.operand()
        is_packed = dense_order(x.dims, x.strides) is not None
        mode = pick(self.rng, {"VIEW_ONLY": 2 if is_packed else 0, "LOGICAL": 1})
        dims = self._regrouped(list(x.dims))
        self.require_countable(dims)
        made = self.g.reshape(self.realize(x), mode).set_dim(dims)
        order = None
        if mode == "VIEW_ONLY" and self.chance(0.2):
            order = [int(axis) for axis in self.rng.permutation(len(dims))]
        made.set_stride(packed_strides(dims, order))
        made.set_data_type(x.dtype)
        has_sum = x.has_sum
        node = Node(tuple(dims), made.strides, x.dtype, x.sketch, made, has_sum=has_sum)
        self.nodes.append(node)
        return node

    def _regrouped(self, dims: list[Expr]) -> list[Expr]:
        """Other dims of as many elements: neighbours merged, sizes split, ones put in or out."""
        for _ in range(pick(self.rng, (1, 2, 3))):
            at = int(self.rng.integers(0, len(dims)))
            choice = pick(self.rng, ("merge", "split", "one"))
            if choice == "merge" and at + 1 < len(dims):
                dims[at : at + 2] = [dims[at] * dims[at + 1]]
            elif choice == "split" and len(dims) < 8:
                # Only what the normal form of sizes shows: M of multiples of 8 is not 8 * (M // 8).
                factors = [n for n in range(2, 17) if dims[at].divided_exactly(Expr.of(n))]
                if factors:
                    factor = Expr.of(pick(self.rng, factors))
                    dims[at : at + 1] = [dims[at] // factor, factor]
            elif choice == "one" and len(dims) < 8:
                dims.insert(at, Expr.of(1))
        if len(dims) > 1 and self.chance(0.2):
            return [product(dims)]
        return dims

    def concatenate(self, x: Node | None = None) -> Node:
        x = x or self.operand()
        axis = int(self.rng.integers(0, x.rank))
        parts = [x]
        for _ in range(pick(self.rng, {0: 1, 1: 6, 2: 3, 3: 1})):
            parts.append(self._part(x, axis))
        parts = [parts[i] for i in self.rng.permutation(len(parts))]
        extent = sum((part.dims[axis] for part in parts), Expr.of(0))
        dims = [extent if i == axis else n for i, n in enumerate(x.dims)]
        if self.count(dims) > MAX_ELEMENTS:
            raise Untenable("size")
        self.require_countable(dims)
        made = self.g.concatenate([self.realize(part) for part in parts], axis)
        sketch = self.rng.choice(np.concatenate([part.sketch for part in parts]), SAMPLES)
        return self.finished(made, x.dtype, dims, sketch, parts)

    def _part(self, x: Node, axis: int) -> Node:
        """Another input of a concatenation."""

        def fits(node: Node) -> bool:
            same = node.rank == x.rank and node.dtype == x.dtype
            return same and all(
                n == m for i, (n, m) in enumerate(zip(node.dims, x.dims, strict=True)) if i != axis
            )

        found = self.existing(fits) if self.chance(0.5) else None
        if found is not None:
            return found
        if x.dtype not in self.types:
            return x
        if self.chance(0.05) and all(n.constant == 1 for i, n in enumerate(x.dims) if i != axis):
            made = self.number(x.rank)
            return made if made.dtype == x.dtype else x
        dims = [Expr.of(self.extent(12)) if i == axis else n for i, n in enumerate(x.dims)]
        return self.input(dims, x.dtype)

    # ---- the end

    def set_outputs(self, outputs: Iterable[Node], *, prune: bool = True) -> None:
        """Makes nodes outputs; operations that no output needs are taken out."""
        wanted = {id(node.tensor) for node in outputs}
        for i, node in enumerate(self.nodes):
            if id(node.tensor) in wanted:
                node.tensor.set_output(True)
                if self.chance(0.15):
                    node.tensor.set_name(f"out{i}")
        if not prune:
            return
        kept = []
        for op in reversed(self.g.graph.ops):
            if any(id(result) in wanted for result in op.results):
                kept.append(op)
                wanted |= {id(tensor) for tensor in op.operands}
        self.g.graph.ops = kept[::-1]

    def results(self) -> list[Node]:
        """Nodes that operations made, in order."""
        made = {id(t) for op in self.g.graph.ops for t in op.results}
        return [node for node in self.nodes if id(node.tensor) in made]

    def shuffle(self) -> None:
        """Operations may be added in any order."""
        if self.chance(0.15):
            ops = self.g.graph.ops
            self.g.graph.ops = [ops[i] for i in self.rng.permutation(len(ops))]

    def drawn(self, seed: int, engine: str = "") -> Drawn:
        self.shuffle()
        specials = self.chance(0.08)
        return Drawn(seed, self.g, self.sizes, self.styles, engine, specials)


_ATTRIBUTES = {
    "negative_slope": "relu_lower_clip_slope",
    "lower_clip": "relu_lower_clip",
    "upper_clip": "relu_upper_clip",
}


def _as_compute(values: Any, compute: Any) -> Any:
    """Sketch values in a compute type."""
    if compute.is_float:
        return values
    return values != 0 if compute.kind == "b" else to_int32_wrapped(np.rint(values))


def broadcasts(a: Sequence[Expr], b: Sequence[Expr], both_ways: bool) -> bool:
    """Whether the dims `a` broadcast to `b`, or each to what they give together."""
    return len(a) == len(b) and all(
        n == m or n.constant == 1 or (both_ways and m.constant == 1)
        for n, m in zip(a, b, strict=True)
    )


def broadcast_dims(shapes: Sequence[Sequence[Expr]]) -> tuple[Expr, ...]:
    """The dims that shapes broadcast to; Untenable if they do not."""
    found: list[Expr] = []
    for extents in zip(*shapes, strict=True):
        wide = {str(n): n for n in extents if n.constant != 1}
        if len(wide) > 1:
            raise Untenable("dims do not broadcast")
        found.append(next(iter(wide.values()), Expr.of(1)))
    return tuple(found)


def broadcast(nodes: Sequence[Node]) -> tuple[Expr, ...]:
    return broadcast_dims([node.dims for node in nodes])


# ---- drawing


def draw(seed: int) -> Drawn:
    """A valid graph of 1 to 8 operations, drawn from the operations' constraints alone."""
    return _first_tenable(0, seed, _draw)


def _first_tenable(kind: int, seed: int, make: Callable[[Builder, int], Drawn], **options) -> Drawn:
    for attempt in range(200):
        try:
            return make(Builder([kind, seed, attempt], **options), seed)
        except Untenable:
            continue
    raise AssertionError(f"seed {seed} gives no graph")


def _draw(builder: Builder, seed: int) -> Drawn:
    count = pick(builder.rng, {1: 10, 2: 16, 3: 18, 4: 16, 5: 14, 6: 10, 7: 8, 8: 8})
    flavour = pick(builder.rng, {"mixed": 6, "pointwise": 2, "moving": 1, "sums": 1})
    kinds = {
        "mixed": KINDS,
        "pointwise": {"pointwise": 1},
        "moving": {"pointwise": 2, **dict.fromkeys(VIEWS, 1)},
        "sums": {"pointwise": 4, "matmul": 3, "reduction": 3},
    }[flavour]
    for _ in range(count):
        builder.step(kinds)
    results = builder.results()
    sinks = [node for node in results if not node.uses]
    if len(sinks) > 1 and builder.chance(0.05):
        sinks.pop()  # an operation whose result nobody needs
    also = [node for node in results if node.uses and builder.chance(0.1)]
    builder.set_outputs([*sinks, *also], prune=False)
    return builder.drawn(seed)


# ---- inside the engines' surfaces


def draw_inside(seed: int, engine: str = "") -> Drawn:
    """A graph from an engine's stated support surface; the engines for every target take turns.

    engine: of `INSIDE`, which has two parts of matmul_sm90's beside engines.
    """
    engine = engine or EVERYWHERE[seed % len(EVERYWHERE)]
    kind = 1 + list(INSIDE).index(engine)
    drawn = _first_tenable(kind, seed, INSIDE[engine], max_count=(1 << 31) - 1)
    drawn.surface = engine
    return drawn


def _without_gaps(node: Node) -> None:
    """Boolean outputs are packed, and all in one order of their axes."""
    if node.dtype.kind == "b":
        node.tensor.set_stride(packed_strides(node.dims))


def _inside_pointwise(builder: Builder, seed: int) -> Drawn:
    """Pointwise and view operations; outputs of equal dims."""
    kinds = pick(
        builder.rng,
        [{"pointwise": 1}, {"pointwise": 3, **dict.fromkeys(VIEWS, 1)}],
    )
    for _ in range(pick(builder.rng, (1, 2, 3, 4, 5, 6, 7, 8))):
        builder.step(kinds)
    _outputs_like_the_last(builder)
    return builder.drawn(seed, "pointwise")


def _outputs_like_the_last(builder: Builder) -> list[Node]:
    """The last result and some others of its dims become the outputs."""
    results = builder.results()
    last = results[-1]
    outputs = [n for n in results if n is last or (n.dims == last.dims and builder.chance(0.4))]
    for node in outputs:
        _without_gaps(node)
        if node.dtype.kind == "b" and _is_reshaped(builder, node):
            raise Untenable("a reshape knows the strides")
    builder.set_outputs(outputs)
    return outputs


def _is_reshaped(builder: Builder, node: Node) -> bool:
    """Whether a change of its strides would change what a reshape means."""
    return any(
        op.op_name == "reshape" and any(node.tensor is t for t in (*op.operands, *op.results))
        for op in builder.g.graph.ops
    )


def _inside_reduction(builder: Builder, seed: int) -> Drawn:
    """Pointwise and views, then reductions of one shape and one set of axes, then pointwise."""
    rng = builder.rng
    for _ in range(pick(rng, {0: 4, 1: 3, 2: 2, 3: 1})):
        builder.step({"pointwise": 5, **dict.fromkeys(VIEWS, 1)})
    x = (builder.results() or [builder.input(builder.dims())])[-1]
    axes = builder.axes(x)
    if all(x.dims[axis].constant == 1 for axis in axes):
        raise Untenable("nothing to reduce")
    sums = [_retried(builder, lambda: builder.reduction(x, axes=axes))]
    for _ in range(pick(rng, {0: 6, 1: 2, 2: 1})):
        same = builder.existing(lambda node: node.dims == x.dims and not node.has_sum) or x
        sums.append(_retried(builder, lambda s=same: builder.reduction(s, axes=axes)))
    after = _followed(builder, sums, pick(rng, {0: 3, 1: 3, 2: 2, 3: 1}), reads=True)
    is_single = all(n.constant == 1 for n in sums[0].dims)
    outputs = [node for node in after if not node.uses or builder.chance(0.25)]
    full = [n for n in builder.results() if n.dims == x.dims and not n.has_sum]
    outputs += [node for node in full if builder.chance(0.2)]
    if any(node.dtype.kind == "b" and not (is_single and node in after) for node in outputs):
        raise Untenable("a boolean output")
    builder.set_outputs(outputs)
    return builder.drawn(seed, "reduction")


def _followed(
    builder: Builder, first: Sequence[Node], count: int, *, reads: bool = False
) -> list[Node]:
    """Nodes of equal dims, and pointwise operations of those dims after them.

    reads: whether each must need their values: those of what a reduction leaves.
    """
    after = list(first)
    dims = after[0].dims

    def fits(node: Node) -> bool:
        return node in after or (not node.has_sum and broadcasts(node.dims, dims, False))

    for _ in range(count):
        made = _retried(
            builder,
            lambda: builder.pointwise(
                pick(builder.rng, after), dims=dims, accept=fits, reads=reads
            ),
        )
        after.append(made)
    return after


def _retried(builder: Builder, make: Callable[[], Node], tries: int = 40) -> Node:
    for _ in range(tries):
        try:
            return make()
        except Untenable:
            continue
    raise Untenable("no operation")


def _inside_matmul(builder: Builder, seed: int) -> Drawn:
    """A product of tensor-core types with pointwise and views on A, B and beside it, and
    pointwise operations of its dims after it."""
    rng = builder.rng
    operand = pick(rng, {dtypes.f16: 4, dtypes.bf16: 3, dtypes.f32: 3, dtypes.i8: 2})
    rank = pick(rng, {2: 4, 3: 5, 4: 3, 5: 1})
    batch = builder.dims(rank - 2, 6) if rank > 2 else ()
    m, n, k = (Expr.of(builder.extent(70)) for _ in range(3))
    a = _factor_inside(builder, (*batch, m, k), operand)
    b = _factor_inside(builder, (*batch, k, n), operand)
    dims = (*broadcast_dims([a.dims[:-2], b.dims[:-2]]), m, n)
    if builder.count(dims) > 2 * MAX_ELEMENTS:
        raise Untenable("size")
    is_integer = operand == dtypes.i8
    compute = dtypes.i32 if is_integer else pick(rng, {dtypes.f32: 9, dtypes.f16: 1})
    sketch = builder._matmul_sketch(a, b)
    made = builder.g.matmul(builder.realize(a), builder.realize(b), compute_data_type=compute)
    dtype = dtypes.i32 if is_integer and builder.chance(0.7) else builder.result_type(sketch)
    c = builder.finished(made, dtype, dims, sketch, [a, b])
    c.has_sum = True
    after = _followed(builder, [c], pick(rng, {0: 2, 1: 3, 2: 3, 3: 2, 4: 1}))
    after += _exits(builder, after) if builder.chance(0.3) else []
    outputs = [node for node in after if not node.uses or builder.chance(0.2)]
    if any(node.dtype.kind == "b" for node in outputs):
        raise Untenable("a boolean output")
    builder.set_outputs(outputs)
    return builder.drawn(seed, "matmul_sm80")


def _factor_inside(
    builder: Builder, dims: Sequence[Expr], operand: Any, *, whole: bool = False
) -> Node:
    """An operand of a product: an input, or a pointwise graph or a view of inputs.

    whole: no batch of it is broadcast.
    """
    dims = [
        Expr.of(1) if not whole and axis < len(dims) - 2 and builder.chance(0.25) else n
        for axis, n in enumerate(dims)
    ]
    kind = pick(builder.rng, {"input": 5, "pointwise": 4, "transpose": 1, "both": 1})
    if kind == "input":
        return builder.input(dims, operand)
    order = [int(axis) for axis in builder.rng.permutation(len(dims))]
    first = builder.input(dims)
    if kind in ("transpose", "both"):
        turned = [dims[axis] for axis in order]
        source = builder.input(turned, operand if kind == "transpose" else None)
        back = [int(axis) for axis in np.argsort(order)]
        made = builder.g.transpose(builder.realize(source), back)
        first = builder.finished(made, source.dtype, dims, source.sketch, [source])
    if kind == "transpose":
        return first
    return _retried(
        builder,
        lambda: builder.pointwise(
            first,
            dims=dims,
            result=operand,
            accept=lambda node: broadcasts(node.dims, dims, False),
        ),
    )


def _inside_fallback(builder: Builder, seed: int) -> Drawn:
    """Anything with sums that do not need each other; outputs of equal dims."""
    rng = builder.rng
    for _ in range(pick(rng, {0: 4, 1: 3, 2: 2})):
        builder.step({"pointwise": 3, **dict.fromkeys(VIEWS, 1)})
    count = pick(rng, {1: 5, 2: 3})
    for _ in range(count):
        _retried(builder, lambda: _lone_sum(builder))
    for _ in range(pick(rng, {0: 2, 1: 3, 2: 3, 3: 1})):
        builder.step({"pointwise": 3, **dict.fromkeys(VIEWS, 1)})
    if not _outputs_like_the_last(builder)[-1].has_sum:
        raise Untenable("no sum is needed")
    return builder.drawn(seed, "fallback")


def _lone_sum(builder: Builder) -> Node:
    """A product or a reduction that needs no other."""
    if builder.chance(0.5):
        return builder.matmul(accept=lambda node: not node.has_sum)
    return builder.reduction(accept=lambda node: not node.has_sum, trivial=False)


# ---- inside matmul_sm90's


def _inside_hopper(builder: Builder, seed: int) -> Drawn:
    """One product, or two of equal dims and types, as for matmul_sm80 and of fp8; after them
    pointwise operations, among them a row's reduction that they use again, or reductions at the
    exit."""
    rng = builder.rng
    shape = pick(rng, {"pointwise": 5, "pair": 2, "row": 3, "exit": 4})
    types, is_fast = _hopper_types(builder)
    rank = pick(rng, {2: 4, 3: 5, 4: 3})
    batch = builder.dims(rank - 2, 6) if rank > 2 else ()
    m, k = (Expr.of(builder.extent(limit)) for limit in (70, 150))
    n = Expr.of(int(rng.integers(2, 70)) if shape == "row" else builder.extent(70))

    def factor(dims: Sequence[Expr], dtype: Any) -> Node:
        return _factor_inside(builder, dims, dtype)

    products = _hopper_products(
        builder, (*batch, m, n, k), types, is_fast, (factor, factor), is_pair=shape == "pair"
    )
    after, ends = _hopper_epilogue(builder, products, shape)
    outputs = [node for node in (*after, *ends) if not node.uses or builder.chance(0.2)]
    if any(node.dtype.kind == "b" for node in outputs):
        raise Untenable("a boolean output")
    builder.set_outputs(outputs)
    return builder.drawn(seed, "matmul_sm90")


def _hopper_types(builder: Builder) -> tuple[tuple[Any, Any], bool]:
    """Types of A and B, and whether their sums may be those of FAST_FLOAT_FOR_FP8."""
    rng = builder.rng
    operand = pick(rng, {dtypes.f16: 4, dtypes.bf16: 3, dtypes.f32: 3, dtypes.i8: 2, "fp8": 3})
    first, second = (pick(rng, F8_TYPES) if operand == "fp8" else operand for _ in "ab")
    return (first, second), operand == "fp8" and builder.chance(0.4)


def _hopper_products(
    builder: Builder,
    dims: Sequence[Expr],
    types: tuple[Any, Any],
    is_fast: bool,
    factors: tuple[Factor, Factor],
    *,
    is_pair: bool,
) -> list[Node]:
    """One or two products of dims [.., M, N, K]; factors: what makes A and B."""
    *batch, m, n, k = dims

    def a() -> Node:
        return factors[0]((*batch, m, k), types[0])

    def b() -> Node:
        return factors[1]((*batch, k, n), types[1])

    first = a()
    c = _hopper_product(builder, first, b(), is_fast)
    if not is_pair:
        return [c]
    again = first if builder.chance(0.7) else a()
    other = _hopper_product(builder, again, b(), is_fast)
    if other.dims != c.dims:
        raise Untenable("products of other dims")
    return [c, other]


def _hopper_epilogue(
    builder: Builder, products: Sequence[Node], shape: str
) -> tuple[list[Node], list[Node]]:
    """Nodes of the products' dims (and reductions that they use), and those of the exit."""
    after = _followed(builder, products, pick(builder.rng, {0: 2, 1: 3, 2: 3, 3: 1}))
    if shape == "pair":
        # One operation that needs both.
        after.append(_retried(builder, lambda: _both(builder, products)))
    if shape == "row":
        after += _normalized(builder, after)
    return after, _exits(builder, after) if shape == "exit" else []


def _hopper_product(builder: Builder, a: Node, b: Node, is_fast: bool) -> Node:
    whole = (*broadcast_dims([a.dims[:-2], b.dims[:-2]]), a.dims[-2], b.dims[-1])
    if builder.count(whole) > 2 * MAX_ELEMENTS:
        raise Untenable("size")
    compute = dtypes.fast_float_for_fp8 if is_fast else dtypes.f32
    if b.dtype == dtypes.i8:
        compute = dtypes.i32
    sketch = builder._matmul_sketch(a, b)
    made = builder.g.matmul(builder.realize(a), builder.realize(b), compute_data_type=compute)
    is_integer = b.dtype == dtypes.i8 and builder.chance(0.7)
    result = dtypes.i32 if is_integer else builder.result_type(sketch)
    node = builder.finished(made, result, whole, sketch, [a, b])
    node.has_sum = True
    return node


def _both(builder: Builder, products: Sequence[Node]) -> Node:
    """A pointwise operation of two products."""
    first, second = products
    made = builder.pointwise(first, dims=first.dims, accept=lambda node: node is second)
    if not second.uses:
        raise Untenable("one product is not needed")
    return made


def _normalized(builder: Builder, after: Sequence[Node]) -> list[Node]:
    """A reduction of the rows of a node, and pointwise operations of full dims that use it."""
    source = pick(builder.rng, after)
    axis = source.rank - 1
    total = _retried(builder, lambda: builder.reduction(source, axes=[axis], trivial=False))

    def fits(node: Node) -> bool:
        return node is total

    made = _retried(builder, lambda: builder.pointwise(source, dims=source.dims, accept=fits))
    if not total.uses:
        raise Untenable("the reduction is not needed")
    return [total, made, *_followed(builder, [made], pick(builder.rng, {0: 3, 1: 2}))[1:]]


def _exits(builder: Builder, after: Sequence[Node]) -> list[Node]:
    """One or two reductions of nodes of the product's dims, maybe a pointwise operation after."""
    found: list[Node] = []
    for _ in range(pick(builder.rng, {1: 4, 2: 1})):
        source = pick(builder.rng, after)
        axes = builder.axes(source)
        total = _retried(
            builder, lambda s=source, a=axes: builder.reduction(s, axes=a, trivial=False)
        )
        found.append(total)
        if builder.chance(0.3):
            found += _followed(builder, [total], 1, reads=True)[1:]
    return found


# ---- packed boolean outputs of matmul_sm90

_MASKING = {"comparison": 12, "logic": 2, "binary": 1, "unary": 1, "activation": 1, "select": 1}
_BYTE = 8  # elements


def _inside_bits(builder: Builder, seed: int) -> Drawn:
    """As inside matmul_sm90's, with masks of the product's dims beside other outputs or alone."""
    rng = builder.rng
    builder.most = MOST_OF_TILES
    shape = pick(rng, {"pointwise": 5, "pair": 2, "row": 2, "exit": 2})
    # What lies along the instruction's columns has whole bytes; a row that flows on is along them.
    axis = -1 if shape == "row" or builder.chance(0.7) else -2
    types, is_fast = _hopper_types(builder)
    batch = builder.dims(pick(rng, {1: 5, 2: 2}), 4) if builder.chance(0.6) else ()
    m, n = (_extent_of_bytes(builder) if at == axis else _side(builder) for at in (-2, -1))
    if shape == "row" and n.bounds()[1] > MOST_REDUCED:
        raise Untenable("a row too long for a tile")
    whole_dims, factors = (*batch, m, n, _depth(builder)), _tiled_factors(builder)
    products = _hopper_products(
        builder, whole_dims, types, is_fast, factors, is_pair=shape == "pair"
    )
    after, ends = _hopper_epilogue(builder, products, shape)
    masks = _masks(builder, [node for node in after if node.dims == products[0].dims])
    outputs = [n for n in (*after, *masks, *ends) if not n.uses or builder.chance(0.2)]
    if not _pack_booleans(builder, outputs, products[0].dims, axis):
        raise Untenable("every mask is used")
    builder.set_outputs(outputs)
    return builder.drawn(seed, "matmul_sm90")


def _extent_of_bytes(builder: Builder) -> Expr:
    """A size of whole bytes of booleans."""
    symbols = [s for s in builder.symbols if Expr.of(s).known_divisor() % _BYTE == 0]
    if symbols and builder.chance(0.5):
        return Expr.of(pick(builder.rng, symbols))
    return Expr.of(_BYTE * int(builder.rng.integers(1, pick(builder.rng, {6: 2, 18: 1}))))


def _masks(builder: Builder, sources: Sequence[Node]) -> list[Node]:
    """One or two boolean nodes, and maybe one that uses the first."""
    dims = sources[0].dims
    found: list[Node] = []

    def fits(node: Node) -> bool:
        return node in sources or (not node.has_sum and broadcasts(node.dims, dims, False))

    for _ in range(pick(builder.rng, {1: 3, 2: 1})):
        source = pick(builder.rng, sources)
        made = _retried(
            builder,
            lambda s=source: builder.pointwise(
                s, dims=dims, result=dtypes.i1, accept=fits, groups=_MASKING
            ),
        )
        found.append(made)
    return _followed(builder, found, 1) if builder.chance(0.2) else found


def _pack_booleans(
    builder: Builder, outputs: Sequence[Node], dims: Sequence[Expr], axis: int
) -> bool:
    """Boolean outputs get strides that are whole bytes, the axis contiguous; whether any does."""
    booleans = [node for node in outputs if node.dtype.kind == "b"]
    if any(node.dims != tuple(dims) for node in booleans):
        raise Untenable("a boolean output of a reduction")
    for node in booleans:
        node.tensor.set_stride(_strides_of_bytes(builder, dims, axis % len(dims)))
    return bool(booleans)


def _strides_of_bytes(builder: Builder, dims: Sequence[Expr], axis: int) -> list[Expr]:
    others = [other for other in range(len(dims)) if other != axis]
    if builder.chance(0.2):
        others = [int(at) for at in builder.rng.permutation(others)]
    found = [Expr.of(1)] * len(dims)
    running = dims[axis]
    for other in reversed(others):
        running = running + pick(builder.rng, {0: 6, _BYTE: 1, 3 * _BYTE: 1})
        found[other] = running
        running = running * dims[other]
    return found


# ---- what fills tiles of Hopper's

MOST_OF_TILES = 24_000  # elements of a computed operand or of a product
MOST_REDUCED = 128  # columns of a tile of every knob that the tests draw


def _side(builder: Builder) -> Expr:
    """M or N: a part of a tile, about one, or several."""
    if builder.symbols and builder.chance(0.3):
        return Expr.of(pick(builder.rng, builder.symbols))
    low, high = pick(builder.rng, {(1, 16): 2, (17, 70): 3, (71, 200): 2})
    return Expr.of(int(builder.rng.integers(low, high + 1)))


def _depth(builder: Builder) -> Expr:
    """K, of aligned rows more often than not."""
    if builder.chance(0.65):
        return Expr.of(16 * int(builder.rng.integers(1, pick(builder.rng, {10: 3, 17: 1}))))
    return Expr.of(builder.extent(150))


def _tiled_factors(builder: Builder, *, whole: bool = False) -> tuple[Factor, Factor]:
    """Functions that make A and B; whole: no batch of theirs is broadcast.

    Now and then, of such as consumers can compute in their registers: one comes by TMA, the
    other is computed of narrow elements that do, with k contiguous.
    """
    kinds = pick(builder.rng, {("", ""): 5, ("raw", "tma"): 2, ("tma", "raw"): 2})

    def a(dims: Sequence[Expr], dtype: Any) -> Node:
        return _tiled_factor(builder, dims, dtype, kinds[0], len(dims) - 1, whole)

    def b(dims: Sequence[Expr], dtype: Any) -> Node:
        return _tiled_factor(builder, dims, dtype, kinds[1], len(dims) - 2, whole)

    return a, b


def _tiled_factor(
    builder: Builder, dims: Sequence[Expr], dtype: Any, kind: str, k_axis: int, whole: bool
) -> Node:
    """An operand of a product, in the layouts and with the work before it that paths are for.

    kind: "tma": an aligned input; "raw": computed of one, k contiguous; "": any operand.
    """
    work = {"tma": "input", "raw": "computed"}.get(kind)
    work = work or pick(builder.rng, {"input": 4, "computed": 5, "any": 2})
    if work == "any":
        return _factor_inside(builder, dims, dtype, whole=whole)
    dims = [
        Expr.of(1) if not whole and axis < len(dims) - 2 and builder.chance(0.2) else n
        for axis, n in enumerate(dims)
    ]
    if work == "input":
        return _tiled_input(builder, dims, dtype, kind, k_axis)
    read = dtype
    if builder.chance(0.75):
        narrow = (dtypes.i8, dtypes.f16, dtypes.bf16, *F8_TYPES)
        read = pick(builder.rng, narrow if kind else (*narrow, dtypes.f32))
    source = _tiled_input(builder, dims, read, kind, k_axis)

    def fits(node: Node) -> bool:
        return not node.has_sum and broadcasts(node.dims, dims, False)

    return _retried(
        builder, lambda: builder.pointwise(source, dims=dims, result=dtype, accept=fits)
    )


def _tiled_input(
    builder: Builder, dims: Sequence[Expr], dtype: Any, kind: str, k_axis: int
) -> Node:
    """With k contiguous, or the matrix's other axis, or of any layout."""
    made = builder.input(dims, dtype)
    order = [axis for axis in range(len(dims)) if axis != k_axis]
    layouts = [packed_strides(dims, [*order, k_axis])] * 5
    if kind != "raw":
        layouts += [packed_strides(dims, [*order[:-1], k_axis, order[-1]])] * 3
    if not kind:
        layouts += [made.strides] * 2
    made.strides = pick(builder.rng, layouts)
    made.alignment = 16 if kind else 0
    return made


# ---- grouped products


def _inside_grouped(builder: Builder, seed: int) -> Drawn:
    """One product of experts, or two of the same offsets, pointwise operations before and after
    it; now and then masks among the outputs."""
    rng = builder.rng
    builder.most = MOST_OF_TILES
    operand = pick(rng, {dtypes.f16: 4, dtypes.bf16: 4, dtypes.f32: 2, "fp8": 3})
    types = tuple(pick(rng, F8_TYPES) if operand == "fp8" else operand for _ in "ab")
    rows, experts, k = _tokens(builder), _experts(builder), _depth(builder)
    has_masks = builder.chance(0.3)
    n = _extent_of_bytes(builder) if has_masks else _side(builder)
    first, source = _offsets(builder, experts, rows)
    a, b = _tiled_factors(builder, whole=True)
    token = a((Expr.of(1), rows, k), types[0])
    products = [_grouped_product(builder, token, b((experts, k, n), types[1]), first)]
    if is_pair := builder.chance(0.25):
        again = token if builder.chance(0.75) else a((Expr.of(1), rows, k), types[0])
        products.append(_grouped_product(builder, again, b((experts, k, n), types[1]), first))
    op = next(op for op in builder.g.graph.ops if products[0].tensor in op.results)
    builder.styles[source.tensor] = Offsets(op, pick(rng, {1: 5, 16: 1, 64: 1}))
    after, _ = _hopper_epilogue(builder, products, "pair" if is_pair else "pointwise")
    masks = _masks(builder, after) if has_masks else []
    outputs = [node for node in (*after, *masks) if not node.uses or builder.chance(0.2)]
    if not has_masks and any(node.dtype.kind == "b" for node in outputs):
        raise Untenable("a boolean output")
    _pack_booleans(builder, outputs, products[0].dims, -1)
    builder.set_outputs(outputs)
    return builder.drawn(seed, "matmul_sm90")


def _tokens(builder: Builder) -> Expr:
    """Rows of all experts: parts of a tile, or tiles; a symbol now and then."""
    low, high = pick(builder.rng, {(1, 16): 2, (17, 70): 2, (71, 200): 2})
    count = int(builder.rng.integers(low, high + 1))
    if not builder.chance(0.35):
        return Expr.of(count)
    builder.sizes["R"] = count
    return Expr.of(dnnc.Dim("R", max=pick(builder.rng, {512: 1, 4096: 1})))


def _experts(builder: Builder) -> Expr:
    count = int(builder.rng.integers(1, pick(builder.rng, {4: 4, 9: 4, 40: 1})))
    if not builder.chance(0.25):
        return Expr.of(count)
    builder.sizes["E"] = count
    return Expr.of(dnnc.Dim("E", max=pick(builder.rng, {64: 1, 1024: 1})))


def _offsets(builder: Builder, experts: Expr, rows: Expr) -> tuple[Node, Node]:
    """The offsets of experts, and the input that they come from: itself, or behind operations."""
    dims = (experts, Expr.of(1), Expr.of(1))
    steps = pick(builder.rng, {"none": 6, "cast": 1, "shift": 1})
    kind = pick(builder.rng, (dtypes.i64, dtypes.f32)) if steps == "cast" else dtypes.i32
    source = builder.input(dims, kind, Style(0, builder.value_of(rows), 1))
    source.strides = sizes(pick(builder.rng, ((1, 1, 1), (1, 1, 1), (3, 1, 1), (1, 7, 5))))
    tensor, g = builder.realize(source), builder.g
    if steps == "none":
        return source, source
    if steps == "cast":
        made = g.identity(tensor, compute_data_type=dtypes.f32)
    else:
        made = g.add(tensor, 3, compute_data_type=dtypes.i32).set_data_type(dtypes.i32)
        made = g.sub(made, 3, compute_data_type=dtypes.i32)
    return builder.finished(made, dtypes.i32, dims, source.sketch, [source]), source


def _grouped_product(builder: Builder, token: Node, weight: Node, first: Node) -> Node:
    dims = (Expr.of(1), token.dims[1], weight.dims[2])
    if builder.count(dims) > MOST_OF_TILES:
        raise Untenable("size")
    sketch = builder._matmul_sketch(token, weight)
    tensors = [builder.realize(node) for node in (token, weight, first)]
    made = builder.g.moe_grouped_matmul(*tensors, compute_data_type=dtypes.f32)
    node = builder.finished(made, builder.result_type(sketch), dims, sketch, [token, weight])
    node.has_sum = True
    return node


INSIDE: dict[str, Callable[[Builder, int], Drawn]] = {
    "pointwise": _inside_pointwise,
    "reduction": _inside_reduction,
    "matmul_sm80": _inside_matmul,
    "fallback": _inside_fallback,
    "matmul_sm90": _inside_hopper,
    "grouped": _inside_grouped,
    "bits": _inside_bits,
}
# Those that take every target.
EVERYWHERE = ("pointwise", "reduction", "matmul_sm80", "fallback")


# ---- as text


def describe(drawn: Drawn) -> str:
    """One line an input, then one an operation; uids where they are assigned."""
    graph = drawn.graph
    names = {tensor: f"%{i}" for i, tensor in enumerate(graph.tensors)}

    def text(tensor: Tensor) -> str:
        if tensor.is_constant:
            return f"{tensor.value!r}:{tensor.dtype}"
        return names[tensor]

    def kind(tensor: Tensor) -> str:
        dims = ",".join(map(str, tensor.dims or ()))
        strides = ",".join(map(str, tensor.strides or ()))
        extra = "" if tensor.alignment == 16 else f" align {tensor.alignment}"
        extra += "" if tensor.is_virtual or tensor in inputs else " -> output"
        extra += f" by value {tensor.value!r}" if tensor.is_by_value else ""
        return f"{tensor.dtype}[{dims}] strides [{strides}]{extra}"

    inputs = set(graph.inputs)
    lines = [f"seed {drawn.seed} {drawn.engine}".rstrip() + f" sizes {drawn.sizes}"]
    lines[0] += " specials" if drawn.specials else ""
    for dim in graph.symbols.values():
        lines.append(f"  {dim!r}")
    for tensor in graph.inputs:
        lines.append(f"  {text(tensor)} = {kind(tensor)} {drawn.styles.get(tensor)}")
    for op in graph.ops:
        left = ", ".join(text(t) for t in op.results)
        attributes = ", ".join(
            f"{name}={value}" for name, value in op.attributes().items() if name != "mode"
        )
        right = ", ".join(text(t) for t in op.operands)
        kinds = "; ".join(kind(t) for t in op.results)
        lines.append(f"  {left} = {op.title}({right}) {{{attributes}}} : {kinds}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    seed, kind = int(arguments[0]), arguments[1] if len(arguments) > 1 else ""
    if kind == "broken":
        from .random_broken import draw_broken

        print(draw_broken(seed).description)
        return
    print(describe(draw_inside(seed, kind) if kind else draw(seed)))


if __name__ == "__main__":
    main(sys.argv[1:])
