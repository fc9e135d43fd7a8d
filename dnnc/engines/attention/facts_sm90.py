# pyright: basic
"""Reads an attention for engine sdpa_fwd_sm90, and tiles it for a choice of knobs.

`legal` asks the tiling for the shared memory, the kernel is built by it.  The masks' part is known
when the scores are lowered: `masks_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ... import dtypes
from ...codegen.attention.mask_ranges import is_triangular
from ...codegen.attention.region import AttentionRegion
from ...codegen.hopper import tma
from ...dialect.fusion import Fusion, remembered
from ...dialect.ops import Pointwise, RaggedLoad, RaggedStore
from ...dialect.tensor import Tensor
from .choice_sm90 import SdpaChoice
from .few_sm90 import shared_queries
from .number_ranges import conditions_of
from .pattern import Attention, attention_of
from .surface import POWERS, head_of, is_fp8
from .tile_sm90 import (
    OVERLAPPING,
    FewQueries,
    Kind,
    QueryTiles,
    SdpaMasks,
    SdpaTiling,
    SoftmaxTiling,
)

_MOST_ENTRIES = 2048  # of a batch, in a table of their tiles
_PINNED = 1  # eighths of the exponentials
_SHARED_MEMORY = 227 << 10  # of a block of sm_90


@dataclass(frozen=True)
class SdpaFacts:
    """Parts of a fusion that its tiling depends on.

    head: elements of a query and of a value.  staged: the place of the output that leaves through
    shared memory, -1: none.  entries: of the batch at most, whose queries are packed and so are
    their results; 0: others, or too many for a table.  shows_maximum: whether an output depends on
    which maximum the sum is relative to.  packing: see `shared_queries`.
    """

    head: tuple[int, int]
    kind: Kind
    staged: int
    entries: int
    gathers: bool
    shows_maximum: bool
    packing: tuple[int, int] | None


@remembered
def facts_of(fusion: Fusion) -> SdpaFacts:
    found = attention_of(fusion)
    staged = _staged_output(fusion, found)
    kind = Kind()
    if is_fp8(found):
        width = fusion.outputs[staged].type.bits // 8 if staged >= 0 else 1
        kind = Kind(1, width, found.second.compute_type == dtypes.f32)
    return SdpaFacts(
        head=head_of(found),
        kind=kind,
        staged=staged,
        entries=_packed_entries(fusion, found),
        gathers=found.gathers,
        shows_maximum=_shows_maximum(fusion, found),
        packing=shared_queries(fusion),
    )


def _is_of_result(fusion: Fusion, found: Attention, output: Tensor) -> bool:
    return found.second in fusion.upstream(output)


def _staged_output(fusion: Fusion, found: Attention) -> int:
    """The first output of 16 bits, or of fp8 as the operands, that TMA can store; -1: none."""
    of_bytes, totals = is_fp8(found), {op.y for op in found.largest}
    for place, tensor in enumerate(fusion.outputs):
        axes = (tensor.rank - 1, tensor.rank - 2)
        is_narrow = tensor.type.bits == 16 or (of_bytes and tensor.type.is_fp8)
        is_fit = is_narrow and tensor not in totals and tma.refusal(tensor, axes) is None
        if is_fit and _is_of_result(fusion, found, tensor):
            return place
    return -1


def _packed_entries(fusion: Fusion, found: Attention) -> int:
    """See `SdpaFacts`."""
    load = found.operands.q.load
    if not isinstance(load, RaggedLoad) or found.kept:
        return 0
    totals = {op.y for op in found.largest}
    results = [t for t in fusion.outputs if _is_of_result(fusion, found, t) and t not in totals]
    most = load.padded.shape[0].bounds()[1]
    are_packed = all(isinstance(fusion.producers[t], RaggedStore) for t in results)
    return most if most <= _MOST_ENTRIES and are_packed else 0


def _shows_maximum(fusion: Fusion, found: Attention) -> bool:
    """See `SdpaFacts`: all but m + log(l) do, and what the product gives."""
    return not all(
        _is_log_sum(fusion, found, tensor)
        for tensor in fusion.outputs
        if tensor not in found.kept and not _is_of_result(fusion, found, tensor)
    )


def _is_log_sum(fusion: Fusion, found: Attention, output: Tensor) -> bool:
    added = _in_floats(fusion, output, "add")
    if added is None or found.maximum.y not in added:
        return False
    logs = [_in_floats(fusion, t, "log") for t in added if t is not found.maximum.y]
    return logs == [(found.total.y,)]


def _in_floats(fusion: Fusion, tensor: Tensor, mode: str) -> tuple[Tensor, ...] | None:
    """The operands of a pointwise operation, of one mode, whose every number is f32."""
    op = fusion.producers.get(tensor)
    if not isinstance(op, Pointwise) or op.mode != mode:
        return None
    types = {op.compute_type, *(t.type for t in (*op.operands, *op.results))}
    return tuple(op.operands) if types == {dtypes.f32} else None


# ---- tilings


@remembered
def tiling_of(fusion: Fusion, choice: SdpaChoice) -> SdpaTiling:
    """The tiling, but for what masks say, with the queries of several tiles in shared memory, if
    they fit."""
    facts = facts_of(fusion)
    kind, tracks = facts.kind, facts.shows_maximum
    if tracks and (choice.parts > 1 or (kind.is_fp8 and not kind.promotes)):
        # A part's reference is taken for its largest score; and FAST_FLOAT_FOR_FP8 keeps the
        # lift of weights, by which the largest result is more exact.
        choice, tracks = replace(choice, rescales=False), False
    rescale = POWERS if choice.rescales else 0
    if kind.is_fp8:
        rescale //= 4 if kind.promotes else 2
    depth, width = facts.head
    packing = (facts.packing or (-1, 1)) if choice.packs else (-1, 1)
    whole = SdpaTiling(
        queries=choice.queries,
        keys=choice.keys,
        depth=depth,
        width=width,
        stages=choice.stages,
        q_stages=1,
        staged=-1 if choice.is_of_few else facts.staged,
        tiles=QueryTiles(choice.is_dynamic, facts.gathers, facts.entries),
        softmax=SoftmaxTiling(
            rescale,
            _PINNED if choice.pins else 0,
            POWERS - rescale if kind.is_fp8 else 0,
            tracks and choice.rescales,
        ),
        kind=kind,
        few=FewQueries(*packing, choice.parts),
    )
    made: Sequence[SdpaTiling] = [replace(whole, q_stages=n) for n in (OVERLAPPING, 2)]
    return next((t for t in made if t.smem_bytes <= _SHARED_MEMORY), whole)


def masks_of(parts: AttentionRegion, tiling: SdpaTiling) -> SdpaMasks:
    """The masks' part of a tiling."""
    masks, outputs = parts.masks, parts.outputs
    hides = True
    if tiling.tiles.entries and (outputs.has_padded_statistics or outputs.largest):
        # Rows of no sequence have elements, or take part in what others have: where no mask hides
        # them, their queries are zeros, which see keys.
        hides = masks.hide_rows_past(parts.source(0, 0).values[0])
    numbered = []
    if not (tiling.tiles.entries and hides):
        numbered = conditions_of(masks.condition, parts.dims[-1], tiling.keys)
    return SdpaMasks(
        is_triangular(masks.condition), bool(masks.blocks or numbered), bool(numbered), hides
    )
