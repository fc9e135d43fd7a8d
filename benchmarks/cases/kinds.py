"""The types of cases, random tensors, and the pointwise and reduction cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..peers.torch_later import functional, torch
from .case import Buffers, Case

DEVICE = "cuda"

# Name -> (torch's, bytes of an element).
_TYPES = {
    "bf16": ("bfloat16", 2),
    "fp16": ("float16", 2),
    "fp32": ("float32", 4),
    "tf32": ("float32", 4),
    "int8": ("int8", 1),
    "e4m3": ("float8_e4m3fn", 1),
    "int32": ("int32", 4),
}
# Relative error that an output may have (Frobenius norm), by the type that limits it.
TOLERANCES = {
    "bf16": 1e-2,
    "fp16": 3e-3,
    "fp32": 1e-5,
    "tf32": 2e-3,
    "int8": 0.0,
    "e4m3": 1e-2,
    "e4m3_fast": 2e-2,
}


@dataclass(frozen=True)
class Operands:
    """Types of a product by name: of A, of w, of an output after an epilogue, of the sums (cuDNN's
    name)."""

    a: str
    w: str
    c: str
    sums: str = "FLOAT"

    @property
    def scale(self) -> str:
        """The type of scales and biases."""
        return self.a if self.a in ("bf16", "fp16") else "fp32"


OPERANDS = {
    **{name: Operands(name, name, name) for name in ("bf16", "fp16", "fp32", "tf32")},
    "int8": Operands("int8", "int8", "bf16", "INT32"),
    "e4m3": Operands("e4m3", "e4m3", "bf16"),
    "e4m3_fast": Operands("e4m3", "e4m3", "bf16", "FAST_FLOAT_FOR_FP8"),
}


def spread(dtype: str) -> float:
    """About the standard deviation of a random tensor of unit scale: int8 is uniform."""
    return 74.0 if dtype == "int8" else 1.0


def random_tensor(*dims: int, dtype: torch.dtype, scale: float = 1.0) -> Any:
    if dtype == torch.int8:
        return torch.randint(-128, 128, dims, dtype=dtype, device=DEVICE)
    return (torch.randn(*dims, device=DEVICE) * scale).to(dtype)


def torch_type(name: str) -> torch.dtype:
    return getattr(torch, _TYPES[name][0])


def bytes_of(name: str) -> int:
    """Bytes of one element of a type."""
    return _TYPES[name][1]


# ---- pointwise


def bias_gelu(rows: int, columns: int) -> Case:
    """y = gelu(x [rows, columns] + b [columns]), bf16."""

    def make() -> Buffers:
        x = random_tensor(rows, columns, dtype=torch.bfloat16)
        b = random_tensor(columns, dtype=torch.bfloat16)
        return {"x": x, "b": b, "y": torch.empty_like(x)}

    def exact(buffers: Buffers) -> Buffers:
        total = buffers["x"].double() + buffers["b"].double()
        return {"y": functional.gelu(total, approximate="tanh")}

    return Case(
        id=f"pointwise/bf16/bias_gelu/{rows}x{columns}",
        kind="bias_gelu",
        p={"rows": rows, "columns": columns},
        make=make,
        exact=exact,
        bytes=2.0 * rows * columns * 2,
        unit="GB/s",
    )


def add(rows: int, columns: int) -> Case:
    """y = x + z, [rows, columns] bf16: the streaming kernel that bandwidth is read from."""

    def make() -> Buffers:
        x, z = (random_tensor(rows, columns, dtype=torch.bfloat16) for _ in range(2))
        return {"x": x, "z": z, "y": torch.empty_like(x)}

    return Case(
        id=f"pointwise/bf16/add/{rows}x{columns}",
        kind="add",
        p={"rows": rows, "columns": columns},
        make=make,
        exact=lambda buffers: {"y": buffers["x"].double() + buffers["z"].double()},
        bytes=3.0 * rows * columns * 2,
        unit="GB/s",
    )


# ---- reductions

AXES = {"rows": (1,), "columns": (0,), "all": (0, 1)}


def squares(rows: int, columns: int, axes: str) -> Case:
    """y = sum of x * x over the elements of each row, each column, or all; bf16 to f32."""
    over = AXES[axes]
    dims = [1 if axis in over else n for axis, n in enumerate((rows, columns))]

    def make() -> Buffers:
        x = random_tensor(rows, columns, dtype=torch.bfloat16)
        return {"x": x, "y": torch.empty(dims, device=DEVICE)}

    return Case(
        id=f"reduction/bf16/squares_{axes}/{rows}x{columns}",
        kind="squares",
        p={"rows": rows, "columns": columns, "axes": over},
        make=make,
        exact=lambda buffers: {"y": (buffers["x"].double() ** 2).sum(over, keepdim=True)},
        bytes=rows * columns * 2.0,
        unit="GB/s",
        tolerance=1e-5,
    )
