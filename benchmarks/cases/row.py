"""The cases of engine rows: norms and softmax, forward and backward, and what is fused to them.

bf16, [rows, columns]; an id is rows/bf16/kind/sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..graphs.fused import EPSILON
from ..graphs.row import SCALE
from ..peers.torch_later import functional, torch
from . import kinds
from .case import Buffers, Case, row_step
from .kinds import TOLERANCES


def layernorm(rows: int, columns: int) -> Case:
    """y = (x - mean) * rstd * w + b, and mean and rstd [rows] in f32."""

    def make() -> Buffers:
        return {**_input(rows, columns, "x"), **_weights(columns), "y": _empty(rows, columns),
                "mean": _f32(rows), "rstd": _f32(rows)}  # fmt: skip

    def exact(s: Buffers, x: Any) -> Buffers:
        w, b = s["w"].double(), s["b"].double()
        return {"y": functional.layer_norm(x, (columns,), w, b, EPSILON)}

    return _case("layernorm", rows, columns, 2, make, exact)


def rmsnorm(rows: int, columns: int) -> Case:
    """y = x * rstd * w."""

    def make() -> Buffers:
        return {**_input(rows, columns, "x"), "w": _weights(columns)["w"],
                "y": _empty(rows, columns)}  # fmt: skip

    def exact(s: Buffers, x: Any) -> Buffers:
        return {"y": functional.rms_norm(x, (columns,), s["w"].double(), EPSILON)}

    return _case("rmsnorm", rows, columns, 2, make, exact)


def softmax(rows: int, columns: int) -> Case:
    """y = softmax of each row of x, as max, sub, exp, add, div."""

    def make() -> Buffers:
        return {**_input(rows, columns, "x"), "y": _empty(rows, columns)}

    return _case(
        "softmax_of_rows", rows, columns, 2, make, lambda s, x: {"y": torch.softmax(x, -1)}
    )


def softmax_backward(rows: int, columns: int) -> Case:
    """dx = y * (dy - sum(y * dy))."""

    def make() -> Buffers:
        y = torch.softmax(_normal(rows, columns).float(), -1).to(torch.bfloat16)
        return {"y": y, **_input(rows, columns, "dy"), "dx": _empty(rows, columns)}

    def exact(s: Buffers, y: Any) -> Buffers:
        dy = _every(s["dy"], rows, columns)
        return {"dx": y * (dy - (y * dy).sum(-1, keepdim=True))}

    return _case("softmax_backward", rows, columns, 3, make, exact, "y")


def layernorm_backward(rows: int, columns: int) -> Case:
    """dx, dw, db of a layer norm, from dy, x, w, mean and rstd."""
    return _backward("layernorm_backward", rows, columns, has_mean=True)


def rmsnorm_backward(rows: int, columns: int) -> Case:
    """dx, dw of an rms norm, from dy, x, w and rstd."""
    return _backward("rmsnorm_backward", rows, columns, has_mean=False)


def _backward(kind: str, rows: int, columns: int, *, has_mean: bool) -> Case:
    def make() -> Buffers:
        found = {**_input(rows, columns, "x"), **_input(rows, columns, "dy")}
        x = found["x"].float()
        mean = x.mean(-1, keepdim=True) if has_mean else torch.zeros_like(x[:, :1])
        found["rstd"] = torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + EPSILON)
        found |= {"w": _weights(columns)["w"], "dx": _empty(rows, columns), "dw": _empty(columns)}
        return found | ({"mean": mean, "db": _empty(columns)} if has_mean else {})

    def exact(s: Buffers, x: Any) -> Buffers:
        found: Buffers = {"dw": 0.0, "db": 0.0}
        for part in torch.arange(rows, device=x.device).split(max(1, (1 << 24) // columns)):
            dy, normal = s["dy"][part].double(), _normalised(s, part)
            found["dw"] = found["dw"] + (dy * normal).sum(0)
            found["db"] = found["db"] + dy.sum(0)
        part = torch.arange(0, rows, row_step(rows, columns), device=x.device)
        normal, g = _normalised(s, part), s["dy"][part].double() * s["w"].double()
        g = (
            g
            - normal * (g * normal).mean(-1, keepdim=True)
            - (g.mean(-1, keepdim=True) if has_mean else 0.0)
        )
        found["dx"] = g * s["rstd"][part].double()
        return {name: found[name] for name in ("dx", "dw", "db") if name in s}

    return _case(kind, rows, columns, 3, make, exact)


def _normalised(s: Buffers, part: Any) -> Any:
    x = s["x"][part].double()
    return (x - (s["mean"][part].double() if "mean" in s else 0.0)) * s["rstd"][part].double()


def add_rmsnorm_fp8(rows: int, columns: int) -> Case:
    """z = x + r; y = fp8(rmsnorm(z) * w * SCALE)."""

    def make() -> Buffers:
        y = torch.empty(rows, columns, dtype=torch.float8_e4m3fn, device=kinds.DEVICE)
        return {**_input(rows, columns, "x"), **_input(rows, columns, "r"),
                "w": _weights(columns)["w"], "z": _empty(rows, columns), "y": y}  # fmt: skip

    def exact(s: Buffers, x: Any) -> Buffers:
        z = x + _every(s["r"], rows, columns)
        y = functional.rms_norm(z, (columns,), s["w"].double(), EPSILON) * SCALE
        return {"z": z, "y": y.clamp(-448, 448)}

    return replace(_case("add_rmsnorm_fp8", rows, columns, 3.5, make, exact), tolerance=5e-2)


KINDS: dict[str, Callable[[int, int], Case]] = {
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
    "softmax_of_rows": softmax,
    "softmax_backward": softmax_backward,
    "layernorm_backward": layernorm_backward,
    "rmsnorm_backward": rmsnorm_backward,
    "add_rmsnorm_fp8": add_rmsnorm_fp8,
}


def rows_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    _, _, kind, sizes = id_.split("/")
    rows, columns = (int(size) for size in sizes.split("x"))
    made = KINDS[kind](rows, columns)
    if made.id != id_:
        raise ValueError(f"{id_!r} is spelled {made.id!r}")
    return made


# ---- what they share


def _case(
    kind: str,
    rows: int,
    columns: int,
    passes: float,
    make: Callable[[], Buffers],
    exact: Callable[[Buffers, Any], Buffers],
    first: str = "x",
) -> Case:
    """passes: tensors of 2 bytes an element that are read or written.

    exact gets every `row_step`-th row of buffer `first` in float64.
    """
    return Case(
        id=f"rows/bf16/{kind}/{rows}x{columns}",
        kind=kind,
        p={"rows": rows, "columns": columns},
        make=make,
        exact=lambda s: exact(s, _every(s[first], rows, columns)),
        bytes=2.0 * passes * rows * columns,
        unit="GB/s",
        tolerance=TOLERANCES["bf16"],
        row_step=row_step(rows, columns),
    )


def _every(tensor: Any, rows: int, columns: int) -> Any:
    return tensor[:: row_step(rows, columns)].double()


def _input(rows: int, columns: int, name: str) -> Buffers:
    return {name: _normal(rows, columns)}


def _weights(columns: int) -> Buffers:
    return {"w": 1.0 + 0.1 * _normal(columns), "b": _normal(columns)}


def _normal(*dims: int) -> Any:
    return _empty(*dims).normal_()


def _empty(*dims: int) -> Any:
    return torch.empty(*dims, dtype=torch.bfloat16, device=kinds.DEVICE)


def _f32(rows: int) -> Any:
    return torch.empty(rows, 1, device=kinds.DEVICE)
