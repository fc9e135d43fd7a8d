"""The cases of `graphs.vector`: images of bytes, of which an id has [n, h, w, c]."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..graphs.vector import COPIES, dims_of, strides_of
from ..peers.torch_later import torch
from . import kinds
from .case import Buffers, Case


def copy(kind: str, n: int, h: int, w: int, c: int) -> Case:
    """y = x, in another layout."""
    p = {"n": n, "h": h, "w": w, "c": c}

    def empty(layout: str) -> Any:
        strides = strides_of(layout, p)
        return torch.empty_strided(dims_of(p), strides, dtype=torch.int8, device=kinds.DEVICE)

    def make() -> Buffers:
        x, y = COPIES[kind]
        return {"x": empty(x).random_(-128, 128), "y": empty(y)}

    return Case(
        id=f"memory/int8/{kind}/{n}x{h}x{w}x{c}",
        kind=kind,
        p=p,
        make=make,
        exact=lambda s: {"y": s["x"].double()},
        bytes=2.0 * n * h * w * c,
        unit="GB/s",
        tolerance=0.0,
    )


KINDS: dict[str, Callable[..., Case]] = {kind: partial(copy, kind) for kind in COPIES}
