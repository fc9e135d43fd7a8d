"""Choices whose kernels spill registers, as the assembler found, and those that would too.

What an epilogue holds beside the accumulators is known to the assembler alone.  So a choice that
spills is ranked no longer, nor are those of its engine of the same register pressure.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..engines.engine import Engine, Knobs
from ..plan.plan import Plan
from .choice_text import choice_of_text, choice_text

MOST_TRIES = 6
# A choice without spills that is predicted to take so many times as long is no better.
MOST_SLOWER = 3.0


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


def is_like(engine: Engine, knobs: Knobs, spilling: Sequence[str]) -> bool:
    """Whether a choice is one of those that spill, or of its engine's choices of the same register
    pressure or more."""
    for text in spilling:
        other, theirs = choice_of_text(text)
        if other is not engine:
            continue
        pressure = engine.register_pressure(theirs)
        if dict(knobs) == theirs or 0 < pressure <= engine.register_pressure(knobs):
            return True
    return False
