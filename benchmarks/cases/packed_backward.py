"""The cases of packed attention's gradient: dQ, dK and dV of sequences of many lengths.

They are those of `cases.packed`, as packed_backward/bf16/causal/TxH-dD/meanM, and each has a dense
case as they have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from ..peers.torch_later import torch
from .attention import HEADS
from .attention_backward import attention_backward_of, exact_gradients, run_forward
from .case import Buffers, Case
from .packed import MEANS, packed_of
from .packed import packed as forward_of

KIND = "packed_backward"
TOTALS = (16384, 65536)


def packed_backward(t: int, h: int, d: int, mean: int) -> Case:
    """The gradient of the case that `packed` makes of these."""
    return _gradient(forward_of(t, h, d, mean))


def listed() -> list[Case]:
    """Each followed by its dense case."""
    found = [packed_backward(t, h, d, mean) for d, h in HEADS for mean in MEANS for t in TOTALS]
    pairs = ([case, attention_backward_of(case.dense)] for case in found)
    return list({case.id: case for case in itertools.chain(*pairs)}.values())


def packed_backward_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    return _gradient(packed_of(id_.replace(KIND, "packed", 1)))


def _gradient(forward: Case) -> Case:
    if not forward.p["causal"]:
        raise ValueError(
            f"{forward.id!r} has no gradient among the cases: its scores are not causal"
        )
    p = {**forward.p, "b": 1, "groups": 1, "causal": 1, "window": 0, "softcap": 0, "documents": 0}
    t, h, d = p["t"], p["h"], p["d"]
    return Case(
        id=forward.id.replace("packed", KIND, 1),
        kind=KIND,
        p=p,
        make=lambda: _make(p, forward),
        exact=lambda buffers: _exact(p, buffers),
        flops=2.5 * forward.flops,
        bytes=float(t * h * (8 * 2 * d + 4)),
        tolerance=forward.tolerance,
        dense=forward.dense.replace("attention", "attention_backward", 1),
    )


def _make(p: dict[str, Any], forward: Case) -> Buffers:
    made = forward.make()
    for own, part in _sequences(p, made):
        run_forward(own, part)
    made["do"] = torch.empty_like(made["o"]).normal_()
    return made | {f"d{name}": torch.empty_like(made[name]) for name in "qkv"}


def _exact(p: dict[str, Any], s: Buffers) -> Buffers:
    """The gradients in float64, a sequence and a head after the other."""
    parts = [exact_gradients(own, part) for own, part in _sequences(p, s)]
    return {name: torch.cat([part[name] for part in parts], 2) for name in ("dq", "dk", "dv")}


def _sequences(p: dict[str, Any], s: Buffers) -> Iterator[tuple[dict[str, Any], Buffers]]:
    """Parameters and buffers of each sequence, as of attention of its rows alone."""
    first = 0
    for length in p["lengths"]:
        own = {**p, "s": length, "q": length, "band": 0, "random": 0}
        names = [name for name in ("q", "k", "v", "o", "stats", "do") if name in s]
        yield own, {name: s[name][:, :, first : first + length] for name in names}
        first += length
