"""Random gradients of filters by the engines that multiply them: `draw(random)`.

Few and many channels, groups, paddings and strides beyond the filter, both modes, types that
differ, bytes summed in i32, layouts with gaps, sizes that are symbols, work after.
"""

from __future__ import annotations

from random import Random
from typing import Any

import dnnc
from dnnc import dtypes

from .random_convs import Drawn, strides_of, window_of

# Engine -> the target that it is for; "": the machine's.
ENGINES = {"conv_wgrad_sm90": "sm_90a", "conv_wgrad_sm80": "", "conv_wgrad_depthwise": ""}
_LAYOUTS = ("last", "last", "last", "first", "channel gaps", "row gaps")
_TYPES = (dtypes.f16, dtypes.bf16)
_OTHERS = (*_TYPES, dtypes.i8, dtypes.f8e4m3)


def draw(random: Random, engine: str) -> Drawn:
    """A graph of conv_wgrad that an engine takes."""
    is_depthwise = engine == "conv_wgrad_depthwise"
    spatial = random.choice((1, 2, 2, 2, 3))
    c, k, groups = _channels(random, is_depthwise=is_depthwise)
    extents = [random.choice((3, 5, 6, 8, 9)) for _ in range(spatial)]
    windows = [window_of(random, extent, is_dense=False) for extent in extents]
    is_dense = spatial == 2 and random.random() < 0.4  # as tiles with a halo take it
    if is_dense:
        extents, taps = [random.choice((2, 4)), random.choice((8, 16))], 3
        windows = [{"taps": taps, "pre": 1, "post": 1, "stride": 1, "dilation": 1}] * 2
    parameters: dict[str, Any] = {
        name: [window[key] for window in windows]
        for name, key in (
            ("pre_padding", "pre"), ("post_padding", "post"), ("stride", "stride"),
            ("dilation", "dilation"),
        )
    }  # fmt: skip
    parameters["convolution_mode"] = random.choice(("CROSS_CORRELATION", "CONVOLUTION"))
    n = random.choice((1, 2, 3))
    image, sizes = [n, c * groups, *extents], dict[str, int]()
    if random.random() < 0.3:
        image[0], sizes["N"] = dnnc.Dim("N", min=1, max=8), n
    filter_ = [k * groups, c, *(window["taps"] for window in windows)]
    like = dnnc.pygraph("forward")
    y = like.conv_fprop(like.tensor(image), like.tensor(filter_), **parameters).get_dim()

    first = random.choice(_TYPES)
    second = first if random.random() < 0.7 or is_depthwise else random.choice((first, *_OTHERS))
    if {first, second} == set(_TYPES):
        second = first
    is_integer = random.random() < 0.2
    if is_integer:
        first = second = dtypes.i8
    g = dnnc.pygraph(
        "wgrad", io_data_type="f16", intermediate_data_type="f32", compute_data_type="f32"
    )

    def tensor(dims: list[Any], type_: Any = dtypes.f16) -> Any:
        return g.tensor(dims, strides_of(dims, random.choice(_LAYOUTS), 1), data_type=type_)

    dy = tensor(y, second)
    sums = dtypes.i32 if is_integer else dtypes.f32
    made = g.conv_wgrad(tensor(image, first), dy, compute_data_type=sums, **parameters)
    made.set_dim(filter_).set_data_type(sums)
    for _ in range(random.choice((0, 0, 1, 2))):
        other = random.choice(([1, filter_[1], *[1] * spatial], filter_, [1] * len(filter_)))
        made = g.relu(made) if random.random() < 0.3 else g.add(made, tensor(other))
    made.set_data_type(random.choice((dtypes.f16, dtypes.f32, *([sums] if is_integer else []))))
    made.set_output().set_stride(strides_of(filter_, random.choice(_LAYOUTS), 1))
    if engine == "conv_wgrad_sm90" and not is_integer and random.random() < 0.3:
        db = g.reduction(dy, "add").set_dim([1, filter_[0], *[1] * spatial])
        db.set_output().set_data_type(random.choice((dtypes.f16, dtypes.f32)))
    return Drawn(g, sizes, 2e-5, True)


def _channels(random: Random, *, is_depthwise: bool) -> tuple[int, int, int]:
    """(channels of a group, filters of one, groups)."""
    if is_depthwise:
        return 1, 1, random.choice((1, 3, 8, 20))
    groups = random.choice((1, 1, 1, 2, 4))
    if groups > 1:
        return random.choice((2, 4, 8, 16, 64)), random.choice((2, 8, 16)), groups
    return random.choice((1, 3, 4, 8, 20, 64, 72)), random.choice((1, 5, 8, 40, 72)), 1
