# pyright: basic
"""StagedOperand: one operand of a warpgroup product, and how its tiles get into the stages.

TMA loads it as the instruction reads it, the blocks of a cluster that share a tile each a part
for all of them; or threads of the producer fetch it through g1 and store it.  What g1 reads at the
operand's own coordinates comes from a *raw* tile, which TMA brings ahead of time.  Or raw tiles are
all that the stages hold, and consumers walk g1 (`operand_fragments`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ... import dtypes
from .. import ops
from ..ampere.operand_tile import LoadPlan, RawTile, Side
from ..kernel import Kernel
from ..memory import smem
from ..memory.matrix_tile import MatrixTile
from ..memory.tensors import register_type
from ..region import Region
from ..walk.index import Coordinate, Index
from ..walk.region_walk import Walk
from . import tma, wgmma
from .cluster import Cluster


@dataclass(frozen=True)
class RawPlace:
    """A raw tile.  argument: of the region, by place, that g1 reads from it.  offset: of the tile,
    in its slot.  bytes: of it."""

    argument: int
    offset: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class StagePlan:
    """How an operand gets into the stages, and where it lies.

    is_a: whether it is A of the graph.  is_rows: whether it lies along the instruction's rows.
    load: how it comes, see `StagedOperand`.  offset: bytes from a stage's start.  bytes: of a
    stage.  raw: what comes in a ring of its own ahead of the stage.
    raws: what comes into a stage, of which warps compute the operand.
    """

    is_a: bool
    is_rows: bool
    load: LoadPlan
    offset: int = 0
    bytes: int = 0
    raw: RawPlace | None = None
    raws: tuple[RawPlace, ...] = ()

    @property
    def path(self) -> str:
        return self.load.path

    def renumbered(self, places: Sequence[int]) -> StagePlan:
        """A plan with other numbers of arguments; places: of each, the new one."""

        def moved(raw: RawPlace) -> RawPlace:
            return replace(raw, argument=places[raw.argument])

        raw = moved(self.raw) if self.raw else None
        return replace(self, raw=raw, raws=tuple(map(moved, self.raws)))


@dataclass
class StagedOperand:
    """See the file's docstring.

    value: the SSA tensor after g1.  plan: its path is "tma", "registers" (of the producer) or
    "fragments": raw tiles lie in the stages, and consumers compute from them.
    tile_rows: of the block's tile.  starts_anywhere: whether tiles begin at rows that are no
    multiples of theirs.  in_pairs: whether it is said of each tile which operand the two blocks of
    the cluster share.
    """

    kernel: Kernel
    region: Region
    value: Any
    plan: StagePlan
    row: wgmma.Instruction
    tile_rows: int
    cluster: Cluster
    starts_anywhere: bool = False
    in_pairs: bool = False

    def __post_init__(self) -> None:
        operand = self.row.a if self.plan.is_rows else self.row.b
        self.is_rows = self.plan.is_rows
        self.is_a = self.plan.is_a
        self.is_fragments = self.plan.path == "fragments"
        self.is_async = self.plan.path != "registers"
        self.panels = wgmma.Panels(self.tile_rows, operand.bits // 8, self.plan.load.k_contiguous)
        self.peers = self.cluster.columns if self.is_rows else self.cluster.rows
        blocks = self.cluster.rows if self.is_rows else self.cluster.columns
        if self.in_pairs:
            self.peers = blocks = self.cluster.blocks
        self.tile = MatrixTile(
            self.kernel, self.region, self.value, self.plan.load,
            Side(operand, self.is_a, self.tile_rows, self.panels.k),
            threads=wgmma.WARPGROUP_THREADS, is_panelled=True, blocks=blocks,
            starts_anywhere=self.starts_anywhere,
        )  # fmt: skip
        self.size, self.k_size = self.tile.size, self.tile.k_size
        self.raw: RawTile | None = None
        if self.is_async:
            self.box = self._box()
            self.map = tma.map_argument(self.kernel, self.box)
        elif self.plan.raw:
            self.box = self._raw_box()
            self.map = tma.map_argument(self.kernel, self.box)
            tensor, along_k = self.box.tensor, self.plan.load.loads_along_k
            self.raw = RawTile(
                register_type(tensor.type), tensor.type.bits // 8,
                self.tile_rows, self.panels.k, along_k,
            )  # fmt: skip

    @property
    def maps(self) -> list[Any]:
        """Its tensor map, of an operand that TMA brings."""
        return [self.map] if self.is_async else []

    def _box(self) -> tma.Box:
        """The box that one copy moves: a block's share of a K-major tile, or an MN-major panel."""
        rows, depth = self.tile.rows, self.tile.depth
        if self.is_fragments:
            tensor = self.region.arguments[self.raw_argument]
            return tma.Box(tensor, (depth, rows), (self.panels.k, self.tile_rows // self.peers))
        tensor = self.region.arguments[self.value]
        if self.panels.is_k_major:
            axes, extents = (depth, rows), (self.panels.k, self.tile_rows // self.peers)
        else:
            axes, extents = (rows, depth), (wgmma.PANEL_ROWS, self.panels.k)
        # TMA rounds to tf32 on the way; `wgmma` would cut.
        element = "tf32" if tensor.type == dtypes.f32 else ""
        return tma.Box(tensor, axes, extents, element)

    @property
    def raw_argument(self) -> Any:
        """The argument that g1 reads from raw tiles."""
        return list(self.region.arguments)[self._raw_place.argument]

    @property
    def _raw_place(self) -> RawPlace:
        assert self.plan.raw is not None, "an operand with raw tiles"
        return self.plan.raw

    @property
    def row_bytes(self) -> int:
        """The bytes of a row of its tile in a stage."""
        return self.box.row_bytes if self.is_fragments else wgmma.ROW_BYTES

    @property
    def bytes(self) -> int:
        """The bytes of its tile in a stage."""
        return self.tile_rows * self.row_bytes

    def _raw_box(self) -> tma.Box:
        """A whole tile of the argument that g1 reads, as it lies in memory."""
        tensor = self.region.arguments[self.raw_argument]
        axes, extents = (self.tile.depth, self.tile.rows), (self.panels.k, self.tile_rows)
        if not self.plan.load.loads_along_k:
            axes, extents = axes[::-1], extents[::-1]
        return tma.Box(tensor, axes, extents, is_swizzled=False)

    def load_raw(
        self, slot: Any, batch: Mapping[int, Coordinate], first: Any, first_k: Any, barrier: Any
    ) -> None:
        """Starts the copy of a raw tile; slot: of the raw ring."""
        at = self.tile.coordinates(batch, Index(first), Index(first_k))
        target = smem.byte_pointer(slot, self._raw_place.offset)
        tma.load(target, self.map, tma.place(self.box, at), barrier)

    def slot(self, stage: Any) -> Any:
        """Its tile in a stage."""
        return smem.byte_pointer(stage, self.plan.offset)

    def load(
        self,
        stage: Any,
        batch: Mapping[int, Coordinate],
        first: Any,
        first_k: Any,
        barrier: Any,
        rank: Any,
        is_across: Any = None,
    ) -> None:
        """Starts the copies of this block's share of a tile.

        rank: of the block.  is_across: of tiles in pairs, whether they have the same rows.
        """
        is_k_major = self.is_fragments or self.panels.is_k_major
        box_rows = self.box.extents[1 if is_k_major else 0]

        def copy(share: Any, of: int, to_ranks: Any) -> None:
            rows = self.tile_rows // of
            for offset in range(0, rows, box_rows):
                row = share * rows + offset
                at = self.tile.coordinates(batch, Index(first + row), Index(first_k))
                target = smem.byte_pointer(self.slot(stage), row * self.row_bytes)
                tma.load(target, self.map, tma.place(self.box, at), barrier, to_ranks=to_ranks)

        if not self.in_pairs:
            share, to_ranks = self.cluster.share(rank, of_rows=self.is_rows)
            copy(share, self.peers, to_ranks)
            return
        every = ops.const((1 << self.peers) - 1)

        def share_it() -> None:
            copy(rank, self.peers, every)

        def have_it_alone() -> None:
            copy(0, 1, None)

        branches = (share_it, have_it_alone) if self.is_rows else (have_it_alone, share_it)
        ops.if_else(is_across, *branches)

    def fill(
        self,
        stage: Any,
        batch: Mapping[int, Coordinate],
        first: Any,
        first_k: Any,
        raw_slot: Any = None,
    ) -> None:
        """Brings a tile through the registers of the producer's threads.

        raw_slot: of the raw ring, where there is a raw tile.
        """
        leaves: dict[Any, Any] = self.region.leaves(self.kernel)
        if self.raw is not None:
            self.raw.base = smem.byte_pointer(raw_slot, self._raw_place.offset)
            leaves[self.raw_argument] = self.raw
        walk = Walk(self.kernel, leaves, self.region.symbols)
        self.tile.fill(walk, batch, first, first_k, self.slot(stage), self.raw)
