"""The cases: sizes, floating-point operations, bytes, buffers, and exact results.

Bytes count each large input and output once; floating-point operations are those of the
definition.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

Buffers = dict[str, Any]

TORCH_TYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "int8": torch.int8,
}
OUTPUT_TYPES = {**TORCH_TYPES, "int8": torch.int32}
# Relative error that an output may have (Frobenius norm).
TOLERANCES = {"bf16": 1e-2, "fp16": 3e-3, "fp32": 1e-5, "tf32": 2e-3, "int8": 0.0}


@dataclass(frozen=True)
class Case:
    """One row of a table.

    id: family/type/operation/sizes.  flops, bytes: of one call.  unit: what a table shows.
    make: buffers, the outputs among them.  exact: name -> float64 result of some buffers.
    """

    id: str
    kind: str
    p: Mapping[str, Any]
    make: Callable[[], Buffers]
    exact: Callable[[Buffers], Buffers]
    flops: float = 0.0
    bytes: float = 0.0
    unit: str = "TFLOP/s"
    tolerance: float = 1e-2
    reference_rows: int = field(default=0)

    @property
    def family(self) -> str:
        return self.id.partition("/")[0]

    def rate(self, seconds: float) -> float:
        """In the case's unit."""
        if self.unit == "TFLOP/s":
            return self.flops / seconds / 1e12
        return self.bytes / seconds / 1e9


def random_tensor(*dims: int, dtype: torch.dtype, scale: float = 1.0) -> Any:
    if dtype == torch.int8:
        return torch.randint(-128, 128, dims, dtype=dtype, device="cuda")
    return (torch.randn(*dims, device="cuda") * scale).to(dtype)


# ---- matmul


EPILOGUES = {
    "none": lambda c: c,
    "bias_relu": torch.relu,
    "bias_gelu": lambda c: functional.gelu(c, approximate="tanh"),
}


def matmul(dtype: str, epilogue: str, batch: int, m: int, n: int, k: int) -> Case:
    """c [batch, m, n] = act(a [batch, m, k] @ w [batch, n, k]^T + bias [n])."""
    element, out = TORCH_TYPES[dtype], OUTPUT_TYPES[dtype]
    sizes = f"{batch}x{m}x{n}x{k}" if batch > 1 else f"{m}x{n}x{k}"

    def make() -> Buffers:
        buffers = {
            "a": random_tensor(batch, m, k, dtype=element),
            "w": random_tensor(batch, n, k, dtype=element, scale=k**-0.5),
            "c": torch.empty(batch, m, n, dtype=out, device="cuda"),
        }
        if epilogue != "none":
            buffers["bias"] = random_tensor(n, dtype=element)
        return buffers

    def exact(buffers: Buffers) -> Buffers:
        rows = buffers["a"][:, : 1 + (1 << 19) // max(k, n)].double()
        c = rows @ buffers["w"].double().mT
        if epilogue != "none":
            c = c + buffers["bias"].double()
        return {"c": EPILOGUES[epilogue](c)}

    def bytes_of(type_: torch.dtype) -> int:
        return torch.empty(0, dtype=type_).element_size()

    return Case(
        id=f"matmul/{dtype}/{epilogue}/{sizes}",
        kind="matmul",
        p={"dtype": dtype, "epilogue": epilogue, "batch": batch, "m": m, "n": n, "k": k},
        make=make,
        exact=exact,
        flops=2.0 * batch * m * n * k,
        bytes=batch * ((m * k + n * k) * bytes_of(element) + m * n * bytes_of(out)),
        tolerance=TOLERANCES[dtype],
    )


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
        return {"x": x, "y": torch.empty(dims, device="cuda")}

    return Case(
        id=f"reduction/bf16/squares_{axes}/{rows}x{columns}",
        kind="squares",
        p={"rows": rows, "columns": columns, "axes": axes},
        make=make,
        exact=lambda buffers: {"y": (buffers["x"].double() ** 2).sum(over, keepdim=True)},
        bytes=rows * columns * 2.0,
        unit="GB/s",
        tolerance=1e-5,
    )


# ---- lists

MATMUL_SIZES = (
    (1, 8192, 8192, 8192),
    (1, 4096, 4096, 4096),
    (1, 2048, 2048, 2048),
    (1, 256, 8192, 8192),
    (16, 1024, 1024, 1024),
)


def all_cases() -> list[Case]:
    """What docs/performance.md shows."""
    found = [matmul("bf16", epilogue, *sizes) for sizes in MATMUL_SIZES for epilogue in EPILOGUES]
    found += [
        matmul("fp16", epilogue, *sizes) for sizes in MATMUL_SIZES[:2] for epilogue in EPILOGUES
    ]
    found += [matmul("int8", "none", *sizes) for sizes in MATMUL_SIZES[:2]]
    found += [matmul(dtype, "none", *MATMUL_SIZES[1]) for dtype in ("tf32", "fp32")]
    for columns in (4096, 8192, 16384):
        found += [bias_gelu(8192, columns), add(8192, columns)]
    for axes in AXES:
        found += [squares(8192, columns, axes) for columns in (4096, 16384)]
    return found


def generated(seed: int, count: int = 20) -> list[Case]:
    """Matmuls that nobody listed: sizes from 1 to 16384, log-uniform, some odd; by seed.

    Heuristics are fitted on seeds below 1000 and judged on others.
    """
    draw = random.Random(seed)

    def size(smallest: int, largest: int) -> int:
        value = round(2 ** draw.uniform(smallest, largest))
        return value if draw.random() < 0.2 else max(8, value // 8 * 8)

    found: list[Case] = []
    while len(found) < count:
        batch = draw.choice((1, 1, 1, draw.randint(2, 32)))
        m, n, k = size(0, 14), size(5, 14), size(5, 14)
        if 2.0 * batch * m * n * k > 1.5e12 or batch * (m * n + m * k + n * k) > 1 << 30:
            continue
        dtype, epilogue = draw.choice(("bf16", "fp16")), draw.choice(list(EPILOGUES))
        found.append(matmul(dtype, epilogue, batch, m, n, k))
    return found
