# pyright: basic
"""TMA (TMA): boxes of tensors between global and shared memory, by tensor maps.

A tensor map is 128 bytes that the host encodes from a recipe in the plan (`plan.TensorMap`) and
passes by value.  Coordinates are elements, innermost first; what lies outside the tensor is
loaded as zeros and not stored.  Source: PTX ISA, "Tensors"; CUDA driver API, "Tensor Map".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ...dialect.tensor import Tensor
from ...expr import Expr, at_least, ceildiv
from ...mlir import arith, ir, llvm, nvvm
from ...plan.plan import TensorMap
from .. import ops
from ..kernel import Kernel
from ..walk.index import Coordinate
from . import mbarrier

ALIGNMENT = 16  # bytes: of a tensor's address, of its strides, of a box's rows
SHARED_ALIGNMENT = 128  # bytes: of where a box lies in shared memory
MAX_RANK = 5
MAX_BOX = 256
_MAX_STRIDE = 1 << 40
_MAX_EXTENT = 1 << 32

# Bytes of a box's row -> the swizzle under which rows of that length have no bank conflicts.
SWIZZLES = {128: "128B", 64: "64B", 32: "32B", 16: "NONE"}


@dataclass(frozen=True)
class Box:
    """A box of a tensor's elements, as one copy moves it.

    tensor: in memory.  axes: the tensor's axes of the box, innermost first; every other axis has
    an extent of 1 in the box.  extents: of the box along `axes`.  element: how the elements are
    read, as the driver names types ("" for the tensor's own).  is_swizzled: rows of the box, of
    16 to 128 bytes, are swizzled against bank conflicts; otherwise they follow each other.
    """

    tensor: Tensor
    axes: tuple[int, ...]
    extents: tuple[int, ...]
    element: str = ""
    is_swizzled: bool = True

    def __post_init__(self) -> None:
        assert max(self.extents) <= MAX_BOX, f"{self.extents} is too large a box"

    @property
    def row_bytes(self) -> int:
        return self.extents[0] * self.tensor.type.bits // 8

    @property
    def bytes(self) -> int:
        total = self.tensor.type.bits // 8
        for extent in self.extents:
            total *= extent
        return total

    @property
    def map_axes(self) -> tuple[int, ...]:
        """The axes of the map: the box's, then those that a copy chooses a place along."""
        return (*self.axes, *outer_axes(self.tensor, self.axes))

    @property
    def strides(self) -> list[Expr]:
        """Bytes from an element to the next along the map's axes, without the innermost."""
        return strides_of(self.tensor, self.map_axes)

    @property
    def recipe(self) -> TensorMap:
        axes = self.map_axes
        dims = extents_of(self.tensor, axes)
        return TensorMap(
            mode="tiled",
            uid=self.tensor.memory_uid,
            offset=str(offset_of(self.tensor)),
            dtype=self.element or self.tensor.type.name,
            dims=tuple(map(str, dims)),
            strides=tuple(map(str, self.strides)),
            element_strides=(1,) * len(axes),
            box=(*self.extents, *(1,) * (len(axes) - len(self.extents))),
            swizzle=SWIZZLES[self.row_bytes] if self.is_swizzled else "NONE",
            l2_promotion="L2_256B",
        )


class MovedBox(Protocol):
    """A box of rows that copies bring to shared memory.  extents: elements of a row, rows."""

    @property
    def tensor(self) -> Tensor: ...

    @property
    def extents(self) -> tuple[int, ...]: ...

    @property
    def row_bytes(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def recipe(self) -> TensorMap: ...


def with_parts(box: Box) -> list[Box]:
    """A box, then those of fewer of its rows that `move_rows` takes: of powers of two."""
    first, height, *rest = box.extents
    parts = (1 << n for n in reversed(range((height - 1).bit_length())))
    return [box, *(replace(box, extents=(first, part, *rest)) for part in parts)]


def move_rows(boxes: Sequence[Box], count: Any, move: Callable[[int, Any], None]) -> None:
    """Moves the first rows of a box, `count` of them, fewer than it has, by one thread.

    boxes: `with_parts`.  move: moves one of them, by its number, from a row of the box on, which
    is a multiple of twice the rows that it moves.

    A map whose box ends at any row, as one that has the rows twice, would begin before the tensor:
    where nothing is mapped there, TMA ends in an illegal address, whatever it reads.
    """
    for which, part in enumerate(boxes[1:], 1):
        height = part.extents[1]
        with ops.if_((count & height).ne(0)):
            move(which, count & (-2 * height))


def offset_of(tensor: Tensor) -> int:
    """Bytes from the beginning of a tensor's memory to its first element."""
    return tensor.offset * tensor.type.bits // 8


def extents_of(tensor: Tensor, axes: Sequence[int]) -> list[Expr]:
    """Extents of a map along its axes, 1 at least: of an empty tensor nothing is moved."""
    return [at_least(tensor.shape[axis], 1) for axis in axes]


def strides_of(tensor: Tensor, axes: Sequence[int]) -> list[Expr]:
    """Bytes from an element to the next along a map's axes, without the innermost.

    A stride over one element, or in an empty tensor, is never taken, but has to be valid.
    """
    size = tensor.type.bits // 8
    inner, *outer = axes
    packed = ceildiv(tensor.shape[inner] * size, ALIGNMENT) * ALIGNMENT
    strides = [
        packed if tensor.shape[axis].constant == 1 else tensor.layout[axis] * size for axis in outer
    ]
    return [at_least(stride, ALIGNMENT) for stride in strides]


def outer_axes(tensor: Tensor, axes: Sequence[int]) -> list[int]:
    """The axes beside `axes` along which a tensor's elements differ, innermost first."""
    return [
        axis
        for axis in reversed(range(tensor.rank))
        if axis not in axes
        and tensor.shape[axis].constant != 1
        and tensor.layout[axis].constant != 0
    ]


def refusal(tensor: Tensor, axes: Sequence[int]) -> str | None:
    """Why TMA can't move boxes of a tensor whose rows lie along axes[0]."""
    size = tensor.type.bits // 8
    if tensor.type.bits not in (8, 16, 32):
        return f"{tensor.type} elements"
    inner = axes[0]
    if tensor.layout[inner].constant != 1 and tensor.shape[inner].constant != 1:
        return "rows are not contiguous"
    if tensor.alignment % ALIGNMENT:
        return f"an alignment of {tensor.alignment} bytes"
    every = (*axes, *outer_axes(tensor, axes))
    if len(every) > MAX_RANK:
        return f"{len(every)} axes"
    for axis in every:
        if not 1 <= tensor.shape[axis].bounds()[1] <= _MAX_EXTENT:
            return f"an extent of {tensor.shape[axis]}"
    for axis in every[1:]:
        stride = tensor.layout[axis] * size
        if tensor.shape[axis].constant == 1:
            continue
        # A multiple that is not 16 at least is 0: of a broadcast, or of an empty tensor.
        is_taken = stride.constant != 0 and not stride.known_divisor() % ALIGNMENT
        if not is_taken or stride.bounds()[1] >= _MAX_STRIDE:
            return f"a stride of {tensor.layout[axis]} elements"
    return None


def map_argument(kernel: Kernel, box: MovedBox) -> Any:
    """The tensor map of a box as a kernel argument, !llvm.ptr."""
    return kernel.tensor_map(box.recipe)


def place(box: Box, at: Sequence[Coordinate]) -> list[Any]:
    """The i32 coordinates of a box that begins at some coordinates of its tensor."""
    return [ops.value_of(at[axis].index().base) for axis in box.map_axes]


def prefetch(map_: Any) -> None:
    """Brings a tensor map to TMA's cache."""
    nvvm.prefetch(map_, tensormap=True)


def load(target: Any, map_: Any, at: Sequence[Any], barrier: Any, *, to_ranks: Any = None) -> None:
    """Starts the copy of a box to shared memory; its bytes count for `barrier`.

    target: !llvm.ptr<3>.  at: i32 coordinates.  to_ranks: None, or an i32 whose bit r says that
    block r of the cluster gets the box, at the same place, and the bytes on its barrier.
    """
    mask = None
    if to_ranks is not None:
        mask = arith.TruncIOp(ir.IntegerType.get_signless(16), to_ranks).result
    nvvm.cp_async_bulk_tensor_shared_cluster_global(
        mbarrier.in_cluster(target), map_, list(at), barrier, [], multicast_mask=mask
    )


def store(source: Any, map_: Any, at: Sequence[Any], policy: Any = None) -> None:
    """Starts the copy of a box from shared memory; `commit` closes a group of them.

    policy: of L2, an i64; None: its usual one.
    """
    nvvm.cp_async_bulk_tensor_global_shared_cta(map_, source, list(at), l2_cache_hint=policy)


def commit() -> None:
    nvvm.cp_async_bulk_commit_group()


def wait_read(pending: int) -> None:
    """Waits until at most `pending` of this thread's groups have yet to read shared memory."""
    nvvm.cp_async_bulk_wait_group(pending, read=True)


def wait(pending: int) -> None:
    """Waits until at most `pending` of this thread's groups are under way."""
    nvvm.cp_async_bulk_wait_group(pending)


def show_to_bulk() -> None:
    """Orders this thread's writes to memory before later bulk copies and additions."""
    llvm.inline_asm(None, [], "fence.proxy.async;", "", has_side_effects=True)


def show_writes() -> None:
    """Shows this thread's writes to shared memory to TMA and the tensor cores.

    A barrier between the writers and who starts the copy or the product follows.
    """
    _fence()


def end_reads(*, of_cluster: bool = False) -> None:
    """Ends this thread's reads of shared memory before an arrival lets copies write there.

    of_cluster: of other blocks' memory, too.  An arrival alone is no order between reads and
    copies, which go other ways: `ldmatrix` was seen to read what a copy brought after it, while
    another warpgroup's products had all of shared memory.
    """
    _fence("cluster" if of_cluster else "cta")


def start_after_reads(*, of_cluster: bool = False) -> None:
    """Orders what others read of shared memory, before they arrived where this thread has waited,
    ahead of the copies that it starts.

    PTX takes this fence in place of the readers' own (`end_reads`).  It is for readers that have
    used every value when they arrive: it waits for no load of another warp.  In products whose
    weights go through registers, the readers' own took 2 to 3% of the time on an H200.
    """
    _fence("cluster" if of_cluster else "cta")


def _fence(space: str = "cta") -> None:
    nvvm.fence_proxy(
        ir.Attribute.parse("#nvvm.proxy_kind<async.shared>"),
        space=ir.Attribute.parse(f"#nvvm.shared_space<{space}>"),
    )
