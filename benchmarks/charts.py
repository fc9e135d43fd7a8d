"""The numbers of the bar charts in docs/pictures/performance, read from the results files.

`plots` draws them; nothing here needs matplotlib.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import headline
from .results import OURS

RESULTS = Path(__file__).parent / "results"

# Columns of results -> what charts call them; the order of the bars.
SERIES = {
    OURS: "dnnc", "cudnn": "cuDNN, first plan", "cudnn_best": "cuDNN, best plan",
    "torch": "PyTorch", "torch_fused": "cuBLASLt's epilogue", "torch_compile": "torch.compile",
}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Bars side by side.  values: column -> number; columns that were not timed are left out."""

    label: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class Chart:
    """A chart of rates.

    name: of its file.  page: of docs that shows it.  file: of results, without .json.
    rows: (label, row of the file).
    """

    name: str
    page: str
    title: str
    unit: str
    file: str
    rows: tuple[tuple[str, str], ...]

    def groups(self) -> list[Group]:
        """The rates of each row, as the tables have them; another unit is a ValueError."""
        known = _rows(self.file)
        made = []
        for label, name in self.rows:
            row = known[name]
            if row["unit"] != self.unit:
                raise ValueError(f"{name} is in {row['unit']}, the chart in {self.unit}")
            timed = {c: e["rate"] for c, e in row["columns"].items() if "rate" in e}
            made.append(Group(label, {c: round(timed[c]) for c in SERIES if c in timed}))
        return made


@dataclass(frozen=True)
class Headline(Chart):
    """The rows of the README's table: speed over the best peer's."""

    def groups(self) -> list[Group]:
        return [Group(row.label, {OURS: round(row.speed, 2)}) for row in headline.measured()]


@dataclass(frozen=True)
class HostTimes(Chart):
    """Microseconds of the host a call."""

    def groups(self) -> list[Group]:
        known = _rows(self.file)
        return [
            Group(label, {_library(name): round(known[name]["host_us"], 1)})
            for label, name in self.rows
        ]


def _library(name: str) -> str:
    """The column that a row of host times belongs to; the driver's own launch has none."""
    found = name.partition(":")[0]
    return found if found in SERIES else "driver"


@cache
def _rows(file: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{file}.json").read_text())["rows"]


_SQUARE = ("8192x8192x8192", "4096x4096x4096", "2048x2048x2048")
_SIZES = (*_SQUARE, "256x8192x8192", "16x1024x1024x1024")
_EPILOGUES = {
    "bias_relu": "bias + ReLU", "bias_gelu": "bias + GELU (tanh)",
    "bias_gelu_erf": "bias + GELU (erf)", "scale_residual_silu": "scale + residual + SiLU",
}  # fmt: skip
_LAYERS = {
    "56x56x64-64x3x3-s1p1": "56x56, 64 -> 64, 3x3",
    "28x28x128-128x3x3-s1p1": "28x28, 128 -> 128, 3x3",
    "14x14x256-256x3x3-s1p1": "14x14, 256 -> 256, 3x3",
    "7x7x512-512x3x3-s1p1": "7x7, 512 -> 512, 3x3",
    "56x56x256-512x1x1-s2p0": "56x56, 256 -> 512, 1x1 / 2",
    "224x224x3-64x7x7-s2p3": "224x224, 3 -> 64, 7x7 / 2",
}
_ROWS = {
    "layernorm": "layer norm", "rmsnorm": "rms norm", "softmax_of_rows": "softmax",
    "layernorm_backward": "layer norm, gradients", "rmsnorm_backward": "rms norm, gradients",
    "softmax_backward": "softmax, gradient", "add_rmsnorm_fp8": "residual + rms norm + fp8",
}  # fmt: skip
_IMAGES = {
    "batchnorm": "batch norm, training", "batchnorm_backward": "batch norm, gradients",
    "bn_add_relu": "batch norm + residual + ReLU", "drelu_fork_dbn": "the same, gradients",
    "max_pool": "max pooling", "max_pool_backward": "max pooling, gradient",
    "average_pool": "average pooling", "average_pool_backward": "average pooling, gradient",
}  # fmt: skip
_HEADS = {
    "16x16x1024-d128": "1024 rows", "4x16x4096-d128": "4096 rows", "1x16x16384-d128": "16384 rows",
}  # fmt: skip


def _named(pattern: str, names: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Rows of names in a pattern, with what a chart calls them."""
    return tuple((label, pattern.format(name)) for name, label in names.items())


def _products(sizes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((size, f"matmul/bf16/none/{size}") for size in sizes)


def _attention(dtype: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"{scores}, {label}", f"attention/{dtype}/{scores}/{heads}")
        for scores in ("full", "causal")
        for heads, label in _HEADS.items()
    )


CHARTS: tuple[Chart, ...] = (
    Headline("headline", "performance.md", "Speed over the best peer, H100", "x", "", ()),
    Chart("products", "performance/matmul.md", "Products, bf16, H100", "TFLOP/s",
          "kernels-hopper-h100", _products(_SIZES)),
    Chart("epilogues", "performance/matmul.md", "4096 x 4096 x 4096 with epilogues, bf16, H100",
          "TFLOP/s", "kernels-hopper-h100", _named("matmul/bf16/{}/4096x4096x4096", _EPILOGUES)),
    Chart("convolutions", "performance/convolution.md",
          "Convolution + scale + bias + ReLU, f16, 256 images, H100", "TFLOP/s",
          "kernels-conv-h100", _named("conv/fp16/scale_bias_relu/256x{}", _LAYERS)),
    Chart("attention", "performance/attention.md", "Attention, bf16, heads of 128, H100", "TFLOP/s",
          "kernels-attention-h100", _attention("bf16")),
    Chart("attention-e4m3", "performance/attention.md", "Attention, e4m3, heads of 128, H100",
          "TFLOP/s", "kernels-attention-fp8-cudnn-h100", _attention("e4m3")),
    Chart("rows", "performance/memory.md", "Rows of 8192 x 8192, bf16, H100", "GB/s",
          "kernels-rows-h100", _named("rows/bf16/{}/8192x8192", _ROWS)),
    Chart("images", "performance/memory.md", "Images of 32 x 56 x 56 x 256, bf16, H100", "GB/s",
          "kernels-memory-h100", _named("memory/bf16/{}/32x56x56x256", _IMAGES)),
    Chart("products-h200", "performance/h200.md", "Products, bf16, H200", "TFLOP/s",
          "kernels-hopper-h200", _products(_SIZES[1:])),
    Chart("products-portable", "performance/portable.md",
          "Products by mma.sync, bf16, H200", "TFLOP/s", "kernels-h200", _products(_SIZES)),
    HostTimes("host", "performance/host.md", "Host time of a call, H100", "us", "host-h100", (
        ("bare launch", "cuLaunchKernelEx alone, through cuda-bindings"),
        ("dnnc, bound plan", "dnnc: bound plan"),
        ("dnnc, execute, addresses", "dnnc: execute, addresses"),
        ("dnnc, execute, tensors", "dnnc: execute, torch tensors"),
        ("cuDNN, execute, tensors", "cudnn: execute, torch tensors"),
        ("PyTorch, matmul", "torch: matmul (out=)"),
        ("PyTorch, addmm with ReLU", "torch: addmm with ReLU"),
    )),
)  # fmt: skip
