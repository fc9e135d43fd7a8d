"""Tensor maps: the 128 bytes that the interpreter's own encoder makes, and what they say.

The device's encoding is not public; ours packs the numbers themselves behind a magic word.  The
checks are those of `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col` (CUDA driver API,
"Tensor Map Object Management").
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from .. import dtypes
from ..plan.plan import TensorMap
from .failure import failure

BYTES = 128
# f32 in memory, rounded to tf32 by a load.
TF32 = "tf32"
ALIGNMENT = 64
_MAGIC = b"dnnc map"
_LAYOUT = struct.Struct("<8sQBB8s5I4Q5H5B3h3h")
SWIZZLE_BYTES = {"NONE": 16, "32B": 32, "64B": 64, "128B": 128}
_SWIZZLES = tuple(SWIZZLE_BYTES)
_CORNERS = {3: (-(1 << 15), (1 << 15) - 1), 4: (-128, 127), 5: (-16, 15)}


@dataclass(frozen=True)
class EncodedMap:
    """A tensor map.  All lists are innermost first.  dtype: our name of it, or `tf32`.

    strides: bytes, without the innermost.  box: elements; of im2col, the channels and the
    pixels.  lower, upper: corners of im2col's bounding box, from the innermost pixel dimension.
    """

    address: int
    is_im2col: bool
    dtype: str
    swizzle_bytes: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def rounds_to_tf32(self) -> bool:
        return self.dtype == TF32

    @property
    def element_bytes(self) -> int:
        return _size(self.dtype)


def _size(dtype: str) -> int:
    return 4 if dtype == TF32 else dtypes.of(dtype).bits // 8


def encode(recipe: TensorMap, address: int, dims: Sequence[int], strides: Sequence[int]) -> bytes:
    """The bytes of a recipe's map.  Errors: `InterpreterError` for what the driver refuses."""
    rank = len(dims)
    size = _size(recipe.dtype)
    box = recipe.box
    if recipe.mode == "im2col":
        box = (recipe.channels_per_pixel, recipe.pixels_per_column)
    _check(recipe, address, dims, strides, box, size)
    pad = (0,) * 5
    return _LAYOUT.pack(
        _MAGIC,
        address,
        rank | (recipe.mode == "im2col") << 7,
        _SWIZZLES.index(recipe.swizzle),
        recipe.dtype.encode(),
        *(*(extent - 1 for extent in dims), *pad)[:5],
        *(*strides, *pad)[:4],
        *(*box, *pad)[:5],
        *(*recipe.element_strides, *pad)[:5],
        *(*recipe.lower, *pad)[:3],
        *(*recipe.upper, *pad)[:3],
    ).ljust(BYTES, b"\0")


def decode(data: bytes) -> EncodedMap | None:
    """The map that bytes encode; None when no encoder of ours made them."""
    if data[:8] != _MAGIC:
        return None
    fields = _LAYOUT.unpack(data[: _LAYOUT.size])
    address, rank, swizzle, name = fields[1:5]
    is_im2col, rank = bool(rank >> 7), rank & 7
    dims, strides, box = fields[5:10], fields[10:14], fields[14:19]
    return EncodedMap(
        address,
        is_im2col,
        name.rstrip(b"\0").decode(),
        SWIZZLE_BYTES[_SWIZZLES[swizzle]],
        tuple(extent + 1 for extent in dims[:rank]),
        strides[: rank - 1],
        box[: 2 if is_im2col else rank],
        fields[19 : 19 + rank],
        fields[24 : 24 + rank - 2],
        fields[27 : 27 + rank - 2],
    )


def _check(
    recipe: TensorMap,
    address: int,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    size: int,
) -> None:
    rank = len(dims)
    _require(recipe, recipe.mode in ("tiled", "im2col"), f"mode {recipe.mode}", "tiled or im2col")
    least = 3 if recipe.mode == "im2col" else 1
    _require(recipe, least <= rank <= 5, f"rank {rank}", f"{least} to 5")
    for name, extent in zip("01234", dims, strict=False):
        _require(recipe, 1 <= extent <= 1 << 32, f"dim {name} = {extent}", "1 to 2^32")
    _require(recipe, len(strides) == rank - 1, f"{len(strides)} strides", "rank - 1")
    for stride in strides:
        fits = stride % 16 == 0 and 0 <= stride < 1 << 40
        _require(recipe, fits, f"a stride of {stride} bytes", "multiples of 16 below 2^40")
    _require(recipe, address % 16 == 0, f"address 0x{address:x}", "a multiple of 16")
    _require(recipe, recipe.interleave == "NONE", "an interleaved layout", "NONE (modelled)")
    _require(recipe, recipe.oob_fill == "NONE", f"oob_fill {recipe.oob_fill}", "NONE (modelled)")
    known = recipe.swizzle in SWIZZLE_BYTES
    _require(recipe, known, f"swizzle {recipe.swizzle}", ", ".join(SWIZZLE_BYTES))
    count = len(recipe.element_strides)
    good = count == rank and all(1 <= step <= 8 for step in recipe.element_strides)
    _require(recipe, good, f"element strides {recipe.element_strides}", "1 to 8 for each dim")
    if recipe.mode == "im2col":
        _check_im2col(recipe, dims)
    else:
        good = len(box) == rank and all(1 <= extent <= 256 for extent in box)
        _require(recipe, good, f"box {tuple(box)}", "1 to 256 for each dim")
        plain = all(step == 1 for step in recipe.element_strides)
        _require(recipe, plain, "element strides of a tiled map", "1 (modelled)")
    inner, span = box[0] * size, SWIZZLE_BYTES[recipe.swizzle]
    _require(recipe, inner % 16 == 0, f"an inner box of {inner} bytes", "multiples of 16")
    narrow = recipe.swizzle == "NONE" or inner <= span
    _require(recipe, narrow, f"an inner box of {inner} bytes", f"at most the swizzle's {span}")


def _check_im2col(recipe: TensorMap, dims: Sequence[int]) -> None:
    rank = len(dims)
    channels, pixels = recipe.channels_per_pixel, recipe.pixels_per_column
    _require(recipe, 1 <= channels <= 256, f"{channels} channels per pixel", "1 to 256")
    _require(recipe, 1 <= pixels <= 1024, f"{pixels} pixels per column", "1 to 1024")
    least, most = _CORNERS[rank]
    for corner in (recipe.lower, recipe.upper):
        good = len(corner) == rank - 2 and all(least <= at <= most for at in corner)
        _require(recipe, good, f"corner {corner}", f"{rank - 2} numbers from {least} to {most}")
    for extent, lower, upper in zip(dims[1:-1], recipe.lower, recipe.upper, strict=True):
        box = f"a bounding box from {lower} to {extent - 1 + upper}"
        _require(recipe, lower <= extent - 1 + upper, box, "one that holds a pixel")


def _require(recipe: TensorMap, holds: bool, found: str, wanted: str) -> None:
    if not holds:
        raise failure(f"tensor map: {found}; {wanted}", f"map of tensor {recipe.uid}")
