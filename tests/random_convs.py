"""Random convolutions of the engines' surfaces: `draw(random, surface)`.

Forward, or their gradients by the image.  Odd sizes, groups, paddings beyond the filter, strides
beyond it, layouts with gaps, sizes that are symbols, work before and after the convolution whose
operands are broadcast in every way, several outputs, infinities beside padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import dnnc
from dnnc import dtypes
from dnnc.target import of

_CASTS = "casts"
_LAYOUTS = ("last", "last", "first", "channel gaps", "row gaps")


@dataclass(frozen=True)
class Surface:
    """Convolutions that an engine takes.

    types: of X and W.  mixes: whether W may have another one.  channels: of a group.
    groups, outputs: theirs, and output channels of each.
    layouts: of X.  filters, outputs_of: layouts of W, of outputs.
    before: what operations before may read beside X: "any" tensor, of "channels" alone, or
    "nothing", if there are none.
    spatial: how many axes.  unit: elements that gaps are multiples of.
    is_one_tap: filters are, of stride 1, without padding.
    strides_gradients: whether gradients may have strides.
    """

    types: tuple[str, ...]
    channels: tuple[int, ...]
    groups: tuple[int, ...] = (1, 1, 2, 3)
    outputs: tuple[int, ...] = (1, 3, 8, 16, 24, 40, 72)
    layouts: tuple[str, ...] = _LAYOUTS
    filters: tuple[str, ...] = ("last",)
    outputs_of: tuple[str, ...] = _LAYOUTS
    before: str = "any"
    spatial: tuple[int, ...] = (1, 2, 2, 2, 3)
    unit: int = 1
    is_one_tap: bool = False
    mixes: bool = False
    strides_gradients: bool = False
    reduces: bool = False


_LAST = ("last", "last", "row gaps")
SURFACES = {
    "conv_sm80": Surface(
        ("f16", "bf16", "f32", "i8"),
        (1, 2, 3, 4, 5, 8, 12, 16, 33, 64),
        (1, 1, 2, 3, 4, 8),
        mixes=True,
        strides_gradients=True,
        reduces=True,
    ),
    "conv_depthwise": Surface(
        ("f16", "bf16", "f32", "i8"),
        (1, 1, 1, 2, 3, 4, 7),
        (1, 2, 3, 5, 8, 16),
        (1, 1, 2, 3, 4, 8),
        strides_gradients=True,
    ),
    "conv_grouped_sm80": Surface(("f16", "bf16", "i8"), (8, 8, 16), (2, 3, 4, 8), (8, 8, 16, 24)),
    "conv_sm90": Surface(
        ("f16", "bf16", "f32", "i8"),
        (16, 16, 32, 48, 80, 5, 18, 66),
        layouts=(*_LAST, "first"),
        filters=("last", "last", "last", "first"),
        before="channels",
        unit=16,
        mixes=True,
        strides_gradients=True,
        reduces=True,
    ),
    "conv_product_sm90": Surface(
        ("f16", "bf16"),
        (1, 3, 8, 16, 40, 72),
        (1,),
        layouts=("first", "first", "last"),
        outputs_of=("first", "first", "last"),
        is_one_tap=True,
    ),
    "conv_stem_sm90": Surface(
        ("f16", "bf16"),
        (1, 2, 3, 4, 5, 8, 16),
        (1,),
        (3, 8, 16, 40, 72),
        before="nothing",
        spatial=(2,),
    ),
}


@dataclass
class Drawn:
    """A graph, and the sizes of its symbols.  allowance: as of `check`.  can_be_infinite: whether
    inputs may be."""

    graph: Any
    sizes: dict[str, int]
    allowance: float
    can_be_infinite: bool


def strides_of(dims: list[Any], layout: str, gap: int) -> list[Any]:
    order = list(range(len(dims)))
    if layout != "first":
        order = [0, *range(2, len(dims)), 1]
    strides, running = [0] * len(dims), 1
    for place, axis in enumerate(reversed(order)):
        strides[axis] = running
        running = running * dims[axis]
        if (layout, place) in (("channel gaps", 0), ("row gaps", 1)):
            running = running + gap
    return strides


def window_of(random: Random, extent: int, *, is_dense: bool) -> dict[str, int]:
    taps, stride = random.choice((1, 1, 2, 3, 3, 4, 5)), random.choice((1, 1, 2, 3, 5))
    dilation = 1 if is_dense else random.choice((1, 1, 2, 3))
    reach = (taps - 1) * dilation
    pre, post = (random.choice((0, 0, 1, 1, 2, reach, reach + 2)) for _ in range(2))
    pre += max(0, reach + 1 - extent - pre - post)
    return {"taps": taps, "stride": stride, "dilation": dilation, "pre": pre, "post": post}


_ONE_TAP = {"taps": 1, "stride": 1, "dilation": 1, "pre": 0, "post": 0}


def draw(random: Random, surface: Surface, target: str, *, is_gradient: bool = False) -> Drawn:
    """A graph whose convolution the engine takes; is_gradient: always an image's gradient."""
    io = dtypes.of(random.choice(surface.types))
    spatial, is_gradient = random.choice(surface.spatial), random.random() < 0.35 or is_gradient
    c, groups, k = (random.choice(n) for n in (surface.channels, surface.groups, surface.outputs))
    is_stem = surface is SURFACES["conv_stem_sm90"]
    extents = [random.choice((1, 2, 3, 5, 6, 7, 9)) for _ in range(spatial)]
    if is_stem:
        extents[-1] = random.choice((5, 8, 16, 19, 24))
    windows = [
        dict(_ONE_TAP)
        if surface.is_one_tap
        else window_of(random, extent, is_dense=is_stem and axis == spatial - 1)
        for axis, extent in enumerate(extents)
    ]
    if is_gradient and not surface.strides_gradients:
        windows = [{**window, "stride": 1} for window in windows]
    own = k if is_gradient else c  # channels of a group of the forward image
    sizes, dims = {}, [random.choice((1, 2, 3)), own * groups, *extents]
    for axis, name in zip((0, *range(2, 2 + spatial)), "NABC", strict=False):
        if random.random() < 0.25:
            sizes[name] = dims[axis]
            low = 1
            if axis > 1:
                window = windows[axis - 2]
                reach = (window["taps"] - 1) * window["dilation"]
                low = max(1, reach + 1 - window["pre"] - window["post"])
            dims[axis] = dnnc.Dim(name, min=low, max=random.choice((sizes[name], 64)))
    of_filter = _filter_type(random, surface, io, target)
    is_integer = io.is_integer and of_filter == io
    g = dnnc.pygraph(
        "conv", io_data_type=io, intermediate_data_type="f32", compute_data_type="f32",
        target=target,
    )  # fmt: skip
    gap = surface.unit * random.choice((1, 2))

    def tensor(shape: list[Any], *layouts: str, **options: Any) -> Any:
        return g.tensor(shape, strides_of(shape, random.choice(layouts), gap), **options)

    names = {"pre_padding": "pre", "post_padding": "post"}
    names |= {name: name for name in ("stride", "dilation")}
    parameters: dict[str, Any] = {
        "convolution_mode": random.choice(("CROSS_CORRELATION", "CONVOLUTION")),
        **{name: [window[key] for window in windows] for name, key in names.items()},
    }
    filter_ = [(c if is_gradient else k) * groups, own, *(window["taps"] for window in windows)]
    moved = dims
    if is_gradient:
        like = dnnc.pygraph("forward")
        like_y = like.conv_fprop(like.tensor(dims), like.tensor(filter_), **parameters)
        moved = list(like_y.get_dim())
    before = _before(random, surface, is_integer=is_integer)
    # Integers of up to 9 beside tf32 would cancel to rows that are all rounding.
    raws = (io, dtypes.f16) if io == dtypes.f32 else (io, io, dtypes.f16, dtypes.i8, dtypes.f32)
    raw = random.choice(raws) if before == _CASTS else io
    x = taken = tensor(moved, *surface.layouts, data_type=raw)
    ones = [1] * spatial
    if before:
        others = [[1, c * groups, *ones], [moved[0], 1, *ones], [1, 1, *moved[2:]]]
        other = random.choice(others if surface.before == "any" else others[:1])
        taken = g.relu(g.add(x, tensor(other, "first"))).set_data_type(io)
    operands = (taken, tensor(filter_, *surface.filters, data_type=of_filter))
    compute = {"compute_data_type": "i32" if is_integer else "f32"}
    if is_gradient:
        y = g.conv_dgrad(*operands, **parameters, **compute).set_dim(dims)
    else:
        y = g.conv_fprop(*operands, **parameters, **compute)
    if is_integer:
        y.set_data_type("i32")
    made, dims_of_y = _after(random, g, x, y, tensor), list(y.get_dim())
    allowance = 2e-2 if dtypes.f32 in (io, of_filter) else 2e-5
    if before and io == dtypes.f32 and of_filter.bits == 16:
        allowance *= 4  # X is rounded to W's type
    for i, value in enumerate(made):
        if i == len(made) - 1 or random.random() < 0.3:
            type_ = random.choice((dtypes.f16, dtypes.f32))
            if type_ == dtypes.f16 and i < len(made) - 1:
                # Where it lies halfway, what follows may begin with its neighbour.
                allowance = max(allowance, 2.0**-12)
            value.set_output().set_data_type("i32" if is_integer and value is y else type_)
            shape = list(value.get_dim())
            value.set_stride(strides_of(shape, random.choice(surface.outputs_of), gap))
    if surface.reduces and not is_integer and random.random() < 0.3:
        kept = random.choice(([1, dims_of_y[1], *ones], [1] * len(dims_of_y)))
        total = g.reduction(made[-1], random.choice(("add", "max", "amax"))).set_dim(kept)
        total.set_output().set_data_type(dtypes.f32)
    is_wide = all(type_.bits > 8 for type_ in (io, of_filter))
    return Drawn(g, sizes, allowance, is_wide)


def _filter_type(random: Random, surface: Surface, io: Any, target: str) -> Any:
    """The type of W: that of X, or another that the engine multiplies with it."""
    if not surface.mixes or random.random() >= 0.25:
        return io
    found = [dtypes.f16, dtypes.bf16]
    # Integers of up to 9 beside tf32 would cancel to rows that are all rounding.
    found += [] if io == dtypes.f32 else [dtypes.i8, dtypes.ui8]
    found += [] if io.is_integer else [dtypes.f32]
    if of(target).has_fp8_convert:
        found += [dtypes.f8e4m3, dtypes.f8e5m2]
    return random.choice(found)


def _before(random: Random, surface: Surface, *, is_integer: bool) -> str:
    """The work before the convolution: "", "work", or _CASTS, work on elements of any type."""
    if surface.before == "nothing" or is_integer or random.random() >= 0.4:
        return ""
    return _CASTS if surface.before == "channels" else "work"


def _after(random: Random, g: Any, x: Any, y: Any, tensor: Any) -> list[Any]:
    """Y, and what is computed of it."""
    made, dims = [y], list(y.get_dim())
    ones = [1] * (len(dims) - 2)
    for _ in range(random.choice((0, 1, 2, 3))):
        value, kind = random.choice(made[-2:]), random.choice(("add", "mul", "relu", "y", "x"))
        shapes = ([1, dims[1], *ones], [dims[0], 1, *ones], [1, 1, *dims[2:]], dims, [1, 1, *ones])
        other = tensor(random.choice(shapes), *_LAYOUTS, data_type=dtypes.f16)
        if kind == "relu":
            made.append(g.relu(value))
        elif kind == "y":
            made.append(g.add(value, y))
        elif kind == "x" and tuple(x.get_dim()) == tuple(dims):
            made.append(g.add(value, x))
        else:
            made.append(g.mul(value, other) if kind == "mul" else g.add(value, other))
    return made


def poisoned(random: Random, inputs: dict[int, Any]) -> dict[int, Any]:
    """With an infinity or a NaN in some of the floats."""
    found = {}
    for uid, array in inputs.items():
        array = np.array(array)
        if array.dtype.kind not in "iub" and random.random() < 0.5:
            array.reshape(-1)[random.randrange(array.size)] = random.choice((np.inf, np.nan))
        found[uid] = array
    return found
