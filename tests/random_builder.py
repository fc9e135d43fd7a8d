"""Draws the operations of a random graph, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dnnc import dtypes
from dnnc.dialect.ops import Pointwise
from dnnc.dialect.ops.reduction import BY_NAME as REDUCTIONS
from dnnc.dialect.ops.reduction import INDEXED_MODES
from dnnc.dialect.pointwise_modes import MODES, Mode
from dnnc.dialect.tensor import Tensor, dense_order, packed_strides
from dnnc.expr import Expr, product
from dnnc.rounding import to_int32_wrapped
from tests.random_nodes import MAX_ELEMENTS, SAMPLES, Drawn, Node, Nodes, Untenable, pick

MAX_TERMS = 200_000  # multiply-adds of one matrix product
LARGEST = 2.0e3  # of a tame value
FLOATS = (dtypes.f32, dtypes.f16, dtypes.bf16, dtypes.f64)
F8_TYPES = (dtypes.f8e4m3, dtypes.f8e5m2)

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


class Builder(Nodes):
    """Draws a graph operation by operation."""

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
