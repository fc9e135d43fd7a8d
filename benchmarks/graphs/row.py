"""The cases of rows as operation graphs; tensors are [rows, columns, 1, 1], as cuDNN has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .fused import EPSILON

if TYPE_CHECKING:
    from .build import Graph

SCALE = 16.0  # of what is quantised to fp8


class _Sizes:
    """Dims and strides of whole tensors, of a number a row, and of a row."""

    def __init__(self, p: Mapping[str, Any]):
        rows, columns = p["rows"], p["columns"]
        self.whole = ([rows, columns, 1, 1], [columns, 1, columns, columns])
        self.row = ([rows, 1, 1, 1], [1, 1, 1, 1])
        self.column = ([1, columns, 1, 1], [columns, 1, columns, columns])


def _input(made: Graph, name: str, sizes: tuple[list[int], list[int]], dtype: str = "bf16") -> Any:
    return made.input(name, *sizes, dtype)


def _output(
    made: Graph, name: str, tensor: Any, sizes: tuple[list[int], list[int]], dtype: str = "bf16"
) -> None:
    made.output(name, tensor, sizes[0], dtype)
    tensor.set_stride(sizes[1])


def _layernorm(made: Graph, p: Mapping[str, Any]) -> None:
    at = _Sizes(p)
    y, mean, rstd = made.graph.layernorm(
        norm_forward_phase=made.library.norm_forward_phase.TRAINING,
        input=_input(made, "x", at.whole),
        scale=_input(made, "w", at.column),
        bias=_input(made, "b", at.column),
        epsilon=made.number(EPSILON, 4),
    )
    _output(made, "y", y, at.whole)
    _output(made, "mean", mean, at.row, "fp32")
    _output(made, "rstd", rstd, at.row, "fp32")


def _rmsnorm(made: Graph, p: Mapping[str, Any]) -> None:
    at = _Sizes(p)
    y, _ = made.graph.rmsnorm(
        norm_forward_phase=made.library.norm_forward_phase.INFERENCE,
        input=_input(made, "x", at.whole),
        scale=_input(made, "w", at.column),
        epsilon=made.number(EPSILON, 4),
    )
    _output(made, "y", y, at.whole)


def _reduced(made: Graph, mode: str, x: Any, at: _Sizes) -> Any:
    mode = getattr(made.library.reduction_mode, mode)
    return made.graph.reduction(input=x, mode=mode).set_dim(at.row[0]).set_stride(at.row[1])


def _softmax(made: Graph, p: Mapping[str, Any]) -> None:
    at, g = _Sizes(p), made.graph
    x = _input(made, "x", at.whole)
    e = g.exp(input=g.sub(a=x, b=_reduced(made, "MAX", x, at)))
    _output(made, "y", g.div(a=e, b=_reduced(made, "ADD", e, at)), at.whole)


def _softmax_backward(made: Graph, p: Mapping[str, Any]) -> None:
    at, g = _Sizes(p), made.graph
    y, dy = _input(made, "y", at.whole), _input(made, "dy", at.whole)
    total = _reduced(made, "ADD", g.mul(a=y, b=dy), at)
    _output(made, "dx", g.mul(a=y, b=g.sub(a=dy, b=total)), at.whole)


def _layernorm_backward(made: Graph, p: Mapping[str, Any]) -> None:
    at = _Sizes(p)
    dx, dw, db = made.graph.layernorm_backward(
        grad=_input(made, "dy", at.whole),
        input=_input(made, "x", at.whole),
        scale=_input(made, "w", at.column),
        mean=_input(made, "mean", at.row, "fp32"),
        inv_variance=_input(made, "rstd", at.row, "fp32"),
    )
    _output(made, "dx", dx, at.whole)
    _output(made, "dw", dw, at.column)
    _output(made, "db", db, at.column)


def _rmsnorm_backward(made: Graph, p: Mapping[str, Any]) -> None:
    at = _Sizes(p)
    dx, dw, _ = made.graph.rmsnorm_backward(
        grad=_input(made, "dy", at.whole),
        input=_input(made, "x", at.whole),
        scale=_input(made, "w", at.column),
        inv_variance=_input(made, "rstd", at.row, "fp32"),
        has_dbias=False,
    )
    _output(made, "dx", dx, at.whole)
    _output(made, "dw", dw, at.column)


def _add_rmsnorm_fp8(made: Graph, p: Mapping[str, Any]) -> None:
    at, g = _Sizes(p), made.graph
    z = g.add(a=_input(made, "x", at.whole), b=_input(made, "r", at.whole))
    _output(made, "z", z, at.whole)
    y, _ = g.rmsnorm(
        norm_forward_phase=made.library.norm_forward_phase.INFERENCE,
        input=z,
        scale=_input(made, "w", at.column),
        epsilon=made.number(EPSILON, 4),
    )
    scale = g.tensor_scalar(SCALE, made.library.scalar_type.COMPILE_TIME_CONST)
    _output(made, "y", g.mul(a=y, b=scale), at.whole, "e4m3")


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "softmax_of_rows": _softmax,
    "softmax_backward": _softmax_backward,
    "layernorm_backward": _layernorm_backward,
    "rmsnorm_backward": _rmsnorm_backward,
    "add_rmsnorm_fp8": _add_rmsnorm_fp8,
}
