"""Nodes of random graphs: how their values, sizes, strides and types are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import dnnc
from dnnc import dtypes
from dnnc.dialect.ops import MoeGroupedMatmul
from dnnc.dialect.tensor import Tensor, packed_strides, sizes
from dnnc.expr import Expr, product
from dnnc.rounding import round_to, widen

SAMPLES = 64  # values of a sketch
MAX_ELEMENTS = 3000  # of one tensor: the interpreter runs every thread


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


class Nodes:
    """The sizes, inputs and results of a graph that is being drawn.

    nodes: results so far, and inputs that are in use.  types: of inputs.
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
        if not self._is_countable(dims):
            raise Untenable("too many elements")

    def _is_countable(self, dims: Sequence[Expr]) -> bool:
        """No size past 2**31, and no more elements in all than may be."""
        largest = product(dims).bounds()[1]
        return largest <= self.max_count and all(n.bounds()[1] < 1 << 31 for n in dims)

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
        assert self._is_countable(dims), "an operation whose dims were not asked about"
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
