"""The cases of queries, keys and values as parts of one product with a bias.

    y [b * s, n] = x [b * s, k] @ w^T + bias,    w [n, k], n = (h + 2 * h / g) * d

An id is parts/fp16/order/BxSxK-HxG-dD, with h heads of queries and as many of keys as H / G.
order: rows, each part [1, b * s, heads * d] in memory; heads, each [b, heads, s, d]; apart: as
rows, by three products with a weight and a bias each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..peers.torch_later import functional, torch
from . import kinds
from .case import Buffers, Case, unit
from .kinds import TOLERANCES

KIND = "parts"
ORDERS = ("rows", "heads", "apart")
NAMES = "qkv"
# (b, s, k, h, g, d): heads end inside tiles of the third.
SIZES = (
    (4, 512, 1024, 16, 1, 64),
    (2, 1024, 4096, 32, 4, 128),
    (8, 500, 1024, 16, 1, 64),
    (1, 2048, 768, 12, 1, 64),
)


def parts(order: str, b: int, s: int, k: int, h: int, g: int, d: int) -> Case:
    """order: of ORDERS.  h, g: heads of queries, and how many share one of keys and values."""
    if order not in ORDERS or h % g:
        raise ValueError(f"no parts case {order!r} of {h} heads, {g} to one of keys")
    p = {"order": order, "b": b, "s": s, "k": k, "h": h, "g": g, "d": d}
    n, rows = sum(widths(p)), b * s
    flops, bytes_ = 2.0 * rows * n * k, 2.0 * (rows * k + n * k + rows * n)
    return Case(
        id=f"parts/fp16/{order}/{b}x{s}x{k}-{h}x{g}-d{d}",
        kind=KIND,
        p=p,
        make=lambda: _make(p),
        exact=lambda buffers: _exact(p, buffers),
        flops=flops,
        bytes=bytes_,
        unit=unit(flops, bytes_),
        tolerance=TOLERANCES["fp16"],
    )


def listed() -> list[Case]:
    return [parts(order, *sizes) for sizes in SIZES for order in ORDERS]


def parts_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    found = re.fullmatch(r"parts/fp16/(\w+)/(\d+)x(\d+)x(\d+)-(\d+)x(\d+)-d(\d+)", id_)
    if found is None:
        raise ValueError(f"{id_!r} is no parts case")
    return parts(found[1], *map(int, found.groups()[1:]))


def widths(p: Mapping[str, Any]) -> list[int]:
    """Columns of queries, keys and values."""
    shared = p["h"] // p["g"]
    return [heads * p["d"] for heads in (p["h"], shared, shared)]


def in_torch(p: Mapping[str, Any], s: Buffers) -> Any:
    """One linear layer whose parts are views of its result, or copies by heads; or three layers."""
    if p["order"] == "apart":
        return tuple(functional.linear(s["x"], s[f"w{n}"], s[f"bias{n}"]) for n in NAMES)
    y = functional.linear(s["x"], s["w"], s["bias"])
    return tuple(_ordered(p, part) for part in y.split(widths(p), -1))


def _ordered(p: Mapping[str, Any], part: Any) -> Any:
    """A part [1, b * s, n] as its buffer has it."""
    if p["order"] != "heads":
        return part
    return part.reshape(p["b"], p["s"], -1, p["d"]).transpose(1, 2).contiguous()


def _make(p: Mapping[str, Any]) -> Buffers:
    rows, k, sizes = p["b"] * p["s"], p["k"], widths(p)

    def normal(*dims: int, scale: float = 1.0) -> Any:
        made = torch.empty(*dims, dtype=torch.float16, device=kinds.DEVICE)
        return made.normal_(std=scale)

    found = {"x": normal(1, rows, k)}
    weights = [("", sum(sizes))] if p["order"] != "apart" else list(zip(NAMES, sizes, strict=True))
    for name, n in weights:
        found |= {f"w{name}": normal(n, k, scale=k**-0.5), f"bias{name}": normal(n)}
    for name, n in zip(NAMES, sizes, strict=True):
        found[name] = _ordered(p, normal(1, rows, n))
    return found


def _exact(p: Mapping[str, Any], s: Buffers) -> Buffers:
    wide = {name: tensor.double() for name, tensor in s.items()}
    return dict(zip(NAMES, in_torch(p, wide), strict=True))
