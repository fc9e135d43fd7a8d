"""Tensor maps as C: the call of the driver's encoder that a recipe stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import DnncError, Status
from ..plan.plan import TENSOR_MAP_TYPES, Plan, TensorMap
from .expressions import Printer

# Bytes of a tensor map.
SIZE = 128
# Where the map of a tensor without elements begins, which nothing is moved by.
_NOWHERE = 256


def encoding(
    recipe: TensorMap, plan: Plan, printer: Printer, base: str, into: str
) -> Iterator[str]:
    """Statements that make a map; base, into: C for the address of the tensor and of the map.

    They go into a block of their own, where `error` is the function's.
    """

    def values(texts: Sequence[str]) -> str:
        found = (f"(cuuint64_t)({printer.expression(plan.expression(text))})" for text in texts)
        return ", ".join(found) or "0"

    if recipe.dtype not in TENSOR_MAP_TYPES:
        raise DnncError(
            Status.NOT_SUPPORTED_DATA_TYPE,
            f"a tensor map of {recipe.dtype}",
            ", ".join(TENSOR_MAP_TYPES),
        )
    offset = printer.expression(plan.expression(recipe.offset))
    start = "base" if offset == "0" else f"base + (CUdeviceptr)({offset})"
    yield f"const CUdeviceptr base = {base};"
    yield f"const cuuint64_t dims[] = {{{values(recipe.dims)}}};"
    yield f"const cuuint64_t strides[] = {{{values(recipe.strides)}}};"
    yield f"const cuuint32_t steps[] = {{{_numbers(recipe.element_strides)}}};"
    if recipe.mode == "tiled":
        yield f"const cuuint32_t box[] = {{{_numbers(recipe.box)}}};"
        shape, function = ["box"], "cuTensorMapEncodeTiled"
    elif recipe.mode == "im2col":
        yield f"const int lower[] = {{{_numbers(recipe.lower)}}};"
        yield f"const int upper[] = {{{_numbers(recipe.upper)}}};"
        pixels = [f"{recipe.channels_per_pixel}u", f"{recipe.pixels_per_column}u"]
        shape, function = ["lower", "upper", *pixels], "cuTensorMapEncodeIm2col"
    else:
        raise DnncError(
            Status.SERIALIZATION_VERSION_MISMATCH, f"map mode {recipe.mode!r}", "tiled, im2col"
        )
    # Of a tensor without elements the address may be 0, which the driver takes none of.
    where = f"(void *)(uintptr_t)(base ? {start} : {_NOWHERE})"
    kind = f"CU_TENSOR_MAP_DATA_TYPE_{TENSOR_MAP_TYPES[recipe.dtype]}"
    yield f"result = {function}("
    yield f"    {into}, {kind}, {len(recipe.dims)},"
    yield f"    {where},"
    yield f"    dims, strides, {', '.join([*shape, 'steps'])},"
    options = _options(recipe)
    yield f"    {', '.join(options[:2])},"
    yield f"    {', '.join(options[2:])});"


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(map(str, values)) or "0"


def _options(recipe: TensorMap) -> list[str]:
    names = (
        ("INTERLEAVE", recipe.interleave),
        ("SWIZZLE", recipe.swizzle),
        ("L2_PROMOTION", recipe.l2_promotion),
        ("FLOAT_OOB_FILL", recipe.oob_fill),
    )
    return [f"CU_TENSOR_MAP_{kind}_{value}" for kind, value in names]
