"""The README's table: eight measured rows, one of them a miss, read from the results files.

python -m benchmarks.headline
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .results import OURS

RESULTS = Path(__file__).parent / "results"
_NAMES = {
    "cudnn": "cuDNN, first plan", "cudnn_best": "cuDNN, best plan", "torch": "PyTorch",
    "torch_fused": "cuBLASLt's epilogue", "torch_compile": "torch.compile",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A row of a results file.  label: what the README calls it."""

    label: str
    file: str
    name: str


ROWS = (
    Row("product, bf16, 8192 x 8192 x 8192", "kernels-hopper-h100",
        "matmul/bf16/none/8192x8192x8192"),
    Row("product + bias + GELU, bf16, 4096 x 4096 x 4096", "kernels-hopper-h100",
        "matmul/bf16/bias_gelu/4096x4096x4096"),
    Row("product + rms norm, bf16, 65536 x 192 x 1024", "kernels-fused-reduced-h100",
        "fused/bf16/rms_norm/65536x192x1024"),
    Row("3x3 convolution + scale + bias + ReLU, f16, 256 x 56 x 56 x 64", "kernels-conv-h100",
        "conv/fp16/scale_bias_relu/256x56x56x64-64x3x3-s1p1"),
    Row("causal attention, bf16, 4 x 16 heads x 4096 x 128", "kernels-attention-h100",
        "attention/bf16/causal/4x16x4096-d128"),
    Row("softmax, bf16, 8192 x 8192", "kernels-rows-h100", "rows/bf16/softmax_of_rows/8192x8192"),
    Row("batch norm, training, bf16, 32 x 56 x 56 x 256", "kernels-memory-h100",
        "memory/bf16/batchnorm/32x56x56x256"),
    Row("attention, e4m3, 4 x 16 heads x 4096 x 128", "kernels-attention-fp8-cudnn-h100",
        "attention/e4m3/full/4x16x4096-d128"),
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A row, measured.  seconds: ours.  best: the fastest peer, with its seconds."""

    label: str
    seconds: float
    best: str
    best_seconds: float

    @property
    def speed(self) -> float:
        return self.best_seconds / self.seconds


def measured() -> list[Measured]:
    """The rows, by medians."""
    made = []
    for row in ROWS:
        columns = _columns(row)
        seconds = {name: statistics.median(c["seconds"]) for name, c in columns.items()}
        ours = seconds.pop(OURS)
        best = min(seconds, key=lambda name: seconds[name])
        made.append(Measured(row.label, ours, best, seconds[best]))
    return made


def table() -> str:
    """The rows as Markdown: microseconds, and the ratio of speed to the best peer of the row."""
    lines = ["| work | dnnc, us | best peer, us | which | speed |", "|---|---:|---:|---|---:|"]
    lines += [
        f"| {row.label} | {1e6 * row.seconds:.0f} | {1e6 * row.best_seconds:.0f} "
        f"| {_NAMES[row.best]} | {row.speed:.2f}x |"
        for row in measured()
    ]
    return "\n".join(lines)


def _columns(row: Row) -> dict[str, Any]:
    columns = json.loads((RESULTS / f"{row.file}.json").read_text())["rows"][row.name]["columns"]
    return {name: column for name, column in columns.items() if column.get("seconds")}


if __name__ == "__main__":
    print(table())
