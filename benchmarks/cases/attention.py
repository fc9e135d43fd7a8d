"""The cases of attention, forward: heads, layouts, types, masks and other work on the scores.

    o [b, h, s, dv] = softmax(scores(q [b, h, s, d] @ k^T / sqrt(d))) @ v,    stats [b, h, s, 1]

with k [b, h / g, s, d] and v [b, h / g, s, dv], of which g heads of q share one.  An id is

    attention/type/scores/BxHxS-dD[vDv][/gqaG][/bshd][/qQ]

in which Dv is left out where it is D, and Q, the rows of q, where they are S; others have scores
full.  bshd: tensors are [b, s, h, d] in memory.  scores is full,
or some of SCORES joined by _, a number behind it where it has one: causal_softcap50; band and
random are masks of blocks, which stand alone.
"""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

from ..graphs.attention import SCALES
from ..peers.torch_later import torch
from . import attention_blocks, kinds
from .attention_blocks import BLOCK, has_blocks
from .case import Buffers, Case
from .kinds import bytes_of, torch_type

# What is done to scores -> whether a number belongs to it.
SCORES = {
    "causal": False,  # column <= row
    "softcap": True,  # n * tanh(s / n)
    "window": True,  # row - n < column
    "alibi": False,  # slopes of heads times (column - row)
    "documents": True,  # those of the row's document; documents of n rows at least
    "band": True,  # of the n blocks that end with the row's own
    "random": True,  # of n hundredths of all blocks
}

# The unit of each type: what rounding O to it may cost (docs/numerics.md).
_TOLERANCES = {"bf16": 2.0**-8, "fp16": 2.0**-11, "e4m3": 2.0**-3}

# Of the rows, every so-manieth is computed exactly: no step of tiles, and 16384 rows fit.
_ROW_STEP = 31

# (batch, rows) with 16 heads of 128, or 32 of 64.
SIZES = ((16, 1024), (4, 4096), (1, 16384))
HEADS = ((128, 16), (64, 32))
# (D, Dv) of 16 heads.
OTHER_HEADS = ((96, 96), (192, 128), (256, 256))
MODIFIED = ("causal_softcap50", "causal_documents1024", "causal_alibi")
WINDOWS = (1024, 2048, 4096)
BLOCKS = ("band8", "random50")
# (batch, keys) of a decoder's step.
DECODED = (
    (1, 131072), (4, 32768), (16, 8192), (64, 8192), (64, 2048), (64, 1024), (16, 2048), (1, 8192),
)  # fmt: skip

# (batch, keys) beside a few queries: of a draft that is checked, of a prompt's piece.
FEW = ((8, 8192), (1, 8192), (4, 32768), (1, 65536))
FEW_QUERIES = (2, 4, 8, 16)


def attention(
    dtype: str, scores: str, b: int, h: int, s: int, d: int, dv: int = 0, groups: int = 1,
    layout: str = "bhsd", queries: int = 0,
) -> Case:  # fmt: skip
    """dtype: of q, k, v and o, bf16, fp16, or e4m3, of scores full and causal.  dv: 0 for d.
    groups: heads of q that share one.  queries: rows of q, 0 for s."""
    dv, queries = dv or d, queries or s
    if queries != s and scores != "full":
        raise ValueError(f"attention case of {queries} queries and {s} keys with scores {scores!r}")
    if dtype == "e4m3" and scores not in ("full", "causal"):
        raise ValueError(f"attention case of e4m3 with scores {scores!r}")
    if dtype not in _TOLERANCES or layout not in ("bhsd", "bshd") or h % groups:
        raise ValueError(f"no attention case {dtype!r}, {layout!r}, {groups} groups of {h} heads")
    p = {
        "dtype": dtype, "scores": scores, "b": b, "h": h, "s": s, "d": d, "dv": dv,
        "groups": groups, "layout": layout, "q": queries, **_parsed(scores),
    }  # fmt: skip
    suffix = f"/gqa{groups}" * (groups > 1) + f"/{layout}" * (layout != "bhsd")
    suffix += f"/q{queries}" * (queries != s)
    head = f"d{d}" + (f"v{dv}" if dv != d else "")
    read = h * queries * d + h // groups * s * (d + dv)
    step = _ROW_STEP if queries >= 4 * _ROW_STEP else 1
    return Case(
        id=f"attention/{dtype}/{scores}/{b}x{h}x{s}-{head}{suffix}",
        kind="attention",
        p=p,
        make=lambda: _make(p),
        exact=lambda buffers: _exact(p, step, buffers),
        flops=2.0 * (d + dv) * b * h * seen(p),
        bytes=float(b * (bytes_of(dtype) * (read + h * queries * dv) + 4 * h * queries)),
        unit="TFLOP/s" if queries == s else "GB/s",
        tolerance=_TOLERANCES[dtype],
        row_step=step,
        dense=f"attention/{dtype}/full/{b}x{h}x{s}-{head}{suffix}" if has_blocks(p) else "",
    )


def listed() -> list[Case]:
    """Heads of 64 and 128 at every size, also with other types, layouts and heads that share; then
    other heads at 4096 rows; then other scores."""
    found: list[Case] = []
    for (d, h), (b, s) in itertools.product(HEADS, SIZES):
        for scores in ("full", "causal"):
            found.append(attention("bf16", scores, b, h, s, d))
            found.append(attention("bf16", scores, b, h, s, d, groups=8))
            found.append(attention("fp16", scores, b, h, s, d))
            found.append(attention("bf16", scores, b, h, s, d, layout="bshd"))
    for scores in ("full", "causal"):
        found += [attention("bf16", scores, 4, 16, 4096, d, dv) for d, dv in OTHER_HEADS]
    for b, s in SIZES[1:]:
        found += [attention("bf16", scores, b, 16, s, 128) for scores in MODIFIED]
    found += [attention("bf16", f"causal_window{n}", 1, 16, 16384, 128) for n in WINDOWS]
    found += [attention("bf16", scores, 4, 16, 4096, 128) for scores in BLOCKS]
    found += [
        attention("e4m3", scores, b, 16, s, 128) for b, s in SIZES for scores in ("full", "causal")
    ]
    return found


def decoding() -> list[Case]:
    """One query of 32 heads on 4 of keys and values."""
    return [attention("bf16", "full", b, 32, s, 128, groups=8, queries=1) for b, s in DECODED]


def few_queries() -> list[Case]:
    """Some queries of 64 heads on 8 of keys and values."""
    return [
        attention("bf16", "full", b, 64, s, 128, groups=8, queries=n)
        for b, s in FEW
        for n in FEW_QUERIES
    ]


def long_heads() -> list[Case]:
    """Heads of 512, of a prompt and of one query, and one of DeepSeek's absorbed attention: 128
    heads of queries on one of 576, of which values are 512."""
    prompts = [attention("bf16", scores, 2, 16, 4096, 512) for scores in ("full", "causal")]
    return [
        *prompts,
        attention("bf16", "full", 2, 16, 32768, 512, groups=8, queries=1),
        attention("bf16", "full", 4, 128, 16384, 576, 512, groups=128, queries=1),
    ]


def attention_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    found = re.fullmatch(
        r"attention/(\w+)/(\w+)/(\d+)x(\d+)x(\d+)-d(\d+)(?:v(\d+))?(?:/gqa(\d+))?(?:/(bshd))?(?:/q(\d+))?",
        id_,
    )
    if found is None:
        raise ValueError(f"{id_!r} is no attention case")
    dtype, scores, *sizes, dv, groups, layout, queries = found.groups()
    b, h, s, d = map(int, sizes)
    made = attention(
        dtype, scores, b, h, s, d, int(dv or 0), int(groups or 1), layout or "bhsd",
        int(queries or 0),
    )  # fmt: skip
    if made.id != id_:
        raise ValueError(f"{id_!r} is spelled {made.id!r}")
    return made


def _parsed(scores: str) -> dict[str, int]:
    """Name of SCORES -> its number, 1 where it has none; 0 where it is not in `scores`."""
    found = dict.fromkeys(SCORES, 0)
    for part in [] if scores == "full" else scores.split("_"):
        name, number = re.fullmatch(r"([a-z]*)(\d*)", part).groups()  # pyright: ignore
        if name not in SCORES or SCORES[name] != bool(number) or found[name]:
            raise ValueError(f"no attention case of scores {scores!r}; there are {list(SCORES)}")
        found[name] = int(number or 1)
    if (found["window"] or found["alibi"]) and not found["causal"]:
        raise ValueError(f"attention case {scores!r}: a window and alibi come after causal")
    if has_blocks(found) and "_" in scores:
        raise ValueError(f"attention case {scores!r}: masks of blocks stand alone")
    return found


# ---- what rows see


def documents_of(s: int, least: int) -> list[int]:
    """Lengths of the documents in s rows, from `least` to three times that, always the same."""
    draw, found = random.Random(least), list[int]()
    while (left := s - sum(found)) >= 2 * least:
        found.append(min(draw.randint(least, 3 * least), left - least))
    return [*found, left]


def seen(p: dict[str, Any]) -> float:
    """Scores of a head that count; of a triangle, half of the square around it."""
    lengths = documents_of(p["s"], p["documents"]) if p["documents"] else [p["s"]]
    if p["q"] != p["s"]:
        return float(p["q"] * p["s"])
    if has_blocks(p):
        return attention_blocks.seen(p)
    share = 0.5 if p["causal"] else 1.0
    found = sum(share * n * n for n in lengths)
    if p["window"]:
        found -= sum(0.5 * max(0, n - p["window"]) ** 2 for n in lengths)
    return found


def is_seen(p: dict[str, Any], rows: Any, columns: Any, s: Buffers) -> Any:
    """Whether a row sees a column; s: a case's buffers, of which `own` and `blocks` are read."""
    found = (rows >= 0) & (columns >= 0)
    if p["causal"]:
        found = found & (columns <= rows)
    if p["window"]:
        found = found & (columns > rows - p["window"])
    if p["documents"]:
        own = s["own"].flatten()
        found = found & (own[rows] == own[columns])
    if has_blocks(p):
        found = found & s["blocks"][rows // BLOCK, columns // BLOCK]
    return found


def slopes_of(h: int) -> Any:
    """ALiBi's, of a power of two of heads."""
    if h & (h - 1):
        raise ValueError(f"slopes of {h} heads; those of a power of two are known")
    return torch.tensor([2.0 ** (-8.0 * (i + 1) / h) for i in range(h)], device=kinds.DEVICE)


# ---- buffers


def _make(p: dict[str, Any]) -> Buffers:
    dtype, b, h, s, shared = torch_type(p["dtype"]), p["b"], p["h"], p["s"], p["h"] // p["groups"]

    def empty(heads: int, size: int, rows: int, type_: Any = dtype) -> Any:
        if p["layout"] == "bhsd":
            return torch.empty(b, heads, rows, size, dtype=type_, device=kinds.DEVICE)
        made = torch.empty(b, rows, heads, size, dtype=type_, device=kinds.DEVICE)
        return made.permute(0, 2, 1, 3)

    def normal(heads: int, size: int, rows: int) -> Any:
        if p["dtype"] != "e4m3":
            return empty(heads, size, rows).normal_()
        return empty(heads, size, rows, torch.float32).normal_(0, 1 / SCALES["descale_q"]).to(dtype)

    buffers = {
        "q": normal(h, p["d"], p["q"]),
        "k": normal(shared, p["d"], s),
        "v": normal(shared, p["dv"], s),
        "o": empty(h, p["dv"], p["q"]),
        "stats": torch.empty(b, h, p["q"], 1, device=kinds.DEVICE),
    }
    if p["dtype"] == "e4m3":
        numbers = {**SCALES, "amax_s": 0.0, "amax_o": 0.0}
        for name, number in numbers.items():
            buffers[name] = torch.full((1, 1, 1, 1), number, device=kinds.DEVICE)
    if p["alibi"]:
        buffers["slopes"] = slopes_of(h).reshape(1, h, 1, 1)
    if p["documents"]:
        lengths = documents_of(s, p["documents"])
        numbers = list(itertools.chain(*([i] * n for i, n in enumerate(lengths))))
        own = torch.tensor(numbers, dtype=torch.int32, device=kinds.DEVICE)
        buffers |= {"own": own.reshape(1, 1, s, 1), "other": own.reshape(1, 1, 1, s)}
    if has_blocks(p):
        blocks = torch.tensor(attention_blocks.seen_blocks(p), device=kinds.DEVICE)
        mask = torch.tensor(attention_blocks.mask_bytes(p), device=kinds.DEVICE)
        dims = attention_blocks.mask_dims(p)
        buffers |= {"blocks": blocks, "mask": mask.to(torch.uint8).reshape(dims)}
    return buffers


def _exact(p: dict[str, Any], step: int, s: Buffers) -> Buffers:
    """In float64, of every step-th row; one entry of the batch at a time.  O in memory: of e4m3,
    times its scale."""
    rows = torch.arange(0, p["q"], step, device=kinds.DEVICE)[:, None]
    columns = torch.arange(p["s"], device=kinds.DEVICE)
    keep = is_seen(p, rows, columns, s)
    found: dict[str, list[Any]] = {"o": [], "stats": []}
    scale = {name: SCALES[name] if p["dtype"] == "e4m3" else 1.0 for name in SCALES}
    for q, k, v in zip(s["q"], s["k"], s["v"], strict=True):
        q, k, v = q[:, ::step].double(), k.double(), v.double()
        k, v = (x.repeat_interleave(p["groups"], 0) for x in (k, v))
        q, k, v = q * scale["descale_q"], k * scale["descale_k"], v * scale["descale_v"]
        scores = q @ k.mT * p["d"] ** -0.5
        if p["softcap"]:
            scores = p["softcap"] * torch.tanh(scores / p["softcap"])
        if p["alibi"]:
            scores += s["slopes"][0].double() * (columns - rows)
        scores.masked_fill_(~keep, float("-inf"))
        stats = torch.logsumexp(scores, -1, keepdim=True)
        found["o"].append(torch.exp(scores.sub_(stats)) @ v * scale["scale_o"])
        found["stats"].append(stats)
    return {name: torch.stack(parts) for name, parts in found.items()}
