# pyright: basic
"""Checks of what a caller asks the runtime for, by type, before anything is worked out."""

from __future__ import annotations

from typing import Any

from .. import given

_WORD = 1 << 64


def verify_pack(pack: Any) -> None:
    """A variant pack is a mapping."""
    given.verify_mapping(pack, "uid, unique name or tensor -> buffer", "variant pack")


def verify_peers(peers: Any) -> None:
    """Peers are addresses by rank and uid."""
    if peers is None:
        return
    given.verify_mapping(peers, "uid -> {rank: address}", "peers")
    for addresses in peers.values():
        given.verify_mapping(addresses, "rank -> address", "peers")
        for address in addresses.values():
            if not given.is_integer(address) or not 0 <= address < _WORD:
                raise given.error(address, "an address", "peers")


def verify_device(device: Any) -> None:
    """A device is an ordinal."""
    if device is not None and (not given.is_integer(device) or not 0 <= device < 1 << 31):
        raise given.error(device, "the ordinal of a device", "device")
