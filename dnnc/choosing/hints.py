"""Hints: what a user can change so that a graph runs faster.

A change (another target, strides, an alignment, a multiple of a symbol) is made on a copy of the
graph, and the copy is ranked like any graph: a hint has the predicted gain.  Only graphs with a
product, a convolution or attention are looked at, and of these only those that leave something
unused, so that choosing costs no more for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import log
from .. import target as targets
from ..dialect.graph import OperationGraph
from ..dialect.json_form import from_json, to_json
from ..dialect.tensor import Tensor, dense_order, packed_strides, text
from ..errors import DnncError, Status
from ..expr import Expr, ceildiv
from ..options import DEFAULT_MODES
from ..target import Target
from . import heuristics
from .choice import refusals
from .heuristics import WORTH_A_LOOK, EngineConfig
from .inputs import Inputs
from .nearest import nearest_first

_LEAST_GAIN = 1.15
_WIDE_BYTES = 16  # of the accesses of TMA, cp.async and vector loads

# The same cards run both, the second with its own engines.
_FASTER_TARGETS = {"sm_90": "sm_90a"}


def hints(
    graph: OperationGraph,
    config: EngineConfig,
    target: Target,
    modes: Sequence[str] = DEFAULT_MODES,
    inputs: Inputs | None = None,
) -> tuple[str, ...]:
    """Sentences on what makes a graph slow: products that run element by element, and changes
    that are predicted to gain 15% or more, with the gain."""
    told = slow_products(config, target)
    if config.seconds < WORTH_A_LOOK or not any(op.role == "anchor" for op in graph.live_ops):
        return told
    for change in _changes(graph, target):
        try:
            seconds = heuristics.best_config(
                change.graph(), change.target, modes, inputs=inputs
            ).seconds
        except DnncError:
            continue  # the changed graph has no config, or is none
        if config.seconds >= _LEAST_GAIN * seconds:
            told += (f"{change.what}: {_gain_text(config.seconds, seconds)}",)
    return told


def warned(said: tuple[str, ...]) -> tuple[str, ...]:
    """Logs hints, and gives them."""
    for line in said:
        log.hint(line)
    return said


def slow_products(config: EngineConfig, target: Target) -> tuple[str, ...]:
    """Which products of a config run element by element for longer than launches differ, and why
    the engines of such products decline them."""
    told: list[str] = []
    for choice in config.choices:
        heavy = choice.fusion.with_role("anchor")
        is_slow = choice.prediction.seconds >= WORTH_A_LOOK
        if not (choice.engine.inlines_anchors and heavy and is_slow):
            continue
        # What declines another pattern says nothing of this one.
        other = Status.NOT_SUPPORTED_GRAPH_PATTERN
        every = nearest_first(refusals(choice.fusion, target))
        found = (r for r in every if r.reasons[0].status is not other)
        said = "; ".join(f"{r.engine.name}: {r.reasons[0]}" for r in found)
        said = said or "no other engine has such operations, or not in one fusion"
        about = _seconds_text(choice.prediction.seconds)
        how = f"runs element by element ({choice.engine.name}, about {about})"
        told.append(f"{heavy[0].label} on {target} {how}: {said}")
    return tuple(told)


# ---- changes


@dataclass(frozen=True)
class _Change:
    """what: a change in the user's words.  graph: makes the changed graph."""

    what: str
    graph: Callable[[], OperationGraph]
    target: Target


def _changes(graph: OperationGraph, target: Target) -> Iterator[_Change]:
    if (faster := _FASTER_TARGETS.get(target.name)) is not None:
        row = targets.with_sm_count(targets.of(faster), target.sm_count)
        yield _Change(f"target {faster} runs on the same cards as {target}", lambda: graph, row)
    in_memory = [t for t in (*graph.inputs, *graph.outputs) if _is_array(t)]
    multiples = _missing_multiples(in_memory)
    if multiples:
        asked = ", ".join(f'dnnc.Dim("{n}", multiple_of={m})' for n, m in multiples.items())
        what = f"rows of a symbol's size may begin anywhere; if sizes allow it, declare {asked}"
        yield _Change(what, lambda: _with_multiples(graph, multiples), target)
    padded = {t.uid: s for t in in_memory if (s := _padded_strides(t)) is not None}
    if padded:
        rows = ", ".join(f"{_name(t)} {text(padded[t.uid])}" for t in in_memory if t.uid in padded)
        what = f"rows begin at no multiple of {_WIDE_BYTES} bytes; with strides {rows}"
        yield _Change(what, lambda: _with_strides(graph, padded), target)
    last = _channels_last(graph)
    if last:
        names = ", ".join(_name(t) for t in in_memory if t.uid in last)
        what = f"{names} have channels first; with channels last"
        yield _Change(what, lambda: _with_strides(graph, last), target)
    narrow = [t for t in in_memory if t.alignment < _WIDE_BYTES]
    if narrow:
        what = f"{', '.join(map(_name, narrow))} may begin anywhere; aligned to {_WIDE_BYTES} bytes"
        yield _Change(what, lambda: _with_alignment(graph, narrow), target)


def _is_array(tensor: Tensor) -> bool:
    return not (tensor.is_by_value or tensor.is_constant) and tensor.reordering == "NONE"


def _name(tensor: Tensor) -> str:
    return f"'{tensor.name}'" if tensor.name else f"uid {tensor.uid}"


def _fragment_elems(tensor: Tensor) -> int:
    """Elements of an access of 16 bytes."""
    return max(1, 8 * _WIDE_BYTES // tensor.type.bits)


def _misaligned_axis(tensor: Tensor) -> int | None:
    """The innermost axis of a packed tensor whose rows begin at no multiple of 16 bytes."""
    order = dense_order(tensor.shape, tensor.layout)
    axes = [axis for axis in order or () if tensor.shape[axis].constant != 1]
    if len(axes) < 2 or tensor.ragged_offset is not None:
        return None
    extent = tensor.shape[axes[-1]]
    return None if extent.known_divisor() % _fragment_elems(tensor) == 0 else axes[-1]


def _missing_multiples(tensors: Sequence[Tensor]) -> dict[str, int]:
    """Symbol -> the multiple that makes rows of its size begin at 16 bytes."""
    found: dict[str, int] = {}
    for tensor in tensors:
        axis = _misaligned_axis(tensor)
        if axis is None:
            continue
        for dim in tensor.shape[axis].dims():
            wanted = _fragment_elems(tensor)
            if (
                dim.multiple_of % wanted
                and dim.max >= wanted
                and tensor.shape[axis] == Expr.of(dim)
            ):
                found[dim.name] = max(wanted, found.get(dim.name, 1))
    return found


def _padded_strides(tensor: Tensor) -> tuple[Expr, ...] | None:
    """Strides with rows of a fixed size apart by a multiple of 16 bytes; None if they are."""
    axis = _misaligned_axis(tensor)
    if axis is None or tensor.shape[axis].constant is None:
        return None
    fragment = _fragment_elems(tensor)
    dims = list(tensor.shape)
    dims[axis] = ceildiv(dims[axis], fragment) * fragment
    return packed_strides(dims, dense_order(tensor.shape, tensor.layout))


def _channels_last(graph: OperationGraph) -> dict[int | None, tuple[Expr, ...]]:
    """uid -> strides, for images and filters of convolutions that are packed channels first."""
    anchors = [op for op in graph.live_ops if op.op_name.startswith("conv_")]
    if not anchors:
        return {}
    rank = anchors[0].operands[0].rank
    row_major = tuple(range(rank))
    order = (0, *range(2, rank), 1)
    return {
        t.uid: packed_strides(t.shape, order)
        for t in (*graph.inputs, *graph.outputs)
        if _is_array(t)
        and t.rank == rank
        and dense_order(t.shape, t.layout) == row_major
        and packed_strides(t.shape, order) != t.layout
    }


# ---- changed copies


def _changed(graph: OperationGraph, change: Callable[[dict[str, Any]], None]) -> OperationGraph:
    """A copy whose tensors' JSON forms were changed."""
    data = to_json(graph)
    for tensor in data["tensors"]:
        change(tensor)
    return from_json(data)


def _with_strides(
    graph: OperationGraph, strides: dict[int | None, tuple[Expr, ...]]
) -> OperationGraph:
    def change(tensor: dict[str, Any]) -> None:
        if tensor["uid"] in strides:
            new = strides[tensor["uid"]]
            tensor["strides"] = [str(s) if s.constant is None else s.constant for s in new]

    return _changed(graph, change)


def _with_alignment(graph: OperationGraph, tensors: Sequence[Tensor]) -> OperationGraph:
    uids = {tensor.uid for tensor in tensors}

    def change(tensor: dict[str, Any]) -> None:
        if tensor["uid"] in uids:
            tensor["alignment"] = _WIDE_BYTES

    return _changed(graph, change)


def _with_multiples(graph: OperationGraph, multiples: dict[str, int]) -> OperationGraph:
    data = to_json(graph)
    for symbol in data["symbols"]:
        multiple = multiples.get(symbol["name"], 1)
        if symbol["multiple_of"] % multiple:
            symbol["multiple_of"] = multiple
            symbol["min"] = -(-symbol["min"] // multiple) * multiple
            symbol["max"] = symbol["max"] // multiple * multiple
    return from_json(data)


# ---- texts


def _gain_text(seconds: float, changed: float) -> str:
    """predicted 2.1x faster (41 us, not 86 us)"""
    times = f"{_seconds_text(changed)}, not {_seconds_text(seconds)}"
    return f"predicted {seconds / changed:.2g}x faster ({times})"


def _seconds_text(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.0f} us"
