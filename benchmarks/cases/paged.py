"""The cases of paged attention: one query beside keys and values that lie in pages.

    o [b, h, 1, d] = softmax(q [b, h, 1, d] @ k^T / sqrt(d)) @ v,    stats [b, h, 1, 1]

k and v [b, h / g, s, d] are pages [b * s / p, h / g, p, d] in any order; a table of each,
[b, s / p], says which is where.  An id is

    paged/bf16/full/BxHxS-dD/gqaG/pageP

A case's `dense` is the same attention with keys and values that are not paged.
"""

from __future__ import annotations

import re
from typing import Any

from ..peers.torch_later import torch
from . import kinds
from .attention import DECODED, attention
from .case import Buffers, Case

_TOLERANCE = 2.0**-8  # what rounding O to bf16 may cost, as in attention_cases

PAGES = (16, 64)
_FULL = (16, 8192)  # (batch, keys) of every size of pages; others have the last


def paged(b: int, h: int, s: int, d: int, groups: int, page: int) -> Case:
    """groups: heads of q that share one of k and v.  page: rows of a page, which divide s."""
    if s % page or h % groups:
        raise ValueError(f"paged case of {s} keys in pages of {page}, {groups} groups of {h} heads")
    p = {"b": b, "h": h, "s": s, "d": d, "groups": groups, "page": page}
    plain = attention("bf16", "full", b, h, s, d, groups=groups, queries=1)
    return Case(
        id=f"paged/bf16/full/{b}x{h}x{s}-d{d}/gqa{groups}/page{page}",
        kind="paged",
        p=p,
        make=lambda: _make(p),
        exact=lambda buffers: _exact(p, buffers),
        flops=plain.flops,
        bytes=plain.bytes + 2 * 4 * b * (s // page),
        unit="GB/s",
        tolerance=_TOLERANCE,
        dense=plain.id,
    )


def listed() -> list[Case]:
    """One query of 32 heads on 4 of keys and values, as `attention_cases.decoding`."""
    found = [paged(b, 32, s, 128, 8, PAGES[-1]) for b, s in DECODED]
    b, s = _FULL
    return [*found, *(paged(b, 32, s, 128, 8, page) for page in PAGES[:-1])]


def paged_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    found = re.fullmatch(r"paged/bf16/full/(\d+)x(\d+)x(\d+)-d(\d+)/gqa(\d+)/page(\d+)", id_)
    if found is None:
        raise ValueError(f"{id_!r} is no paged case")
    return paged(*map(int, found.groups()))


# ---- buffers


def _make(p: dict[str, Any]) -> Buffers:
    """Buffers of paged attention: keys in one order of pages, values in another, in every set."""
    b, h, d, page = p["b"], p["h"], p["d"], p["page"]
    pages = p["s"] // page
    draw = torch.Generator().manual_seed(p["s"])

    def normal(*dims: int) -> Any:
        return torch.empty(dims, dtype=torch.bfloat16, device=kinds.DEVICE).normal_()

    def table() -> Any:
        order = torch.randperm(b * pages, generator=draw, dtype=torch.int32)
        return order.reshape(b, 1, pages, 1).to(kinds.DEVICE)

    def lengths(length: int) -> Any:
        return torch.full((b, 1, 1, 1), length, dtype=torch.int32, device=kinds.DEVICE)

    return {
        "q": normal(b, h, 1, d),
        **{name: normal(b * pages, h // p["groups"], page, d) for name in "kv"},
        **{f"{name}_table": table() for name in "kv"},
        "queries": lengths(1),
        "lengths": lengths(p["s"]),
        "o": torch.empty(b, h, 1, d, dtype=torch.bfloat16, device=kinds.DEVICE),
        "stats": torch.empty(b, h, 1, 1, device=kinds.DEVICE),
    }


def in_order(p: dict[str, Any], buffers: Buffers, name: str, entry: int) -> Any:
    """[h / g, s, d]: k or v of an entry of the batch."""
    rows = buffers[name][buffers[f"{name}_table"][entry].flatten().long()]
    return rows.transpose(0, 1).reshape(p["h"] // p["groups"], p["s"], p["d"])


def _exact(p: dict[str, Any], s: Buffers) -> Buffers:
    """In float64; one entry of the batch at a time."""
    found: dict[str, list[Any]] = {"o": [], "stats": []}
    for entry, q in enumerate(s["q"]):
        k, v = (in_order(p, s, name, entry).double() for name in "kv")
        grouped = q.double().reshape(-1, p["groups"], p["d"])
        scores = grouped @ k.mT * p["d"] ** -0.5
        stats = torch.logsumexp(scores, -1, keepdim=True)
        found["o"].append((torch.exp(scores - stats) @ v).reshape(q.shape))
        found["stats"].append(stats.reshape(p["h"], 1, 1))
    return {name: torch.stack(parts) for name, parts in found.items()}
