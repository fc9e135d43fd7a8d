"""The cases of the gradient of attention of fp8: q, k, v, o and the results of e4m3, dO of e5m2.

An id is attention_fp8_backward/scores/BxHxS-dD, scores full or causal.  Numbers in memory are what
they stand for times a scale, as in `cases.attention`; the exact results are of what is in memory.
"""

from __future__ import annotations

from typing import Any

from ..graphs.attention import GRADIENT_SCALES, SCALES
from ..peers.torch_later import torch
from . import kinds
from .attention import attention, attention_of
from .attention_backward import attention_backward, exact_gradients, run_forward
from .case import Buffers, Case

KIND = "attention_fp8_backward"
# (batch, heads, rows, scores) of heads of 128.
SIZES = (
    (4, 16, 4096, "full"), (4, 16, 4096, "causal"), (16, 16, 1024, "full"),
    (1, 16, 16384, "causal"),
)  # fmt: skip

# What is in memory, over what it stands for.
_IN_MEMORY = {
    **{name: 1 / SCALES[f"descale_{name}"] for name in ("q", "k", "v")},
    "o": SCALES["scale_o"],
    "do": 1 / GRADIENT_SCALES["descale_dO"],
    **{name: GRADIENT_SCALES[f"scale_{name}"] for name in ("dQ", "dK", "dV")},
}


def attention_fp8_backward(scores: str, b: int, h: int, s: int, d: int) -> Case:
    """The gradient of the case of e4m3 that `attention` makes of these."""
    forward = attention("e4m3", scores, b, h, s, d)
    elements = b * h * s * d
    return Case(
        id=forward.id.replace("attention/e4m3", KIND, 1),
        kind=KIND,
        p=forward.p,
        make=lambda: _make(forward),
        exact=lambda buffers: _exact(forward, buffers),
        flops=forward.flops * 2.5,
        bytes=float(8 * elements + 4 * b * h * s),
        tolerance=2.0**-3,  # P, dS and the results are rounded to fp8, each by up to 2^-3 or 2^-4
    )


def listed() -> list[Case]:
    """Each gradient of fp8 beside that of bf16."""
    found: list[Case] = []
    for b, h, s, scores in SIZES:
        found.append(attention_fp8_backward(scores, b, h, s, 128))
        found.append(attention_backward("bf16", scores, b, h, s, 128))
    return found


def attention_fp8_backward_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    forward = attention_of(id_.replace(KIND, "attention/e4m3", 1))
    b, h, s, d = (forward.p[name] for name in ("b", "h", "s", "d"))
    made = attention_fp8_backward(forward.p["scores"], b, h, s, d)
    if made.id != id_:
        raise ValueError(f"{id_!r} is no {KIND} case; the nearest is {made.id!r}")
    return made


def _make(forward: Case) -> Buffers:
    made = forward.make()
    wide = {name: _meant(made, name, torch.float32) for name in "qkv"}
    wide |= {"o": torch.empty_like(wide["q"]), "stats": made["stats"]}
    run_forward(dict(forward.p), wide)
    made["o"] = (wide["o"] * _IN_MEMORY["o"]).to(made["o"].dtype)
    drawn = torch.empty_like(wide["q"]).normal_(0, _IN_MEMORY["do"])
    made["do"] = drawn.to(torch.float8_e5m2)
    for name, number in GRADIENT_SCALES.items():
        made[name] = torch.full((1, 1, 1, 1), number, device=kinds.DEVICE)
    for name in ("dQ", "dK", "dV", "dP"):
        made[f"amax_{name}"] = torch.zeros((1, 1, 1, 1), device=kinds.DEVICE)
    return made | {f"d{name}": torch.empty_like(made[name]) for name in "qkv"}


def _meant(buffers: Buffers, name: str, dtype: Any) -> Any:
    return buffers[name].to(dtype) / _IN_MEMORY[name]


def _exact(forward: Case, buffers: Buffers) -> Buffers:
    wide = {name: _meant(buffers, name, torch.float64) for name in ("q", "k", "v", "o", "do")}
    found = exact_gradients(dict(forward.p), {**wide, "stats": buffers["stats"]})
    return {name: found[name] * _IN_MEMORY[f"d{name[1:].upper()}"] for name in found}
