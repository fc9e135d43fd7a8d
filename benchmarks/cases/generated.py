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
}
