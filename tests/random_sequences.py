"""Lengths of random attention: rows that are looked up, in packed sequences and in caches in pages,
and rows in place.

`Sequences` are the lengths of one side, queries or keys, `Padding` those of both sides in place.
What lies past them in memory, and in blocks that nobody has, is no number.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

import numpy as np

from dnnc.expr import Expr, ceildiv

PAGES = (8, 16, 16, 32, 64, 128)
_SMALL_PAGES = (1, 2, 4)
_GARBAGE = -12345  # in a table, past a length


class Drawing(Protocol):
    """The members that `Sequences` uses of the graph that grows."""

    g: Any
    random: Random
    sizes: dict[str, int]
    values: dict[str, Callable[[Any, tuple[int, ...]], Any]]

    def numbers(self, name: str) -> Callable[[Any, tuple[int, ...]], Any]: ...

    def chance(self, share: float) -> bool: ...

    def tensor(self, dims: list[Any], name: str = "", dtype: Any = None) -> Any: ...

    def strides(self, dims: list[Any]) -> list[Any]: ...


class Sequences:
    """name: of the side.  batch, most: entries, and rows of each, as the graph has them; count,
    size: these numbers."""

    def __init__(self, p: Drawing, name: str, batch: Any, count: int, most: Any, size: int):
        self.p, self.name, self.batch, self.most = p, name, batch, most
        draw = p.random
        self.lengths = [draw.choice((size, draw.randint(0, size), 0, 1)) for _ in range(count)]
        self.size = size
        self.tensor = self._integers([batch, 1, 1, 1], "lengths", self.lengths)
        gap = draw.choice((0, 0, 3))
        ends = np.cumsum([gap, *self.lengths])
        self.firsts = [int(end) for end in ends]
        self.total = max(1, self.firsts[-1] + draw.choice((0, 0, 5)))
        self.rows = self._symbol()

    def _integers(self, dims: list[Any], kind: str, numbers: Any) -> Any:
        made = self.p.g.tensor(dims, name=f"{self.name}_{kind}", data_type="INT32")
        self.p.values[made.get_name()] = lambda rng, shape: np.reshape(numbers, shape)
        return made

    def _symbol(self) -> Any:
        """The rows of all sequences, as a symbol now and then."""
        if not self.p.chance(0.2):
            return self.total
        import dnnc

        self.p.sizes[f"t{self.name}"] = self.total
        return dnnc.Dim(f"t{self.name}", max=max(self.total, 4096))

    # ---- packed

    def loaded(self, heads: Any, elements: int, name: str, dtype: Any) -> Any:
        """[batch, heads, most, elements] of rows that lie one after the other."""
        p = self.p
        memory = p.tensor([1, heads, self.rows, elements], name, dtype)
        used = np.zeros((1, 1, self.total, 1), bool)
        for first, length in zip(self.firsts, self.lengths, strict=False):
            used[0, 0, first : first + length] = True
        p.values[name] = _where(used, p.numbers(name))
        offset = self._offset(memory, name)
        made = p.g.ragged_load(memory, offset, self.tensor)
        return made.set_dim([self.batch, heads, self.most, elements])

    def stored(self, x: Any, heads: Any, elements: int, name: str) -> Any:
        """The tensor x, packed and stored as an output."""
        dims = [1, heads, self.rows, elements]
        strides = self.p.strides(dims)
        offset = self._offset_of(strides[2], name)
        made = self.p.g.ragged_store(x, offset, self.tensor).set_dim(dims)
        return made.set_stride(strides)

    def _offset(self, memory: Any, name: str) -> Any:
        return self._offset_of(memory.get_stride()[2], name)

    def _offset_of(self, row: Any, name: str) -> Any:
        pitch = Expr.of(row).evaluate(self.p.sizes)
        numbers = [first * pitch for first in self.firsts]
        dims = [self.batch + 1, 1, 1, 1]
        made = self.p.g.tensor(dims, name=f"{name}_offset", data_type="INT32")
        self.p.values[made.get_name()] = lambda rng, shape: np.reshape(numbers, shape)
        return made

    # ---- in pages

    def paged(self, heads: Any, elements: int, name: str, dtype: Any, *, any_size: bool) -> Any:
        """[batch, heads, most, elements] of blocks that a table names; several may name one.

        any_size: whether blocks of a few rows are drawn, too.
        """
        p = self.p
        size = p.random.choice((*PAGES, *_SMALL_PAGES) if any_size else PAGES)
        pages = -(-self.size // size)
        blocks = p.random.choice((1, p.random.randint(1, len(self.lengths) * pages + 2)))
        memory = p.tensor([blocks, heads, size, elements], name, dtype)
        table = np.full((len(self.lengths), pages), _GARBAGE)
        used = np.zeros((blocks, 1, size, 1), bool)
        for entry, length in enumerate(self.lengths):
            for first in range(0, length, size):
                block = p.random.randrange(blocks)
                table[entry, first // size] = block
                used[block, 0, : length - first] = True
        p.values[name] = _where(used, p.numbers(name))
        dims = [self.batch, 1, ceildiv(self.most, size), 1]
        named = p.g.tensor(dims, name=f"{name}_table", data_type="INT32")
        p.values[named.get_name()] = lambda rng, shape: np.reshape(table, shape)
        made = p.g.paged_cache_load(memory, self.tensor, named)
        return made.set_dim([self.batch, heads, self.most, elements])


class Padding:
    """Lengths of queries and keys that lie in place.

    random: not that of the other draws, which are the same without lengths.  batch: the first axis
    of queries, keys and values, 1 if they have different ones; count: this number.
    """

    def __init__(self, p: Any, random: Random, batch: Any, count: int):
        self.p = p
        self.inside: list[Any] = []
        self.rows, self.keys = (
            [random.choice((size, random.randint(0, size), 1)) for _ in range(count)]
            for size in (p.queries, p.keys)
        )
        dims = [batch, *[1] * (len(p.dims) - 1)]
        self.tensors = []
        for name, lengths in (("rows", self.rows), ("keys", self.keys)):
            tensor = p.g.tensor(dims, name=f"{name}_in_use", data_type="INT32")
            p.values[tensor.get_name()] = lambda rng, shape, lengths=lengths: np.reshape(
                lengths, shape
            )
            self.tensors.append(tensor)

    def cut(self, v: Any, dtype: str) -> Any:
        """Values that are zeros past the lengths."""
        p = self.p
        is_there = p.integer("cmp_lt", p.index(v, len(p.dims) - 2), self.tensors[1])
        return p.g.binary_select(v, 0.0, is_there).set_data_type(dtype)

    def masked(self, s: Any) -> Any:
        """-inf past the lengths."""
        p, (rows, keys) = self.p, self.tensors
        self.inside = [p.integer("cmp_lt", p.column(s), keys), p.integer("cmp_lt", p.row(s), rows)]
        return p.masked(s, p.both(*self.inside))

    def weights(self, share: Any) -> Any:
        """Weights that are zeros past the lengths, whatever they were multiplied by."""
        for condition in self.inside:
            share = self.p.g.binary_select(share, 0.0, condition)
        return share

    def spoil(self, name: str, rows: int | None = None, keys: int | None = None) -> None:
        """Has no numbers past the lengths in an input, along its axes of rows and of keys."""
        drawn = self.p.values.get(name) or self.p.numbers(name)
        sides = [(rows, self.rows), (keys, self.keys)]

        def values(rng: Any, shape: tuple[int, ...]) -> Any:
            found = np.array(drawn(rng, shape), float)
            for axis, lengths in sides:
                if axis is None or shape[axis] == 1:
                    continue
                along = np.moveaxis(found, axis, 1)  # [batch, rows, ...]
                if shape[0] != len(lengths):
                    along[:, max(lengths) :] = np.nan
                    continue
                for entry, length in enumerate(lengths):
                    along[entry, length:] = np.nan
            return found

        self.p.values[name] = values


def _where(
    used: Any, numbers: Callable[[Any, tuple[int, ...]], Any]
) -> Callable[[Any, tuple[int, ...]], Any]:
    """Numbers in rows that are used, none in others."""
    return lambda rng, shape: np.where(used, numbers(rng, shape), np.nan)
