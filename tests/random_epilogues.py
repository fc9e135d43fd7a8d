"""Random epilogues of matrix products and convolutions, of sizes as kernels meet them.

The tensors have whole 16 bytes a row, mostly, so that TMA takes them; nothing is run.
"""

from __future__ import annotations

from random import Random
from typing import Any

import dnnc
from dnnc import dtypes

_TYPES = (dtypes.f16, dtypes.bf16, dtypes.f8e4m3, dtypes.i8, dtypes.f32)
_BESIDE = (*_TYPES, dtypes.i32)
_SIDES = (16, 64, 72, 100, 128, 192, 512, 520, 2048)


def product(seed: int) -> Any:
    """A pygraph of a matmul, or a gated pair, behind which pointwise work and reductions stand."""
    random = Random(f"product {seed}")
    kind = random.choice(_TYPES)
    g = dnnc.pygraph("product", io_data_type=kind, intermediate_data_type="f32")
    n, k = random.choice(_SIDES), random.choice((64, 128, 136, 1024))
    dims = [random.choice((1, 1, 16)), random.choice(_SIDES), n]
    a, b = _operand(random, g, [*dims[:2], k]), _operand(random, g, [dims[0], k, n])
    sums = {"compute_data_type": dtypes.i32 if kind == dtypes.i8 else dtypes.f32}
    values = [g.matmul(a, b, **sums)]
    if random.random() < 0.2:
        values.append(g.matmul(a, _operand(random, g, [dims[0], k, n]), **sums))
        values.append(g.mul(*values))
    sources = [a] if [*dims[:2], k] == dims and random.random() < 0.5 else []
    _epilogue(random, g, values, dims, sources)
    return g


def _operand(random: Random, g: Any, dims: list[int]) -> Any:
    """An operand of any layout, or computed: a transpose, scaled, or of another type."""
    *batch, rows, columns = dims
    way = random.choice(("rows", "rows", "columns", "transposed", "scaled", "cast"))
    if way == "transposed":
        order = [*range(len(batch)), len(batch) + 1, len(batch)]
        return g.transpose(g.tensor([*batch, columns, rows]), order)
    strides = [rows * columns] * len(batch)
    strides += [1, rows] if way == "columns" else [columns, 1]
    if way == "cast":
        wide = g.tensor(dims, strides, data_type=random.choice((dtypes.i8, dtypes.f32, dtypes.f16)))
        return g.identity(wide).set_data_type(g.graph.io_type)
    whole = g.tensor(dims, strides)
    if way == "scaled":
        return g.mul(whole, g.tensor([*([1] * len(batch)), 1, columns])).set_data_type(
            g.graph.io_type
        )
    return whole


def convolution(seed: int) -> Any:
    """A pygraph of a convolution, channels last, or of one tap with channels first."""
    random = Random(f"convolution {seed}")
    kind = random.choice((dtypes.f16, dtypes.bf16, dtypes.i8))
    g = dnnc.pygraph("conv", io_data_type=kind, intermediate_data_type="f32")
    is_first = random.random() < 0.25
    n, c, k = random.choice((1, 8)), random.choice((4, 32, 64, 256)), random.choice((64, 72, 256))
    h, w = random.choice(((8, 8), (28, 28), (56, 56), (14, 20)))
    taps = 1 if is_first else random.choice((1, 1, 3, 3, 5))
    x = g.tensor([n, c, h, w], _images([n, c, h, w], is_first=is_first))
    filters = g.tensor([k, c, taps, taps], _images([k, c, taps, taps], is_first=False))
    read, pad = x, taps // 2
    if random.random() < 0.25:
        read = g.relu(g.mul(x, g.tensor([1, c, 1, 1], data_type=dtypes.f32)))
        read.set_data_type(g.graph.io_type)
    sums = dtypes.i32 if kind == dtypes.i8 else dtypes.f32
    y = g.conv_fprop(
        read, filters, padding=[pad] * 2, stride=[1, 1], dilation=[1, 1], compute_data_type=sums
    )
    sources = [x] if c == k and random.random() < 0.6 else []
    _epilogue(random, g, [y], [n, k, h, w], sources, is_first=is_first)
    return g


def _images(dims: list[int], *, is_first: bool) -> list[int]:
    _, c, h, w = dims
    return [c * h * w, h * w, w, 1] if is_first else [c * h * w, 1, w * c, c]


def _epilogue(
    random: Random, g: Any, values: list[Any], dims: list[int], sources: list[Any],
    is_first: bool = True,
) -> None:  # fmt: skip
    """values: of the product's dims.  sources: other tensors of them, which are read before it."""
    is_image, sources = len(dims) == 4, list(sources)
    channel = 1 if is_image else 2

    def strides(is_transposed: bool) -> list[int]:
        if is_image:
            return _images(dims, is_first=is_first != is_transposed)
        return [dims[1] * dims[2], *((1, dims[1]) if is_transposed else (dims[2], 1))]

    def other() -> Any:
        way = random.choice(
            ("whole", "whole", "whole", "again", "channels", "number", "transposed")
        )
        if way == "again" and sources:
            return random.choice(sources)
        if way == "number":
            return g.tensor_scalar(0.5, dnnc.scalar_type.COMPILE_TIME_CONST)
        dtype = random.choice(_BESIDE)
        if way == "channels":
            return g.tensor([n if i == channel else 1 for i, n in enumerate(dims)], data_type=dtype)
        sources.append(g.tensor(dims, strides(way == "transposed"), data_type=dtype))
        return sources[-1]

    for _ in range(random.choice((1, 1, 2, 2, 3, 4))):
        value = random.choice(values[-2:])
        step = random.choice(("add", "mul", "max", "relu", "gelu", "rows"))
        if step == "rows" and not is_image and dims[2] <= 768:
            total = g.reduction(value, random.choice(("add", "max"))).set_dim([*dims[:2], 1])
            values.append(g.mul(value, total))
        elif step in ("relu", "gelu"):
            values.append(getattr(g, step)(value))
        else:
            values.append(getattr(g, "add" if step == "rows" else step)(value, other()))
    ends = [values[-1]]
    if random.random() < 0.3:
        ends.append(random.choice(values))
    for end in dict.fromkeys(ends):
        end.set_output().set_data_type(random.choice(_TYPES))
        end.set_dim(dims).set_stride(strides(random.random() < 0.2))
    if random.random() < 0.25:
        kept = random.choice(
            ([1] * len(dims), [n if i == channel else 1 for i, n in enumerate(dims)])
        )
        total = g.reduction(random.choice(values), random.choice(("add", "amax"))).set_dim(kept)
        total.set_output().set_data_type(dtypes.f32)
