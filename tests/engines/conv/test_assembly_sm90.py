"""Convolutions and their gradients on Hopper's tensor cores, assembled: no spills, no waits of the
assembler's own."""

import pytest

import dnnc
from dnnc import dtypes
from tests.engines.assembling import (
    IMAGES,
    assembled_without_waits,
    filter_gradient,
    packed_channels,
    scaled_with_residual,
)
from tests.engines.elementwise.test_pointwise import new_graph

pytestmark = pytest.mark.registers


def convolution(x, w, io="HALF", after=None, filters=None, **parameters):
    """X and W with the channels last; after(graph, Y): what makes the output; filters: W's type."""
    io, filters = dtypes.of(io), dtypes.of(filters or io)
    compute = dtypes.i32 if io.is_integer and filters == io else dtypes.f32

    def build():
        g = new_graph(io, compute_data_type=compute)
        ends = ((x, io), (w, filters))
        operands = [g.tensor(dims, packed_channels(dims), data_type=type_) for dims, type_ in ends]
        y = g.conv_fprop(*operands, **parameters)
        y = y.set_data_type(dtypes.i32 if compute == dtypes.i32 else dtypes.f16)
        (after(g, y) if after else y).set_output()
        return g

    return build


def statistics_and_mask(g, y):
    """ReLU of Y with its mask, sums of channels and the largest value."""
    return statistics(g, y, masked=True)


def statistics(g, y, masked=False):
    bias = g.tensor([1, y.get_dim()[1], 1, 1])
    y = g.add(y.set_data_type(dtypes.f32), bias).set_data_type(dtypes.f32)
    if masked:
        g.cmp_gt(y, 0).set_output().set_data_type(dtypes.i1)
    for total in g.genstats(y, compute_data_type=dtypes.f32):
        total.set_output().set_data_type(dtypes.f32)
    return g.relu(y)


def channels_first(g, y):
    dims = y.get_dim()
    return g.relu(y).set_stride([dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1])


THREE = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}
EDGE = dnnc.Dim("E", min=8, max=256)
ACROSS = dnnc.Dim("A", min=8, max=256)
IMAGE, FILTER = [IMAGES, 128, EDGE, EDGE], [192, 128, 3, 3]
FUSED = convolution(IMAGE, FILTER, after=scaled_with_residual, **THREE)
STATISTICS = convolution(IMAGE, FILTER, after=statistics, **THREE)
CONV_TILES = ((256, 64), (256, 128), (128, 256), (128, 64), (64, 256), (64, 64))

# The tile, the graph, other knobs.
CONVOLUTIONS = {
    **{f"fused {tile[0]}x{tile[1]}": (tile, FUSED, {}) for tile in CONV_TILES},
    "NCHW outputs": ((128, 128), convolution(IMAGE, FILTER, after=channels_first, **THREE), {}),
    "groups": ((128, 64), convolution(IMAGE, [192, 16, 3, 3], **THREE), {}),
    "3D": (
        (128, 256),
        convolution([IMAGES, 64, 8, 28, 28], [256, 64, 3, 3, 3], padding=[1] * 3),
        {},
    ),
    "few channels": (
        (256, 64), convolution([IMAGES, 32, EDGE, EDGE], [192, 32, 3, 3], **THREE), {"STAGES": 8}
    ),
    "tf32": ((128, 256), convolution(IMAGE, FILTER, "FLOAT", **THREE), {}),
    "i8": ((128, 256), convolution(IMAGE, FILTER, "INT8", **THREE), {}),
    "i8 by f16": ((128, 256), convolution(IMAGE, FILTER, "INT8", None, "HALF", **THREE), {}),
    "f16 by bf16": ((128, 256), convolution(IMAGE, FILTER, "HALF", None, "BFLOAT16", **THREE), {}),
    "fp8 promoted": ((128, 128), convolution(IMAGE, FILTER, "FP8_E4M3", **THREE), {}),
    "split": ((128, 128), FUSED, {"SPLIT_K_SLC": 4}),
    "of 224": ((128, 224), FUSED, {}),
    "cluster": ((128, 128), FUSED, {"TILE_CGA_M": 2}),
    "cluster that shares pixels": ((128, 128), FUSED, {"TILE_CGA_N": 2}),
    "swapped": ((192, 128), FUSED, {"SWAP_AB": 1}),
    "swapped, most sums": (
        (192, 256),
        convolution(IMAGE, FILTER, **THREE),
        {"SWAP_AB": 1, "STAGES": 3},
    ),
    "side by side": ((384, 64), FUSED, {"SWAP_AB": 1}),
    "statistics": ((128, 256), STATISTICS, {}),
    "statistics 256x64": ((256, 64), STATISTICS, {}),
    "statistics, swapped": ((192, 128), STATISTICS, {"SWAP_AB": 1}),
    "statistics, side by side": ((384, 64), STATISTICS, {"SWAP_AB": 1}),
    "statistics and mask": (
        (128, 128), convolution([16, *IMAGE[1:]], FILTER, after=statistics_and_mask, **THREE), {}
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv_sm90_fits_its_registers(name, monkeypatch):
    (rows, columns), build, more = CONVOLUTIONS[name]
    knobs = {"TILE_M": rows, "TILE_N": columns, "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    knobs |= {"SPLIT_K_SLC": 1, "SWAP_AB": 0, "TILE_ROWS": 0, **more}
    plan = assembled_without_waits("conv_sm90", build, knobs, "sm_90a", monkeypatch)
    main = plan.programs[0].kernels[0]
    assert main.threads == (256 if rows == 64 else 384)
    assert main.registers <= {256: 255, 384: 168}[main.threads]


def filter_gradient_of_computed():
    """DW of scaled, biased and rectified images."""
    g = new_graph(dtypes.f16, compute_data_type=dtypes.f32)
    x, y = [IMAGES, 128, 28, 28], [IMAGES, 256, 28, 28]
    scale, bias = (g.tensor([1, 128, 1, 1]) for _ in range(2))
    image = g.relu(g.add(g.mul(g.tensor(x, packed_channels(x)), scale), bias))
    dw = g.conv_wgrad(image, g.tensor(y, packed_channels(y)))
    dw.set_dim([256, 128, 1, 1]).set_output()
    return g


# Name -> (rows and columns of the tile, graph, other knobs).
FILTER_GRADIENTS = {
    "128x256": ((128, 256), filter_gradient(), {}),
    "256x128, accumulated": ((256, 128), filter_gradient(accumulates=True), {}),
    "64x384, parts": ((64, 384), filter_gradient(), {"SPLIT_K_BUF": 8}),
    "64x256": ((64, 256), filter_gradient(accumulates=True), {}),
    "128x192, split": ((128, 192), filter_gradient(), {"SPLIT_K_SLC": 4, "SPLIT_K_BUF": 2}),
    "halo": ((64, 576), filter_gradient(c=64, size=56), {"TILE_ROWS": 4}),
    "halo, parts": ((64, 576), filter_gradient(True, 64, 56), {"TILE_ROWS": 4, "SPLIT_K_BUF": 8}),
    "256x128, sums of dY": ((256, 128), filter_gradient(sums=True), {}),
    "halo, sums of dY": ((64, 576), filter_gradient(c=64, size=56, sums=True), {"TILE_ROWS": 4}),
    "fp8, transposed": ((128, 192), filter_gradient(True, io="FP8_E4M3"), {"KERNEL_CFG": 1}),
    "i8, 128x256": ((128, 256), filter_gradient(True, io="INT8"), {"KERNEL_CFG": 1}),
    "i8, 256x128, parts": (
        (256, 128),
        filter_gradient(io="INT8"),
        {"KERNEL_CFG": 1, "SPLIT_K_BUF": 8},
    ),
    "i8, 128x128, split": (
        (128, 128),
        filter_gradient(io="INT8"),
        {"KERNEL_CFG": 1, "SPLIT_K_SLC": 4},
    ),
    "fp8, widened": (
        (64, 576),
        filter_gradient(c=64, size=56, io="FP8_E5M2"),
        {"TILE_ROWS": 4, "KERNEL_CFG": 1},
    ),
    "256x128, X by two warpgroups": (
        (256, 128),
        filter_gradient_of_computed,
        {"KERNEL_CFG": 3, "SPLIT_K_BUF": 8},
    ),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", FILTER_GRADIENTS)
def test_filter_gradients_fit_their_registers(name, monkeypatch):
    (rows, columns), build, more = FILTER_GRADIENTS[name]
    knobs = {"TILE_M": rows, "TILE_N": columns, "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    knobs |= {"SPLIT_K_SLC": 1, "SPLIT_K_BUF": 1, **more}
    assembled_without_waits("conv_wgrad_sm90", build, knobs, "sm_90a", monkeypatch)


def image_gradient(stride=2, adds=False, dims=(256, 384)):
    """DX of images of `dims[0]` channels, of so many filters."""

    def build():
        g = new_graph(dtypes.f16, compute_data_type=dtypes.f32)
        c, k = dims
        x, w = [16, c, EDGE, EDGE], [k, c, 3, 3]
        parameters = {"padding": [1, 1], "stride": [stride] * 2}
        like = dnnc.pygraph("forward")
        y = like.conv_fprop(like.tensor(x), like.tensor(w), **parameters).get_dim()
        dy, filter_ = g.tensor(y, packed_channels(y)), g.tensor(w, packed_channels(w))
        dx = g.conv_dgrad(dy, filter_, **parameters).set_dim(x).set_data_type(dtypes.f16)
        dx = g.add(dx, g.tensor(x, packed_channels(x))) if adds else dx
        dx.set_output().set_stride(packed_channels(x))
        return g

    return build


# Name -> (pixels and channels of the tile, graph, other knobs).
IMAGE_GRADIENTS = {
    "most sums": ((192, 256), image_gradient(1), {"SWAP_AB": 1, "STAGES": 3}),
    "phases": ((128, 256), image_gradient(), {}),
    "phases, swapped": ((256, 128), image_gradient(), {"SWAP_AB": 1}),
    "phases, side by side": ((384, 64), image_gradient(dims=(288, 64)), {"SWAP_AB": 1}),
    "phases, residual": ((128, 192), image_gradient(adds=True), {}),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", IMAGE_GRADIENTS)
def test_image_gradients_fit_their_registers(name, monkeypatch):
    (rows, columns), build, more = IMAGE_GRADIENTS[name]
    knobs = {"TILE_M": rows, "TILE_N": columns, "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    knobs |= {"SPLIT_K_SLC": 1, "SWAP_AB": 0, "TILE_ROWS": 0, **more}
    assembled_without_waits("conv_sm90", build, knobs, "sm_90a", monkeypatch)


EIGHTS = dnnc.Dim("R", min=8, max=128, multiple_of=8)


def product_of_images(after=None, before=None, rows=EIGHTS):
    """A filter of one tap, images with channels first; before(graph, X)."""

    def build():
        g = new_graph(dtypes.f16, compute_data_type=dtypes.f32)
        x = g.tensor([IMAGES, 128, rows, EDGE], packed_rows([IMAGES, 128, rows, EDGE]))
        taken = before(g, x).set_data_type(dtypes.f16) if before else x
        y = g.conv_fprop(taken, g.tensor([256, 128, 1, 1])).set_data_type(dtypes.f16)
        y = (after(g, y) if after else y).set_output()
        y.set_stride(packed_rows(y.get_dim()))
        return g

    return build


def packed_rows(dims):
    return [dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1]


def with_residual_first(g, y):
    scale, bias = (g.tensor([1, 256, 1, 1]) for _ in range(2))
    residual = g.tensor(y.get_dim(), packed_rows(y.get_dim()))
    return g.relu(g.add(g.add(g.mul(y, scale), bias), residual))


def scaled_before(g, x):
    return g.relu(g.add(g.mul(x, g.tensor([1, 128, 1, 1])), g.tensor([1, 128, 1, 1])))


PRODUCTS = {
    "residual": ((256, 128), product_of_images(with_residual_first), {}),
    "residual, many pixels": ((128, 256), product_of_images(with_residual_first), {}),
    "statistics": ((256, 128), product_of_images(statistics), {}),
    "computed": ((128, 128), product_of_images(before=scaled_before), {"STAGES": 3}),
    "rows that are not aligned": ((128, 64), product_of_images(rows=dnnc.Dim("R", max=128)), {}),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if "," in n else ()) for n in PRODUCTS]
)
def test_products_of_images_fit_their_registers(name, monkeypatch):
    (channels, pixels), build, more = PRODUCTS[name]
    knobs = {"TILE_M": channels, "TILE_N": pixels, "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    knobs |= {"SPLIT_K_SLC": 1, "WARP_SPEC_CFG": 1, "SWAP_AB": 0, **more}
    assembled_without_waits("conv_product_sm90", build, knobs, "sm_90a", monkeypatch)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("after", [scaled_with_residual, statistics])
@pytest.mark.parametrize(
    ("rows", "columns", "channels", "pixels", "inputs", "stride"),
    [
        (7, 0, 128, 256, 64, 1), (8, 0, 64, 256, 64, 1), (16, 0, 64, 512, 32, 1),
        (12, 0, 128, 256, 64, 2), (14, 28, 64, 512, 32, 1),
        pytest.param(14, 16, 128, 256, 32, 1, marks=pytest.mark.slow),
        pytest.param(6, 32, 128, 256, 32, 2, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_halos_fit_their_registers(
    rows, columns, channels, pixels, inputs, stride, after, monkeypatch
):
    """Tiles of some columns are of images whose width is not known."""
    knobs = {"TILE_M": pixels, "TILE_N": channels, "TILE_ROWS": rows, "SWAP_AB": 1, "STAGES": 2}
    knobs |= {"TILE_CGA_M": 1, "TILE_CGA_N": 1, "SPLIT_K_SLC": 1, "TILE_COLS": columns}
    three, across = {**THREE, "stride": [stride] * 2}, ACROSS if columns else 28
    images = [IMAGES, inputs, EDGE, across]
    build = convolution(images, [128, inputs, 3, 3], after=after, **three)
    assembled_without_waits("conv_sm90", build, knobs, "sm_90a", monkeypatch)


@pytest.mark.in_turn
@pytest.mark.parametrize("rows", [128, 256])
def test_first_layers_fit_their_registers(rows, monkeypatch):
    build = convolution(
        [IMAGES, 3, 224, 224], [64, 3, 7, 7], after=scaled_with_residual,
        padding=[3, 3], stride=[2, 2], dilation=[1, 1],
    )  # fmt: skip
    knobs = {"TILE_M": rows, "TILE_N": 64}
    assembled_without_waits("conv_stem_sm90", build, knobs, "sm_90a", monkeypatch)


# X's channels, the filter, the stride, the tile: long filters and units, outputs that fill no tile
# beside many sums, words across two and tiles of output channels.
FEW = {
    "8 channels": (8, [64, 8, 7, 7], 2, (256, 64)),
    "32 channels": (32, [120, 32, 3, 3], 1, (256, 128)),
    "3 channels, stride 1": (3, [504, 3, 7, 7], 1, (128, 256)),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", FEW)
def test_layers_of_few_channels_fit_their_registers(name, monkeypatch):
    channels, filter_, stride, (rows, columns) = FEW[name]
    padding = [filter_[2] // 2] * 2
    build = convolution(
        [IMAGES, channels, 112, 112], filter_, after=scaled_with_residual,
        padding=padding, stride=[stride] * 2, dilation=[1, 1],
    )  # fmt: skip
    knobs = {"TILE_M": rows, "TILE_N": columns, "STAGES": 2}
    assembled_without_waits("conv_stem_sm90", build, knobs, "sm_90a", monkeypatch)


def computed(x, w, act="relu", dual=False, raw=dtypes.f16, after=None, keeps=False):
    """act(X * scale + bias), or of the sum of two such, before the convolution.

    keeps: it is an output too, and the filter has one tap.
    """

    def build():
        g = new_graph(dtypes.f16, compute_data_type=dtypes.f32)

        def scaled():
            scale, bias = (g.tensor([1, x[1], 1, 1]) for _ in range(2))
            return g.add(g.mul(g.tensor(x, packed_channels(x), data_type=raw), scale), bias)

        before = getattr(g, act)(g.add(scaled(), scaled()) if dual else scaled())
        before.set_data_type(dtypes.f16).set_output(keeps)
        parameters = {} if keeps else THREE
        y = g.conv_fprop(before, g.tensor(w, packed_channels(w)), **parameters)
        (after(g, y) if after else y.set_data_type(dtypes.f16)).set_output()
        return g

    return build


COMPUTED = {
    "128x256": ((128, 256), computed(IMAGE, FILTER), {}),
    "256x128": ((256, 128), computed(IMAGE, FILTER, "gelu"), {}),
    "most sums": ((192, 256), computed(IMAGE, FILTER), {"SWAP_AB": 1, "STAGES": 3}),
    "side by side": ((512, 64), computed(IMAGE, FILTER, after=statistics), {"SWAP_AB": 1}),
    "two images": (
        (256, 128), computed(IMAGE, FILTER, dual=True, after=statistics), {"SWAP_AB": 1}
    ),
    "kept": (
        (256, 128),
        computed(IMAGE, [192, 128, 1, 1], dual=True, keeps=True, after=statistics),
        {"SWAP_AB": 1},
    ),
    "f32": ((128, 128), computed(IMAGE, FILTER, "swish", raw=dtypes.f32), {"STAGES": 2}),
    "i8": ((128, 256), computed(IMAGE, FILTER, raw=dtypes.i8), {}),
    "residual": ((128, 192), computed(IMAGE, FILTER, after=scaled_with_residual), {}),
    "statistics 128x192": ((128, 192), computed(IMAGE, FILTER, after=statistics), {}),
    "statistics 128x256, swapped": (
        (128, 256), computed(IMAGE, FILTER, after=statistics), {"SWAP_AB": 1}
    ),
    "one consumer": ((64, 256), computed(IMAGE, FILTER, after=statistics), {}),
    "halo": (
        (256, 128),
        computed([IMAGES, 64, EDGE, 28], [128, 64, 3, 3], "gelu"),
        {"SWAP_AB": 1, "TILE_ROWS": 7, "STAGES": 2},
    ),
    "halo of 64 channels": (
        (256, 64),
        computed([IMAGES, 64, EDGE, 28], [64, 64, 3, 3], after=statistics),
        {"SWAP_AB": 1, "TILE_ROWS": 8, "STAGES": 9},
    ),
    "few channels": (
        (256, 128),
        computed([IMAGES, 24, EDGE, EDGE], [192, 24, 3, 3], after=statistics),
        {"SWAP_AB": 1},
    ),
    "halo of few channels": (
        (512, 64),
        computed([IMAGES, 32, EDGE, 28], [64, 32, 3, 3], after=statistics),
        {"SWAP_AB": 1, "TILE_ROWS": 16, "STAGES": 9},
    ),
}  # fmt: skip

QUICK = (
    "most sums", "kept", "residual", "one consumer", "halo of 64 channels", "halo of few channels"
)  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in COMPUTED]
)
def test_what_computes_pixels_fits_its_registers(name, monkeypatch):
    (rows, columns), build, more = COMPUTED[name]
    knobs = {"TILE_M": rows, "TILE_N": columns, "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    knobs |= {"SPLIT_K_SLC": 1, "SWAP_AB": 0, "TILE_ROWS": 0, **more}
    assembled_without_waits("conv_sm90", build, knobs, "sm_90a", monkeypatch)
