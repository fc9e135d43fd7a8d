"""Cases that nobody listed, by seed.

Heuristics are fitted on seeds below 1000 and judged on others.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from . import memory as memory_cases
from . import row as row_cases
from .case import Case
from .conv import conv
from .conv_dgrad import conv_dgrad
from .conv_shape import ConvShape
from .conv_wgrad import conv_wgrad
from .kinds import add, squares
from .matmul import matmul

# Elements of the largest tensor of a case bound by memory: from tiny to 512 MB.
_FEWEST, _MOST = 1 << 14, 1 << 28
_IMAGES = ("batchnorm", "batchnorm_relu", "batchnorm_backward", "max_pool", "average_pool")
_MATRICES = ("silu_mul", "chain", "transposed", "strided")

# Seconds that a convolution takes at least, if an H100 does 600 TFLOP/s and 3 TB/s of it.
_SHORTEST, _LONGEST = 15e-6, 1e-3


def matmuls(seed: int, count: int = 20) -> list[Case]:
    """Sizes from 1 to 16384, log-uniform, some odd."""
    draw = random.Random(seed)
    found: list[Case] = []
    while len(found) < count:
        batch = draw.choice((1, 1, 1, draw.randint(2, 32)))
        m, n, k = _size(draw, 0, 14), _size(draw, 5, 14), _size(draw, 5, 14)
        if 2.0 * batch * m * n * k > 1.5e12 or batch * (m * n + m * k + n * k) > 1 << 30:
            continue
        dtype = draw.choice(("bf16", "fp16"))
        epilogue = draw.choice(("none", "bias_relu", "bias_gelu"))
        found.append(matmul(dtype, epilogue, batch, m, n, k))
    return found


def long_products(seed: int, count: int = 20) -> list[Case]:
    """Products of some hundred rows, a long k and as many tiles as an H100 has SMs, or some rounds
    of them."""
    draw = random.Random(seed)
    found: dict[str, Case] = {}
    while len(found) < count:
        m, n = round(2 ** draw.uniform(7, 11)), 8 * round(2 ** draw.uniform(7, 11))
        k, dtype = 64 * round(2 ** draw.uniform(5, 8)), draw.choice(("bf16", "fp16"))
        case = matmul(dtype, draw.choice(("none", "bias_relu")), 1, m, n, k)
        if 40e-6 <= case.flops / 600e12 <= _LONGEST:
            found[case.id] = case
    return list(found.values())


def wide_convs(seed: int, count: int = 20) -> list[Case]:
    """1x1 and strided 3x3 layers of many channels, whose tiles are few rounds of an H100's SMs."""
    draw = random.Random(seed)
    found: dict[str, Case] = {}
    while len(found) < count:
        h, n = draw.choice((14, 16, 17, 28, 32, 56)), round(2 ** draw.uniform(1, 5))
        c, k = (32 * round(2 ** draw.uniform(2.5, 6)) for _ in range(2))
        r, stride = draw.choice(((1, 1), (1, 1), (3, 2)))
        epilogue = draw.choice(("plain", "scale_bias_relu"))
        case = conv("fp16", epilogue, ConvShape(n, (h, h), c, k, (r, r), stride, r // 2))
        if 3e-6 <= case.flops / 600e12 <= 0.2e-3:
            found[case.id] = case
    return list(found.values())


def memory_bound(seed: int, count: int = 20) -> list[Case]:
    """Norms, softmax, pointwise work, reductions, pooling and batch norms of sizes drawn alike."""
    draw = random.Random(seed)
    kinds = (_row, _row, _matrix, _image, _plain)
    found: dict[str, Case] = {}
    while len(found) < count:
        case = draw.choice(kinds)(draw)
        found[case.id] = case
    return list(found.values())


def convs(seed: int, count: int = 20) -> list[Case]:
    """Layers of square filters of 1 to 7 taps, channels last, that take 20 us to 2 ms or so."""
    draw = random.Random(seed)
    found: dict[str, Case] = {}
    while len(found) < count:
        case = _conv(draw)
        if _SHORTEST <= max(case.flops / 600e12, case.bytes / 3e12) <= _LONGEST:
            found[case.id] = case
    return list(found.values())


def dgrads(seed: int, count: int = 20) -> list[Case]:
    """Gradients by the image of such layers."""
    draw = random.Random(seed)
    found: dict[str, Case] = {}
    while len(found) < count:
        drawn = _conv(draw)
        case = conv_dgrad(drawn.p["dtype"], "plain", drawn.p["shape"])
        if _SHORTEST <= max(case.flops / 600e12, case.bytes / 3e12) <= _LONGEST:
            found[case.id] = case
    return list(found.values())


def few_channel_dgrads(seed: int, count: int = 20) -> list[Case]:
    """Gradients by the image of layers of 8 to 40 channels, as first stages of networks have."""
    draw = random.Random(seed)
    found: dict[str, Case] = {}
    while len(found) < count:
        h, n = 4 * round(2 ** draw.uniform(3, 5)), round(2 ** draw.uniform(3, 7))
        c, k = 8 * draw.randint(1, 5), 16 * round(2 ** draw.uniform(1, 3.6))
        r, stride = draw.choice((1, 3, 3, 5)), draw.choice((1, 2))
        case = conv_dgrad("fp16", "plain", ConvShape(n, (h, h), c, k, (r, r), stride, r // 2))
        if _SHORTEST <= max(case.flops / 600e12, case.bytes / 3e12) <= 0.2e-3:
            found[case.id] = case
    return list(found.values())


def _conv(draw: random.Random) -> Case:
    """Channels that are no multiple of 8 on one side or the other in one of five."""
    h = round(2 ** draw.uniform(2.8, 7.8))
    w = h if draw.random() < 0.75 else round(2 ** draw.uniform(2.8, 7.8))
    taps = draw.choice((1, 1, 3, 3, 5, 7))
    shape = ConvShape(
        n=round(2 ** draw.uniform(0, 8)),
        image=(h, w),
        c=_size(draw, 3, 11, odd=0.1),
        k=_size(draw, 3, 11, odd=0.1),
        taps=(taps, taps),
        stride=draw.choice((1, 1, 2)),
        padding=draw.choice((0, taps // 2, taps // 2)),
    )
    dtype, epilogue = draw.choice(("fp16", "bf16")), draw.choice(("plain", "scale_bias_relu"))
    return conv(dtype, epilogue, shape)


# Network -> (h, c, k, r, stride, padding) of layers, square images and filters.
_NETWORKS = {
    "ResNet-18 and 34": (
        (56, 64, 64, 3, 1, 1), (56, 64, 128, 3, 2, 1), (28, 128, 128, 3, 1, 1),
        (28, 128, 256, 3, 2, 1), (14, 256, 256, 3, 1, 1), (14, 256, 512, 3, 2, 1),
        (7, 512, 512, 3, 1, 1), (56, 64, 128, 1, 2, 0),
    ),
    "ResNet-50 and 101": (
        (56, 256, 64, 1, 1, 0), (28, 128, 512, 1, 1, 0), (28, 512, 128, 1, 1, 0),
        (56, 128, 128, 3, 2, 1), (14, 256, 1024, 1, 1, 0), (14, 1024, 256, 1, 1, 0),
        (28, 256, 256, 3, 2, 1), (7, 512, 2048, 1, 1, 0), (14, 1024, 2048, 1, 2, 0),
    ),
    "VGG": (
        (112, 64, 128, 3, 1, 1), (56, 128, 256, 3, 1, 1), (28, 256, 512, 3, 1, 1),
        (14, 512, 512, 3, 1, 1),
    ),
    "DenseNet": ((56, 128, 32, 3, 1, 1), (28, 384, 128, 1, 1, 0), (14, 896, 128, 1, 1, 0)),
    "Inception": (
        (35, 96, 96, 3, 1, 1), (17, 768, 192, 1, 1, 0), (17, 192, 320, 3, 2, 0),
        (35, 48, 64, 5, 1, 2),
    ),
    "EfficientNet": ((56, 24, 144, 1, 1, 0), (28, 240, 40, 1, 1, 0), (14, 80, 480, 1, 1, 0)),
    "U-Net of pictures": (
        (256, 64, 64, 3, 1, 1), (128, 128, 128, 3, 1, 1), (64, 512, 256, 3, 1, 1),
        (32, 512, 512, 3, 1, 1),
    ),
    "U-Net of diffusion": (
        (64, 320, 320, 3, 1, 1), (32, 640, 640, 3, 1, 1), (32, 1920, 640, 3, 1, 1),
        (16, 1280, 1280, 3, 1, 1), (64, 320, 320, 3, 2, 1),
    ),
    "ConvNeXt": ((56, 96, 192, 2, 2, 0), (28, 192, 384, 2, 2, 0)),
}  # fmt: skip


def wgrads(seed: int, count: int = 40) -> list[Case]:
    """Gradients of filters of layers of known networks, of batches from 2 to 256."""
    return _of_networks(conv_wgrad, seed, count)


def network_dgrads(seed: int, count: int = 40) -> list[Case]:
    """Gradients by the image of the layers whose gradients of filters `wgrads` draws."""
    return _of_networks(conv_dgrad, seed, count)


def _of_networks(make: Callable[[str, str, ConvShape], Case], seed: int, count: int) -> list[Case]:
    draw = random.Random(seed)
    found: dict[str, Case] = {}
    while len(found) < count:
        h, c, k, r, stride, padding = draw.choice(draw.choice(list(_NETWORKS.values())))
        n, dtype = round(2 ** draw.uniform(1, 8)), draw.choice(("fp16", "bf16"))
        case = make(dtype, "plain", ConvShape(n, (h, h), c, k, (r, r), stride, padding))
        if max(case.flops / 600e12, case.bytes / 3e12) <= _LONGEST:
            found[case.id] = case
    return list(found.values())


def _size(draw: random.Random, smallest: float, largest: float, odd: float = 0.2) -> int:
    """2 to a power between two, a multiple of 8; odd: the share of cases of any other size."""
    value = round(2 ** draw.uniform(smallest, largest))
    return value if draw.random() < odd else max(8, value // 8 * 8)


def _drawn(draw: random.Random, sizes: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    """(rows, columns) whose elements are neither too few nor too many."""
    while True:
        rows, columns = sizes()
        if _FEWEST <= rows * columns <= _MOST:
            return rows, columns


def _row(draw: random.Random) -> Case:
    kind = draw.choice(list(row_cases.KINDS))
    # As they were drawn when gradients of longer rows were several kernels.
    widest = 13 if "backward" in kind else 17
    rows, columns = _drawn(draw, lambda: (_size(draw, 3, 17), _size(draw, 4, widest)))
    return row_cases.KINDS[kind](rows, columns)


def _matrix(draw: random.Random) -> Case:
    rows, columns = _drawn(draw, lambda: (_size(draw, 4, 15), _size(draw, 4, 15)))
    return memory_cases.KINDS[draw.choice(_MATRICES)](rows, columns)


def _plain(draw: random.Random) -> Case:
    rows, columns = _drawn(draw, lambda: (_size(draw, 4, 15), _size(draw, 4, 15)))
    axes = draw.choice(("none", "rows", "columns", "all"))
    return add(rows, columns) if axes == "none" else squares(rows, columns, axes)


def _image(draw: random.Random) -> Case:
    while True:
        n, side, channels = draw.randint(1, 256), draw.randint(4, 128), 8 * draw.randint(1, 256)
        if _FEWEST <= n * side * side * channels <= _MOST:
            return memory_cases.KINDS[draw.choice(_IMAGES)](n, side, side, channels)


# By name, as `kernels --set` takes them.
DRAWN: dict[str, Callable[[int], list[Case]]] = {
    "memory-unlisted": memory_bound,
    "conv-unlisted": convs,
    "dgrad-unlisted": dgrads,
    "dgrad-networks": network_dgrads,
    "few-dgrad-unlisted": few_channel_dgrads,
    "conv-wgrad-unlisted": wgrads,
    "long-unlisted": long_products,
    "wide-conv-unlisted": wide_convs,
}
