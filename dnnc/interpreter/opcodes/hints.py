"""Instructions that change nothing here: prefetches, fences, policies, waits for other grids.

A fence orders what is ordered already, because every store is visible at once; a missing one shows
where global memory is watched.  Those towards the asynchronous proxy stand in `mbarrier`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Run, controls, decodes
from ..ptxtypes import TYPES
from .spaces import clock_rows

if TYPE_CHECKING:
    from ..decode import Control
    from ..machine import Machine


@decodes(
    "prefetch",
    "prefetchu",
    "applypriority",
    "discard",
    "griddepcontrol.launch_dependents",
    "fence.acquire",
    "fence.release",
    "fence.cta",
    "pmevent",
)
def nothing(d: Decoder) -> Run:
    del d
    return lambda m: None


@decodes("membar", "fence.sc", "fence.acq_rel", "fence.gpu", "fence.sys")
def fence(d: Decoder) -> Run:
    """Orders what is ordered already, but for the watch on global memory."""
    if not {"gpu", "gl", "sys"}.intersection(d.opcode):
        return lambda m: None
    d.ends_segment = True

    def run(m: Machine) -> None:
        if m.global_races is not None:
            m.global_races.fence(clock_rows(m, m.active()))

    return run


@decodes("griddepcontrol.wait")
def wait_for_launches(d: Decoder) -> Run:
    """The launches before have ended; they always have here, but for the watch on global memory."""
    d.ends_segment = True

    def run(m: Machine) -> None:
        if m.global_races is not None:
            m.global_races.wait_for_earlier(clock_rows(m, m.active()))

    return run


@decodes("createpolicy")
def create_policy(d: Decoder) -> Run:
    """A cache policy: an opaque value that accesses ignore."""
    write = d.write(d.operands[0], TYPES["b64"])
    value = np.zeros(1, np.uint64)
    return lambda m: write(m, value)


@controls("nanosleep")
def nanosleep(d: Decoder) -> Control:
    """The warp gives up its turn."""
    del d

    def control(m: Machine, pc: int) -> int:
        m.send(pc + 1)
        return -1

    return control
