# pyright: basic
"""Results of a tile in shared memory to the parts of an output, by TMA.

A buffer is of one part (`tiling_sm90`): the thread that starts copies looks which, and starts the
copy by that part's tensor map.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...codegen import ops
from ...codegen.hopper import tma
from ...codegen.hopper.staged_store import StagedStore
from ...codegen.kernel import Kernel
from ...codegen.memory.parted import StoredPart
from ...codegen.tiles.schedule import TilePlace
from ...codegen.walk.index import Index
from .matrices_sm90 import MatrixSpace


class PartedStore:
    """The copies of one output's buffers.

    store: of the buffers.  space: where rows and columns lie along the product's dims.
    """

    def __init__(
        self, kernel: Kernel, store: StagedStore, parts: Sequence[StoredPart], space: MatrixSpace
    ):
        self.kernel, self.store, self.space = kernel, store, space
        self.parts = [(part, self._box(part)) for part in parts]
        self.maps = [tma.map_argument(kernel, box) for _, box in self.parts]

    def _box(self, part: StoredPart) -> tma.Box:
        """A buffer's box in a part's tensor, along the axes that count fastest."""
        axes = tuple(part.axes[axis][-1] for axis in self.store.box.axes)
        return tma.Box(part.tensor, axes, self.store.box.extents)

    def start(self, source: Any, there: TilePlace, policy: Any) -> None:
        """Starts the copy of a buffer; there: its first row and column."""
        at = self.space.at(there.batch, Index(there.row), Index(there.column))
        column = at[-1].index().base
        for (part, box), map_ in zip(self.parts, self.maps, strict=True):
            with ops.if_(part.has(column)):
                corner = tma.place(box, part.at(self.kernel, at, 1))
                self.store.start(map_, source, corner, policy)
