"""Graphs that tests build with `dnnc.pygraph`, as steps: sizes that are symbols get numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import dnnc
from dnnc.dtypes import DType
from dnnc.expr import Dim, Expr
from dnnc.frontends.graph_tensor import GraphTensor
from dnnc.frontends.methods import methods
from tests.dialect import examples

from .steps import TYPES

SIZES = {"M": 8, "B": 4, "T": 24}

# By parameter: the enumeration that its texts are members of.
_ENUMS = {
    "norm_forward_phase": "norm_forward_phase", "reshape_mode": "reshape_mode",
    "convolution_mode": "convolution_mode", "scalar_type": "scalar_type",
    "reordering_type": "tensor_reordering", "mode": "reduction_mode",
}  # fmt: skip
_SETTERS = ("set_output", "set_name", "set_data_type", "set_dim", "set_stride", "set_uid")


class Untold(Exception):
    """A graph that steps can't tell, with why."""


class Recorder:
    """Notes the steps of a graph while it is built."""

    def __init__(self) -> None:
        self.types = ""
        self.steps: list[list[Any]] = []
        self.names: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no two tensors have one id
        self._depth = 0  # of calls in one another

    def told(self, value: Any, parameter: str = "") -> Any:
        """A value as steps have it."""
        if isinstance(value, GraphTensor):
            return f"${self.names[id(value)]}"
        if isinstance(value, DType):
            return f"@{value.cudnn}"
        if isinstance(value, slice):
            ends = ("" if n is None else str(n) for n in (value.start, value.stop, value.step))
            return ":" + ":".join(ends)
        if isinstance(value, Dim | Expr):
            return Expr.of(value).evaluate(SIZES)
        if isinstance(value, list | tuple):
            return [self.told(item) for item in value]
        if hasattr(value, "value") and hasattr(value, "name"):  # a member of an enumeration
            return f"@{type(value).__name__}.{value.name}"
        if isinstance(value, str) and parameter in _ENUMS:
            return f"@{_ENUMS[parameter]}.{value.upper()}"
        if isinstance(value, str) and parameter.endswith("data_type"):
            return f"@{dnnc.dtypes.of(value).cudnn}"
        if parameter == "name" or isinstance(value, bool | int | float):
            return value
        raise Untold(f"{parameter} of {type(value).__name__}")

    def name(self, tensor: Any) -> str:
        """The tensor's name in steps, a new one at first."""
        self._kept.append(tensor)
        return self.names.setdefault(id(tensor), f"t{len(self.names)}")

    @contextmanager
    def inside(self) -> Iterator[bool]:
        """Whether the call is the user's, not one that another method makes."""
        self._depth += 1
        try:
            yield self._depth == 1
        finally:
            self._depth -= 1


def _wrapped(recorder: Recorder, method: str, body: Callable[..., Any]) -> Callable[..., Any]:
    from inspect import signature

    parameters = signature(body)

    def noted(*args: Any, **kwargs: Any) -> Any:
        with recorder.inside() as is_outer:
            made = body(*args, **kwargs)
            if is_outer:
                given = dict(parameters.bind(*args, **kwargs).arguments)
                given.pop("self")
                results = made if isinstance(made, list | tuple) else [made]
                told = {
                    name: recorder.told(value, name)
                    for name, value in given.items()
                    if value is not None
                }
                names = " ".join("none" if t is None else recorder.name(t) for t in results)
                recorder.steps.append([names, method, told])
        return made

    return noted


def _setter(recorder: Recorder, method: str, body: Callable[..., Any]) -> Callable[..., Any]:
    def noted(tensor: Any, *args: Any) -> Any:
        with recorder.inside() as is_outer:
            if is_outer:
                told = [recorder.told(a, "name" if method == "set_name" else "") for a in args]
                recorder.steps.append([recorder.name(tensor), method, told or [True]])
            return body(tensor, *args)

    return noted


def captured(build: Callable[[], Any], patch: Callable[[Any, str, Any], None]) -> dict[str, Any]:
    """The case that a builder builds; patch: sets an attribute for as long as that takes."""
    recorder = Recorder()
    start = dnnc.pygraph.__init__

    def begun(graph: Any, name: str = "graph", **options: Any) -> None:
        given = ((name, options.get(name)) for name in TYPES)
        recorder.types = " ".join(recorder.told(v, n) if v else "-" for n, v in given)
        start(graph, name, **options)

    patch(dnnc.pygraph, "__init__", begun)
    for name in ("tensor", "tensor_scalar", *methods()):
        patch(dnnc.pygraph, name, _wrapped(recorder, name, getattr(dnnc.pygraph, name)))
    for name in _SETTERS:
        patch(GraphTensor, name, _setter(recorder, name, getattr(GraphTensor, name)))
    try:
        build()
    except KeyError as error:  # a tensor that no step made
        raise Untold(str(error)) from error
    return {"types": recorder.types, "steps": recorder.steps}


def cases(has_method: Callable[[str], bool]) -> dict[str, Any]:
    """The examples of operations that the frontend has methods for."""
    found: dict[str, Any] = {}
    for op, place, build in examples.ALL_EXAMPLES:
        with pytest.MonkeyPatch.context() as patches:
            try:
                case = captured(build, patches.setattr)
            except Untold:
                continue
        if all(has_method(method) for _, method, _ in case["steps"]):
            found[f"example/{op}_{place}"] = case
    return found
