"""The demands of operands' and outputs' types on engine sdpa_fwd_sm90, above all of fp8.

The registers of a thread that sums and weights may take are those beside which the assembler was
seen to spill nothing.
"""

from __future__ import annotations

from ... import dtypes
from ...dialect.fusion import Fusion
from ...errors import Status
from ..engine import Reason
from ..product.pattern import knob_reason
from .choice_sm90 import SdpaChoice
from .pattern import Attention, attention_of
from .surface import is_fp8, mixed_reasons
from .tile_sm90 import NARROW, Kind, SdpaTiling

PROMOTED_STEPS = 4  # whose sums the tensor cores add up, with fewer bits than f32

_SUMS = {1: 216, 2: 208, 3: 104}  # of fp8, by warpgroups
# Beside a producer that looks up rows, or finds tiles by their numbers, and in place, where a
# branch scales them.
_FEW_SUMS = 190
_FEW_SUMS_ALONE = 200  # of one warpgroup, whose branches scale nothing: values of 160 in FLOAT
_LEAST_STAGES = 2
_LEAST_KEYS = 64  # of a step
# Keys of a step -> share of the rate for 16 bits.
_WIDE_SHARES = {64: 0.70, 96: 0.81, 128: 0.90, 160: 0.885, 192: 0.905}
_NARROW_SHARES = {64: 0.44, 96: 0.49, 128: 0.53, 160: 0.535, 192: 0.575}
_NARROW_SHARES_OF_THREE = {64: 0.53, 96: 0.585}
_UNPINNED = 0.91
_ALONE = 0.55  # of one warpgroup
_PROMOTED = 160  # elements of a value, whose sums are held twice


def fp8_rate_share(choice: SdpaChoice, width: int) -> float:
    """The share of the tensor cores' rate for 16 bits, as measured on an H100, at 4096 keys."""
    consumers, keys = choice.consumers, choice.keys
    if width <= NARROW:
        shares = _NARROW_SHARES_OF_THREE if consumers == 3 else _NARROW_SHARES
    else:
        shares = _WIDE_SHARES
    pinned = 1.0 if choice.pins or consumers == 3 else _UNPINNED
    stages = 1.0 if choice.stages == _LEAST_STAGES else 0.998
    share = shares[min(keys, max(shares))]
    return share * pinned * stages * (_ALONE if consumers == 1 else 1.0)


def fp8_reasons(fusion: Fusion) -> list[Reason]:
    """Why an attention of fp8 is declined, beside what all are asked for."""
    found, reasons = attention_of(fusion), list[Reason]()
    if not is_fp8(found):
        return reasons
    reasons += mixed_reasons(found)
    if found.second.compute_type == dtypes.f32 and (found.width.constant or 0) > _PROMOTED:
        what = f"Dv = {found.width} of fp8 in FLOAT"
        supported = f"up to {_PROMOTED}, or FAST_FLOAT_FOR_FP8"
        reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, "head size", what, supported))
    return reasons


def fp8_knob_reasons(
    choice: SdpaChoice, tiling: SdpaTiling, kind: Kind, found: Attention
) -> list[Reason]:
    """Reasons against knobs that fp8 does not take."""
    reasons: list[Reason] = []
    if tiling.stages < _LEAST_STAGES:
        reasons.append(knob_reason(f"STAGES={tiling.stages} of fp8", f"{_LEAST_STAGES} or more"))
    if tiling.keys < _LEAST_KEYS:
        reasons.append(knob_reason(f"TILE_N={tiling.keys} of fp8", f"{_LEAST_KEYS} or more"))
    room = _SUMS[tiling.consumers]
    if found.gathers or not (tiling.tiles.is_dynamic and kind.promotes):
        is_alone = tiling.consumers == 1 and kind.promotes
        room = min(room, _FEW_SUMS_ALONE if is_alone else _FEW_SUMS)
    if tiling.sums > room:
        what = f"{tiling.sums} registers of sums and weights in {tiling.consumers} warpgroups"
        reasons.append(knob_reason(what, f"at most {room}"))
    if tiling.consumers > 2 and tiling.width > NARROW:
        what = f"values of {tiling.width} of fp8 in {tiling.consumers} warpgroups"
        reasons.append(knob_reason(what, f"up to {NARROW}"))
    return reasons
