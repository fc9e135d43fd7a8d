"""Conditions that hide scores of random attention: `drawn_condition(p, s, joints)`.

Diagonals, windows, edges, lengths, documents, masks in memory, as bits and of whole blocks, joined
by and, or, not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.random_tensors import Tensors


def drawn_condition(p: Tensors, s: Any, joints: int) -> Any:
    """A random condition on scores s.  joints: conditions that it joins, at most."""
    if joints == 0:
        return p.random.choice(_ATOMS)(p, s)
    kind = p.random.choice(("and", "and", "or", "or", "not"))
    if kind == "not":
        found = p.g.logical_not(drawn_condition(p, s, joints - 1), compute_data_type="BOOLEAN")
        return p.flag(found)
    join = p.both if kind == "and" else p.either
    return join(drawn_condition(p, s, joints - 1), drawn_condition(p, s, 0))


def _near(p: Tensors) -> int:
    """A shift for which a diagonal meets the scores, or just does not."""
    return p.random.randint(-p.queries - 2, p.keys + 2)


def _compared(p: Tensors, a: Any, b: Any, names: tuple[str, ...] = ("lt", "le", "gt", "ge")) -> Any:
    return p.integer(f"cmp_{p.random.choice(names)}", a, b)


def _diagonal(p: Tensors, s: Any) -> Any:
    shift = p.random.choice((0, 0, p.keys - p.queries, _near(p)))
    row = p.row(s)
    return _compared(p, p.column(s), p.integer("add", row, shift) if shift else row)


def _causal(p: Tensors, s: Any) -> Any:
    return p.integer("cmp_le", p.column(s), p.row(s))


def _window(p: Tensors, s: Any) -> Any:
    left, right = (p.random.randint(0, max(2, p.keys // 2)) for _ in range(2))
    row, column = p.row(s), p.column(s)
    low = p.integer("cmp_gt", column, p.integer("sub", row, left + 1))
    return p.both(low, p.integer("cmp_le", column, p.integer("add", row, right)))


def _edge(p: Tensors, s: Any) -> Any:
    """A comparison of columns, or of rows, with a number."""
    index, size = p.random.choice(((p.column, p.keys), (p.row, p.queries)))
    names = ("lt", "lt", "ge", "gt", "le", "eq", "neq")
    return _compared(p, index(s), p.random.randint(0, size), names)


def _counted(p: Tensors, s: Any) -> Any:
    """A comparison of columns, or of rows, with a number for each entry of the batch."""
    index, size = p.random.choice(((p.column, p.keys), (p.column, p.keys), (p.row, p.queries)))
    dims = [*p.broadcast(p.dims[:-2]), 1, 1]
    made = p.g.tensor(dims, name=p.new_name(), data_type="INT32")
    p.values[made.get_name()] = lambda rng, shape: rng.integers(0, size + 1, shape)
    return _compared(p, index(s), made, ("lt", "lt", "le", "ge"))


def _documents(p: Tensors, s: Any) -> Any:
    ones = [1] * (len(p.dims) - 3)
    first = p.random.choice((1, p.dims[0]))
    made = []
    for extents in ((p.dims[-2], 1), (1, p.dims[-1])):
        tensor = p.g.tensor([first, *ones, *extents], name=p.new_name(), data_type="INT32")
        p.values[tensor.get_name()] = _sorted_numbers
        made.append(tensor)
    return _compared(p, made[0], made[1], ("eq", "eq", "le"))


def _blocks(p: Tensors, s: Any) -> Any:
    """Whole blocks of keys, by what is no linear form."""
    size = p.random.choice((16, 64, 70))
    row, column = (p.integer("div", index(s), size) for index in (p.row, p.column))
    return _compared(p, column, row, ("eq", "le", "neq"))


def _bits(p: Tensors, s: Any) -> Any:
    """A mask of blocks, a bit each; of scores with two axes of heads."""
    if len(p.dims) != 4 or any(not isinstance(n, int) for n in p.dims[2:]):
        return _loaded(p, s)
    rows, columns = (p.random.choice((16, 32, 64, 128)) for _ in range(2))
    dims = [-(-p.queries // rows), -(-p.keys // columns // 8)]
    mask = p.g.tensor([*p.broadcast(p.dims[:2]), *dims], name=p.new_name(), data_type="UINT8")
    p.values[mask.get_name()] = lambda rng, shape: (
        rng.integers(0, 256, shape) & rng.integers(0, 256, shape)
    )
    found = p.g.block_mask_load(mask, block_rows=rows, block_columns=columns)
    return p.flag(found.set_dim(list(p.dims)))


def _loaded(p: Tensors, s: Any) -> Any:
    """A mask in memory."""
    kept = p.g.tensor(p.broadcast(p.dims), name=p.new_name(), data_type="BOOLEAN")
    p.values[kept.get_name()] = lambda rng, shape: rng.random(shape) < 0.7
    return kept


def _sorted_numbers(rng: Any, shape: tuple[int, ...]) -> Any:
    """Document numbers: never falling along the axis that has several elements."""
    found = rng.integers(0, 4, shape)
    return np.sort(np.sort(found, axis=-1), axis=-2)


_ATOMS = (
    _causal, _causal, _diagonal, _diagonal,
    _window, _edge, _counted, _counted,
    _documents, _blocks, _bits, _bits,
    _loaded,
)  # fmt: skip
