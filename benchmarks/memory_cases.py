"""The cases bound by memory: batch norms, pooling, pointwise work, reductions of 1 GiB.

bf16.  An id is memory/bf16/kind/sizes; sizes are [n, h, w, c] of the large image, which has its
channels last, or [rows, columns].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional

from . import cases
from .case import Buffers, Case
from .cases import AXES, TOLERANCES
from .memory_graphs import AVERAGE_POOL, EPSILON, MAX_POOL, pooled

# So many elements are squared in float64 at a time.
_PIECE = 1 << 24


# ---- images


def batchnorm(n: int, h: int, w: int, c: int) -> Case:
    """y = (x - mean) * rstd * scale + bias, with the batch's statistics of each channel.

    They are outputs as well, [1, c, 1, 1] in f32, and so are the next running ones.
    """
    return _batchnorm("batchnorm", n, h, w, c, lambda y: y)


def batchnorm_relu(n: int, h: int, w: int, c: int) -> Case:
    """relu of a batch norm's y."""
    return _batchnorm("batchnorm_relu", n, h, w, c, torch.relu)


def _batchnorm(kind: str, n: int, h: int, w: int, c: int, activation: Callable[[Any], Any]) -> Case:
    def make() -> Buffers:
        # Channels differ, so that wrong statistics show.
        x = _image(n, h, w, c).normal_().mul_(0.5 + _channel(c).uniform_())
        x.add_(_channel(c).normal_())
        return {
            "x": x,
            "scale": 1.0 + 0.1 * _channel(c).normal_(),
            "bias": _channel(c).normal_(),
            "old_mean": _channel(c).normal_(),
            "old_var": 0.5 + _channel(c).uniform_(),
            "y": torch.empty_like(x),
            **{name: _channel(c) for name in ("mean", "rstd", "next_mean", "next_var")},
        }

    def exact(s: Buffers) -> Buffers:
        x = s["x"].double()
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
        factor = torch.rsqrt(variance + EPSILON) * s["scale"].double()
        return {"y": activation((x - mean) * factor + s["bias"].double())}

    return _of_image(kind, n, h, w, c, 2.0 * n * h * w * c, make, exact)


def max_pool(n: int, h: int, w: int, c: int) -> Case:
    """The largest elements of 3x3 windows, 2 apart, padded by 1."""

    def exact(x: Any) -> Any:
        return functional.max_pool2d(x, *MAX_POOL)

    return _pool("max_pool", n, h, w, c, MAX_POOL, "x", "y", exact)


def average_pool(n: int, h: int, w: int, c: int) -> Case:
    """The means of 2x2 windows, 2 apart."""

    def exact(x: Any) -> Any:
        return functional.avg_pool2d(x, *AVERAGE_POOL)

    return _pool("average_pool", n, h, w, c, AVERAGE_POOL, "x", "y", exact)


def average_pool_backward(n: int, h: int, w: int, c: int) -> Case:
    """dx of `average_pool`: each element of dy a quarter, four times."""

    def exact(dy: Any) -> Any:
        dx = (dy / 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
        return functional.pad(dx, (0, w % 2, 0, h % 2))

    return _pool("average_pool_backward", n, h, w, c, AVERAGE_POOL, "dy", "dx", exact)


def _pool(
    kind: str,
    n: int,
    h: int,
    w: int,
    c: int,
    pool: tuple[int, int, int],
    read: str,
    written: str,
    exact: Callable[[Any], Any],
) -> Case:
    """read, written: buffers, of which x and dx are the large image; exact: of what is read."""
    small = (n, pooled(h, pool), pooled(w, pool), c)

    def image(name: str) -> Any:
        return _image(*((n, h, w, c) if name in ("x", "dx") else small))

    return _of_image(
        kind, n, h, w, c, n * c * (h * w + small[1] * small[2]),
        lambda: {read: image(read).normal_(), written: image(written)},
        lambda s: {written: exact(s[read].double())},
    )  # fmt: skip


# ---- matrices


def silu_mul(rows: int, columns: int) -> Case:
    """y = silu(g) * u: what is between the products of a gated network."""

    def exact(s: Buffers) -> Any:
        return functional.silu(s["g"].double()) * s["u"].double()

    return _pointwise(
        "silu_mul", rows, columns, {"g": (rows, columns), "u": (rows, columns)}, exact
    )


def chain(rows: int, columns: int) -> Case:
    """y = relu((x * s + b) * r + z) * t, with s, b of each column and r, t of each row."""
    dims = {name: (rows, columns) for name in ("x", "z")}
    dims |= {name: (1, columns) for name in ("s", "b")}
    dims |= {name: (rows, 1) for name in ("r", "t")}

    def exact(buffers: Buffers) -> Any:
        x, z, s, b, r, t = (buffers[name].double() for name in dims)
        return torch.relu((x * s + b) * r + z) * t

    return _pointwise("chain", rows, columns, dims, exact)


def transposed(rows: int, columns: int) -> Case:
    """y = x^T + z, with x [columns, rows]."""

    def exact(s: Buffers) -> Any:
        return s["x"].mT.double() + s["z"].double()

    dims = {"x": (columns, rows), "z": (rows, columns)}
    return _pointwise("transposed", rows, columns, dims, exact)


def strided(rows: int, columns: int) -> Case:
    """y = x + z, with x every second row of a buffer [2 * rows, columns]."""

    def exact(s: Buffers) -> Any:
        return s["x"][::2].double() + s["z"].double()

    dims = {"x": (2 * rows, columns), "z": (rows, columns)}
    return _pointwise("strided", rows, columns, dims, exact)


def _pointwise(
    kind: str,
    rows: int,
    columns: int,
    dims: dict[str, tuple[int, int]],
    exact: Callable[[Buffers], Any],
) -> Case:
    """y [rows, columns] of two whole matrices and vectors; dims: of the inputs' buffers."""

    def make() -> Buffers:
        found = {name: _empty(*sizes).normal_() for name, sizes in dims.items()}
        return found | {"y": _empty(rows, columns)}

    p = {"rows": rows, "columns": columns}
    return _case(kind, p, 3.0 * rows * columns, make, lambda s: {"y": exact(s)})


def large_squares(rows: int, columns: int, axes: str) -> Case:
    """`cases.squares`, whose exact result is computed in pieces: float64 copies of 1 GiB fit."""
    over = AXES[axes]

    def exact(s: Buffers) -> Buffers:
        pieces = s["x"].split(max(1, _PIECE // columns))
        sums = [(piece.double() ** 2).sum(over, keepdim=True) for piece in pieces]
        return {"y": torch.cat(sums) if 0 not in over else torch.stack(sums).sum(0)}

    return replace(cases.squares(rows, columns, axes), exact=exact)


KINDS: dict[str, Callable[..., Case]] = {
    "batchnorm": batchnorm,
    "batchnorm_relu": batchnorm_relu,
    "max_pool": max_pool,
    "average_pool": average_pool,
    "average_pool_backward": average_pool_backward,
    "silu_mul": silu_mul,
    "chain": chain,
    "transposed": transposed,
    "strided": strided,
}


def memory_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    _, _, kind, sizes = id_.split("/")
    made = KINDS[kind](*(int(size) for size in sizes.split("x")))
    if made.id != id_:
        raise ValueError(f"{id_!r} is spelled {made.id!r}")
    return made


# ---- what they share


def _of_image(
    kind: str,
    n: int,
    h: int,
    w: int,
    c: int,
    elements: float,
    make: Callable[[], Buffers],
    exact: Callable[[Buffers], Buffers],
) -> Case:
    return _case(kind, {"n": n, "h": h, "w": w, "c": c}, elements, make, exact)


def _case(
    kind: str,
    p: dict[str, int],
    elements: float,
    make: Callable[[], Buffers],
    exact: Callable[[Buffers], Buffers],
) -> Case:
    """elements: of 2 bytes each that are read or written."""
    return Case(
        id=f"memory/bf16/{kind}/{'x'.join(map(str, p.values()))}",
        kind=kind,
        p=p,
        make=make,
        exact=exact,
        bytes=2.0 * elements,
        unit="GB/s",
        tolerance=TOLERANCES["bf16"],
    )


def _image(n: int, h: int, w: int, c: int) -> Any:
    """[n, c, h, w] with channels last, also where a dim is 1."""
    return _empty(n, h, w, c).permute(0, 3, 1, 2)


def _empty(*dims: int) -> Any:
    return torch.empty(*dims, dtype=torch.bfloat16, device=cases.DEVICE)


def _channel(c: int) -> Any:
    """A number of each channel."""
    return torch.empty(1, c, 1, 1, device=cases.DEVICE)
