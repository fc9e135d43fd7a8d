"""SdpaChoice: the values of sdpa_fwd_sm90's knobs, named."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.hopper import wgmma
from ..engine import Knobs

_RESCALE, _PINS = 1, 2  # bits of KERNEL_CFG


@dataclass(frozen=True)
class SdpaChoice:
    """One value of each knob.

    queries: of a tile.  keys: of a step.  rescales: whether sums are scaled only where a row's
    maximum grows by more than a bound.  pins: whether part of a step's exponentials come before the
    second product ends.  is_dynamic: whether a block takes its next tile when it is free.  packs:
    whether heads that share keys are rows of one tile; None: there are no knobs of few queries.
    parts: blocks that share the keys of a tile.
    """

    queries: int
    keys: int
    stages: int
    rescales: bool
    pins: bool
    is_dynamic: bool
    packs: bool | None = None
    parts: int = 1

    @staticmethod
    def of(knobs: Knobs) -> SdpaChoice:
        config = knobs["KERNEL_CFG"]
        return SdpaChoice(
            knobs["TILE_M"],
            knobs["TILE_N"],
            knobs["STAGES"],
            bool(config & _RESCALE),
            bool(config & _PINS),
            bool(knobs["SCHED_POLICY"]),
            bool(knobs["PACK_GQA"]) if "PACK_GQA" in knobs else None,
            knobs.get("SPLIT_KV", 1),
        )

    @property
    def config(self) -> int:
        """The value of KERNEL_CFG."""
        return _RESCALE * self.rescales | _PINS * self.pins

    @property
    def knobs(self) -> dict[str, int]:
        """The knobs that `of` takes."""
        few = {} if self.packs is None else {"PACK_GQA": int(self.packs), "SPLIT_KV": self.parts}
        return {
            "TILE_M": self.queries, "TILE_N": self.keys, "STAGES": self.stages,
            "KERNEL_CFG": self.config, "SCHED_POLICY": int(self.is_dynamic), **few,
        }  # fmt: skip

    @property
    def is_of_few(self) -> bool:
        """Whether tiles are those of few queries."""
        return bool(self.packs) or self.parts > 1

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return self.queries // wgmma.M
