"""Clauses of the support surface that engines of convolutions share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dialect.fusion import Fusion
from ...dialect.op import Op
from ...dialect.ops import ConvDgrad, ConvFprop
from ...dialect.ops.conv import Convolved
from ...dialect.tensor import text
from ...errors import Status
from ...expr import Expr
from ...target import Target
from ..engine import Reason
from ..surface import fewer_than, pattern_reason, target_reasons
from .pattern import ConvShape, conv_of, shape_of

MOST_PIXELS = 1 << 31  # of all images: they are counted in 31 bits
LARGE_BYTES = 100 << 20  # twice what L2 of Hopper holds
_MOST_PLACES = 1 << 30  # along an axis, with padding: places may lie outside by as many


def anchor_reasons(
    fusion: Fusion,
    pattern: str,
    *,
    reduces: bool = False,
    takes_gradients: bool = False,
    takes_strides: bool = False,
) -> tuple[Reason, ...]:
    """Reasons why a fusion's anchor is not one convolution; pattern: what would be accepted.

    reduces: whether there may be reductions beside it.  takes_gradients: whether it may be the
    gradient by the image; takes_strides: of a convolution with strides, too.
    """
    anchors = fusion.with_role("anchor")
    if not reduces:
        anchors += fusion.with_role("reduction")
    taken = Convolved if takes_gradients else ConvFprop
    if len(anchors) == 1 and isinstance(anchors[0], taken):
        return () if takes_strides else _stride_reasons(anchors[0])
    what = ", ".join(op.label for op in anchors) or "no convolution"
    return (pattern_reason(what, pattern),)


def _stride_reasons(op: Op) -> tuple[Reason, ...]:
    """Reasons why a gradient by the image is not one convolution of dY."""
    if not isinstance(op, ConvDgrad) or all(stride == 1 for stride in op.stride):
        return ()
    what = f"{op.label} of strides {list(op.stride)}"
    return (Reason(Status.NOT_SUPPORTED_SHAPE, "stride", what, "strides of 1"),)


def neighbour_reasons(fusion: Fusion, pattern: str) -> list[Reason]:
    """Reasons against what is beside the convolution and neither pointwise nor a view."""
    strange = [op for op in fusion.ops if op.role not in ("anchor", "pointwise", "view")]
    what = ", ".join(op.label for op in strange)
    return [pattern_reason(what, pattern, strange[0])] if strange else []


def hopper_reasons(
    fusion: Fusion,
    target: Target,
    pattern: str,
    types: Callable[[Convolved], Sequence[Reason]],
    operands: Callable[[ConvShape], Sequence[Reason]],
    before: Callable[[Fusion], Sequence[Reason]] | None = None,
) -> list[Reason]:
    """Reasons of engines whose operands come by TMA: the architecture and the operands.

    types: what is wrong with their types.  operands: with a filter of fixed sizes and what it
    meets, asked where there is nothing else.  before: what is wrong with operations before X; None:
    there may be none.
    """
    op, reasons = conv_of(fusion), target_reasons("sm_90a", target)
    for name, operand in (("X", op.moved), ("W", op.w)):
        if before and name == "X" and operand in fusion.producers:
            reasons += before(fusion)
        elif operand not in fusion.inputs or operand.is_by_value:
            what = f"{name} of {op.label} is computed before it"
            reasons.append(pattern_reason(what, pattern))
    return [*reasons, *(types(op) or filter_reasons(op) or operands(shape_of(op)))]


def type_reasons(op: Convolved, supported: str) -> list[Reason]:
    """The operands' types are none of those."""
    what = f"X {op.moved.type}, W {op.w.type}"
    return [Reason(Status.NOT_SUPPORTED_DATA_TYPE, "operand types", what, supported)]


def filter_reasons(op: Convolved) -> list[Reason]:
    """A filter of sizes that are known at run time."""
    if all(extent.constant is not None for extent in op.w.shape):
        return []
    what = f"W of dims {text(op.w.shape)}"
    return [Reason(Status.NOT_SUPPORTED_SHAPE, "filter", what, "fixed sizes")]


def count_reasons(pixels: Expr, of: str) -> list[Reason]:
    """More pixels than are counted; of: what has them."""
    if (high := pixels.bounds()[1]) < MOST_PIXELS:
        return []
    what = f"{of} of up to {high} pixels"
    return [Reason(Status.NOT_SUPPORTED_SHAPE, "size", what, fewer_than(MOST_PIXELS, pixels))]


def extent_reasons(shape: ConvShape, most_pixels: int) -> list[Reason]:
    """More pixels along an axis of X, with padding, or of Y, than are counted; most_pixels: of Y,
    too many."""

    def reason(what: str, supported: str) -> list[Reason]:
        return [Reason(Status.NOT_SUPPORTED_SHAPE, "size", what, supported)]

    for window, extent in zip(shape.windows, shape.x.shape[2:], strict=True):
        places = extent.bounds()[1] + window.pre + window.post + window.reach
        if places >= _MOST_PLACES:
            return reason(f"{places} pixels along an axis", f"below {_MOST_PLACES}")
    if (most := shape.pixels.bounds()[1]) >= most_pixels:
        return reason(f"Y of up to {most} pixels", fewer_than(most_pixels, shape.pixels))
    return []
