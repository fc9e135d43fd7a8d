# pyright: basic
"""Loaded: a plan's program on one device, and what was worked out for sizes there."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from .. import log
from ..errors import DnncError, Status
from ..plan.plan import Launch, Plan, Program
from . import driver
from .recent import Recent
from .sized import Sized, Sizer

_log = log.logger(__name__)

# How many sets of sizes, and tensor maps, a plan remembers on a device.
_REMEMBERED = 256

# CUDA: more shared memory than this, static and dynamic, is for kernels that were allowed it.
_SMEM_WITHOUT_ASKING = 48 * 1024


def choose_program(plan: Plan, capability: tuple[int, int]) -> tuple[Program, bool]:
    """(the plan's program for a compute capability, whether its PTX must be compiled first).

    A cubin of the capability itself is best, exact ones first; then one of an earlier minor
    version; then PTX of an earlier architecture.  None fitting is NOT_SUPPORTED_ARCH_MISMATCH.
    """
    cubins = [
        p
        for p in plan.programs
        if tuple(p.capability) == capability
        or (not p.exact and p.capability[0] == capability[0] and p.capability[1] < capability[1])
    ]
    if cubins:
        return max(cubins, key=lambda p: (tuple(p.capability), p.exact)), False
    later = [
        p
        for p in plan.programs
        if tuple(p.capability) < capability and all(m.ptx_runs_later for m in p.modules)
    ]
    if later:
        return max(later, key=lambda p: tuple(p.capability)), True
    raise DnncError(
        Status.NOT_SUPPORTED_ARCH_MISMATCH,
        f"plan '{plan.name}' has no code for compute capability {capability[0]}.{capability[1]}",
        ", ".join(p.target for p in plan.programs),
        f"plan '{plan.name}'",
    )


class Loaded:
    """A plan's program on one device; threads may share it.

    maps: tensor maps that were made before; those of weights are the same at every size.
    """

    def __init__(self, plan: Plan, place: driver.Device):
        """Loads the code; the device's context is current."""
        program, from_ptx = choose_program(plan, place.capability)
        blobs = plan.blobs
        modules = [
            driver.load_module(blobs[m.ptx] + b"\0" if from_ptx else blobs[m.cubin])
            for m in program.modules
        ]
        # All of them now: a size that takes another kernel is not to wait for its code.
        self._kernels = {k.name: driver.kernel(modules[k.module], k.entry) for k in program.kernels}
        self._static_smem = {k.name: k.static_smem_bytes for k in program.kernels}
        # Bytes of dynamic shared memory that launches of a kernel may ask for.
        self._allowed_smem: dict[str, int] = {}
        self._lock = threading.Lock()
        self.device = place
        self._name = plan.name
        self._sizer = Sizer(plan, program, place, self._kernels, self._function)
        self._sized: Recent[Sized] = Recent(_REMEMBERED)
        self.maps: Recent[bytes] = Recent(_REMEMBERED)
        _log.info(
            "plan '%s' on device %d: %s of %s",
            plan.name, place.ordinal,
            "PTX, compiled by the driver" if from_ptx else "cubin", program.target,
        )  # fmt: skip

    def at(self, sizes: Mapping[str, int]) -> Sized:
        """The plan for values of its symbols, worked out when they are first asked for."""
        key = tuple(sorted(sizes.items()))
        found = self._sized.get(key)
        if found is None:
            _log.debug("plan '%s' at sizes %s", self._name, sizes)
            found = self._sizer.at(sizes)
            self._sized.add(key, found)
        return found

    def _function(self, launch: Launch, smem: int) -> Any:
        """A kernel that may be launched so; what it was allowed before stays allowed."""
        name = launch.kernel
        found = self._kernels[name]
        with self._lock:
            if name not in self._allowed_smem:
                self._allowed_smem[name] = _SMEM_WITHOUT_ASKING - self._static_smem[name]
                if launch.cluster != (1, 1, 1):
                    driver.allow_large_clusters(found)
            if smem > self._allowed_smem[name]:
                driver.allow_dynamic_smem(found, smem)
                self._allowed_smem[name] = smem
        return found
