"""`graph`, `jit` and `graph_cache`: graphs as the results of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import Any

from .enums import data_type, heur_mode
from .graphs import pygraph
from .tensors import Tensor


@contextmanager
def graph(
    handle: Any,
    name: str = "cudnn_graph",
    io_data_type: Any = data_type.HALF,
    intermediate_data_type: Any = data_type.FLOAT,
    compute_data_type: Any = data_type.FLOAT,
    **graph_kwargs: Any,
) -> Generator[tuple[pygraph, list[Tensor]]]:
    """Gives a new graph, and an empty list for its tensors.  graph_kwargs: of `pygraph`."""
    made = pygraph(
        name,
        io_data_type,
        intermediate_data_type,
        compute_data_type,
        handle,
        **graph_kwargs,
    )
    yield made, []


def jit(
    heur_modes: heur_mode | list[heur_mode] = heur_mode.A, **_: Any
) -> Callable[[Callable[..., Any]], Callable[..., tuple[pygraph, list[int]]]]:
    """Decorates a function that gives a graph and tensors: calls give the graph, built, and uids.

    heur_modes: one heuristic mode or several.
    """
    modes = heur_modes if isinstance(heur_modes, list) else [heur_modes]

    def decorated(function: Callable[..., Any]) -> Callable[..., tuple[pygraph, list[int]]]:
        @functools.wraps(function)
        def built(*args: Any, **kwargs: Any) -> tuple[pygraph, list[int]]:
            made, tensors = function(*args, **kwargs)
            if made.get_execution_plan_count() == 0:
                made.build(modes)
            return made, [tensor.get_uid() for tensor in tensors]

        return built

    return decorated


def graph_cache(
    key_fn: Callable[..., Hashable], maxsize: int = 256
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function whose results are kept by a key.

    key_fn: gives the key of a call's arguments.  maxsize: how many results are kept; the oldest
    goes first.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        kept: dict[Hashable, Any] = {}

        @functools.wraps(function)
        def cached(*args: Any, **kwargs: Any) -> Any:
            key = key_fn(*args, **kwargs)
            if key not in kept:
                made = function(*args, **kwargs)
                while kept and len(kept) >= maxsize:
                    del kept[next(iter(kept))]
                kept[key] = made
            return kept[key]

        return cached

    return decorated
