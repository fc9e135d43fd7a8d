# pyright: basic
"""Runs a plan in the interpreter: its own steps, arguments and PTX, on arrays of the host."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from .. import dtypes
from .. import target as targets
from ..dtypes import DType
from ..errors import DnncError, Status
from ..plan import bounds
from ..plan.arguments import Environment, pack
from ..plan.plan import Arg, Launch, Memset, Plan, Program, TensorRecord, Variant
from . import tensor_map
from .global_races import Watch
from .launch import launch
from .memory import Memory
from .parser import parse

Array = Any

# A module keeps its decoded kernels: other inputs and sizes of a plan need no decoding again.
_parsed = functools.lru_cache(maxsize=8)(parse)

WORKSPACE_ALIGNMENT = 256

# Bytes of tensors and workspace, which a state is kept for each of; elements of a tensor, whose
# places are.
MOST_BYTES = 1 << 34
MOST_ELEMENTS = 1 << 30


def run_plan(
    plan: Plan,
    inputs: Mapping[Any, Array],
    *,
    sizes: Mapping[str, int] | None = None,
    target: str | None = None,
    seed: int = 0,
    module: Any = None,
    partial: Collection[int] = (),
    watch_global: bool = False,
) -> dict[int, Array]:
    """The outputs of a plan, uid -> array of the logical dims in the tensor's type; also what its
    tensors of peers hold afterwards.

    inputs: by uid or unique name, arrays of the logical dims (numbers for by-value tensors),
    converted to the tensors' types; what an output holds before by its own uid or the prior's.
    sizes: values of symbols that no input shows.
    target: which of the plan's programs (default: its first).  seed: of the schedule.
    module: parsed PTX to run in place of the plan's own, for tests that change it.
    partial: uids of outputs of which some elements may be left as they were; those are zeros.
    Of others, an element that no kernel wrote is an error, as is anything that the interpreter
    refuses.  watch_global: whether global memory is watched for races, too.
    """
    program = _program(plan, target)
    given = {_record(plan, key).uid: value for key, value in inputs.items()}
    found = _sizes(plan, given, sizes or {})
    found |= _device_variables(program)
    machine = _Machine(plan, program, given, found, module)
    variant = next((v for v in program.variants if plan.guard(v.guard).holds(found)), None)
    if variant is None:
        raise DnncError(Status.NOT_SUPPORTED_SHAPE, f"no variant takes sizes {found}")
    machine.take(variant)
    watch = Watch() if watch_global else None
    for step in variant.steps:
        if step.launch is not None:
            machine.launch(step.launch, seed, watch)
        elif step.memset is not None:
            machine.memset(step.memset)
            watch = Watch() if watch_global else None
    return machine.outputs(partial)


def _program(plan: Plan, target: str | None) -> Program:
    for program in plan.programs:
        if target in (None, program.target):
            return program
    known = ", ".join(p.target for p in plan.programs)
    raise DnncError(Status.NOT_SUPPORTED_ARCH_MISMATCH, f"no program for {target}", known)


def _record(plan: Plan, key: Any) -> TensorRecord:
    uid = key if isinstance(key, int | str) else key.uid
    record = plan.tensor(uid) or next((t for t in plan.tensors if t.prior == uid), None)
    if record is None:
        raise plan.no_tensor(key)
    return record


def _sizes(plan: Plan, given: Mapping[int, Array], sizes: Mapping[str, int]) -> dict[str, int]:
    found = dict(sizes)
    for record in plan.tensors:
        shape = np.shape(given.get(record.uid, ()))
        if len(shape) == len(record.dims):
            for text, extent in zip(record.dims, shape, strict=True):
                if text in plan.dims:
                    found.setdefault(text, extent)
    return found


def _device_variables(program: Program) -> dict[str, int]:
    row = targets.of(program.target)
    return {"sm_count": row.sm_count, "max_dynamic_smem_bytes": row.limits.smem_block_bytes}


class _Machine:
    """Device memory with the plan's tensors in it."""

    def __init__(
        self,
        plan: Plan,
        program: Program,
        given: Mapping[int, Array],
        sizes: Mapping[str, int],
        module: Any,
    ):
        self.plan, self.program, self.sizes = plan, program, dict(sizes)
        self.memory = Memory()
        self.modules = [module or _parsed(plan.text(m.ptx)) for m in program.modules]
        self.addresses: dict[int, int] = {}
        self.numbers: dict[int, float | int] = {}
        self.workspace = 0
        self.rooms = {t.uid: self._room(t) for t in plan.tensors if not t.is_by_value}
        self._verify_rooms()
        for record in plan.tensors:
            self._place(record, given.get(record.uid))

    def _evaluate(self, text: str) -> int:
        return self.plan.expression(text).evaluate(self.sizes)

    def _shape(self, record: TensorRecord) -> tuple[list[int], list[int]]:
        dims = [self._evaluate(text) for text in record.dims]
        return dims, [self._evaluate(text) for text in record.strides]

    def _place(self, record: TensorRecord, value: Array | None) -> None:
        dtype = dtypes.of(record.dtype)
        if record.is_by_value:
            self.numbers[record.uid] = _number(record, value)
            return
        dims, strides = self._shape(record)
        bytes_ = self.rooms[record.uid]
        address = self.memory.allocate(bytes_, record.name or f"uid {record.uid}")
        self.addresses[record.uid] = address
        if record.role != "input" and record.prior is None:
            return
        if value is None:
            raise DnncError(
                Status.BAD_PARAM, f"no value for tensor '{record.name}' (uid {record.uid})"
            )
        try:
            array = np.broadcast_to(_stored(value, dtype), dims)
        except ValueError:
            what = f"tensor '{record.name}' (uid {record.uid}): dims {list(np.shape(value))}"
            raise DnncError(Status.BAD_PARAM_SHAPE_MISMATCH, what, f"{dims}") from None
        if array.size:
            places = element_places(dims, strides)
            self.memory.upload(address, scattered(array, places, dtype, bytes_))

    def _room(self, record: TensorRecord) -> int:
        """Bytes of a tensor."""
        dims, strides = self._shape(record)
        if math.prod(dims) > MOST_ELEMENTS:
            raise _too_large(f"tensor {record.uid}: dims {dims}", f"{MOST_ELEMENTS} elements")
        return bounds.tensor_bytes(record, dtypes.of(record.dtype), dims, strides)

    def take(self, variant: Variant) -> None:
        """Gets ready for a variant's steps."""
        needed = bounds.workspace_bytes(self._evaluate(variant.workspace_bytes))
        self.rooms[bounds.WORKSPACE] = needed
        self._verify_rooms()
        self.allocate_workspace(variant.workspace_bytes)

    def _verify_rooms(self) -> None:
        needed = sum(self.rooms.values())
        if needed > MOST_BYTES:
            raise _too_large(f"tensors and workspace of {needed} bytes", f"{MOST_BYTES} bytes")

    def allocate_workspace(self, bytes_: str) -> None:
        self.workspace = self.memory.allocate(self._evaluate(bytes_), "workspace")

    def memset(self, record: Memset) -> None:
        count, offset = self._evaluate(record.bytes), self._evaluate(record.offset)
        if not count:
            return
        bounds.verify_memset(record.uid, offset, count, self.rooms)
        base = self.workspace if record.uid < 0 else self.addresses[record.uid]
        self.memory.upload(base + offset, np.full(count, record.value, np.uint8))

    def _verify(self, arg: Arg, launch: Launch) -> None:
        """An argument is to a place inside its tensor or the workspace."""
        if arg.kind in ("pointer", "workspace", "peer"):
            uid = bounds.WORKSPACE if arg.kind == "workspace" else arg.uid
            bounds.verify_offset(launch, uid, self._evaluate(arg.offset), self.rooms)
        recipe = arg.tensor_map
        if recipe is not None:
            dims, strides = ([*map(self._evaluate, t)] for t in (recipe.dims, recipe.strides))
            if not all(0 <= number < 1 << 64 for number in (*dims, *strides)):
                raise bounds.no_map(dims, strides)
            about = (recipe, self._evaluate(recipe.offset), dims, strides)
            bounds.verify_map(launch, *about, self.rooms)

    def launch(self, record: Launch, seed: int, watch: Watch | None) -> None:
        x, y, z = (self._evaluate(extent) for extent in record.grid)
        if 0 in (x, y, z):
            return
        smem = self._evaluate(record.dynamic_smem_bytes)
        bounds.verify_launch(record, (x, y, z), smem)
        for arg in record.args:
            self._verify(arg, record)
        kernel = next(k for k in self.program.kernels if k.name == record.kernel)
        env = Environment(
            self._evaluate, self.addresses, self.numbers, self.workspace, tensor_map.encode
        )
        launch(
            self.modules[kernel.module],
            kernel.entry,
            grid=(x, y, z),
            block=record.block,
            cluster=record.cluster,
            params=[pack(arg, env) for arg in record.args],
            memory=self.memory,
            dynamic_smem_bytes=smem,
            seed=seed,
            resident_ctas=x * y * z if record.cooperative else None,
            watch=watch,
            programmatic=record.programmatic,
        )

    def outputs(self, partial: Collection[int]) -> dict[int, Array]:
        """Every output, read back; an element that was not written is an error, but of some."""
        found: dict[int, Array] = {}
        for record in self.plan.tensors:
            if record.role != "output" and not record.is_peer:
                continue
            dtype = dtypes.of(record.dtype)
            places = element_places(*self._shape(record))
            address = self.addresses[record.uid]
            if record.uid in partial:
                self._fill(address, places, dtype)
            found[record.uid] = self._gathered(address, places, dtype)
        return found

    def _fill(self, address: int, places: Array, dtype: DType) -> None:
        """Writes zeros where nothing was written."""
        bytes_ = dtype.storage_bytes(int(places.max(initial=-1)) + 1)
        data = self.memory.download(address, bytes_, allow_poison=True)
        written = self.memory.is_written(address, bytes_)
        self.memory.upload(address, np.where(written, data, 0).astype(np.uint8))

    def _gathered(self, address: int, places: Array, dtype: DType) -> Array:
        if dtype.kind == "b":
            data = np.zeros(dtype.storage_bytes(int(places.max(initial=-1)) + 1), np.uint8)
            for _, first, count in _runs(np.unique(places >> 3)):
                data[first : first + count] = self.memory.download(address + first, count)
            return (data[places >> 3] >> (places & 7) & 1).astype(bool)
        elements = self.memory.elements(address, places.reshape(-1), dtype.bits // 8)
        return elements.view(dtype.numpy).reshape(places.shape)


def _too_large(what: str, supported: str) -> DnncError:
    return DnncError(Status.NOT_SUPPORTED_SHAPE, what, supported, "interpreter")


def _number(record: TensorRecord, value: Any) -> float | int:
    value = record.value if value is None else value
    if value is None:
        raise DnncError(Status.BAD_PARAM, f"no value for tensor '{record.name}'", "a number")
    if np.size(value) != 1:
        what = f"{np.size(value)} values for tensor '{record.name}'"
        raise DnncError(Status.BAD_PARAM_SHAPE_MISMATCH, what, "a number")
    return np.asarray(value).reshape(()).item()


def _stored(value: Array, dtype: DType) -> Array:
    array = np.asarray(value)
    return array.astype(bool) if dtype.kind == "b" else array.astype(dtype.numpy)


def element_places(dims: list[int], strides: list[int]) -> Array:
    """Where each element lies, in elements from the first: int64 [dims]."""
    places = np.zeros(dims, np.int64)
    for axis, (extent, stride) in enumerate(zip(dims, strides, strict=True)):
        shape = [1] * len(dims)
        shape[axis] = extent
        places = places + (np.arange(extent, dtype=np.int64) * stride).reshape(shape)
    return places


def scattered(array: Array, places: Array, dtype: DType, bytes_: int) -> Array:
    """The bytes of a buffer that holds the elements at their places; gaps are 0xA5."""
    if dtype.kind == "b":
        bits = np.zeros(bytes_ * 8, bool)
        bits[places.ravel()] = array.ravel()
        return np.packbits(bits, bitorder="little")
    size = dtype.bits // 8
    buffer = np.full(bytes_ // size * size, 0xA5, np.uint8)
    flat = np.ascontiguousarray(array).reshape(-1)
    buffer.view(f"u{size}")[places.reshape(-1)] = flat.view(f"u{size}")
    return buffer


def _runs(places: Array) -> list[tuple[int, int, int]]:
    """(position, first place, count) of stretches of neighbouring places."""
    if not places.size:
        return []
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    starts = np.concatenate([[0], breaks])
    ends = np.concatenate([breaks, [places.size]])
    return [(int(s), int(places[s]), int(e - s)) for s, e in zip(starts, ends, strict=True)]
