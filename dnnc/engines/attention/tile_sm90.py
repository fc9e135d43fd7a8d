"""How engine sdpa_fwd_sm90 tiles an attention, and where everything lies in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.hopper import wgmma
from ...codegen.hopper.pipeline import Pipeline
from ...codegen.hopper.tile_ring import TileRing
from ...codegen.hopper.transposed_bytes import TransposedBytes
from ...codegen.tiles.tile_table import TileTable

_PIN_BYTES = 4  # of the place whose address no store meets
NARROW = 64  # elements of a value, of which three warpgroups have tiles
OVERLAPPING = 3  # stages of queries: of a tile, of the one whose result leaves, and of the next
TRANSPOSERS = 3  # warps of the producer's that transpose values

_MOST_IDLE = 128  # elements of a value, beside which a warpgroup lets blocks go by
_MANY = 3  # warpgroups, which hide a tile's end without that
_MOST_BESIDE_TRANSPOSING = 190  # sums of a thread, for which fewer registers do
# The same, where tiles overlap and a mask compares numbers.  Of heads of 128, 128 keys a step would
# spill; 112 took 1.28 times as long, under a causal mask of documents.
_MOST_BESIDE_NUMBERS = 150

# Consumer warpgroups -> registers of a thread of the producer, and of a consumer; one leaves enough
# for all.
_REGISTERS = {2: (40, 232), 3: (32, 160)}
# The same where the producer transposes values, or looks up rows; beside wide values, whose sums
# would spill, it does without for tiles that are numbered.
_GATHERING = {2: (56, 224), 3: (56, 152)}


@dataclass(frozen=True)
class Kind:
    """The elements that are multiplied and stored.

    element_bytes: of operands; values of one byte are transposed on the way (`TransposedBytes`).
    staged_bytes: of an element of the staged output.  promotes: whether P @ V of some steps is a
    sum of its own, which is added in f32.
    """

    element_bytes: int = 2
    staged_bytes: int = 2
    promotes: bool = False

    @property
    def is_fp8(self) -> bool:
        return self.element_bytes == 1

    @property
    def step(self) -> int:
        """Keys of an instruction."""
        return 32 // self.element_bytes


@dataclass(frozen=True)
class SoftmaxTiling:
    """How exponentials are computed.

    rescale: how much, in powers of two, a row's maximum grows before sums are scaled; 0: always.
    pinned: share of a step's exponentials, in eighths, that come before the second product ends.
    lift: exponentials are so many powers of two larger.  tracks: whether a row's largest score is
    asked for, beside the one that sums are relative to.
    """

    rescale: int
    pinned: int
    lift: int = 0
    tracks: bool = False


@dataclass(frozen=True)
class QueryTiles:
    """How blocks go through the tiles of queries.

    is_dynamic: a block takes its next tile when it is free.  gathers: whether rows of keys or
    queries are looked up.  entries: of the batch at most, whose queries are packed and so are their
    results: shared memory has room for a table of them; 0: others.
    """

    is_dynamic: bool
    gathers: bool
    entries: int


@dataclass(frozen=True)
class FewQueries:
    """How few queries are tiled.

    axis: of the scores, whose entries that share keys are rows of one tile, so many of a query as
    `heads` says; -1, 1: none.  parts: of a tile's keys, each of which is one more tile.
    """

    axis: int = -1
    heads: int = 1
    parts: int = 1


@dataclass(frozen=True)
class SdpaMasks:
    """The masks' part of a tiling, known when the scores are lowered.

    is_longest_first: tiles of the last queries come first, and end with the last query.
    is_sparse: whether blocks of keys are left out by more than their place.  is_numbered: whether a
    mask compares numbers of queries and of keys.  hides_rows: whether rows past the lengths of
    packed queries have no scores, or no outputs.
    """

    is_longest_first: bool
    is_sparse: bool
    is_numbered: bool
    hides_rows: bool


@dataclass(frozen=True)
class SdpaTiling:
    """A tile of queries, which goes through blocks of keys.

    queries: of a block of threads, 64 a warpgroup.  keys: of a step.  depth, width: elements of a
    query and of a value.  stages: of keys and of values.  q_stages: of queries; the result leaves
    by way of its own tile's.  staged: the place of the output that does, -1: none.
    masks: None until the scores are lowered.
    """

    queries: int
    keys: int
    depth: int
    width: int
    stages: int
    q_stages: int
    staged: int
    tiles: QueryTiles
    softmax: SoftmaxTiling
    kind: Kind
    few: FewQueries = FewQueries()
    masks: SdpaMasks | None = None

    @property
    def _masks(self) -> SdpaMasks:
        assert self.masks is not None, "a tiling that is completed"
        return self.masks

    @property
    def is_longest_first(self) -> bool:
        return self._masks.is_longest_first

    @property
    def skips(self) -> bool:
        """Whether a warpgroup lets blocks of keys go by that only others of the tile need."""
        is_whole = self.is_longest_first and not self._masks.is_sparse
        return is_whole and self.width <= NARROW

    @property
    def idles(self) -> bool:
        """Whether a warpgroup without rows, past a sequence's end, lets all blocks of keys but one
        go by.  Where tiles overlap, the one behind is done with first.  Of wider values sums would
        spill."""
        is_alone = self._masks.is_sparse or self.consumers == 1
        has_room = self.width <= _MOST_IDLE and not is_alone
        return self.entries > 0 and has_room and not self.skips

    @property
    def entries(self) -> int:
        """Entries of the batch at most, whose tiles are numbered; 0: those of all rows are."""
        return self.tiles.entries if self._masks.hides_rows else 0

    @property
    def parts(self) -> int:
        return self.few.parts

    @property
    def lift(self) -> int:
        return self.softmax.lift

    @property
    def consumers(self) -> int:
        return self.queries // wgmma.M

    @property
    def threads(self) -> int:
        return (self.consumers + 1) * wgmma.WARPGROUP_THREADS

    @property
    def whole_width(self) -> int:
        """Elements of a value."""
        return self.width

    @property
    def row_unit(self) -> int:
        """Rows whose multiples tiles begin at: of a warpgroup, since TMA takes no part of those;
        of a tile, if blocks of keys begin there, one of which is on its diagonal then, not two."""
        is_aligned = self.keys % self.queries == 0 and self.few.heads == 1
        return self.queries if is_aligned else wgmma.M

    @property
    def overlaps(self) -> bool:
        """Whether a tile's last product and result come beside the next one's first block: where
        there are the registers for both, and all warpgroups go through all blocks."""
        has_room = self.q_stages > 1 and not self.transposes_values and self.consumers < _MANY
        if self._masks.is_numbered and self.sums > _MOST_BESIDE_NUMBERS:
            has_room = False
        return has_room and not self.skips

    @property
    def takes_turns(self) -> bool:
        """Whether warpgroups start their products in turn, as ping-pong.  Products of bytes
        keep the tensor cores busy for half of a step, to which waiting for a turn adds."""
        return not (self.transposes_values and self.width > NARROW)

    @property
    def hands_back_at_once(self) -> bool:
        """Whether a tile's queries are handed back when its result has left, for which the tile
        after the next waits; else one tile later."""
        return self.overlaps and self.q_stages < OVERLAPPING

    @property
    def registers(self) -> tuple[int, int] | None:
        """Registers of a thread of the producer, and of a consumer; None: as they come."""
        is_wide = self.entries > 0 and self.width > _MOST_IDLE
        is_busy = (self.tiles.gathers and not is_wide) or (
            self.transposes_values and self.sums <= _MOST_BESIDE_TRANSPOSING
        )
        return (_GATHERING if is_busy else _REGISTERS).get(self.consumers)

    @property
    def sums(self) -> int:
        """Registers of a thread for scores, weights and results."""
        results = self.width if self.kind.promotes else self.width // 2
        return self.keys // 2 + self.keys * self.kind.element_bytes // 8 + results

    # ---- panels of rows of 128 bytes

    @property
    def transposes_values(self) -> bool:
        """Whether values are transposed before they are multiplied."""
        return self.kind.element_bytes == 1

    @property
    def transposed(self) -> TransposedBytes:
        return TransposedBytes(self.keys, self.width)

    @property
    def panel(self) -> int:
        """Elements of a panel's row."""
        return wgmma.ROW_BYTES // self.kind.element_bytes

    @property
    def depth_panels(self) -> int:
        return -(-self.depth // self.panel)

    @property
    def width_panels(self) -> int:
        return -(-self.width // self.panel)

    @property
    def staged_panel(self) -> int:
        """Elements of a row of the staged output's panels."""
        return wgmma.ROW_BYTES // self.kind.staged_bytes

    @property
    def staged_panels(self) -> int:
        return -(-self.width // self.staged_panel)

    @property
    def q_bytes(self) -> int:
        """Bytes of a warpgroup's queries, or its result."""
        panels = max(self.depth_panels, self.staged_panels if self.staged >= 0 else 0)
        return panels * wgmma.M * wgmma.ROW_BYTES

    @property
    def k_bytes(self) -> int:
        return self.depth_panels * self.keys * wgmma.ROW_BYTES

    @property
    def v_bytes(self) -> int:
        """Bytes of a step's values as they are multiplied."""
        return self.transposed.bytes if self.transposes_values else self.raw_bytes

    @property
    def raw_bytes(self) -> int:
        """Bytes of a step's values as they lie in memory."""
        return self.width_panels * self.keys * wgmma.ROW_BYTES

    # ---- places in shared memory

    @property
    def k_offset(self) -> int:
        return self.consumers * self.q_stages * self.q_bytes

    @property
    def v_offset(self) -> int:
        return self.k_offset + self.stages * self.k_bytes

    @property
    def raw_offset(self) -> int:
        return self.v_offset + self.stages * self.v_bytes

    @property
    def k_barriers(self) -> int:
        return self.raw_offset + (self.stages * self.raw_bytes if self.transposes_values else 0)

    @property
    def v_barriers(self) -> int:
        return self.k_barriers + Pipeline.barrier_bytes(self.stages)

    @property
    def raw_barriers(self) -> int:
        return self.v_barriers + Pipeline.barrier_bytes(self.stages)

    @property
    def q_barriers(self) -> int:
        """Barriers of the first warpgroup's queries; those of the others follow."""
        return self.raw_barriers + (
            Pipeline.barrier_bytes(self.stages) if self.transposes_values else 0
        )

    @property
    def ring_barriers(self) -> int:
        return self.q_barriers + self.consumers * Pipeline.barrier_bytes(self.q_stages)

    @property
    def ring_offset(self) -> int:
        return self.ring_barriers + (TileRing.barrier_bytes() if self.tiles.is_dynamic else 0)

    @property
    def pins_offset(self) -> int:
        return self.ring_offset + (TileRing.bytes() if self.tiles.is_dynamic else 0)

    @property
    def table_offset(self) -> int:
        return self.pins_offset + (_PIN_BYTES if self.softmax.pinned else 0)

    @property
    def smem_bytes(self) -> int:
        return self.table_offset + (
            TileTable.bytes(self.tiles.entries) if self.tiles.entries else 0
        )
