# pyright: basic
"""The argument block of a launch, as the driver takes it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any


class Parameters:
    """The argument block of a launch: `address` is the driver's array of pointers to arguments."""

    def __init__(self, arguments: Sequence[bytes]):
        # Tensor maps must lie at multiples of 64 bytes.
        self._storage = [_aligned(data) for data in arguments]
        pointers = [ctypes.addressof(item) for _, item in self._storage]
        self._array = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        self.address = ctypes.addressof(self._array)


def _aligned(data: bytes) -> tuple[Any, Any]:
    owner = (ctypes.c_char * (len(data) + 64))()
    start = -ctypes.addressof(owner) % 64
    view = (ctypes.c_char * len(data)).from_buffer(owner, start)
    view[:] = data
    return owner, view
