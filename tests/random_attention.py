"""Random attention of what its engines take: `draw(random, most, heads)`.

Any numbers of queries and keys, heads of every size, groups that share keys and others that share
values, layouts with gaps, sizes that are symbols; scores that are scaled by numbers of any sign,
capped, biased with every broadcast, masked by conditions joined by and, or, not; queries or keys
times a number; a sink; dropout of a seed or by a mask; work on weights and on the result, several
outputs, statistics of rows, weights that are stored; lengths of sequences in place, packed, and in
caches in pages, past which queries, keys, values and biases are no numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

import dnnc
from dnnc import dtypes
from tests.attention_graphs import LOW
from tests.random_conditions import drawn_condition
from tests.random_sequences import Padding, Sequences
from tests.random_tensors import Tensors
from tests.support.checked import random_inputs

TYPES = ("f16", "bf16")
HEADS = (8, 16, 24, 40, 64, 64, 72, 80, 96, 128, 128, 136, 192, 256)
_LENGTHS = (1, 2, 3, 7, 16, 33, 63, 64, 65, 100, 127, 128, 129, 150, 192, 200, 257)
_BATCHES = ([2], [1, 2], [2, 3], [1, 4], [2, 2], [3, 1], [1, 2, 2])
_SPREADS = (0.25, 1.0, 1.0, 1.0, 6.0)  # standard deviations of scores, about
_TANH_ERROR = 2.6e-6  # absolute, of scores' (docs/numerics.md)
_EXPONENT_ERROR = 2.0**-22  # of a product's sum, and of a distance, of the largest term


@dataclass
class Drawn:
    """A graph.  sizes: of its symbols.  values: name of an input -> what draws it.  error: of a
    score, absolute.  weights: the type that weights are rounded to, the coarser one where the graph
    and a kernel each do.  rows: statistics.  has_few_values: whether most values may be zeros, so
    that roundings of weights do not even out.  loses: whether all of a row may be clipped, or its
    weights rounded to nothing."""

    graph: Any
    sizes: dict[str, int]
    values: dict[str, Callable[[Any, tuple[int, ...]], Any]]
    error: float
    weights: Any
    rows: list[Any] = field(default_factory=list)
    has_few_values: bool = False
    loses: bool = False

    @property
    def statistics(self) -> set[int]:
        """The uids of statistics of rows, once the graph is finalized."""
        return {tensor.get_uid() for tensor in self.rows}

    def inputs(self, seed: int) -> dict[int, Any]:
        """uid -> array."""
        graph = self.graph.graph.finalize()
        found = random_inputs(graph, self.sizes, seed)
        rng = np.random.default_rng(seed)
        for tensor in graph.inputs:
            if tensor.name in self.values:
                array = self.values[tensor.name](rng, np.shape(found[tensor.uid]))
                with np.errstate(over="ignore"):  # what is large is infinite in f16
                    found[tensor.uid] = np.asarray(array).astype(found[tensor.uid].dtype)
        return found


def draw(random: Random, most: int, heads: int = 6, *, keeps: bool = False) -> Drawn:
    """most: queries, or keys, of a head.  heads: of all entries of the batch, at most.  keeps:
    whether weights may be outputs."""
    return Attention(random, most, heads, keeps).drawn()


class Attention(Tensors):
    """A graph as it grows."""

    def __init__(self, random: Random, most: int, heads: int, keeps: bool):
        super().__init__(random)
        self.loses = False
        self.keeps = keeps
        self.error_of_caps = 0.0
        self.io = random.choice(TYPES)
        self.value_type = random.choice((self.io, self.io, self.io, *TYPES))
        self.operand_type, self.products = self.io, "f32"
        self.depth, self.width = random.choice(HEADS), random.choice(HEADS)
        if random.random() < 0.6:
            self.width = self.depth
        self.queries, self.keys = self._length(most), self._length(most)
        if random.random() < 0.3:
            self.keys = self.queries
        self.batch = random.choice([dims for dims in _BATCHES if math.prod(dims) <= heads])
        self.g = dnnc.pygraph(
            "attention", io_data_type=self.io, intermediate_data_type="f32",
            compute_data_type="f32",
        )  # fmt: skip
        self.spread = random.choice(_SPREADS)

    def _length(self, most: int) -> int:
        if self.random.random() < 0.6:
            return self.random.choice([n for n in _LENGTHS if n <= most])
        return round(math.exp(self.random.uniform(0, math.log(most))))

    def drawn(self) -> Drawn:
        groups = [self._group() for _ in range(2)]
        # Of an axis of which several heads share an entry, the size is known.
        is_fixed = [any(own[axis] != n for own in groups) for axis, n in enumerate(self.batch)]
        batch = [
            n if fixed else self._symbol(name, n)
            for name, n, fixed in zip("bhg", self.batch, is_fixed, strict=False)
        ]
        shared = [
            [own[axis] if fixed else batch[axis] for axis, fixed in enumerate(is_fixed)]
            for own in groups
        ]
        rows = self._symbol("sq", self.queries)
        is_same = self.keys == self.queries and self.keys > 1
        columns = rows if is_same else self._symbol("skv", self.keys)
        self.dims = (*batch, rows, columns)
        self.q_rows, self.k_rows, self.are_paged = self._sequences(batch, rows, columns)
        if self.k_rows is not None:  # each entry of the batch has keys of its own
            for own in shared:
                own[0] = batch[0]
        self.padding = self._padding(batch[0], shared)
        product = self._scores_of(batch, shared[0], rows, columns)
        self.v = self._keys([*shared[1], columns, self.width], "v", self.value_type)
        if self.padding is not None:
            self.v = self.padding.cut(self.v, self.value_type)
            self.padding.spoil("v", keys=-2)
        self._attend(self._modified(self._scaled(product)))
        error = 8 * _EXPONENT_ERROR * self.spread * math.sqrt(self.depth) + self.error_of_caps
        found = Drawn(self.g, self.sizes, self.values, error, dtypes.of(self.weight_type))
        found.has_few_values = self.k_rows is not None or self.padding is not None
        found.rows, found.loses = self.rows, self.loses
        return found

    @property
    def weight_type(self) -> str:
        return self.value_type

    def _sequences(
        self, batch: list[Any], rows: Any, columns: Any
    ) -> tuple[Sequences | None, Sequences | None, bool]:
        """(of packed queries, of keys, whether these lie in pages); None: in place."""
        kind = self.random.choice(("packed", "paged", "both", "", "", "", "", ""))
        if len(batch) != 2 or not kind:
            return None, None, False
        of_queries = None
        if kind != "paged":
            of_queries = Sequences(self, "q", batch[0], self.batch[0], rows, self.queries)
        of_keys = Sequences(self, "k", batch[0], self.batch[0], columns, self.keys)
        return of_queries, of_keys, kind != "packed"

    def _padding(self, batch: Any, shared: list[list[Any]]) -> Padding | None:
        """Lengths of sequences in place; None: all are as long."""
        sizes = (self.batch, self.queries, self.keys, self.depth, self.width)
        aside = Random(str(sizes))
        if self.q_rows is not None or self.k_rows is not None or aside.random() < 0.5:
            return None
        is_own = all(own[0] == batch for own in shared)
        count = self.batch[0] if is_own else 1
        return Padding(self, aside, batch if is_own else 1, count)

    # ---- tensors

    def _symbol(self, name: str, size: int) -> Any:
        # Of one key that is always one, Hopper's kernel is none.
        if not self.chance(0.2) and (self.keeps or (name, size) != ("skv", 1)):
            return size
        self.sizes[name] = size
        multiple = 8 if size % 8 == 0 and self.chance(0.5) else 1
        most = 4096 if name.startswith("s") else 64
        return dnnc.Dim(name, min=multiple, max=max(size, most), multiple_of=multiple)

    def _group(self) -> list[int]:
        """The batch dims of keys, or of values."""
        if self.chance(0.6):
            return list(self.batch)
        return [
            self.random.choice([n for n in range(1, whole + 1) if whole % n == 0])
            for whole in self.batch
        ]

    # ---- scores

    def _scores_of(self, batch: list[Any], shared: list[Any], rows: Any, columns: Any) -> Any:
        g, rank = self.g, len(self.dims)
        kind = {"dtype": self.operand_type}
        if self.q_rows is None:
            self.q = self.tensor([*batch, rows, self.depth], "q", **kind)
        else:
            self.q = self.q_rows.loaded(batch[1], self.depth, "q", self.operand_type)
        if self.padding is not None:
            self.padding.spoil("q", rows=-2)
        if self.k_rows is None and self.chance(0.2):
            transposed = self.tensor(
                [*shared, self.depth, columns], "k", is_transposed=True, **kind
            )
            if self.padding is not None:
                self.padding.spoil("k", keys=-1)
            return self._product(self._multiple(self.q), self._multiple(transposed))
        self.k = self._keys([*shared, columns, self.depth], "k", self.operand_type)
        if self.padding is not None:
            self.padding.spoil("k", keys=-2)
        transposed = g.transpose(self._multiple(self.k), [*range(rank - 2), rank - 1, rank - 2])
        return self._product(self._multiple(self.q), self._multiple(transposed))

    def _keys(self, dims: list[Any], name: str, dtype: Any) -> Any:
        """Keys or values, wherever they lie."""
        if self.k_rows is None or self.chance(0.1):
            return self.tensor(dims, name, dtype)
        if self.are_paged:
            return self.k_rows.paged(dims[1], dims[3], name, dtype, any_size=self.keeps)
        return self.k_rows.loaded(dims[1], dims[3], name, dtype)

    def numbers(self, name: str) -> Callable[[Any, tuple[int, ...]], Any]:
        """A function that draws the queries, keys or values of that name."""
        return lambda rng, shape: rng.uniform(-2, 2, shape)

    def _product(self, a: Any, b: Any) -> Any:
        return self.g.matmul(a, b, compute_data_type=self.products)

    def _multiple(self, x: Any) -> Any:
        """Times a power of two, so that it is not rounded, now and then."""
        if not self.chance(0.05):
            return x
        number = self.random.choice((0.5, -0.5, -1.0))
        factor: Any = number
        if self.chance(0.5):
            factor = self.g.tensor([1] * len(self.dims), name=self.new_name(), data_type=self.io)
            self.values[factor.get_name()] = lambda rng, shape: np.full(shape, number)
        return self.g.mul(x, factor).set_data_type(self.random.choice((self.io, "f32")))

    def _size(self) -> float:
        """The magnitude of the scale."""
        return self.spread / (1.3 * math.sqrt(self.depth))

    def _scaled(self, s: Any) -> Any:
        """s times a number or tensor of any sign that leaves scores about as far apart as drawn."""
        sign = self.random.choice((1.0, 1.0, 1.0, -1.0))
        scale = sign * self._size()
        kind = self.random.choice(("number", "number", "number", "tensor", "heads", "by value"))
        if kind == "number":
            return self.g.mul(s, scale)
        if kind == "by value":
            made = self.g.tensor_scalar(scale, "RUNTIME_PARAM").set_name(self.new_name())
            self.values[made.get_name()] = lambda rng, shape: np.full(shape, scale)
            return self.g.mul(s, made)
        ones = [1] * len(self.dims)
        dims = [*self.dims[:-2], 1, 1] if kind == "heads" else ones
        made = self.g.tensor(dims, name=self.new_name(), data_type="f32")
        self.values[made.get_name()] = lambda rng, shape: scale * rng.choice([1, 1, -1, 0.5], shape)
        return self.g.mul(s, made)

    def _modified(self, s: Any) -> Any:
        steps = [self._capped, self._biased, self._slanted, self._hidden, self._hidden]
        self.random.shuffle(steps)
        for step in steps:
            if self.chance(0.35):
                s = step(s)
        if self.padding is not None:
            return self.padding.masked(s)
        return s if self.k_rows is None or self.chance(0.3) else self._ended(s)

    def _ended(self, s: Any) -> Any:
        """-inf past the sequences' ends."""
        assert self.k_rows is not None
        inside = self.integer("cmp_lt", self.column(s), self.k_rows.tensor)
        if self.q_rows is not None and self.chance(0.8):
            inside = self.both(inside, self.integer("cmp_lt", self.row(s), self.q_rows.tensor))
        return self.masked(s, inside)

    def _capped(self, s: Any) -> Any:
        cap = self.random.choice((2.0, 10.0, 50.0))
        self.error_of_caps = 2 * cap * _TANH_ERROR  # of a score, and of the largest
        return self.g.mul(self.g.tanh(self.g.mul(s, 1 / cap)), cap)

    def _biased(self, s: Any) -> Any:
        """s plus a tensor of any broadcast, some of whose elements are -inf, or nearly."""
        dtype = self.random.choice((self.io, "f32"))
        bias = self.tensor(self.broadcast(self.dims), dtype=dtype)
        share, low = self.random.choice((0.0, 0.0, 0.1, 0.6)), self.random.choice((LOW, -1e38))
        self.values[bias.get_name()] = lambda rng, shape: np.where(
            rng.random(shape) < share, low, self.biases(rng, shape)
        )
        if self.padding is not None:
            self.padding.spoil(bias.get_name(), -2, -1)
        return self.g.add(s, bias)

    def biases(self, rng: Any, shape: tuple[int, ...]) -> Any:
        return rng.uniform(-2, 2, shape)

    def _slanted(self, s: Any) -> Any:
        """Slopes times distances."""
        slopes = self.g.tensor([*self.dims[:-2], 1, 1], name=self.new_name(), data_type="f32")
        self.values[slopes.get_name()] = self.slopes
        distance = self.integer("sub", self.column(s), self.row(s))
        return self.g.add(s, self.g.mul(slopes, distance))

    def slopes(self, rng: Any, shape: tuple[int, ...]) -> Any:
        return rng.uniform(-8, 8, shape) / max(self.queries, self.keys)

    def _hidden(self, s: Any) -> Any:
        """-inf where a condition does not hold, or where it does."""
        condition = drawn_condition(self, s, self.random.choice((0, 0, 1, 2)))
        if self.chance(0.8):
            return self.masked(s, condition)
        return self.g.binary_select(self.random.choice((LOW, LOW, -1e30)), s, condition)

    # ---- the rest

    def _attend(self, s: Any) -> None:
        g, random = self.g, self.random
        self.m = self._rows(s, "max")
        is_guarded = self.chance(0.85)
        sink = self._sink() if self.chance(0.1) else None
        if sink is not None:
            self.m = g.max(self.m, sink)
        base = self.m
        if is_guarded:
            base = g.binary_select(0.0, self.m, self.flag(g.cmp_eq(self.m, LOW)))
        e = g.exp(g.sub(s, base))
        self.l = self._rows(e, "add")
        if sink is not None:
            self.l = g.add(self.l, g.exp(g.sub(sink, base)))
        share = self.share = random.choice(("mul", "mul", "div", "after"))
        p = self._weights(self._shared(e, share), s, is_guarded)
        if self.keeps and share != "after" and self.chance(0.3):
            dtype = self.random.choice((self.io, self.io, "f32"))
            stored = g.identity(p).set_output().set_data_type(dtype)
            stored.set_stride(self.strides(list(self.dims)))
        p = self._rounded(p)
        o = self._product(p, self.v)
        if share == "after":
            total = self.l
            if is_guarded:
                total = g.binary_select(1.0, total, self.flag(g.cmp_eq(total, 0.0)))
            o = g.div(o, total)
        self._after(o)
        self._statistics()

    def _sink(self) -> Any:
        """A score of each head that has no value."""
        dims = [*self.broadcast(self.dims[:-2]), 1, 1]
        made = self.g.tensor(dims, name=self.new_name(), data_type="f32")
        low = self.random.choice((LOW, 0.0))
        self.values[made.get_name()] = lambda rng, shape: np.where(
            rng.random(shape) < 0.2, low, self.sinks(rng, shape)
        )
        return made

    def sinks(self, rng: Any, shape: tuple[int, ...]) -> Any:
        return rng.uniform(-4, 4, shape)

    def _dropped(self, p: Any) -> Any:
        """Without those that a generator's numbers drop; the mask may be an output."""
        g, numbers = self.g, (self.random.randrange(1 << 40), self.random.randrange(99))
        keep = self.random.choice((0.5, 0.8))
        kept = g.rng(*numbers, "BERNOULLI", bernoulli_probability=keep, dim=list(self.dims))
        if self.chance(0.2):
            kept.set_output().set_data_type("f32").set_stride(self.strides(list(self.dims)))
        return g.mul(g.mul(p, kept), 1 / keep)

    def _rounded(self, p: Any) -> Any:
        chosen = self.random.choice((self.value_type, self.value_type, "f32"))
        return self.g.identity(p).set_data_type(chosen)

    def _weights(self, p: Any, s: Any, is_guarded: bool) -> Any:
        # The sum of a row without a guard may be NaN, which O is divided by though no weight of
        # the row is kept: docs/numerics.md.  So weights are selected where rows are guarded.
        if self.chance(0.2):
            mask = self.tensor(self.broadcast(self.dims), dtype=self.io)
            self.values[mask.get_name()] = lambda rng, shape: rng.random(shape) < 0.8
            p = self.g.mul(p, mask)
            if is_guarded and self.padding is not None:
                self.padding.spoil(mask.get_name(), -2, -1)
                p = self.padding.weights(p)
            p = self.g.mul(p, 1.25)
        elif self.chance(0.08):
            p = self._dropped(p)
        if is_guarded and self.chance(0.1):
            p = self.g.binary_select(p, 0.0, drawn_condition(self, s, 0))
        return p

    def _after(self, o: Any) -> None:
        """O, or what is made of it; some on the way are outputs too."""
        g, made = self.g, [self.g.identity(o)]
        dims = [*self.dims[:-1], self.width]
        for _ in range(self.random.choice((0, 0, 1, 2))):
            kind, value = self.random.choice(("gate", "add", "relu", "row")), made[-1]
            if kind == "gate":
                made.append(g.mul(value, g.sigmoid(self.tensor(self.broadcast(dims)))))
            elif kind == "add":
                made.append(g.add(value, self.tensor(self.broadcast(dims))))
            elif kind == "row":
                made.append(g.mul(value, self.tensor([*dims[:-1], 1])))
            else:
                made.append(g.relu(value))
                self.loses = True
        for place, value in enumerate(made):
            if place == len(made) - 1 or self.chance(0.3):
                dtype = self.random.choice((self.io, self.io, self.io, *TYPES, "f32"))
                if self.q_rows is not None and self.chance(0.8):
                    value.set_data_type(dtype)
                    stored = self.q_rows.stored(value, dims[1], dims[3], f"o{place}")
                    stored.set_output().set_data_type(dtype)
                else:
                    value.set_output().set_data_type(dtype).set_stride(self.strides(dims))

    def _statistics(self) -> None:
        g, m, total = self.g, self.m, self.l
        made = self.random.choice(
            (
                lambda: [],
                lambda: [g.add(m, g.log(total))],
                lambda: [g.add(g.log(total), m)],
                lambda: [g.mul(g.add(m, g.log(total)), math.log2(math.e))],
                lambda: [g.identity(m)],
                lambda: [g.identity(total)],
                lambda: [g.identity(m), g.identity(total), g.add(m, g.log(total))],
            )
        )()
        self.rows = [tensor.set_output().set_data_type("f32") for tensor in made]
