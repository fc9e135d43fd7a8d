# pyright: basic
"""TMA's im2col copies: pixels of an input, as a filter's tap meets them.

A convolution multiplies, for every tap of its filter, the matrix [output pixels, channels] of
the input pixels that the tap lies on.  One load brings a box of it: `pixels` consecutive output
pixels, counted through rows, planes and images, and `channels` of each, a pixel a row.  Padding
and what is beyond the last image are zeros.

The map holds the places of the filter's first tap: from `lower` to the input's last pixel plus
`upper`, in steps of the stride, which are as many as the output has pixels.  A load says where
the first of its pixels has that tap, and the *offsets* from it to the tap that is wanted.

Example, a row of five pixels, padding 1 on both sides, three taps, stride 2: lower -1, upper -1,
so the first tap lies on -1, 1, 3; with offset 2 the load brings pixels 1, 3 and 5, a zero.

Sources: PTX ISA, "Tensors: Im2col mode"; CUDA driver API, `cuTensorMapEncodeIm2col`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...dialect.tensor import Tensor
from ...expr import Expr, Size
from ...mlir import arith, ir, nvvm
from ...plan.plan import TensorMap
from .. import ops
from ..kernel import Kernel
from . import mbarrier, tma

MAX_CHANNELS = 256
MAX_PIXELS = 1024
MAX_STRIDE = 8

# Spatial axes -> bits that each has in a map's corners (signed) and in a load's offsets (unsigned).
_BITS = {1: 16, 2: 8, 3: 5}


@dataclass(frozen=True)
class Window:
    """How the filter lies and moves along one spatial axis.

    taps: extent of the filter.  stride: pixels from an output's place to the next one's.
    dilation: pixels from a tap to the next.  pre, post: padding before and after the input.
    """

    taps: int
    stride: int = 1
    dilation: int = 1
    pre: int = 0
    post: int = 0

    @property
    def reach(self) -> int:
        """Pixels from the first tap to the last."""
        return (self.taps - 1) * self.dilation

    @property
    def lower(self) -> int:
        """The first tap's first place."""
        return -self.pre

    @property
    def upper(self) -> int:
        """The first tap's last place, counted from the input's last pixel."""
        return self.post - self.reach

    # ---- of tiles of outputs: see `tiles.strips.Moves`

    def place(self, output: int, tap: int) -> int | None:
        return output * self.stride + tap * self.dilation

    def origin(self, start: ops.Number) -> ops.Number:
        return start * self.stride - self.pre

    def lines(self, outputs: int) -> int:
        return outputs * self.stride

    def may_be_outside(self, step: int, tile: int, inputs: Expr, outputs: Expr) -> bool:
        last = self.reach + (tile - 1) * self.stride
        # The last tile ends with the output, so its last tap with the padding.
        is_whole = outputs.known_divisor() % tile == 0
        return step < self.pre or step > last - self.post or not is_whole

    def outputs(self, extent: Size) -> Expr:
        """Extent of the output for one of the input."""
        return (Expr.of(extent) + (self.upper - self.lower - 1)) // self.stride + 1


@dataclass(frozen=True)
class Im2colBox:
    """A box that one load brings: [pixels, channels].

    tensor: the input [N, C, (D,) H, W], its channels contiguous.  windows: of its spatial axes,
    in their order.  element: how the elements are read, as the driver names types ("" for the
    tensor's own).  is_swizzled: rows of 16 to 128 bytes are swizzled against bank conflicts.
    """

    tensor: Tensor
    windows: tuple[Window, ...]
    channels: int
    pixels: int
    element: str = ""
    is_swizzled: bool = True

    def __post_init__(self) -> None:
        assert len(self.windows) == self.tensor.rank - 2, f"{self.windows} are not an axis each"
        assert self.channels <= MAX_CHANNELS, f"{self.channels} channels are too many"
        assert self.pixels <= MAX_PIXELS, f"{self.pixels} pixels are too many"
        assert self.row_bytes % tma.ALIGNMENT == 0, f"rows of {self.row_bytes} bytes"
        has_swizzle = self.row_bytes in tma.SWIZZLES
        assert has_swizzle or not self.is_swizzled, f"no swizzle for rows of {self.row_bytes}"

    @property
    def extents(self) -> tuple[int, int]:
        """Channels and pixels."""
        return self.channels, self.pixels

    @property
    def row_bytes(self) -> int:
        return self.channels * self.tensor.type.bits // 8

    @property
    def bytes(self) -> int:
        return self.pixels * self.row_bytes

    @property
    def outputs(self) -> tuple[Expr, ...]:
        """Extents of the output, in the order of the windows."""
        extents = self.tensor.shape[2:]
        return tuple(w.outputs(extent) for w, extent in zip(self.windows, extents, strict=True))

    @property
    def taps(self) -> int:
        """The taps of the whole filter."""
        taps = 1
        for window in self.windows:
            taps *= window.taps
        return taps

    @property
    def recipe(self) -> TensorMap:
        t, axes = self.tensor, map_axes(self.tensor)
        inner_first = self.windows[::-1]
        return TensorMap(
            mode="im2col",
            uid=t.memory_uid,
            offset=str(tma.offset_of(t)),
            dtype=self.element or t.type.name,
            dims=tuple(map(str, tma.extents_of(t, axes))),
            strides=tuple(map(str, tma.strides_of(t, axes))),
            element_strides=(1, *(window.stride for window in inner_first), 1),
            lower=tuple(window.lower for window in inner_first),
            upper=tuple(window.upper for window in inner_first),
            channels_per_pixel=self.channels,
            pixels_per_column=self.pixels,
            swizzle=tma.SWIZZLES[self.row_bytes] if self.is_swizzled else "NONE",
            l2_promotion="L2_256B",
        )


def map_axes(tensor: Tensor) -> tuple[int, ...]:
    """The axes of the map: C, W, H, D, N, as far as the tensor has them."""
    return (1, *reversed(range(2, tensor.rank)), 0)


def refusal(tensor: Tensor, windows: Sequence[Window]) -> str | None:
    """Why TMA can't bring what the taps of a filter meet of a tensor."""
    if len(windows) not in _BITS or tensor.rank != len(windows) + 2:
        return f"{tensor.rank} axes, {len(windows)} of them under the filter"
    reason = tma.refusal(tensor, map_axes(tensor))
    if reason is not None:
        return reason
    bits = _BITS[len(windows)]
    for window, extent in zip(windows, tensor.shape[2:], strict=True):
        if not 1 <= window.stride <= MAX_STRIDE:
            return f"a convolution stride of {window.stride}"
        for corner in (window.lower, window.upper):
            if not -(1 << (bits - 1)) <= corner < 1 << (bits - 1):
                return f"a corner of {corner} with {len(windows)} spatial axes"
        if not 0 <= window.reach < 1 << bits:
            return f"taps {window.reach} pixels apart with {len(windows)} spatial axes"
        outputs = window.outputs(extent)
        if outputs.bounds()[0] < 1:
            return f"an output extent of {outputs}, which may be 0"
    return None


# ---- places: numbers or values


def first_pixel(kernel: Kernel, box: Im2colBox, number: Any) -> list[Any]:
    """The place (w, h, d, n) of the filter's first tap for an output pixel, as the map has axes.

    number: of the output pixel, with w fastest, then h, d and n; below 2**31.  Pixels past those of
    all images have places beyond the last image.
    """
    found: list[Any] = []
    for window, extent in zip(box.windows[::-1], box.outputs[::-1], strict=True):
        quotient = kernel.divide(number, extent)
        place = kernel.remainder(number, extent, quotient)
        found.append(place * window.stride + window.lower)
        number = quotient
    return [*found, number]


def tap_of(windows: Sequence[Window], number: Any) -> list[Any]:
    """The place in the filter, in the order of the windows, of the tap with a number."""
    return ops.digits(number, [window.taps for window in windows])


def offsets_of(box: Im2colBox, tap: Sequence[Any]) -> list[Any]:
    """The offsets (w, h, d) of a tap; tap: its place in the filter, in the order of the windows."""
    places = zip(box.windows, tap, strict=True)
    return [place * window.dilation for window, place in places][::-1]


# ---- the copy


def load(
    target: Any,
    map_: Any,
    at: Sequence[Any],
    offsets: Sequence[Any],
    barrier: Any,
    *,
    to_ranks: Any = None,
) -> None:
    """Starts the copy of a box to shared memory; its bytes count for `barrier`.

    target: !llvm.ptr<3>.  at: i32 coordinates, first channel and `first_pixel`.  offsets: i32,
    as `offsets_of` gives them.  One coordinate or offset too many or too few for the map is an
    illegal instruction.  to_ranks: as in `tma.load`.
    """
    nvvm.cp_async_bulk_tensor_shared_cluster_global(
        mbarrier.in_cluster(target),
        map_,
        [ops.value_of(coordinate) for coordinate in at],
        barrier,
        [_half(offset) for offset in offsets],
        multicast_mask=None if to_ranks is None else _half(to_ranks),
        mode=ir.Attribute.parse("#nvvm.tma_load_mode<im2col>"),
    )


def store(source: Any, map_: Any, at: Sequence[Any], policy: Any = None) -> None:
    """Starts the copy of a box from shared memory, as `tma.store` does.

    The map's windows have one tap: pixels follow each other as the bounding box has them, and what
    of it lies beyond the image is not stored.
    """
    nvvm.cp_async_bulk_tensor_global_shared_cta(
        map_,
        source,
        [ops.value_of(coordinate) for coordinate in at],
        l2_cache_hint=policy,
        mode=ir.Attribute.parse("#nvvm.tma_store_mode<im2col>"),
    )


def _half(number: Any) -> Any:
    """The low 16 bits of a number, as an i16."""
    half = ir.IntegerType.get_signless(16)
    if isinstance(number, int):
        return ops.const(number, half)
    return arith.TruncIOp(half, number).result
