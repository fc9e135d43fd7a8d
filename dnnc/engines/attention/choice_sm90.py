"""SdpaChoice: the values of sdpa_fwd_sm90's knobs, named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ...codegen.hopper import wgmma
from ..knob_values import KnobValues


@dataclass(frozen=True)
class SdpaChoice(KnobValues):
    """One value of each knob.

    queries: of a tile.  keys: of a step.  rescales: whether sums are scaled only where a row's
    maximum grows by more than a bound.  pins: whether part of a step's exponentials come before the
    second product ends.  is_dynamic: whether a block takes its next tile when it is free.  packs:
    whether heads that share keys are rows of one tile; None: there are no knobs of few queries.
    parts: blocks that share the keys of a tile.
    """

    queries: Annotated[int, "TILE_M"]
    keys: Annotated[int, "TILE_N"]
    stages: Annotated[int, "STAGES"]
    rescales: Annotated[bool, "KERNEL_CFG", 1]
    pins: Annotated[bool, "KERNEL_CFG", 2]
    is_dynamic: Annotated[bool, "SCHED_POLICY"]
    packs: Annotated[bool | None, "PACK_GQA"] = None
    parts: Annotated[int, "SPLIT_KV"] = 1

    @property
    def knobs(self) -> dict[str, int]:
        found = super().knobs
        if self.packs is None:
            del found["SPLIT_KV"]
        return found

    @property
    def is_of_few(self) -> bool:
        """Whether tiles are those of few queries."""
        return bool(self.packs) or self.parts > 1

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return self.queries // wgmma.M
