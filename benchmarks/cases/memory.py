"""The cases bound by memory: batch norms, pooling, pointwise work, reductions of 1 GiB.

bf16, but for copies of vectors of bytes (`cases.vector`, memory/int8/kind/sizes).  An id is
memory/bf16/kind/sizes; sizes are [n, h, w, c] of the large image, which has its
channels last, or [rows, columns], or as part_norm_cases has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..graphs.memory import AVERAGE_POOL, MAX_POOL, pooled
from ..peers.torch_later import functional, torch
from . import image_norm as image_norm_cases
from . import kinds
from . import part_norm as part_norm_cases
from . import vector as vector_cases
from .case import Buffers, Case
from .image_norm import image, image_case, memory_case
from .kinds import AXES

# So many elements are squared in float64 at a time.
_PIECE = 1 << 24


# ---- images


def max_pool(n: int, h: int, w: int, c: int) -> Case:
    """The largest elements of 3x3 windows, 2 apart, padded by 1."""

    def exact(x: Any) -> Any:
        return functional.max_pool2d(x, *MAX_POOL)

    return _pool("max_pool", n, h, w, c, MAX_POOL, "x", "y", exact)


def max_pool_backward(n: int, h: int, w: int, c: int) -> Case:
    """dx of `max_pool`, from dy and where in its window each maximum is.

    index: which of the nine, a byte; torch has the place in the image instead, 8 bytes.
    """
    rows, columns = pooled(h, MAX_POOL), pooled(w, MAX_POOL)
    window, stride, padding = MAX_POOL

    def make() -> Buffers:
        x = image(n, h, w, c).normal_()
        _, places = functional.max_pool2d(x, *MAX_POOL, return_indices=True)
        first = [torch.arange(m, device=kinds.DEVICE) * stride - padding for m in (rows, columns)]
        taps = (places // w - first[0][:, None]) * window + places % w - first[1]
        index = torch.empty_like(image(n, rows, columns, c), dtype=torch.int8)
        return {"dy": image(n, rows, columns, c).normal_(), "index": index.copy_(taps),
                "places": places, "dx": torch.empty_like(x)}  # fmt: skip

    def exact(s: Buffers) -> Buffers:
        dx = torch.zeros(n, c, h * w, dtype=torch.float64, device=s["dy"].device)
        dx.scatter_add_(2, s["places"].flatten(2), s["dy"].double().flatten(2))
        return {"dx": dx.view(n, c, h, w)}

    elements = n * c * (h * w + 1.5 * rows * columns)
    return image_case("max_pool_backward", n, h, w, c, elements, make, exact)


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

    def made(name: str) -> Any:
        return image(*((n, h, w, c) if name in ("x", "dx") else small))

    return image_case(
        kind, n, h, w, c, n * c * (h * w + small[1] * small[2]),
        lambda: {read: made(read).normal_(), written: made(written)},
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
    return memory_case(kind, p, 3.0 * rows * columns, make, lambda s: {"y": exact(s)})


def large_squares(rows: int, columns: int, axes: str) -> Case:
    """`kinds.squares`, whose exact result is computed in pieces: float64 copies of 1 GiB fit."""
    over = AXES[axes]

    def exact(s: Buffers) -> Buffers:
        pieces = s["x"].split(max(1, _PIECE // columns))
        sums = [(piece.double() ** 2).sum(over, keepdim=True) for piece in pieces]
        return {"y": torch.cat(sums) if 0 not in over else torch.stack(sums).sum(0)}

    return replace(kinds.squares(rows, columns, axes), exact=exact)


KINDS: dict[str, Callable[..., Case]] = {
    **image_norm_cases.KINDS,
    **part_norm_cases.KINDS,
    **vector_cases.KINDS,
    "max_pool": max_pool,
    "max_pool_backward": max_pool_backward,
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


def _empty(*dims: int) -> Any:
    return torch.empty(*dims, dtype=torch.bfloat16, device=kinds.DEVICE)
