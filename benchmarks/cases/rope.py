"""The cases of rotary embeddings (RoPE): alone, and of queries and keys ahead of attention.

    rope/bf16/kind/BxHxS-dD
    rope_attention/bf16/kind/BxHxS-dD/gqaG[/qQ]

kind: what the angles are given as: angles [1, 1, s, d] in f32, whose cosines and sines the kernel
computes, or tables of both [1, 1, s, d / 2], in bf16.  Element i of a row is rotated with element
i + d / 2.  Attention is that of the case attention/bf16/causal/BxHxS-dD/gqaG; with Q queries for S
keys it is full, and keys are rotated already, as in a cache.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..peers.torch_later import torch
from . import kinds
from .attention import attention
from .case import Buffers, Case

KIND, WITH_ATTENTION = "rope", "rope_attention"
ANGLES = ("angles", "tables")
_BASE = 10000.0
_TOLERANCE = 2.0**-7  # rotated rows are rounded to bf16, then O is

# (b, h, h / g, s) of prompts, with heads of 128.
PROMPTS = ((4, 32, 8, 4096), (1, 32, 8, 2048))
# (b, h, h / g, keys) of one query.
STEP = (32, 32, 8, 4096)
_DEPTH = 128


def rope(angles: str, b: int, h: int, s: int, d: int) -> Case:
    """y [b, h, s, d]: x, rotated.  angles: of ANGLES."""
    p = {"angles": _known(angles), "b": b, "h": h, "s": s, "d": d}
    return Case(
        id=f"rope/bf16/{angles}/{b}x{h}x{s}-d{d}",
        kind=KIND,
        p=p,
        make=lambda: _rows_buffers(p),
        exact=lambda buffers: {"y": rotated(buffers["x"].double(), buffers, "")},
        bytes=2.0 * 2 * b * h * s * d,
        unit="GB/s",
        tolerance=_TOLERANCE,
    )


def rope_attention(
    angles: str, b: int, h: int, s: int, d: int, groups: int, queries: int = 0
) -> Case:
    """Attention of rotated queries and keys; of `queries` rows beside s keys, of queries alone."""
    plain = attention_of_rotated(b, h, s, d, groups, queries)
    p = {
        "angles": _known(angles), "b": b, "h": h, "s": s, "d": d, "groups": groups,
        "q": queries or s,
    }  # fmt: skip
    return Case(
        id=plain.id.replace(f"attention/bf16/{plain.p['scores']}", f"rope_attention/bf16/{angles}"),
        kind=WITH_ATTENTION,
        p=p,
        make=lambda: plain.make() | _of_ends(p),
        exact=lambda s: plain.exact({**s, **{n: rotated(s[n].double(), s, n) for n in ends(p)}}),
        flops=plain.flops,
        bytes=plain.bytes,
        unit=plain.unit,
        tolerance=_TOLERANCE,
        row_step=plain.row_step,
    )


def attention_of_rotated(b: int, h: int, s: int, d: int, groups: int, queries: int = 0) -> Case:
    """The attention behind such rotations, alone."""
    scores = "full" if queries else "causal"
    return attention("bf16", scores, b, h, s, d, groups=groups, queries=queries)


def listed() -> list[Case]:
    """Rotations and attention in one graph, then each of the graphs that it stands for."""
    found: list[Case] = []
    for b, h, shared, s in PROMPTS:
        groups = h // shared
        found += [rope_attention(angles, b, h, s, _DEPTH, groups) for angles in ANGLES]
        found += [rope(angles, b, heads, s, _DEPTH) for angles in ANGLES for heads in (h, shared)]
        found.append(attention_of_rotated(b, h, s, _DEPTH, groups))
    b, h, shared, s = STEP
    groups = h // shared
    found += [rope_attention(angles, b, h, s, _DEPTH, groups, queries=1) for angles in ANGLES]
    found += [rope(angles, b, h, 1, _DEPTH) for angles in ANGLES]
    return [*found, attention_of_rotated(b, h, s, _DEPTH, groups, queries=1)]


def rope_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    found = re.fullmatch(
        r"(rope|rope_attention)/bf16/(\w+)/(\d+)x(\d+)x(\d+)-d(\d+)(?:/gqa(\d+))?(?:/q(\d+))?", id_
    )
    if found is None or (found[1] == KIND and (found[7] or found[8])):
        raise ValueError(f"{id_!r} is no rope case")
    kind, angles, *sizes, groups, queries = found.groups()
    b, h, s, d = map(int, sizes)
    if kind == KIND:
        return rope(angles, b, h, s, d)
    return rope_attention(angles, b, h, s, d, int(groups or 1), int(queries or 0))


def ends(p: Mapping[str, Any]) -> str:
    """The names of what is rotated ahead of attention."""
    return "qk" if p["q"] == p["s"] else "q"


def rotated(x: Any, s: Buffers, name: str) -> Any:
    """x in its type, by the angles or tables of a name."""
    half = x.shape[-1] // 2
    if "angles" + name in s:
        angles = s["angles" + name][..., :half]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    else:
        cos, sin = s["cos" + name].to(x.dtype), s["sin" + name].to(x.dtype)
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def in_torch(p: Mapping[str, Any], s: Buffers) -> Any:
    """Rotates as torch users write it, cosines in f32, then runs flash attention."""
    if "groups" not in p:
        return rotated(s["x"], s, "")
    q, k = (rotated(s[n], s, n) if n in ends(p) else s[n] for n in "qk")
    run = torch.ops.aten._scaled_dot_product_flash_attention
    return run(q, k, s["v"], 0.0, p["q"] == p["s"])[:2]


def _known(angles: str) -> str:
    if angles not in ANGLES:
        raise ValueError(f"no rope case of {angles!r}; there are {ANGLES}")
    return angles


def _rows_buffers(p: Mapping[str, Any]) -> Buffers:
    x = torch.empty(p["b"], p["h"], p["s"], p["d"], dtype=torch.bfloat16, device=kinds.DEVICE)
    return {"x": x.normal_(), "y": torch.empty_like(x), **_angles(p, p["s"], 0, "")}


def _of_ends(p: Mapping[str, Any]) -> Buffers:
    """Angles of queries and keys; queries are the last rows."""
    found: Buffers = {}
    for name in ends(p):
        rows = p["q"] if name == "q" else p["s"]
        found |= _angles(p, rows, p["s"] - rows, name)
    return found


def _angles(p: Mapping[str, Any], rows: int, first: int, name: str) -> Buffers:
    """Angles of the rows from `first` on, each twice, or cosines and sines of them."""
    places = torch.arange(first, first + rows, dtype=torch.float64, device=kinds.DEVICE)
    half = p["d"] // 2
    steps = _BASE ** -(torch.arange(half, dtype=torch.float64, device=kinds.DEVICE) / half)
    angles = (places[:, None] * steps)[None, None]
    if p["angles"] == "angles":
        return {"angles" + name: torch.cat([angles, angles], -1).float()}
    found = {"cos" + name: angles.cos(), "sin" + name: angles.sin()}
    return {key: table.to(torch.bfloat16).contiguous() for key, table in found.items()}
