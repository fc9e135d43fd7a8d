"""The forward pass of n images: plans, where everything lies, launches.  Needs no compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dnnc.errors import DnncError, Status
from dnnc.runtime import ExecutionPlan, LoadedBundle

from . import arena
from .network import ELEMENT_BYTES, IMAGE, Layer, Network, Operation, elements

# Of the plans that serve every batch: the symbol's name, which is in theirs.
ANY = "N"

Plans = Mapping[Operation, ExecutionPlan]


def plans_of(bundle: LoadedBundle, network: Network, n: int) -> dict[Operation, ExecutionPlan]:
    """The plan of each operation: that for n images, or the one for all batches."""
    names = {op: next((name for name in (f"{op.id}@{n}", f"{op.id}@{ANY}") if name in bundle), "")
             for op in network.operations}  # fmt: skip
    missing = [op.id for op, name in names.items() if not name]
    if missing:
        raise DnncError(
            Status.BAD_PARAM,
            f"no plan of {missing[0]} for {n} images, nor of {len(missing) - 1} other operations",
            f"the network that it was built for, and {' or '.join(batches_of(bundle))} images",
            "bundle",
        )
    return {op: bundle[name] for op, name in names.items()}


def batches_of(bundle: LoadedBundle) -> list[str]:
    """Batches that the bundle has plans for: numbers of images, or ANY."""
    return list(dict.fromkeys(name.rpartition("@")[2] for name in bundle))


@dataclass(frozen=True)
class Places:
    """Addresses of device memory.

    image [n, size, size, 3], logits [n, classes]: outside of the arena.  parameters: (w, bias) by
    layer.
    """

    image: int
    logits: int
    arena: int
    parameters: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Call:
    """A plan with all that it is bound to.  layer: a Layer, or a Step of training."""

    layer: Any
    plan: ExecutionPlan
    pack: Mapping[str, int]
    workspace: int | None
    sizes: Mapping[str, int]

    def bind(self, stream: int = 0) -> Any:
        """The bound plan: calling it launches the layer on a stream."""
        return self.plan.bind(self.pack, self.workspace, stream=stream, sizes=self.sizes)

    def populate(self, graph: Any, after: Sequence[Any]) -> tuple[Any, ...]:
        """Adds the layer to a CUDA graph after some nodes; gives its last one."""
        nodes = self.plan.populate_cuda_graph(
            self.pack, self.workspace, graph, dependencies=after, sizes=self.sizes
        )
        return nodes[-1:]


class Forward:
    """A network's forward pass of n images.

    plans: of each of the network's operations.  Layers of one operation share its plan.
    """

    def __init__(self, network: Network, n: int, plans: Plans):
        self.network, self.n, self.plans = network, n, plans

    def _sizes(self, op: Operation) -> dict[str, int]:
        return {symbol.name: self.n for symbol in self.plans[op].plan.symbols}

    @cached_property
    def workspaces(self) -> dict[str, int]:
        """Bytes by layer."""
        needed = {op: self.plans[op].workspace_size(self._sizes(op)) for op in self.plans}
        return {layer.name: needed[layer.op] for layer in self.network.layers}

    @cached_property
    def arena(self) -> arena.Arena:
        """Where the values between the layers lie, and their workspaces."""
        outside = (self.network.logits,)
        return arena.planned(
            arena.tenants_of(self.network.layers, self.n, self.workspaces, outside)
        )

    @property
    def image_bytes(self) -> int:
        return self.n * elements(self.network.layers[0].op.x_shape) * ELEMENT_BYTES

    @property
    def logits_bytes(self) -> int:
        return self.n * self.network.classes * ELEMENT_BYTES

    def address(self, value: str, places: Places) -> int:
        """Where a value lies."""
        outside = {IMAGE: places.image, self.network.logits: places.logits}
        if value in outside:
            return outside[value]
        return places.arena + self.arena.offsets[value]

    def calls(self, places: Places) -> list[Call]:
        """The layers in order."""
        return [self._call(layer, places) for layer in self.network.layers]

    def _call(self, layer: Layer, places: Places) -> Call:
        pack = {"x": self.address(layer.x, places), "y": self.address(layer.y, places)}
        if layer.residual:
            pack["residual"] = self.address(layer.residual, places)
        if layer.op.w_shape:
            pack["w"], pack["bias"] = places.parameters[layer.name]
        workspace = None
        if self.workspaces[layer.name]:
            workspace = places.arena + self.arena.offsets[arena.workspace_name(layer)]
        return Call(layer, self.plans[layer.op], pack, workspace, self._sizes(layer.op))
