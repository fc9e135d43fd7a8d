"""st.async: a store to the cluster's shared memory, whose bytes count at an mbarrier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..decode import OWN, Decoder, Run, decodes
from .access import LANES, states_of
from .bits import source_slot
from .mbarrier import at_position, hopper_of, shared_place
from .spaces import thread_numbers

if TYPE_CHECKING:
    from ..machine import Machine

_SPACE = "shared::cluster"


@decodes("st.async")
def store(d: Decoder) -> Run:
    """`[to], value(s), [mbarrier]`, both places of one CTA."""
    for word in ("st", "async"):
        d.take(word)
    d.take("weak")
    if not (d.take(_SPACE) and d.take("mbarrier::complete_tx::bytes")):
        raise d.error("only stores to shared::cluster that complete bytes are modelled")
    count = LANES.get(d.choose(tuple(LANES)), 1)
    of = d.take_type()
    d.finish()
    d.expect(3)
    size = of.width // 8 * count
    d.smem_widths.add(size)
    place = shared_place(d, d.operands[0], _SPACE, size)
    sources = d.vector(d.operands[1], count)
    reads = [d.read(source, of, wide=True) for source in sources]
    slots = [source_slot(d, source) for source in sources]
    barrier = shared_place(d, d.operands[2], _SPACE, 8)
    d.poison, d.ends_segment = OWN, True
    instruction = d.instruction

    def run(m: Machine) -> None:
        active = m.active()
        _, index, fails = place(m, active)
        _, waits, fails_barrier = barrier(m, active)
        values = np.stack([np.ascontiguousarray(m.at(r(m), active)) for r in reads], axis=1)
        states = states_of(m, slots, of, active, index.size) if m.shadow else None
        hopper, stride = hopper_of(m), m.shared.stride
        for k, lane in enumerate(thread_numbers(m, active).tolist()):
            fail = at_position(fails_barrier, k)
            if int(waits[k]) // stride != int(index[k]) // stride:
                raise fail("is an mbarrier of another CTA than the destination's", 0)
            hopper.stores.issue(
                instruction, int(index[k]), size, values[k : k + 1],
                None if states is None else states[k : k + 1],
                hopper.mbarriers.of(int(waits[k]), lane, fail), lane, at_position(fails, k),
            )  # fmt: skip

    return run
