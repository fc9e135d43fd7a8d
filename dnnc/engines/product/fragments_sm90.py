# pyright: basic
"""Fragments of a tile of Hopper's main loop, as its epilogue works on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...expr import Expr


@dataclass
class Edge:
    """A coordinate near a tensor's end: kept inside it, and whether it was there.

    inside: i1, None where it always is.  end: where a group of them ends, inside the tensor.
    is_there: i1, whether it is an element's at all; None: it is, before the end.
    """

    kernel: Kernel
    number: Any
    size: Expr
    tile: int
    width: int
    end: Any = None
    is_there: Any = None

    @cached_property
    def inside(self) -> Any:
        return ops.both(self.is_there, self._is_before_end)

    @property
    def _is_before_end(self) -> Any:
        if self.end is not None:
            return self.number < self.end
        if self.size.known_divisor() % self.tile == 0:
            return None
        return self.number < self.kernel.size(self.size)

    @cached_property
    def kept(self) -> Any:
        if self.end is not None:
            return ops.minimum(self.number, self.end - 1)
        if self.size.known_divisor() % self.tile == 0:
            return self.number
        last = self.kernel.size(self.size) - self.width
        return ops.minimum(self.number, last)


@dataclass(frozen=True)
class Fragment:
    """One or two neighbours of a row of a warpgroup's tile.

    row, column: where.  block: of 64 rows.  half: upper or lower of the thread's rows in it.
    register: of the first one.
    """

    row: Edge
    column: Edge
    block: int
    half: int
    register: int

    @property
    def inside(self) -> Any:
        return ops.both(self.row.inside, self.column.inside)
