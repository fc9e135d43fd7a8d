"""The matmul cases: types, layouts, what happens before and after the product.

    c [batch, m, n] = epilogue(prologue(a [batch, m, k], w [batch, n, k]^T))

A layout names the axis that lies contiguous in memory, of A and then of B = w^T: "kk" (B stored
as [n, k]; the default, which ids leave out), "kn" (B stored as [k, n]), "mn" (A stored as
[k, m], B as [k, n]) and "mk" (A stored as [k, m], B as [n, k]).  Buffers have the dims above in
every layout, and strides as the layout says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..peers.torch_later import functional, torch
from . import kinds
from .case import Buffers, Case, row_step, unit
from .kinds import OPERANDS, TOLERANCES, bytes_of, random_tensor, spread, torch_type

LAYOUTS = ("kk", "kn", "mn", "mk")

# The operation of an id: a function of the product, or of A and w.  scale is [n] after the
# product (descale: a scalar), [n] of w, [k] of A.
EPILOGUES: dict[str, Callable[[Any, Buffers], Any]] = {
    "none": lambda c, s: c,
    "bias_relu": lambda c, s: torch.relu(c + s["bias"]),
    "bias_gelu": lambda c, s: functional.gelu(c + s["bias"], approximate="tanh"),
    "bias_gelu_erf": lambda c, s: functional.gelu(c + s["bias"]),
    "scale_residual_silu": lambda c, s: functional.silu(torch.addcmul(s["r"], c, s["scale"])),
    "scale": lambda c, s: c * s["scale"],
    "descale": lambda c, s: c * s["scale"],
}
# The type of w, where the operation changes it.
PROLOGUES = {"dequant_int8": "int8", "dequant_e4m3": "e4m3", "scale_a": None}


def matmul(
    dtype: str, operation: str, batch: int, m: int, n: int, k: int, layout: str = "kk"
) -> Case:
    """A matmul of OPERANDS[dtype] with one of EPILOGUES or PROLOGUES."""
    if (operation not in EPILOGUES and operation not in PROLOGUES) or layout not in LAYOUTS:
        raise ValueError(f"no matmul case {operation!r} in layout {layout!r}")
    types = OPERANDS[dtype]
    epilogue = operation if operation in EPILOGUES else "none"
    prologue = operation if operation in PROLOGUES else ""
    w_type = PROLOGUES.get(operation) or types.w
    c_type = "int32" if (dtype, operation) == ("int8", "none") else types.c
    p = {
        "dtype": dtype, "epilogue": epilogue, "prologue": prologue, "layout": layout,
        "batch": batch, "m": m, "n": n, "k": k,
        "a_type": types.a, "w_type": w_type, "c_type": c_type, "sums": types.sums,
        "scale_type": types.scale,
    }  # fmt: skip
    flops = 2.0 * batch * m * n * k
    moved = m * k * bytes_of(types.a) + n * k * bytes_of(w_type)
    written = m * n * bytes_of(c_type) * (1 + (epilogue == "scale_residual_silu"))
    bytes_ = float(batch * (moved + written))
    sizes = f"{batch}x{m}x{n}x{k}" if batch > 1 else f"{m}x{n}x{k}"
    suffix = "" if layout == "kk" else f"/{layout}"
    step = row_step(m, max(k, n))
    is_exact = c_type == "int32"
    return Case(
        id=f"matmul/{dtype}/{operation}/{sizes}{suffix}",
        kind="matmul",
        p=p,
        make=lambda: _make(p),
        exact=lambda buffers: {"c": _exact(p, step, buffers)},
        flops=flops,
        bytes=bytes_,
        unit=unit(flops, bytes_),
        tolerance=0.0 if is_exact else max(TOLERANCES[dtype], TOLERANCES.get(c_type, 0.0)),
        row_step=step,
    )


def matmul_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    _, dtype, operation, sizes, *layout = id_.split("/")
    dims = [int(size) for size in sizes.split("x")]
    batch, m, n, k = dims if len(dims) == 4 else [1, *dims]
    made = matmul(dtype, operation, batch, m, n, k, *layout)
    if made.id != id_:
        raise ValueError(f"{id_!r} is spelled {made.id!r}")
    return made


def _make(p: dict[str, Any]) -> Buffers:
    batch, m, n, k = p["batch"], p["m"], p["n"], p["k"]
    c_type, scale_type = torch_type(p["c_type"]), torch_type(p["scale_type"])
    is_coarse = p["w_type"] in ("int8", "e4m3")

    def operand(rows: int, dtype: str, is_along_k: bool, scale: float) -> Any:
        dims = (batch, rows, k) if is_along_k else (batch, k, rows)
        made = random_tensor(*dims, dtype=torch_type(dtype), scale=scale)
        return made if is_along_k else made.mT

    def scales(count: int, size: float) -> Any:
        return ((torch.rand(count, device=kinds.DEVICE) + 0.5) * size).to(scale_type)

    # Results are of about unit size; coarse types leave that to the scale.
    size = k**-0.5 if is_coarse else 1.0
    for name in (p["a_type"], p["w_type"]):
        size /= spread(name)
    buffers = {
        "a": operand(m, p["a_type"], p["layout"][0] == "k", 1.0),
        "w": operand(n, p["w_type"], p["layout"][1] == "k", 1.0 if is_coarse else k**-0.5),
        "c": torch.empty(batch, m, n, dtype=c_type, device=kinds.DEVICE),
    }
    if p["epilogue"].startswith("bias"):
        buffers["bias"] = random_tensor(n, dtype=scale_type)
    if p["epilogue"] == "descale":
        buffers["scale"] = scales(1, size)
    elif p["epilogue"].startswith("scale") or p["prologue"].startswith("dequant"):
        buffers["scale"] = scales(n, size)
    elif p["prologue"] == "scale_a":
        buffers["scale"] = scales(k, 1.0)
    if p["epilogue"] == "scale_residual_silu":
        buffers["r"] = random_tensor(batch, m, n, dtype=c_type)
    return buffers


def _exact(p: dict[str, Any], step: int, s: Buffers) -> Any:
    """In float64, of what a prologue rounds to A's type."""
    a = s["a"][:, ::step]
    w = s["w"]
    if p["prologue"] == "scale_a":
        a = (a.float() * s["scale"].float()).to(a.dtype)
    elif p["prologue"]:
        w = (w.float() * s["scale"].float()[:, None]).to(a.dtype)
    # By way of f32, for the types that convert to nothing else on every device.
    c = a.float().double() @ w.float().double().mT
    rest = {name: t.double() for name, t in s.items() if name in ("bias", "scale")}
    if "r" in s:
        rest["r"] = s["r"][:, ::step].double()
    return EPILOGUES[p["epilogue"]](c, rest)
