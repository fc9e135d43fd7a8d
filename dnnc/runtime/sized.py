# pyright: basic
"""What the sizes alone decide of a plan on a device: the variant, shapes, grids, arguments.

It is worked out once for each set of sizes; binding then fills in addresses and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import DnncError, Status
from ..plan.arguments import pack_integer
from ..plan.plan import Arg, Launch, Memset, Plan, Program, TensorRecord, Variant
from . import driver
from .buffers import label


@dataclass(frozen=True)
class SizedTensor:
    """A tensor of known dims.

    bytes: from its first to its last element.
    """

    record: TensorRecord
    label: str
    dtype: DType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class SizedLaunch:
    """A launch whose grid and arguments are known but for addresses and numbers.

    args: bytes, or an Arg whose expressions are numbers.
    """

    function: Any
    grid: tuple[int, int, int]
    smem: int
    launch: Launch
    args: tuple[bytes | Arg, ...]


@dataclass(frozen=True)
class SizedMemset:
    uid: int
    offset: int
    value: int
    bytes: int


@dataclass(frozen=True)
class Sized:
    """A plan on a device for one set of sizes."""

    tensors: tuple[SizedTensor, ...]
    workspace_bytes: int
    steps: tuple[SizedLaunch | SizedMemset, ...]


Function = Callable[[Launch, int], Any]


def sized(
    plan: Plan,
    program: Program,
    place: driver.Device,
    sizes: Mapping[str, int],
    function: Function,
) -> Sized:
    """function: gives a launch's loaded kernel, ready for so many bytes of shared memory."""
    known = {**sizes, **place.variables}

    values: dict[str, int] = {}

    def evaluate(text: str) -> int:
        found = values.get(text)
        if found is None:
            found = values[text] = plan.expression(text).evaluate(known)
        return found

    variant = _variant(plan, program, known)
    steps: list[SizedLaunch | SizedMemset] = []
    for step in variant.steps:
        if step.memset is not None and (made := _memset(step.memset, evaluate)):
            steps.append(made)
        elif step.launch is not None and (made := _launch(step.launch, place, evaluate, function)):
            steps.append(made)
    return Sized(
        tuple(_tensor(record, evaluate) for record in plan.tensors),
        evaluate(variant.workspace_bytes),
        tuple(steps),
    )


def _variant(plan: Plan, program: Program, known: Mapping[str, int]) -> Variant:
    for variant in program.variants:
        if plan.guard(variant.guard).holds(known):
            return variant
    raise DnncError(
        Status.NOT_SUPPORTED_SHAPE,
        f"no variant of the plan takes sizes {dict(known)}",
        " or ".join(variant.guard for variant in program.variants),
        f"plan '{plan.name}'",
    )


def _tensor(record: TensorRecord, evaluate: Callable[[str], int]) -> SizedTensor:
    dtype = dtypes.of(record.dtype)
    dims, strides = (tuple(map(evaluate, texts)) for texts in (record.dims, record.strides))
    last = sum((extent - 1) * stride for extent, stride in zip(dims, strides, strict=True))
    bytes_ = 0 if 0 in dims else dtype.storage_bytes(last + 1)
    return SizedTensor(record, label(record), dtype, dims, strides, bytes_)


def _memset(memset: Memset, evaluate: Callable[[str], int]) -> SizedMemset | None:
    count = evaluate(memset.bytes)
    return SizedMemset(memset.uid, evaluate(memset.offset), memset.value, count) if count else None


def _launch(
    launch: Launch, place: driver.Device, evaluate: Callable[[str], int], function: Function
) -> SizedLaunch | None:
    x, y, z = (evaluate(extent) for extent in launch.grid)
    if 0 in (x, y, z):
        return None  # nothing to do for these sizes
    if x >= 1 << 31 or max(y, z) >= 1 << 16:
        raise DnncError(
            Status.NOT_SUPPORTED_BAD_LAUNCH_PARAM, f"grid {(x, y, z)}", "below 2**31, 2**16, 2**16"
        )
    smem = evaluate(launch.dynamic_smem_bytes)
    if smem > place.max_dynamic_smem_bytes:
        raise DnncError(
            Status.NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT,
            f"kernel {launch.kernel} needs {smem} bytes of shared memory",
            f"{place.max_dynamic_smem_bytes} on {place.name}",
        )
    args = tuple(_argument(arg, evaluate) for arg in launch.args)
    return SizedLaunch(function(launch, smem), (x, y, z), smem, launch, args)


def _argument(arg: Arg, evaluate: Callable[[str], int]) -> bytes | Arg:
    if arg.kind == "scalar":
        return pack_integer(evaluate(arg.value), arg.type)
    if arg.kind == "bytes":
        return bytes.fromhex(arg.data)
    if arg.tensor_map is None:
        return replace(arg, offset=str(evaluate(arg.offset)))
    recipe = arg.tensor_map

    def numbers(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(str(evaluate(text)) for text in texts)

    dims, strides, (offset,) = map(numbers, (recipe.dims, recipe.strides, (recipe.offset,)))
    return replace(arg, tensor_map=replace(recipe, dims=dims, strides=strides, offset=offset))
