"""Checks that a plan's records agree, beyond their types: what they refer to is there, and what
they say is in bounds as far as no size decides it.  `bounds` has what sizes decide."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .. import dtypes
from ..errors import DnncError, Status
from .plan import (
    TENSOR_MAP_TYPES,
    Arg,
    Kernel,
    Launch,
    Plan,
    Program,
    Step,
    TensorMap,
    TensorRecord,
    Variant,
)

_ARG_KINDS = ("pointer", "workspace", "peer", "scalar", "by_value", "bytes", "tensor_map")

# Orders of elements -> how many dims a tensor has in memory; None: any number.
_RANKS = {"NONE": None, "F16x16": 8}

_MOST_DIMS = 32
_MOST_ALIGNMENT = 1 << 20
_MOST_RANK_OF_PEERS = 1 << 16

# CUDA programming guide, "Technical Specifications per Compute Capability".
_MOST_THREADS, _MOST_THREADS_OF_Z = 1024, 64
_MOST_BLOCKS_OF_A_CLUSTER = 16
_MOST_BYTES_OF_ARGUMENTS = 32764

# PTX ISA, "Identifiers".
_IDENTIFIER = re.compile(r"[A-Za-z][\w$]*|[_$%][\w$]+", re.ASCII)

# CUDA driver API, cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col.
_MOST_DIMS_OF_A_MAP = 5
_MAP_NAMES = {
    "interleave": ("NONE", "16B", "32B"),
    "swizzle": (
        *("NONE", "32B", "64B", "128B"),
        *("128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"),
    ),
    "l2_promotion": ("NONE", "L2_64B", "L2_128B", "L2_256B"),
    "oob_fill": ("NONE", "NAN_REQUEST_ZERO_FMA"),
}


def verify(plan: Plan, where: str) -> None:
    """Raises BAD_PARAM for the first thing in the plan that refers to nothing or can't be.

    where: the file, as messages name it.  Expressions name the plan's symbols and parse.
    """
    try:
        for what, supported in _problems(_Known(plan)):
            raise DnncError(Status.BAD_PARAM, what, supported)
    except DnncError as error:
        raise DnncError(error.status, error.what, error.supported, where) from None


_Problem = tuple[str, str]


@dataclass(frozen=True)
class _Known:
    """The names that the records of a plan may refer to."""

    plan: Plan

    @cached_property
    def tensors(self) -> dict[int, TensorRecord]:
        return {tensor.uid: tensor for tensor in self.plan.tensors}

    def parse(self, *texts: str) -> None:
        for text in texts:
            self.plan.expression(text)

    def buffer(self, uid: int, *, is_written: bool = False) -> Iterator[_Problem]:
        """A tensor that the caller binds a buffer to."""
        tensor = self.tensors.get(uid)
        if tensor is None:
            yield f"tensor {uid}", ", ".join(map(str, self.tensors))
        elif tensor.is_by_value:
            yield f"the address of tensor {uid}, which is passed by value", "a tensor with a buffer"
        elif is_written and tensor.role == "input" and not tensor.is_peer:
            yield f"a memset of tensor {uid}, an input", "an output, or the workspace"

    def place(self, uid: int, *, is_written: bool = False) -> Iterator[_Problem]:
        """A tensor with a buffer, or the workspace for -1."""
        return iter(()) if uid == -1 else self.buffer(uid, is_written=is_written)


def _problems(known: _Known) -> Iterator[_Problem]:
    plan = known.plan
    if len(known.tensors) != len(plan.tensors):
        yield "tensors of the same uid", "uids that differ"
    if len(plan.dims) != len(plan.symbols):
        yield "symbols of the same name", "names that differ"
    for pair in plan.may_alias:
        for uid in pair:
            yield from known.buffer(uid)
    for tensor in plan.tensors:
        yield from _tensor_problems(known, tensor)
    if not plan.programs:
        yield "no programs", "one or more"
    for program in plan.programs:
        yield from _program_problems(known, program)


def _tensor_problems(known: _Known, tensor: TensorRecord) -> Iterator[_Problem]:
    name = f"tensor {tensor.uid}"
    if tensor.uid < 0:
        yield name, "a uid from 0 up"
    if dtypes.of_storage(tensor.dtype).name != tensor.dtype:
        yield f"{name}: data type {tensor.dtype}", dtypes.of(tensor.dtype).name
    if tensor.role not in ("input", "output"):
        yield f"{name}: role {tensor.role!r}", "input, output"
    if tensor.role != "input" and (tensor.is_by_value or tensor.is_peer):
        yield f"{name}: an output that is a number, or that devices share", "an input"
    if tensor.is_by_value and tensor.is_peer:
        yield f"{name}: a number that devices share", "a buffer"
    if len(tensor.dims) != len(tensor.strides):
        yield f"{name}: {len(tensor.strides)} strides", f"{len(tensor.dims)}"
    if len(tensor.dims) > _MOST_DIMS:
        yield f"{name}: {len(tensor.dims)} dims", f"at most {_MOST_DIMS}"
    if tensor.prior is not None and (tensor.role != "output" or tensor.prior in known.tensors):
        yield f"{name}: prior {tensor.prior}", "of an output, a uid that none has"
    if tensor.reordering not in _RANKS:
        yield f"{name}: reordering {tensor.reordering!r}", ", ".join(_RANKS)
    elif _RANKS[tensor.reordering] not in (None, len(tensor.dims)):
        yield (
            f"{name}: {len(tensor.dims)} dims in {tensor.reordering}",
            f"{_RANKS[tensor.reordering]}",
        )
    if tensor.alignment < 1:
        yield f"{name}: alignment {tensor.alignment}", "1 or more"
    if tensor.alignment > _MOST_ALIGNMENT:
        yield f"{name}: alignment {tensor.alignment}", f"at most {_MOST_ALIGNMENT}"
    known.parse(*tensor.dims, *tensor.strides)


def _program_problems(known: _Known, program: Program) -> Iterator[_Problem]:
    blobs = len(known.plan.blobs)
    if not all(0 <= number < 1000 for number in program.capability):
        yield f"{program.target}: compute capability {list(program.capability)}", "0 to 999"
    for module in program.modules:
        for blob in (module.cubin, module.ptx):
            if not -1 <= blob < blobs:
                yield f"{program.target}: blob {blob}", f"0 to {blobs - 1}"
        if module.cubin < 0 or (module.ptx_runs_later and module.ptx < 0):
            yield f"{program.target}: a module without code", "a cubin, and PTX if that runs later"
    kernels = {kernel.name: kernel for kernel in program.kernels}
    for kernel in program.kernels:
        yield from _kernel_problems(kernel, len(program.modules))
    if len(kernels) < len(program.kernels):
        yield f"{program.target}: two kernels of one name", "a name for each kernel"
    for fusion in program.fusions:
        if not 0 <= fusion.module < len(program.modules):
            what = f"{program.target}: a fusion of module {fusion.module}"
            yield what, f"{len(program.modules)} modules"
        if not -1 <= fusion.config < len(program.modules):
            what = f"{program.target}: a fusion of config {fusion.config}"
            yield what, f"-1 to {len(program.modules) - 1}"
    if not program.variants:
        yield f"{program.target}: no variants", "one or more"
    for variant in program.variants:
        yield from _variant_problems(known, variant, kernels)


def _kernel_problems(kernel: Kernel, modules: int) -> Iterator[_Problem]:
    for name in (kernel.name, kernel.entry):
        if not _IDENTIFIER.fullmatch(name):
            yield f"a kernel called {name!a:.80}", "an identifier of PTX"
    if not 0 <= kernel.module < modules:
        yield f"kernel {kernel.name}: module {kernel.module}", f"{modules} modules"
    if not 0 < kernel.threads <= _MOST_THREADS:
        yield f"kernel {kernel.name}: {kernel.threads} threads", f"1 to {_MOST_THREADS}"
    spills = (kernel.spill_store_bytes, kernel.spill_load_bytes)
    about = (kernel.registers, *spills, kernel.local_bytes, kernel.static_smem_bytes)
    if not all(0 <= number < 1 << 31 for number in about):
        yield f"kernel {kernel.name}: registers and bytes {list(about)}", "0 to 2**31 - 1"


def _variant_problems(
    known: _Known, variant: Variant, kernels: Mapping[str, Kernel]
) -> Iterator[_Problem]:
    known.plan.guard(variant.guard)
    known.parse(variant.workspace_bytes)
    for step in variant.steps:
        yield from _step_problems(known, step, kernels)


def _step_problems(known: _Known, step: Step, kernels: Mapping[str, Kernel]) -> Iterator[_Problem]:
    if (step.launch is None) == (step.memset is None):
        yield "a step of no kind or of two", "a launch or a memset"
    if step.memset is not None:
        known.parse(step.memset.offset, step.memset.bytes)
        yield from known.place(step.memset.uid, is_written=True)
        if not 0 <= step.memset.value <= 255:
            yield f"a memset to {step.memset.value}", "a byte, 0 to 255"
    if step.launch is not None:
        yield from _launch_problems(known, step.launch, kernels)


def _launch_problems(
    known: _Known, launch: Launch, kernels: Mapping[str, Kernel]
) -> Iterator[_Problem]:
    kernel = kernels.get(launch.kernel)
    if kernel is None:
        yield f"a launch of kernel {launch.kernel}", ", ".join(kernels)
        return
    name, block, cluster = f"kernel {launch.kernel}", launch.block, launch.cluster
    if min(*block, *cluster) < 1:
        yield f"{name}: block {block}, cluster {cluster}", "above 0"
    if math.prod(block) > kernel.threads or block[2] > _MOST_THREADS_OF_Z:
        yield f"{name}: block {block}", f"{kernel.threads} threads, {_MOST_THREADS_OF_Z} along z"
    if math.prod(cluster) > _MOST_BLOCKS_OF_A_CLUSTER:
        yield f"{name}: cluster {cluster}", f"{_MOST_BLOCKS_OF_A_CLUSTER} blocks"
    known.parse(*launch.grid, launch.dynamic_smem_bytes)
    for arg in launch.args:
        yield from _arg_problems(known, arg)
    bytes_ = sum(map(_least_bytes, launch.args))
    if bytes_ > _MOST_BYTES_OF_ARGUMENTS:
        yield f"{name}: arguments of {bytes_} bytes", f"at most {_MOST_BYTES_OF_ARGUMENTS}"


def _least_bytes(arg: Arg) -> int:
    """Bytes that an argument takes at least."""
    if arg.kind == "tensor_map":
        return 128
    return len(arg.data) // 2 if arg.kind == "bytes" else 1


def _arg_problems(known: _Known, arg: Arg) -> Iterator[_Problem]:
    if arg.kind not in _ARG_KINDS:
        yield f"an argument of kind {arg.kind!r}", ", ".join(_ARG_KINDS)
    if arg.kind in ("pointer", "peer"):
        yield from known.buffer(arg.uid)
    if arg.kind == "peer" and not 0 <= arg.rank < _MOST_RANK_OF_PEERS:
        yield f"tensor {arg.uid} of rank {arg.rank}", f"0 to {_MOST_RANK_OF_PEERS - 1}"
    if arg.kind == "scalar":
        known.parse(arg.value)
        if arg.type not in ("i32", "i64"):
            yield f"a scalar argument of type {arg.type!r}", "i32, i64"
    if arg.kind == "by_value":
        tensor = known.tensors.get(arg.uid)
        if tensor is None or not tensor.is_by_value:
            yield f"tensor {arg.uid} passed by value", "a tensor with is_by_value"
        if dtypes.of_storage(arg.type).name != arg.type:
            yield f"an argument of type {arg.type}", dtypes.of(arg.type).name
    if arg.kind == "bytes" and not _is_hex(arg.data):
        yield f"bytes {arg.data!r:.40}", "hexadecimal digits, two a byte"
    known.parse(arg.offset)
    if arg.kind == "tensor_map":
        if arg.tensor_map is None:
            yield "a tensor map without its recipe", "a recipe"
        else:
            yield from _map_problems(known, arg.tensor_map)
    elif arg.tensor_map is not None:
        yield f"an argument of kind {arg.kind!r} with a tensor map", "kind tensor_map"


def _map_problems(known: _Known, recipe: TensorMap) -> Iterator[_Problem]:
    yield from known.place(recipe.uid)
    known.parse(recipe.offset, *recipe.dims, *recipe.strides)
    if recipe.mode not in ("tiled", "im2col"):
        yield f"a tensor map of mode {recipe.mode!r}", "tiled, im2col"
    if recipe.dtype not in TENSOR_MAP_TYPES:
        yield f"a tensor map of {recipe.dtype}", ", ".join(TENSOR_MAP_TYPES)
    for field, names in _MAP_NAMES.items():
        if getattr(recipe, field) not in names:
            yield f"a tensor map of {field} {getattr(recipe, field)!r}", ", ".join(names)
    rank = len(recipe.dims)
    if not 1 <= rank <= _MOST_DIMS_OF_A_MAP:
        yield f"a tensor map of {rank} dims", f"1 to {_MOST_DIMS_OF_A_MAP}"
    is_tiled = recipe.mode == "tiled"
    counts: tuple[tuple[str, Sequence[object], int], ...] = (
        ("strides", recipe.strides, rank - 1),
        ("element_strides", recipe.element_strides, rank),
        ("box", recipe.box, rank if is_tiled else 0),
        ("lower", recipe.lower, 0 if is_tiled else rank - 2),
        ("upper", recipe.upper, 0 if is_tiled else rank - 2),
    )
    for field, values, count in counts:
        if len(values) != count:
            yield f"a tensor map of {len(values)} {field}", f"{count} of them, for {rank} dims"
    pixels = (recipe.channels_per_pixel, recipe.pixels_per_column)
    if not all(0 <= number < 1 << 32 for number in (*recipe.box, *recipe.element_strides, *pixels)):
        yield "a tensor map of extents that no box has", "0 to 2**32 - 1"
    if not all(-(1 << 31) <= corner < 1 << 31 for corner in (*recipe.lower, *recipe.upper)):
        yield "a tensor map of corners that no box has", "32 bits"


def _is_hex(text: str) -> bool:
    try:
        bytes.fromhex(text)
    except ValueError:
        return False
    return True
