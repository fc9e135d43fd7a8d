"""A training step of n images: plans, where everything lies, launches.  Needs no compiler.

Values between steps lie in an arena: activations and what norms need until the backward pass has
read them, gradients until the step behind them has.  Master copies, velocities, running statistics
and the loss scale are there twice: a step reads one copy and writes the other, and the next step
has them the other way round, since plans of several operations do not work in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dnnc import dtypes
from dnnc.errors import DnncError, Status
from dnnc.runtime import ExecutionPlan, LoadedBundle

from . import arena
from .forward import Call
from .training_graphs import Operation, plan_name
from .training_steps import Step, Training, Value

Plans = Mapping[Operation, ExecutionPlan]

# Bytes of an element of a flat buffer.
BUFFER_BYTES = {"half": 2, "master": 4, "velocity": 4, "gradient": 4, "running": 4, "scaler": 4}
# Buffers of which a step reads one copy and writes the other.
DOUBLED = ("master", "velocity", "running", "scaler")


def plans_of(bundle: LoadedBundle, training: Training, n: int) -> dict[Operation, ExecutionPlan]:
    """The plan of each operation of a step of n images."""
    missing = [op.id for op in training.operations if plan_name(op, n) not in bundle]
    if missing:
        built = ", ".join(dict.fromkeys(name.rpartition("@")[2] for name in bundle))
        raise DnncError(
            Status.BAD_PARAM,
            f"no plan of {missing[0]} for {n} images, nor of {len(missing) - 1} other operations",
            f"the network that it was built for by `build --training`, and {built} images",
            "bundle",
        )
    return {op: bundle[plan_name(op, n)] for op in training.operations}


def bytes_of(plan: ExecutionPlan) -> dict[str, int]:
    """Bytes of each tensor of a plan whose sizes are fixed, by name."""
    return {
        tensor.name: dtypes.of_storage(tensor.dtype).storage_bytes(
            math.prod(int(extent) for extent in tensor.dims)
        )
        for tensor in plan.plan.tensors
    }


@dataclass(frozen=True)
class Places:
    """Addresses of device memory.

    given: image, labels, losses, rate.  buffers: flat ones by name; of those
    in DOUBLED two addresses, of the others one.
    """

    arena: int
    given: Mapping[str, int]
    buffers: Mapping[str, Sequence[int]]


class TrainingCalls:
    """A training step of n images, of plans of each of its operations."""

    def __init__(self, training: Training, n: int, plans: Plans):
        self.training, self.n, self.plans = training, n, plans

    @cached_property
    def workspaces(self) -> dict[Operation, int]:
        """Bytes by operation."""
        return {op: plan.workspace_size({}) for op, plan in self.plans.items()}

    @cached_property
    def tenants(self) -> list[arena.Tenant]:
        """Values and workspaces of the arena, with the steps in which each has to be there."""
        steps = self.training.steps
        sizes = {op: bytes_of(plan) for op, plan in self.plans.items()}
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        bytes_: dict[str, int] = {}
        for place, step in enumerate(steps):
            for tensor, value in step.values.items():
                if value.place == "arena":
                    first.setdefault(value.name, place)
                    last[value.name] = place
                    bytes_[value.name] = sizes[step.op][tensor]
        found = [arena.Tenant(name, first[name], last[name], bytes_[name]) for name in first]
        for place, step in enumerate(steps):
            if self.workspaces[step.op]:
                name = _workspace_name(step)
                found.append(arena.Tenant(name, place, place, self.workspaces[step.op]))
        return found

    @cached_property
    def arena(self) -> arena.Arena:
        return arena.planned(self.tenants)

    @property
    def most_alive(self) -> int:
        """Bytes of tenants at the step that has the most: no placement needs less."""
        steps = range(len(self.training.steps))
        return max(sum(t.bytes for t in self.tenants if t.first <= i <= t.last) for i in steps)

    def buffer_bytes(self, name: str) -> int:
        return self.training.layout.elements_of(name) * BUFFER_BYTES[name]

    def calls(self, places: Places, turn: int) -> list[Call]:
        """The steps in order.  turn: 0 or 1, which copies of DOUBLED buffers are read."""
        return [self._call(step, places, turn) for step in self.training.steps]

    def _call(self, step: Step, places: Places, turn: int) -> Call:
        pack = {name: self.address(value, places, turn) for name, value in step.values.items()}
        workspace = None
        if self.workspaces[step.op]:
            workspace = places.arena + self.arena.offsets[_workspace_name(step)]
        return Call(step, self.plans[step.op], pack, workspace, {})

    def address(self, value: Value, places: Places, turn: int) -> int:
        """Where a value lies."""
        if value.place == "arena":
            return places.arena + self.arena.offsets[value.name]
        if value.place == "given":
            return places.given[value.name]
        name = value.place.removeprefix("next_")
        if name in DOUBLED:
            start = places.buffers[name][turn ^ (name != value.place)]
        else:
            (start,) = places.buffers[name]
        parts = self.training.layout.of_buffer(name)
        offset = parts[value.name].offset if value.name else 0
        return start + offset * BUFFER_BYTES[name]


def _workspace_name(step: Step) -> str:
    return f"workspace of {step.name}"
