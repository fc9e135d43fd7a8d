"""Launching a kernel: checks, batches of resident CTAs, one machine a batch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..target import STATIC_SMEM_BYTES, TARGETS
from .arena import CLEAN, Arena
from .failure import InterpreterError, failure
from .geometry import Dim3, Geometry
from .global_races import Watch
from .machine import Machine
from .memory import Memory
from .program import Program, program_of
from .ptx import Module
from .schedule import CTA_BY_CTA, Scheduler, choose_style
from .shared import SHARED_BASE

RESIDENT_CTAS = 64
# More rows than this make each array operation leave the cache.
_RESIDENT_WARPS = 512
# Shared memory and what is kept about it to find races.
_RESIDENT_BYTES = 64 << 20
STEP_LIMIT = 4_000_000
# A list of them all is made.
_MOST_CTAS = 1 << 20


@dataclass(frozen=True)
class Report:
    """The cost of a launch.  steps: instructions, each counted once a gang.  turns: gangs
    formed. style: how warps were scheduled."""

    steps: int
    turns: int
    style: str


def launch(
    module: Module,
    kernel: str,
    *,
    grid: Dim3,
    block: Dim3,
    params: Sequence[bytes],
    memory: Memory,
    dynamic_smem_bytes: int = 0,
    cluster: Dim3 = (1, 1, 1),
    seed: int = 0,
    step_limit: int = STEP_LIMIT,
    resident_ctas: int | None = None,
    watch: Watch | None = None,
    programmatic: bool = False,
) -> Report:
    """Run a kernel to its end.

    params: the bytes of each parameter, in order.  seed: decides the schedule, and when
    asynchronous copies read.  step_limit: steps after which the kernel counts as livelocked.
    resident_ctas: CTAs that run at the same time (default: at most 64, fewer where they are
    large); a kernel whose CTAs wait for each other needs them all.  watch: finds races in global
    memory, also with earlier launches that it watched.  programmatic: whether the launch may begin
    before the one ahead of it ends.  Errors: `InterpreterError`.
    """
    program = program_of(module, kernel)
    geometry = Geometry(grid, block, cluster)
    _check_limits(program, geometry)
    _check_smem(program, module.target, dynamic_smem_bytes)
    packed = _pack(program, params)
    rng = random.Random(seed)
    symbols = memory.symbols(module)
    style = choose_style(rng, geometry.ctas * geometry.warps)
    global_races = None
    if watch is not None:
        global_races = watch.begin(geometry, memory, program.needs, programmatic)
    steps = turns = 0
    for ctas in _batches(program, geometry, dynamic_smem_bytes, resident_ctas, rng):
        by_cta = style is CTA_BY_CTA
        machine = Machine(
            program, geometry, memory, symbols, packed, dynamic_smem_bytes,
            ctas, by_cta, rng, global_races,
        )  # fmt: skip
        scheduler = Scheduler(machine, style, step_limit - steps)
        # Inactive lanes compute on whatever their registers hold.
        with np.errstate(all="ignore"):
            scheduler.run()
        steps += machine.steps
        turns += scheduler.turns
    return Report(steps, turns, style.name)


def _check_limits(program: Program, geometry: Geometry) -> None:
    if geometry.ctas > _MOST_CTAS:
        raise _error(program, f"a grid of {geometry.ctas} blocks; at most {_MOST_CTAS} are run")
    required = program.limits.get("reqntid")
    if required is not None and (*required, 1, 1)[:3] != geometry.block:
        raise _error(program, f"block {geometry.block}, but .reqntid is {required}")
    most = program.limits.get("maxntid")
    if most is not None and geometry.threads > int(np.prod(most)):
        raise _error(program, f"block {geometry.block}, but .maxntid is {most}")
    cluster = program.limits.get("reqnctapercluster")
    if cluster is not None and (*cluster, 1, 1)[:3] != geometry.cluster:
        raise _error(program, f"cluster {geometry.cluster}, but .reqnctapercluster is {cluster}")


def _check_smem(program: Program, target: str, dynamic_smem_bytes: int) -> None:
    """A CTA may not ask for more shared memory than its target has; unknown targets may."""
    static = program.layout.static_smem_bytes
    most = {row.name: row.limits.smem_block_bytes for row in TARGETS}.get(target)
    if static > STATIC_SMEM_BYTES or (most is not None and static + dynamic_smem_bytes > most):
        what = f"{static} bytes of static and {dynamic_smem_bytes} of dynamic shared memory"
        raise _error(program, f"{what}; {target} allows {STATIC_SMEM_BYTES} static, {most} in all")


def _pack(program: Program, params: Sequence[bytes]) -> Arena:
    """The parameter buffer: each parameter at its place."""
    sizes = program.params
    if [len(param) for param in params] != list(sizes):
        given = [len(param) for param in params]
        raise _error(program, f"parameters of {given} bytes, but the kernel has {list(sizes)}")
    out = Arena(program.layout.param_bytes)
    out.state[:] = CLEAN
    for place, param in zip(program.layout.params, params, strict=True):
        out.data[place.offset : place.offset + len(param)] = np.frombuffer(param, np.uint8)
    return out


def _batches(
    program: Program,
    geometry: Geometry,
    dynamic_smem_bytes: int,
    resident_ctas: int | None,
    rng: random.Random,
) -> list[list[int]]:
    """CTAs that are resident together, clusters whole, in random order."""
    smem = SHARED_BASE + program.layout.static_smem_bytes + dynamic_smem_bytes
    kept = 2 * smem + 4 * geometry.warps * (smem // (program.needs.granule or smem))
    fitting = min(_RESIDENT_WARPS // geometry.warps, _RESIDENT_BYTES // kept)
    count = resident_ctas or max(1, min(RESIDENT_CTAS, fitting))
    clusters = geometry.clusters_first().tolist()
    rng.shuffle(clusters)
    together = max(1, count // len(clusters[0]))
    return [
        [cta for cluster in clusters[first : first + together] for cta in cluster]
        for first in range(0, len(clusters), together)
    ]


def _error(program: Program, what: str) -> InterpreterError:
    return failure(what, f"launch of {program.name!r}")
