"""Decisions of engine conv_grouped_sm80 on a convolution before it emits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from ...codegen.ampere import mma
from ...codegen.tiles.strips import met
from ...dtypes import DType
from ...target import WARP_THREADS
from ..knob_values import KnobValues
from .pattern import ConvShape

# Lanes of a warp that share a pixel: each has the channels of another tap of the last axis.
TAPS = 4
PIXELS = mma.M  # along the last axis and through the images, of a warp
RESULTS = mma.N  # of a group, of an instruction

_UNITS = (1, 2, 4, 8)
_MOST_LIVE = 150  # registers of a thread: the filter, sums, a line of pixels
_MOST_BESIDE_PARTS = 80  # the same, where parts of words come, with addresses and conditions
_EASY = 100  # registers that lines may take ahead of their use, so that several blocks have room


@dataclass(frozen=True)
class LanePhase:
    """Which taps of the last axis give pixels of a phase.

    sets: for each set of four lanes, the filter's taps that meet their pixels of X; None: none.
    """

    number: int
    sets: tuple[tuple[int | None, ...], ...]


def phases_of_lanes(shape: ConvShape) -> tuple[LanePhase, ...]:
    """The phases of the last axis; one, unless the convolution is a gradient with a stride."""
    count = -(-shape.windows[-1].taps // TAPS) * TAPS
    if shape.spread is None:
        found = [{tap: tap for tap in range(shape.windows[-1].taps)}]
    else:
        axis = shape.spread.axes[-1]
        found = [
            {
                axis.offset(phase) + i * axis.step: phase.first_tap + i * phase.tap_step
                for i in range(phase.taps)
            }
            for phase in axis.phases
        ]
    return tuple(
        LanePhase(
            number,
            tuple(
                tuple(map(met.get, range(first, first + TAPS))) for first in range(0, count, TAPS)
            ),
        )
        for number, met in enumerate(found)
    )


def any_tap(lanes: tuple[int | None, ...]) -> bool:
    return any(tap is not None for tap in lanes)


@dataclass(frozen=True)
class GroupedChoice(KnobValues):
    """One value of each knob.

    rows: of 16 output pixels that a warp has at once.  results: output channels of a warp, of one
    group.  rounds: tiles that a warp works on, one after the other.  threads: of a block.
    """

    rows: Annotated[int, "TILE_ROWS"]
    results: Annotated[int, "TILE_N"]
    rounds: Annotated[int, "ARRAY_SIZE_PER_THREAD"]
    threads: Annotated[int, "BLOCK_SIZE"]


@dataclass(frozen=True)
class GroupedTiling:
    """See the file's docstring.

    results: output channels of a warp, of one group.  units: such parts of the channels, of a
    block's warps.  warps: of a block.  rows: of output pixels, along the axis before the last.
    rounds: strips that a warp works on, one after the other.  ahead: lines of pixels that are
    loaded before the first is used.
    """

    results: int
    units: int
    warps: int
    rows: int
    rounds: int
    ahead: int

    @property
    def threads(self) -> int:
        return self.warps * WARP_THREADS

    @property
    def strips(self) -> int:
        """That a block works on at once."""
        return self.warps // self.units

    def tiles(self, axes: int) -> tuple[int, ...]:
        """Outputs of a strip along each spatial axis before the last, of which there are so
        many."""
        return (1,) * (axes - 1) + (self.rows,) * (axes > 0)


@dataclass(frozen=True, eq=False)
class GroupedFacts:
    """Facts of a convolution that knobs and tilings depend on.

    type: of X and W.  tap_registers: of a lane, for a tap's channels as they come from memory;
    None: whole words.
    """

    shape: ConvShape
    type: DType
    tap_registers: int | None = None

    @property
    def tap_words(self) -> int:
        """Registers of a lane for the channels that a tap meets."""
        return self.shape.c_group * self.type.bits // 32

    @property
    def sets(self) -> int:
        """Sets of four taps of the last axis."""
        return -(-self.shape.windows[-1].taps // TAPS)

    @property
    def line_words(self) -> int:
        """Registers of a line of pixels: two of each lane."""
        return 2 * self.sets * self.tap_words

    @property
    def _line_registers(self) -> int:
        """Registers of a line of pixels as it comes from memory."""
        return 2 * self.sets * (self.tap_registers or self.tap_words)

    @property
    def most_live(self) -> int:
        """Registers beside which there is room for the rest of what a thread needs."""
        comes_in_parts = (self.tap_registers or 0) > self.tap_words
        return _MOST_BESIDE_PARTS if comes_in_parts else _MOST_LIVE

    @cached_property
    def phases(self) -> int:
        """Phases of the last axis."""
        return len(phases_of_lanes(self.shape))

    @property
    def row_strides(self) -> int:
        """Rows of the output from one of a phase to the next."""
        spread = self.shape.spread
        return spread.axes[-2].stride if spread and len(spread.axes) > 1 else 1

    def held(self, results: int) -> int:
        """Registers of the filter."""
        outer = math.prod(move.taps for move in self.shape.moves[:-1])
        sets = sum(any_tap(lanes) for phase in phases_of_lanes(self.shape) for lanes in phase.sets)
        return outer * sets * self.tap_words * results // RESULTS

    def live(self, rows: int, results: int) -> int:
        """Registers of the filter, of sums, and of a line."""
        sums = rows * self.phases * results // RESULTS * 4
        return self.held(results) + sums + self._line_registers

    def lines(self, rows: int) -> int:
        """Lines of X that a strip meets."""
        outer = self.shape.moves[:-1]
        tiles = GroupedTiling(RESULTS, 1, 1, rows, 1, 1).tiles(len(outer))
        count = 1
        for tile, window in zip(tiles, outer, strict=True):
            count *= len(met(tile, window))
        return count

    def tiling(self, choice: GroupedChoice) -> GroupedTiling:
        results, rows, warps = choice.results, choice.rows, choice.threads // WARP_THREADS
        parts = self.shape.groups * self.shape.k_group // results
        room = _EASY - self.live(rows, results)
        ahead = 1 + max(0, room // self._line_registers)
        return GroupedTiling(
            results=results,
            units=units_of_block(parts, warps),
            warps=warps,
            rows=rows,
            rounds=choice.rounds,
            ahead=min(self.lines(rows), ahead),
        )

    def illegal(self, choice: GroupedChoice) -> Iterable[tuple[str, str]]:
        """(what is wrong, what would be accepted) of each constraint that knobs break."""
        rows, results = choice.rows, choice.results
        if self.shape.k_group % results:
            what = f"TILE_N={results} of {self.shape.k_group} output channels a group"
            yield what, f"a divisor of them, {RESULTS} or more"
        if rows % self.row_strides:
            yield f"TILE_ROWS={rows} of a gradient", f"a multiple of its stride {self.row_strides}"
        if rows > 1 and len(self.shape.windows) == 1:
            yield f"TILE_ROWS={rows} of one spatial dim", "1"
        if (live := self.live(rows, results)) > self.most_live:
            what = f"{live} registers of the filter, of sums and of pixels a thread"
            yield what, f"at most {self.most_live}"


def units_of_block(parts: int, warps: int) -> int:
    """How many neighbouring parts of the channels a block's warps have: as many as leave at most a
    quarter of all warps without one, since what they read together lies in the same lines."""
    fitting = (n for n in _UNITS if warps % n == 0 and 3 * -(-parts // n) * n <= 4 * parts)
    return max(fitting, default=1)
