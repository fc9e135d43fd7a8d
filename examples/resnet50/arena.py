"""One piece of memory for all that lives only while the network runs, used again and again.

A tenant is what a layer makes or works in: it has a first and a last step, and bytes.  Two whose
steps meet never share a byte; others may.  The largest are placed first, each at the lowest
offset that is free for all its steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .network import ELEMENT_BYTES, Layer, elements

ALIGNMENT = 256  # of a workspace, and enough for every access


@dataclass(frozen=True)
class Tenant:
    """first, last: the steps in which it has to be there, both included."""

    name: str
    first: int
    last: int
    bytes: int

    def meets(self, other: Tenant) -> bool:
        """Whether both are there at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Arena:
    """offsets: by name, multiples of ALIGNMENT.  bytes: of the whole."""

    offsets: Mapping[str, int]
    bytes: int


def planned(tenants: Sequence[Tenant]) -> Arena:
    """Where each tenant lies; names differ."""
    placed: list[tuple[int, int, Tenant]] = []  # offset, end, tenant
    for tenant in sorted(tenants, key=lambda t: (-t.bytes, t.first, t.name)):
        offset = 0
        for start, end, other in sorted(placed, key=lambda p: p[:2]):
            if not tenant.meets(other):
                continue
            if offset + tenant.bytes <= start:
                break
            offset = max(offset, end)
        placed.append((offset, _aligned(offset + tenant.bytes), tenant))
    offsets = {tenant.name: offset for offset, _, tenant in placed}
    return Arena(offsets, max((end for _, end, _ in placed), default=0))


def _aligned(bytes_: int) -> int:
    return -(-bytes_ // ALIGNMENT) * ALIGNMENT


def workspace_name(layer: Layer) -> str:
    return f"workspace of {layer.name}"


def tenants_of(
    layers: Sequence[Layer], n: int, workspaces: Mapping[str, int], outside: Sequence[str]
) -> list[Tenant]:
    """The values that layers pass on, and their workspaces, for n images.

    A value is there from the layer that makes it to the last one that reads it, a workspace while
    its layer runs.  workspaces: bytes by layer.  outside: values that lie elsewhere.
    """
    last = {name: step for step, layer in enumerate(layers) for name in (layer.y, *layer.reads)}
    found: list[Tenant] = []
    for step, layer in enumerate(layers):
        if layer.y not in outside:
            bytes_ = n * elements(layer.op.y_shape) * ELEMENT_BYTES
            found.append(Tenant(layer.y, step, last[layer.y], bytes_))
        if workspaces.get(layer.name):
            name = workspace_name(layer)
            found.append(Tenant(name, step, step, workspaces[layer.name]))
    return found
