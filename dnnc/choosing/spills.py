"""Choices whose kernels spill registers, as the assembler found, and those that would too.

What an epilogue holds beside the accumulators is known to the assembler alone.  So a choice that
spills is ranked no longer, nor are those of its engine with as many accumulators a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..engines.conv.facts_sm90 import main_loop_knobs
from ..engines.product.knobs_sm90 import accumulators
from ..plan.plan import Plan
from .choice_text import choice_of_text, choice_text

MOST_TRIES = 6
# A choice without spills that is predicted to take so many times as long is no better.
MOST_SLOWER = 3.0

# Rows of a tile of attention -> what warpgroups leave each other of an SM's registers,
# the other way round.
_PARTS_OF_REGISTERS = {64: 2, 128: 3, 192: 4}


def spilling_choices(plan: Plan) -> tuple[str, ...]:
    """The texts of the choices whose kernels spill, each once."""
    return tuple(dict.fromkeys(text for _, text in spilling_fusions(plan)))


def spilling_fusions(plan: Plan) -> list[tuple[int, str]]:
    """(place in the partition, text of its choice) of each fusion whose kernels spill; of equal
    fusions, which share kernels, the first."""
    found: dict[tuple[int, str], None] = {}
    for program in plan.programs:
        for kernel in program.kernels:
            if not (kernel.spill_store_bytes or kernel.spill_load_bytes):
                continue
            record = next(f for f in program.fusions if f.module == kernel.module)
            place = program.fusions_of(record.config_place).index(record)
            found[place, choice_text(record.engine, record.knobs)] = None
    return list(found)


def spilled_bytes(plan: Plan) -> int:
    """Stored by a thread, over all kernels."""
    return sum(k.spill_store_bytes for program in plan.programs for k in program.kernels)


def is_like(engine: str, knobs: Mapping[str, int], spilling: Sequence[str]) -> bool:
    """Whether a choice is one of those that spill, or has as many accumulators a thread."""
    for text in spilling:
        other, theirs = choice_of_text(text)
        if other.name == engine and (
            dict(knobs) == theirs or 0 < _pressure(engine, theirs) <= _pressure(engine, knobs)
        ):
            return True
    return False


def _pressure(engine: str, knobs: Mapping[str, int]) -> int:
    """Accumulators of a thread, or what it works on at once, where knobs say so; else 0."""
    if engine in ("matmul_sm90", "conv_product_sm90"):
        return accumulators(knobs)
    if engine == "conv_sm90":
        return accumulators(main_loop_knobs(knobs))
    if engine == "sdpa_fwd_sm90":
        return knobs["TILE_N"] * _PARTS_OF_REGISTERS[knobs["TILE_M"]]  # scores and weights
    if engine == "sdpa_sm80":
        # Scores and weights, beside a result of one size, and what comes after.
        return 2 * knobs["TILE_N"] + (knobs["SPLIT_KV"] == 1)
    if engine == "conv_depthwise":
        sums = knobs["LOAD_SIZE"] * knobs["TILE_ROWS"] * knobs["TILE_COLS"]
        return sums * max(1, knobs["OCCUPANCY"])  # of an SM's registers
    if engine == "pointwise":
        return knobs["ARRAY_SIZE_PER_THREAD"] * knobs["LOAD_SIZE"]
    if engine == "conv_grouped_sm80":
        return knobs["TILE_ROWS"] * knobs["TILE_N"]
    if engine in ("matmul_sm80", "conv_stem_sm90"):
        return knobs["TILE_M"] * knobs["TILE_N"]
    return 0
