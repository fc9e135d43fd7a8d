"""Work before the convolution of conv_sm90: pointwise operations on X, of a few kinds."""

from __future__ import annotations

from dataclasses import replace

from ...codegen.hopper import tma
from ...codegen.hopper.im2col import Window
from ...codegen.memory.smem import CHUNK_BYTES
from ...codegen.tiles.padding import MOST_BITS, PaddingBits
from ...dialect.fusion import Fusion, remembered
from ...dialect.ops import Pointwise
from ...dialect.tensor import Tensor, text
from ...errors import Status
from ..engine import Reason
from ..surface import pattern_reason
from .pattern import ConvShape, conv_of, conv_shape_of, pixel_matrix

_MOST_RAWS = 2
_MOST_RAW_BITS = 32
_SUPPORTED = (
    "pointwise operations on X, of one or two tensors of its dims, of up to 32 bits an element, "
    "and of tensors and scalars of one element along all axes but the channels"
)


def computes(fusion: Fusion) -> bool:
    """Whether operations come before X."""
    return conv_of(fusion).moved in fusion.producers


@remembered
def raws_of(fusion: Fusion) -> tuple[Tensor, ...]:
    """The tensors that these read at X's own elements, those first that are as wide as these; X
    itself where nothing is computed."""
    x = conv_of(fusion).moved
    if not computes(fusion):
        return (x,)
    read = fusion.read_inputs(x)
    found = [t for t in read if t.shape == x.shape and not t.is_by_value]
    return tuple(sorted(found, key=lambda t: t.type.bits != conv_of(fusion).moved.type.bits))


def loaded_shape(fusion: Fusion, place: int = 0) -> ConvShape:
    """The convolution, with what is loaded for its X."""
    return replace(conv_shape_of(fusion), x=raws_of(fusion)[place])


def beside_bytes(fusion: Fusion, panel: int) -> tuple[int, ...]:
    """Bytes of a row of each raw tile, of a panel of channels, beside what products read."""
    if not computes(fusion):
        return ()
    beside = raws_of(fusion)[int(rewrites_in_place(fusion)) :]
    return tuple(t.type.bits // 8 * panel for t in beside)


def kept_operands(fusion: Fusion) -> tuple[Tensor, ...]:
    """X, if it is computed and an output too."""
    x = conv_of(fusion).moved
    return (x,) if computes(fusion) and x in fusion.outputs else ()


def rewrites_in_place(fusion: Fusion) -> bool:
    """Whether a raw tile is as large as the one that is made of it."""
    return raws_of(fusion)[0].type.bits == conv_of(fusion).moved.type.bits


# ---- the support surface


def before_reasons(fusion: Fusion) -> list[Reason]:
    """Why what comes before X is not what the engine computes."""
    op = conv_of(fusion)
    for other in fusion.upstream(op.moved):
        if not isinstance(other, Pointwise) or other.mode == "gen_index":
            return [pattern_reason(f"{other.label} before {op.label}", _SUPPORTED, other)]
    for tensor in fusion.read_inputs(conv_of(fusion).moved):
        if not _is_read_as_supported(tensor, op.moved):
            return [pattern_reason(f"{tensor.label} of dims {text(tensor.shape)}", _SUPPORTED)]
    raws = raws_of(fusion)
    if not 1 <= len(raws) <= _MOST_RAWS:
        return [pattern_reason(f"{len(raws)} tensors of X's dims before it", _SUPPORTED)]
    for tensor in raws:
        if tensor.type.kind == "b" or tensor.type.bits > _MOST_RAW_BITS:
            what = f"{tensor.label} of {tensor.type} before the convolution"
            return [Reason(Status.NOT_SUPPORTED_DATA_TYPE, "operands of X", what, _SUPPORTED)]
    return _kept_reasons(fusion)


def _kept_reasons(fusion: Fusion) -> list[Reason]:
    """Why X that is an output can't be stored where it is computed, each element once."""
    supported = (
        "X as an output of one tap, of stride 1, without padding, of the type that is multiplied, "
        "with channels last, those of a group a multiple of 16 bytes, rows and images without gaps"
    )
    for tensor in kept_operands(fusion):
        shape = conv_shape_of(fusion)
        is_once = all(w == Window(1) for w in shape.windows)
        matrix = pixel_matrix(tensor, shape.groups) if is_once else None
        is_same = tensor.type == conv_of(fusion).moved.type
        if matrix is None or tma.refusal(matrix, (2, 1)) or not is_same:
            return [pattern_reason(f"{tensor.label} before the convolution is stored", supported)]
    return []


def _is_read_as_supported(tensor: Tensor, x: Tensor) -> bool:
    if tensor.is_by_value or tensor.shape == x.shape:
        return True
    others = (extent for axis, extent in enumerate(tensor.shape) if axis != 1)
    return tensor.type.kind != "b" and all(extent.constant == 1 for extent in others)


def computed_shape_reasons(fusion: Fusion, shape: ConvShape) -> list[Reason]:
    """Reasons why a convolution's pixels can't be computed where TMA brings them."""
    elems = CHUNK_BYTES * 8 // conv_of(fusion).moved.type.bits
    if shape.c_group % elems:
        what = f"X of groups of {shape.c_group} channels, computed"
        return [Reason(Status.NOT_SUPPORTED_SHAPE, "channels", what, f"a multiple of {elems}")]
    bits = PaddingBits.of(shape.windows).count
    if bits > MOST_BITS:
        what = f"a filter of {bits} taps along axes with padding, and X computed"
        return [Reason(Status.NOT_SUPPORTED_SHAPE, "filter", what, f"up to {MOST_BITS}")]
    return []
