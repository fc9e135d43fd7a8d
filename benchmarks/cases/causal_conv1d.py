"""The cases of causal convolutions along a sequence, a filter of some taps for each channel.

    z [b, d, t] = the sum over i < W of w [d, i] * x [b, d, t - (W - 1) + i], + bias [d]
    y [b, d, t] = silu(z)

and of their gradient, dx, dw and dbias of dy.  An id is

    causal_conv1d/type/order/BxDxT[/states],    causal_conv1d_backward/type/order/BxDxT

of 4 taps; order: of memory, last ([b, t, d]) or first ([b, d, t]).  states: with the elements ahead
of x as an input; without, zeros are ahead of it.
"""

from __future__ import annotations

import re
from typing import Any

from ..peers.torch_later import functional, torch
from . import kinds
from .case import Buffers, Case
from .kinds import TOLERANCES, bytes_of, torch_type

KIND = "causal_conv1d"
BACKWARD = "causal_conv1d_backward"
TAPS = 4
ORDERS = ("last", "first")
SIZES = (8, 2048, 4096)


def causal_conv1d(dtype: str, order: str, b: int, d: int, t: int, states: bool = False) -> Case:
    """The convolution with bias and SiLU.  dtype: bf16, fp16 or fp32."""
    return _case(KIND, dtype, order, b, d, t, states)


def causal_conv1d_backward(dtype: str, order: str, b: int, d: int, t: int) -> Case:
    """The gradients of the convolution without states."""
    return _case(BACKWARD, dtype, order, b, d, t, False)


def listed() -> list[Case]:
    """One size in both orders, with states where channels are last, and the gradients."""
    found = [causal_conv1d("bf16", order, *SIZES) for order in ORDERS]
    found.append(causal_conv1d("bf16", "last", *SIZES, states=True))
    return found + [causal_conv1d_backward("bf16", order, *SIZES) for order in ORDERS]


def causal_conv1d_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    found = re.fullmatch(r"(\w+)/(\w+)/(\w+)/(\d+)x(\d+)x(\d+)(/states)?", id_)
    if found is None or found[1] not in (KIND, BACKWARD) or (found[1] == BACKWARD and found[7]):
        raise ValueError(f"{id_!r} is no causal_conv1d case")
    kind, dtype, order, *sizes, states = found.groups()
    return _case(kind, dtype, order, *map(int, sizes), bool(states))


def in_torch(kind: str, s: Buffers) -> Any:
    """Results as a torch user writes them: a grouped convolution, padded on both sides, whose end
    is left out.  The gradient has the sums before the SiLU from the forward pass."""
    x, w, bias = s["x"], s["w"][:, None], s["bias"]
    channels, t = x.shape[1:]
    if kind == BACKWARD:
        dz = torch.ops.aten.silu_backward(s["dy"], s["z"])
        dx, dw, db = torch.ops.aten.convolution_backward(
            functional.pad(dz, (0, TAPS - 1)), x, w, [channels], [1], [TAPS - 1], [1], False, [0],
            channels, [True] * 3,
        )  # fmt: skip
        return dx, dw[:, 0], db
    if "states" in s:
        z = functional.conv1d(torch.cat([s["states"], x], 2), w, bias, groups=channels)
    else:
        z = functional.conv1d(x, w, bias, padding=TAPS - 1, groups=channels)[..., :t]
    return functional.silu(z)


def _case(kind: str, dtype: str, order: str, b: int, d: int, t: int, states: bool) -> Case:
    if dtype not in ("bf16", "fp16", "fp32") or order not in ORDERS:
        raise ValueError(f"no {kind} case of {dtype!r} with channels {order!r}")
    p = {"dtype": dtype, "order": order, "b": b, "d": d, "t": t, "states": states}
    tensors = 3 if kind == BACKWARD else 2
    return Case(
        id=f"{kind}/{dtype}/{order}/{b}x{d}x{t}" + "/states" * states,
        kind=kind,
        p=p,
        make=lambda: _make(kind, p),
        exact=lambda buffers: (_exact_gradients if kind == BACKWARD else _exact)(buffers),
        bytes=float(bytes_of(dtype) * tensors * b * d * t),
        unit="GB/s",
        tolerance=TOLERANCES[dtype],
    )


def _make(kind: str, p: dict[str, Any]) -> Buffers:
    dtype, b, d, t = torch_type(p["dtype"]), p["b"], p["d"], p["t"]

    def empty(length: int) -> Any:
        if p["order"] == "first":
            return torch.empty(b, d, length, dtype=dtype, device=kinds.DEVICE)
        return torch.empty(b, length, d, dtype=dtype, device=kinds.DEVICE).mT

    made = {
        "x": empty(t).normal_(),
        "w": torch.randn(d, TAPS, device=kinds.DEVICE).to(dtype),
        "bias": torch.randn(d, device=kinds.DEVICE).to(dtype),
    }
    if p["states"]:
        made["states"] = empty(TAPS - 1).normal_()
    if kind == KIND:
        return made | {"y": empty(t)}
    made["dy"] = empty(t).normal_(0, (b * t) ** -0.5)  # sums over all places stay of unit size
    made["z"] = empty(t).copy_(_sums(made))  # of the forward pass, for torch
    return made | {
        "dx": empty(t), "dw": torch.empty_like(made["w"]), "dbias": torch.empty_like(made["bias"]),
    }  # fmt: skip


def _ahead(s: Buffers) -> Any:
    """x behind the elements ahead of it, in float64."""
    x = s["x"].double()
    if "states" in s:
        return torch.cat([s["states"].double(), x], 2)
    return functional.pad(x, (TAPS - 1, 0))


def _sums(s: Buffers) -> Any:
    """z in float64."""
    x, w, t = _ahead(s), s["w"].double(), s["x"].shape[2]
    z = s["bias"].double()[:, None] + w[:, 0, None] * x[..., :t]
    for tap in range(1, TAPS):
        z += w[:, tap, None] * x[..., tap : tap + t]
    return z


def _exact(s: Buffers) -> Buffers:
    return {"y": functional.silu(_sums(s))}


def _exact_gradients(s: Buffers) -> Buffers:
    z, x, t = _sums(s), _ahead(s), s["x"].shape[2]
    share = torch.sigmoid(z)
    dz = s["dy"].double() * share * (1 + z * (1 - share))
    behind = functional.pad(dz, (0, TAPS - 1))
    dx = torch.zeros_like(dz)
    dw = torch.empty(s["w"].shape, dtype=torch.float64, device=dz.device)
    for tap in range(TAPS):
        first = TAPS - 1 - tap
        dx += s["w"].double()[:, tap, None] * behind[..., first : first + t]
        dw[:, tap] = (dz * x[..., tap : tap + t]).sum((0, 2))
    return {"dx": dx, "dw": dw, "dbias": dz.sum((0, 2))}
