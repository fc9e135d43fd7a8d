# pyright: basic
"""Engine conv_wgrad_depthwise: gradients of filters of one channel a group, by multiply-adds.

    block = (tile of channels, part of the rows of dY);  thread = (fragment of channels, rows)
    for each of its rows of dY, some columns at a time: dY's pixels, and what their taps meet of X,
        once; multiply each by each, into the sums of all taps
    the block's sums, over its threads, in a fixed order -> the workspace

A second kernel adds up the parts and has what follows (`wgrad_sums`).  Sums are f32, of bytes i32.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from ... import dtypes
from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.scalars.math import widened
from ...codegen.scalars.scalar import Scalars
from ...codegen.state import loop
from ...codegen.stretch import stretch
from ...codegen.tiles.pixels import Line, Place, StoredPixels, is_stored
from ...codegen.totals import reduce
from ...codegen.walk.index import Index
from ...dialect.fusion import Fusion, remembered_at_sizes
from ...dialect.ops import ConvWgrad
from ...dialect.tensor import Tensor
from ...errors import Status
from ...expr import Expr, product, typical
from ...target import WARP_THREADS, Target
from ..engine import Engine, Knob, Knobs, Prediction, Reason
from ..knob_values import KnobValues
from ..product.kernel_sm80 import anchor_call
from ..product.memory_model import smooth_max, transfer_seconds
from ..product.pattern import knob_reason
from ..surface import LAUNCH_SECONDS, bytes_of, too_large_reasons
from .wgrad import (
    SUPPORT_AFTER,
    WgradShape,
    anchor_reasons,
    operand_reasons,
    relaid_fusion,
    relaid_region,
    shape_of,
    shape_of_call,
    size_reasons,
    wgrad_of,
)
from .wgrad_sums import emit_sum, place_sums, sum_seconds, sums_of

_THREADS = 128
_LOADS = (8, 4, 2, 16, 1)
_PARTS = (1, 4, 16, 32, 64, 128, 256, 512)
_STRIPS = (4, 7, 5, 3, 2)  # columns of dY that a thread has at once, if a row is so many times them
_FRAGMENTS = (32, 16, 8, 4, 2, 1)  # of channels, of a block
_MOST_SUMS = 100  # registers of a thread
_MOST_TAPS = 49
_LINE_BYTES = 64  # of channels of a block, that are loaded as fast as longer ones
_BLOCKS = 6  # of an SM
_BANDWIDTH_SHARE = 0.8
_ARITHMETIC_SHARE = 0.4  # of the rate of f32, that products reach between loads and conversions
_INTEGER_TIME = 2.0  # of a multiply-add of integers: they have half of the units
_TYPES = (dtypes.f16, dtypes.bf16, dtypes.f32)
_INTEGERS = (dtypes.i8,)


@dataclass(frozen=True)
class _Choice(KnobValues):
    """One value of each knob.

    load_bytes: of X's channels of a thread.  parts: of the rows of dY, whose sums a second kernel
    adds up.
    """

    load_bytes: Annotated[int, "LOAD_SIZE"]
    parts: Annotated[int, "SPLIT_K_BUF"]

    def width(self, shape: WgradShape) -> int:
        """Channels of a thread."""
        return self.load_bytes * 8 // shape.x.type.bits


@dataclass(frozen=True)
class RowStripTiling:
    """The tiling that `dnn.tile` says.

    vector_elems: channels of a thread.  fragments: of a block, side by side.  strip: pixels of a
    row that a thread has at once.  parts: of the rows of dY, that blocks share.
    """

    vector_elems: int
    fragments: int
    strip: int
    parts: int


@dataclass(frozen=True)
class ConvWgradDepthwiseEngine(Engine):
    """See the file's docstring."""

    tiling = RowStripTiling
    name: str = "conv_wgrad_depthwise"
    index: int = 23
    families: tuple[str, ...] = ("convolution gradient",)
    updates_outputs: bool = True
    support: tuple[str, ...] = (
        f"one conv_wgrad of one to three spatial dims, one channel a group of X and of DY, up to "
        f"{_MOST_TAPS} taps; X and DY of f16, bf16 or f32, sums in f32, or both i8, sums in i32; "
        "tensors that are not channels last are copied first",
        "any stride, dilation, paddings, both modes; N and the spatial dims may be symbols, of at "
        "least 1",
        SUPPORT_AFTER,
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := anchor_reasons(fusion):
            return declined
        op = wgrad_of(fusion)
        reasons = [*operand_reasons(fusion, op), *(_type_reasons(op) or size_reasons(op))]
        if reasons:
            return tuple(reasons)
        reasons += _shape_reasons(shape_of(op))
        reasons += relaid_fusion(fusion, has_rows=False).reasons(target)
        return (*reasons, *too_large_reasons(fusion))

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("LOAD_SIZE", _LOADS, "bytes of X's channels of a thread"),
        Knob("SPLIT_K_BUF", _PARTS, "parts of the rows of DY, whose sums a second kernel adds up"),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        shape = shape_of(wgrad_of(relaid_fusion(fusion, has_rows=False).fusion))
        choice = _Choice.of(knobs)
        width = choice.width(shape)
        what = ""
        if width < 1 or shape.dw[0] % width:
            what = f"LOAD_SIZE={choice.load_bytes} of {shape.dw[0]} channels of {shape.x.type}"
        elif width > 1 and width * shape.taps > _MOST_SUMS:
            what = f"sums of {shape.taps} taps of {width} channels"
        elif not all(is_stored(tensor, width) for tensor in (shape.x, shape.dy)):
            what = f"LOAD_SIZE={choice.load_bytes} of images with rows of no fixed distance"
        if not what:
            return ()
        supported = f"whole fragments of channels, up to {_MOST_SUMS} sums"
        return (knob_reason(what, supported),)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        shape = shape_of(wgrad_of(fusion))
        found = list[Knobs]()
        for load in _LOADS:
            choice = _Choice(load, 1)
            if self.legal(choice.knobs, fusion, target):
                continue
            tiles = _tiles(shape, choice.width(shape))
            parts = [n for n in _PARTS if n * tiles <= _BLOCKS * target.sm_count]
            found.append(_Choice(load, max(parts, default=1)).knobs)
        return found

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        shape, copies = shape_of(wgrad_of(fusion)), relaid_fusion(fusion, has_rows=False)
        moved, products = _work(fusion)
        choice = _Choice.of(knobs)
        width, parts = choice.width(shape), choice.parts
        fragments = _fragments(shape.dw[0] // width)
        filled = min(1.0, parts * _tiles(shape, width) / target.sm_count)
        share = min(1.0, fragments * width * shape.x.type.bits / 8 / _LINE_BYTES) * filled
        memory = transfer_seconds(moved, target) / (_BANDWIDTH_SHARE * share)
        busy = 2 * products / (target.f32_tflops * 1e12 * _ARITHMETIC_SHARE * filled)
        busy *= _INTEGER_TIME if shape.x.type.is_integer else 1
        seconds = LAUNCH_SECONDS + smooth_max(memory, busy) + copies.seconds(target)
        seconds += sum_seconds(shape.dw[0] * shape.taps * parts, target)
        return Prediction(seconds, "memory" if memory > busy else "arithmetic")

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> RowStripTiling:
        shape, choice = shape_of(wgrad_of(fusion)), _Choice.of(knobs)
        width = choice.width(shape)
        return RowStripTiling(
            vector_elems=width,
            fragments=_fragments(shape.dw[0] // width),
            strip=_strip(shape),
            parts=choice.parts,
        )

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: RowStripTiling, output: Output) -> None:
        copies = relaid_region(region, has_rows=False)
        copies.emit(output, lambda: _emit(copies.region, tile, output))


def _emit(region: Region, tile: RowStripTiling, output: Output) -> None:
    shape, parts = shape_of_call(region, anchor_call(region)), tile.parts
    sums = _sums(region, shape)
    place_sums(output, sums, parts)
    kernel = output.kernel("", _THREADS)
    with kernel.body():
        made = _DepthwiseWgrad(kernel, region, shape, sums, tile)
        made.emit()
    output.launch(kernel, (made.tiles * parts, 1, 1))
    emit_sum(region, sums, parts, output)


def _sums(region: Region, shape: WgradShape) -> Tensor:
    """The tensor of one part's sums: [taps][channels]."""
    strides, running = list[int](), shape.dw[0]
    for taps in shape.dw[:1:-1]:
        strides.append(running)
        running *= taps
    order = (1, 1, *reversed(strides))
    return replace(sums_of(region, shape), strides=tuple(map(Expr.of, order)))


@dataclass
class _DepthwiseWgrad:
    """The first kernel; see the file's docstring."""

    kernel: Kernel
    region: Region
    shape: WgradShape
    sums: Tensor
    tile: RowStripTiling

    def __post_init__(self) -> None:
        self.width, self.fragments = self.tile.vector_elems, self.tile.fragments
        self.count = self.shape.dw[0] // self.width  # of fragments of all channels
        self.tiles = -(-self.count // self.fragments)
        self.workers = _THREADS // self.fragments
        self.scalars = Scalars(self.sums.type)

    def emit(self) -> None:
        thread = ops.thread_id()
        own, lane = thread // self.fragments, thread % self.fragments
        part = ops.block_id() // self.tiles
        tile = ops.block_id() - part * self.tiles
        number = tile * self.fragments + lane
        kept = ops.minimum(number, self.count - 1)
        channel = Index(kept * self.width, 1 if self.width > 1 else 0, self.width)
        leaves: dict[Any, Any] = self.region.leaves(self.kernel)
        x, dy = (leaves[value] for value in anchor_call(self.region).operands)
        self.x, self.dy = (self._pixels(leaf, channel) for leaf in (x, dy))
        first = part * self.workers + own
        step = self.workers * self.tile.parts
        rows = self.kernel.size(product((self.shape.dy.shape[0], *self.shape.dy.shape[2:-1])))
        self._store(self._totals(first, rows, step), part, number, lane)

    def _pixels(self, leaf: GlobalTensor, channel: Index) -> StoredPixels:
        return StoredPixels(leaf, channel, self.width)

    # ---- rows of dY

    @stretch("mainloop")
    def _totals(self, first: Any, end: Any, step: int) -> list[Any]:
        """The sums of all taps, [tap][channel], of every step-th row of dY."""
        zeros = [self.scalars.const(0)] * (self.shape.taps * self.width)
        return loop(first, end, step, state=zeros)(self._row)

    def _row(self, number: Any, totals: list[Any]) -> list[Any]:
        y, places = self.shape.dy.shape, list[Any]()
        for extent in y[-2:1:-1]:
            quotient = self.kernel.divide(number, extent)
            places.insert(0, self.kernel.remainder(number, extent, quotient))
            number = quotient
        count, strip = self.kernel.size(y[-1] // self.tile.strip), self.tile.strip

        @loop(0, count, state=totals)
        def end(i: Any, now: list[Any]) -> list[Any]:
            return self._strip(number, places, i * strip, now)

        return end

    def _strip(self, image: Any, places: Sequence[Any], first: Any, totals: list[Any]) -> list[Any]:
        """The sums with the products of some columns of a row; first: of them."""
        shape, count = self.shape, self.tile.strip
        *outer, last = shape.windows
        line = self.dy.line(image, [Place(place, True) for place in places], first)
        gradients = [
            self._widened(self.dy.load(line, i, Place(first + i, True)), shape.dy)
            for i in range(count)
        ]
        start = first * last.stride + last.lower
        for number, taps in enumerate(itertools.product(*(range(w.taps) for w in outer))):
            at = [
                self._place(axis, place * w.stride + (w.lower + tap * w.dilation))
                for axis, (place, w, tap) in enumerate(zip(places, outer, taps, strict=True))
            ]
            met = self.x.line(image, at, start)
            self._multiply(met, start, number * last.taps, gradients, totals)
        return totals

    def _multiply(
        self, met: Line, start: Any, first_tap: int, gradients: Sequence[Any], totals: list[Any]
    ) -> None:
        """Adds the products of a line of X, whose first column is `start`."""
        window = self.shape.windows[-1]
        loaded: dict[int, Any] = {}
        for output, tap in itertools.product(range(len(gradients)), range(window.taps)):
            step = output * window.stride + tap * window.dilation
            if step not in loaded:
                place = self._place(len(self.shape.windows) - 1, start + step)
                loaded[step] = self._widened(self.x.load(met, step, place), self.shape.x)
            for lane in range(self.width):
                at = (first_tap + tap) * self.width + lane
                pair = (loaded[step][lane], gradients[output][lane])
                totals[at] = self.scalars.fma(*pair, totals[at])

    def _place(self, axis: int, number: Any) -> Place:
        """A pixel of X along a spatial axis."""
        window = self.shape.windows[axis]
        may_be = bool(window.pre or window.post)
        return Place.of(self.kernel, number, self.shape.x.shape[2 + axis], may_be_outside=may_be)

    def _widened(self, fragment: Any, tensor: Tensor) -> list[Any]:
        return widened(fragment, tensor.type, self.sums.type)

    # ---- the block's sums

    @stretch("sum of parts")
    def _store(self, totals: Sequence[Any], part: Any, number: Any, lane: Any) -> None:
        """Combines each tap's sums over the block's threads, and stores them."""
        warps, kernel = _THREADS // WARP_THREADS, self.kernel
        buffer = kernel.shared("sums", warps * self.fragments * self.width * 4)
        warp = ops.thread_id() >> 5
        pointer = kernel.pointer(self.sums, is_exclusive=True)
        element, span = self.scalars.type, self.shape.taps * self.shape.dw[0]
        size = 4 * self.width

        def slot(warp: Any) -> Any:
            place = warp * self.fragments + lane
            return ops.gep(buffer, place * self.width, element)

        is_first = ops.less(ops.thread_id() & (WARP_THREADS - 1), self.fragments)
        is_writer = ops.both(ops.thread_id() < self.fragments, number < self.count)
        for tap in range(self.shape.taps):
            value = ops.from_elements(totals[tap * self.width : (tap + 1) * self.width])
            together = WARP_THREADS // self.fragments
            if together > 1:
                value = reduce.across_lanes(value, together, _add, self.fragments)
            ops.barrier()  # those before have been read
            with ops.if_(is_first):
                ops.store(slot(warp), value, size)
            ops.barrier()
            with ops.if_(is_writer):
                type_ = ops.vector_type(element, self.width)
                total = ops.load(slot(0), type_, size)
                for other in range(1, warps):
                    total = total + ops.load(slot(other), type_, size)
                stored = tap if not self.shape.is_flipped else self.shape.taps - 1 - tap
                place = ops.to_i64(part) * span + stored * self.shape.dw[0]
                place = place + ops.to_i64(number * self.width)
                ops.store(ops.gep(pointer, place, element), total, size)


def _add(a: Any, b: Any) -> Any:
    return a + b


def _fragments(count: int) -> int:
    """Fragments of channels beside each other in a block, of so many in all."""
    return max(_FRAGMENTS, key=lambda n: (count / (-(-count // n) * n) > 0.85, n))


def _tiles(shape: WgradShape, width: int) -> int:
    """Blocks along the channels."""
    count = shape.dw[0] // width
    return -(-count // _fragments(count))


def _strip(shape: WgradShape) -> int:
    """Columns of dY that a thread has at once."""
    size = shape.dy.shape[-1].known_divisor()
    return next((n for n in _STRIPS if size % n == 0), 1)


@remembered_at_sizes
def _work(fusion: Fusion) -> tuple[float, float]:
    """(bytes that are moved, products)."""
    op = wgrad_of(fusion)
    products = typical(shape_of(op).pixels) * shape_of(op).taps * shape_of(op).dw[0]
    return float(bytes_of((*fusion.inputs, *fusion.outputs))), float(products)


def _type_reasons(op: ConvWgrad) -> list[Reason]:
    taken = {dtypes.f32: _TYPES, dtypes.i32: _INTEGERS}.get(op.compute_type, ())
    if op.x.type in taken and op.dy.type in taken:
        return []
    what = f"X {op.x.type}, DY {op.dy.type} in {op.compute_type.cudnn}"
    supported = "f16, bf16, f32 in FLOAT; i8 in INT32"
    return [Reason(Status.NOT_SUPPORTED_DATA_TYPE, "operand types", what, supported)]


def _shape_reasons(shape: WgradShape) -> list[Reason]:
    if shape.c_group != 1 or shape.k_group != 1:
        what = f"groups of {shape.c_group} and {shape.k_group} channels"
        return [Reason(Status.NOT_SUPPORTED_SHAPE, "channels of a group", what, "one of each")]
    if shape.taps > _MOST_TAPS:
        what = f"a filter of {shape.taps} taps"
        return [Reason(Status.NOT_SUPPORTED_SHAPE, "filter", what, f"up to {_MOST_TAPS}")]
    return []


CONV_WGRAD_DEPTHWISE = ConvWgradDepthwiseEngine()
