"""Instructions that change nothing here: prefetches, fences, policies, waits for other grids.

A fence orders what is ordered already, because every store is visible at once; a missing one
goes unnoticed.  Those towards the asynchronous proxy do something, and stand in `mbarrier`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Run, controls, decodes
from ..ptxtypes import TYPES

if TYPE_CHECKING:
    from ..decode import Control
    from ..machine import Machine


@decodes(
    "prefetch",
    "prefetchu",
    "applypriority",
    "discard",
    "griddepcontrol",
    "membar",
    "fence.sc",
    "fence.acq_rel",
    "fence.acquire",
    "fence.release",
    "fence.cta",
    "fence.gpu",
    "fence.sys",
    "pmevent",
)
def nothing(d: Decoder) -> Run:
    del d
    return lambda m: None


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
