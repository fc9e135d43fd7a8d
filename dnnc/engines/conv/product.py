"""A convolution of one tap as products of matrices, one for each image.

    Y [N, K, pixels] = W [1, K, C] @ X [N, C, pixels]

Nothing is copied: where the spatial axes of a tensor nest, its images are rows of pixels, and the
filter is one matrix that all images share, transposed for a gradient by the image.  Everything
around the convolution has an element for each pixel, or one for all of an image's, so that it is
work around such a product.  `prepare-fusions` writes the fusion of products instead of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from ...dialect.fusion import Fusion, remembered, rewritten_fusion
from ...dialect.op import Op
from ...dialect.ops import ConvDgrad, ConvFprop, Matmul, Pointwise, Reduction
from ...dialect.ops.conv import Convolved
from ...dialect.patterns import FusionPattern
from ...dialect.tensor import Tensor, packed_strides, text
from ...errors import Status
from ...expr import Expr, product
from ..engine import Reason
from ..surface import pattern_reason
from .pattern import conv_of
from .surface import count_reasons

# ---- tensors


def flat_dims(dims: Sequence[Expr]) -> tuple[Expr, ...]:
    """[N, C, spatial] as [N, C, pixels]."""
    return (*dims[:2], product(dims[2:]))


def flat_image(tensor: Tensor) -> Tensor:
    """A tensor [N, C, spatial] as [N, C, pixels].

    Only of one that is not stored may the spatial axes not nest: where it would lie does not count.
    """
    dims, pixel = flat_dims(tensor.shape), pixel_stride(tensor)
    strides = packed_strides(dims) if pixel is None else (*tensor.layout[:2], pixel)
    return replace(tensor, dims=dims, strides=strides)


def flat_filter(tensor: Tensor, *, is_transposed: bool) -> Tensor:
    """W [K, C, 1, ...] as [1, K, C], or of a gradient as [1, C, K]."""
    dims, strides = tensor.shape[:2], tensor.layout[:2]
    if is_transposed:
        dims, strides = dims[::-1], strides[::-1]
    return replace(tensor, dims=(Expr.of(1), *dims), strides=(Expr.of(1), *strides))


def pixel_stride(tensor: Tensor) -> Expr | None:
    """Elements from a pixel to the next, counted through rows; None: that is no one number."""
    axes = [axis for axis in range(2, tensor.rank) if tensor.shape[axis].constant != 1]
    for outer, inner in itertools.pairwise(axes):
        if tensor.layout[outer] != tensor.layout[inner] * tensor.shape[inner]:
            return None
    return tensor.layout[axes[-1]] if axes else Expr.of(1)


# ---- fusions


def _as_products(fusion: Fusion) -> Fusion | None:
    """A convolution of one tap, with all around it, is a matmul of each image's pixels."""
    anchors = fusion.with_role("anchor")
    if len(anchors) != 1 or not isinstance(anchors[0], ConvFprop | ConvDgrad):
        return None
    if product_refusals(fusion):
        return None
    op = conv_of(fusion)
    filter_ = flat_filter(op.w, is_transposed=isinstance(op, ConvDgrad))
    flat = {t: filter_ if t is op.w else flat_image(t) for t in fusion.tensors}
    matmul = Matmul(a=flat[op.w], b=flat[op.moved], c=flat[op.made], compute_type=op.compute_type)
    matmul.name = op.name
    ops = tuple(matmul if other is op else other.with_tensors(flat) for other in fusion.ops)
    return fusion.with_ops(ops, [flat[t] for t in fusion.outputs])


PRODUCTS = (FusionPattern(_as_products, "images-as-products"),)


def product_fusion(fusion: Fusion) -> Fusion:
    """The fusion of the products that one without `product_refusals` stands for."""
    return rewritten_fusion(fusion, PRODUCTS)


@remembered
def product_refusals(fusion: Fusion) -> tuple[Reason, ...]:
    """Why a fusion of one convolution is none of products of its images."""
    op = conv_of(fusion)
    declined = _window_reasons(op) or _filter_reasons(fusion, op) or _around_reasons(fusion, op)
    return tuple(declined or _pixel_reasons(fusion, op))


def _window_reasons(op: Convolved) -> list[Reason]:
    """Taps, strides and paddings; groups would be products of their own."""
    spatial = op.w.shape[2:]
    found = {
        f"a filter of {text(spatial)}": all(n.constant == 1 for n in spatial),
        f"strides {list(op.stride)}": all(n == 1 for n in op.stride),
        f"paddings {list(op.pre_padding)} and {list(op.post_padding)}": not any(
            (*op.pre_padding, *op.post_padding)
        ),
        f"{op.groups} groups": op.groups == 1,
    }
    wrong = [what for what, fits in found.items() if not fits]
    if not wrong:
        return []
    what = f"{op.label} of {wrong[0]}"
    supported = "one tap, strides of 1, no padding, one group"
    return [Reason(Status.NOT_SUPPORTED_SHAPE, "filter", what, supported)]


def _filter_reasons(fusion: Fusion, op: Convolved) -> list[Reason]:
    """W is another matrix than all other tensors are."""
    others = (t for other in fusion.ops if other is not op for t in other.operands)
    if op.w in fusion.producers or op.w is op.moved or op.w in others or op.w.is_by_value:
        what = f"W of {op.label} is computed, or read by another operation"
        return [pattern_reason(what, "W in memory, which the convolution alone reads")]
    return []


def _around_reasons(fusion: Fusion, op: Convolved) -> list[Reason]:
    """Operations that tell pixels of an image apart by more than their number."""
    supported = "pointwise operations, and reductions of whole images"
    for other in fusion.ops:
        if other is not op and not isinstance(other, Pointwise | Reduction):
            return [pattern_reason(other.label, supported)]
        if _counts_along_pixels(other):
            what = f"{other.label} along a spatial axis"
            return [pattern_reason(what, supported)]
    spatial = op.moved.shape[2:]
    for tensor in fusion.tensors:
        own = tensor.shape[2:]
        if tensor is not op.w and own != spatial and any(n.constant != 1 for n in own):
            what = f"{tensor.label} of dims {text(tensor.shape)}"
            each = f"{text(spatial)} pixels, or one for all, in every tensor beside W"
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "pixels", what, each)]
    return []


def _counts_along_pixels(op: Op) -> bool:
    return isinstance(op, Pointwise) and op.mode == "gen_index" and (op.axis or 0) > 1


def _pixel_reasons(fusion: Fusion, op: Convolved) -> list[Reason]:
    """Strides of what lies in memory."""
    stored = [t for t in (*fusion.inputs, *fusion.outputs) if t is not op.w and not t.is_by_value]
    for tensor in stored:
        if pixel_stride(tensor) is None:
            what = f"{tensor.label} of dims {text(tensor.shape)}, strides {text(tensor.layout)}"
            supported = "spatial axes that are one row of pixels, as without gaps between rows"
            return [Reason(Status.NOT_SUPPORTED_LAYOUT, "pixels", what, supported)]
    images = [t for t in stored if t.shape in (op.moved.shape, op.made.shape)]
    if not any(_is_along_pixels(t) for t in images):
        # Where all pixels lie as channels do, those of all images are one matrix: conv_sm90's.
        what = f"X and Y of {op.label} with channels last"
        supported = "neighbouring pixels side by side, of X or of a tensor of Y's dims"
        return [Reason(Status.NOT_SUPPORTED_LAYOUT, "pixels", what, supported)]
    return _type_reasons(fusion, op) or count_reasons(product(op.moved.shape[2:]), "an image")


def _type_reasons(fusion: Fusion, op: Convolved) -> list[Reason]:
    """`wgmma` reads operands whose k is not contiguous of 16 bits alone: of others, threads would
    transpose each tile again for every tile of channels, where conv_sm90 copies X once."""
    read = fusion.read_inputs(op.moved) if op.moved in fusion.producers else [op.moved]
    along_pixels = [t for t in read if t.shape == op.moved.shape and _is_along_pixels(t)]
    if op.moved.type.bits == 16 or not along_pixels:
        return []
    what = (
        f"X {op.moved.type} of {along_pixels[0].label}, whose neighbouring pixels are side by side"
    )
    supported = "X of f16 or bf16, or with channels last"
    return [Reason(Status.NOT_SUPPORTED_DATA_TYPE, "operand types", what, supported)]


def _is_along_pixels(tensor: Tensor) -> bool:
    pixels, stride = product(tensor.shape[2:]), pixel_stride(tensor)
    return pixels.constant != 1 and stride is not None and stride.constant == 1
