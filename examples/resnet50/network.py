"""ResNet-50 v1.5 as data: operations, and layers that pass values on.

In inference form: a batch norm's scale is in the filter, its shift is the bias.  v1.5: where a
block halves the image, its 3x3 convolution has the stride.  A block:

    x --- reduce 1x1 --- spatial 3x3 --- expand 1x1 --- + --- ReLU --- y
      \\------------ project 1x1, or x itself ----------/

Values are images [n, height, width, channels] of f16, channels last, named after the layer that
makes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dnnc.errors import DnncError, Status

ELEMENT_BYTES = 2  # f16
EXPANSION = 4  # channels that leave a block, over those of its 3x3 convolution
IMAGE = "image"  # the value that goes in

Shape = tuple[int, int, int]  # height, width, channels


@dataclass(frozen=True)
class Conv:
    """y = relu(x convolved with w + bias + residual): square images, filters, equal paddings.

    size: of x's height and width.  channels, filters: of x and of y.  has_residual, has_relu:
    whether they are there.
    """

    size: int
    channels: int
    filters: int
    taps: int
    stride: int = 1
    has_residual: bool = False
    has_relu: bool = True

    @property
    def padding(self) -> int:
        return self.taps // 2

    @property
    def x_shape(self) -> Shape:
        return self.size, self.size, self.channels

    @property
    def y_shape(self) -> Shape:
        pixels = (self.size + 2 * self.padding - self.taps) // self.stride + 1
        return pixels, pixels, self.filters

    @property
    def w_shape(self) -> tuple[int, ...]:
        """Shape of W in memory: filters, height, width, channels."""
        return self.filters, self.taps, self.taps, self.channels

    @property
    def bias_elements(self) -> int:
        return self.filters

    @property
    def depth(self) -> int:
        """Terms of one sum."""
        return self.channels * self.taps**2

    @property
    def products(self) -> int:
        """Multiplications of an image."""
        pixels, _, _ = self.y_shape
        return pixels**2 * self.filters * self.depth

    @property
    def read_elements(self) -> int:
        """Elements of x read for an image; a filter of one tap skips those between its strides."""
        pixels = self.y_shape[0] if self.taps == 1 else self.size
        return pixels**2 * self.channels

    @property
    def id(self) -> str:
        """conv-56x56x64-64x3x3-s1-relu: x's shape, the filter's, the stride, what follows."""
        h, w, c = self.x_shape
        sizes = f"conv-{h}x{w}x{c}-{self.filters}x{self.taps}x{self.taps}-s{self.stride}"
        return sizes + "-add" * self.has_residual + "-relu" * self.has_relu


@dataclass(frozen=True)
class MaxPool:
    """The largest of each window of an image."""

    size: int
    channels: int
    window: int = 3
    stride: int = 2

    has_residual = False
    w_shape = ()
    bias_elements = depth = products = 0

    @property
    def padding(self) -> int:
        return self.window // 2

    @property
    def x_shape(self) -> Shape:
        return self.size, self.size, self.channels

    @property
    def y_shape(self) -> Shape:
        pixels = (self.size + 2 * self.padding - self.window) // self.stride + 1
        return pixels, pixels, self.channels

    @property
    def read_elements(self) -> int:
        return self.size**2 * self.channels

    @property
    def id(self) -> str:
        return f"maxpool{self.window}x{self.window}-{self.size}x{self.size}x{self.channels}"


@dataclass(frozen=True)
class AveragePool:
    """The mean of each channel of an image."""

    size: int
    channels: int

    has_residual = False
    w_shape = ()
    bias_elements = products = 0

    @property
    def depth(self) -> int:
        return self.size**2

    @property
    def x_shape(self) -> Shape:
        return self.size, self.size, self.channels

    @property
    def y_shape(self) -> Shape:
        return 1, 1, self.channels

    @property
    def read_elements(self) -> int:
        return self.size**2 * self.channels

    @property
    def id(self) -> str:
        return f"average-{self.size}x{self.size}x{self.channels}"


@dataclass(frozen=True)
class Linear:
    """y = x w + bias, of one pixel's channels."""

    channels: int
    classes: int

    has_residual = False

    @property
    def x_shape(self) -> Shape:
        return 1, 1, self.channels

    @property
    def y_shape(self) -> Shape:
        return 1, 1, self.classes

    @property
    def w_shape(self) -> tuple[int, ...]:
        """Shape of W in memory: classes, channels."""
        return self.classes, self.channels

    @property
    def bias_elements(self) -> int:
        return self.classes

    @property
    def depth(self) -> int:
        return self.channels

    @property
    def products(self) -> int:
        return self.channels * self.classes

    @property
    def read_elements(self) -> int:
        return self.channels

    @property
    def id(self) -> str:
        return f"linear-{self.channels}x{self.classes}"


Operation = Conv | MaxPool | AveragePool | Linear


def elements(shape: tuple[int, ...]) -> int:
    """How many a tensor of a shape has; () stands for a tensor that is not there."""
    found = 1 if shape else 0
    for extent in shape:
        found *= extent
    return found


def parameters_of(op: Operation) -> int:
    return elements(op.w_shape) + op.bias_elements


def flops_of(op: Operation, n: int) -> float:
    """Operations for n images: a multiplication and an addition each count."""
    return 2.0 * n * op.products


def bytes_of(op: Operation, n: int) -> float:
    """Bytes that n images read and write, each element once."""
    written = elements(op.y_shape) * (2 if op.has_residual else 1)
    return float(ELEMENT_BYTES * (n * (op.read_elements + written) + parameters_of(op)))


@dataclass(frozen=True)
class Layer:
    """An operation on values by name.  residual: "" where the operation has none."""

    name: str
    op: Operation
    x: str
    residual: str = ""

    @property
    def y(self) -> str:
        return self.name

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.x, self.residual) if self.residual else (self.x,)


@dataclass(frozen=True)
class Network:
    """A ResNet of bottleneck blocks.

    size: of the image's height and width.  width: channels after the first convolution, and of
    the 3x3 ones of the first stage, doubled from stage to stage.  blocks: of each stage.
    """

    size: int = 224
    width: int = 64
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    classes: int = 1000

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """In the order in which they run."""
        return tuple(self._layers())

    def _layers(self) -> Iterator[Layer]:
        stem = Conv(self.size, 3, self.width, taps=7, stride=2)
        yield Layer("stem", stem, IMAGE)
        pool = MaxPool(stem.y_shape[0], self.width)
        yield Layer("pool", pool, "stem")
        x, size, channels = "pool", pool.y_shape[0], self.width
        for stage, count in enumerate(self.blocks):
            width = self.width << stage
            for block in range(count):
                stride = 2 if stage and not block else 1
                for layer in _block(f"stage{stage + 1}.block{block + 1}", x, size, channels,
                                    width, stride):  # fmt: skip
                    yield layer
                    x = layer.y
                size, channels = -(-size // stride), width * EXPANSION
        yield Layer("average", AveragePool(size, channels), x)
        yield Layer("linear", Linear(channels, self.classes), "average")

    @property
    def operations(self) -> dict[Operation, int]:
        """Each operation once, in the order of its first layer, and how many layers have it."""
        found: dict[Operation, int] = {}
        for layer in self.layers:
            found[layer.op] = found.get(layer.op, 0) + 1
        return found

    @property
    def ends(self) -> dict[str, tuple[str, ...]]:
        """Values that no later layer reads, by layer."""
        last = {name: layer.name for layer in self.layers for name in layer.reads}
        return {layer.name: tuple(name for name in layer.reads if last[name] == layer.name)
                for layer in self.layers}  # fmt: skip

    @property
    def logits(self) -> str:
        """The value that comes out: [n, classes]."""
        return self.layers[-1].y

    @property
    def parameters(self) -> int:
        return sum(parameters_of(layer.op) for layer in self.layers)

    def flops(self, n: int) -> float:
        return sum(flops_of(layer.op, n) for layer in self.layers)

    def bytes(self, n: int) -> float:
        """Bytes that all layers read and write, one after the other."""
        return sum(bytes_of(layer.op, n) for layer in self.layers)


def _block(name: str, x: str, size: int, channels: int, width: int, stride: int) -> Iterator[Layer]:
    """A block's layers; size, channels: of x.  stride: of the 3x3 convolution."""
    wide = width * EXPANSION
    shortcut = x
    if stride > 1 or channels != wide:
        project = Conv(size, channels, wide, taps=1, stride=stride, has_relu=False)
        yield Layer(f"{name}.project", project, x)
        shortcut = f"{name}.project"
    yield Layer(f"{name}.reduce", Conv(size, channels, width, taps=1), x)
    spatial = Conv(size, width, width, taps=3, stride=stride)
    yield Layer(f"{name}.spatial", spatial, f"{name}.reduce")
    expand = Conv(spatial.y_shape[0], width, wide, taps=1, has_residual=True)
    yield Layer(f"{name}.expand", expand, f"{name}.spatial", shortcut)


# By name.  small: every kind of layer, few of each.  tiny: for training without a GPU.
NETWORKS = {
    "resnet50": Network(),
    "small": Network(size=40, width=8, blocks=(2, 1, 1, 1), classes=16),
    "tiny": Network(size=16, width=8, blocks=(2, 1), classes=8),
}


def network_of(name: str) -> Network:
    """One of NETWORKS; another name is BAD_PARAM."""
    if name not in NETWORKS:
        raise DnncError(Status.BAD_PARAM, f"network {name!r}", ", ".join(NETWORKS), "network")
    return NETWORKS[name]
