"""Random gradients of convolutions by the fallback: `draw(random, op)`.

Odd sizes, groups, paddings and strides beyond the filter, both modes, types that differ, layouts
with gaps, sizes that are symbols, work before and after whose operands are broadcast, infinities.
"""

from __future__ import annotations

from random import Random
from typing import Any

import dnnc
from dnnc import dtypes

from .random_convs import Drawn, strides_of, window_of

_LAYOUTS = ("last", "last", "first", "channel gaps", "row gaps")
_TYPES = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.i8)


def draw(random: Random, op: str) -> Drawn:
    """A graph of conv_dgrad or conv_wgrad."""
    spatial, groups = random.choice((1, 2, 2, 2, 3)), random.choice((1, 1, 2, 3))
    c, k = random.choice((1, 2, 3, 4, 8)), random.choice((1, 2, 3, 8))
    extents = [random.choice((1, 2, 3, 5, 6, 7)) for _ in range(spatial)]
    windows = [window_of(random, extent, is_dense=False) for extent in extents]
    names = {"pre_padding": "pre", "post_padding": "post"}
    names |= {name: name for name in ("stride", "dilation")}
    parameters: dict[str, Any] = {
        name: [window[key] for window in windows] for name, key in names.items()
    }
    parameters["convolution_mode"] = random.choice(("CROSS_CORRELATION", "CONVOLUTION"))
    image, sizes = _image(random, c * groups, extents, windows)
    filter_ = [k * groups, c, *(window["taps"] for window in windows)]
    like = dnnc.pygraph("forward")
    y = like.conv_fprop(like.tensor(image), like.tensor(filter_), **parameters).get_dim()

    first = random.choice(_TYPES)
    second = random.choice((first, first, *_TYPES))
    is_integer = first.is_integer and second.is_integer and random.random() < 0.5
    g = dnnc.pygraph(
        op, io_data_type="f16", intermediate_data_type="f32", compute_data_type="f32"
    )  # fmt: skip

    def tensor(dims: list[Any], type_: Any = dtypes.f16) -> Any:
        return g.tensor(dims, strides_of(dims, random.choice(_LAYOUTS), 1), data_type=type_)

    def operand(dims: list[Any], type_: Any) -> Any:
        made = tensor(dims, type_)
        if is_integer or random.random() < 0.6:
            return made
        other = random.choice(([1, dims[1], *[1] * spatial], [1, 1, *dims[2:]], dims))
        return g.relu(g.add(made, tensor(other))).set_data_type(dtypes.f32)

    compute = {"compute_data_type": "i32" if is_integer else "f32"}
    if op == "conv_dgrad":
        operands, dims = (operand(y, first), operand(filter_, second)), image
    else:
        operands, dims = (operand(image, first), operand(y, second)), filter_
    made = getattr(g, op)(*operands, **parameters, **compute).set_dim(dims)
    if is_integer:
        made.set_data_type("i32")
    else:
        for _ in range(random.choice((0, 0, 1, 2))):
            other = random.choice(([1, dims[1], *[1] * spatial], dims, [1] * len(dims)))
            made = g.relu(made) if random.random() < 0.3 else g.add(made, tensor(other))
        made.set_data_type(random.choice((dtypes.f16, dtypes.f32)))
    made.set_output().set_stride(strides_of(dims, random.choice(_LAYOUTS), 1))
    return Drawn(g, sizes, 2e-5, True)


def _image(
    random: Random, channels: int, extents: list[int], windows: list[dict[str, int]]
) -> tuple[list[Any], dict[str, int]]:
    """The image's dims, some of them symbols, and the sizes of these."""
    dims: list[Any] = [random.choice((1, 2, 3)), channels, *extents]
    sizes: dict[str, int] = {}
    for axis, name in zip((0, *range(2, len(dims))), "NABC", strict=False):
        if random.random() < 0.25:
            sizes[name], low = dims[axis], 1
            if axis > 1:
                window = windows[axis - 2]
                reach = (window["taps"] - 1) * window["dilation"]
                low = max(1, reach + 1 - window["pre"] - window["post"])
            dims[axis] = dnnc.Dim(name, min=low, max=random.choice((sizes[name], 64)))
    return dims, sizes
