# pyright: basic
"""A plan on this machine's GPU, with arrays of the host: for `dnnc run` and `dnnc bench`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes
from ..interpreter.plans import element_places, scattered
from ..plan.plan import Plan, TensorRecord
from ..runtime import ExecutionPlan, driver

Array = Any

# Outputs start with it in every byte, NaN in any float, so that a gap of a kernel shows; but those
# that are read start with what they are given.
_POISON = 0xFF


@dataclass
class Placed:
    """A tensor in device memory: where it starts, and where each element lies behind that."""

    record: TensorRecord
    address: int
    places: Array
    bytes: int

    def download(self) -> Array:
        """Its elements, dims as they are logically."""
        dtype = dtypes.of(self.record.dtype)
        data = np.empty(self.bytes, np.uint8)
        driver.download(data, self.address)
        if dtype.kind == "b":
            return (data[self.places >> 3] >> (self.places & 7) & 1).astype(bool)
        return data.view(dtype.numpy)[self.places]


@dataclass
class Loaded:
    """A plan with its buffers.

    call: launches it.  tensors: in device memory.  element_bytes: bytes of all their elements,
    each counted once.
    """

    call: Callable[[], None]
    tensors: list[Placed]

    @property
    def element_bytes(self) -> int:
        return sum(
            dtypes.of(t.record.dtype).storage_bytes(int(t.places.size)) for t in self.tensors
        )

    def outputs(self) -> dict[int, Array]:
        """uid -> array, once every launch has ended."""
        driver.synchronize()
        return {t.record.uid: t.download() for t in self.tensors if t.record.role == "output"}


@contextlib.contextmanager
def loaded(plan: Plan, inputs: Mapping[int, Array], sizes: Mapping[str, int]) -> Generator[Loaded]:
    """A plan on the device, its inputs uploaded and everything bound; freed afterwards."""
    driver.make_current(driver.device())
    taken: list[int] = []

    def allocate(bytes_: int) -> int:
        taken.append(driver.allocate(bytes_))
        return taken[-1]

    try:
        tensors: list[Placed] = []
        pack: dict[int, Any] = {}
        for record in plan.tensors:
            if record.is_by_value:
                value = inputs.get(record.uid)
                pack[record.uid] = None if value is None else np.asarray(value).reshape(()).item()
                continue
            key = record.uid if record.prior is None else record.prior
            placed = _placed(plan, record, inputs.get(key), sizes, allocate)
            tensors.append(placed)
            pack[record.uid] = placed.address
        executable = ExecutionPlan(plan)
        needed = executable.workspace_size(sizes)
        workspace = allocate(needed) if needed else None
        yield Loaded(executable.bind(pack, workspace, sizes=sizes), tensors)
    finally:
        for address in taken:
            driver.free(address)


def _placed(
    plan: Plan,
    record: TensorRecord,
    value: Array | None,
    sizes: Mapping[str, int],
    allocate: Callable[[int], int],
) -> Placed:
    """A tensor with its array, or with poison, in memory that has its strides."""
    dims, strides = (
        [plan.expression(text).evaluate(sizes) for text in texts]
        for texts in (record.dims, record.strides)
    )
    dtype = dtypes.of(record.dtype)
    places = element_places(dims, strides)
    bytes_ = dtype.storage_bytes(int(places.max(initial=-1)) + 1)
    address = allocate(bytes_)
    if value is None or not places.size:
        data = np.full(bytes_, _POISON, np.uint8)
    else:
        data = scattered(np.asarray(value, dtype.numpy), places, dtype, bytes_)
    if bytes_:
        driver.upload(address, np.ascontiguousarray(data))
    return Placed(record, address, places, bytes_)
