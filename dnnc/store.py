"""Where a compiler keeps what it made: bytes by key."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Store(Protocol):
    """Bytes by key; `get` gives None for what is not there."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, data: bytes) -> None: ...


class MemoryStore:
    """A store in memory that drops what was not used longest.

    max_bytes: how much it holds (default 256 MiB).
    """

    def __init__(self, max_bytes: int = 256 << 20):
        self.max_bytes = max_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> bytes | None:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key]

    def put(self, key: str, data: bytes) -> None:
        if len(data) > self.max_bytes:
            return
        self._bytes += len(data) - len(self._kept.pop(key, b""))
        self._kept[key] = data
        while self._bytes > self.max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= len(dropped)
