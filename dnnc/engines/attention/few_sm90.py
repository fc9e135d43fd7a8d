"""Few queries in engine sdpa_fwd_sm90: heads that share keys as rows of a tile, and parts of keys.

With few queries memory is the bound: a tile has the queries of all heads that share keys
(PACK_GQA), so that each key is read once, and blocks share a tile's keys (SPLIT_KV), so that there
are enough of them to have all of the bandwidth; a second kernel adds up what they have.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...codegen.hopper import tma, wgmma
from ...dialect.fusion import Fusion, remembered
from ...dialect.ops import RaggedLoad, RaggedStore
from ...expr import product
from ...target import Target
from ..engine import Knob, Prediction, Reason
from ..product.pattern import knob_reason
from ..surface import BANDWIDTH_SHARE, LAUNCH_SECONDS
from .choice_sm90 import SdpaChoice
from .model_sm80 import parts_seconds
from .pattern import attention_of
from .sm80 import packing_in, work_of
from .surface import operands

KNOBS = (
    Knob("PACK_GQA", (0, 1), "1: the heads that share keys are rows of one tile"),
    Knob("SPLIT_KV", (1, 2, 4, 8, 16, 32, 64), "blocks that share the keys of a tile"),
)

_MOST_QUERIES = 256  # of a head, up to which there are few
_MOST_ROWS = 1024  # queries of the heads that share keys, up to which these are packed
_MOST_TILES = 1 << 31
_TILES = (64, 128)  # rows
_STEPS = (128, 64)  # keys
_STAGES = (2, 3, 4)
_MOST_BLOCKS = 4  # of an SM, one after the other, from which on no tile's keys are shared
_LEAST_BLOCKS = 0.9  # of an SM, below which memory may wait for them
_BY_TMA = 1.06 * BANDWIDTH_SHARE  # of memory's bandwidth
_START_SECONDS = 1.5e-6  # of a launch, until its first keys are there
_BETWEEN_SECONDS = 0.6e-6  # from the end of a tile to the products of the next
_OTHER_SHARE = 0.1  # of what is not the bound, seen beside it
_AGAIN_SHARE = 0.1  # of memory's time, that bytes take which another tile reads then, too
_PARTS_SHARE = 0.8  # of memory's bandwidth, at which parts are written and read


@remembered
def has_few(fusion: Fusion) -> bool:
    """Whether there may be few queries, whose heads share tiles or whose keys blocks share."""
    found = attention_of(fusion)
    if found.kept or any(isinstance(op, RaggedLoad | RaggedStore) for op in fusion.ops):
        return False
    return found.queries.bounds()[0] <= _MOST_QUERIES


@remembered
def shared_queries(fusion: Fusion) -> tuple[int, int] | None:
    """(axis of the scores, how many of its entries share keys) of queries that TMA moves as rows
    of one tile; None: it can't, or no heads share keys."""
    packing, found = packing_in(fusion), attention_of(fusion)
    if packing is None or not has_few(fusion):
        return None
    (axis, heads), (_, q, axes) = packing, operands(found)[0]
    fills = wgmma.M % heads == 0 or heads % wgmma.M == 0
    is_in_place = (
        q.load is None
        and q.made_by is None
        and q.lengths is None
        and q.batch[axis] == found.batch[axis]
    )
    if not (fills and is_in_place):
        return None
    return packing if tma.refusal(q.tensor, (axes[0], axis, axes[1])) is None else None


def few_reasons(choice: SdpaChoice, fusion: Fusion) -> list[Reason]:
    """Why these knobs can't be."""
    reasons: list[Reason] = []
    if choice.packs and shared_queries(fusion) is None:
        what = "no heads that share keys, of a number that divides 64 or is a multiple of it"
        reasons.append(knob_reason(what, "PACK_GQA=0"))
    found, parts = attention_of(fusion), choice.parts
    tiles = product(found.batch) * found.queries * parts
    if parts > 1 and tiles.bounds()[1] >= _MOST_TILES:
        reasons.append(knob_reason(f"{tiles} tiles and parts of them", "fewer than 2^31"))
    return reasons


def few_choices(
    fusion: Fusion, target: Target, rescales: bool, pins: bool
) -> Iterator[SdpaChoice]:  # fmt: skip
    """Tiles that are worth a look, legal or not."""
    work = work_of(fusion)
    if attention_of(fusion).gathers:
        return  # not timed; sdpa_sm80 reads pages at the speed of memory
    pack = int(shared_queries(fusion) is not None)
    rows = work.queries * (work.shared if pack else 1)
    if rows > _MOST_ROWS:
        return
    for queries in _TILES:
        if queries != _TILES[0] and queries // 2 >= rows:
            continue
        tiles = work.tiles(queries, bool(pack))
        for keys in _STEPS:
            for parts in KNOBS[1].values:
                blocks = tiles * parts / target.sm_count
                is_enough = _LEAST_BLOCKS <= blocks <= _MOST_BLOCKS
                if (parts == 1 and not pack) or parts * keys > work.keys or not is_enough:
                    continue
                for stages in _STAGES:
                    yield SdpaChoice(
                        queries, keys, stages, rescales, pins, False, bool(pack), parts
                    )  # fmt: skip


def few_seconds(fusion: Fusion, choice: SdpaChoice, rate: float, target: Target) -> Prediction:
    """rate: operations a second of an SM."""
    work, parts = work_of(fusion), choice.parts
    tiles = work.tiles(choice.queries, bool(choice.packs))
    blocks = min(tiles * parts, target.sm_count)
    rounds = -(-tiles * parts // blocks)
    steps = -(-work.keys // choice.keys) / parts
    elements = work.depth + work.width
    flops = 2 * choice.queries * choice.keys * elements
    products = rounds * ((steps + 0.6) * flops / rate + _BETWEEN_SECONDS)
    read = tiles * work.keys * elements * work.element_bytes
    again = _AGAIN_SHARE * max(0, read - work.key_bytes)
    moved = work.key_bytes + work.other_bytes + again
    # The last blocks have the memory for themselves, but don't use all of it.
    moved *= rounds * blocks / (tiles * parts)
    memory = moved / (target.dram_gbs * 1e9 * _BY_TMA)
    seconds = max(memory, products) + _OTHER_SHARE * min(memory, products)
    seconds += LAUNCH_SECONDS + _START_SECONDS
    seconds += parts_seconds(work, parts, target, _PARTS_SHARE)
    return Prediction(seconds, "memory" if memory > products else "tensor cores")
