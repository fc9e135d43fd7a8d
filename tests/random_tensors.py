"""Tensors of a random attention as it grows: in any order of axes, with gaps, broadcast."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.attention_graphs import Pattern


class Tensors(Pattern):
    """Tensors that are drawn so far; `Pattern` has the pieces of the graph.

    sizes: of its symbols.  values: name of an input -> what draws it.  unit: of gaps, in elements.
    dims: of the scores.  queries, keys: of a head.
    """

    dims: tuple[Any, ...]
    queries: int
    keys: int

    def __init__(self, random: Random):
        self.random = random
        self.sizes: dict[str, int] = {}
        self.values: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {}
        self.unit = 8
        self.count = 0

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def new_name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def tensor(
        self, dims: list[Any], name: str = "", dtype: Any = None, is_transposed: bool = False
    ) -> Any:
        """In any order of the axes but the last, with gaps.  is_transposed: that is the last but
        one."""
        return self.g.tensor(
            dims, self.strides(dims, is_transposed), name=name or self.new_name(), data_type=dtype
        )

    def strides(self, dims: list[Any], is_transposed: bool = False) -> list[Any]:
        rank = len(dims)
        last = rank - 2 if is_transposed else rank - 1
        order = [axis for axis in range(rank) if axis != last]
        if self.chance(0.4):
            self.random.shuffle(order)
        strides, running = [0] * rank, 1
        for axis in [last, *reversed(order)]:
            strides[axis] = running
            running = running * dims[axis]
            if self.chance(0.15):
                running = running + self.unit * self.random.choice((1, 2, 5))
        return strides

    def broadcast(self, dims: Any) -> list[Any]:
        return [n if self.chance(0.6) else 1 for n in dims]
