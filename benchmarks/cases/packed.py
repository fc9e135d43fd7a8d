"""The cases of packed attention, forward: sequences of many lengths, one after the other.

    o [1, h, t, d] = softmax(scores(q [1, h, t, d] @ k^T / sqrt(d))) @ v,    stats [1, h, t, 1]

in memory [t, h, d] and [t, h]: the t rows of all sequences, whose rows see those of their own
sequence, up to themselves if they are causal.  An id is

    packed/bf16/causal/TxH-dD/meanM             log-normal lengths of M rows in the mean
    packed/bf16/full/TxH-dD/uniformA-B          uniform ones of A to B rows
    packed/bf16/full/TxH-dD/lognormalA-B        log-normal ones of A to B rows

A case's `dense` is a batch of sequences of one length, of
about as many rows, [b, s, h, d] in memory.  The length is that of a row's own sequence in the mean
over rows: so the work of a row is the same, and the share of it that tiles on diagonals add.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from typing import Any

from ..peers.torch_later import torch
from . import kinds
from .attention import HEADS, attention
from .case import Buffers, Case

_TOLERANCE = 2.0**-8  # what rounding O to bf16 may cost, as in attention_cases
_ROW_STEP = 31
_DEVIATION = 1.0  # of the logarithm of a length
_NARROW_DEVIATION = 0.5  # the same, of lengths that are bounded
_TILE = 128  # a dense case's rows are a multiple of it

TOTALS = (16384, 32768, 65536)
MEANS = (570, 4096)
SCORES = ("causal", "full")
# Rows of all sequences -> their lengths: many, all alike, and short ones.
DRAWN = {
    32768: ("uniform128-1024", "lognormal128-1024", "uniform512-512"),
    18432: ("uniform16-128",),
}


def packed(t: int, h: int, d: int, mean: int) -> Case:
    """t: rows of all sequences.  mean: of a sequence, about."""
    return _case(t, h, d, lengths_of(t, mean), f"mean{mean}", "causal")


def drawn(t: int, h: int, d: int, kind: str, least: int, most: int, scores: str) -> Case:
    """kind: uniform or lognormal.  least, most: rows of a sequence.  scores: of SCORES."""
    lengths = drawn_lengths(t, kind, least, most)
    return _case(t, h, d, lengths, f"{kind}{least}-{most}", scores)


def _case(t: int, h: int, d: int, lengths: list[int], name: str, scores: str) -> Case:
    """name: of the lengths."""
    p = {"t": t, "h": h, "d": d, "lengths": lengths, "causal": int(scores == "causal")}
    share = 0.5 if p["causal"] else 1.0  # of each square
    return Case(
        id=f"packed/bf16/{scores}/{t}x{h}-d{d}/{name}",
        kind="packed",
        p=p,
        make=lambda: _make(p),
        exact=lambda buffers: _exact(p, buffers),
        flops=share * 4.0 * d * h * sum(n * n for n in lengths),
        bytes=float(t * h * (4 * 2 * d + 4)),
        tolerance=_TOLERANCE,
        row_step=_ROW_STEP if t >= 4 * _ROW_STEP else 1,
        dense=dense(t, h, d, lengths, scores).id,
    )


def dense(t: int, h: int, d: int, lengths: list[int], scores: str = "causal") -> Case:
    """The case of one length that has about the rows and the work of these."""
    s = max(1, round(sum(n * n for n in lengths) / t / _TILE)) * _TILE
    return attention("bf16", scores, max(1, round(t / s)), h, s, d, layout="bshd")


def listed() -> list[Case]:
    """Each followed by its dense case."""
    found = [packed(t, h, d, mean) for d, h in HEADS for mean in MEANS for t in TOTALS]
    return _with_dense(found)


def listed_lengths() -> list[Case]:
    """Other lengths, causal and full; each followed by its dense case."""
    names = [(t, name) for t, names in DRAWN.items() for name in names]
    return _with_dense(
        [
            packed_of(f"packed/bf16/{scores}/{t}x{h}-d{d}/{name}")
            for d, h in HEADS
            for scores in SCORES
            for t, name in names
        ]
    )


def _with_dense(found: list[Case]) -> list[Case]:
    pairs = ([case, dense(*_sizes(case))] for case in found)
    return list({case.id: case for case in itertools.chain(*pairs)}.values())


def packed_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    form = r"packed/bf16/(causal|full)/(\d+)x(\d+)-d(\d+)/(mean|uniform|lognormal)(\d+)(?:-(\d+))?"
    found = re.fullmatch(form, id_)
    if found is None:
        raise ValueError(f"{id_!r} is no packed case")
    scores, *sizes, kind, low, high = found.groups()
    t, h, d = map(int, sizes)
    least, most = int(low), int(high or 0)
    if (kind == "mean") != (high is None) or (kind == "mean" and scores != "causal"):
        raise ValueError(f"{id_!r} is no packed case")
    if not 1 <= least <= (t if kind == "mean" else most):
        raise ValueError(f"packed case of {t} rows, of {id_.rsplit('/', 1)[1]}")
    return packed(t, h, d, least) if kind == "mean" else drawn(t, h, d, kind, least, most, scores)


def lengths_of(t: int, mean: int) -> list[int]:
    """Log-normal lengths of t rows in all, t / mean of them, always the same."""
    draw = random.Random(mean)
    drawn = [draw.lognormvariate(0.0, _DEVIATION) for _ in range(max(1, round(t / mean)))]
    ends = [round(t * end / sum(drawn)) for end in itertools.accumulate(drawn)]
    ends[-1] = t
    return [end - begin for begin, end in itertools.pairwise([0, *ends])]


def drawn_lengths(t: int, kind: str, least: int, most: int) -> list[int]:
    """Lengths of t rows in all, always the same, of which the last may be any."""
    draw = random.Random(f"{kind}{least}-{most}")
    found: list[int] = []
    while (left := t - sum(found)) > 0:
        if kind == "uniform":
            length = draw.randint(least, most)
        else:
            logarithm = draw.gauss(math.log(least * most) / 2, _NARROW_DEVIATION)
            length = min(most, max(least, round(math.exp(logarithm))))
        found.append(min(left, length))
    return found


def _sizes(case: Case) -> tuple[int, int, int, list[int], str]:
    scores = "causal" if case.p["causal"] else "full"
    return case.p["t"], case.p["h"], case.p["d"], case.p["lengths"], scores


# ---- buffers


def _make(p: dict[str, Any]) -> Buffers:
    """first: of each sequence, and the end, in rows; o_places, stats_places: the same in
    elements."""
    t, h, d, lengths = p["t"], p["h"], p["d"], p["lengths"]

    def empty(size: int, dtype: Any) -> Any:
        return torch.empty(1, t, h, size, dtype=dtype, device=kinds.DEVICE).permute(0, 2, 1, 3)

    def integers(values: list[int]) -> Any:
        made = torch.tensor(values, dtype=torch.int32, device=kinds.DEVICE)
        return made.reshape(-1, 1, 1, 1)

    first = integers([0, *itertools.accumulate(lengths)])
    return {
        **{name: empty(d, torch.bfloat16).normal_() for name in "qkv"},
        "o": empty(d, torch.bfloat16),
        "stats": empty(1, torch.float32),
        "lengths": integers(lengths),
        "first": first,
        "o_places": first * (h * d),
        "stats_places": first * h,
    }


def _exact(p: dict[str, Any], s: Buffers) -> Buffers:
    """In float64, of every so-manieth row of all; one sequence at a time."""
    step = _ROW_STEP if p["t"] >= 4 * _ROW_STEP else 1
    found: dict[str, list[Any]] = {"o": [], "stats": []}
    first = 0
    for length in p["lengths"]:
        q, k, v = (s[name][0, :, first : first + length].double() for name in "qkv")
        columns = torch.arange(length, device=kinds.DEVICE)
        rows = columns[-first % step :: step]
        scores = q[:, rows] @ k.mT * p["d"] ** -0.5
        if p["causal"]:
            scores.masked_fill_(columns > rows[:, None], float("-inf"))
        stats = torch.logsumexp(scores, -1, keepdim=True)
        found["o"].append(torch.exp(scores.sub_(stats)) @ v)
        found["stats"].append(stats)
        first += length
    return {name: torch.cat(parts, 1)[None] for name, parts in found.items()}
