# pyright: basic
"""The steps of a plan with every address and argument filled in, for launches and graph nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import DnncError, Status
from ..plan.arguments import address_of, pack_number
from .args import Block
from .recent import Recent
from .sized import Sized, SizedLaunch, SizedMap


class KernelStep(NamedTuple):
    sized: SizedLaunch
    arguments: Block


class MemsetStep(NamedTuple):
    address: int
    value: int
    bytes: int


Steps = tuple[KernelStep | MemsetStep, ...]


@dataclass(frozen=True)
class Bound:
    """The bindings of a caller, checked.

    addresses, numbers: by uid.  workspace: its address, 0 for none.  peers: rank -> addresses.
    """

    addresses: Mapping[int, int]
    numbers: Mapping[int, float | int]
    workspace: int
    peers: Mapping[int, Mapping[int, int]]

    def address(self, uid: int, rank: int | None = None) -> int:
        """The address of a tensor, of the workspace for uid -1, of a peer's tensor where a rank
        is given."""
        if rank is not None:
            if rank not in self.peers:
                raise DnncError(
                    Status.BAD_PARAM, f"no buffers of rank {rank}", "peers of all ranks"
                )
            return address_of(self.peers[rank], uid)
        return self.workspace if uid < 0 else address_of(self.addresses, uid)


def lay_out(sized: Sized, bound: Bound, maps: Recent[bytes]) -> Steps:
    """maps: tensor maps that were made before; those of weights are the same at every size."""
    return tuple([
        _kernel(step, bound, maps) if isinstance(step, SizedLaunch)
        else MemsetStep(bound.address(step.uid) + step.offset, step.value, step.bytes)
        for step in sized.steps
    ])  # fmt: skip


def _kernel(step: SizedLaunch, bound: Bound, maps: Recent[bytes]) -> KernelStep:
    values = list(step.values)
    for place, uid, offset, rank in step.pointers:
        values[place] = bound.address(uid, rank) + offset
    for place, uid, type_ in step.numbers:
        values[place] = pack_number(bound.numbers[uid], type_)
    for map_ in step.maps:
        values[map_.place] = _encoded(map_, bound, maps)
    return KernelStep(step, step.layout.filled(values))


# Where the map of a tensor without elements begins whose address is 0, as an empty torch tensor's
# is: the driver takes no 0.  Nothing is moved by such a map.
NOWHERE = 256


def _encoded(map_: SizedMap, bound: Bound, maps: Recent[bytes]) -> bytes:
    base = bound.address(map_.recipe.uid)
    address = base + map_.offset if base else NOWHERE
    key = (map_.encode, address, map_.dims, map_.strides)
    found = maps.get(key)
    if found is None:
        found = map_.encode(address, map_.dims, map_.strides)
        maps.add(key, found)
    return found
