"""Checks of a plan's numbers once sizes are known, before anything is launched.

The runtime asks once for each set of sizes, the interpreter once a run.  A number out of bounds is
BAD_PARAM: the plan is not as the compiler writes plans.  Sizes that a device can't take are
NOT_SUPPORTED.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from .. import dtypes
from ..dtypes import DType
from ..errors import DnncError, Status
from .plan import TENSOR_MAP_TYPES, Launch, TensorMap, TensorRecord

# Bytes of a buffer are below this, so that its end is an address.
MAX_BYTES = 1 << 62

# The room of the workspace stands under this number, those of tensors under their uids.
WORKSPACE = -1

Rooms = Mapping[int, int]

_ELEMENT_BYTES = {
    name: 4 if name == "tf32" else dtypes.of(name).bits // 8 for name in TENSOR_MAP_TYPES
}


def tensor_bytes(
    record: TensorRecord, dtype: DType, dims: Sequence[int], strides: Sequence[int]
) -> int:
    """Bytes from a tensor's first to its last element, 0 where it has none."""
    if dims and min(*dims, *strides) < 0:
        raise _bad(
            f"tensor {record.uid}: dims {list(dims)}, strides {list(strides)}", "none below 0"
        )
    if 0 in dims:
        return 0
    last = sum([(n - 1) * stride for n, stride in zip(dims, strides, strict=True)])
    return _verified_bytes(dtype.storage_bytes(last + 1), f"tensor {record.uid}")


def workspace_bytes(value: int) -> int:
    """A variant's bytes of workspace, verified."""
    return _verified_bytes(value, "workspace")


def _verified_bytes(value: int, what: str) -> int:
    if not 0 <= value < MAX_BYTES:
        raise _bad(f"{what}: {value} bytes", f"0 to {MAX_BYTES - 1}")
    return value


def verify_memset(uid: int, offset: int, count: int, rooms: Rooms) -> None:
    """The bytes that are set lie inside the tensor or the workspace."""
    if offset < 0 or count < 0 or offset + count > rooms[uid]:
        raise _bad(
            f"a memset of {count} bytes at {offset} of {_name(uid)}", f"inside {rooms[uid]} bytes"
        )


def verify_offset(launch: Launch, uid: int, offset: int, rooms: Rooms) -> None:
    """A pointer is to the tensor or the workspace, or right behind it."""
    if not 0 <= offset <= rooms[uid]:
        raise _bad(
            f"kernel {launch.kernel}: a pointer to {offset} of {_name(uid)}",
            f"0 to {rooms[uid]} bytes",
        )


def verify_map(
    launch: Launch,
    recipe: TensorMap,
    offset: int,
    dims: Sequence[int],
    strides: Sequence[int],
    rooms: Rooms,
) -> None:
    """A tensor map covers its tensor, or its place in the workspace; its encoder refuses numbers
    that are none of 64 bits from 0 up.

    A map that begins before its tensor is an illegal address on the device, whatever is copied by
    it.  No kernel copies from a tensor without elements, which a map may show with extents of 1.
    """
    if 0 in dims or (recipe.uid >= 0 and not rooms[recipe.uid]):
        return
    reach = sum(map(operator.mul, dims, (element_bytes(recipe), *strides))) - sum(strides)
    if offset < 0 or offset + reach > rooms[recipe.uid]:
        raise _bad(
            f"kernel {launch.kernel}: a map of {reach} bytes at {offset} of {_name(recipe.uid)}",
            f"inside {rooms[recipe.uid]} bytes",
        )


def no_map(dims: Sequence[int], strides: Sequence[int]) -> DnncError:
    """The error of a tensor map whose numbers are none of 64 bits from 0 up."""
    return _bad(
        f"a tensor map of dims {list(dims)}, strides {list(strides)}",
        "numbers of 64 bits from 0 up",
    )


def element_bytes(recipe: TensorMap) -> int:
    """Bytes of an element as a tensor map has it."""
    return _ELEMENT_BYTES[recipe.dtype]


def verify_launch(launch: Launch, grid: tuple[int, int, int], smem: int) -> None:
    """A grid that is not empty, and bytes of dynamic shared memory, are what a launch can have."""
    x, y, z = grid
    if min(grid) < 0 or x >= 1 << 31 or max(y, z) >= 1 << 16:
        raise _no_launch(launch, f"grid {grid}", "from 0 to below 2**31, 2**16, 2**16")
    if launch.cluster != (1, 1, 1):
        a, b, c = launch.cluster
        if x % a or y % b or z % c:
            raise _no_launch(launch, f"grid {grid}", f"whole clusters of {launch.cluster} blocks")
    if smem < 0:
        raise _no_launch(launch, f"{smem} bytes of shared memory", "0 or more")


def _no_launch(launch: Launch, what: str, supported: str) -> DnncError:
    where = f"kernel {launch.kernel}"
    return DnncError(Status.NOT_SUPPORTED_BAD_LAUNCH_PARAM, what, supported, where)


def _name(uid: int) -> str:
    return "the workspace" if uid < 0 else f"tensor {uid}"


def _bad(what: str, supported: str) -> DnncError:
    return DnncError(Status.BAD_PARAM, what, supported)
