"""The sizes and the layout of a convolution, and how ids spell them.

    256x56x56x64-64x3x3-s1p1

is n x h x w x c, then k x r x s, then stride and padding of every axis; of three axes,
n x d x h x w x c and k x t x r x s.  Behind them, where they are not 1: -d and the dilation, -g and
the number of groups.  /nchw at the end: channels first.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ..graphs.image_norm import Sizes

LAYOUTS = ("nhwc", "nchw")

_SPELLED = re.compile(
    r"(\d+)x(\d+x\d+|\d+x\d+x\d+)x(\d+)-(\d+)x(\d+x\d+|\d+x\d+x\d+)"
    r"-s(\d+)p(\d+)(?:-d(\d+))?(?:-g(\d+))?(?:/(\w+))?"
)


@dataclass(frozen=True)
class ConvShape:
    """y [n, k, *y_image] = x [n, c, *image] convolved with f [k, c / groups, *taps].

    image, taps: two sizes, or three.  stride, padding, dilation: of every axis.  layout: of all
    tensors, one of LAYOUTS.  Errors: ValueError for sizes that do not fit.
    """

    n: int
    image: tuple[int, ...]
    c: int
    k: int
    taps: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    layout: str = LAYOUTS[0]

    def __post_init__(self):
        if self.c % self.groups or self.k % self.groups:
            raise ValueError(f"a conv of {self.groups} groups of {self.c} and {self.k} channels")
        if len(self.image) != len(self.taps) or min(self.y_image) < 1:
            raise ValueError(f"a conv of taps {self.taps} on {self.image}")
        if self.layout not in LAYOUTS:
            raise ValueError(f"a conv in layout {self.layout!r}; there are {LAYOUTS}")

    def __str__(self) -> str:
        image, taps = ("x".join(map(str, sizes)) for sizes in (self.image, self.taps))
        made = f"{self.n}x{image}x{self.c}-{self.k}x{taps}-s{self.stride}p{self.padding}"
        made += f"-d{self.dilation}" if self.dilation > 1 else ""
        made += f"-g{self.groups}" if self.groups > 1 else ""
        return made + (f"/{self.layout}" if self.layout != LAYOUTS[0] else "")

    @property
    def rank(self) -> int:
        """Spatial dims of the image: 2 or 3."""
        return len(self.image)

    @property
    def y_image(self) -> tuple[int, ...]:
        reaches = ((t - 1) * self.dilation + 1 for t in self.taps)
        return tuple(
            (size + 2 * self.padding - reach) // self.stride + 1
            for size, reach in zip(self.image, reaches, strict=True)
        )

    @property
    def fan_in(self) -> int:
        """Products in an element of y."""
        return self.c // self.groups * math.prod(self.taps)

    @property
    def flops(self) -> float:
        return 2.0 * self.fan_in * self.written

    @property
    def written(self) -> int:
        """Elements of y."""
        return self.n * self.k * math.prod(self.y_image)

    @property
    def read(self) -> int:
        """Elements of x and f.  A filter of one tap reads those pixels only that its stride
        meets."""
        pixels = math.prod(self.image if max(self.taps) > 1 else self.y_image)
        return self.n * self.c * pixels + self.k * self.fan_in

    # ---- tensors

    @property
    def x(self) -> Sizes:
        return self._sizes(self.n, self.c, self.image)

    @property
    def f(self) -> Sizes:
        return self._sizes(self.k, self.c // self.groups, self.taps)

    @property
    def y(self) -> Sizes:
        return self._sizes(self.n, self.k, self.y_image)

    def channels(self, count: int) -> Sizes:
        """Sizes of a tensor with a number for each channel of y, or one for all."""
        return self._sizes(1, count, (1,) * self.rank)

    def _sizes(self, n: int, c: int, image: tuple[int, ...]) -> Sizes:
        dims = [n, c, *image]
        axes = list(range(len(dims)))
        order = [0, *axes[2:], 1] if self.layout == LAYOUTS[0] else axes
        strides, running = [0] * len(dims), 1
        for axis in reversed(order):
            strides[axis] = running
            running *= dims[axis]
        return dims, strides


def conv_shape_of(spelled: str) -> ConvShape:
    """The shape that is spelled so."""
    found = _SPELLED.fullmatch(spelled)
    if found is None:
        raise ValueError(f"{spelled!r} is no shape of a conv")
    n, image, c, k, taps, stride, padding, dilation, groups, layout = found.groups()
    made = ConvShape(
        int(n), _sizes_of(image), int(c), int(k), _sizes_of(taps), int(stride), int(padding),
        int(dilation or 1), int(groups or 1), layout or LAYOUTS[0],
    )  # fmt: skip
    if str(made) != spelled:
        raise ValueError(f"conv {spelled!r} is spelled {made}")
    return made


def _sizes_of(spelled: str) -> tuple[int, ...]:
    return tuple(map(int, spelled.split("x")))
