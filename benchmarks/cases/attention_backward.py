"""The cases of attention's gradient: dQ, dK and dV of dO, O and the statistics of the forward pass.

They are those of `cases.attention`, without ALiBi and masks of blocks, as
attention_backward/type/scores/BxHxS-dD[vDv][/gqaG][/bshd][/repeats]; repeats: with the same bits
each time.
"""

from __future__ import annotations

import itertools
from typing import Any

from ..peers.torch_later import torch
from . import kinds
from .attention import HEADS, OTHER_HEADS, SIZES, WINDOWS, attention, attention_of, is_seen
from .case import Buffers, Case
from .kinds import bytes_of

KIND = "attention_backward"
_SCORES = ("alibi", "band", "random")  # which have no case here
_REPEATS = "/repeats"
# (type, what else differs) of the rows at every size.
_FORMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bf16", {}), ("bf16", {"groups": 8}), ("fp16", {}), ("bf16", {"layout": "bshd"}),
)  # fmt: skip


def attention_backward(*args: Any, repeats: bool = False, **more: Any) -> Case:
    """The gradient of the case that `attention` makes of these."""
    return _gradient(attention(*args, **more), repeats)


def listed() -> list[Case]:
    """Heads of 64 and 128 at every size, also with heads that share, other types and layouts;
    then at 4096 rows other heads, and the same bits each time; then other scores."""
    found = [
        attention_backward(dtype, scores, b, h, s, d, **more)
        for (d, h), (b, s) in itertools.product(HEADS, SIZES)
        for dtype, more in _FORMS
        for scores in ("full", "causal")
    ]
    for scores in ("full", "causal"):
        found += [attention_backward("bf16", scores, 4, 16, 4096, d, dv) for d, dv in OTHER_HEADS]
        for d, h, groups in ((128, 16, 1), (128, 16, 8), (64, 32, 1)):
            found.append(
                attention_backward("bf16", scores, 4, h, 4096, d, groups=groups, repeats=True)
            )
    found.append(attention_backward("bf16", "causal", 1, 32, 4096, 128, groups=32))
    found += [
        attention_backward("bf16", f"causal_{name}", b, 16, s, 128)
        for name in ("softcap50", "documents1024")
        for b, s in SIZES[1:]
    ]
    found += [attention_backward("bf16", f"causal_window{n}", 1, 16, 16384, 128) for n in WINDOWS]
    return found


def ordered() -> list[Case]:
    """Gradients with the same bits each time, each beside the one that adds in any order."""
    return [
        attention_backward("bf16", scores, b, h, s, d, repeats=repeats)
        for (d, h), (b, s) in itertools.product(HEADS, SIZES)
        for scores in ("full", "causal")
        for repeats in (False, True)
    ]


def attention_backward_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    of = id_.removesuffix(_REPEATS).replace(KIND, "attention", 1)
    return _gradient(attention_of(of), id_.endswith(_REPEATS))


def _gradient(forward: Case, repeats: bool) -> Case:
    p = {**forward.p, "repeats": repeats}
    if p["q"] != p["s"] or p["dtype"] == "e4m3" or any(p[name] for name in _SCORES):
        raise ValueError(f"no gradient case of {forward.id}")
    d, dv, b, h, s = (p[name] for name in ("d", "dv", "b", "h", "s"))
    shared = h // p["groups"]
    elements = 2 * (h * s * (d + dv) + shared * s * (d + dv))
    return Case(
        id=forward.id.replace("attention", KIND, 1) + _REPEATS * repeats,
        kind=KIND,
        p=p,
        make=lambda: _make(p, forward),
        exact=lambda buffers: exact_gradients(p, buffers),
        flops=forward.flops / (d + dv) * (3 * d + 2 * dv),
        bytes=float(b * (bytes_of(p["dtype"]) * elements + 4 * h * s)),
        tolerance=forward.tolerance,
    )


def _make(p: dict[str, Any], forward: Case) -> Buffers:
    made = forward.make()
    run_forward(p, made)
    made["do"] = torch.empty_like(made["o"]).normal_()
    return made | {f"d{name}": torch.empty_like(made[name]) for name in "qkv"}


def run_forward(p: dict[str, Any], s: Buffers) -> None:
    """Writes o and stats of q, k and v, in f32, a head after the other."""
    for o, stats, parts in zip(s["o"], s["stats"], _heads(p, s), strict=True):
        for head, (q, k, v, keep) in enumerate(parts):
            scores = _scores(p, q.float(), k.float(), keep)
            stats[head] = torch.logsumexp(scores, -1, keepdim=True)
            o[head] = (torch.exp(scores.sub_(stats[head])) @ v.float()).to(o.dtype)


def _heads(p: dict[str, Any], s: Buffers) -> Any:
    """For each entry of the batch: (q, k, v, which scores are seen) of each query head."""
    rows = torch.arange(p["s"], device=kinds.DEVICE)[:, None]
    keep = is_seen(p, rows, rows.T, s) if p["causal"] else None
    for q, k, v in zip(s["q"], s["k"], s["v"], strict=True):
        yield ((q[i], k[i // p["groups"]], v[i // p["groups"]], keep) for i in range(p["h"]))


def _scores(p: dict[str, Any], q: Any, k: Any, keep: Any) -> Any:
    scores = q @ k.mT * p["d"] ** -0.5
    if p["softcap"]:
        scores = p["softcap"] * torch.tanh(scores / p["softcap"])
    return scores if keep is None else scores.masked_fill_(~keep, float("-inf"))


def exact_gradients(p: dict[str, Any], s: Buffers) -> Buffers:
    """The gradients in float64, a head after the other."""
    made = {f"d{name}": torch.zeros_like(s[name], dtype=torch.float64) for name in "qkv"}
    for i, parts in enumerate(_heads(p, s)):
        for head, (q, k, v, keep) in enumerate(parts):
            q, k, v = q.double(), k.double(), v.double()
            o, do = s["o"][i, head].double(), s["do"][i, head].double()
            scores = _scores(p, q, k, keep)
            weights = torch.exp(scores - s["stats"][i, head].double())
            own = head // p["groups"]
            made["dv"][i, own] += weights.mT @ do
            weights *= do @ v.mT - (do * o).sum(-1, keepdim=True)
            if p["softcap"]:
                slopes = 1 - (scores / p["softcap"]) ** 2
                weights *= slopes if keep is None else slopes.masked_fill_(~keep, 0)
            made["dq"][i, head] = weights @ k * p["d"] ** -0.5
            made["dk"][i, own] += weights.mT @ q * p["d"] ** -0.5
    return made
