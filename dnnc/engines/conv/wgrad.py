# pyright: basic
"""The gradient of a filter as a product of matrices: what its engines read off it.

    dW [K, taps * C] = dY^T [K, pixels of the output] @ X' [pixels of the output, taps * C]

for each group of channels; X' has what each tap of the filter meets of X, and is never stored.
Columns count through the taps, the last spatial axis fastest, and through the channels of each in
whole chunks of `CHUNK`, those past C being no elements of dW.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from ... import dtypes
from ...codegen import ops
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.im2col import Window
from ...codegen.region import Region, read_values
from ...codegen.walk.index import Coordinate
from ...codegen.walk.region_walk import is_reduction
from ...dialect import dnn, structure
from ...dialect.attributes import data_type_of
from ...dialect.fusion import Fusion, remembered
from ...dialect.op import Op
from ...dialect.ops import ConvWgrad, Reduction
from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr, ceildiv, product
from ...mlir import ir
from ..engine import Knob, Reason
from ..product.pattern import compute_reasons, epilogue_reasons, knob_reason
from ..product.region_sm90 import product_calls
from ..surface import fewer_than, pattern_reason
from ..views.relaid import (
    Cast,
    RelaidFusion,
    RelaidRegion,
    Rule,
    generics_before,
    lone_cast,
    twin_at,
    twin_of,
)
from .layouts import channels_last_twin
from .pattern import pixel_matrix

CHUNK = wgmma.PANEL_ROWS  # channels of a chunk of columns
PITCH = 4  # channels that a row of sums is a multiple of: 16 bytes
PATTERN = "one conv_wgrad of two inputs, pointwise operations of DW's dims after it"
PATTERN_WITH_SUM = (
    f"{PATTERN}, and beside it the sum of DY in f32 over all axes but its channels, pointwise "
    "operations of that after it"
)
WORD_BYTES = 4  # of the narrowest copies
RUN_STEP = 8  # elements from a pixel's run of few channels to the next one's: 16 bytes
# Of all engines: what may follow the gradient.
SUPPORT_AFTER = (
    "pointwise operations of DW's dims after it; several outputs of any type and layout, none "
    "boolean; the same bits in every run"
)
# Of those that multiply matrices: what is copied.
SUPPORT_COPIES = (
    "of other pairs of these, i8, ui8 and fp8 in the type that holds both, by a copy ahead; or "
    "both i8, sums in i32; X and DY that are not channels last, or whose pixels do not begin at "
    "whole 16 bytes, are copied first; one that pointwise operations give in f32 takes the other's "
    "16 bits, by a kernel ahead"
)
MAKING = Knob(
    "KERNEL_CFG", (0, 1, 3),
    "1: blocks make operands of i8 and fp8, and compute X, in shared memory; 3: X by two "
    "warpgroups; 0: by kernels ahead",
)  # fmt: skip
REDUCTION = Knob(
    "REDUCTION_MODE", (0, 1),
    "1: parts, where there are several, are added to one place as they end, in any order; 0: by "
    "the second kernel",
)  # fmt: skip
PART, GROUP = 0, 1  # the axes of a batch: a part of the pixels, a group of channels
_MOST_PIXELS = 1 << 30  # of all images, with those of a last step that are past the end


@dataclass(frozen=True, eq=False)
class WgradShape:
    """A filter's gradient; windows: of the spatial axes.  is_flipped: the last tap comes first.

    x [N, C, spatial], dy [N, K, output], dw: dims [K, C / groups, taps], all fixed.  beside: groups
    of channels that are worked on as one, of whose product only some blocks are elements of dW.
    sums_loss: whether the sums of dy over all pixels are wanted, too.  computes: whether blocks
    compute X, x being what they make it of.
    """

    x: Tensor
    dy: Tensor
    dw: tuple[int, ...]
    windows: tuple[Window, ...]
    is_flipped: bool
    beside: int = 1
    sums_loss: bool = False
    computes: bool = False

    @staticmethod
    def of(
        x: Tensor,
        dy: Tensor,
        dw: Sequence[Expr],
        parameters: Sequence[Sequence[int]],
        mode: str,
    ) -> WgradShape:
        """parameters: stride, dilation, pre_padding and post_padding of the operation."""
        dims = tuple(n.constant or 0 for n in dw)
        windows = tuple(
            Window(taps, *rest) for taps, *rest in zip(dims[2:], *parameters, strict=True)
        )
        return WgradShape(x, dy, dims, windows, mode == "CONVOLUTION")

    @property
    def c_group(self) -> int:
        """Input channels of a group."""
        return self.dw[1] * self.beside

    @property
    def groups(self) -> int:
        c = self.x.shape[1].constant
        assert c is not None, "channels are a fixed size"
        return c // self.c_group

    @property
    def k_group(self) -> int:
        """Output channels of a group."""
        return self.dw[0] // self.groups

    @property
    def taps(self) -> int:
        return prod(self.dw[2:])

    @property
    def chunks(self) -> int:
        """Chunks of a tap's channels."""
        return -(-self.c_group // CHUNK)

    @property
    def columns(self) -> int:
        """Columns of a group's product."""
        return self.taps * self.chunks * CHUNK

    @property
    def is_whole(self) -> bool:
        """Whether every column is an element of dW."""
        return self.c_group % CHUNK == 0 and self.beside == 1

    @property
    def read_share(self) -> float:
        """The share of the pixels of X that any tap meets, about: a stride may leave some out."""
        return prod(min(1.0, window.taps / window.stride) for window in self.windows)

    @cached_property
    def pixels(self) -> Expr:
        """Pixels of the output, of all images: k of the product."""
        return product((self.dy.shape[0], *self.dy.shape[2:]))


def reduction_reasons(fusion: Fusion, *, adds: bool) -> tuple[Reason, ...]:
    """Why parts can't be added atomically, where a choice `adds` them."""
    if not (adds and fusion.must_repeat) or repeats_in_any_order(fusion):
        return ()
    what = f"{REDUCTION.name}=1 of results that repeat"
    return (knob_reason(what, f"{REDUCTION.name}=0, or SPLIT_K_BUF=1"),)


def repeats_in_any_order(fusion: Fusion) -> bool:
    """Whether parts' sums are the same in any order: they are integers."""
    return wgrad_of(fusion).compute_type.is_integer


def place_of_part(batch: Mapping[int, Coordinate], *, adds: bool) -> Any:
    """The number of the place of a part's sums."""
    return 0 if adds else part_of(batch)


def part_of(batch: Mapping[int, Coordinate]) -> Any:
    """The number of a matrix's part."""
    return batch[PART].index().base if PART in batch else 0


def group_of(batch: Mapping[int, Coordinate]) -> Any:
    """The number of its group."""
    return batch[GROUP].index().base if GROUP in batch else 0


def tap_places(shape: WgradShape, tap: Any) -> list[Any]:
    """The place along each spatial axis of dW of the tap with a number."""
    return ops.digits(tap, shape.dw[2:])


def tap_and_channel(shape: WgradShape, column: Any) -> tuple[Any, Any]:
    """The number of a column's tap and its channel; chunks of the taps of 64 channels follow each
    other."""
    chunk, inside = column // CHUNK, column % CHUNK
    first = chunk // shape.taps
    tap = chunk - first * shape.taps
    return tap, first * CHUNK + inside


def side_by_side(shape: WgradShape) -> WgradShape:
    """The gradient with as many groups as one as fill a chunk of channels, where TMA takes them."""
    (c_group, k_group), groups = (shape.c_group, shape.k_group), shape.groups
    step = 8 * tma.ALIGNMENT // min(shape.x.type.bits, shape.dy.type.bits)
    for count in range(groups, 0, -1):
        begins = (count * c_group, count * k_group) if count < groups else (0, 0)
        if groups % count == 0 and count * c_group <= CHUNK and not any(n % step for n in begins):
            return replace(shape, beside=count)
    return shape


def wgrad_of(fusion: Fusion) -> ConvWgrad:
    """The gradient of a fusion that has one."""
    return next(op for op in fusion.ops if isinstance(op, ConvWgrad))


def shape_of(op: ConvWgrad) -> WgradShape:
    parameters = (op.stride, op.dilation, op.pre_padding, op.post_padding)
    return WgradShape.of(op.x, op.dy, op.dw.shape, parameters, op.convolution_mode)


def shape_of_call(region: Region, call: Any) -> WgradShape:
    """The gradient that a call of an anchor stands for; X and dY may be computed, or be read by a
    cast."""
    attributes = structure.anchor_of(call).attributes
    names = ("stride", "dilation", "pre_padding", "post_padding")
    parameters = [dnn.attribute_value(attributes[f"dnn.{name}"], tuple) for name in names]
    mode = ir.StringAttr(attributes["dnn.convolution_mode"]).value
    x, dy = (
        region.arguments.get(value) or dnn.read_tensor(value.type, {}, region.symbols)
        for value in loaded_values(region, call)
    )
    made = WgradShape.of(x, dy, region.dims_of(call.results[0]), parameters, mode)
    is_read, is_summed = call.operands[0] in region.arguments, map(is_reduction, region.generics())
    return replace(made, sums_loss=any(is_summed), computes=not is_read and not x.type.is_fp8)


def loaded_values(region: Region, call: Any) -> list[Any]:
    """X and dY of a call of an anchor: of each what is in memory, or the one tensor of its dims
    that it is made of; else what is computed."""
    found: list[Any] = []
    for value in call.operands:
        sources = [
            read
            for read in values_before(region, [value])
            if region.arguments[read].shape == region.dims_of(value)
        ]
        found.append(sources[0] if len(sources) == 1 else value)
    return found


def values_before(region: Region, values: Iterable[Any]) -> set[Any]:
    """The arguments that tensors of a region are made of, up to a call; themselves, if they are."""
    own = set(values)
    made = [value.owner for value in own if value not in region.arguments]
    read = {v for owner in made for op in generics_before(owner) for v in read_values(op)}
    return {value for value in own | read if value in region.arguments}


# ---- the support surface


def anchor_reasons(fusion: Fusion, pattern: str = PATTERN, *, sums: int = 0) -> tuple[Reason, ...]:
    """Reasons why a fusion's one sum is not a filter's gradient; pattern: what would be
    accepted.  sums: reductions that may be beside it."""
    anchors, reductions = fusion.with_role("anchor"), fusion.with_role("reduction")
    if len(anchors) == 1 and isinstance(anchors[0], ConvWgrad) and len(reductions) <= sums:
        return ()
    what = ", ".join(op.label for op in anchors + reductions) or "no conv_wgrad"
    return (pattern_reason(what, pattern),)


def operand_reasons(fusion: Fusion, op: ConvWgrad) -> list[Reason]:
    """Reasons against operands that are computed or numbers, and what follows the gradient."""
    for tensor in (op.x, op.dy):
        is_input = tensor in fusion.inputs or lone_cast(fusion, op, tensor) is not None
        if not is_input or tensor.is_by_value:
            what = f"{tensor.label} of {op.label} is computed before it"
            return [pattern_reason(what, PATTERN, op)]
    return epilogue_reasons(fusion, op)


def loss_sum_of(fusion: Fusion) -> Reduction | None:
    """The sum beside the gradient of what it reads; None: there is none."""
    sums = [op for op in fusion.ops if isinstance(op, Reduction) and op.role == "reduction"]
    return sums[0] if len(sums) == 1 else None


def loss_sum_reasons(fusion: Fusion) -> list[Reason]:
    """Why a reduction beside the gradient is not the sum of dY of each output channel."""
    found, op = loss_sum_of(fusion), wgrad_of(fusion)
    if found is None:
        return []
    channels = tuple(n if axis == 1 else Expr.of(1) for axis, n in enumerate(op.dy.shape))
    is_sum = found.mode == "add" and found.compute_type == dtypes.f32
    if found.x is not op.dy or found.y.shape != channels or not is_sum:
        what = f"{found.label} ({found.mode} of {found.x.label} in {found.compute_type})"
        return [pattern_reason(what, PATTERN_WITH_SUM, found)]
    for other in _after(fusion, found):
        if other.role != "pointwise" or any(t.shape != channels for t in other.results):
            return [pattern_reason(f"{other.label} after {found.label}", PATTERN_WITH_SUM, other)]
        if any(op in fusion.upstream(t) for t in other.operands):
            what = f"{other.label} of {found.label} and {op.label}"
            return [pattern_reason(what, PATTERN_WITH_SUM, other)]
    booleans = [t for t in fusion.outputs if t.type.kind == "b"]
    return [pattern_reason(f"{t.label} of BOOLEAN", PATTERN_WITH_SUM) for t in booleans[:1]]


def _after(fusion: Fusion, found: Reduction) -> list[Op]:
    """The operations that need a reduction."""
    return [op for op in fusion.ops if any(found in fusion.upstream(t) for t in op.operands)]


def filter_fusion(fusion: Fusion) -> Fusion:
    """The fusion without the sum of dY and what follows it."""
    if (found := loss_sum_of(fusion)) is None:
        return fusion
    gone = frozenset[Op]((found, *_after(fusion, found)))
    outputs = tuple(t for t in fusion.outputs if fusion.producers[t] not in gone)
    rest = tuple(op for op in fusion.ops if op not in gone)
    return Fusion(fusion.index, rest, outputs, fusion.must_repeat)


def size_reasons(op: ConvWgrad) -> list[Reason]:
    """Reasons against filters of symbolic sizes, and counts of pixels."""
    if any(n.constant is None for n in (*op.dw.shape, op.x.shape[1])):
        what = f"dims of {op.dw.label} or channels of {op.x.label} that are symbols"
        return [Reason(Status.NOT_SUPPORTED_SHAPE, "filter", what, "fixed sizes")]
    pixels = shape_of(op).pixels
    low, high = pixels.bounds()
    if high >= _MOST_PIXELS:
        what, supported = f"DY of up to {high} pixels", fewer_than(_MOST_PIXELS, pixels)
        return [Reason(Status.NOT_SUPPORTED_SHAPE, "size", what, supported)]
    if low < 1:
        what = "DY that may have no pixels"
        return [Reason(Status.NOT_SUPPORTED_SHAPE, "size", what, "sizes of at least 1")]
    return []


def type_reasons(op: ConvWgrad, types: Sequence[DType]) -> list[Reason]:
    """Reasons against operands that are neither of one of some types nor bytes summed in i32."""
    if op.x.type == op.dy.type and op.x.type in (*types, dtypes.i8):
        return compute_reasons(op.compute_type, op.x.type, op.dy.type)
    what = f"X {op.x.type}, DY {op.dy.type} in {op.compute_type.cudnn}"
    supported = " or ".join(f"both {type_}" for type_ in types)
    supported += "; i8, ui8 and fp8 are converted to these for sums in FLOAT; both i8 in INT32"
    return [Reason(Status.NOT_SUPPORTED_DATA_TYPE, "operand types", what, supported)]


# ---- operands in other layouts


@remembered
def relaid_fusion(
    fusion: Fusion, *, has_rows: bool, makes: bool = False, has_words: bool = False
) -> RelaidFusion:
    """The fusion with operands whose channels are last and whose pixels follow each other.

    has_rows: X of few channels is as `WgradStem` reads it.  makes: blocks make operands of bytes.
    has_words: pixels of up to four bytes are words.
    """
    op, shape = wgrad_of(fusion), shape_of(wgrad_of(fusion))
    ends, casts = [op.x, op.dy], list[Cast]()
    for place, tensor in enumerate((op.x, op.dy)):
        is_rows = has_rows and place == 0 and channel_pitch(shape) > 0
        cast = lone_cast(fusion, op, tensor)
        if cast is None or (place == 1 and tensor is op.x):
            continue
        source = loaded_tensor(fusion, op, tensor)
        if makes and not is_rows and _is_made(source, tensor.type):
            ends[place] = source
        else:
            casts.append(Cast(cast, _cast_twin(shape, is_rows=is_rows)))
    rule = _rule(ends[0], ends[1], shape, has_rows=has_rows, has_words=has_words)
    return RelaidFusion.of(fusion, rule, *casts)


def relaid_region(
    region: Region, *, has_rows: bool, makes: bool = False, has_words: bool = False
) -> RelaidRegion:
    """The fusion's region with what was relaid."""
    (call,) = product_calls(region)
    shape, values = shape_of_call(region, call), list(call.operands)
    ends, casts = [region.arguments.get(value) for value in values], list[Cast]()
    for place, loaded in enumerate(loaded_values(region, call)):
        is_rows = has_rows and place == 0 and channel_pitch(shape) > 0
        if values[place] in region.arguments or values[place] in values[:place]:
            continue
        source, made = region.arguments.get(loaded), data_type_of(values[place])
        if makes and not is_rows and source and _is_made(source, made):
            ends[place] = source
        else:
            casts.append(Cast(values[place].owner, _cast_twin(shape, is_rows=is_rows)))
    rule = _rule(ends[0], ends[1], shape, has_rows=has_rows, has_words=has_words)
    return RelaidRegion.of(region, rule, *casts)


def loaded_tensor(fusion: Fusion, op: ConvWgrad, tensor: Tensor) -> Tensor:
    """The input that an operand is, or the one of its dims that it is made of; else itself."""
    if lone_cast(fusion, op, tensor) is None:
        return tensor
    read = [t for t in fusion.read_inputs(tensor) if t.shape == tensor.shape and not t.is_by_value]
    return read[0] if len(read) == 1 else tensor


def _is_made(source: Tensor, type_: DType) -> bool:
    """Whether blocks make an operand of a type of what is loaded."""
    if source.type.is_fp8:
        return type_ == dtypes.f16
    return source.type.is_float and source.type.bits == type_.bits == 16


def _is_narrow(tensor: Tensor) -> bool:
    """Whether pixels of a single channel begin at other places than whole 16 bytes."""
    if tensor.shape[1].constant != 1:
        return False
    axes = (axis for axis, n in enumerate(tensor.shape) if axis != 1 and n.constant != 1)
    steps = (tensor.layout[axis].known_divisor() * tensor.type.bits for axis in axes)
    return any(bits % (8 * tma.ALIGNMENT) for bits in steps)


def _cast_twin(shape: WgradShape, *, is_rows: bool) -> Callable[[Tensor], Tensor]:
    """The maker of the twin of an operand that is cast."""

    def twin(tensor: Tensor) -> Tensor:
        found = None
        if is_rows:
            found = _rows_twin(replace(shape, x=tensor))
        found = found or channels_last_twin(tensor, is_forced=True)
        assert found is not None, "a twin that is asked for"
        return found

    return twin


def _rule(
    x: Tensor | None, dy: Tensor | None, shape: WgradShape, *, has_rows: bool, has_words: bool
) -> Rule:
    """x, dy: None where they are computed."""

    def twin(tensor: Tensor) -> Tensor | None:
        if tensor not in (x, dy):
            return None
        if tensor is x and has_rows and channel_pitch(shape):
            return _rows_twin(shape)
        if tensor is x and has_words and is_of_words(shape) and shape.groups == 1:
            return _words_twin(tensor)
        has_gaps = tensor is dy and pixel_matrix(tensor, 1) is None
        return channels_last_twin(tensor, is_forced=has_gaps or _is_narrow(tensor))

    return twin


def channel_pitch(shape: WgradShape) -> int:
    """Channels of a pixel of X, where its runs are 16 bytes apart; 0: they can't be."""
    stride = shape.windows[-1].stride
    pitch = RUN_STEP // stride if stride in (1, 2) else 0
    is_fit = shape.groups == 1 and len(shape.windows) == 2 and shape.windows[1].dilation == 1
    return pitch if is_fit and shape.c_group <= pitch else 0


def is_of_words(shape: WgradShape) -> bool:
    """Whether the channels of a group of a pixel of X are up to four bytes, that begin at words."""
    is_fit = shape.c_group == WORD_BYTES or (shape.groups == 1 and shape.c_group < WORD_BYTES)
    return shape.x.type.bits == 8 and is_fit


def _words_twin(x: Tensor) -> Tensor | None:
    """X with four bytes a pixel; None: they are whole words, and the channels lie together."""
    steps = [
        step for axis, step in enumerate(x.layout) if axis != 1 and x.shape[axis].constant != 1
    ]
    is_whole = all(step.known_divisor() % WORD_BYTES == 0 for step in steps)
    is_together = 1 in (x.layout[1].constant, x.shape[1].constant)
    if is_together and is_whole and x.alignment % WORD_BYTES == 0:
        return None
    return twin_of(x, (0, *range(2, x.rank), 1), WORD_BYTES)


def _rows_twin(shape: WgradShape) -> Tensor | None:
    """X with so many channels a pixel, whose rows begin at whole 16 bytes; None: it is so."""
    x, pitch = shape.x, channel_pitch(shape)
    row = ceildiv(x.shape[3] * pitch, RUN_STEP) * RUN_STEP
    strides = (row * x.shape[2], Expr.of(1), row, Expr.of(pitch))
    if x.layout == strides and x.alignment % tma.ALIGNMENT == 0:
        return None
    return twin_at(x, strides)
