"""Gradients by the image of convolutions of known networks, as lists of cases."""

from __future__ import annotations

from .case import Case
from .conv_dgrad import conv_dgrad
from .conv_layers import (
    BATCHES,
    DEPTHWISE_LAYERS,
    DILATED_LAYERS,
    FEW_CHANNEL_LAYERS,
    GROUPED_LAYERS,
    LAYERS,
    VOLUME_LAYERS,
)
from .conv_shape import ConvShape

# (h, c, k, r) of other layers of a stride of 2, square images and filters: of ResNet-50 and others.
STRIDED_LAYERS = (
    (28, 512, 1024, 1),
    (14, 1024, 2048, 1),
    (56, 128, 128, 3),
    (28, 256, 256, 3),
    (14, 512, 512, 3),
    (112, 64, 128, 3),
    (35, 288, 384, 3),
)


def dgrad_layers() -> list[Case]:
    """Every layer of ResNet-50's forward table, of both types and batches."""
    return [
        conv_dgrad(dtype, "plain", ConvShape(n, (h, w), c, k, (r, r), stride, padding))
        for dtype in ("fp16", "bf16")
        for n in BATCHES
        for h, w, c, k, r, stride, padding in LAYERS
    ]


def more_dgrad_layers() -> list[Case]:
    """Strided layers of both batches; the forward lists' others, of one each; epilogues."""
    found = [
        conv_dgrad("fp16", "plain", ConvShape(n, (h, h), c, k, (r, r), 2, r // 2))
        for n in BATCHES
        for h, c, k, r in STRIDED_LAYERS
    ]
    shapes = [
        ConvShape(128, (h, h), c, c, (r, r), stride, r // 2, groups=c)
        for h, c, r, stride in DEPTHWISE_LAYERS
    ]
    shapes += [
        ConvShape(32, (h, h), c, c, (3, 3), stride, 1, groups=groups)
        for h, c, groups, stride in GROUPED_LAYERS
    ]
    shapes += [
        ConvShape(n, (d, h, w), c, k, (3, 3, 3), stride, 1)
        for n, d, h, w, c, k, stride in VOLUME_LAYERS
    ]
    shapes += [
        ConvShape(n, (h, w), c, k, (3, 3), 1, dilation, dilation)
        for n, h, w, c, k, dilation in DILATED_LAYERS
    ]
    shapes += [
        ConvShape(n, (h, h), c, k, (r, r), stride, r // 2)
        for n, h, c, k, r, stride in FEW_CHANNEL_LAYERS
    ]
    found += [conv_dgrad("fp16", "plain", shape) for shape in shapes]
    found += [
        conv_dgrad("fp16", epilogue, ConvShape(256, (h, w), c, k, (r, r), stride, padding))
        for h, w, c, k, r, stride, padding in LAYERS[:5]
        for epilogue in ("add", "drelu")
    ]
    return found
