# pyright: basic
"""Inputs of pointwise work that run across its outputs.

    y[r, c] = x[r, c] + z[r, c]     strides of y and z: [C, 1], of x: [1, R]

Threads side by side work on neighbours of y, that is along c, the fast axis; of z those are
neighbours too, of x they lie R elements apart: x is transposed, it runs along r.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...codegen.region import Access, Region, identity_access, loop_groups
from ...dialect.fusion import Fusion, rewritten_fusion
from ...dialect.tensor import Tensor, stride_order
from ...expr import Expr, product, typical
from ..surface import bytes_of
from ..views.accesses import reads
from ..views.refined import REFINED

_SECTOR_BYTES = 32  # of memory that are read together
_WARP_BYTES = 512  # of an output that a warp writes at once
_WORD_BYTES = 4  # that a thread's access takes in the first cache, however narrow it is
_CACHE_RATE = 2  # what is read again comes from caches, about that much faster than memory


@dataclass(frozen=True)
class Read:
    """One way in which an input is read.

    source: a fusion's tensor, or a region's SSA argument.  access: along each axis of the tensor.
    """

    source: Any
    tensor: Tensor
    access: Access

    def loops(self, dims: Sequence[Expr]) -> dict[int, int]:
        """Axis of the outputs, of those that are not 1 -> the input's own axis that follows it."""
        return {
            place[1]: axis
            for axis, place in enumerate(self.access)
            if place[0] == "loop" and dims[place[1]].constant != 1
        }

    def path(self, dims: Sequence[Expr]) -> tuple[int, ...]:
        """The axis of the outputs that each own axis follows; -1: it stays at 0."""
        axes = {own: axis for axis, own in self.loops(dims).items()}
        return tuple(axes.get(own, -1) for own in range(self.tensor.rank))


@dataclass(frozen=True)
class Sweep:
    """How memory is gone through by pointwise work whose outputs have equal dims.

    dims: of the outputs.  reads: every way in which an input is read, each once.
    """

    dims: tuple[Expr, ...]
    outputs: tuple[Tensor, ...]
    reads: tuple[Read, ...]

    @staticmethod
    def of_fusion(fusion: Fusion) -> Sweep:
        """Over axes that are fine enough for all of its tensors."""
        fusion = rewritten_fusion(fusion, REFINED)
        found = tuple(Read(leaf, leaf, access) for leaf, access in reads(fusion))
        return Sweep(fusion.outputs[0].shape, fusion.outputs, found)

    @staticmethod
    def of_region(region: Region) -> Sweep:
        found = tuple(
            Read(leaf, region.arguments[leaf], access)
            for leaf, access in region.reads()
            if leaf in region.arguments
        )
        outputs = tuple(tensor for _, tensor in region.outputs)
        return Sweep(outputs[0].shape, outputs, found)

    @property
    def model(self) -> Tensor:
        """The output that the others go along with: the first of those of the widest type."""
        return max(self.outputs, key=lambda tensor: tensor.type.bits)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Axes that all tensors agree on, outermost of the outputs first: see `loop_groups`."""
        accesses = [(read.tensor, read.access) for read in self.reads]
        accesses += [(tensor, identity_access(tensor.rank)) for tensor in self.outputs]
        order = stride_order(self.dims, self.model.layout)
        return loop_groups(self.dims, order, accesses)

    @property
    def fast(self) -> int | None:
        """The axis along which the outputs run; None: they have one element."""
        return self.groups[-1][-1] if self.groups else None

    def fastest(self, tensor: Tensor, loops: dict[int, int]) -> int:
        """The axis of the outputs along which a tensor's elements are closest together."""
        order = stride_order(tensor.shape, tensor.layout)
        return max(loops, key=lambda axis: order.index(loops[axis]))

    def across(self, read: Read) -> int | None:
        """The axis that a transposed input runs along; None: this one is not transposed.

        It has to have elements along the fast axis, too, whose places are the loops' own.
        """
        loops = read.loops(self.dims)
        is_plain = not read.tensor.is_by_value and read.tensor.type.kind != "b"
        has_others = any(place[0] == "other" for place in read.access)
        if not is_plain or has_others or self.fast not in loops:
            return None
        axis = self.fastest(read.tensor, loops)
        return None if axis in self.groups[-1] else axis

    @cached_property
    def transposed(self) -> tuple[Read, ...]:
        return tuple(read for read in self.reads if self.across(read) is not None)

    @cached_property
    def slow(self) -> int | None:
        """The axis along which most bytes of transposed inputs run."""
        axes = [axis for axis in map(self.across, self.transposed) if axis is not None]
        sizes = {
            axis: sum(
                read.tensor.type.bits for read in self.transposed if self.across(read) == axis
            )
            for axis in axes
        }
        return max(sizes, key=lambda axis: (sizes[axis], axis)) if sizes else None

    @property
    def slow_group(self) -> tuple[int, ...]:
        return next(group for group in self.groups if self.slow in group)

    def extent(self, group: Sequence[int]) -> Expr:
        """Elements of a group of axes."""
        return product(self.dims[axis] for axis in group)

    def gathered_bytes(self) -> float:
        """Bytes that gathering the transposed inputs, element by element, costs beyond reading them
        once.

        An element takes a sector of its own, or as much of one as its neighbours along the fast
        axis leave; a warp that covers several rows shares them.  All but the first come from
        caches.  On an H100, with one of two inputs of 2 bytes transposed, that is 8 times its
        bytes.
        """
        total = 0.0
        for read in self.transposed:
            size = read.tensor.type.bits // 8
            assert self.fast is not None
            step = typical(read.tensor.layout[read.loops(self.dims)[self.fast]]) * size
            rows = _WARP_BYTES // size / max(1, typical(self.extent(self.groups[-1])))
            sectors = min(_SECTOR_BYTES, step) / max(1.0, rows)
            times = max(sectors, _WORD_BYTES) / size / _CACHE_RATE
            total += max(0.0, times - 1) * bytes_of([read.tensor])
        return total
