"""Convolutions of known networks, as lists of cases."""

from __future__ import annotations

from collections.abc import Iterable

from .case import Case
from .conv import conv
from .conv_before import conv_before
from .conv_dgrad import conv_dgrad
from .conv_shape import ConvShape
from .conv_wgrad import conv_wgrad

# (h, w, c, k, r, stride, padding) of layers of ResNet-50, square filters.
LAYERS = (
    (56, 56, 64, 64, 3, 1, 1),
    (56, 56, 64, 256, 1, 1, 0),
    (28, 28, 128, 128, 3, 1, 1),
    (14, 14, 256, 256, 3, 1, 1),
    (7, 7, 512, 512, 3, 1, 1),
    (56, 56, 256, 512, 1, 2, 0),
    (224, 224, 3, 64, 7, 2, 3),
)
BATCHES = (32, 256)
LAYER_EPILOGUES = ("plain", "scale_bias_relu", "scale_bias_add_relu")

# (h, c, r, stride) of depthwise layers of MobileNetV2 and EfficientNet, square images and filters,
# padded so that a stride of 1 keeps the size.
DEPTHWISE_LAYERS = (
    (112, 96, 3, 2),
    (56, 144, 3, 1),
    (14, 384, 3, 1),
    (7, 960, 3, 1),
    (56, 144, 5, 2),
    (28, 192, 5, 1),
    (14, 576, 5, 1),
    (7, 960, 5, 1),
)

# (h, c, groups, stride) of layers with 3x3 filters: RegNetX-12GF, then ResNeXt-50 32x4d, then one
# of ResNeXt-101 32x8d.
GROUPED_LAYERS = (
    (56, 224, 2, 1),
    (28, 448, 4, 1),
    (14, 896, 8, 1),
    (56, 128, 32, 1),
    (56, 256, 32, 2),
    (28, 256, 32, 1),
    (14, 512, 32, 1),
    (7, 1024, 32, 1),
    (14, 1024, 32, 1),
)

# (n, d, h, w, c, k, stride) with 3x3x3 filters: clips in a video ResNet-18, then two levels of a
# 3D U-Net on volumes.
VOLUME_LAYERS = (
    (8, 16, 56, 56, 64, 64, 1),
    (8, 16, 56, 56, 64, 128, 2),
    (16, 8, 28, 28, 128, 128, 1),
    (2, 64, 64, 64, 64, 64, 1),
    (2, 128, 128, 128, 32, 32, 1),
)

# (n, h, w, c, k, dilation) with 3x3 filters, of networks that segment images: a ResNet's last
# stages that keep their resolution, a context module's, and one with a wide reach.
DILATED_LAYERS = (
    (16, 64, 64, 256, 256, 2),
    (16, 32, 32, 512, 512, 2),
    (4, 128, 128, 128, 128, 2),
    (16, 32, 32, 2048, 256, 6),
)

# (n, h, c, k, r, stride) of square images and filters of few channels, padded to keep the size: a
# first layer, what follows first ones, many outputs, and what ends networks that make images.
FEW_CHANNEL_LAYERS = (
    (64, 224, 3, 64, 3, 1),
    (64, 112, 8, 64, 3, 2),
    (64, 112, 8, 64, 7, 2),
    (64, 112, 16, 64, 3, 1),
    (64, 112, 16, 64, 5, 2),
    (64, 112, 32, 64, 3, 1),
    (64, 112, 32, 64, 3, 2),
    (32, 112, 8, 512, 3, 2),
    (16, 256, 16, 3, 9, 1),
    (16, 256, 32, 3, 3, 1),
)

# Of LAYERS, which types of 8 bits and images with channels first are timed on.
_COARSE = (0, 1, 2, 3, 4)
_CHANNELS_FIRST = (0, 1, 2, 3, 6)
# And which begin with scale, bias and ReLU.
_NORMED = (0, 1, 2, 3, 4)


def layers() -> list[Case]:
    """Every layer, with every epilogue, of both types and batches."""
    return [
        conv(dtype, epilogue, _layer(n, number))
        for dtype in ("fp16", "bf16")
        for n in BATCHES
        for number in range(len(LAYERS))
        for epilogue in LAYER_EPILOGUES
    ]


def depthwise_layers() -> list[Case]:
    """Every depthwise layer, plain for large batches and with an epilogue for a small one."""
    return [
        conv(dtype, epilogue, ConvShape(n, (h, h), c, c, (r, r), stride, r // 2, groups=c))
        for dtype, n, epilogue in (
            ("fp16", 128, "plain"),
            ("fp16", 32, "scale_bias_relu"),
            ("bf16", 256, "plain"),
        )
        for h, c, r, stride in DEPTHWISE_LAYERS
    ]


def grouped_layers() -> list[Case]:
    """Layers of 2 to 32 groups, plain for both batches, with an epilogue for the small one."""
    return [
        conv(dtype, epilogue, ConvShape(n, (h, h), c, c, (3, 3), stride, 1, groups=groups))
        for dtype, epilogue, n in (
            ("fp16", "plain", 32),
            ("fp16", "plain", 256),
            ("bf16", "scale_bias_relu", 32),
        )
        for h, c, groups, stride in GROUPED_LAYERS
    ]


def volume_layers() -> list[Case]:
    return _with_and_without(
        ConvShape(n, (d, h, w), c, k, (3, 3, 3), stride, 1)
        for n, d, h, w, c, k, stride in VOLUME_LAYERS
    )


def dilated_layers() -> list[Case]:
    return _with_and_without(
        ConvShape(n, (h, w), c, k, (3, 3), 1, dilation, dilation)
        for n, h, w, c, k, dilation in DILATED_LAYERS
    )


def few_channel_layers() -> list[Case]:
    return _with_and_without(
        ConvShape(n, (h, h), c, k, (r, r), stride, r // 2)
        for n, h, c, k, r, stride in FEW_CHANNEL_LAYERS
    )


def coarse_layers() -> list[Case]:
    """i8 with sums in i32, as they are and as the next layer's i8; fp8 with one scale."""
    operations = (
        ("int8", "plain"), ("int8", "scale_bias_relu"), ("e4m3_fast", "descale"),
        ("e4m3", "descale"),
    )  # fmt: skip
    return [
        conv(dtype, epilogue, _layer(BATCHES[-1], number))
        for dtype, epilogue in operations
        for number in _COARSE
    ]


def channels_first_layers() -> list[Case]:
    """f16 as [n, c, h, w] in memory, filters and outputs too."""
    return [
        conv("fp16", epilogue, _layer(n, number, "nchw"))
        for n, epilogue in ((32, "plain"), (256, "plain"), (32, "scale_bias_relu"))
        for number in _CHANNELS_FIRST
    ]


def normed_layers() -> list[Case]:
    """Behind scale, bias and ReLU, without and with statistics, for both batches."""
    return [
        conv_before("fp16", outputs, _layer(n, number))
        for n in BATCHES
        for number in _NORMED
        for outputs in ("y", "genstats")
    ]


def wgrad_layers() -> list[Case]:
    """The gradient of every layer's filter, of both types of 16 bits and batches, and of f32 and
    e4m3."""
    pairs = [(dtype, n) for dtype in ("fp16", "bf16") for n in BATCHES]
    return [
        conv_wgrad(dtype, "plain", _layer(n, number))
        for dtype, n in (*pairs, ("fp32", BATCHES[0]), ("e4m3", BATCHES[-1]))
        for number in range(len(LAYERS))
    ]


def wgrad_patterns() -> list[Case]:
    """Some layers' gradients with sums of dy, and of what a batch norm begins."""
    return [
        conv_wgrad("fp16", operation, _layer(n, number))
        for operation in ("sum", "scaled")
        for n in BATCHES
        for number in range(4)
    ]


def wgrad_beside_layers() -> list[Case]:
    """The gradient of every layer's filter, then with sums of dy, then of e4m3 and of int8."""
    return [
        conv_wgrad(dtype, operation, _layer(n, number))
        for n in BATCHES
        for number in range(len(LAYERS))
        for dtype, operation in (
            ("fp16", "plain"),
            ("fp16", "sum"),
            ("e4m3", "plain"),
            ("int8", "plain"),
        )
    ]


def gradient_patterns() -> list[Case]:
    """ConvBNwgrad and DgradDreluBNBwdWeight of every layer but the first."""
    return [
        made("fp16", operation, _layer(n, number))
        for made, operation in ((conv_wgrad, "scaled"), (conv_dgrad, "norm"))
        for n in BATCHES
        for number in range(len(LAYERS) - 1)
    ]


def small_wgrad_layers() -> list[Case]:
    """The gradient of every depthwise layer's filter, and of every one of groups."""
    shapes = [
        ConvShape(128, (h, h), c, c, (r, r), stride, r // 2, groups=c)
        for h, c, r, stride in DEPTHWISE_LAYERS
    ]
    shapes += [
        ConvShape(32, (h, h), c, c, (3, 3), stride, 1, groups=groups)
        for h, c, groups, stride in GROUPED_LAYERS
    ]
    return [conv_wgrad("fp16", "plain", shape) for shape in shapes]


def more_layers() -> list[Case]:
    """Groups, volumes, dilation, few channels, types of 8 bits, channels first, what batch norms
    begin."""
    return [
        *grouped_layers(),
        *volume_layers(),
        *dilated_layers(),
        *few_channel_layers(),
        *coarse_layers(),
        *channels_first_layers(),
        *normed_layers(),
    ]


def _with_and_without(shapes: Iterable[ConvShape]) -> list[Case]:
    """Plain ones of f16, ones with an epilogue of bf16."""
    kinds = (("fp16", "plain"), ("bf16", "scale_bias_relu"))
    return [conv(*kind, shape) for shape in shapes for kind in kinds]


def _layer(n: int, number: int, layout: str = "nhwc") -> ConvShape:
    h, w, c, k, r, stride, padding = LAYERS[number]
    return ConvShape(n, (h, w), c, k, (r, r), stride, padding, layout=layout)
