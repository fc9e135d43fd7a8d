# pyright: basic
"""Engine conv_product_sm90: 1x1 convolutions of images with channels first, as products, fused.

    Y[n] [K, pixels] = g2(W [K, C] @ g1(X[n]) [C, pixels], inputs)      for each image n

Channels-last pixels of all images are one matrix, which conv_sm90 multiplies; with channels first
each image is one, with pixels contiguous, and conv_sm90 would copy it.  `wgmma` reads 16-bit
operands of either order, so that here nothing is copied: the fusion is looked at as the batch of
products that it is (`conv.product`), and engine matmul_sm90 does the rest.  No tile has pixels of
two images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ...codegen.output import Output
from ...codegen.region import Region
from ...dialect.fusion import Fusion
from ...dialect.patterns import AnyPattern
from ...target import Target
from ..engine import Engine, Knob, Knobs, Prediction, Reason
from ..product.matmul_sm90 import MATMUL_SM90
from ..product.tile_sm90 import Tiling
from .product import PRODUCTS, product_fusion, product_refusals
from .surface import anchor_reasons

_PATTERN = (
    "one conv_fprop or conv_dgrad of one tap, pointwise operations before X, and with reductions "
    "after it"
)

# What matmul_sm90's knobs are of a convolution.
_DOCS = {
    "TILE_M": "output channels of the tile",
    "TILE_N": "output pixels of the tile, all of one image",
    "TILE_CGA_M": "blocks of a cluster of other channels, which share X",
    "TILE_CGA_N": "blocks of a cluster of other pixels, which share W",
    "SPLIT_K_SLC": "blocks of a cluster that share a tile's input channels",
    "SWIZZLE": "output channels whose tiles follow each other, so that they find X in L2",
    "SWAP_AB": "1: pixels along the instruction's rows, channels along its columns",
}


@dataclass(frozen=True)
class ConvProductSm90Engine(Engine):
    """See the file's docstring."""

    tiling = Tiling
    name: str = "conv_product_sm90"
    index: int = 17
    families: tuple[str, ...] = ("convolution",)
    only_target: str = "sm_90a"
    patterns: tuple[AnyPattern, ...] = PRODUCTS
    updates_outputs: bool = True
    support: tuple[str, ...] = (
        "sm_90a: one conv_fprop of one tap, stride 1, no padding and one group, of one to three "
        "spatial dims, as matmul_sm90 takes W [K, C] @ X [C, pixels] of each image; X of f16 or "
        "bf16 with channels first, or of any type with channels last and a tensor of Y's dims with "
        "channels first; nothing is copied; in each tensor rows of pixels follow each other "
        "without gaps; N and the spatial dims may be symbols",
        "pointwise operations on X and after it, on elements of each pixel or of all pixels of an "
        "image; several outputs, BOOLEAN ones, and reductions, each as matmul_sm90 has them of "
        "[N, K, pixels]",
        "conv_dgrad, whose X is dY and Y is dX",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := anchor_reasons(fusion, _PATTERN, reduces=True, takes_gradients=True):
            return declined
        return product_refusals(fusion) or MATMUL_SM90.supports(product_fusion(fusion), target)

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = tuple(
        replace(knob, doc=_DOCS.get(knob.name, knob.doc)) for knob in MATMUL_SM90.all_knobs
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        return MATMUL_SM90.legal(knobs, product_fusion(fusion), target)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        return MATMUL_SM90.candidates(product_fusion(fusion), target)

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        return MATMUL_SM90.predict(product_fusion(fusion), knobs, target)

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        return MATMUL_SM90.notes(product_fusion(fusion), knobs)

    def register_pressure(self, knobs: Knobs) -> int:
        return MATMUL_SM90.register_pressure(knobs)

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> Tiling:
        return MATMUL_SM90.tile_of(product_fusion(fusion), knobs, target)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: Tiling, output: Output) -> None:
        MATMUL_SM90.emit(region, knobs, tile, output)


CONV_PRODUCT_SM90 = ConvProductSm90Engine()
