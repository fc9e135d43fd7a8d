"""How engine sdpa_bwd_sm90 tiles a gradient, and where everything lies in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.hopper import wgmma
from ...codegen.hopper.mbarrier import BYTES as BARRIER_BYTES
from ...codegen.hopper.pipeline import Pipeline

CONSUMERS = 2  # warpgroups that multiply
_REGISTERS = (24, 240)  # of a thread of the producer, and of a consumer
_LOADING = (40, 232)  # where the producer cuts rows at lengths, or goes through lists
_PANEL = wgmma.ROW_BYTES // 2  # elements of a panel's row
STAGES = 2  # of queries and of dO, and buffers of dS, which are used in step
LONG_QUERIES = 64  # of a block, where heads are long: the rows of an instruction
_EASY_SUMS = 192  # registers of a thread
MOST_SHARED = 128  # elements of a head whose dK and dV a warpgroup has of its own keys
_MOST_WIDE = 192  # elements of a query beside whose dK a warpgroup has a dV of `MOST_SHARED`
_MOST_WHOLE = 192  # elements of a query whose dQ is in registers as a whole, beside dK
_MOST_COLUMNS = 128  # of dQ, else


@dataclass(frozen=True)
class GradientOrder:
    """The masks' and lengths' part of a tiling, known when the scores are lowered.

    is_longest_first: tiles of the first keys have the most queries, and come first.  cuts: whether
    rows of an operand are zeros past lengths.  joins_heads: a tile goes through its query heads of
    a block of queries before the next block.
    descends: a tile goes from its last block of queries to its first, so that all of a causal mask
    begin together, and the first keys, which come first, are the first to add to dQ: none waits
    long for its turn.  is_listed: whether lists say which blocks of queries a tile needs.
    """

    is_longest_first: bool
    cuts: bool
    joins_heads: bool
    descends: bool
    is_listed: bool


_UNKNOWN = GradientOrder(False, False, False, False, False)


@dataclass(frozen=True)
class GradientTiling:
    """A tile of keys, which goes through blocks of queries.

    queries: of a step.  depth, width: elements of a query and of a value.  parts: tiles that share
    the query heads of the same keys, whose sums of dK and dV another kernel adds up.
    is_ordered: tiles add to dQ in the order of their keys.  form: see `of_form`.
    at_once: of the long form, queries of a block whose scores are in registers together.
    order: None until the scores are lowered.
    """

    queries: int
    depth: int
    width: int
    parts: int = 1
    is_ordered: bool = False
    form: str = ""
    at_once: int = LONG_QUERIES
    order: GradientOrder | None = None

    @property
    def is_longest_first(self) -> bool:
        return (self.order or _UNKNOWN).is_longest_first

    @property
    def cuts(self) -> bool:
        return (self.order or _UNKNOWN).cuts

    @property
    def joins_heads(self) -> bool:
        return (self.order or _UNKNOWN).joins_heads

    @property
    def descends(self) -> bool:
        return (self.order or _UNKNOWN).descends

    @property
    def is_listed(self) -> bool:
        return (self.order or _UNKNOWN).is_listed

    def of_form(self) -> GradientTiling:
        """This tiling, as the record of its form."""
        forms = {"": GradientTiling, "narrow": NarrowTiling, "wide": WideTiling, "long": LongTiling}
        return forms[self.form](**{name: getattr(self, name) for name in self.__match_args__})

    @staticmethod
    def form_of(depth: int, width: int, *, is_fp8: bool) -> str:
        """The form of heads of some sizes."""
        if max(depth, width) <= MOST_SHARED:
            return "narrow" if is_fp8 else ""
        is_wide = depth <= _MOST_WIDE and width <= MOST_SHARED and not is_fp8
        return "wide" if is_wide else "long"

    @property
    def is_long(self) -> bool:
        """Whether warpgroups share keys, and have different products; see `LongTiling`."""
        return False

    @property
    def key_groups(self) -> int:
        """Warpgroups that have different keys."""
        return CONSUMERS

    @property
    def writers(self) -> int:
        """How many add to dQ, each its own part of a block."""
        return CONSUMERS

    @property
    def keys(self) -> int:
        """Keys of a block of threads."""
        return self.key_groups * wgmma.M

    @property
    def threads(self) -> int:
        return (CONSUMERS + 1) * wgmma.WARPGROUP_THREADS

    @property
    def splits(self) -> bool:
        """Whether a warpgroup tells the other that its part of dS is there, and waits later: 5%
        faster of small heads under a causal mask, 1 to 2% slower else."""
        return self.is_longest_first and self.shares_queries

    @property
    def registers(self) -> tuple[int, int]:
        return _LOADING if self.cuts or self.is_listed else _REGISTERS

    @property
    def sums(self) -> int:
        """The most registers of a thread for sums: dK, dV, scores and dP."""
        return (self.depth + self.width) // 2 + self.queries

    @property
    def is_tight(self) -> bool:
        """Whether sums leave few registers for the rest."""
        return self.sums > _EASY_SUMS

    # ---- dQ', [depth, queries], of which each warpgroup has a part

    @property
    def depth_panels(self) -> int:
        return -(-self.depth // _PANEL)

    @property
    def width_panels(self) -> int:
        return -(-self.width // _PANEL)

    @property
    def shares_queries(self) -> bool:
        """Whether warpgroups have different queries of dQ', not different elements of them."""
        return self.depth_panels == 1

    @property
    def dq_columns(self) -> int:
        """Queries of a warpgroup's part."""
        return self.queries // CONSUMERS if self.shares_queries else self.queries

    @property
    def dq_part_bytes(self) -> int:
        """Bytes of a warpgroup's part, in f32."""
        return wgmma.M * self.dq_columns * 4

    @property
    def dq_bytes(self) -> int:
        """Bytes of a block of queries' dQ', in f32."""
        return CONSUMERS * self.dq_part_bytes

    @property
    def staged_dq_bytes(self) -> int:
        """Bytes of dQ' in shared memory, on its way to memory."""
        return self.dq_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of what rows of a block of queries have, two numbers each."""
        return 2 * self.queries * 4

    # ---- parts of dK and dV, as consumers have them in registers

    def key_part_bytes(self, elements: int) -> int:
        """Bytes of a tile of keys' sums of so many elements, in f32."""
        return self.keys * elements * 4

    # ---- places in shared memory

    @property
    def k_bytes(self) -> int:
        return self.depth_panels * self.keys * wgmma.ROW_BYTES

    @property
    def v_bytes(self) -> int:
        return self.width_panels * self.keys * wgmma.ROW_BYTES

    @property
    def q_bytes(self) -> int:
        return self.depth_panels * self.queries * wgmma.ROW_BYTES

    @property
    def do_bytes(self) -> int:
        return self.width_panels * self.queries * wgmma.ROW_BYTES

    @property
    def ds_part_bytes(self) -> int:
        """Bytes of a warpgroup's part of dS, [queries][its keys]."""
        return self.queries * wgmma.ROW_BYTES

    @property
    def ds_bytes(self) -> int:
        return self.key_groups * self.ds_part_bytes

    @property
    def v_offset(self) -> int:
        return self.k_bytes

    @property
    def q_offset(self) -> int:
        return self.v_offset + self.v_bytes

    @property
    def do_offset(self) -> int:
        return self.q_offset + STAGES * self.q_bytes

    @property
    def ds_offset(self) -> int:
        return self.do_offset + STAGES * self.do_bytes

    @property
    def dq_offset(self) -> int:
        return self.ds_offset + STAGES * self.ds_bytes

    @property
    def rows_offset(self) -> int:
        return self.dq_offset + self.staged_dq_bytes

    @property
    def q_barriers(self) -> int:
        return self.rows_offset + STAGES * self.row_bytes

    @property
    def do_barriers(self) -> int:
        return self.q_barriers + Pipeline.barrier_bytes(STAGES)

    @property
    def kv_barriers(self) -> int:
        """Barriers of keys and of values."""
        return self.do_barriers + Pipeline.barrier_bytes(STAGES)

    @property
    def smem_bytes(self) -> int:
        return self.kv_barriers + 2 * BARRIER_BYTES + self.number_bytes

    @property
    def number_offset(self) -> int:
        """Where the number of an ordered tile lies."""
        return self.kv_barriers + 2 * BARRIER_BYTES

    @property
    def number_bytes(self) -> int:
        return 16 if self.is_ordered else 0


@dataclass(frozen=True)
class NarrowTiling(GradientTiling):
    """A tile of 128 keys whose operands have 8 bits.

    Tensor cores take these with k contiguous only: Q, dO and K lie in shared memory twice, as rows
    of 128 bytes and transposed, [elements][queries] and [elements][keys], one after the other; dS
    lies once, [queries][keys].  A head is one panel.
    """

    @property
    def splits(self) -> bool:
        return self.is_longest_first

    @property
    def transposed_depth(self) -> int:
        """Rows of transposed Q and K: of whole instructions."""
        return self.depth_panels * wgmma.M

    @property
    def transposed_width(self) -> int:
        return self.width_panels * wgmma.M

    @property
    def k_rows_bytes(self) -> int:
        """Bytes of a tile of K or V as it lies in memory."""
        return self.keys * wgmma.ROW_BYTES

    @property
    def q_rows_bytes(self) -> int:
        """Bytes of a block of Q or dO as it lies in memory."""
        return self.queries * wgmma.ROW_BYTES

    @property
    def k_bytes(self) -> int:
        return self.k_rows_bytes + self.transposed_depth * self.keys

    @property
    def v_bytes(self) -> int:
        return self.k_rows_bytes

    @property
    def q_bytes(self) -> int:
        return self.q_rows_bytes + self.transposed_depth * self.queries

    @property
    def do_bytes(self) -> int:
        return self.q_rows_bytes + self.transposed_width * self.queries

    @property
    def ds_bytes(self) -> int:
        return self.queries * self.keys


@dataclass(frozen=True)
class WideTiling(GradientTiling):
    """A tile of 128 keys with queries of three panels of elements, and few queries of a step.

    Of dQ' each warpgroup has a panel, and of the one between both half of the queries.
    """

    @property
    def dq_columns(self) -> int:
        return self.queries + self.queries // 2

    @property
    def adds_from_registers(self) -> bool:
        """Whether warpgroups add to dQ themselves: 4% faster of 192 elements under a causal mask,
        2% slower without one, 3% slower of 160."""
        return self.is_longest_first and not self.is_ordered and self.depth % _PANEL == 0


@dataclass(frozen=True)
class LongTiling(GradientTiling):
    """A tile of 64 keys, whose heads are longer than 128.

    dK and dV of one key take more registers than half of a warpgroup's threads have: one warpgroup
    has scores, dP and dV, the other dK and dQ, of all keys.  What they share is dS.

        registers of a thread of 240, D = Dv = 256      shared memory, 227 KiB
          scores 32, dP 32, dV 128, words of P 16         K 32, V 32, Q 2 * 32, dO 2 * 32
          dK 128, dQ 64 (half of its columns)             dS 2 * 8, what queries have 2 * 0.5
    """

    @property
    def is_long(self) -> bool:
        return True

    @property
    def key_groups(self) -> int:
        return 1

    @property
    def writers(self) -> int:
        return 1

    @property
    def splits(self) -> bool:
        return False

    @property
    def sums(self) -> int:
        columns = max(count for _, count in self.dq_parts)
        return max(self.width // 2 + self.at_once, (self.depth + columns) // 2)

    @property
    def dq_parts(self) -> list[tuple[int, int]]:
        """(first column, columns) of parts of dQ, [queries, D], that are made one by one."""
        most = self.depth if self.depth <= _MOST_WHOLE else _MOST_COLUMNS
        return [(at, min(most, self.depth - at)) for at in range(0, self.depth, most)]

    @property
    def dq_bytes(self) -> int:
        # Whole stores of the block of threads that fills them with zeros.
        return self.queries * -(-self.depth // 16) * 16 * 4

    @property
    def staged_dq_bytes(self) -> int:
        """Registers are added to memory themselves: both stages of Q and of dO leave no room."""
        return 0
